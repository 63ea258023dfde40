"""The config of each model family: what config.json holds, and what `[model]` in a recipe may set.

Importing this module does not import torch: `heedful translate` with a converted model reads a config without it. The
family files export their config too, so that `from heedful.models.gpt import Gpt, GptConfig` works.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from heedful.config import config_from_dict, read_json
from heedful.errors import UserError, invalid_choice
from heedful.models.config_checks import LARGEST, check_labels, check_shares, check_sizes
from heedful.models.model_info import CONFIG, FORMAT, refuse_other_formats
from heedful.text.special_ids import SpecialIds

# Patterns that compute fewer pairs than all: the keys of `heedful.nn.sparse_attention.PATTERNS`.
SPARSE_PATTERNS = ("local", "window", "strided", "dilated", "sparse")


@dataclass(frozen=True)
class PatternConfig:
    """Which keys each query of a self-attention reads. Cross-attention always reads the whole memory."""

    kind: Literal["full", "additive", "local", "window", "strided", "dilated", "sparse", "top_k"] = "full"
    span: int = 64  # by kind: neighbours, width of a window, stride, number of gaps, width of a block, keys kept
    n_global: int = 1  # of "sparse": the number of first positions that attend to all and that all attend to

    def __post_init__(self) -> None:
        if not 1 <= self.span <= LARGEST["max_len"]:
            raise UserError(f"'span' must lie between 1 and {LARGEST['max_len']:,}, found {self.span}")
        if not 0 <= self.n_global <= LARGEST["max_len"]:
            raise UserError(f"'n_global' must lie between 0 and {LARGEST['max_len']:,}, found {self.n_global}")


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The Transformer of 2017 and its variants; the defaults are the paper's base model."""

    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    n_layers: int = 6  # of the encoder
    n_decoder_layers: int | None = None  # None: n_layers
    n_heads: int = 8
    n_kv_heads: int | None = None  # None: n_heads
    d_head: int | None = None  # None: d_model / n_heads
    d_ff: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu"] = "relu"
    norm: Literal["layer", "rms", "batch"] = "layer"
    residual: Literal["pre", "post", "none"] = "post"
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned", "rotary", "relative", "alibi", "none"] = (
        "sinusoidal"
    )
    max_len: int = 1024  # rows of the table of learned positions; otherwise the longest length in training
    pattern: PatternConfig = field(default_factory=PatternConfig)
    join: Literal["last", "matching", "mix"] = "last"  # which encoder layers the decoder layers read
    tied: Literal["all", "target", "none"] = "all"  # shared with the output layer: both embeddings, the target's, none
    init: Literal["xavier", "t5", "gpt2"] = "xavier"
    logits_bias: bool = False  # a learned bias on the logits, as in Marian
    special_ids: SpecialIds = field(default_factory=SpecialIds)

    def __post_init__(self) -> None:
        check_sizes(self)
        check_shares(self, "dropout", "attention_dropout")
        _check_tied(self)
        _check_heads(self)
        if self.positions in ("relative", "alibi") and self.pattern.kind in SPARSE_PATTERNS:
            raise UserError(
                f"positions = '{self.positions}' adds a bias to every pair of tokens, and pattern "
                f"'{self.pattern.kind}' does not compute every pair; use sinusoidal, learned, rotary or none"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise UserError("positions = 'rotary' rotates pairs of numbers: d_head must be even")
        if self.positions in ("sinusoidal", "sinusoidal_halves") and self.d_model % 2:
            raise UserError(
                f"positions = '{self.positions}' has pairs of sine and cosine: d_model = {self.d_model} must be even"
            )
        self.special_ids.check(min(self.source_vocab_size, self.target_vocab_size))

    @property
    def head_width(self) -> int:
        """K, the width of a head."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def has_learned_positions(self) -> bool:
        """Whether no text can be longer than `max_len`."""
        return self.positions == "learned"


@dataclass(frozen=True)
class BartConfig:
    """BART; the defaults are those of bart-base."""

    vocab_size: int
    d_model: int = 768
    n_layers: int = 6
    n_decoder_layers: int | None = None  # None: n_layers
    n_heads: int = 12
    d_ff: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0  # inside the feed-forward network
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "gelu"
    max_len: int = 1024  # rows of the table of positions
    scaled_embedding: bool = False  # multiply embeddings by sqrt(d_model)
    special_ids: SpecialIds = field(default_factory=SpecialIds)

    has_learned_positions = True

    def __post_init__(self) -> None:
        check_sizes(self, max_len=10**7)
        check_shares(self, "dropout", "attention_dropout", "activation_dropout")
        _check_heads(self)
        self.special_ids.check(self.vocab_size)


@dataclass(frozen=True)
class T5Config:
    """T5, versions 1.0 and 1.1; the defaults are those of t5-small."""

    vocab_size: int
    d_model: int = 512
    n_layers: int = 6
    n_decoder_layers: int | None = None  # None: n_layers
    n_heads: int = 8
    d_head: int = 64
    d_ff: int = 2048
    dropout: float = 0.1
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "geglu", "swiglu"] = "relu"
    n_buckets: int = 32  # of distances
    max_distance: int = 128  # all longer distances share the last bucket
    max_len: int = 512  # the longest length in training; longer texts are possible
    norm_eps: float = 1e-6
    tied: bool = True  # version 1.0: the output layer is the embedding
    scaled: bool | None = None  # divide the output layer's input by sqrt(d_model); None: if tied
    special_ids: SpecialIds = field(default_factory=SpecialIds)
    prefixes: dict[str, str] = field(default_factory=dict)  # task -> the words before each text, such as "summarize: "

    has_learned_positions = False

    def __post_init__(self) -> None:
        check_sizes(self)
        check_shares(self, "dropout")
        _check_eps(self.norm_eps)
        if self.n_buckets < 4 or self.n_buckets % 4:
            raise UserError(
                f"n_buckets = {self.n_buckets} must be a multiple of 4: for both directions, near and far distances"
            )
        if self.max_distance <= self.n_buckets // 2:
            raise UserError(f"max_distance = {self.max_distance} must be above n_buckets / 2 = {self.n_buckets // 2}")
        self.special_ids.check(self.vocab_size)

    @property
    def output_scale(self) -> float:
        """The factor of the last hidden states before the output layer."""
        return self.d_model**-0.5 if (self.tied if self.scaled is None else self.scaled) else 1.0


@dataclass(frozen=True)
class UniversalConfig:
    """The Universal Transformer."""

    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    n_steps: int = 6  # of the encoder: how often its layer is applied, at most
    n_decoder_steps: int | None = None  # None: n_steps
    n_heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu"] = "relu"
    halting: Literal["adaptive", "none"] = "adaptive"
    threshold: float = 0.99  # a position halts when the sum of its halting probabilities exceeds this
    ponder_weight: float = 0.01  # the weight of the ponder cost in the loss
    max_len: int = 1024  # the longest length in training; longer texts are possible
    tied: Literal["all", "target", "none"] = "all"  # shared with the output layer: both embeddings, the target's, none
    special_ids: SpecialIds = field(default_factory=SpecialIds)

    has_learned_positions = False

    def __post_init__(self) -> None:
        check_sizes(self)
        check_shares(self, "dropout", "attention_dropout")
        if not 0.0 < self.threshold < 1.0:
            raise UserError(f"'threshold' must lie between 0 and 1, found {self.threshold}")
        if not 0.0 <= self.ponder_weight <= 100.0:
            raise UserError(f"'ponder_weight' must lie between 0 and 100, found {self.ponder_weight}")
        _check_tied(self)
        if self.d_model % self.n_heads or self.d_model % 2:
            raise UserError(f"d_model = {self.d_model} must be even, and a multiple of n_heads = {self.n_heads}")
        self.special_ids.check(min(self.source_vocab_size, self.target_vocab_size))


@dataclass(frozen=True)
class RotaryConfig:
    """The frequencies of rotary positions; all but `base` are the fields of `heedful.nn.positions.RopeScaling`."""

    base: float = 10_000.0
    factor: float = 1.0  # 1: no scaling
    original_max_len: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        for name in ("base", "factor"):
            if not 1.0 <= getattr(self, name) <= 1e12:
                raise UserError(f"'{name}' must lie between 1 and 1e12, found {getattr(self, name)}")
        largest = LARGEST["max_len"]
        if self.original_max_len is not None and not 1 <= self.original_max_len <= largest:
            raise UserError(f"'original_max_len' must lie between 1 and {largest:,}, found {self.original_max_len}")
        if not 0.0 < self.low_freq_factor < self.high_freq_factor <= 1e12:
            raise UserError(
                f"'low_freq_factor' = {self.low_freq_factor} must be above 0 and below 'high_freq_factor' = "
                f"{self.high_freq_factor}"
            )

    @property
    def is_scaled(self) -> bool:
        return self.factor != 1.0


@dataclass(frozen=True)
class GptConfig:
    """GPT-2 and, with other settings, Llama; the defaults are those of the smallest GPT-2 (vocab_size 50257)."""

    vocab_size: int
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    n_kv_heads: int | None = None  # None: n_heads
    d_head: int | None = None  # None: d_model / n_heads
    d_ff: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu"] = "gelu_tanh"
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    positions: Literal["learned", "rotary", "none"] = "learned"
    rotary: RotaryConfig = field(default_factory=RotaryConfig)
    max_len: int = 1024  # rows of the table of learned positions; otherwise the longest length in training
    attention_bias: bool = True
    feed_forward_bias: bool = True
    # What q . k is divided by: sqrt(K), the number of the layer (counted from 1), both or nothing
    score_scale: Literal["head", "layer", "head_and_layer", "none"] = "head"
    tied: bool = True  # the output layer is the embedding
    special_ids: SpecialIds = field(default_factory=SpecialIds)  # may lie outside of the vocabulary

    def __post_init__(self) -> None:
        check_sizes(self)
        check_shares(self, "dropout", "attention_dropout")
        if not 0.0 <= self.norm_eps <= 1.0:
            raise UserError(f"'norm_eps' must lie between 0 and 1, found {self.norm_eps}")
        _check_heads(self)
        if self.positions == "rotary" and self.head_width % 2:
            raise UserError("positions = 'rotary' rotates pairs of numbers: d_head must be even")

    @property
    def head_width(self) -> int:
        """K, the width of a head."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def has_learned_positions(self) -> bool:
        """Whether no text can be longer than `max_len`."""
        return self.positions == "learned"


@dataclass(frozen=True)
class BertConfig:
    """BERT; the defaults are those of bert-base."""

    vocab_size: int
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    d_ff: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float | None = None  # None: dropout
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "gelu"
    norm_eps: float = 1e-12
    max_len: int = 512  # rows of the table of positions
    n_segments: int = 2  # rows of the table of segments (token types)
    head: Literal["masked", "classify", "tag", "pool", "none"] = "masked"
    labels: tuple[str, ...] = ()  # of "classify" and "tag", in the order of their numbers
    multi_label: bool = False  # several labels may be right at once: a sigmoid for each, instead of one softmax
    tied: bool = True  # of "masked": the output layer is the embedding
    pooler: bool = False  # of "masked": keep the pooler of pre-training; "classify" and "pool" always have one
    special_ids: SpecialIds = field(default_factory=SpecialIds)  # bos_id is [CLS], eos_id is [SEP]

    has_learned_positions = True

    def __post_init__(self) -> None:
        check_sizes(self, max_len=10**7)
        check_shares(self, "dropout", "attention_dropout", "classifier_dropout")
        _check_eps(self.norm_eps)
        _check_heads(self)
        check_labels(self.head, self.labels, needed_by=("classify", "tag"), multi_label=self.multi_label)
        if self.pooler and self.head != "masked":
            raise UserError(f"pooler = true is only for head = 'masked'; leave it out for head = '{self.head}'")
        self.special_ids.check(self.vocab_size)

    @property
    def n_labels(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class VitConfig:
    """ViT; the defaults are those of ViT-B/16."""

    image_size: int = 224  # height and width, in pixels
    patch_size: int = 16
    n_channels: int = 3
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    d_ff: int = 3072
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "gelu"
    norm_eps: float = 1e-12
    qkv_bias: bool = True
    head: Literal["classify", "masked_patches", "patch_order", "pool", "none"] = "classify"
    labels: tuple[str, ...] = ()  # of "classify", in the order of their numbers
    multi_label: bool = False  # several labels may be right at once: a sigmoid for each, instead of one softmax
    mean: tuple[float, ...] = (0.5,)  # subtracted from pixels in [0, 1]: one number, or one for each channel
    std: tuple[float, ...] = (0.5,)  # what the result is divided by
    resize: Literal["bilinear", "bicubic", "nearest"] = "bilinear"  # for images of other sizes

    def __post_init__(self) -> None:
        check_sizes(self)
        check_shares(self, "dropout", "attention_dropout")
        _check_eps(self.norm_eps)
        _check_heads(self)
        if self.image_size % self.patch_size:
            raise UserError(f"patch_size = {self.patch_size} does not divide image_size = {self.image_size}")
        check_labels(self.head, self.labels, needed_by=("classify",), multi_label=self.multi_label)
        for name in ("mean", "std"):
            if len(getattr(self, name)) not in (1, self.n_channels):
                raise UserError(f"'{name}' needs one number, or one for each of the {self.n_channels} channels")
        if min(self.std) <= 0.0:
            raise UserError(f"'std' must be above 0, found {min(self.std)}")

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    @property
    def n_patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2


EncoderDecoderConfig = Seq2SeqConfig | BartConfig | T5Config | UniversalConfig
TextConfig = EncoderDecoderConfig | GptConfig | BertConfig
ModelConfig = TextConfig | VitConfig

CONFIGS: dict[str, type[ModelConfig]] = {
    "seq2seq": Seq2SeqConfig,
    "bart": BartConfig,
    "gpt": GptConfig,
    "t5": T5Config,
    "universal": UniversalConfig,
    "bert": BertConfig,
    "vit": VitConfig,
}


def read_config(folder: Path) -> tuple[str, ModelConfig]:
    """Read the family and the config of a model folder; a UserError names the file and what is wrong."""
    path = folder / CONFIG
    refuse_other_formats(folder)
    values: dict[str, Any] = read_json(path)
    version, family = values.pop("format", None), values.pop("family", None)
    if type(version) is not int or version != FORMAT:
        raise UserError(f"{path}: is of format {version!r}, and this heedful reads format {FORMAT}; update heedful")
    if not isinstance(family, str) or family not in CONFIGS:
        raise invalid_choice(f"{path}: 'family'", family, CONFIGS)
    return family, config_from_dict(CONFIGS[family], values, where=str(path))


def _check_heads(config: Any) -> None:
    if getattr(config, "d_head", None) is None and config.d_model % config.n_heads:
        remedy = "; set d_head as well" if hasattr(config, "d_head") else ""
        raise UserError(f"n_heads = {config.n_heads} does not divide d_model = {config.d_model}{remedy}")
    n_kv_heads = getattr(config, "n_kv_heads", None)
    if n_kv_heads is not None and config.n_heads % n_kv_heads:
        raise UserError(f"n_kv_heads = {n_kv_heads} does not divide n_heads = {config.n_heads}")


def _check_tied(config: Seq2SeqConfig | UniversalConfig) -> None:
    if config.tied == "all" and config.source_vocab_size != config.target_vocab_size:
        raise UserError(
            f"tied = 'all' needs one vocabulary for both sides, found {config.source_vocab_size} and "
            f"{config.target_vocab_size}: train a joint tokenizer, or set tied = 'target'"
        )


def _check_eps(eps: float) -> None:
    if not 0.0 < eps < 1.0:
        raise UserError(f"'norm_eps' must lie between 0 and 1, found {eps}")
