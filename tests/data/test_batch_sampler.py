"""Batches as pure functions of lengths: token budget, completeness, order, balance."""

import gzip
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heedful.data.batch_sampler import EpochPlan, epoch_order, plan_batches, real_share, source_ceiling, split_rows
from heedful.errors import UserError
from heedful.text import TokenizerConfig, learn_tokenizers

MULTI30K = Path(__file__).parents[2].parent / "shared/data/multi30k/raw"

lengths = st.integers(1, 60)
pairs = st.lists(st.tuples(lengths, lengths), min_size=0, max_size=300).map(
    lambda rows: np.array(rows, np.uint32).reshape(-1, 2).T
)


def random_lengths(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    target = generator.gamma(3, 8, n).astype(np.uint32) + 2
    source = np.maximum(2, target * generator.normal(1, 0.2, n)).astype(np.uint32)
    return source, target


def as_sets(plan: EpochPlan) -> list[frozenset[int]]:
    return [frozenset(batch.tolist()) for batch in plan]


@given(pairs, st.integers(1, 200), st.integers(1, 200), st.one_of(st.none(), st.integers(1, 70)), st.integers(0, 3))
def test_every_example_is_in_one_batch_or_left_out_and_no_budget_is_exceeded(
    sides, batch_tokens, source_tokens, max_len, epoch
):
    source, target = sides
    plan = plan_batches(
        source, target, batch_tokens=batch_tokens, source_tokens=source_tokens, max_len=max_len, seed=5, epoch=epoch
    )
    for batch in plan:
        assert len(batch) * target[batch].max() <= batch_tokens
        assert len(batch) * source[batch].max() <= source_tokens
    limit = max_len or 10**9
    too_long = (target > min(batch_tokens, limit)) | (source > min(source_tokens, limit))
    assert plan.left_out.tolist() == np.flatnonzero(too_long).tolist()
    members = sorted(number for batch in plan for number in batch.tolist())
    assert members == np.flatnonzero(~too_long).tolist()


def test_the_default_source_budget_follows_the_ratio_of_the_corpus():
    short, long = np.full(10, 10), np.full(10, 40)
    assert source_ceiling(short, short, batch_tokens=100) == 200
    assert source_ceiling(long, short, batch_tokens=100) == 800
    assert source_ceiling(short, long, batch_tokens=100) == 200


def test_a_plan_is_a_function_of_its_arguments_and_changes_with_seed_and_epoch():
    source, target = random_lengths(3000)

    def plan(**changes: int) -> list[list[int]]:
        arguments = {"batch_tokens": 500, "seed": 1, "epoch": 0} | changes
        return [batch.tolist() for batch in plan_batches(source, target, **arguments)]

    assert plan() == plan()
    assert plan() != plan(seed=2)
    assert plan() != plan(epoch=1)
    # The seed of one run must not be the epoch of another.
    assert plan(seed=1, epoch=2) != plan(seed=2, epoch=1)


def test_examples_are_grouped_differently_in_every_epoch():
    """Most examples of a batch are not together again; sorting alone would only reorder the same batches."""
    source, target = random_lengths(20_000)
    first, second = (plan_batches(source, target, batch_tokens=1000, seed=1, epoch=epoch) for epoch in (0, 1))
    batch_of = np.empty(len(target), np.int64)
    for number, batch in enumerate(second):
        batch_of[batch] = number
    again = met = 0
    for batch in first:
        counts = np.bincount(batch_of[batch])
        again += int((counts * (counts - 1)).sum())
        met += len(batch) * (len(batch) - 1)
    assert again / met < 0.4
    assert not set(as_sets(first)) & {batch for batch in as_sets(second) if len(batch) > 3}


def test_examples_of_neighbouring_lengths_are_mixed():
    """Otherwise texts of one length would always be with the same others."""
    target = np.full(10_000, 20)
    source = np.arange(10_000) // 1000 + 11  # ten lengths, each equally frequent
    plan = plan_batches(source, target, batch_tokens=2_000, seed=1, epoch=0)
    different = [np.ptp(source[batch]) for batch in plan]
    assert np.mean(different) > 0.15  # 0.09, one batch at each boundary, if exact lengths were sorted


def test_the_order_of_batches_does_not_follow_their_lengths():
    source, target = random_lengths(20_000)
    plan = plan_batches(source, target, batch_tokens=1000, seed=1, epoch=0)
    means = [target[batch].mean() for batch in plan]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.1


def test_little_padding_on_both_sides_in_every_window_of_a_large_corpus():
    source, target = random_lengths(300_000)
    plan = plan_batches(source, target, batch_tokens=4096, seed=1, epoch=0)
    assert real_share(plan, source) > 0.94
    assert real_share(plan, target) > 0.94


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs ../shared/data/multi30k")
def test_at_most_5_percent_padding_on_both_sides_of_multi30k():
    sides = [
        gzip.decompress((MULTI30K / f"train.{name}.gz").read_bytes()).decode().split("\n")[:-1] for name in ("en", "de")
    ]
    assert [len(side) for side in sides] == [29_000, 29_000]
    tokenizer = learn_tokenizers(*sides, TokenizerConfig(vocab_size=8000)).source
    english, german = (np.array([len(ids) + 1 for ids in tokenizer.encode_batch(side)]) for side in sides)
    for source, target in ((english, german), (german, english)):
        for epoch in range(3):
            plan = plan_batches(source, target, batch_tokens=4096, seed=1, epoch=epoch)
            assert real_share(plan, source) >= 0.95
            assert real_share(plan, target) >= 0.95
            assert max(len(batch) * int(target[batch].max()) for batch in plan) <= 4096
            assert len(plan.left_out) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(["0", "0.1", "0.3", "0.5", "1", "1.5", "2", "3.3", "1/3"])),
        min_size=1,
        max_size=4,
    )
)
def test_a_weighted_corpus_is_spread_evenly_over_the_epochs(corpora):
    sizes, shares = [size for size, _ in corpora], [Fraction(weight) for _, weight in corpora]
    counts = np.zeros(sum(sizes), int)
    for epoch in range(10):
        order = epoch_order(sizes, list(map(float, shares)), seed=3, epoch=epoch)
        counts += np.bincount(order, minlength=sum(sizes))
        first = 0
        for size, share in zip(sizes, shares, strict=True):
            mine = counts[first : first + size]
            # An example that one epoch does not reach comes in a later one.
            assert mine.sum() == math.floor((epoch + 1) * size * share)
            # No example occurs more than once more often than another of its corpus.
            assert size == 0 or mine.max() - mine.min() <= 1
            first += size


