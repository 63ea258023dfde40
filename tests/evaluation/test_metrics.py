"""Scores and signatures equal sacreBLEU's, for a corpus and for each sentence; notes on misleading scores."""

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from evaluation_outputs import references, spoiled
from heedful.errors import UserError
from heedful.evaluation.metrics import (
    TOKENIZERS,
    bleu,
    chrf,
    count_bleu,
    count_chrf,
    default_tokenizer,
    scoring_notes,
)

LINES = references(60)
OUTPUTS = {
    "good": spoiled(LINES, 0.1),
    "bad": spoiled(LINES, 0.8),
    "perfect": LINES,
    "empty": [""] * len(LINES),
    "some empty": ["" if i % 3 else line for i, line in enumerate(LINES)],
    "short": [line[:4] for line in LINES],
    "unlike": ["xyz"] * len(LINES),
    "one word": [line.split()[0] for line in LINES],
}
OTHERS = [line or "nothing" for line in spoiled(LINES, 0.3, seed=5)]
SETS = {"one reference": [LINES], "two references": [LINES, OTHERS]}


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenize", ["13a", "none", "intl", "zh", "char"])
@pytest.mark.parametrize("refs", SETS.values(), ids=SETS)
def test_bleu_equals_sacrebleus(refs: list[list[str]], tokenize: str, lowercase: bool) -> None:
    for name, output in OUTPUTS.items():
        metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        expected = metric.corpus_score(output, refs)
        score = bleu(output, refs, tokenize=tokenize, lowercase=lowercase)
        assert score.value == pytest.approx(expected.score, abs=1e-9), name
        assert score.signature == str(metric.get_signature())


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("refs", SETS.values(), ids=SETS)
def test_chrf_equals_sacrebleus(refs: list[list[str]], lowercase: bool) -> None:
    for name, output in OUTPUTS.items():
        metric = CHRF(lowercase=lowercase)
        expected = metric.corpus_score(output, refs)
        score = chrf(output, refs, lowercase=lowercase)
        assert score.value == pytest.approx(expected.score, abs=1e-9), name
        assert score.signature == str(metric.get_signature())


@pytest.mark.parametrize("refs", SETS.values(), ids=SETS)
def test_sentence_scores_equal_sacrebleus(refs: list[list[str]]) -> None:
    for name, output in OUTPUTS.items():
        pairs = list(zip(output, zip(*refs, strict=True), strict=True))
        expected = [sacrebleu.sentence_bleu(line, list(texts)).score for line, texts in pairs]
        np.testing.assert_allclose(count_bleu(output, refs).sentence_scores, expected, atol=1e-9, err_msg=name)
        expected = [sacrebleu.sentence_chrf(line, list(texts)).score for line, texts in pairs]
        np.testing.assert_allclose(count_chrf(output, refs).sentence_scores, expected, atol=1e-9, err_msg=name)


def test_an_empty_line_beside_other_refsis_no_reference() -> None:
    """sacreBLEU would take it for a reference of length 0, so that short outputs would get no brevity penalty."""
    for name, output in OUTPUTS.items():
        padded = [LINES, ["" if i % 2 else line for i, line in enumerate(OTHERS)]]
        missing = [LINES, [None if i % 2 else line for i, line in enumerate(OTHERS)]]
        metric = BLEU(force=True)
        assert bleu(output, padded).value == pytest.approx(metric.corpus_score(output, missing).score, abs=1e-9), name
        assert bleu(output, padded).signature == str(metric.get_signature())
        assert "nrefs:var" in chrf(output, padded).signature
        blank = [LINES, [" "] * len(LINES)]
        assert bleu(output, blank) == bleu(output, [LINES]) and chrf(output, blank) == chrf(output, [LINES])
    short = [line[: len(line) // 3] for line in LINES]
    assert BLEU(force=True).corpus_score(short, [LINES, [""] * len(LINES)]).score > 2 * bleu(short, [LINES]).value > 0


def test_if_all_refsof_a_sentence_are_empty_the_reference_is_empty() -> None:
    assert bleu([*LINES, ""], [[*LINES, ""], [*LINES, ""]]).value == pytest.approx(100.0)
    assert bleu([*LINES, "more words"], [[*LINES, ""]] * 2).value < 100.0


def test_sacrebleu_has_every_tokenizer() -> None:
    assert set(TOKENIZERS) <= set(BLEU.TOKENIZERS)


def test_an_unknown_tokenizer_is_rejected_with_the_allowed_names() -> None:
    with pytest.raises(UserError, match=r"(?s)'moses'.*allowed: 13a, none"):
        bleu(["a"], [["a"]], tokenize="moses")


@pytest.mark.parametrize("tokenize", ["ja-mecab", "ko-mecab"])
def test_a_tokenizer_without_its_packages_names_them(tokenize: str) -> None:
    try:
        BLEU(tokenize=tokenize)
    except RuntimeError:
        with pytest.raises(UserError, match=rf"sacrebleu\[{tokenize[:2]}\]"):
            bleu(["a"], [["a"]], tokenize=tokenize)
    else:
        assert bleu(["a b c d"], [["a b c d"]], tokenize=tokenize).value > 0


def test_lists_of_different_lengths_are_rejected() -> None:
    with pytest.raises(UserError, match="2 translations, but reference 2 has 3"):
        bleu(["a", "b"], [["a", "b"], ["a", "b", "c"]])
    with pytest.raises(UserError, match="no translations"):
        chrf([], [[]])
    with pytest.raises(UserError, match="no references"):
        chrf(["a"], [])


@pytest.mark.parametrize(
    ("line", "tokenize"),
    [
        ("一只狗在街上奔跑。", "zh"),
        ("犬が通りを走っている。", "ja-mecab"),
        ("สุนัขวิ่งอยู่บนถนน", "char"),
    ],
)
def test_a_note_names_the_tokenizer_for_a_script_without_spaces(line: str, tokenize: str) -> None:
    (note,) = scoring_notes(["x"] * 3, [line, "", line], "13a")
    assert f"--tokenize {tokenize}" in note
    assert list(scoring_notes(["x"] * 3, [line, "", line], tokenize)) == []


@pytest.mark.parametrize(
    ("line", "tokenize"),
    [
        ("Ein Hund rennt.", "13a"),
        ("一只狗在街上奔跑。", "zh"),
        ("犬が通りを走っている。", "char"),
        ("สุนัขวิ่งอยู่บนถนน", "char"),
        ("…", "13a"),
    ],
)
def test_the_default_tokenizer_depends_on_the_script(line: str, tokenize: str) -> None:
    assert default_tokenizer([line, "", line]) == tokenize


def test_a_note_reports_tokenised_text() -> None:
    (note,) = scoring_notes(["A dog ."] * 100, ["A dog ."] * 100, "13a")
    assert "--tokenize none" in note
    assert list(scoring_notes(["A dog ."] * 100, ["A dog ."] * 100, "none")) == []
    assert list(scoring_notes(["A dog."] * 100, ["Ein Hund."] * 100, "13a")) == []
