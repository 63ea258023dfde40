"""The packaged demo corpus: its splits, its accepted translations, the kinds of its sentences, and the probe."""

import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from heedful.data import demo
from heedful.data.demo import PAIRS, SPLITS, DemoCorpus, DemoExample
from heedful.errors import UserError

each_pair = pytest.mark.parametrize("pair", PAIRS)


@cache
def corpus_of(pair: str) -> DemoCorpus:
    return demo.demo_corpus(*pair.split("-"))


def everything(corpus: DemoCorpus) -> list[DemoExample]:
    return [example for split in SPLITS for example in getattr(corpus, split)]


def probe_pairs(pair: str, kind: str) -> list[tuple[DemoExample, DemoExample]]:
    examples = [example for example in corpus_of(pair).probe if example.probe == kind]
    pairs = list(zip(examples[::2], examples[1::2], strict=True))
    assert all(first.pair == second.pair for first, second in pairs)
    assert len({first.pair for first, _ in pairs}) == len(pairs)
    return pairs


def words(text: str) -> list[str]:
    """The words of a sentence; of a Chinese one, its characters."""
    return re.findall(r"[一-鿿]|[a-zà-ÿœ-]+", text.lower())


@each_pair
def test_each_split_has_its_size(pair: str) -> None:
    corpus = corpus_of(pair)
    assert len(corpus.train) > 32_000
    assert (len(corpus.valid), len(corpus.test)) == (500, 1000)
    assert len(corpus.combinations) > 700


@each_pair
def test_no_source_is_in_two_splits(pair: str) -> None:
    counts = Counter(example.source for example in everything(corpus_of(pair)))
    assert [source for source, count in counts.items() if count > 1] == []


@each_pair
def test_no_held_out_pair_is_in_train(pair: str) -> None:
    corpus = corpus_of(pair)
    train = {(example.source, example.target) for example in corpus.train}
    held_out = [*corpus.valid, *corpus.test, *corpus.combinations, *corpus.probe]
    assert len(held_out) > 3000
    assert not train & {(example.source, right) for example in held_out for right in example.accepted}


@each_pair
def test_accepted_translations_begin_with_the_target_and_are_all_different(pair: str) -> None:
    for example in everything(corpus_of(pair)):
        assert example.accepted[0] == example.target
        assert len(set(example.accepted)) == len(example.accepted), example
        assert all(right.strip() == right != "" for right in example.accepted), example


def test_english_you_may_be_tu_or_vous() -> None:
    asked = [example for example in corpus_of("en-fr").train if re.match(r"Are you \w+\?", example.source)]
    assert len(asked) > 5
    for example in asked:
        assert {right.split()[2] for right in example.accepted} == {"tu", "vous"}, example


@each_pair
def test_the_kind_of_a_sentence_is_one_of_a_few(pair: str) -> None:
    examples = everything(corpus_of(pair))
    assert {example.tense for example in examples} == {
        *("", "present", "progressive", "past", "future", "imperative"),
    }
    assert {example.polarity for example in examples} == {"", "affirmative", "negative", "never"}
    assert {example.clauses for example in examples} == {0, 1, 2}
    assert {"", "yes-no", "where", "what", "when", "who", "why", "how many"} <= {e.question for e in examples}


@pytest.mark.parametrize("pair", ["en-fr", "en-zh"])
def test_the_kind_agrees_with_the_words(pair: str) -> None:
    for example in everything(corpus_of(pair)):
        assert bool(example.question) == example.source.endswith("?"), example
        if example.clauses:
            assert (example.polarity == "never") == (" never " in example.source), example
            assert example.clauses == 2 or "because" not in example.source, example
        if example.tense == "future":
            assert "going to" in example.source, example


def test_the_kinds_of_known_sentences() -> None:
    kinds = {
        example.source: (example.tense, example.polarity, example.question, example.clauses)
        for example in everything(corpus_of("en-fr"))
    }
    assert kinds["The animal didn't cross the street because it was too tired."] == ("past", "negative", "", 2)
    assert kinds["Thank you."] == ("", "", "", 0)
    assert kinds["How old are you?"] == ("", "", "how old", 0)


@each_pair
def test_the_probe_has_enough_pairs_of_both_kinds(pair: str) -> None:
    assert len(probe_pairs(pair, "antecedent")) >= 200
    assert len(probe_pairs(pair, "roles")) >= 200


@each_pair
def test_antecedent_pairs_differ_in_one_word(pair: str) -> None:
    for first, second in probe_pairs(pair, "antecedent"):
        if pair.startswith("zh"):
            pattern = r"(.*，因为它太).{1,2}了。"
            assert re.fullmatch(pattern, first.source)[1] == re.fullmatch(pattern, second.source)[1]
        else:
            different = [one for one in zip(words(first.source), words(second.source), strict=True) if len({*one}) > 1]
            assert len(different) == 1, (first.source, second.source)
        assert first.antecedent != second.antecedent
        for example in (first, second):
            assert example.antecedent in example.source
            assert all(example.pronoun in right for right in example.accepted), example


def test_french_shows_the_antecedent_of_an_english_pronoun() -> None:
    pairs = probe_pairs("en-fr", "antecedent")
    assert {frozenset((first.pronoun, second.pronoun)) for first, second in pairs} == {frozenset(("il", "elle"))}
    assert sum(first.pronoun == "elle" for first, _ in pairs) >= 20  # not every animal is "il"
    for example in (example for pair in pairs for example in pair):
        assert re.search(rf"\bqu'{example.pronoun}\b", example.target), example


@each_pair
def test_role_pairs_have_the_same_words_in_another_order(pair: str) -> None:
    for first, second in probe_pairs(pair, "roles"):
        assert first.source != second.source
        assert sorted(words(first.source)) == sorted(words(second.source))
        assert not {*first.accepted} & {*second.accepted}
        assert (first.antecedent, first.pronoun) == ("", "")


@each_pair
def test_every_word_of_the_probe_was_seen_in_training(pair: str) -> None:
    corpus = corpus_of(pair)
    known = {word for example in corpus.train for word in words(example.source)}
    assert {word for example in corpus.probe for word in words(example.source)} <= known


@pytest.mark.parametrize("languages", [("en", "de"), ("fr", "fr"), ("fr", "zh"), ("zh", "fr")])
def test_a_direction_without_a_table_is_refused(languages: tuple[str, str]) -> None:
    with pytest.raises(UserError) as caught:
        demo.demo_corpus(*languages)
    assert f"'{languages[0]}-{languages[1]}'" in str(caught.value)
    assert "en-fr, fr-en, en-zh, zh-en" in str(caught.value)


def test_reading_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from heedful.data.demo import demo_corpus; demo_corpus('en', 'fr');"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
