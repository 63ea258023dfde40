"""The demo corpus: pairs to train on, held-out sentences, sentences with new pairs of words, and the probe."""

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from scripts.demo_corpus.ambiguity import PARTS, RENDER, canonical, readings
from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.grammar import all_meanings
from scripts.demo_corpus.meaning import (
    Act,
    Adjective,
    Comparison,
    HowMany,
    Language,
    Noun,
    Pain,
    Phrase,
    Profession,
    Quality,
    Sentence,
    SetPhrase,
    Verb,
)
from scripts.demo_corpus.probe import ProbePair, probe_pairs
from scripts.demo_corpus.reasons import well_known_examples

SEED = 1
N_VALID, N_TEST = 500, 1000
MIN_COUNT = 10  # each word of a held-out sentence occurs in this many other sentences or more
PUNCTUATION = str.maketrans(".,?!'", "     ")

# Pairs of words: each word occurs in `train`, but no sentence of `train` has both.
SEPARATED = (
    *(("red", "car"), ("blue", "coat"), ("black", "cat"), ("white", "horse"), ("green", "bag"), ("yellow", "flower")),
    *(("big", "house"), ("small", "dog"), ("new", "computer"), ("old", "table"), ("beautiful", "dress")),
    *(("interesting", "book"), ("expensive", "watch"), ("heavy", "suitcase"), ("fresh", "bread")),
    *(
        ("eat", "banana"),
        ("drink", "beer"),
        ("drink", "milk"),
        ("buy", "umbrella"),
        ("read", "letter"),
        ("draw", "bird"),
    ),
    *(("write", "poem"), ("repair", "bike"), ("wash", "shirt"), ("open", "window"), ("lose", "key"), ("find", "phone")),
    *(("learn", "Japanese"), ("study", "history"), ("help", "doctor"), ("sell", "boat"), ("break", "glass")),
    *(("see", "elephant"), ("wear", "scarf"), ("call", "mother"), ("like", "cheese"), ("meet", "singer")),
)

# The attributes of a meaning that hold words.
WORDS: dict[type, tuple[str, ...]] = {
    Phrase: ("noun", "adjective", "container"),
    Act: ("verb",),
    Quality: ("adjective",),
    Profession: ("noun", "adjective"),
    Comparison: ("adjective",),
    HowMany: ("noun",),
    Pain: ("part",),
}


class Example(NamedTuple):
    """A sentence in two languages, and its meaning."""

    source: str
    target: str
    meaning: Sentence


class ProbeExample(NamedTuple):
    """A sentence of the probe; the two sentences of a pair have the same number."""

    example: Example
    kind: str
    number: int
    antecedent: str = ""  # the noun that the pronoun stands for, in the source language
    pronoun: str = ""  # the pronoun in the target language


@dataclass(frozen=True)
class DemoCorpus:
    """Pairs of one direction. No source sentence occurs twice, within a split or in two splits."""

    train: list[Example]
    valid: list[Example]
    test: list[Example]
    combinations: list[Example]  # sentences with two words of `SEPARATED`
    probe: list[ProbeExample]


def demo_corpus(source: Language, target: Language, *, seed: int = SEED, scale: int = 1) -> DemoCorpus:
    """Make the corpus of one direction. The seed chooses what is held out and the order.

    `scale` multiplies the number of random meanings; duplicates count once, so the corpus grows a little less.
    """
    probe = _probe(source, target)
    in_probe = {example.source for example, *_ in probe}
    always: list[Example] = []
    combinations: list[Example] = []
    others: list[Example] = []
    for meaning, text in _unique(source, scale):
        if text in in_probe:  # happens only if scale > 1: the probe has no sentence of the corpus with scale 1
            continue
        example = Example(text, RENDER[target](meaning), meaning)
        if always_in_train(meaning):
            always.append(example)
        elif has_separated_words(meaning):
            combinations.append(example)
        else:
            others.append(example)
    draw = Draw(seed)
    others = draw.shuffled(others)
    words = {example.source: _words(example, source, target) for example in (*others, *combinations)}
    counts = Counter(itertools.chain.from_iterable(words[example.source] for example in others))
    frequent = {word for word, count in counts.items() if count >= MIN_COUNT}
    eligible = [example for example in others if words[example.source] <= frequent]
    held_out = {example.source for example in eligible[: N_VALID + N_TEST]}
    return DemoCorpus(
        train=draw.shuffled([*always, *(example for example in others if example.source not in held_out)]),
        valid=eligible[:N_VALID],
        test=eligible[N_VALID : N_VALID + N_TEST],
        combinations=draw.shuffled([example for example in combinations if words[example.source] <= frequent]),
        probe=probe,
    )


