"""Samples depend on the texts and the seed alone: they are equal after a resume, in any thread and process."""

import math
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import sentencepiece

from heedful.errors import UserError
from heedful.text import SentencePieceTokenizer, TokenizerConfig, learn_tokenizer
from heedful.text.subword_regularization import Vocabulary, bpe_dropout, unigram_sampling

Of = Callable[[TokenizerConfig], SentencePieceTokenizer]
KINDS = ("bpe", "unigram")


def sampler(tokenizer_of: Of, kind: str, alpha: float = 0.3) -> SentencePieceTokenizer:
    return tokenizer_of(TokenizerConfig(kind=kind, vocab_size=700, sample_alpha=alpha))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_depend_on_the_seed_alone(tokenizer_of: Of, lines: list[str], kind: str) -> None:
    tokenizer = sampler(tokenizer_of, kind)
    first = tokenizer.sample_batch(lines, seed=7)
    plain = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    plain.encode(lines[0], enable_sampling=True, nbest_size=-1, alpha=0.5)  # somebody else samples in this thread
    other = tokenizer.sample_batch(lines, seed=8)
    assert tokenizer.sample_batch(lines, seed=7) == first != other
    assert first != tokenizer.encode_batch(lines)
    assert tokenizer.sample_batch(lines, seed=-7) != first


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_disturb_each_other(tokenizer_of: Of, lines: list[str], kind: str) -> None:
    tokenizer = sampler(tokenizer_of, kind)
    expected = {seed: tokenizer.sample_batch(lines, seed=seed) for seed in range(4)}
    wrong: list[int] = []

    def repeat(seed: int) -> None:
        wrong.extend(seed for _ in range(20) if tokenizer.sample_batch(lines, seed=seed) != expected[seed])

    threads = [threading.Thread(target=repeat, args=(seed,)) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("kind", KINDS)
def test_another_process_samples_the_same(tokenizer_of: Of, lines: list[str], kind: str, tmp_path: Path) -> None:
    tokenizer = sampler(tokenizer_of, kind)
    tokenizer.save(tmp_path / "model")
    code = (
        "import sys; from heedful.text import load_tokenizer; "
        "print(load_tokenizer(sys.argv[1], probe=False).sample_batch(sys.argv[2:], seed=11))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model"), *lines]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert answer.strip() == str(tokenizer.sample_batch(lines, seed=11))


def test_samples_are_equal_on_every_machine() -> None:
    """If this changes, a run that samples cannot be resumed exactly by the next version."""
    lines = ["annoying annoying loudly", "annoying badly sadly", "annoying gladly", "annoying madly"] * 20
    bpe = learn_tokenizer(lines, TokenizerConfig(vocab_size=300, sample_alpha=0.5))
    assert [bpe.pieces(ids) for ids in bpe.sample_batch(["annoyingly"] * 2, seed=1)] == BPE_SAMPLES
    unigram = learn_tokenizer(lines, TokenizerConfig(kind="unigram", vocab_size=290, sample_alpha=0.1))
    assert [unigram.pieces(ids) for ids in unigram.sample_batch(["annoyingly"] * 3, seed=1)] == UNIGRAM_SAMPLES


BPE_SAMPLES = [["▁", *"annoyin", "gl", "y"], ["▁", *"annoyingly"]]
UNIGRAM_SAMPLES = [["▁annoying", "l", "y"], ["▁annoying", "l", "y"], ["▁", *"annoyingly"]]


@pytest.mark.parametrize("whitespace", ["prefix", "suffix"])
def test_sampling_without_randomness_is_encoding(lines: list[str], whitespace: str) -> None:
    texts = [*lines, "a▁b", "  two  spaces ", "日本 🐶\n", "x" * 1000]
    for kind, alpha in (("bpe", 1e-15), ("unigram", 1e5)):
        config = TokenizerConfig(kind=kind, whitespace=whitespace, vocab_size=700, sample_alpha=alpha)  # type: ignore[arg-type]
        tokenizer = learn_tokenizer(lines, config)
        assert tokenizer.sample_batch(texts, seed=1) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_distribution_of_sentencepiece(tokenizer_of: Of, kind: str) -> None:
    """SentencePiece's sampling has the right distribution, but cannot be seeded."""
    tokenizer = sampler(tokenizer_of, kind, alpha=0.2)
    texts = ["annoyingly"] * 5_000
    ours = Counter(map(tuple, tokenizer.sample_batch(texts, seed=5)))
    plain = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    theirs = Counter(map(tuple, plain.encode(texts, enable_sampling=True, nbest_size=-1, alpha=0.2)))
    assert len(ours) > 5
    assert sum(abs(ours[ids] - theirs[ids]) for ids in ours | theirs) / len(texts) < 0.15


