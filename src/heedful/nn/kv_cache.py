"""The KV cache: keys and values kept between decoding steps.

The caller makes it, passes it in and reorders it; modules keep no state. It grows in blocks, so that a step writes one
column and copies nothing.
"""

import torch
from torch import Tensor

BLOCK = 32  # columns: a sentence needs a few growths, a word wastes little


class KeyValueStore:
    """The keys and values of one attention so far, (N, H, length, K) each."""

    def __init__(self) -> None:
        self.length = 0
        self._keys = torch.empty(0)
        self._values = torch.empty(0)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append columns (N, H, T, K), and return all columns so far."""
        end = self.length + k.size(2)
        if self.length == 0:
            self._keys, self._values = _room(k, end), _room(v, end)
        elif end > self._keys.size(2):
            # Grow by half, so that all copying of a long decode stays proportional to its length.
            capacity = max(end, self._keys.size(2) * 3 // 2)
            self._keys = _grown(self._keys, self.length, capacity)
            self._values = _grown(self._values, self.length, capacity)
        self._keys[:, :, self.length : end] = k
        self._values[:, :, self.length : end] = v
        self.length = end
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Return all columns so far."""
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def cut(self, length: int) -> None:
        """Remove the columns beyond `length`."""
        self.length = min(self.length, length)

    def reorder(self, rows: Tensor) -> None:
        """Select rows, in the order of `rows`, some perhaps several times, as beam search needs it."""
        if self.length > 0:
            self._keys, self._values = self._keys[rows], self._values[rows]


class LayerCache:
    """The cache of one decoder layer: its own past, and the keys and values of the memory, computed once."""

    def __init__(self) -> None:
        self.past = KeyValueStore()
        self.memory = KeyValueStore()


class Cache:
    """The cache of a decoder, in which each row has `length` tokens."""

    def __init__(self, n_layers: int) -> None:
        self.layers = [LayerCache() for _ in range(n_layers)]

    @property
    def length(self) -> int:
        return self.layers[0].past.length

    def cut(self, length: int) -> None:
        """Remove the tokens beyond `length`."""
        for layer in self.layers:
            layer.past.cut(length)

    def reorder(self, rows: Tensor) -> None:
        """Select rows, in the order of `rows`, some perhaps several times, as beam search needs it."""
        for layer in self.layers:
            layer.past.reorder(rows)
            layer.memory.reorder(rows)


def _room(x: Tensor, length: int) -> Tensor:
    n_blocks = -(-length // BLOCK)
    return x.new_empty(x.size(0), x.size(1), n_blocks * BLOCK, x.size(3))


def _grown(x: Tensor, length: int, capacity: int) -> Tensor:
    larger = _room(x, capacity)
    larger[:, :, :length] = x[:, :, :length]
    return larger
