"""The bugs that `make mutants` plants in decoder-only models and what goes on from a prompt with them."""

from mutant_kind import Mutant

MODEL = ("models/test_gpt.py",)
STEP = ("decoding/test_gpt_step.py",)
GENERATOR = ("decoding/test_generator.py",)
PARITY = ("parity/test_gpt_parity.py",)
DECODER = ("interop/test_ctranslate2_decoder.py",)
WRITER = ("decoding/test_ct2_writer.py",)

IN_GPT = [
    Mutant(
        "a language model sees what comes next",
        "nn/attention.py",
        "dropout=dropout, is_causal=True)",
        "dropout=dropout, is_causal=False)",
        MODEL,
    ),
    Mutant(
        "padding on the left moves the positions",
        "models/gpt.py",
        "positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, n_past:]",
        "positions = torch.arange(mask.size(1)).expand_as(mask)[:, n_past:]",
        MODEL,
    ),
    Mutant(
        "packed texts see each other",
        "models/gpt.py",
        "document_positions(documents), document_mask(documents)",
        "document_positions(documents), None",
        MODEL,
    ),
    Mutant(
        "the positions of packed texts go on",
        "models/gpt.py",
        "begins[:, 1:] = documents[:, 1:] != documents[:, :-1]",
        "begins[:, 1:] = False",
        MODEL,
    ),
    Mutant(
        "waves that should stay are stretched",
        "nn/positions.py",
        "return turns * kept + turns / self.factor * (1 - kept)",
        "return turns / self.factor",
        MODEL,
    ),
    Mutant(
        "the scale of a layer counts from 0",
        "models/gpt.py",
        "by_head / (number + 1)",
        "by_head / max(number, 1)",
        MODEL,
    ),
    Mutant(
        "the last token of a prompt is not fed",
        "decoding/steps/fast_decoder_only.py",
        "tokens = torch.where(self.begins, self.last, tokens)",
        "tokens = torch.where(self.begins, tokens, tokens)",
        STEP,
    ),
    Mutant(
        "rows of different ages see each other's past",
        "decoding/steps/row_cache.py",
        "return (columns >= self.starts[:, None])[:, None, None]",
        "return (columns >= self.starts.min())[None, None, None].expand(len(self.starts), 1, 1, -1)",
        STEP,
    ),
    Mutant(
        "kept rows keep the starts of others",
        "decoding/steps/row_cache.py",
        "self.starts = self.starts[rows]",
        "self.starts = self.starts[: len(rows)]",
        STEP,
    ),
    Mutant(
        "the window moves on without being read again",
        "decoding/steps/fast_decoder_only.py",
        "if cache.longest >= self.window:",
        "if cache.longest >= 10 * self.window:",
        STEP,
    ),
    Mutant(
        "another end does not end a text",
        "decoding/search/logits_processors.py",
        "    logits[:, [eos_id]] = value\n",
        "",
        STEP,
    ),
    Mutant(
        "filters forget the prompt",
        "decoding/search/logits_processors.py",
        "active.request.source if active.request.continues else ()",
        "()",
        GENERATOR,
    ),
    Mutant(
        "half a character is said",
        "decoding/generator.py",
        "self.whole(self.ids).rstrip(UNFINISHED)",
        "self.whole(self.ids)",
        GENERATOR,
    ),
    Mutant(
        "no start mark stands before a prompt",
        "text/special_ids.py",
        "return [self.bos_id, *ids] if adds_bos or not ids else ids",
        "return ids or [self.bos_id]",
        GENERATOR,
    ),
    Mutant(
        "queries and keys of GPT-2 change places",
        "interop/huggingface/gpt.py",
        'for part in "qkv")',
        'for part in "kqv")',
        PARITY,
    ),
    Mutant(
        "the gate of Llama is its other branch",
        "interop/huggingface/gpt.py",
        '{"gate_proj": "gate", "up_proj": "inner", "down_proj": "outer"}',
        '{"gate_proj": "inner", "up_proj": "gate", "down_proj": "outer"}',
        PARITY,
    ),
    Mutant(
        "CTranslate2 turns neighbours instead of halves",
        "interop/ctranslate2/spec.py",
        '{"rotary_dim": 0, "rotary_interleave": False, "rotary_base"',
        '{"rotary_dim": 0, "rotary_interleave": True, "rotary_base"',
        DECODER,
    ),
    Mutant(
        "CTranslate2 stretches every wave alike",
        "interop/ctranslate2/spec.py",
        "if rotary.original_max_len is not None:",
        "if False:",
        DECODER,
    ),
    Mutant(
        "CTranslate2 counts the layers from 0",
        "interop/ctranslate2/spec.py",
        "by_head / (layer + 1)",
        "by_head / max(layer, 1)",
        DECODER,
    ),
    Mutant(
        "CTranslate2 gates with the other branch",
        "interop/ctranslate2/spec.py",
        """self.fill(spec.linear_0, f"{name}.gate" if gated else f"{name}.inner")
        if gated:
            self.fill(spec.linear_0_noact, f"{name}.inner")""",
        """self.fill(spec.linear_0, f"{name}.inner")
        if gated:
            self.fill(spec.linear_0_noact, f"{name}.gate")""",
        DECODER,
    ),
    Mutant(
        "prompts of unlike length stand in one beam's batch",
        "decoding/engines/ctranslate2_generator.py",
        "SPREAD if settings.beam == 1 and length > 1 else 0",
        "SPREAD",
        WRITER,
    ),
    Mutant(
        "a text outgrows the window in CTranslate2",
        "decoding/engines/ctranslate2_support.py",
        "n_read > info.window",
        "n_read > info.window + 1",
        WRITER,
    ),
    Mutant(
        "another end counts what the first would have counted",
        "decoding/search/logits_processors.py",
        "    raw_logits[:, [eos_id]] = value\n",
        "",
        STEP,
    ),
]