def test_unigram_draws_each_segmentation_with_its_probability() -> None:
    scores = {"a": -3.0, "b": -2.5, "c": -3.5, "ab": -4.0, "bc": -4.5, "abc": -6.0}
    numbers = {piece: number for number, piece in enumerate(scores)}
    alpha = 0.7
    weights = {
        tuple(numbers[piece] for piece in pieces): math.exp(alpha * sum(scores[piece] for piece in pieces))
        for pieces in (("a", "b", "c"), ("ab", "c"), ("a", "bc"), ("abc",))
    }
    draw = unigram_sampling(Vocabulary(numbers, scores, lambda _: [9]), alpha=alpha)
    random = Random(1)
    drawn = Counter(tuple(draw("abc", random)) for _ in range(20_000))
    for ids, weight in weights.items():
        assert drawn[ids] / 20_000 == pytest.approx(weight / sum(weights.values()), abs=0.015)


def test_unigram_prefers_any_piece_to_unknown_characters() -> None:
    draw = unigram_sampling(Vocabulary({"ab": 0}, {"ab": -1.0}, lambda _: [9]), alpha=1.0)
    assert [draw("ab", Random(seed)) for seed in range(20)] == [[0]] * 20
    assert draw("aba", Random(1)) == [0, 9]


def test_bpe_dropout_drops_each_merge_with_its_probability() -> None:
    scores = {"a": -9.0, "b": -9.0, "c": -9.0, "ab": -1.0, "abc": -2.0}
    draw = bpe_dropout(Vocabulary({piece: n for n, piece in enumerate(scores)}, scores, lambda _: [9]), probability=0.3)
    random = Random(1)
    drawn = Counter(tuple(draw("abc", random)) for _ in range(20_000))
    expected = {(4,): 0.7 * 0.7, (3, 2): 0.7 * 0.3, (0, 1, 2): 0.3}  # abc, ab c, a b c
    for ids, probability in expected.items():
        assert drawn[ids] / 20_000 == pytest.approx(probability, abs=0.015)


def test_more_dropout_gives_more_pieces(tokenizer_of: Of, lines: list[str]) -> None:
    def length(alpha: float) -> int:
        return sum(map(len, sampler(tokenizer_of, "bpe", alpha).sample_batch(lines * 5, seed=1)))

    n_whole = 5 * sum(map(len, sampler(tokenizer_of, "bpe").encode_batch(lines)))
    assert n_whole < length(0.1) < length(0.5) < length(0.9)


def test_u2581_and_empty_texts_can_be_sampled(tokenizer_of: Of) -> None:
    for kind in KINDS:
        tokenizer = sampler(tokenizer_of, kind)
        texts = ["", "▁", "annoyingly▁annoyingly", ""]
        assert tokenizer.decode_batch(tokenizer.sample_batch(texts, seed=3)) == texts
        assert tokenizer.sample_batch([], seed=3) == []


@pytest.mark.parametrize("kind", ["word", "char"])
def test_word_and_char_cannot_sample(tokenizer_of: Of, kind: str) -> None:
    tokenizer = tokenizer_of(TokenizerConfig(kind=kind))  # type: ignore[arg-type]
    assert not tokenizer.can_sample
    with pytest.raises(UserError, match=f"'{kind}' cannot sample"):
        tokenizer.sample_batch(["a"], seed=1)
    with pytest.raises(UserError, match=f"'{kind}' cannot sample"):
        TokenizerConfig(kind=kind, sample_alpha=0.1)  # type: ignore[arg-type]


def test_sampling_needs_sample_alpha(tokenizer_of: Of) -> None:
    tokenizer = tokenizer_of(TokenizerConfig(vocab_size=700))
    assert not tokenizer.can_sample
    with pytest.raises(UserError, match="sample_alpha"):
        tokenizer.sample_batch(["a"], seed=1)
    with_alpha = tokenizer.with_config(TokenizerConfig(vocab_size=700, sample_alpha=0.5))
    assert with_alpha.can_sample
    assert with_alpha.encode("annoyingly") == tokenizer.encode("annoyingly")
    assert with_alpha.fingerprint != tokenizer.fingerprint
