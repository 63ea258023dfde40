"""Special tokens, padding, masks, and the split into micro-batches."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import Batch, collate_pairs, pad_sources
from heedful.text import SPECIAL_IDS

ids = st.lists(st.integers(4, 99), max_size=12)
rows = st.lists(st.tuples(ids, ids), max_size=12)


def collated(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    arrays = [(np.array(source, np.uint16), np.array(target, np.uint16)) for source, target in pairs]
    indices = np.arange(len(pairs), dtype=np.uint32) + 100
    return collate_pairs(
        [source for source, _ in arrays], [target for _, target in arrays], indices, special_ids=SPECIAL_IDS
    )


def test_special_tokens_and_padding():
    batch = collated([([5, 6], [7]), ([8], [9, 10, 11])])
    assert batch.source.tolist() == [[5, 6, SPECIAL_IDS.eos_id], [8, SPECIAL_IDS.eos_id, SPECIAL_IDS.pad_id]]
    assert batch.source_mask.tolist() == [[True, True, True], [True, True, False]]
    assert batch.target_in.tolist() == [
        [SPECIAL_IDS.bos_id, 7, SPECIAL_IDS.pad_id, SPECIAL_IDS.pad_id],
        [SPECIAL_IDS.bos_id, 9, 10, 11],
    ]
    assert batch.target_out.tolist() == [
        [7, SPECIAL_IDS.eos_id, SPECIAL_IDS.pad_id, SPECIAL_IDS.pad_id],
        [9, 10, 11, SPECIAL_IDS.eos_id],
    ]
    assert batch.target_mask.tolist() == [[True, True, False, False], [True, True, True, True]]
    assert batch.indices.tolist() == [100, 101]
    assert (batch.n_source_tokens, batch.n_target_tokens) == (5, 6)
    assert {tensor.dtype for tensor in (batch.source, batch.target_in, batch.target_out, batch.indices)} == {
        torch.int64
    }


@given(rows)
def test_the_masks_select_the_original_rows(pairs):
    batch = collated(pairs)
    assert len(batch) == len(pairs)
    for row, (source, target) in enumerate(pairs):
        assert batch.source[row][batch.source_mask[row]].tolist() == [*source, SPECIAL_IDS.eos_id]
        assert batch.target_in[row][batch.target_mask[row]].tolist() == [SPECIAL_IDS.bos_id, *target]
        assert batch.target_out[row][batch.target_mask[row]].tolist() == [*target, SPECIAL_IDS.eos_id]
    assert (batch.source[~batch.source_mask] == SPECIAL_IDS.pad_id).all()
    assert (batch.target_out[~batch.target_mask] == SPECIAL_IDS.pad_id).all()
    assert (batch.target_in[~batch.target_mask] == SPECIAL_IDS.pad_id).all()


def test_an_empty_batch_has_width_1_and_no_tokens():
    batch = collated([])
    assert batch.source.shape == batch.target_in.shape == batch.target_mask.shape == (0, 1)
    assert (len(batch), batch.n_source_tokens, batch.n_target_tokens) == (0, 0, 0)


def test_sources_are_padded_alike_in_translation_and_training():
    source, mask = pad_sources([[5, 6], []], special_ids=SPECIAL_IDS)
    batch = collated([([5, 6], []), ([], [])])
    assert torch.equal(source, batch.source) and torch.equal(mask, batch.source_mask)


@given(rows, st.integers(1, 6))
def test_micro_batches_have_the_same_rows_without_needless_padding(pairs, n_parts):
    batch = collated(pairs)
    parts = batch.split(n_parts)
    assert len(parts) == n_parts
    assert sorted(index for part in parts for index in part.indices.tolist()) == batch.indices.tolist()
    assert sum(part.n_target_tokens for part in parts) == batch.n_target_tokens
    for part in parts:
        chosen = [pairs[index - 100] for index in part.indices.tolist()]
        again = collate_pairs(
            [np.array(s) for s, _ in chosen],
            [np.array(t) for _, t in chosen],
            part.indices.numpy(),
            special_ids=SPECIAL_IDS,
        )
        for name in ("source", "source_mask", "target_in", "target_out", "target_mask", "indices"):
            assert torch.equal(getattr(part, name), getattr(again, name)), name


def test_to_moves_every_tensor():
    batch = collated([([5], [6])]).to("meta")
    assert batch.source.device.type == batch.target_mask.device.type == batch.indices.device.type == "meta"
