"""A model of heedful's as CTranslate2 describes one: the same numbers, laid out for its kernels.

Only what comes out equal is mapped; `why_not` names the first part that would not. The mapping itself goes from names
and arrays to CTranslate2's description, without torch; `ctranslate2_cache` has it done in a child process.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import to_values
from heedful.errors import UserError
from heedful.interop.ctranslate2_decoder import decoder_only
from heedful.interop.ctranslate2_outline import DECODERS, EPSILONS, OUTLINES, POSITIONS, Outline, outline_of
from heedful.interop.ctranslate2_parts import Floats, Parts
from heedful.interop.ctranslate2_tokens import source_token, target_token
from heedful.models.marks import MarksConfig

if TYPE_CHECKING:
    from heedful.models.bart import BartConfig
    from heedful.models.folder import LoadedModel
    from heedful.models.gpt import GptConfig
    from heedful.models.seq2seq import Seq2SeqConfig
    from heedful.models.t5 import T5Config
    from heedful.text import Tokenizer, Tokenizers


def why_not(config: "Seq2SeqConfig | BartConfig | T5Config | GptConfig") -> str | None:
    """Why CTranslate2 cannot run such a model with equal results; None if it can."""
    return why_not_values(to_values(config))


def why_not_values(values: Mapping[str, Any]) -> str | None:
    """The same from the plain values of a config.json, for those who must not import torch."""
    pattern = (values.get("pattern") or {}).get("kind", "full")
    family, norm = values.get("family", "seq2seq"), values.get("norm", "layer")
    refusals = {
        f"heedful does not map the family '{family}' onto it": family not in OUTLINES,
        f"it has no '{pattern}' attention": pattern != "full",
        f"it has no {norm} norm": norm not in EPSILONS,
        "it always adds the residual": values.get("residual") == "none",
        "its encoder has no ALiBi": values.get("positions") == "alibi",
        "its decoder layers all read the last encoder layer": values.get("join", "last") != "last",
        "it writes no mark before the first token": (values.get("marks") or {}).get("first_id") is not None,
    }
    return next((reason for reason, applies in refusals.items() if applies), None)


def described(loaded: "LoadedModel") -> tuple[Outline, dict[str, Floats]]:
    """A loaded model's outline and its weights by name, if CTranslate2 can run it."""
    from heedful.models.weights import weights_of

    values = {"family": loaded.family, **to_values(loaded.model.config)}
    reason = why_not_values(values)
    if reason is not None:
        raise UserError(f"{loaded.folder or 'this model'}: cannot be converted to CTranslate2: {reason}")
    weights = {name: tensor.detach().float().cpu().numpy() for name, tensor in weights_of(loaded.model).items()}
    return outline_of(values), weights


def write_model(
    outline: Outline, weights: Mapping[str, Floats], folder: Path, *, tokenizers: "Tokenizers | None" = None
) -> None:
    """Write the model into an empty folder, in float32, as CTranslate2 reads it.

    Ids are called by their numbers, as heedful's own engine needs it. With tokenizers they are called by their pieces,
    and the end mark is added to each source, so that any program that speaks to CTranslate2 can use the folder.
    """
    if outline.family in DECODERS:
        _write_decoder(outline, weights, folder, tokenizers)
        return
    spec, marks = EncoderDecoder(outline, weights).spec(), outline.marks
    sources = [source_token(number) for number in range(outline.source_vocab_size)]
    targets = [target_token(number) for number in range(outline.target_vocab_size)]
    unknown = 1 if marks == MarksConfig() else marks.end_id  # no id of ours is unknown
    if tokenizers is not None:
        sources, targets = _pieces(tokenizers.source, sources), _pieces(tokenizers.target, targets)
        unknown = tokenizers.target.special.unk
        spec.config.add_source_eos = True
    spec.register_source_vocabulary(sources)
    spec.register_target_vocabulary(targets)
    spec.config.unk_token = targets[unknown]
    spec.config.bos_token = spec.config.decoder_start_token = targets[marks.start_id]
    spec.config.eos_token = targets[marks.end_id]
    _save(spec, outline, folder)


def _write_decoder(
    outline: Outline, weights: Mapping[str, Floats], folder: Path, tokenizers: "Tokenizers | None"
) -> None:
    """A decoder without an encoder: one vocabulary, and prompts that bring their marks along."""
    spec, marks = decoder_only(outline, weights), outline.marks
    names = [target_token(number) for number in range(outline.target_vocab_size)]
    unknown = 0  # no id of ours is
    if tokenizers is not None:
        if marks.end_id >= len(names):
            raise UserError(f"its end is the id {marks.end_id}, which no token has, and CTranslate2 must have one")
        names, unknown = _pieces(tokenizers.target, names), tokenizers.target.special.unk
    spec.register_vocabulary(names)
    spec.config.unk_token = names[unknown]
    # A model may have marks outside of its vocabulary: heedful's engine then names no end at all.
    spec.config.bos_token = names[marks.start_id if marks.start_id < len(names) else unknown]
    spec.config.eos_token = names[marks.end_id if marks.end_id < len(names) else unknown]
    _save(spec, outline, folder)


def _save(spec: Any, outline: Outline, folder: Path) -> None:
    spec.config.layer_norm_epsilon = outline.norm_eps
    spec.validate()
    spec.optimize()  # tensors that are equal are written once
    spec.save(str(folder))


