"""What CTranslate2 needs to know of a model, derived from its config, and what it cannot run. Needs no torch."""

from dataclasses import dataclass, field

from heedful.models.configs import CONFIGS, BartConfig, GptConfig, ModelConfig, RotaryConfig, Seq2SeqConfig, T5Config
from heedful.text.special_ids import SpecialIds

# CTranslate2 computes sinusoids of another layout, so it gets heedful's as a table. It is enough for a source of 4,096
# tokens and the longest translation that a search may make of it (8,208).
POSITIONS = 8_208
EPSILONS = {"layer": 1e-5, "rms": 2.0**-23}  # the defaults of torch, which heedful's norms have


@dataclass(frozen=True)
class Ct2ModelConfig:
    """A model in the terms that all families share. In a decoder-only model, source and target vocabulary are one."""

    source_vocab_size: int
    target_vocab_size: int
    d_model: int
    n_layers: int
    n_decoder_layers: int
    n_heads: int
    special_ids: SpecialIds
    activation: str
    embedding_scale: float
    is_decoder_only: bool = False
    n_kv_heads: int | None = None
    d_head: int | None = None
    score_scale: float | None = None  # None: 1 / sqrt(d_head)
    norm: str = "layer"
    norm_eps: float = EPSILONS["layer"]
    residual: str = "post"
    positions: str = "learned"
    max_len: int = 0
    max_distance: int = 128  # of relative positions
    output_scale: float = 1.0  # of the decoder's hidden states, before the output layer
    scaled_by: str = "head"  # GptConfig.score_scale, of a decoder-only model
    rotary: RotaryConfig = field(default_factory=RotaryConfig)

    @property
    def n_positions(self) -> int | None:
        """The number of positions that the converted model has; None: no limit."""
        sizes = {"sinusoidal": POSITIONS, "sinusoidal_halves": POSITIONS, "learned": self.max_len}
        return sizes.get(self.positions)


Ct2Config = Seq2SeqConfig | BartConfig | T5Config | GptConfig


def ct2_config(config: Ct2Config) -> Ct2ModelConfig:
    """Derive CTranslate2's view of a model from its config; `why_not(config)` must be None."""
    if isinstance(config, GptConfig):
        return _gpt(config)
    if isinstance(config, Seq2SeqConfig):
        return _seq2seq(config)
    return _bart(config) if isinstance(config, BartConfig) else _t5(config)


def why_not(config: ModelConfig) -> str | None:
    """Return the first reason why CTranslate2 cannot run a model with equal results; None if it can."""
    if not isinstance(config, Ct2Config):
        family = next(name for name, kind in CONFIGS.items() if isinstance(config, kind))
        return f"heedful has no conversion for the family '{family}'"
    reasons = {"it puts no BOS before a source": config.special_ids.source_bos}
    if isinstance(config, Seq2SeqConfig):
        reasons |= {
            f"it has no '{config.pattern.kind}' attention": config.pattern.kind != "full",
            f"it has no {config.norm} norm": config.norm not in EPSILONS,
            "it always adds the residual": config.residual == "none",
            "its encoder has no ALiBi": config.positions == "alibi",
            "its decoder layers all read the last encoder layer": config.join != "last",
        }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _seq2seq(config: Seq2SeqConfig) -> Ct2ModelConfig:
    return Ct2ModelConfig(
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
        d_model=config.d_model,
        n_layers=config.n_layers,
        n_decoder_layers=config.n_decoder_layers or config.n_layers,
        n_heads=config.n_heads,
        special_ids=config.special_ids,
        activation=config.activation,
        embedding_scale=config.d_model**0.5,
        n_kv_heads=config.n_kv_heads,
        d_head=config.d_head,
        score_scale=1.0 if config.init == "t5" else None,
        norm=config.norm,
        norm_eps=EPSILONS[config.norm],
        residual=config.residual,
        positions=config.positions,
        max_len=config.max_len,
    )


def _bart(config: BartConfig) -> Ct2ModelConfig:
    return Ct2ModelConfig(
        source_vocab_size=config.vocab_size,
        target_vocab_size=config.vocab_size,
        d_model=config.d_model,
        n_layers=config.n_layers,
        n_decoder_layers=config.n_decoder_layers or config.n_layers,
        n_heads=config.n_heads,
        special_ids=config.special_ids,
        activation=config.activation,
        embedding_scale=config.d_model**0.5 if config.scaled_embedding else 1.0,
        max_len=config.max_len,
    )


def _t5(config: T5Config) -> Ct2ModelConfig:
    return Ct2ModelConfig(
        source_vocab_size=config.vocab_size,
        target_vocab_size=config.vocab_size,
        d_model=config.d_model,
        n_layers=config.n_layers,
        n_decoder_layers=config.n_decoder_layers or config.n_layers,
        n_heads=config.n_heads,
        special_ids=config.special_ids,
        activation=config.activation,
        embedding_scale=1.0,
        d_head=config.d_head,
        score_scale=1.0,
        norm="rms",
        norm_eps=config.norm_eps,
        residual="pre",
        positions="relative",
        max_len=config.max_len,
        max_distance=config.max_distance,
        output_scale=config.output_scale,
    )


def _gpt(config: GptConfig) -> Ct2ModelConfig:
    return Ct2ModelConfig(
        source_vocab_size=config.vocab_size,
        target_vocab_size=config.vocab_size,
        d_model=config.d_model,
        n_layers=config.n_layers,
        n_decoder_layers=config.n_layers,
        n_heads=config.n_heads,
        special_ids=config.special_ids,
        activation=config.activation,
        embedding_scale=1.0,
        is_decoder_only=True,
        n_kv_heads=config.n_kv_heads,
        d_head=config.d_head,
        norm=config.norm,
        norm_eps=config.norm_eps,
        residual="pre",
        positions=config.positions,
        max_len=config.max_len,
        scaled_by=config.score_scale,
        rotary=config.rotary,
    )
