"""The cache: a value that grows by columns and is reordered by rows."""

import pytest
import torch

from deterministic import fill, largest_difference, numbers
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.kv_cache import BLOCK, Cache, KeyValueStore
from heedful.nn.masks import causal_mask
from heedful.nn.positions import Rotary


@pytest.mark.parametrize("pieces", [[1] * 100, [5, 1, 1, 40, 2], [BLOCK], [BLOCK, 1], [BLOCK + 1, BLOCK]])
def test_what_is_appended_can_be_read(pieces):
    k, v = numbers(2, 3, sum(pieces), 4, name="k"), numbers(2, 3, sum(pieces), 4, name="v")
    store = KeyValueStore()
    end = 0
    for piece in pieces:
        keys, values = store.append(k[:, :, end : end + piece], v[:, :, end : end + piece])
        end += piece
        assert store.length == end
        assert torch.equal(keys, k[:, :, :end])
        assert torch.equal(values, v[:, :, :end])
        assert all(torch.equal(a, b) for a, b in zip(store.read(), (keys, values), strict=True))


def test_a_long_decode_copies_a_few_times_only():
    """Memory is taken in growing pieces: the copying stays proportional to the length."""
    store = KeyValueStore()
    column = numbers(1, 1, 1, 2)
    places = set()
    for _ in range(1000):
        keys, _ = store.append(column, column)
        places.add(keys.data_ptr())
    assert len(places) < 15


def test_reordering_keeps_drops_and_repeats_rows():
    cache = Cache(n_layers=2)
    for i, layer in enumerate(cache.layers):
        layer.past.append(numbers(3, 1, 2, 4, name=f"{i}k"), numbers(3, 1, 2, 4, name=f"{i}v"))
        layer.memory.append(numbers(3, 1, 5, 4, name=f"{i}mk"), numbers(3, 1, 5, 4, name=f"{i}mv"))
    before = [[x.clone() for x in (*layer.past.read(), *layer.memory.read())] for layer in cache.layers]
    rows = torch.tensor([2, 0, 2, 2])
    cache.reorder(rows)
    for layer, old in zip(cache.layers, before, strict=True):
        for found, wanted in zip((*layer.past.read(), *layer.memory.read()), old, strict=True):
            assert torch.equal(found, wanted[rows])
    # Rows that were copied are rows of their own from then on.
    keys, _ = cache.layers[0].past.append(numbers(4, 1, 1, 4, name="new"), numbers(4, 1, 1, 4, name="new"))
    assert torch.equal(keys[:, :, 2:], numbers(4, 1, 1, 4, name="new"))
    assert cache.length == 3
    Cache(n_layers=1).reorder(torch.tensor([0, 0]))  # before the first step there is nothing to reorder


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("rotary", [None, Rotary(d_head=3 * 2)])
def test_attention_with_a_cache_equals_attention_without(n_kv_heads, rotary):
    module = fill(MultiHeadAttention(d_model=24, n_heads=4, n_kv_heads=n_kv_heads, rotary=rotary))
    x = numbers(2, 11, 24)
    whole = module(x, mask=causal_mask(11), positions=torch.arange(11))
    store = KeyValueStore()
    start = 0
    for n_new in (1, 1, 4, 1, 4):
        end = start + n_new
        with torch.no_grad():
            step = module(
                x[:, start:end], mask=causal_mask(n_new, end), positions=torch.arange(start, end), cache=store
            )
        assert largest_difference(step, whole[:, start:end]) < 1e-13
        start = end


def test_the_keys_of_a_memory_are_computed_once():
    module = fill(MultiHeadAttention(d_model=8, n_heads=2))
    x, memory = numbers(2, 3, 8), numbers(2, 5, 8, name="memory")
    store = KeyValueStore()
    with torch.no_grad():
        first = module(x, memory, cache=store)
        again = module(x, torch.full_like(memory, torch.nan), cache=store)
    assert store.length == 5
    assert torch.equal(first, again)
    assert largest_difference(first, module(x, memory)) < 1e-14
