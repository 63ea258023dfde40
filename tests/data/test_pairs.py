"""Pairs as batches: rows in the order asked for, sampling by the seed of the step and within the planned lengths."""

from collections.abc import Sequence

import numpy as np
import pytest

from heedful.data.binarize import prepare
from heedful.data.collate import Batch
from heedful.data.datasets import N_ATTEMPTS, PairDataset
from heedful.errors import UserError
from heedful.text import SPECIAL_IDS, SentencePieceTokenizer, Tokenizers
from prepared_corpus import make_examples, prepared, tokenizers

STEP = np.array([40, 3, 17, 8, 59, 20, 21], np.uint32)


def texts_of(batch: Batch) -> list[tuple[str, str]]:
    pieces = tokenizers(sample_alpha=0.1)
    sources, targets = (
        pieces.source.decode_batch(batch.source.tolist()),
        pieces.target.decode_batch(batch.target_out.tolist()),
    )
    return list(zip(sources, targets, strict=True))


@pytest.mark.parametrize("keep_text", [False, True])
def test_rows_come_in_the_order_asked_for(tmp_path, keep_text):
    pairs = PairDataset(
        prepared(tmp_path, 60, keep_text=keep_text), special_ids=SPECIAL_IDS, tokenizers=tokenizers(sample_alpha=0.1)
    )
    examples = make_examples(60)
    for rows in ([5, 0, 3], [2], [], [6, 5, 4, 3, 2, 1, 0]):
        batch = pairs.batch(STEP, np.array(rows, np.int64), seed=1)
        assert batch.indices.tolist() == STEP[rows].tolist()
        assert texts_of(batch) == [(examples[i].source, examples[i].target) for i in STEP[rows]]


def test_the_seed_of_the_step_decides_the_segmentation_of_both_sides(tmp_path):
    pairs = PairDataset(
        prepared(tmp_path, 60, keep_text=True), special_ids=SPECIAL_IDS, tokenizers=tokenizers(sample_alpha=0.1)
    )
    every = np.arange(len(STEP))
    first, again, other = (pairs.batch(STEP, every, seed=seed) for seed in (1, 1, 2))
    for side in ("source", "target_out"):
        assert getattr(first, side).tolist() == getattr(again, side).tolist()
        assert getattr(first, side).tolist() != getattr(other, side).tolist()
    some = np.array([4, 1])
    part = pairs.batch(STEP, some, seed=1)
    for row, chosen in enumerate(some):
        assert part.target_out[row][part.target_mask[row]].tolist() == (
            first.target_out[chosen][first.target_mask[chosen]].tolist()
        )


class Longwinded(SentencePieceTokenizer):
    """Samples are far too long, save from the attempt `good` on."""

    def __init__(self, model: bytes, *, good: int) -> None:
        super().__init__(model)
        self.good = good
        self.seeds: list[int] = []

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        self.seeds.append(seed)
        return [[9] * 500 if len(self.seeds) <= self.good else [9] for _ in texts]


@pytest.mark.parametrize("good", [0, 2, 100])
def test_what_was_drawn_too_long_is_drawn_again_with_another_seed_and_at_last_segmented_plainly(tmp_path, good):
    shards = prepared(tmp_path, 60, keep_text=True)
    pieces = tokenizers(sample_alpha=0.1)
    target = Longwinded(pieces.source.model, good=good)
    pairs = PairDataset(shards, special_ids=SPECIAL_IDS, tokenizers=Tokenizers(pieces.source, target))
    batch = pairs.batch(STEP, np.arange(len(STEP)), seed=1)
    n_draws = min(good + 1, N_ATTEMPTS)
    assert len(set(target.seeds)) == len(target.seeds) == n_draws
    if good == 100:
        assert texts_of(batch) == [(e.source, e.target) for e in (make_examples(60)[i] for i in STEP)]
    else:
        assert (batch.target_out[batch.target_mask].reshape(-1, 2)[:, 0] == 9).all()


def test_a_side_that_cannot_sample_is_segmented_plainly(tmp_path):
    mixed = Tokenizers(tokenizers(sample_alpha=0.1).source, tokenizers().target)
    shards = prepare(make_examples(60), mixed, tmp_path, fingerprint="x", keep_text=True, n_workers=1)
    assert shards.target.planned_lengths.tolist() == shards.target.lengths.tolist()
    batch = PairDataset(shards, special_ids=SPECIAL_IDS, tokenizers=mixed).batch(STEP, np.arange(len(STEP)), seed=1)
    for row, i in enumerate(STEP):
        assert batch.target_out[row][batch.target_mask[row]].tolist()[:-1] == (
            mixed.target.encode(make_examples(60)[i].target)
        )


def test_pairs_that_cannot_be_are_refused(tmp_path):
    kept = prepared(tmp_path / "kept", 10, keep_text=True)
    ids = prepared(tmp_path / "ids", 10)
    text = prepare([], tokenizers().source, tmp_path / "text", fingerprint="x")
    for given, words in (
        (lambda: PairDataset([], special_ids=SPECIAL_IDS), "no corpus"),
        (lambda: PairDataset(kept, special_ids=SPECIAL_IDS), "tokenizers are needed"),
        (lambda: PairDataset(kept, special_ids=SPECIAL_IDS, tokenizers=tokenizers()), "other tokenizers"),
        (
            lambda: PairDataset([kept, ids], special_ids=SPECIAL_IDS, tokenizers=tokenizers(sample_alpha=0.1)),
            "different tokenizers or options",
        ),
        (lambda: PairDataset(text, special_ids=SPECIAL_IDS), "plain text"),
    ):
        with pytest.raises(UserError, match=words):
            given()
