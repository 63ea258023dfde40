"""Datasets: sentence pairs with sampled segmentations, and packed rows for language models."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from heedful.data import Batch, Example, LmBatch, Loader, LoaderState, PackedLmDataset, Shards, prepare
from heedful.data.datasets import N_ATTEMPTS, PairDataset
from heedful.errors import UserError
from heedful.text import SPECIAL_IDS, SentencePieceTokenizer, Tokenizers
from packed_rows import pack_rows
from prepared_corpus import make_examples, prepared, tokenizers

# Sentence pairs

STEP = np.array([40, 3, 17, 8, 59, 20, 21], np.uint32)


def texts_of(batch: Batch) -> list[tuple[str, str]]:
    pieces = tokenizers(sample_alpha=0.1)
    sources, targets = (
        pieces.source.decode_batch(batch.source.tolist()),
        pieces.target.decode_batch(batch.target_out.tolist()),
    )
    return list(zip(sources, targets, strict=True))


@pytest.mark.parametrize("keep_text", [False, True])
def test_rows_have_the_requested_order(tmp_path, keep_text):
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


class LongSamples(SentencePieceTokenizer):
    """A tokenizer whose first `good` samples are far too long."""

    def __init__(self, model: bytes, *, good: int) -> None:
        super().__init__(model)
        self.good = good
        self.seeds: list[int] = []

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        self.seeds.append(seed)
        return [[9] * 500 if len(self.seeds) <= self.good else [9] for _ in texts]


@pytest.mark.parametrize("good", [0, 2, 100])
def test_samples_that_are_too_long_are_drawn_again_and_finally_replaced_by_the_best_segmentation(tmp_path, good):
    shards = prepared(tmp_path, 60, keep_text=True)
    pieces = tokenizers(sample_alpha=0.1)
    target = LongSamples(pieces.source.model, good=good)
    pairs = PairDataset(shards, special_ids=SPECIAL_IDS, tokenizers=Tokenizers(pieces.source, target))
    batch = pairs.batch(STEP, np.arange(len(STEP)), seed=1)
    n_samples = min(good + 1, N_ATTEMPTS)
    assert len(set(target.seeds)) == len(target.seeds) == n_samples
    if good == 100:
        assert texts_of(batch) == [(e.source, e.target) for e in (make_examples(60)[i] for i in STEP)]
    else:
        assert (batch.target_out[batch.target_mask].reshape(-1, 2)[:, 0] == 9).all()


def test_a_side_that_cannot_sample_gets_the_best_segmentation(tmp_path):
    mixed = Tokenizers(tokenizers(sample_alpha=0.1).source, tokenizers().target)
    shards = prepare(make_examples(60), mixed, tmp_path, fingerprint="x", keep_text=True, n_workers=1)
    assert shards.target.planned_lengths.tolist() == shards.target.lengths.tolist()
    batch = PairDataset(shards, special_ids=SPECIAL_IDS, tokenizers=mixed).batch(STEP, np.arange(len(STEP)), seed=1)
    for row, i in enumerate(STEP):
        assert batch.target_out[row][batch.target_mask[row]].tolist()[:-1] == (
            mixed.target.encode(make_examples(60)[i].target)
        )


def test_unsuitable_shards_are_refused(tmp_path):
    kept = prepared(tmp_path / "kept", 10, keep_text=True)
    ids = prepared(tmp_path / "ids", 10)
    text = prepare([], tokenizers().source, tmp_path / "text", fingerprint="x")
    for make, words in (
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
            make()


# Packed rows: each id is predicted once, documents stay apart

DOCUMENTS = [
    "a dog runs",
    "",
    "the cat sits on the house " * 9,
    "x",
    "a man and a woman walk under the big red house",
] * 4


def make_shards(folder, documents=DOCUMENTS) -> Shards:
    return prepare(map(Example, documents), tokenizers().source, folder, fingerprint=str(len(documents)), n_workers=1)


@pytest.mark.parametrize("row_len", [1, 2, 7, 16, 1000])
def test_rows_are_documents_with_special_tokens_packed_one_after_the_other(tmp_path, row_len):
    shards = make_shards(tmp_path)
    rows = PackedLmDataset(shards, row_len=row_len, special_ids=SPECIAL_IDS)
    documents = [ids.tolist() for ids in shards.source.ids(np.arange(len(shards)))]
    lengths = np.array([len(ids) + 1 for ids in documents])
    inputs = pack_rows([np.array([SPECIAL_IDS.bos_id, *ids]) for ids in documents], row_len)
    targets = pack_rows([np.array([*ids, SPECIAL_IDS.eos_id]) for ids in documents], row_len)
    assert rows.sizes == [len(inputs.ids)]
    every = np.arange(rows.sizes[0])
    batch = rows.batch(every, every, seed=0)
    assert batch.target_in.tolist() == inputs.ids.tolist()
    assert batch.target_out.tolist() == targets.ids.tolist()
    assert batch.documents.tolist() == inputs.documents.tolist()
    assert batch.positions.tolist() == inputs.positions.tolist()
    assert batch.target_mask.tolist() == inputs.mask.tolist()
    assert batch.n_target_tokens == lengths.sum()


def test_a_loader_of_rows_is_complete_and_resumes_exactly(tmp_path):
    rows = PackedLmDataset(
        [make_shards(tmp_path / "a"), make_shards(tmp_path / "b", DOCUMENTS[:7])], row_len=8, special_ids=SPECIAL_IDS
    )

    def loader(**options: object) -> Loader[LmBatch]:
        return Loader(rows, **{"batch_tokens": 40, "seed": 1, "epochs": 2} | options)

    whole = list(loader())
    assert all(batch.target_in.numel() <= 40 for batch in whole)
    counts = np.bincount([i for batch in whole for i in batch.indices.tolist()])
    assert set(counts) == {2} and len(counts) == sum(rows.sizes)
    assert sum(batch.n_target_tokens for batch in whole) == 2 * sum(
        len(one) + one.manifest.sides["source"].tokens for one in rows.corpora.shards
    )
    rest = list(loader(state=LoaderState(0, 3, 1), n_workers=2))
    assert [batch.indices.tolist() for batch in rest] == [batch.indices.tolist() for batch in whole[3:]]
    assert all(torch.equal(a.target_in, b.target_in) for a, b in zip(rest, whole[3:], strict=True))


def test_micro_batches_of_packed_rows(tmp_path):
    rows = PackedLmDataset(make_shards(tmp_path), row_len=8, special_ids=SPECIAL_IDS)
    batch = rows.batch(np.arange(3), np.arange(3), seed=0)
    parts = batch.split(5)
    assert [len(part) for part in parts] == [1, 1, 1, 0, 0]
    assert torch.equal(torch.cat([part.target_out for part in parts]), batch.target_out)
    assert batch.to("meta").positions.device.type == "meta"


def test_packed_rows_need_plain_text_as_ids(tmp_path):
    with pytest.raises(UserError, match="plain text prepared as ids"):
        PackedLmDataset(prepared(tmp_path, 5), row_len=8, special_ids=SPECIAL_IDS)
