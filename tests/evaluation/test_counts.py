"""Scores are sacreBLEU's: values, signatures, sentence by sentence."""

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from evaluation_outputs import references, spoiled
from heedful.errors import UserError
from heedful.evaluation.metrics import TOKENIZERS, bleu, chrf, count_bleu, count_chrf

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
@pytest.mark.parametrize("answers", SETS.values(), ids=SETS)
def test_bleu_is_that_of_sacrebleu(answers: list[list[str]], tokenize: str, lowercase: bool) -> None:
    for name, output in OUTPUTS.items():
        metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        expected = metric.corpus_score(output, answers)
        score = bleu(output, answers, tokenize=tokenize, lowercase=lowercase)
        assert score.value == pytest.approx(expected.score, abs=1e-9), name
        assert score.signature == str(metric.get_signature())


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("answers", SETS.values(), ids=SETS)
def test_chrf_is_that_of_sacrebleu(answers: list[list[str]], lowercase: bool) -> None:
    for name, output in OUTPUTS.items():
        metric = CHRF(lowercase=lowercase)
        expected = metric.corpus_score(output, answers)
        score = chrf(output, answers, lowercase=lowercase)
        assert score.value == pytest.approx(expected.score, abs=1e-9), name
        assert score.signature == str(metric.get_signature())


@pytest.mark.parametrize("answers", SETS.values(), ids=SETS)
def test_sentence_scores_are_those_of_sacrebleu(answers: list[list[str]]) -> None:
    for name, output in OUTPUTS.items():
        pairs = list(zip(output, zip(*answers, strict=True), strict=True))
        expected = [sacrebleu.sentence_bleu(line, list(right)).score for line, right in pairs]
        np.testing.assert_allclose(count_bleu(output, answers).of_sentences, expected, atol=1e-9, err_msg=name)
        expected = [sacrebleu.sentence_chrf(line, list(right)).score for line, right in pairs]
        np.testing.assert_allclose(count_chrf(output, answers).of_sentences, expected, atol=1e-9, err_msg=name)


def test_an_empty_line_beside_other_references_is_no_reference() -> None:
    """sacreBLEU would take it for one of length 0, which is nearest to a short output, and forgive its brevity."""
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


def test_a_sentence_whose_references_are_all_empty_has_an_empty_one() -> None:
    assert bleu([*LINES, ""], [[*LINES, ""], [*LINES, ""]]).value == pytest.approx(100.0)
    assert bleu([*LINES, "more words"], [[*LINES, ""]] * 2).value < 100.0


def test_every_tokenizer_is_one_of_sacrebleus() -> None:
    assert set(TOKENIZERS) <= set(BLEU.TOKENIZERS)


def test_a_tokenizer_that_is_not_there_is_explained() -> None:
    with pytest.raises(UserError, match=r"(?s)'moses'.*allowed: 13a, none"):
        bleu(["a"], [["a"]], tokenize="moses")


@pytest.mark.parametrize("tokenize", ["ja-mecab", "ko-mecab"])
def test_a_tokenizer_with_packages_of_its_own_names_them(tokenize: str) -> None:
    try:
        BLEU(tokenize=tokenize)
    except RuntimeError:
        with pytest.raises(UserError, match=rf"sacrebleu\[{tokenize[:2]}\]"):
            bleu(["a"], [["a"]], tokenize=tokenize)
    else:
        assert bleu(["a b c d"], [["a b c d"]], tokenize=tokenize).value > 0


def test_lists_of_unlike_length_are_refused() -> None:
    with pytest.raises(UserError, match="2 translations, but reference 2 has 3"):
        bleu(["a", "b"], [["a", "b"], ["a", "b", "c"]])
    with pytest.raises(UserError, match="no translation"):
        chrf([], [[]])
    with pytest.raises(UserError, match="no references"):
        chrf(["a"], [])
