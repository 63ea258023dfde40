"""A model of heedful's as a CTranslate2 specification: equal weights, laid out for CTranslate2's kernels.

Only models that CTranslate2 runs with equal results are converted; `why_not` returns the reason for each other model.
The conversion itself goes from settings and NumPy arrays to CTranslate2's classes and needs no torch.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from heedful.errors import UserError
from heedful.interop.ctranslate2.library import source_token, target_token
from heedful.interop.ctranslate2.model_config import POSITIONS, Ct2Config, Ct2ModelConfig, ct2_config, why_not

if TYPE_CHECKING:
    from heedful.models.model_io import LoadedModel
    from heedful.text import Tokenizer, Tokenizers

Floats = npt.NDArray[np.float32]

# activation -> (CTranslate2's name, whether it gates a second branch)
ACTIVATIONS = {
    "relu": ("RELU", False),
    "gelu": ("GELU", False),
    "gelu_tanh": ("GELUTanh", False),
    "swish": ("SWISH", False),
    "swiglu": ("SWISH", True),
    "geglu": ("GELUTanh", True),
}


def ct2_model(loaded: "LoadedModel") -> tuple[Ct2ModelConfig, dict[str, Floats]]:
    """Return CTranslate2's view of a loaded model and its weights by name; a UserError if CTranslate2 cannot run it."""
    from heedful.models.weights import weights_of

    reason = why_not(loaded.model.config)
    if reason is not None:
        raise UserError(f"{loaded.folder or 'this model'}: cannot be converted to CTranslate2: {reason}")
    weights = {name: tensor.detach().float().cpu().numpy() for name, tensor in weights_of(loaded.model).items()}
    return ct2_config(cast(Ct2Config, loaded.model.config)), weights


def write_model(
    config: Ct2ModelConfig, weights: Mapping[str, Floats], folder: Path, *, tokenizers: "Tokenizers | None" = None
) -> None:
    """Write a converted model in float32 into an empty folder.

    Without tokenizers, ids are named by their numbers, as heedful's engine expects. With tokenizers, ids are named by
    their pieces and CTranslate2 adds EOS to each source, so that any program with CTranslate2 can use the folder.
    """
    if config.is_decoder_only:
        _write_decoder_only(config, weights, folder, tokenizers)
    else:
        _write_encoder_decoder(config, weights, folder, tokenizers)


def _write_encoder_decoder(
    config: Ct2ModelConfig, weights: Mapping[str, Floats], folder: Path, tokenizers: "Tokenizers | None"
) -> None:
    spec, special_ids = EncoderDecoder(config, weights).spec(), config.special_ids
    sources = [source_token(id) for id in range(config.source_vocab_size)]
    targets = [target_token(id) for id in range(config.target_vocab_size)]
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
    _save(spec, config, folder)


def _write_decoder_only(
    config: Ct2ModelConfig, weights: Mapping[str, Floats], folder: Path, tokenizers: "Tokenizers | None"
) -> None:
    """Write a decoder-only model. It has one vocabulary; a prompt must include its special tokens."""
    spec, special_ids = decoder_only(config, weights), config.special_ids
    names = [target_token(id) for id in range(config.target_vocab_size)]
    unknown = 0  # named by their numbers, all ids are known
    if tokenizers is not None:
        if special_ids.eos_id >= len(names):
            raise UserError(
                f"its EOS is the id {special_ids.eos_id}, which is not in its vocabulary, and CTranslate2 needs one"
            )
        names, unknown = _pieces(tokenizers.target, names), tokenizers.target.special_ids.unk_id
    spec.register_vocabulary(names)
    spec.config.unk_token = names[unknown]
    # A model may have special ids outside of its vocabulary; heedful's engine then passes no EOS to CTranslate2.
    spec.config.bos_token = names[special_ids.start_id if special_ids.start_id < len(names) else unknown]
    spec.config.eos_token = names[special_ids.eos_id if special_ids.eos_id < len(names) else unknown]
    _save(spec, config, folder)


def _save(spec: Any, config: Ct2ModelConfig, folder: Path) -> None:
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.validate()
    spec.optimize()  # equal tensors are written once
    spec.save(str(folder))


