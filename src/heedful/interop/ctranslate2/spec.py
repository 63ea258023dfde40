"""What an id is called in a converted model: by its number, whatever piece it stands for.

What all models have in common in CTranslate2's description: attention, feed-forward networks, norms.

A decoder-only model as CTranslate2 describes one: GPT-2's shape and Llama's.

A model of heedful's as CTranslate2 describes one: the same numbers, laid out for its kernels.

Only what comes out equal is mapped; `why_not` names the first part that would not. The mapping itself goes from names
and arrays to CTranslate2's description, without torch; `ctranslate2_cache` has it done in a child process.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from heedful.config import config_to_dict
from heedful.errors import UserError
from heedful.interop.ctranslate2.library import source_token, target_token
from heedful.interop.ctranslate2.model_config import DECODERS, EPSILONS, OUTLINES, POSITIONS, Ct2ModelConfig, outline_of

if TYPE_CHECKING:
    from heedful.models.bart import BartConfig
    from heedful.models.gpt import GptConfig
    from heedful.models.model_io import LoadedModel
    from heedful.models.seq2seq import Seq2SeqConfig
    from heedful.models.t5 import T5Config
    from heedful.text import Tokenizer, Tokenizers


Floats = npt.NDArray[np.float32]

# activation -> (CTranslate2's name for it, whether a second branch is gated by it)
ACTIVATIONS = {
    "relu": ("RELU", False),
    "gelu": ("GELU", False),
    "gelu_tanh": ("GELUTanh", False),
    "swish": ("SWISH", False),
    "swiglu": ("SWISH", True),
    "geglu": ("GELUTanh", True),
}


class Parts:
    """Fills parts of a description with one model's numbers, by their names."""

    def __init__(self, outline: Ct2ModelConfig, weights: Mapping[str, Floats]) -> None:
        self.outline = outline
        self.weights = weights
        self.d_head = outline.d_head or outline.d_model // outline.n_heads

    def wiring(self) -> dict[str, Any]:
        """How the parts are put together, in CTranslate2's words."""
        from ctranslate2 import specs

        activation, gated = ACTIVATIONS[self.outline.activation]
        return {
            "pre_norm": self.outline.residual == "pre",
            "activation": specs.Activation[activation],
            "ffn_glu": gated,
            "rms_norm": self.outline.norm == "rms",
            "head_dim": self.outline.d_head,
            "relative_attention_bias": self.outline.positions in ("relative", "none"),
        }

    def first(self, *names: str) -> Floats:
        return next(self.weights[name] for name in names if name in self.weights)

    def no_bias(self) -> tuple[Floats, np.int32]:
        """A table of relative positions that are all alike: CTranslate2 would else add positions of its own."""
        return np.zeros((32, self.outline.n_heads), np.float32), np.int32(128)

    def attention(
        self,
        spec: Any,
        name: str,
        *,
        own: bool = True,
        spread: Callable[[Floats], Floats] = lambda rows: rows,
        scale: float | None = None,
    ) -> None:
        """`own`: queries, keys and values are of one text; `spread`: what becomes of keys and values that heads share.

        `scale` is what q . k is multiplied by, by default the outline's.
        """
        q = self.linear(f"{name}.to_q")
        k, v = (self.linear(f"{name}.{part}", spread) for part in ("to_k", "to_v"))
        groups = [[q, k, v]] if own else [[q], [k, v]]
        for linear, parts in zip(spec.linear, [*groups, [self.linear(f"{name}.to_out")]], strict=True):
            linear.weight = np.concatenate([weight for weight, _ in parts])
            biases = [bias for _, bias in parts if bias is not None]
            if biases:
                linear.bias = np.concatenate(biases)
        scale = self.outline.score_scale if scale is None else scale
        spec.queries_scale = np.float32(self.d_head**-0.5 if scale is None else scale)
        self.norm(spec.layer_norm, f"{name}_residual.norm")

    def feed_forward(self, spec: Any, name: str) -> None:
        _, gated = ACTIVATIONS[self.outline.activation]
        self.fill(spec.linear_0, f"{name}.gate" if gated else f"{name}.inner")
        if gated:
            self.fill(spec.linear_0_noact, f"{name}.inner")
        self.fill(spec.linear_1, f"{name}.outer")
        self.norm(spec.layer_norm, f"{name}_residual.norm")

    def linear(self, name: str, spread: Callable[[Floats], Floats] = lambda rows: rows) -> tuple[Floats, Floats | None]:
        """Its weight and, if it has one, its bias."""
        bias = self.weights.get(f"{name}.bias")
        return spread(self.weights[f"{name}.weight"]), None if bias is None else spread(bias)

    def fill(self, spec: Any, name: str) -> None:
        spec.weight, bias = self.linear(name)
        if bias is not None:
            spec.bias = bias

    def norm(self, spec: Any, name: str) -> None:
        spec.gamma = self.weights[f"{name}.weight"]
        if hasattr(spec, "beta"):
            spec.beta = self.weights[f"{name}.bias"]


