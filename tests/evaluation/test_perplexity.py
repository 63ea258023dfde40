"""Perplexity is exp of the mean negative log-probability of a token, and does not depend on the batches."""

import math

import pytest
import torch
from torch import Tensor

from deterministic import fill
from heedful.errors import UserError
from heedful.evaluation import Likelihood, likelihood
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS, TokenizerConfig, Tokenizers, learn_tokenizers

ENGLISH = ["a dog runs", "two men sit on a bench", "", "the animal did not cross the street", "a", "men run"]
GERMAN = ["ein Hund rennt", "zwei Männer sitzen auf einer Bank", "nichts", "", "ein", "das Tier überquerte die Straße"]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    config = TokenizerConfig(kind="char", vocab_size=60, byte_fallback=False)
    return learn_tokenizers([line for line in ENGLISH if line], [line for line in GERMAN if line], config)


def make(tokenizers: Tokenizers, **changes: object) -> Seq2Seq:
    size = tokenizers.source.vocab_size
    settings = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 12, **changes}
    return fill(Seq2Seq(Seq2SeqConfig(size, size, **settings)))


@torch.no_grad()
def by_hand(model: Seq2Seq, tokenizers: Tokenizers, source: str, target: str) -> tuple[float, int]:
    """Return the log-probability and the number of tokens, with one forward pass for each token."""
    source_ids = torch.tensor([[*tokenizers.source.encode(source), SPECIAL_IDS.eos_id]])
    prefix, total = [SPECIAL_IDS.bos_id], 0.0
    for token in [*tokenizers.target.encode(target), SPECIAL_IDS.eos_id]:
        logits: Tensor = model(source_ids, torch.tensor([prefix]))[0, -1]
        total += float(logits[token]) - math.log(sum(math.exp(float(logit)) for logit in logits))
        prefix.append(token)
    return total, len(prefix) - 1


def test_likelihood_equals_one_by_hand(tokenizers: Tokenizers) -> None:
    model = make(tokenizers)
    result = likelihood(model, tokenizers, ENGLISH, GERMAN)
    expected = [by_hand(model, tokenizers, *pair) for pair in zip(ENGLISH, GERMAN, strict=True)]
    assert result.log_probs == pytest.approx([log_prob for log_prob, _ in expected], abs=1e-9)
    assert result.n_tokens == [n for _, n in expected]
    mean = sum(log_prob for log_prob, _ in expected) / sum(n for _, n in expected)
    assert result.loss == pytest.approx(-mean)
    assert result.perplexity == pytest.approx(math.exp(-mean))
    assert result.nats_per_sentence == pytest.approx(-sum(result.log_probs) / len(ENGLISH))


@pytest.mark.parametrize("batch_tokens", [1, 40, 100_000])
def test_batches_change_nothing(tokenizers: Tokenizers, batch_tokens: int) -> None:
    model = make(tokenizers, positions="rotary", residual="pre")
    alone = [likelihood(model, tokenizers, [s], [t]) for s, t in zip(ENGLISH, GERMAN, strict=True)]
    together = likelihood(model, tokenizers, ENGLISH, GERMAN, batch_tokens=batch_tokens)
    assert together.log_probs == pytest.approx([one.log_probs[0] for one in alone], abs=1e-9)
    assert together.n_tokens == [one.n_tokens[0] for one in alone]


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary_size(tokenizers: Tokenizers) -> None:
    model = make(tokenizers)
    with torch.no_grad():
        model.target_embedding.table.weight.zero_()  # the output layer is tied to it: all logits are equal
    assert likelihood(model, tokenizers, ENGLISH, GERMAN).perplexity == pytest.approx(tokenizers.target.vocab_size)


def test_pairs_beyond_the_learned_positions_are_left_out_and_reported(tokenizers: Tokenizers) -> None:
    model = make(tokenizers, positions="learned", max_len=20)
    result = likelihood(model, tokenizers, ENGLISH, GERMAN)
    fit = [i for i, pair in enumerate(zip(ENGLISH, GERMAN, strict=True)) if max(map(len, pair)) < 19]
    alone = likelihood(model, tokenizers, [ENGLISH[i] for i in fit], [GERMAN[i] for i in fit])
    assert result.left_out == tuple(i for i in range(len(ENGLISH)) if i not in fit) == (1, 3, 5)
    assert [result.log_probs[i] for i in fit] == pytest.approx(alone.log_probs)
    assert result.perplexity == pytest.approx(alone.perplexity)
    assert result.nats_per_sentence == pytest.approx(alone.nats_per_sentence)
    (note,) = result.notes()
    assert "3 pairs, the first in line 2, are longer than the 20 positions" in note and "the other 3" in note
    assert alone.notes() == []


def test_pairs_beyond_max_len_are_scored_and_reported(tokenizers: Tokenizers) -> None:
    result = likelihood(make(tokenizers, max_len=20), tokenizers, ENGLISH, GERMAN)
    assert (result.left_out, result.beyond_max_len) == ((), (1, 3, 5))
    assert result.log_probs == pytest.approx(likelihood(make(tokenizers), tokenizers, ENGLISH, GERMAN).log_probs)
    assert (
        "3 pairs, the first in line 2, are longer than the 20 tokens that the model was trained for"
        in result.notes()[0]
    )


def test_all_pairs_may_be_too_long(tokenizers: Tokenizers) -> None:
    model = make(tokenizers, positions="learned", max_len=5)
    result = likelihood(model, tokenizers, ENGLISH[:2], GERMAN[:2])
    assert (result.n_scored, result.log_probs, result.n_tokens) == (0, [0.0, 0.0], [0, 0])


def test_different_numbers_of_sources_and_references_are_rejected(tokenizers: Tokenizers) -> None:
    with pytest.raises(UserError, match="6 sources, but 5 references"):
        likelihood(make(tokenizers), tokenizers, ENGLISH, GERMAN[:5])


def test_perplexity_is_finite_without_sentences_and_for_impossible_references() -> None:
    assert Likelihood([], []).perplexity == 1.0
    assert math.isfinite(Likelihood([-1e9], [1]).perplexity)
