"""Rows for language models: each id predicted once, documents apart, the same under resume."""

import itertools

import numpy as np
import pytest
import torch

from heedful.data.binarize import prepare
from heedful.data.collate import LmBatch
from heedful.data.corpus import Example
from heedful.data.datasets import PackedLmDataset
from heedful.data.loader import Loader, LoaderState
from heedful.data.shards import Shards
from heedful.data.splits import join_lines
from heedful.errors import UserError
from heedful.text import SPECIAL_IDS
from packed_rows import pack_rows
from prepared_corpus import prepared, tokenizers

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
def test_rows_are_the_packed_stream_of_marked_documents(tmp_path, row_len):
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


def test_a_loader_over_rows_is_exact_under_resume_and_complete(tmp_path):
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


def test_micro_batches_of_rows(tmp_path):
    rows = PackedLmDataset(make_shards(tmp_path), row_len=8, special_ids=SPECIAL_IDS)
    batch = rows.batch(np.arange(3), np.arange(3), seed=0)
    parts = batch.split(5)
    assert [len(part) for part in parts] == [1, 1, 1, 0, 0]
    assert torch.equal(torch.cat([part.target_out for part in parts]), batch.target_out)
    assert batch.to("meta").positions.device.type == "meta"


def test_lines_become_documents():
    lines = [Example(text) for text in ["", "a", "b", " ", "", "c", "", "d", "e"]]
    assert [document.source for document in join_lines(lines)] == ["a\nb", "c", "d\ne"]
    long = [Example("word " * 10) for _ in range(10)]
    assert [len(document.source) for document in join_lines(long, max_characters=120)] == [101] * 5
    endless = (Example("line") for _ in itertools.count())
    assert next(join_lines(endless, max_characters=50)).source.startswith("line\nline")


def test_rows_need_plain_text_as_ids(tmp_path):
    with pytest.raises(UserError, match="plain text prepared as ids"):
        PackedLmDataset(prepared(tmp_path, 5), row_len=8, special_ids=SPECIAL_IDS)
