"""Bugs to plant in looks at every family, in auxiliary losses, and in the shortening of sources for summaries."""

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
        "a look at BART takes the source's embedding for the target's",
        "insight/model_layout.py",
        'embedding=Place("embedding", call),  # one table embeds both texts: call 0 is the source',
        'embedding=Place("embedding", 0),',
        LOOKS,
    ),
    Mutant(
        "a look takes each step of a Universal Transformer for its last",
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
        "a look uses heedful's special ids instead of the model's",
        "insight/look.py",
        "ids = (*special_ids.with_source_bos(part.segment.ids), special_ids.eos_id)",
        "ids = (*part.segment.ids, 3)",
        LOOKS,
    ),
    Mutant(
        "a look weighs the last step of adaptive computation by its probability",
        "insight/halting.py",
        "torch.where(stops, 1 - spent, chance) * running",
        "chance * running",
        LOOKS,
    ),
    Mutant(
        "the logit lens of an earlier layer runs one step too many",
        "insight/logit_lens.py",
        "twin.decoder_steps.n_steps = place.call + 1",
        "twin.decoder_steps.n_steps = place.call + 2",
        LOOKS,
    ),
    Mutant(
        "a language model's attention map has the future as visible",
        "insight/attention_maps.py",
        "dtype=torch.bool).tril()",
        "dtype=torch.bool)",
        TEXTS,
    ),
    Mutant(
        "the walk through BERT omits the segment embedding",
        "insight/positions.py",
        "return code + model.segments.weight[0] if isinstance(model, Bert) else code",
        "return code",
        ENCODERS,
    ),
    Mutant(
        "a look shows a word's label at the next word",
        "insight/look_encoder.py",
        '"place": word.position,',
        '"place": word.position + 1,',
        ENCODERS,
    ),
    Mutant(
        "the page colours patches by the class token's weights for every query",
        "page/attention.js",
        "weights: weights.subarray(row * n, (row + 1) * n) };",
        "weights: weights.subarray(0, n) };",
        PAGES,
    ),
    Mutant(
        "the auxiliary loss of lower layers never ends",
        "training/auxiliary_losses.py",
        "if done < layer / (2 * self.n_layers) else 0.0",
        "if done < 1.0 else 0.0",
        AUXILIARY,
    ),
    Mutant(
        "multi-token prediction crosses document borders",
        "training/auxiliary_losses.py",
        "    if isolate_documents:\n        real = real",
        "    if False:\n        real = real",
        AUXILIARY,
    ),
    Mutant(
        "auxiliary heads are saved with the best model",
        "training/trainer.py",
        "and not self.ema and auxiliary_heads(self.model) is None:",
        "and not self.ema:",
        AUXILIARY,
    ),
    Mutant(
        "long sources are not shortened for training",
        "training/data_preparation.py",
        "pairs if extract is None else Reduced(pairs, extract)",
        "pairs",
        EXTRACT,
    ),
    Mutant(
        "the effect of occluding a word has the wrong sign",
        "insight/ablation.py",
        "(log_p[0] - log_p[1:]).T",
        "(log_p[1:] - log_p[0]).T",
        CAUSES,
    ),
    Mutant(
        "words that were occluded stay masked for the next words",
        "insight/ablation.py",
        "masks[row, slice(*words[index])] = False",
        "masks[row:, slice(*words[index])] = False",
        CAUSES,
    ),
    Mutant(
        "in a notebook's frame the page changes the address",
        "page/state.js",
        'if (location.protocol !== "about:") {',
        "{",
        ("page/test_page.py",),
    ),
]
