"""What CTranslate2 must know of an encoder-decoder, whatever its family calls it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.models.marks import MarksConfig

if TYPE_CHECKING:
    from torch import nn

# CTranslate2 computes sinusoids of another shape, and only reads heedful's: so it gets a table. This is enough for a
# source of 4,096 tokens and a translation as long as a search may make of it (8,208).
POSITIONS = 8_208
EPSILONS = {"layer": 1e-5, "rms": float(np.finfo(np.float32).eps)}  # torch's own defaults, which heedful's norms have


@dataclass(frozen=True)
class Outline:
    source_vocab_size: int
    target_vocab_size: int
    d_model: int
    n_heads: int
    marks: MarksConfig
    activation: str
    n_kv_heads: int | None = None
    d_head: int | None = None
    norm: str = "layer"
    norm_eps: float = EPSILONS["layer"]
    residual: str = "post"
    positions: str = "learned"
    max_len: int = 0
    output_scale: float = 1.0  # of the decoder's vectors, before the output layer

    @property
    def n_positions(self) -> int | None:
        """How many positions the converted model has; None: as many as one likes."""
        sizes = {"sinusoidal": POSITIONS, "sinusoidal_halves": POSITIONS, "learned": self.max_len}
        return sizes.get(self.positions)


def outline_of(model: "nn.Module") -> Outline:
    """Of a Seq2Seq, a Bart or a T5."""
    from heedful.models.bart import Bart
    from heedful.models.t5 import T5

    config: Any = model.config
    common = {name: getattr(config, name) for name in ("d_model", "n_heads", "marks", "activation", "max_len")}
    if isinstance(model, Bart):
        return Outline(config.vocab_size, config.vocab_size, **common)
    if isinstance(model, T5):
        return Outline(
            config.vocab_size,
            config.vocab_size,
            **common,
            d_head=config.d_head,
            norm="rms",
            norm_eps=config.norm_eps,
            residual="pre",
            positions="relative",
            output_scale=config.d_model**-0.5 if config.tied else 1.0,
        )
    return Outline(
        config.source_vocab_size,
        config.target_vocab_size,
        **common,
        n_kv_heads=config.n_kv_heads,
        d_head=config.d_head,
        norm=config.norm,
        norm_eps=EPSILONS.get(config.norm, 0.0),
        residual=config.residual,
        positions=config.positions,
    )
