"""Documents in rows: nothing is lost, nothing overlaps, documents stay apart."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.packing import Pieces, fill_rows, pack_best_fit, pack_stream
from heedful.text import SPECIAL

PACKERS = [pack_stream, pack_best_fit]
documents = st.lists(st.integers(0, 30), max_size=40)


def make_documents(lengths: list[int]) -> list[np.ndarray]:
    ends = np.cumsum([0, *lengths])
    return [np.arange(begin, end) + 10 for begin, end in itertools.pairwise(ends)]


def restored(ids: np.ndarray, pieces: Pieces, lengths: list[int]) -> list[np.ndarray]:
    found = [np.full(length, -1) for length in lengths]
    for i in range(len(pieces)):
        begin, column, length = pieces.start[i], pieces.column[i], pieces.length[i]
        found[pieces.document[i]][begin : begin + length] = ids[pieces.row[i], column : column + length]
    return found


@pytest.mark.parametrize("pack", PACKERS)
@given(lengths=documents, row_len=st.integers(1, 20))
def test_every_id_stands_in_exactly_one_place(pack, lengths, row_len):
    texts = make_documents(lengths)
    pieces = pack(np.array(lengths, np.uint32), row_len)
    packed = fill_rows(texts, pieces, row_len=row_len)
    assert sorted(packed.ids[packed.mask].tolist()) == sorted(int(number) for text in texts for number in text)
    assert (packed.ids[~packed.mask] == SPECIAL.pad).all()
    for text, again in zip(texts, restored(packed.ids, pieces, lengths), strict=True):
        assert text.tolist() == again.tolist()
    for row, document in zip(packed.ids, packed.documents, strict=True):
        for number, owner in zip(row, document, strict=True):
            assert owner == -1 or number in texts[owner]


@pytest.mark.parametrize("pack", PACKERS)
@given(lengths=documents, row_len=st.integers(1, 20))
def test_positions_begin_again_with_every_piece(pack, lengths, row_len):
    packed = fill_rows(make_documents(lengths), pack(np.array(lengths), row_len), row_len=row_len)
    for row in range(len(packed.ids)):
        for column in range(row_len):
            if packed.documents[row, column] < 0:
                continue
            goes_on = column and packed.documents[row, column] == packed.documents[row, column - 1]
            assert packed.positions[row, column] == (packed.positions[row, column - 1] + 1 if goes_on else 0)


@given(documents, st.integers(1, 20))
def test_the_rows_of_a_stream_are_the_documents_one_after_the_other(lengths, row_len):
    texts = make_documents(lengths)
    packed = fill_rows(texts, pack_stream(np.array(lengths, np.int64), row_len), row_len=row_len)
    assert packed.ids[packed.mask].tolist() == [int(number) for text in texts for number in text]
    assert packed.mask.ravel()[: sum(lengths)].all()  # padding only at the very end
    assert len(packed.ids) == -(-sum(lengths) // row_len)


@given(documents, st.integers(1, 20))
def test_best_fit_cuts_only_what_is_longer_than_a_row(lengths, row_len):
    pieces = pack_best_fit(np.array(lengths, np.int64), row_len)
    counts = np.bincount(pieces.document, minlength=len(lengths))
    assert counts.tolist() == [-(-length // row_len) for length in lengths]


def test_best_fit_fills_rows_that_first_come_would_leave_open():
    pieces = pack_best_fit(np.array([6, 5, 5, 4]), 10)
    assert pieces.n_rows == 2
    assert pack_best_fit(np.array([3] * 30 + [7] * 30), 10).n_rows == 30


def test_no_documents_no_rows():
    for pack in PACKERS:
        pieces = pack(np.zeros(0, np.int64), 8)
        assert (len(pieces), pieces.n_rows) == (0, 0)
        assert fill_rows([], pieces, row_len=8).ids.shape == (0, 8)
