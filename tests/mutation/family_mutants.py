"""Bugs to plant in BART, T5, the Universal Transformer, their searches and the ways in and out."""

from mutant_kind import Mutant

BOTH = ("models/test_encoder_decoders.py",)
BART, T5, OPUS = ("parity/test_bart_parity.py",), ("parity/test_t5_parity.py",), ("parity/test_opus_mt.py",)
TABLE = ("interop/test_tensor_map.py",)

IN_FAMILIES = [
    Mutant(
        "T5's tied output is not divided by the root of D",
        "models/t5.py",
        "states if self.config.output_scale == 1.0 else states * self.config.output_scale",
        "states",
        T5,
    ),
    Mutant(
        "T5 divides its scores by the root of K", "models/t5.py", "        scale=1.0,\n", "        scale=None,\n", T5
    ),
    Mutant(
        "BART's target goes without the norm after its embedding",
        "models/bart.py",
        "self.dropout(self.target_norm(self.target_positions(self.embedding(target), positions)))",
        "self.dropout(self.target_positions(self.embedding(target), positions))",
        BART,
    ),
    Mutant(
        "BART multiplies embeddings that are not to be scaled",
        "models/bart.py",
        "scale=None if config.scaled_embedding else 1.0",
        "scale=None",
        BART,
    ),
    Mutant(
        "who has stopped goes on changing",
        "nn/adaptive_computation.py",
        "x = torch.where(running, after, x)",
        "x = after",
        ("nn/test_adaptive_computation.py", "models/test_encoder_decoders.py"),
    ),
    Mutant(
        "the last step gets no more than its chance",
        "nn/adaptive_computation.py",
        "weight = torch.where(stops, 1 - spent, chance) * running",
        "weight = chance * running",
        ("nn/test_adaptive_computation.py",),
    ),
    Mutant(
        "with a cache, steps end when the new tokens have stopped",
        "models/universal.py",
        "all_steps=cache is not None",
        "all_steps=False",
        BOTH,
    ),
    Mutant(
        "a first token that is given is chosen after all",
        "decoding/search/continuous_batching.py",
        "return torch.where(begins[:, None], forced, logits)",
        "return logits",
        BOTH,
    ),
    Mutant(
        "the estimate forgets the length",
        "decoding/search/beam_search.py",
        "now = best_live / length_norm(float(live.lengths[slot]), live.settings)",
        "now = best_live",
        T5,
    ),
    Mutant(
        "a model's forbidden ids are forgotten",
        "decoding/search/logits_processors.py",
        "[*live.settings.forbidden, *live.special_ids.forbidden_ids]",
        "[*live.settings.forbidden]",
        BOTH,
    ),
    Mutant(
        "a mark before each source is left out",
        "text/special_ids.py",
        "[self.bos_id, *ids] if self.source_bos",
        "[*ids] if self.source_bos",
        BOTH,
    ),
    Mutant(
        "reading puts the axis into their order once more",
        "interop/huggingface/tensor_map.py",
        "torch.tensor(row.order, device=tensor.device).argsort()",
        "torch.tensor(row.order, device=tensor.device)",
        TABLE,
    ),
    Mutant(
        "tied matrices that differ are not seen",
        "interop/huggingface/tensor_map.py",
        "if not torch.equal(first, theirs[alias]):",
        "if first.shape != theirs[alias].shape:",
        TABLE,
    ),
    Mutant(
        "a tensor that nobody asked for is let pass",
        "models/weights.py",
        '("unexpected", unexpected)',
        '("", [])',
        TABLE,
    ),
    Mutant(
        "BART's positions begin two rows too early",
        "interop/huggingface/bart.py",
        "POSITION_OFFSET = 2",
        "POSITION_OFFSET = 0",
        BART,
    ),
    Mutant(
        "T5's gate and what it lets through are exchanged",
        "interop/huggingface/t5.py",
        '{"gate": "wi_0", "inner": "wi_1", "outer": "wo"}',
        '{"gate": "wi_1", "inner": "wi_0", "outer": "wo"}',
        T5,
    ),
    Mutant(
        "Marian's bias on the logits is dropped",
        "interop/huggingface/marian.py",
        "dataclasses.replace(config, logits_bias=True)",
        "config",
        OPUS,
    ),
    Mutant(
        "a table of other positions than Marian's is believed",
        "interop/huggingface/marian.py",
        "> 1e-3",
        "> 1e3",
        ("parity/test_marian_parity.py",),
    ),
    Mutant(
        "Pegasus' last norms keep the paper's order of sines and cosines",
        "interop/huggingface/marian.py",
        'f"{side}.final_norm.{part}", order=order)',
        'f"{side}.final_norm.{part}")',
        ("parity/test_pegasus_parity.py",),
    ),
    Mutant(
        "code of a model's own is not noticed",
        "interop/huggingface/checkpoint.py",
        'if "auto_map" in values:',
        'if "auto_map" in ():',
        ("parity/test_marian_parity.py",),
    ),
    Mutant(
        "a shard may lie outside of the folder",
        "interop/huggingface/checkpoint.py",
        'if Path(name).name != name or not name.endswith(".safetensors"):',
        'if not name.endswith(".safetensors"):',
        T5,
    ),
    Mutant(
        "heedful's own settings are believed when theirs say otherwise",
        "interop/huggingface/checkpoint.py",
        "return config if all(values[name] == value for name, value in expected.items() if name in values) else None",
        "return config if expected else None",
        ("parity/test_marian_parity.py",),
    ),
    Mutant(
        "a setting that heedful has no place for is let pass",
        "interop/huggingface/config_files.py",
        "if not any(type(value) is type(item) and value == item for item in allowed):",
        "if value is None:",
        (*TABLE, *BART),
    ),
]
