"""Compute the page's "Thinking Machines" example and write src/heedful/page/thinking_machines.js.

    python scripts/pictures/thinking_machines.py

Two words of four numbers each; queries, keys and values of 64, so that scores are divided by 8. For the first word:
112 and 96, divided 14 and 12, after softmax 0.88 and 0.12.
"""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

OUTPUT = Path(__file__).parents[2] / "src" / "heedful" / "page" / "thinking_machines.js"
D_MODEL, D_HEAD = 4, 64
Matrix = npt.NDArray[np.float64]


def thinking_machines() -> dict[str, object]:
    """Words, matrices and every intermediate result of one self-attention."""
    x = np.array([[1, 0, 1, 0], [0, 1, 0, 1]], float)  # (2, D)
    w_q, w_k, w_v = _weights()
    q, k, v = x @ w_q, x @ w_k, x @ w_v  # (2, K)
    scores = q @ k.T
    scaled = scores / np.sqrt(D_HEAD)
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    arrays = {
        "x": x,
        "w_q": w_q,
        "w_k": w_k,
        "w_v": w_v,
        "q": q,
        "k": k,
        "v": v,
        "scores": scores,
        "scaled": scaled,
        "weights": weights,
        "z": weights @ v,
    }
    return {
        "words": ["Thinking", "Machines"],
        "d_model": D_MODEL,
        "d_head": D_HEAD,
        "scale": float(np.sqrt(D_HEAD)),
        **{name: _plain(array) for name, array in arrays.items()},
    }


def javascript_module() -> str:
    """Return the example as the JavaScript module that the page imports."""
    return (
        "// Written by scripts/pictures/thinking_machines.py: the attention example, every number exact.\n"
        f"export default {json.dumps(thinking_machines(), separators=(',', ':'))};\n"
    )


def _weights() -> tuple[Matrix, Matrix, Matrix]:
    """Small whole numbers. The query of word one is 2 in 48 places and 1 in 16; the key of word one is 1 everywhere
    (2 x 48 + 16 = 112), that of word two 1 in the first 48 only (2 x 48 = 96).
    """
    place = np.arange(D_HEAD)
    one, zero = np.ones(D_HEAD), np.zeros(D_HEAD)
    first = (place < 48).astype(float)
    even = (place % 2 == 0).astype(float)
    w_q = np.stack([one, even, first, one])  # rows 0 and 2 make the query of word one, 1 and 3 that of word two
    w_k = np.stack([first, zero, one - first, first])
    w_v = np.stack([place % 3, zero, one, place % 2 * 3.0])
    return w_q, w_k, w_v


def _plain(array: Matrix) -> list[list[float | int]]:
    """Whole numbers without a point: they are to be read."""
    return [[int(value) if value == int(value) else round(float(value), 6) for value in row] for row in array]


if __name__ == "__main__":
    OUTPUT.write_text(javascript_module(), encoding="utf-8")
