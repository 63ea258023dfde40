"""Images cut into patches and put together again."""

import torch

from deterministic import largest_difference, numbers
from heedful.nn.embeddings import ClassToken, MaskToken, PatchEmbedding, from_patches, reordered, to_patches


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


def test_no_picture_has_no_patches() -> None:
    """A step that is cut into more parts than it has pictures has empty ones."""
    assert to_patches(torch.zeros(0, 3, 8, 8), 4).shape == (0, 4, 48)
