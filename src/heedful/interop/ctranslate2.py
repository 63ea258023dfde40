"""An encoder-decoder of heedful's as CTranslate2 describes one: the same numbers, laid out for its kernels.

Only what comes out equal is mapped; `why_not` names the first part that would not. Writing needs torch and
CTranslate2's converters, which bring a second OpenMP runtime along: `ctranslate2_cache` does it in a child process.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from heedful.config import to_values
from heedful.errors import UserError
from heedful.interop.ctranslate2_outline import POSITIONS, Outline, outline_of
from heedful.models.marks import MarksConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from heedful.models.bart import Bart, BartConfig
    from heedful.models.folder import LoadedModel
    from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
    from heedful.models.t5 import T5, T5Config
    from heedful.nn.attention import MultiHeadAttention
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
MAPPED = ("seq2seq", "bart", "t5")


def why_not(config: "Seq2SeqConfig | BartConfig | T5Config") -> str | None:
    """Why CTranslate2 cannot run such a model with equal results; None if it can."""
    return why_not_values(to_values(config))


def why_not_values(values: Mapping[str, Any]) -> str | None:
    """The same from the plain values of a config.json, for those who must not import torch."""
    pattern = (values.get("pattern") or {}).get("kind", "full")
    family = values.get("family", "seq2seq")
    refusals = {
        f"heedful does not map the family '{family}' onto it": family not in MAPPED,
        f"it has no '{pattern}' attention": pattern != "full",
        "it has no batch norm": values.get("norm") == "batch",
        "it always adds the residual": values.get("residual") == "none",
        "its encoder has no ALiBi": values.get("positions") == "alibi",
        "its decoder layers all read the last encoder layer": values.get("join", "last") != "last",
        "it writes no mark before the first token": (values.get("marks") or {}).get("first_id") is not None,
    }
    return next((reason for reason, applies in refusals.items() if applies), None)


def source_token(number: int) -> str:
    """What a source id is called there. Not as the target's: CTranslate2 answers a source that holds only marks
    without asking the model, and knows marks by their names.
    """
    return f"s{number}"


def target_token(number: int) -> str:
    return str(number)


def mapped(loaded: "LoadedModel") -> "Seq2Seq | Bart | T5":
    """The model, if it is of a family that is mapped; otherwise a UserError that names the family."""
    from heedful.models.bart import Bart
    from heedful.models.seq2seq import Seq2Seq
    from heedful.models.t5 import T5

    if not isinstance(loaded.model, Seq2Seq | Bart | T5):
        raise UserError(f"{loaded.folder}: heedful does not map the family '{loaded.family}' onto CTranslate2")
    return loaded.model


def write_model(model: "Seq2Seq | Bart | T5", folder: Path, *, tokenizers: "Tokenizers | None" = None) -> None:
    """Write the model into an empty folder, in float32, as CTranslate2 reads it.

    Ids are called by their numbers, as heedful's own engine needs it. With tokenizers they are called by their pieces,
    and the end mark is added to each source, so that any program that speaks to CTranslate2 can use the folder.
    """
    reason = why_not(model.config)
    if reason is not None:
        raise UserError(f"this model cannot be converted to CTranslate2: {reason}")
    outline = outline_of(model)
    spec, marks = _Mapping(model, outline).spec(), outline.marks
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


class _Mapping:
    """Fills CTranslate2's description of a Transformer with one model's numbers."""

    def __init__(self, model: "Seq2Seq | Bart | T5", outline: Outline) -> None:
        self.model: Any = model
        self.config = outline
        self.d_head = self.config.d_head or self.config.d_model // self.config.n_heads

    def spec(self) -> Any:
        from ctranslate2 import specs

        config, model = self.config, self.model
        activation, gated = ACTIVATIONS[config.activation]
        wiring: dict[str, Any] = {
            "pre_norm": config.residual == "pre",
            "activation": specs.Activation[activation],
            "ffn_glu": gated,
            "rms_norm": config.norm == "rms",
            "head_dim": config.d_head,
            "relative_attention_bias": config.positions in ("relative", "none"),
        }
        if hasattr(model, "source_norm"):
            wiring["layernorm_embedding"] = True
        if config.positions == "rotary":
            wiring |= {"rotary_dim": 0, "rotary_interleave": False}  # all of a head's numbers, in halves
        encoder = specs.TransformerEncoderSpec(len(model.encoder.layers), config.n_heads, **wiring)
        decoder = specs.TransformerDecoderSpec(
            len(model.decoder.layers), config.n_heads, alignment_layer=-1, alignment_heads=config.n_heads, **wiring
        )
        self._side(encoder, model.encoder, "source", encoder.embeddings[0])
        self._side(decoder, model.decoder, "target", decoder.embeddings)
        decoder.projection.weight = _numbers(model.head.linear.weight) * np.float32(config.output_scale)
        if model.head.linear.bias is not None:
            decoder.projection.bias = _numbers(model.head.linear.bias)
        return specs.TransformerSpec(encoder, decoder)

    def _side(self, spec: Any, stack: Any, side: str, embeddings: Any) -> None:
        """What encoder and decoder have in common: embeddings, positions, layers, and with pre-norm one more norm."""
        embedding = getattr(self.model, f"{side}_embedding", None) or self.model.embedding
        embeddings.weight, spec.scale_embeddings = _numbers(embedding.table.weight), np.float32(embedding.scale)
        table = self._position_table(getattr(self.model, f"{side}_positions", None))
        if table is not None:
            spec.position_encodings.encodings = table
        if hasattr(self.model, f"{side}_norm"):
            _norm(spec.layernorm_embedding, getattr(self.model, f"{side}_norm"))
        if stack.final_norm is not None:
            _norm(spec.layer_norm, stack.final_norm)
        for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
            own = layer_spec.self_attention
            self._attention(own, layer.attention, layer.attention_residual, self_attention=True)
            if self.config.positions in ("relative", "none"):
                own.relative_attention_bias, own.relative_attention_max_distance = self._bias(stack)
            if hasattr(layer, "cross_attention"):
                self._attention(layer_spec.attention, layer.cross_attention, layer.cross_attention_residual)
            self._feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_residual)

    def _position_table(self, positions: "nn.Module | None") -> Floats | None:
        import torch

        from heedful.nn.positions import Learned, Sinusoidal, sinusoidal_code

        if isinstance(positions, Learned):
            # One more: scoring a translation of full length also reads its last token, though nobody asks what follows.
            return np.pad(_numbers(positions.table.weight), ((0, 1), (0, 0)))
        if isinstance(positions, Sinusoidal):
            return _numbers(sinusoidal_code(torch.arange(POSITIONS), self.config.d_model, layout=positions.layout))
        return None

    def _bias(self, stack: Any) -> tuple[Floats, np.int32]:
        """The table of relative positions. Zeros say that there are none at all: CTranslate2 would else add its own."""
        if stack.bias is None:
            return np.zeros((32, self.config.n_heads), np.float32), np.int32(128)
        return _numbers(stack.bias.table.weight), np.int32(stack.bias.max_distance)

    def _attention(
        self, spec: Any, attention: "MultiHeadAttention", residual: "nn.Module", *, self_attention: bool = False
    ) -> None:
        q, k, v = (
            _linear(part, self._for_each_head if part is not attention.to_q else None)
            for part in (attention.to_q, attention.to_k, attention.to_v)
        )
        groups = [[q, k, v]] if self_attention else [[q], [k, v]]
        for linear, parts in zip(spec.linear, [*groups, [_linear(attention.to_out)]], strict=True):
            linear.weight = np.concatenate([weight for weight, _ in parts])
            biases = [bias for _, bias in parts if bias is not None]
            if biases:
                linear.bias = np.concatenate(biases)
        spec.queries_scale = np.float32(self.d_head**-0.5 if attention.scale is None else attention.scale)
        _norm(spec.layer_norm, residual.norm)

    def _for_each_head(self, rows: Floats) -> Floats:
        """Keys or values that several heads share, once for each head: CTranslate2's cross-attention shares none."""
        n_heads = self.config.n_heads
        groups = n_heads // (self.config.n_kv_heads or n_heads)
        return np.repeat(rows.reshape(-1, self.d_head, *rows.shape[1:]), groups, axis=0).reshape(-1, *rows.shape[1:])

    def _feed_forward(self, spec: Any, network: "nn.Module", residual: "nn.Module") -> None:
        _, gated = ACTIVATIONS[self.config.activation]
        bent = network.gate if gated else network.inner
        _fill(spec.linear_0, bent)
        if gated:
            _fill(spec.linear_0_noact, network.inner)
        _fill(spec.linear_1, network.outer)
        _norm(spec.layer_norm, residual.norm)


def _linear(linear: Any, spread: Callable[[Floats], Floats] | None = None) -> tuple[Floats, Floats | None]:
    """Its weight and, if it has one, its bias."""
    parts = [None if part is None else _numbers(part) for part in (linear.weight, linear.bias)]
    weight, bias = parts if spread is None else [None if part is None else spread(part) for part in parts]
    assert weight is not None
    return weight, bias


def _fill(spec: Any, linear: Any) -> None:
    spec.weight, bias = _linear(linear)
    if bias is not None:
        spec.bias = bias


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma = _numbers(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = _numbers(norm.bias)


def _numbers(tensor: "Tensor") -> Floats:
    numbers: Floats = tensor.detach().float().cpu().numpy()
    return numbers
