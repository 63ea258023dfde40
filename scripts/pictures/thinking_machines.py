"""Compute the page's "Thinking Machines" example and write src/heedful/page/thinking_machines.js.

    python scripts/pictures/thinking_machines.py

The example is self-attention over two words with vectors of four numbers. Queries, keys and values have 64 numbers, so
scores are divided by 8. The first word has the scores 112 and 96, divided 14 and 12, and the weights 0.88 and 0.12.
"""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

OUTPUT = Path(__file__).parents[2] / "src" / "heedful" / "page" / "thinking_machines.js"
D_MODEL, D_HEAD = 4, 64
Matrix = npt.NDArray[np.float64]


def thinking_machines() -> dict[str, object]:
    """Return the words, the matrices and every intermediate result of the self-attention."""
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
    """Return w_q, w_k and w_v with small integers that give the scores 112 and 96.

    The query of word one has 48 times 2 and 16 times 1. Its key is 1 everywhere (2 x 48 + 16 = 112); the key of word
    two is 1 in the first 48 columns only (2 x 48 = 96).
    """
    column = np.arange(D_HEAD)
    one, zero = np.ones(D_HEAD), np.zeros(D_HEAD)
    first = (column < 48).astype(float)
    even = (column % 2 == 0).astype(float)
    w_q = np.stack([one, even, first, one])  # rows 0 + 2 give the query of word one, rows 1 + 3 that of word two
    w_k = np.stack([first, zero, one - first, first])
    w_v = np.stack([column % 3, zero, one, column % 2 * 3.0])
    return w_q, w_k, w_v


def _plain(array: Matrix) -> list[list[float | int]]:
    """Return nested lists, with integers where possible, so that the file is easy to read."""
    return [[int(value) if value == int(value) else round(float(value), 6) for value in row] for row in array]


if __name__ == "__main__":
    OUTPUT.write_text(javascript_module(), encoding="utf-8")
