"""Folders of Hugging Face's `transformers`, read and written.

checkpoint          read and write a folder; MODEL_TYPES lists the supported model types
tensor_map          one row for each tensor, used in both directions
config_files        read config.json by an allow-list; labels, generation_config.json, prefixes
marian bart t5 gpt bert vit      the settings and the tensors of each model type
tokenizer_import    read a checkpoint's tokenizer with `transformers`
tokenizer_export    write tokenizers as `transformers` reads them
"""
