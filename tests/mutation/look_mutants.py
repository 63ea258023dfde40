"""Bugs to plant in looks at every family, in auxiliary losses, and in what a summary is written from."""

from mutant_kind import Mutant

LOOKS = ("insight/test_look_families.py",)
ENCODERS = ("insight/test_look_encoder.py",)
TEXTS = ("insight/test_look_decoder.py",)
AUXILIARY = ("training/test_auxiliary_losses.py",)
EXTRACT = ("training/test_extracted_sources.py",)
CAUSES = ("insight/test_ablation.py",)
PAGES = ("page/test_family_pages.py",)

IN_LOOKS = [
    Mutant(
        "the target is read with the source's embedding",
        "insight/model_layout.py",
        'embedding=Place("embedding", call),  # one table embeds both texts: call 0 is the source',
        'embedding=Place("embedding", 0),',
        LOOKS,
    ),
    Mutant(
        "every step of a Universal Transformer is its last",
        "insight/model_layout.py",
        "Place(self.layers, call) for call in",
        "Place(self.layers) for call in",
        LOOKS,
    ),
    Mutant(
        "the walk forgets that T5 divides before its output layer",
        "insight/model_layout.py",
        "output_scale=model.config.output_scale",
        "output_scale=1.0",
        LOOKS,
    ),
    Mutant(
        "a look ends sources with heedful's mark, not the model's",
        "insight/look.py",
        "ids = (*special_ids.with_source_bos(given), special_ids.eos_id)",
        "ids = (*given, 3)",
        LOOKS,
    ),
    Mutant(
        "the last step of a thought counts as much as its chance",
        "insight/halting.py",
        "torch.where(stops, 1 - spent, chance) * running",
        "chance * running",
        LOOKS,
    ),
    Mutant(
        "an earlier lens takes one step too many",
        "insight/logit_lens.py",
        "twin.decoder_steps.n_steps = place.call + 1",
        "twin.decoder_steps.n_steps = place.call + 2",
        LOOKS,
    ),
    Mutant(
        "a language model's map shows the future as seen",
        "insight/attention_maps.py",
        "dtype=torch.bool).tril()",
        "dtype=torch.bool)",
        TEXTS,
    ),
    Mutant(
        "the walk of BERT forgets its segment",
        "insight/positions.py",
        "return code + model.segments.weight[0] if isinstance(model, Bert) else code",
        "return code",
        ENCODERS,
    ),
    Mutant(
        "the label of a word stands at its neighbour",
        "insight/look_encoder.py",
        '"place": one.place,',
        '"place": one.place + 1,',
        ENCODERS,
    ),
    Mutant(
        "patches are bright by the class token's weights, whoever looks",
        "page/attention.js",
        "weights: weights.subarray(row * n, (row + 1) * n) };",
        "weights: weights.subarray(0, n) };",
        PAGES,
    ),
    Mutant(
        "the lower layers foretell to the end",
        "training/auxiliary_losses.py",
        "if done < layer / (2 * self.n_layers) else 0.0",
        "if done < 1.0 else 0.0",
        AUXILIARY,
    ),
    Mutant(
        "what lies further ahead may lie in another document",
        "training/auxiliary_losses.py",
        "    if isolate_documents:\n        real = real",
        "    if False:\n        real = real",
        AUXILIARY,
    ),
    Mutant(
        "heads that serve in training are saved with the best model",
        "training/trainer.py",
        "and not self.ema and auxiliary_heads(self.model) is None:",
        "and not self.ema:",
        AUXILIARY,
    ),
    Mutant(
        "long sources are learned from as they are",
        "training/data_preparation.py",
        "pairs if extract is None else Reduced(pairs, extract)",
        "pairs",
        EXTRACT,
    ),
    Mutant(
        "what a word gives is taken for what it takes away",
        "insight/ablation.py",
        "(log_p[0] - log_p[1:]).T",
        "(log_p[1:] - log_p[0]).T",
        CAUSES,
    ),
    Mutant(
        "words that are hidden one by one stay hidden",
        "insight/ablation.py",
        "masks[row, slice(*words[index])] = False",
        "masks[row:, slice(*words[index])] = False",
        CAUSES,
    ),
    Mutant(
        "in a notebook's frame the page asks for an address of its own",
        "page/state.js",
        'if (location.protocol !== "about:") {',
        "{",
        ("page/test_page.py",),
    ),
]
