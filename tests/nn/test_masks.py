"""Masks: True = may attend, pair by pair."""

import pytest
import torch

from heedful.nn.masks import as_additive, causal_mask, combine, document_mask, padding_mask


def test_padding_hides_keys_from_every_query():
    real = torch.tensor([[True, True, False], [True, False, False]])
    mask = padding_mask(real)
    assert mask.shape == (2, 1, 1, 3)
    assert mask.expand(2, 4, 5, 3)[1, 3, 4].tolist() == [True, False, False]


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (4, 4), (1, 5), (3, 7), (7, 7)])
def test_the_causal_mask_allows_a_query_itself_and_earlier_keys(n_queries, n_keys):
    mask = causal_mask(n_queries, n_keys)
    assert mask.shape == (n_queries, n_keys)
    for t in range(n_queries):
        own_place = n_keys - n_queries + t  # the queries are the last of the keys
        assert mask[t].tolist() == [s <= own_place for s in range(n_keys)]
    assert torch.equal(causal_mask(n_queries), causal_mask(n_queries, n_queries))


def test_the_document_mask_hides_other_documents():
    mask = document_mask(torch.tensor([[0, 0, 1], [2, 3, 3]]))
    assert mask.shape == (2, 1, 3, 3)
    assert mask[0, 0].tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    assert mask[1, 0].tolist() == [[True, False, False], [False, True, True], [False, True, True]]


def test_combining_allows_what_all_allow():
    padding = padding_mask(torch.tensor([[True, True, False]]))
    both = combine(None, causal_mask(3), padding)
    assert both is not None
    assert both[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, False]]
    assert combine() is None
    assert combine(None, None) is None
    assert combine(None, padding) is padding


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_an_additive_mask_is_zero_or_minus_infinity(dtype):
    added = as_additive(torch.tensor([True, False]), dtype)
    assert added.dtype == dtype
    assert added.tolist() == [0.0, float("-inf")]