def decoder_only(outline: Ct2ModelConfig, weights: Mapping[str, Floats]) -> Any:
    """CTranslate2's description, filled with the model's numbers."""
    from ctranslate2 import specs

    parts = Parts(outline, weights)
    decoder = specs.TransformerDecoderSpec(
        outline.n_layers,
        outline.n_heads,
        with_encoder_attention=False,
        num_heads_kv=outline.n_kv_heads or outline.n_heads,
        **parts.wiring(),
        **_rotary(outline),
    )
    decoder.embeddings.weight = weights["embedding.table.weight"]
    decoder.scale_embeddings = np.float32(outline.embedding_scale)
    if outline.positions == "learned":
        decoder.position_encodings.encodings = weights["positions.table.weight"]
    for number, layer in enumerate(decoder.layer):
        own = layer.self_attention
        parts.attention(own, f"layers.{number}.attention", scale=_score_scale(outline, parts.d_head, number))
        parts.feed_forward(layer.ffn, f"layers.{number}.feed_forward")
        if outline.positions == "none":
            own.relative_attention_bias, own.relative_attention_max_distance = parts.no_bias()
        if hasattr(own, "rotary_scaling_long_factor"):
            own.rotary_scaling_long_factor = own.rotary_scaling_short_factor = stretches(outline, parts.d_head)
    parts.norm(decoder.layer_norm, "final_norm")
    decoder.projection.weight = parts.first(
        "head.linear.weight", "embedding.table.weight"
    )  # tied, it is not in the file
    return specs.TransformerDecoderModelSpec(decoder)


def _rotary(outline: Ct2ModelConfig) -> dict[str, Any]:
    """All of a head's numbers are turned, in halves."""
    from ctranslate2.specs.attention_spec import RotaryScalingType

    if outline.positions != "rotary":
        return {}
    rotary = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": outline.rotary.base}
    if outline.rotary.factor == 1.0:
        return rotary
    # Of its kinds of stretching this one has a factor for each wave, and so can say what all others say. (For that of
    # Llama 3, 4.8.4 has no room to say by how much.) Where both lengths are one, its scores are not scaled as well.
    lengths = {"original_max_position_embeddings": outline.max_len, "max_position_embeddings": outline.max_len}
    return {**rotary, **lengths, "rotary_scaling_type": RotaryScalingType.Su}


def stretches(outline: Ct2ModelConfig, d_head: int) -> Floats:
    """How many times as long each wave becomes: `nn.positions.RopeScaling`."""
    waves, n = outline.rotary, d_head // 2
    kept = np.zeros(n)
    if waves.original_max_len is not None:
        rounds = waves.original_max_len * waves.base ** (-np.arange(n) / n) / (2 * np.pi)
        kept = np.clip((rounds - waves.low_freq_factor) / (waves.high_freq_factor - waves.low_freq_factor), 0, 1)
    return np.float32(1) / (kept + (1 - kept) / waves.factor).astype(np.float32)


