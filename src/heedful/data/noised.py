"""Running text as pairs of a damaged and a whole one, for encoder-decoders that learn to restore it."""

from collections.abc import Callable

import numpy as np

from heedful.data.batch import Batch, collate
from heedful.data.batching import IntArray, generator
from heedful.data.noising import Noised
from heedful.data.stretches import Stretches
from heedful.text import SpecialTokens

Noise = Callable[[IntArray, np.random.Generator], Noised]


class Restored:
    """Stretches of text, damaged anew in every epoch: a dataset for a loader.

    A stretch counts as long as it is on both sides, although T5 writes only what was hidden: so the same number of
    tokens in a step is about the same work, whatever the noise.
    """

    def __init__(
        self,
        texts: Stretches,
        noise: Noise,
        *,
        special: SpecialTokens,
        pin_memory: bool = False,
    ) -> None:
        self.texts, self.noise = texts, noise
        self.special, self.pin_memory = special, pin_memory
        self.keys, self.sizes = texts.keys, texts.sizes
        self.source_lengths: IntArray = (texts.lengths + 1).astype(np.uint32)
        self.target_lengths: IntArray = self.source_lengths

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> Batch:
        """See `Dataset`. A row's noise depends on the step's seed and the row's number in it alone."""
        chosen = np.asarray(indices[rows], np.int64)
        noised = [
            self.noise(ids, generator(seed, int(row))) for ids, row in zip(self.texts.take(chosen), rows, strict=True)
        ]
        batch = collate([one.input for one in noised], [one.target for one in noised], chosen, special=self.special)
        return batch.pin_memory() if self.pin_memory else batch