def _probe(source: Language, target: Language) -> list[ProbeExample]:
    """Render the pairs of the probe; no sentence of theirs is in the corpus of scale 1, in any language."""
    texts: dict[Language, set[str]] = {
        language: {render(meaning) for meaning in all_meanings()} for language, render in RENDER.items()
    }

    def is_new(meaning: Sentence) -> bool:
        known = any(render(meaning) in texts[language] for language, render in RENDER.items())
        return not known and not has_separated_words(meaning)

    return [
        _probe_example(pair, number, index, source, target)
        for number, pair in enumerate(probe_pairs(is_new, same_gender=source == "fr"), start=1)
        for index in range(2)
    ]


def _probe_example(pair: ProbePair, number: int, index: int, source: Language, target: Language) -> ProbeExample:
    """Render one sentence of a pair; `index` is 0 or 1."""
    meaning = pair.sentences[index]
    example = Example(RENDER[source](meaning), RENDER[target](meaning), meaning)
    if pair.antecedents is None:
        return ProbeExample(example, pair.kind, number)
    noun = pair.antecedents[index]
    pronoun = {"en": "it", "fr": "elle" if noun.feminine else "il", "zh": "它"}[target]
    return ProbeExample(example, pair.kind, number, {"en": noun.en, "fr": noun.fr, "zh": noun.zh}[source], pronoun)


def _words(example: Example, source: Language, target: Language) -> set[str]:
    """Return the words of both sides; for Chinese, the characters."""
    words: set[str] = set()
    for language, text in ((source, example.source), (target, example.target)):
        words.update(text if language == "zh" else text.lower().translate(PUNCTUATION).split())
    return words


def translations(text: str, source: Language, target: Language, *, scale: int = 1) -> frozenset[str]:
    """Return every translation of a sentence of the corpus that the grammar derives; none for any other sentence."""
    meanings = _meanings(source, scale).get(text, ())
    return frozenset().union(*(accepted(meaning, source, target) for meaning in meanings))


def accepted(meaning: Sentence, source: Language, target: Language) -> frozenset[str]:
    """Return the translations of all meanings that sound the same as this meaning in the source language."""
    return frozenset(RENDER[target](reading) for reading in readings(meaning, source))


@cache
def _unique(language: Language, scale: int = 1) -> tuple[tuple[Sentence, str], ...]:
    """Return each sentence of the language once, with the first of its meanings."""
    render = RENDER[language]
    meanings: dict[str, Sentence] = {}
    for meaning in all_meanings(scale):
        text = render(meaning)
        if text not in meanings:
            meanings[text] = canonical(meaning, language, text)
    return tuple((meaning, text) for text, meaning in meanings.items())


@cache
def _meanings(language: Language, scale: int = 1) -> dict[str, list[Sentence]]:
    """Return all meanings of each sentence of the language."""
    meanings: dict[str, list[Sentence]] = defaultdict(list)
    for meaning in all_meanings(scale):
        meanings[RENDER[language](meaning)].append(meaning)
    for meaning, text in _unique(language, scale):
        if meaning not in meanings[text]:
            meanings[text].append(meaning)
    return meanings


@cache
def _separated_words() -> frozenset[str]:
    return frozenset(word for pair in SEPARATED for word in pair)


def always_in_train(meaning: Sentence) -> bool:
    """Tell whether a sentence always belongs to `train`: a set phrase cannot be derived from its words."""
    return isinstance(meaning.body, SetPhrase) or meaning.body in well_known_examples()


def has_separated_words(meaning: Sentence) -> bool:
    """Tell whether two words of `SEPARATED` occur together in the sentence."""
    named: set[str] = set()
    _collect(meaning, named)
    return len(named) > 1 and any(first in named and second in named for first, second in SEPARATED)


def _collect(node: object, named: set[str]) -> None:
    """Add the English names of those nouns, verbs and adjectives of a meaning that are in `SEPARATED`."""
    kind = type(node)
    for name in WORDS.get(kind, ()):
        word: Noun | Verb | Adjective | None = getattr(node, name)
        if word is not None and word.en in _separated_words():
            named.add(word.en)
    for name in PARTS.get(kind, ()):
        part = getattr(node, name)
        if part is not None:
            _collect(part, named)