def _pieces(tokenizer: "Tokenizer", numbers: list[str]) -> list[str]:
    """Return the piece of each id; an id beyond the tokenizer's vocabulary keeps its number as its name."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    if len(set(pieces)) < len(pieces):
        raise UserError("two ids of its tokenizer have the same piece, and CTranslate2 tells ids apart by pieces alone")
    return [*pieces, *numbers[len(pieces) :]]


class Parts:
    """Fills parts of a specification with the weights of one model: attention, feed-forward networks, norms."""

    def __init__(self, config: Ct2ModelConfig, weights: Mapping[str, Floats]) -> None:
        self.config = config
        self.weights = weights
        self.d_head = config.d_head or config.d_model // config.n_heads

    def layer_options(self) -> dict[str, Any]:
        """Return the arguments of CTranslate2's encoder and decoder specifications that all layers have in common."""
        from ctranslate2 import specs

        activation, gated = ACTIVATIONS[self.config.activation]
        return {
            "pre_norm": self.config.residual == "pre",
            "activation": specs.Activation[activation],
            "ffn_glu": gated,
            "rms_norm": self.config.norm == "rms",
            "head_dim": self.config.d_head,
            "relative_attention_bias": self.config.positions in ("relative", "none"),
        }

    def first(self, *names: str) -> Floats:
        """Return the first of these weights that the model has."""
        return next(self.weights[name] for name in names if name in self.weights)

    def zero_bias(self) -> tuple[Floats, np.int32]:
        """Return a relative position bias of zeros. Without a bias CTranslate2 would add its own positions."""
        return np.zeros((32, self.config.n_heads), np.float32), np.int32(128)

    def attention(
        self,
        spec: Any,
        name: str,
        *,
        is_self: bool = True,
        repeat: Callable[[Floats], Floats] = lambda rows: rows,
        scale: float | None = None,
    ) -> None:
        """Fill an attention layer and its norm.

        `is_self`: queries, keys and values share one matrix. `repeat` is applied to keys and values. `scale` multiplies
        q . k; the default is that of the config.
        """
        q = self.linear(f"{name}.to_q")
        k, v = (self.linear(f"{name}.{part}", repeat) for part in ("to_k", "to_v"))
        groups = [[q, k, v]] if is_self else [[q], [k, v]]
        for linear, parts in zip(spec.linear, [*groups, [self.linear(f"{name}.to_out")]], strict=True):
            linear.weight = np.concatenate([weight for weight, _ in parts])
            biases = [bias for _, bias in parts if bias is not None]
            if biases:
                linear.bias = np.concatenate(biases)
        scale = self.config.score_scale if scale is None else scale
        spec.queries_scale = np.float32(self.d_head**-0.5 if scale is None else scale)
        self.norm(spec.layer_norm, f"{name}_residual.norm")

    def feed_forward(self, spec: Any, name: str) -> None:
        """Fill a feed-forward network and its norm."""
        _, gated = ACTIVATIONS[self.config.activation]
        self.fill(spec.linear_0, f"{name}.gate" if gated else f"{name}.inner")
        if gated:
            self.fill(spec.linear_0_noact, f"{name}.inner")
        self.fill(spec.linear_1, f"{name}.outer")
        self.norm(spec.layer_norm, f"{name}_residual.norm")

    def linear(self, name: str, change: Callable[[Floats], Floats] = lambda rows: rows) -> tuple[Floats, Floats | None]:
        """Return the weight and the bias (or None) of a linear layer, with a change applied to both."""
        bias = self.weights.get(f"{name}.bias")
        return change(self.weights[f"{name}.weight"]), None if bias is None else change(bias)

    def fill(self, spec: Any, name: str) -> None:
        """Fill a linear layer."""
        spec.weight, bias = self.linear(name)
        if bias is not None:
            spec.bias = bias

    def norm(self, spec: Any, name: str) -> None:
        """Fill a norm; an RMS norm has no beta."""
        spec.gamma = self.weights[f"{name}.weight"]
        if hasattr(spec, "beta"):
            spec.beta = self.weights[f"{name}.bias"]


