"""Embedding, its scale, the head, and the matrix that both share."""

import pytest
import torch

from deterministic import fill, largest_difference, numbers, whole_numbers
from heedful.nn.embeddings import TokenEmbedding, one_hot
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
    with pytest.raises(ValueError, match=r"cannot share \(10, 6\) with \(11, 6\)"):
        head.share(TokenEmbedding(vocab_size=10, d_model=6).table)
