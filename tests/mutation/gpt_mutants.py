"""Bugs to plant in decoder-only models and their generation."""

from mutant_kind import Mutant

MODEL = ("models/test_gpt.py",)
STEP = ("decoding/test_fast_decoder_only.py",)
GENERATOR = ("decoding/test_generator.py",)
PARITY = ("parity/test_gpt_parity.py",)
DECODER = ("interop/test_ctranslate2_decoder.py",)
WRITER = ("decoding/test_ctranslate2_generator.py",)

IN_GPT = [
    Mutant(
        "a language model attends to the next token",
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
        "packed texts attend to each other in Gpt",
        "models/gpt.py",
        "document_positions(documents), document_mask(documents)",
        "document_positions(documents), None",
        MODEL,
    ),
    Mutant(
        "positions of packed texts do not restart in Gpt",
        "models/gpt.py",
        "begins[:, 1:] = documents[:, 1:] != documents[:, :-1]",
        "begins[:, 1:] = False",
        MODEL,
    ),
    Mutant(
        "Llama 3's scaling stretches high rotary frequencies",
        "nn/positions.py",
        "return freqs * kept + freqs / self.factor * (1 - kept)",
        "return freqs / self.factor",
        MODEL,
    ),
    Mutant(
        "the score scale by layer counts layers from 0",
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
        "rows with different starts share one mask of the past",
        "decoding/steps/row_cache.py",
        "return (columns >= self.starts[:, None])[:, None, None]",
        "return (columns >= self.starts.min())[None, None, None].expand(len(self.starts), 1, 1, -1)",
        STEP,
    ),
    Mutant(
        "kept rows have the starts of other rows",
        "decoding/steps/row_cache.py",
        "self.starts = self.starts[rows]",
        "self.starts = self.starts[: len(rows)]",
        STEP,
    ),
    Mutant(
        "a full window moves without reading its tokens again",
        "decoding/steps/fast_decoder_only.py",
        "if cache.longest >= self.window:",
        "if cache.longest >= 10 * self.window:",
        STEP,
    ),
    Mutant(
        "further end tokens do not end a text",
        "decoding/search/logits_processors.py",
        "    logits[:, [eos_id]] = value\n",
        "",
        STEP,
    ),
    Mutant(
        "logits processors do not see the prompt",
        "decoding/search/logits_processors.py",
        "active.request.source if active.request.continues else ()",
        "()",
        GENERATOR,
    ),
    Mutant(
        "an incomplete character is streamed",
        "decoding/generator.py",
        "self.decode(self.ids).rstrip(UNFINISHED)",
        "self.decode(self.ids)",
        GENERATOR,
    ),
    Mutant(
        "a prompt has no BOS",
        "text/special_ids.py",
        "return [self.bos_id, *ids] if adds_bos or not ids else ids",
        "return ids or [self.bos_id]",
        GENERATOR,
    ),
    Mutant(
        "GPT-2's queries and keys are exchanged",
        "interop/huggingface/gpt.py",
        'for part in "qkv")',
        'for part in "kqv")',
        PARITY,
    ),
    Mutant(
        "Llama's gate and up projections are exchanged",
        "interop/huggingface/gpt.py",
        '{"gate_proj": "gate", "up_proj": "inner", "down_proj": "outer"}',
        '{"gate_proj": "inner", "up_proj": "gate", "down_proj": "outer"}',
        PARITY,
    ),
    Mutant(
        "CTranslate2 rotates interleaved pairs instead of halves",
        "interop/ctranslate2/spec.py",
        '{"rotary_dim": 0, "rotary_interleave": False, "rotary_base"',
        '{"rotary_dim": 0, "rotary_interleave": True, "rotary_base"',
        DECODER,
    ),
    Mutant(
        "CTranslate2 scales all rotary frequencies alike",
        "interop/ctranslate2/spec.py",
        "if rotary.original_max_len is not None:",
        "if False:",
        DECODER,
    ),
    Mutant(
        "CTranslate2's score scale counts layers from 0",
        "interop/ctranslate2/spec.py",
        "by_head / (layer + 1)",
        "by_head / max(layer, 1)",
        DECODER,
    ),
    Mutant(
        "CTranslate2's gate and up projections are exchanged",
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
        "CTranslate2's beam search gets prompts of different lengths in one batch",
        "decoding/engines/ctranslate2_generator.py",
        "SPREAD if settings.beam == 1 and length > 1 else 0",
        "SPREAD",
        WRITER,
    ),
    Mutant(
        "CTranslate2 gets a text that is one token longer than the window",
        "decoding/engines/ctranslate2_support.py",
        "n_read > info.window",
        "n_read > info.window + 1",
        WRITER,
    ),
    Mutant(
        "a further end token is scored as the first one",
        "decoding/search/logits_processors.py",
        "    raw_logits[:, [eos_id]] = value\n",
        "",
        STEP,
    ),
]
