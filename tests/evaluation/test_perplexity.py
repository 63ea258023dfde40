"""Perplexity is exp of the mean negative log-probability, whatever the batches."""

import math

import pytest
import torch
from torch import Tensor

from deterministic import fill
from heedful.errors import UserError
from heedful.evaluation.perplexity import Likelihood, likelihood
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
    """One token after the other, each by a forward pass over what comes before it."""
    source_ids = torch.tensor([[*tokenizers.source.encode(source), SPECIAL_IDS.eos_id]])
    written, total = [SPECIAL_IDS.bos_id], 0.0
    for wanted in [*tokenizers.target.encode(target), SPECIAL_IDS.eos_id]:
        logits: Tensor = model(source_ids, torch.tensor([written]))[0, -1]
        total += float(logits[wanted]) - math.log(sum(math.exp(float(logit)) for logit in logits))
        written.append(wanted)
    return total, len(written) - 1


def test_likelihood_is_that_by_hand(tokenizers: Tokenizers) -> None:
    model = make(tokenizers)
    found = likelihood(model, tokenizers, ENGLISH, GERMAN)
    expected = [by_hand(model, tokenizers, *pair) for pair in zip(ENGLISH, GERMAN, strict=True)]
    assert found.log_probs == pytest.approx([log_prob for log_prob, _ in expected], abs=1e-9)
    assert found.n_tokens == [n for _, n in expected]
    mean = sum(log_prob for log_prob, _ in expected) / sum(n for _, n in expected)
    assert found.loss == pytest.approx(-mean)
    assert found.perplexity == pytest.approx(math.exp(-mean))
    assert found.nats_per_sentence == pytest.approx(-sum(found.log_probs) / len(ENGLISH))


@pytest.mark.parametrize("batch_tokens", [1, 40, 100_000])
def test_batches_change_nothing(tokenizers: Tokenizers, batch_tokens: int) -> None:
    model = make(tokenizers, positions="rotary", residual="pre")
    alone = [likelihood(model, tokenizers, [s], [t]) for s, t in zip(ENGLISH, GERMAN, strict=True)]
    together = likelihood(model, tokenizers, ENGLISH, GERMAN, batch_tokens=batch_tokens)
    assert together.log_probs == pytest.approx([one.log_probs[0] for one in alone], abs=1e-9)
    assert together.n_tokens == [one.n_tokens[0] for one in alone]


def test_a_model_that_knows_nothing_is_undecided_among_all_words(tokenizers: Tokenizers) -> None:
    model = make(tokenizers)
    with torch.no_grad():
        model.target_embedding.table.weight.zero_()  # the output layer is tied to it: all logits are equal
    assert likelihood(model, tokenizers, ENGLISH, GERMAN).perplexity == pytest.approx(tokenizers.target.vocab_size)


def test_pairs_beyond_the_learned_positions_are_left_out_and_counted(tokenizers: Tokenizers) -> None:
    model = make(tokenizers, positions="learned", max_len=20)
    found = likelihood(model, tokenizers, ENGLISH, GERMAN)
    fit = [i for i, pair in enumerate(zip(ENGLISH, GERMAN, strict=True)) if max(map(len, pair)) < 19]
    alone = likelihood(model, tokenizers, [ENGLISH[i] for i in fit], [GERMAN[i] for i in fit])
    assert found.left_out == tuple(i for i in range(len(ENGLISH)) if i not in fit) == (1, 3, 5)
    assert [found.log_probs[i] for i in fit] == pytest.approx(alone.log_probs)
    assert found.perplexity == pytest.approx(alone.perplexity)
    assert found.nats_per_sentence == pytest.approx(alone.nats_per_sentence)
    (note,) = found.notes()
    assert "3 pairs, the first in line 2, are longer than the 20 positions" in note and "the other 3" in note
    assert alone.notes() == []


def test_pairs_beyond_what_a_model_was_made_for_are_scored_and_counted(tokenizers: Tokenizers) -> None:
    found = likelihood(make(tokenizers, max_len=20), tokenizers, ENGLISH, GERMAN)
    assert (found.left_out, found.beyond) == ((), (1, 3, 5))
    assert found.log_probs == pytest.approx(likelihood(make(tokenizers), tokenizers, ENGLISH, GERMAN).log_probs)
    assert (
        "3 pairs, the first in line 2, are longer than the 20 tokens that the model was trained for" in found.notes()[0]
    )


def test_no_pair_that_fits(tokenizers: Tokenizers) -> None:
    model = make(tokenizers, positions="learned", max_len=5)
    found = likelihood(model, tokenizers, ENGLISH[:2], GERMAN[:2])
    assert (found.n_scored, found.log_probs, found.n_tokens) == (0, [0.0, 0.0], [0, 0])


def test_lists_that_do_not_belong_together_are_refused(tokenizers: Tokenizers) -> None:
    with pytest.raises(UserError, match="6 sources, but 5 references"):
        likelihood(make(tokenizers), tokenizers, ENGLISH, GERMAN[:5])


def test_no_sentence_and_no_hope_are_numbers_too() -> None:
    assert Likelihood([], []).perplexity == 1.0
    assert math.isfinite(Likelihood([-1e9], [1]).perplexity)
