"""The tables of the demo corpus: written byte for byte as the package has them, with the kinds and the probe."""

import lzma
from pathlib import Path

import pytest

from heedful.data.demo import FOLDER, PAIRS
from scripts.demo_corpus import __main__, tables
from scripts.demo_corpus.ambiguity import RENDER
from scripts.demo_corpus.corpus import demo_corpus
from scripts.demo_corpus.grammar import all_meanings
from scripts.demo_corpus.kinds import Kind, kind_of
from scripts.demo_corpus.probe import LARGE, probe_pairs


@pytest.mark.parametrize("pair", PAIRS)
def test_the_package_has_what_the_grammar_writes(pair: str, tmp_path: Path) -> None:
    assert __main__.main(["--pair", pair, "--output", str(tmp_path)]) == 0
    written, shipped = ((folder / f"{pair}.tsv.xz").read_bytes() for folder in (tmp_path, FOLDER))
    assert lzma.decompress(written) == lzma.decompress(shipped), "run make demo-corpus"
    assert written == shipped, "same text, but liblzma compressed it to other bytes"


def test_the_same_text_gives_the_same_bytes() -> None:
    text = "a\tb\n" * 1000
    assert tables.compress(text) == tables.compress(text)
    assert lzma.decompress(tables.compress(text)).decode() == text


def test_more_text_has_more_to_train_on_and_the_same_probe() -> None:
    small, large = demo_corpus("en", "fr"), demo_corpus("en", "fr", scale=2)
    assert len(large.train) > 1.5 * len(small.train)
    assert large.probe == small.probe
    held_out = {item.example.source for item in large.probe}
    assert not held_out & {example.source for example in (*large.train, *large.valid, *large.test, *large.combinations)}
    assert not held_out.isdisjoint(RENDER["en"](meaning) for meaning in all_meanings(2))  # so something was left out


def test_another_seed_holds_out_other_sentences(tmp_path: Path) -> None:
    assert __main__.main(["--pair", "zh-en", "--seed", "2", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "zh-en.tsv.xz").read_bytes() != (FOLDER / "zh-en.tsv.xz").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "2"], "Give an --output"),
        (["--seed", "2"], "Give an --output"),
        (["--scale", "0", "--output", "OUTPUT"], "expected 1 or more"),
        (["--pair", "fr-zh", "--output", "OUTPUT"], "invalid choice: 'fr-zh'"),
    ],
)
def test_a_mistake_writes_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tables_before = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    with pytest.raises(SystemExit) as caught:
        __main__.main([str(tmp_path) if argument == "OUTPUT" else argument for argument in arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert {path.name: path.read_bytes() for path in FOLDER.iterdir()} == tables_before


KINDS = {
    "Thank you.": Kind("", "", "", 0),
    "How are you?": Kind("", "", "how", 0),
    "How old are you?": Kind("", "", "how old", 0),
    "Do you speak English?": Kind("", "", "yes-no", 0),
    "The animal didn't cross the street because it was too tired.": Kind("past", "negative", "", 2),
    "It is one o'clock.": Kind("present", "affirmative", "", 1),
    "Where is the pharmacy?": Kind("present", "affirmative", "where", 1),
    "Rest, please.": Kind("imperative", "affirmative", "", 1),
    "Don't smoke.": Kind("imperative", "negative", "", 1),
    "Does your throat hurt?": Kind("present", "affirmative", "yes-no", 1),
    "This table isn't as old as that sofa.": Kind("present", "negative", "", 1),
    "How many bags do Paul's parents have?": Kind("present", "affirmative", "how many", 1),
    "It is cold in London.": Kind("present", "affirmative", "", 1),
    "It often snows in Beijing in winter.": Kind("present", "affirmative", "", 1),
    "It snowed in Rome last Sunday.": Kind("past", "affirmative", "", 1),
    "It is going to rain in Madrid tomorrow.": Kind("future", "affirmative", "", 1),
}


def test_the_kinds_of_known_sentences() -> None:
    kinds = {RENDER["en"](meaning): kind_of(meaning) for meaning in all_meanings()}
    assert {text: kinds.get(text) for text in KINDS} == KINDS


def test_no_antecedent_of_the_probe_is_in_doubt() -> None:
    """Not "the tiger didn't cross the street because it was too dangerous": "it" could be either."""
    for same_gender in (False, True):
        for pair in probe_pairs(lambda meaning: True, same_gender=same_gender):
            texts = [RENDER["en"](meaning) for meaning in pair.sentences]
            assert not any("bridge" in text and "too old" in text for text in texts)
            assert not any("tiger" in text and "too dangerous" in text for text in texts)
            assert not any(f"The {beast} " in text and "too big" in text for beast in LARGE for text in texts)