class EncoderDecoder(Parts):
    """Fills CTranslate2's specification of an encoder-decoder."""

    def spec(self) -> Any:
        """Return the filled specification."""
        from ctranslate2 import specs

        config, options = self.config, self.layer_options()
        if "source_norm.weight" in self.weights:
            options["layernorm_embedding"] = True
        if config.positions == "rotary":
            options |= {"rotary_dim": 0, "rotary_interleave": False}  # the whole head, in halves
        encoder = specs.TransformerEncoderSpec(config.n_layers, config.n_heads, **options)
        decoder = specs.TransformerDecoderSpec(
            config.n_decoder_layers, config.n_heads, alignment_layer=-1, alignment_heads=config.n_heads, **options
        )
        self._side(encoder, "encoder", "source", encoder.embeddings[0])
        self._side(decoder, "decoder", "target", decoder.embeddings)
        # The file of a model with a tied output layer has it as an embedding.
        output = self.first("head.linear.weight", *_embedding_names("target"))
        decoder.projection.weight = output * np.float32(config.output_scale)
        if "head.linear.bias" in self.weights:
            decoder.projection.bias = self.weights["head.linear.bias"]
        return specs.TransformerSpec(encoder, decoder)

    def _side(self, spec: Any, stack: str, side: str, embeddings: Any) -> None:
        """Fill what encoder and decoder have in common: embeddings, positions, layers, norms outside of layers."""
        embeddings.weight = self.first(*_embedding_names(side))
        spec.scale_embeddings = np.float32(self.config.embedding_scale)
        table = self._position_table(side)
        if table is not None:
            spec.position_encodings.encodings = table
        for part, name in (("layernorm_embedding", f"{side}_norm"), ("layer_norm", f"{stack}.final_norm")):
            if f"{name}.weight" in self.weights:
                self.norm(getattr(spec, part), name)
        for index, layer_spec in enumerate(spec.layer):
            layer, self_attention = f"{stack}.layers.{index}", layer_spec.self_attention
            self.attention(self_attention, f"{layer}.attention", repeat=self._for_each_head)
            if self.config.positions in ("relative", "none"):
                bias, max_distance = self._bias(stack)
                self_attention.relative_attention_bias = bias
                self_attention.relative_attention_max_distance = max_distance
            if stack == "decoder":
                cross_attention = f"{layer}.cross_attention"
                self.attention(layer_spec.attention, cross_attention, is_self=False, repeat=self._for_each_head)
            self.feed_forward(layer_spec.ffn, f"{layer}.feed_forward")

    def _position_table(self, side: str) -> Floats | None:
        if self.config.positions == "learned":
            # One more row: to score a translation of maximum length, CTranslate2 also reads its last token, although
            # nothing uses the prediction after it.
            return np.pad(self.weights[f"{side}_positions.table.weight"], ((0, 1), (0, 0)))
        if self.config.positions in ("sinusoidal", "sinusoidal_halves"):
            return self._sinusoids
        return None

    @functools.cached_property
    def _sinusoids(self) -> Floats:
        """The table of sinusoidal positions, computed once for both sides."""
        return sinusoids(self.config.d_model, halves=self.config.positions == "sinusoidal_halves")

    def _bias(self, stack: str) -> tuple[Floats, np.int32]:
        """Return the relative position bias of a stack, and the maximum distance that it tells apart."""
        if self.config.positions == "none":
            return self.zero_bias()
        return self.weights[f"{stack}.bias.table.weight"], np.int32(self.config.max_distance)

    def _for_each_head(self, rows: Floats) -> Floats:
        """Repeat keys or values that several heads share: CTranslate2's cross-attention has no shared heads."""
        n_heads = self.config.n_heads
        groups = n_heads // (self.config.n_kv_heads or n_heads)
        return np.repeat(rows.reshape(-1, self.d_head, *rows.shape[1:]), groups, axis=0).reshape(-1, *rows.shape[1:])