def _pieces(tokenizer: "Tokenizer", numbers: list[str]) -> list[str]:
    """How a tokenizer writes each id; a row of the embedding that it has no piece for keeps its number."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    if len(set(pieces)) < len(pieces):
        raise UserError("two ids of its tokenizer are written alike, and CTranslate2 knows them by their writing alone")
    return [*pieces, *numbers[len(pieces) :]]


class EncoderDecoder(Parts):
    """Fills CTranslate2's description of a Transformer with one model's numbers."""

    def spec(self) -> Any:
        from ctranslate2 import specs

        outline = self.outline
        wiring = self.wiring()
        if "source_norm.weight" in self.weights:
            wiring["layernorm_embedding"] = True
        if outline.positions == "rotary":
            wiring |= {"rotary_dim": 0, "rotary_interleave": False}  # all of a head's numbers, in halves
        encoder = specs.TransformerEncoderSpec(outline.n_layers, outline.n_heads, **wiring)
        decoder = specs.TransformerDecoderSpec(
            outline.n_decoder_layers, outline.n_heads, alignment_layer=-1, alignment_heads=outline.n_heads, **wiring
        )
        self._side(encoder, "encoder", "source", encoder.embeddings[0])
        self._side(decoder, "decoder", "target", decoder.embeddings)
        # Tied, it is in the file as an embedding, and of two embeddings that are one as the source's.
        words = self.first("head.linear.weight", *_embeddings("target"))
        decoder.projection.weight = words * np.float32(outline.output_scale)
        if "head.linear.bias" in self.weights:
            decoder.projection.bias = self.weights["head.linear.bias"]
        return specs.TransformerSpec(encoder, decoder)

    def _side(self, spec: Any, stack: str, side: str, embeddings: Any) -> None:
        """What encoder and decoder have in common: embeddings, positions, layers, and with pre-norm one more norm."""
        embeddings.weight = self.first(*_embeddings(side))
        spec.scale_embeddings = np.float32(self.outline.embedding_scale)
        table = self._position_table(side)
        if table is not None:
            spec.position_encodings.encodings = table
        for part, name in (("layernorm_embedding", f"{side}_norm"), ("layer_norm", f"{stack}.final_norm")):
            if f"{name}.weight" in self.weights:
                self.norm(getattr(spec, part), name)
        for number, layer_spec in enumerate(spec.layer):
            layer, own = f"{stack}.layers.{number}", layer_spec.self_attention
            self.attention(own, f"{layer}.attention", spread=self._for_each_head)
            if self.outline.positions in ("relative", "none"):
                own.relative_attention_bias, own.relative_attention_max_distance = self._bias(stack)
            if stack == "decoder":
                self.attention(layer_spec.attention, f"{layer}.cross_attention", own=False, spread=self._for_each_head)
            self.feed_forward(layer_spec.ffn, f"{layer}.feed_forward")

    def _position_table(self, side: str) -> Floats | None:
        if self.outline.positions == "learned":
            # One more: scoring a translation of full length also reads its last token, though nobody asks what follows.
            return np.pad(self.weights[f"{side}_positions.table.weight"], ((0, 1), (0, 0)))
        if self.outline.positions in ("sinusoidal", "sinusoidal_halves"):
            return self._sinusoids
        return None

    @functools.cached_property
    def _sinusoids(self) -> Floats:
        """One table for both sides."""
        return sinusoids(self.outline.d_model, halves=self.outline.positions == "sinusoidal_halves")

    def _bias(self, stack: str) -> tuple[Floats, np.int32]:
        """The table of relative positions. Zeros say that there are none at all: CTranslate2 would else add its own."""
        if self.outline.positions == "none":
            return self.no_bias()
        return self.weights[f"{stack}.bias.table.weight"], np.int32(self.outline.max_distance)

    def _for_each_head(self, rows: Floats) -> Floats:
        """Keys or values that several heads share, once for each head: CTranslate2's cross-attention shares none."""
        n_heads = self.outline.n_heads
        groups = n_heads // (self.outline.n_kv_heads or n_heads)
        return np.repeat(rows.reshape(-1, self.d_head, *rows.shape[1:]), groups, axis=0).reshape(-1, *rows.shape[1:])


def _embeddings(side: str) -> tuple[str, ...]:
    """The names that an embedding may have, of its own or shared."""
    return f"{side}_embedding.table.weight", "source_embedding.table.weight", "embedding.table.weight"


def sinusoids(d_model: int, *, halves: bool) -> Floats:
    """`nn.positions.sinusoidal_code` of the first POSITIONS positions."""
    # By the sums of angles, coarse and fine: two million sines would take longer than all the rest of a conversion.
    step, n = 64, d_model // 2
    turns = 10_000.0 ** (-np.arange(n) / n)
    coarse = np.exp(1j * np.arange(0, POSITIONS, step)[:, None, None] * turns)
    fine = np.exp(1j * np.arange(step)[:, None] * turns)
    waves = (coarse * fine).reshape(-1, n)[:POSITIONS]
    parts = (waves.imag, waves.real)
    table = np.concatenate(parts, axis=1) if halves else np.stack(parts, axis=-1).reshape(POSITIONS, d_model)
    return table.astype(np.float32)