def _score_scale(outline: Ct2ModelConfig, d_head: int, number: int) -> float:
    """What q . k is multiplied by, as in `models.gpt`."""
    by_head = d_head**-0.5 if outline.scaled_by in ("head", "head_and_layer") else 1.0
    return by_head / (number + 1) if outline.scaled_by in ("layer", "head_and_layer") else by_head


def why_not(config: "Seq2SeqConfig | BartConfig | T5Config | GptConfig") -> str | None:
    """Why CTranslate2 cannot run such a model with equal results; None if it can."""
    return why_not_values(config_to_dict(config))


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
        "it writes no mark before the first token": bool((values.get("special_ids") or {}).get("source_bos")),
    }
    return next((reason for reason, applies in refusals.items() if applies), None)


def described(loaded: "LoadedModel") -> tuple[Ct2ModelConfig, dict[str, Floats]]:
    """A loaded model's outline and its weights by name, if CTranslate2 can run it."""
    from heedful.models.weights import weights_of

    values = {"family": loaded.family, **config_to_dict(loaded.model.config)}
    reason = why_not_values(values)
    if reason is not None:
        raise UserError(f"{loaded.folder or 'this model'}: cannot be converted to CTranslate2: {reason}")
    weights = {name: tensor.detach().float().cpu().numpy() for name, tensor in weights_of(loaded.model).items()}
    return outline_of(values), weights


def write_model(
    outline: Ct2ModelConfig, weights: Mapping[str, Floats], folder: Path, *, tokenizers: "Tokenizers | None" = None
) -> None:
    """Write the model into an empty folder, in float32, as CTranslate2 reads it.

    Ids are called by their numbers, as heedful's own engine needs it. With tokenizers they are called by their pieces,
    and the end mark is added to each source, so that any program that speaks to CTranslate2 can use the folder.
    """
    if outline.family in DECODERS:
        _write_decoder(outline, weights, folder, tokenizers)
        return
    spec, special_ids = EncoderDecoder(outline, weights).spec(), outline.special_ids
    sources = [source_token(number) for number in range(outline.source_vocab_size)]
    targets = [target_token(number) for number in range(outline.target_vocab_size)]
    unknown = special_ids.unk_id
    if tokenizers is not None:
        sources, targets = _pieces(tokenizers.source, sources), _pieces(tokenizers.target, targets)
        unknown = tokenizers.target.special_ids.unk_id
        spec.config.add_source_eos = True
    spec.register_source_vocabulary(sources)
    spec.register_target_vocabulary(targets)
    spec.config.unk_token = targets[unknown]
    spec.config.bos_token = spec.config.decoder_start_token = targets[special_ids.start_id]
    spec.config.eos_token = targets[special_ids.eos_id]
    _save(spec, outline, folder)


def _write_decoder(
    outline: Ct2ModelConfig, weights: Mapping[str, Floats], folder: Path, tokenizers: "Tokenizers | None"
) -> None:
    """A decoder without an encoder: one vocabulary, and prompts that bring their marks along."""
    spec, special_ids = decoder_only(outline, weights), outline.special_ids
    names = [target_token(number) for number in range(outline.target_vocab_size)]
    unknown = 0  # no id of ours is
    if tokenizers is not None:
        if special_ids.eos_id >= len(names):
            raise UserError(
                f"its end is the id {special_ids.eos_id}, which no token has, and CTranslate2 must have one"
            )
        names, unknown = _pieces(tokenizers.target, names), tokenizers.target.special_ids.unk_id
    spec.register_vocabulary(names)
    spec.config.unk_token = names[unknown]
    # A model may have marks outside of its vocabulary: heedful's engine then names no end at all.
    spec.config.bos_token = names[special_ids.start_id if special_ids.start_id < len(names) else unknown]
    spec.config.eos_token = names[special_ids.eos_id if special_ids.eos_id < len(names) else unknown]
    _save(spec, outline, folder)


def _save(spec: Any, outline: Ct2ModelConfig, folder: Path) -> None:
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