def decoder_only(config: Ct2ModelConfig, weights: Mapping[str, Floats]) -> Any:
    """Return CTranslate2's specification of a decoder-only model, filled with its weights."""
    from ctranslate2 import specs

    parts = Parts(config, weights)
    decoder = specs.TransformerDecoderSpec(
        config.n_layers,
        config.n_heads,
        with_encoder_attention=False,
        num_heads_kv=config.n_kv_heads or config.n_heads,
        **parts.layer_options(),
        **_rotary_options(config),
    )
    decoder.embeddings.weight = weights["embedding.table.weight"]
    decoder.scale_embeddings = np.float32(config.embedding_scale)
    if config.positions == "learned":
        decoder.position_encodings.encodings = weights["positions.table.weight"]
    for index, layer in enumerate(decoder.layer):
        attention = layer.self_attention
        parts.attention(attention, f"layers.{index}.attention", scale=_score_scale(config, parts.d_head, index))
        parts.feed_forward(layer.ffn, f"layers.{index}.feed_forward")
        if config.positions == "none":
            attention.relative_attention_bias, attention.relative_attention_max_distance = parts.zero_bias()
        if hasattr(attention, "rotary_scaling_long_factor"):
            factors = rotary_factors(config, parts.d_head)
            attention.rotary_scaling_long_factor = attention.rotary_scaling_short_factor = factors
    parts.norm(decoder.layer_norm, "final_norm")
    # The file of a model with a tied output layer has it as the embedding.
    decoder.projection.weight = parts.first("head.linear.weight", "embedding.table.weight")
    return specs.TransformerDecoderModelSpec(decoder)


def rotary_factors(config: Ct2ModelConfig, d_head: int) -> Floats:
    """Return by how much each wavelength of rotary positions grows; see `nn.positions.RopeScaling`."""
    rotary, n = config.rotary, d_head // 2
    kept = np.zeros(n)
    if rotary.original_max_len is not None:
        rounds = rotary.original_max_len * rotary.base ** (-np.arange(n) / n) / (2 * np.pi)
        kept = np.clip((rounds - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor), 0, 1)
    return np.float32(1) / (kept + (1 - kept) / rotary.factor).astype(np.float32)


def sinusoids(d_model: int, *, halves: bool) -> Floats:
    """Return `nn.positions.sinusoidal_code` of the first POSITIONS positions."""
    # By angle addition, from coarse and fine steps: two million sines would take longer than the rest of a conversion.
    step, n = 64, d_model // 2
    frequencies = 10_000.0 ** (-np.arange(n) / n)
    coarse = np.exp(1j * np.arange(0, POSITIONS, step)[:, None, None] * frequencies)
    fine = np.exp(1j * np.arange(step)[:, None] * frequencies)
    angles = (coarse * fine).reshape(-1, n)[:POSITIONS]
    parts = (angles.imag, angles.real)
    table = np.concatenate(parts, axis=1) if halves else np.stack(parts, axis=-1).reshape(POSITIONS, d_model)
    return table.astype(np.float32)


def _rotary_options(config: Ct2ModelConfig) -> dict[str, Any]:
    """Return the arguments for rotary positions of the whole head, in halves."""
    from ctranslate2.specs.attention_spec import RotaryScalingType

    if config.positions != "rotary":
        return {}
    rotary = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rotary.base}
    if not config.rotary.is_scaled:
        return rotary
    # Of CTranslate2's kinds of scaling, this one has a factor for each wavelength and so can express all others. (Its
    # own kind for Llama 3 has no field for the factor in 4.8.4.) With equal lengths it does not scale the scores.
    lengths = {"original_max_position_embeddings": config.max_len, "max_position_embeddings": config.max_len}
    return {**rotary, **lengths, "rotary_scaling_type": RotaryScalingType.Su}


def _score_scale(config: Ct2ModelConfig, d_head: int, layer: int) -> float:
    """Return what multiplies q . k in a layer, as in `models.gpt`."""
    by_head = d_head**-0.5 if config.scaled_by in ("head", "head_and_layer") else 1.0
    return by_head / (layer + 1) if config.scaled_by in ("layer", "head_and_layer") else by_head


def _embedding_names(side: str) -> tuple[str, ...]:
    """Return the names that the embedding of a side can have, its own first, then shared ones."""
    return f"{side}_embedding.table.weight", "source_embedding.table.weight", "embedding.table.weight"
