"""The demo corpus: pairs to train on, held-out sentences, and sentences with words never seen together."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from heedful.data.demo.ambiguity import PARTS, RENDER, canonical, readings
from heedful.data.demo.choices import Draw
from heedful.data.demo.grammar import stock
from heedful.data.demo.meaning import (
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
    Saying,
    Sentence,
    Verb,
)
from heedful.errors import UserError, one_of

if TYPE_CHECKING:
    from heedful.data.corpus import Example

SEED = 1
N_VALID, N_TEST = 500, 1000

# Words of which each is seen in training, but never both in one sentence.
APART = (
    *(("red", "car"), ("blue", "coat"), ("black", "cat"), ("white", "horse"), ("green", "bag"), ("yellow", "flower")),
    *(("big", "house"), ("small", "dog"), ("new", "computer"), ("old", "table"), ("beautiful", "dress")),
    *(("interesting", "book"), ("expensive", "watch"), ("heavy", "suitcase"), ("fresh", "bread")),
    *(("eat", "banana"), ("eat", "soup"), ("drink", "milk"), ("buy", "umbrella"), ("read", "letter"), ("draw", "bird")),
    *(("write", "poem"), ("repair", "bike"), ("wash", "shirt"), ("open", "window"), ("lose", "key"), ("find", "phone")),
    *(("learn", "Japanese"), ("study", "history"), ("help", "doctor"), ("sell", "boat"), ("break", "glass")),
    *(("see", "elephant"), ("wear", "scarf"), ("call", "mother"), ("like", "cheese"), ("have", "rabbit")),
)

# Where in a meaning its words are.
WORDS: dict[type, tuple[str, ...]] = {
    Phrase: ("noun", "adjective", "container"),
    Act: ("verb",),
    Quality: ("adjective",),
    Profession: ("noun", "adjective"),
    Comparison: ("adjective",),
    HowMany: ("noun",),
    Pain: ("part",),
}


@dataclass(frozen=True)
class DemoCorpus:
    """Pairs of one direction: no source sentence stands twice, and what is held out is not in `train`."""

    train: list["Example"]
    valid: list["Example"]
    test: list["Example"]
    combinations: list["Example"]  # sentences with two words of `APART`


def demo_corpus(source_language: str, target_language: str, *, seed: int = SEED) -> DemoCorpus:
    """The built-in corpus from one language to another; the seed chooses what is held out, and the order."""
    from heedful.data.corpus import Example  # here, because it needs numpy, and this package nothing

    source, target = _pair(source_language, target_language)
    plain: list[Example] = []
    sayings: list[Example] = []
    apart: list[Example] = []
    for meaning, text in _unique(source):
        example = Example(text, RENDER[target](meaning))
        if isinstance(meaning.body, Saying):
            sayings.append(example)
        elif has_apart(meaning):
            apart.append(example)
        else:
            plain.append(example)
    draw = Draw(seed)
    plain = draw.shuffled(plain)
    held_out = N_VALID + N_TEST
    return DemoCorpus(
        train=draw.shuffled([*sayings, *plain[held_out:]]),  # a saying cannot be guessed from its words
        valid=plain[:N_VALID],
        test=plain[N_VALID:held_out],
        combinations=draw.shuffled(apart),
    )


def translations(text: str, source_language: str, target_language: str) -> frozenset[str]:
    """Every translation of a sentence of the corpus that the grammar derives; none for any other sentence."""
    source, target = _pair(source_language, target_language)
    render = RENDER[target]
    meanings = _meanings(source).get(text, ())
    return frozenset(render(reading) for meaning in meanings for reading in readings(meaning, source))


def _pair(source: str, target: str) -> tuple[Language, Language]:
    for what, language in (("source language", source), ("target language", target)):
        if language not in RENDER:
            raise one_of(f"{what} of the demo corpus", language, RENDER)
    if source == target:
        raise UserError(f"the demo corpus translates between two languages, and both are '{source}'")
    codes: dict[str, Language] = {code: code for code in RENDER}
    return codes[source], codes[target]


@cache
def _unique(language: Language) -> tuple[tuple[Sentence, str], ...]:
    """Each sentence of the language once, with the first of its meanings."""
    render = RENDER[language]
    found: dict[str, Sentence] = {}
    for meaning in stock():
        first = canonical(meaning, language)
        found.setdefault(render(first), first)
    return tuple((meaning, text) for text, meaning in found.items())


@cache
def _meanings(language: Language) -> dict[str, list[Sentence]]:
    found: dict[str, list[Sentence]] = defaultdict(list)
    for meaning in stock():
        found[RENDER[language](meaning)].append(meaning)
    for meaning, text in _unique(language):
        if meaning not in found[text]:
            found[text].append(meaning)
    return found


@cache
def _apart_words() -> frozenset[str]:
    return frozenset(word for pair in APART for word in pair)


def has_apart(meaning: Sentence) -> bool:
    """Whether two words of `APART` meet in this sentence."""
    named: set[str] = set()
    _collect(meaning, named)
    return len(named) > 1 and any(first in named and second in named for first, second in APART)


def _collect(node: object, named: set[str]) -> None:
    """The English names of the nouns, verbs and adjectives in a meaning, as far as they are in `APART`."""
    if isinstance(node, Noun | Verb | Adjective):
        if node.en in _apart_words():
            named.add(node.en)
        return
    for name in WORDS.get(type(node), ()):
        _collect(getattr(node, name), named)
    for name in PARTS.get(type(node), ()):
        _collect(getattr(node, name), named)
