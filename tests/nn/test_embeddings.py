"""Token embeddings with their scale and the output layer that shares them; patches of images."""

import pytest
import torch

from deterministic import fill, largest_difference, numbers, whole_numbers
from heedful.nn.embeddings import (
    ClassToken,
    MaskToken,
    PatchEmbedding,
    TokenEmbedding,
    from_patches,
    one_hot,
    reordered,
    to_patches,
)
from heedful.nn.heads import VocabularyHead


def test_one_hot_times_W_is_the_embedding_exactly():
    embedding = fill(TokenEmbedding(vocab_size=11, d_model=6, scale=1.0))
    ids = whole_numbers(3, 5, below=11)
    w = embedding.table.weight
    assert torch.equal(one_hot(ids, 11, like=w) @ w, embedding(ids))
    assert one_hot(ids, 11, like=w).dtype == w.dtype


def test_embeddings_are_multiplied_by_the_root_of_d_model():
    embedding = fill(TokenEmbedding(vocab_size=11, d_model=16))
    ids = whole_numbers(3, 5, below=11)
    assert torch.equal(embedding(ids), embedding.table.weight[ids] * 4)


def test_the_head_is_a_dot_product_with_each_word():
    head = fill(VocabularyHead(d_model=6, vocab_size=11))
    x = numbers(2, 3, 6)
    assert largest_difference(head(x)[1, 2, 7], x[1, 2] @ head.linear.weight[7]) < 1e-14


def test_a_shared_matrix_is_one_matrix():
    embedding = fill(TokenEmbedding(vocab_size=11, d_model=6))
    head = fill(VocabularyHead(d_model=6, vocab_size=11))
    head.share(embedding.table)
    assert head.linear.weight is embedding.table.weight
    loss = head(embedding(torch.tensor([[3]]))).square().sum()
    loss.backward()
    assert (embedding.table.weight.grad != 0).all()  # row 3 as input, every row as output


def test_only_equal_shapes_can_be_shared():
    head = VocabularyHead(d_model=6, vocab_size=11)
    with pytest.raises(ValueError, match=r"shape \(10, 6\) with a layer of \(11, 6\)"):
        head.share(TokenEmbedding(vocab_size=10, d_model=6).table)


# Patches


def test_patches_come_back_as_the_image() -> None:
    image = numbers(2, 3, 12, 12)
    patches = to_patches(image, 4)
    assert tuple(patches.shape) == (2, 9, 48)
    assert torch.equal(from_patches(patches, 4, n_channels=3), image)


def test_patches_go_row_by_row() -> None:
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert to_patches(image, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]


def test_the_embedding_is_one_matrix_for_every_patch() -> None:
    embedding = PatchEmbedding(n_channels=3, patch_size=4, d_model=5).double()
    image = numbers(2, 3, 12, 12)
    weight, bias = embedding.projection.weight.flatten(1), embedding.projection.bias
    assert largest_difference(embedding(image), to_patches(image, 4) @ weight.T + bias) < 1e-12


def test_the_class_token_comes_first_and_the_mask_where_it_is_asked() -> None:
    first, mask = ClassToken(d_model=5).double(), MaskToken(d_model=5).double()
    torch.nn.init.constant_(first.vector, 3.0)
    x = numbers(2, 4, 5)
    assert torch.equal(first(x)[:, 1:], x)
    assert (first(x)[:, 0] == 3.0).all()
    hidden = torch.tensor([[True, False, False, True], [False] * 4])
    assert torch.equal(mask(x, hidden)[~hidden], x[~hidden])
    assert not mask(x, hidden)[hidden].any()


def test_row_i_is_what_was_row_order_i() -> None:
    x, order = numbers(2, 3, 4), torch.tensor([[2, 0, 1], [0, 2, 1]])
    found = reordered(x, order)
    assert all(torch.equal(found[b, i], x[b, order[b, i]]) for b in range(2) for i in range(3))


def test_no_image_has_no_patches() -> None:
    """A step that is cut into more parts than it has images has empty parts."""
    assert to_patches(torch.zeros(0, 3, 8, 8), 4).shape == (0, 4, 48)
