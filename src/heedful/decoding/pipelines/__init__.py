"""The same uses, called and answering as in Hugging Face's Transformers 4: `pipeline` makes one for each task."""