def test_a_small_corpus_with_a_small_weight_is_used():
    members = [epoch_order([1, 3], [0.4, 1.0], seed=1, epoch=epoch).tolist().count(0) for epoch in range(10)]
    assert sum(members) == 4 and max(members) == 1


def test_fractions_do_not_drift_over_many_epochs():
    """As a binary float, 0.3 x 10 is less than 3: the first epoch would have two examples, and some would be lost."""
    assert {len(epoch_order([10], [0.3], seed=1, epoch=epoch)) for epoch in (*range(30), 10**9, 10**15)} == {3}


def test_with_weight_one_each_epoch_has_each_example_once_in_another_order():
    orders = [epoch_order([50, 30], [1.0, 1.0], seed=1, epoch=epoch).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(80)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_impossible_weights_are_refused():
    with pytest.raises(UserError, match="2 corpora, but 1 weights"):
        epoch_order([3, 4], [1.0], seed=0, epoch=0)
    for weight in (-0.5, float("nan"), float("inf")):
        with pytest.raises(UserError, match="from 0 upwards"):
            epoch_order([3], [weight], seed=0, epoch=0)


@given(st.lists(st.tuples(lengths, lengths), max_size=40), st.integers(1, 9))
@example([(1, 1)] * 6 + [(1, 2), (1, 2), (6, 1)], 4)  # one long row in the middle: two cuts would be at the same place
def test_split_rows_loses_no_row_and_leaves_no_part_empty_without_need(rows, n_parts):
    source, target = np.array(rows, np.int64).reshape(-1, 2).T
    parts = split_rows(source, target, n_parts)
    assert len(parts) == n_parts
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(rows)))
    sizes = [len(part) for part in parts]
    assert sum(size > 0 for size in sizes) == min(n_parts, len(rows))
    assert sizes == sorted(sizes, key=bool, reverse=True)  # empty parts are last


def test_split_rows_balances_tokens():
    source, target = random_lengths(200)
    tokens = [int((source + target)[part].sum()) for part in split_rows(source, target, 4)]
    assert max(tokens) - min(tokens) <= 2 * int((source + target).max())
