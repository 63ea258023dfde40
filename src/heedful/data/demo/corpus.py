"""The demo corpus: pairs to train on, held-out sentences, and sentences with words never seen together."""

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from heedful.data.demo.ambiguity import PARTS, RENDER, canonical, readings
from heedful.data.demo.chance import Draw
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
from heedful.data.demo.reasons import notes
from heedful.errors import UserError, invalid_choice

if TYPE_CHECKING:
    from heedful.data.corpus import Example

SEED = 1
N_VALID, N_TEST = 500, 1000
COMMON = 10  # how often a word must stand in the corpus: held out are known words, newly put together
MARKS = str.maketrans(".,?!'", "     ")

# Words of which each is seen in training, but never both in one sentence.
APART = (
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
    seen: list[Example] = []
    apart: list[Example] = []
    free: list[Example] = []
    for meaning, text in _unique(source):
        example = Example(text, RENDER[target](meaning))
        kind = seen if always_seen(meaning) else apart if has_apart(meaning) else free
        kind.append(example)
    draw = Draw(seed)
    free = draw.shuffled(free)
    words = {example: _words(example, source, target) for example in (*free, *apart)}
    counts = Counter(itertools.chain.from_iterable(words[example] for example in free))
    common = {word for word, count in counts.items() if count >= COMMON}
    fair = [example for example in free if words[example] <= common]
    held_out = set(fair[: N_VALID + N_TEST])
    return DemoCorpus(
        train=draw.shuffled([*seen, *(example for example in free if example not in held_out)]),
        valid=fair[:N_VALID],
        test=fair[N_VALID : N_VALID + N_TEST],
        combinations=draw.shuffled([example for example in apart if words[example] <= common]),
    )


def _words(example: "Example", source: Language, target: Language) -> set[str]:
    """The words of both sides; in Chinese, the characters."""
    found: set[str] = set()
    for language, text in ((source, example.source), (target, example.target)):
        found.update(text if language == "zh" else text.lower().translate(MARKS).split())
    return found


def translations(text: str, source_language: str, target_language: str) -> frozenset[str]:
    """Every translation of a sentence of the corpus that the grammar derives; none for any other sentence."""
    source, target = _pair(source_language, target_language)
    render = RENDER[target]
    meanings = _meanings(source).get(text, ())
    return frozenset(render(reading) for meaning in meanings for reading in readings(meaning, source))


def _pair(source: str, target: str) -> tuple[Language, Language]:
    for what, language in (("source language", source), ("target language", target)):
        if language not in RENDER:
            raise invalid_choice(f"{what} of the demo corpus", language, RENDER)
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
        text = render(meaning)
        if text not in found:
            found[text] = canonical(meaning, language, text)
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


def always_seen(meaning: Sentence) -> bool:
    """A saying cannot be guessed from its words, and the notes' sentences should be known."""
    return isinstance(meaning.body, Saying) or meaning.body in notes()


def has_apart(meaning: Sentence) -> bool:
    """Whether two words of `APART` meet in this sentence."""
    named: set[str] = set()
    _collect(meaning, named)
    return len(named) > 1 and any(first in named and second in named for first, second in APART)


def _collect(node: object, named: set[str]) -> None:
    """The English names of the nouns, verbs and adjectives in a meaning, as far as they are in `APART`."""
    kind = type(node)
    for name in WORDS.get(kind, ()):
        word: Noun | Verb | Adjective | None = getattr(node, name)
        if word is not None and word.en in _apart_words():
            named.add(word.en)
    for name in PARTS.get(kind, ()):
        part = getattr(node, name)
        if part is not None:
            _collect(part, named)
