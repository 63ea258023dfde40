"""Load batches endlessly, and resume from a state of three numbers.

The plan of an epoch is a function of the lengths, the seed and the epoch; a batch is a function of the plan and the
position in it. So the state is the position of the *consumer*; batches that workers have made ahead are made again. A
state is passed to the constructor and never to a running loader (PrimeIntellect-ai/prime-rl#3332).

    loader = Loader(dataset, batch_tokens=4096, seed=1)
    batch = next(loader)
    resumed = Loader(dataset, batch_tokens=4096, seed=1, state=loader.state)
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np

from heedful.data.batch_sampler import (
    EpochPlan,
    epoch_order,
    examples_per_epoch,
    plan_batches,
    source_ceiling,
    split_rows,
)
from heedful.data.seeding import IntArray, derived_seed
from heedful.errors import UserError

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)

PLAN_VERSION = 2  # raise it when equal states give other batches
BATCHES_AHEAD = 2  # per worker


class Dataset(Protocol[B_co]):
    """The examples of one or more corpora: their lengths in a batch, and a method that makes batches of them."""

    keys: list[str]  # hashes of the corpora
    sizes: list[int]  # how many examples each corpus has
    source_lengths: IntArray
    target_lengths: IntArray

    def batch(self, indices: IntArray, rows: IntArray, *, seed: int) -> B_co:
        """Make the batch of the rows `rows` of the step with the examples `indices` and the seed `seed`.

        It must be a pure function, and may be called from any thread.
        """


@dataclass(frozen=True)
class LoaderState:
    """The next batch is number `position` of epoch `epoch`, both from 0."""

    epoch: int
    position: int
    seed: int


class Loader(Generic[B]):
    """An iterator over this rank's batch of each step, for `epochs` epochs or endlessly.

    `batch_tokens`, `source_tokens` and `max_len` are those of `plan_batches`; `weights` are those of the corpora
    (`epoch_order`). `n_workers` threads make batches ahead. The state after the last batch of an epoch is position 0 of
    the next.
    """

    def __init__(
        self,
        dataset: Dataset[B],
        *,
        batch_tokens: int,
        seed: int,
        state: LoaderState | None = None,
        source_tokens: int | None = None,
        max_len: int | None = None,
        weights: Sequence[float] | None = None,
        rank: int = 0,
        n_ranks: int = 1,
        n_workers: int = 0,
        epochs: int | None = None,
    ) -> None:
        self.dataset = dataset
        self.batch_tokens = batch_tokens
        self.source_tokens = source_tokens or source_ceiling(
            dataset.source_lengths, dataset.target_lengths, batch_tokens=batch_tokens
        )
        self.max_len = max_len
        self.weights = [1.0] * len(dataset.sizes) if weights is None else list(weights)
        self.rank, self.n_ranks = rank, n_ranks
        self.epochs = epochs
        self._state = state or LoaderState(epoch=0, position=0, seed=seed)
        if self._state.seed != seed:
            raise UserError(f"the state was saved with seed {self._state.seed}, the run has {seed}: use the same seed")
        if min(asdict(self._state).values()) < 0:
            raise UserError(f"{self._state}: epoch, position and seed must be at least 0")
        self._plan = self._plan_epoch(self._state.epoch)
        self._state = self._checked(self._state)
        self._next = self._state  # the batch to be made next; with workers it is ahead of the state
        self._pool = ThreadPoolExecutor(n_workers, thread_name_prefix="loader") if n_workers else None
        self._n_ahead = 1 + BATCHES_AHEAD * n_workers
        self._ahead: deque[tuple[Callable[[], B], LoaderState]] = deque()

    @property
    def state(self) -> LoaderState:
        """The position after the last batch that was returned."""
        return self._state

    @property
    def left_out(self) -> IntArray:
        """The examples that are too long for any batch, sorted."""
        return self._plan.left_out

    @property
    def n_batches(self) -> int:
        """The number of steps in the current epoch; epochs differ a little."""
        return len(self._plan)

    @property
    def fingerprint(self) -> str:
        """A hash that is equal for two loaders if a state of one gives the same batches in the other.

        It does not depend on the number of ranks or workers.
        """
        # Version 2 differs only where fractions of examples add up over the epochs; all other plans are those of 1.
        shares = [
            examples_per_epoch(size, weight) for size, weight in zip(self.dataset.sizes, self.weights, strict=True)
        ]
        version = 1 if all(share.denominator == 1 for share in shares) else PLAN_VERSION
        parts = [version, self.dataset.keys, self.batch_tokens, self.source_tokens, self.max_len, self.weights]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def trial_batches(self, n: int = 8) -> tuple[B, list[B]]:
        """Return the batch with the longest rows and up to `n` evenly spaced ones of this epoch, for measurements.

        This does not advance the loader: its state stays as it is.
        """
        longest_of = [int(self.dataset.target_lengths[indices].max()) for indices in self._plan]
        numbers = np.linspace(0, len(self._plan) - 1, min(n, len(self._plan))).astype(int).tolist()
        longest, *spaced = (self._make(self._plan[i], seed=0) for i in [int(np.argmax(longest_of)), *numbers])
        return longest, spaced

    def __iter__(self) -> "Loader[B]":
        return self

    def __next__(self) -> B:
        while len(self._ahead) < self._n_ahead and not self._finished:
            self._ask_for_next()
        if not self._ahead:
            raise StopIteration
        make, after = self._ahead[0]
        batch = make()  # if it raises, nothing was consumed
        self._ahead.popleft()
        self._state = after
        return batch

    @property
    def _finished(self) -> bool:
        return self.epochs is not None and self._next.epoch >= self.epochs

    def _ask_for_next(self) -> None:
        epoch, position, seed = self._next.epoch, self._next.position, self._next.seed
        if self._plan_of != epoch:
            self._plan = self._plan_epoch(epoch)
        indices = self._plan[position]
        make: Callable[[], B] = partial(self._make, indices, derived_seed(seed, epoch, position))
        if self._pool is not None:
            make = self._pool.submit(make).result
        last = position + 1 == len(self._plan)
        self._next = LoaderState(epoch + 1, 0, seed) if last else LoaderState(epoch, position + 1, seed)
        self._ahead.append((make, self._next))

    def _make(self, indices: IntArray, seed: int) -> B:
        lengths = self.dataset.source_lengths[indices], self.dataset.target_lengths[indices]
        return self.dataset.batch(indices, split_rows(*lengths, self.n_ranks)[self.rank], seed=seed)

    def _plan_epoch(self, epoch: int) -> EpochPlan:
        seed = self._state.seed
        order = epoch_order(self.dataset.sizes, self.weights, seed=seed, epoch=epoch)
        if not len(order):
            raise UserError(
                f"no batch can be made: with the weights {self.weights}, epoch {epoch} has none of the "
                f"{sum(self.dataset.sizes):,} examples. Set data.weights to higher numbers."
            )
        plan = plan_batches(
            self.dataset.source_lengths,
            self.dataset.target_lengths,
            batch_tokens=self.batch_tokens,
            source_tokens=self.source_tokens,
            max_len=self.max_len,
            order=order,
            seed=seed,
            epoch=epoch,
        )
        if not len(plan):  # an endless loader would search for a batch forever
            raise self._nothing_fits(plan)
        self._plan_of = epoch
        return plan

    def _checked(self, state: LoaderState) -> LoaderState:
        """Check that the position exists, and turn the end of an epoch into the beginning of the next."""
        n_batches = len(self._plan)
        if state.position > n_batches:
            raise UserError(
                f"cannot resume the data from {asdict(state)}: this epoch has {n_batches} batches. "
                "The corpus, the weights or data.batch_tokens are not those of the saved run."
            )
        if state.position < n_batches:
            return state
        return LoaderState(state.epoch + 1, 0, state.seed)

    def _nothing_fits(self, plan: EpochPlan) -> UserError:
        total = sum(self.dataset.sizes)
        return UserError(
            f"no batch can be made: {len(plan.left_out):,} of {total:,} examples are longer than "
            f"data.batch_tokens = {self.batch_tokens} or max_len = {self.max_len} allows (weights {self.weights}). "
            "Set higher limits, or give a corpus of shorter texts."
        )
