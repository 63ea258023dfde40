"""What all models have in common in CTranslate2's description: attention, feed-forward networks, norms."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from heedful.interop.ctranslate2_outline import Outline

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

    def __init__(self, outline: Outline, weights: Mapping[str, Floats]) -> None:
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
