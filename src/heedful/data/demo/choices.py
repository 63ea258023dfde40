"""Choosing phrases that make sense: who does it, to what, where and when.

Every choice is made by `Draw`, whose numbers are the same on every machine and in every version of Python.
"""

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from heedful.data.demo.adjectives import describing
from heedful.data.demo.lexicon import MONTHS, NAMES, TIMES, words, words_for
from heedful.data.demo.meaning import (
    Adjective,
    Date,
    Name,
    Noun,
    Pair,
    Phrase,
    Polarity,
    Pronoun,
    Span,
    Subject,
    Tense,
    Time,
    Verb,
    Word,
)
from heedful.data.demo.nouns import nouns, nouns_of

T = TypeVar("T")

ME, YOU, HE, SHE = Pronoun(1), Pronoun(2), Pronoun(3), Pronoun(3, female=True)
WE, THEY = Pronoun(1, plural=True), Pronoun(3, plural=True)
WOMEN = Pronoun(3, plural=True, female=True)
OWNABLE = frozenset({"goods", "small", "pet", "vehicle", "house", "photo", "garden", "room", "mail"})
ACQUIRING = frozenset({"buy", "want", "need", "borrow", "have", "choose"})  # what one does not own yet
UNWANTED = frozenset({"old", "heavy", "boring", "difficult", "expensive"})
SERVED = {"coffee": "cup", "tea": "cup", "soup": "bowl", "rice": "bowl", "bread": "piece", "chocolate": "piece"}
WEIGHED = frozenset({"meat", "cheese", "beef", "chicken", "fish", "apple", "orange", "tomato", "pear"})
UNFIT_TIMES = {  # nobody has dinner in the morning
    "breakfast": ("night", "evening"),
    "lunch": ("night", "evening", "morning"),
    "dinner": ("morning",),
    "up early": ("night", "evening", "morning"),
}
DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Draw:
    """A stream of choices. Only `random()` is used: Python promises its numbers, and not those of `choice`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def one(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def who(self, *people: Subject) -> Subject:
        return self.one(people)

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return low + int(self._random() * (high - low + 1))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        keys = [self._random() for _ in items]
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


def single(draw: Draw) -> Subject:
    return draw.who(ME, HE, SHE, name(draw), name(draw), relative(draw, ME, several=False))


def person(draw: Draw, *, first: bool = True, pronoun: bool = True) -> Subject:
    """Somebody; `first` allows I and we, `pronoun` any pronoun."""
    if pronoun and draw.chance(0.45):
        return draw.one((ME, ME, WE, HE, HE, SHE, SHE, THEY, YOU) if first else (YOU, YOU, YOU, HE, SHE, THEY))
    if draw.chance(0.45):
        return name(draw)
    if draw.chance(0.55):
        return relative(draw, woman=draw.chance(0.25))
    if draw.chance(0.3):
        return couple(draw)
    job = draw.one(nouns_of("job adult-noun child-noun"))
    woman = job.fr_woman is not None and draw.chance(0.15)
    return Phrase(job, "the", plural=draw.chance(0.25), woman=woman)


def name(draw: Draw) -> Name:
    return Name(draw.one(words(NAMES)))


def couple(draw: Draw) -> Pair:
    if draw.chance(0.4):
        owner = draw.one((ME, HE, SHE))
        first, second = ("father", "mother") if draw.chance(0.5) else ("son", "daughter")
        return Pair(Phrase(nouns()[first], "of", owner=owner), Phrase(nouns()[second], "of", owner=owner))
    first_name = name(draw)
    others = [word for word in words(NAMES) if word is not first_name.word]
    return Pair(first_name, Name(draw.one(others)))


def relative(
    draw: Draw,
    owner: Subject | None = None,
    but: Noun | None = None,
    *,
    several: bool = True,
    woman: bool = False,
) -> Phrase:
    """My mother, Anna's friend: one of somebody's family or friends, or several of them."""
    if owner is None:
        owner = name(draw) if draw.chance(0.2) else draw.one((ME, ME, ME, WE, YOU, HE, SHE))
    if several and draw.chance(0.08):
        return Phrase(nouns()["parent"], "of", plural=True, owner=owner)
    if draw.chance(0.2):
        plural = several and draw.chance(0.3)
        return Phrase(draw.one(nouns_of("owned")), "of", plural, owner=owner, woman=woman)
    if owner == HE and draw.chance(0.1):
        return Phrase(nouns()["wife"], "of", owner=owner)
    if owner == SHE and draw.chance(0.1):
        return Phrase(nouns()["husband"], "of", owner=owner)
    return Phrase(draw.one([noun for noun in nouns_of("kin") if noun is not but]), "of", owner=owner)


def pronoun_for(subject: Subject) -> Pronoun:
    """The pronoun that a second mention takes: he, they, it."""
    match subject:
        case Pronoun():
            return subject
        case Name():
            return SHE if subject.female else HE
        case Pair(first, second):
            return WOMEN if pronoun_for(first).female and pronoun_for(second).female else THEY
        case Phrase(noun=noun, plural=plural):
            human = bool(noun.classes & {"human", "kin", "wife", "husband", "parents"})
            female = noun.feminine or subject.woman
            return Pronoun(3, plural, female, thing=not human and not plural)


def animal(draw: Draw) -> Phrase:
    noun = draw.one(nouns_of("pet farm"))
    if "pet" in noun.classes and draw.chance(0.4):
        return Phrase(noun, "of", owner=draw.one((ME, ME, YOU, HE, SHE, WE)))
    return Phrase(noun, "the", plural=draw.chance(0.2), adjective=adjective_for(draw, noun, 0.2))


def adjective_for(draw: Draw, noun: Noun, probability: float) -> Adjective | None:
    fitting = describing(noun.classes)
    return draw.one(fitting) if fitting and draw.chance(probability) else None


def object_for(draw: Draw, verb: Verb, subject: Subject, *, tense: Tense, polarity: Polarity = "yes") -> Phrase:
    """Something that the verb may be done to, with a determiner that suits the sentence."""
    noun = draw.one(nouns_of(" ".join(sorted(verb.objects))))
    own = pronoun_for(subject)
    if "kin" in noun.classes and "sibling" not in verb.objects:
        but = subject.noun if isinstance(subject, Phrase) else None
        return relative(draw, own if verb.en == "love" or draw.chance(0.7) else None, but)
    if "generic" in verb.uses or noun.classes & {"language", "science", "land"}:
        return Phrase(noun, "bare" if verb.en == "speak" else "generic", plural=not noun.mass)
    if "own" in verb.uses and draw.chance(0.75):
        return Phrase(noun, "of", plural=noun.en == "key", owner=own)
    if "human" in noun.classes:
        return _someone(draw, noun, own)
    if noun.mass:
        return _some(draw, noun, verb, tense=tense, polarity=polarity)
    if noun.classes & {"fruits", "vegetables"}:
        return Phrase(noun, "a", plural=True, adjective=adjective_for(draw, noun, 0.15))
    if noun.classes & {"unique", "crossing", "field"}:
        return Phrase(noun, "the")
    return _thing(draw, noun, verb, own, tense=tense, polarity=polarity)


def _someone(draw: Draw, noun: Noun, own: Pronoun) -> Phrase:
    if "owned" in noun.classes:
        return Phrase(noun, "of", plural=draw.chance(0.3), owner=own)
    adjective = adjective_for(draw, noun, 0.15)
    return Phrase(noun, "this" if draw.chance(0.25) else "the", plural=draw.chance(0.2), adjective=adjective)


def _some(draw: Draw, noun: Noun, verb: Verb, *, tense: Tense, polarity: Polarity) -> Phrase:
    if polarity == "yes" and draw.chance(0.35):
        measured = _measured(draw, noun, verb, tense)
        if measured:
            return measured
    if tense != "habit" and draw.chance(0.15):
        return Phrase(noun, "the")
    return Phrase(noun, "a", adjective=adjective_for(draw, noun, 0.2))


def _measured(draw: Draw, noun: Noun, verb: Verb, tense: Tense) -> Phrase | None:
    container = container_for(noun, verb)
    if container is None:
        return None
    if tense == "now" or draw.chance(0.7):  # nobody is drinking three glasses at once
        return Phrase(noun, "a", container=container)
    return Phrase(noun, "count", plural=True, count=draw.number(2, 4), container=container)


def container_for(noun: Noun, verb: Verb) -> Noun | None:
    """A cup of tea, a piece of bread; at the shop, a bottle of wine and a kilo of apples."""
    if verb.en == "buy":
        if "drink" in noun.classes and noun.en not in ("tea", "coffee"):
            return nouns()["bottle"]
        return nouns()["kilo"] if noun.en in WEIGHED else None
    if noun.en in SERVED:
        return nouns()[SERVED[noun.en]]
    return nouns()["glass"] if "drink" in noun.classes else None


def _thing(draw: Draw, noun: Noun, verb: Verb, own: Pronoun, *, tense: Tense, polarity: Polarity) -> Phrase:
    adjective = adjective_for(draw, noun, 0.25)
    if adjective and verb.en in ACQUIRING and adjective.en in UNWANTED:
        adjective = None
    if tense == "habit" and "state" not in verb.uses:  # not "she often eats the egg"
        return Phrase(noun, "a", polarity != "yes" or draw.chance(0.5), adjective)
    several = "single" not in verb.uses and not noun.classes & {"flat", "house"}
    if "definite" not in verb.uses:
        indefinite = _indefinite_thing(draw, noun, verb, adjective, tense, polarity, several=several)
        if indefinite:
            return indefinite
    if noun.classes & OWNABLE and verb.en not in ACQUIRING and draw.chance(0.45):
        owner: Subject = name(draw) if draw.chance(0.2) else own if draw.chance(0.6) else draw.one((ME, YOU))
        if pronoun_for(owner) == own:  # not "Sophie sold Sophie's car"
            owner = own
        return owned(noun, owner, adjective)
    if draw.chance(0.35):
        return Phrase(noun, "that" if draw.chance(0.3) else "this", several and draw.chance(0.2), adjective)
    return Phrase(noun, "the", several and draw.chance(0.25), adjective)


def _indefinite_thing(
    draw: Draw,
    noun: Noun,
    verb: Verb,
    adjective: Adjective | None,
    tense: Tense,
    polarity: Polarity,
    *,
    several: bool,
) -> Phrase | None:
    """An apple, three apples, a kilo of apples; or None, where something definite is to be said."""
    if polarity != "yes":
        return Phrase(noun, "a", several and draw.chance(0.3), adjective) if draw.chance(0.35) else None
    if verb.en == "buy" and draw.chance(0.15):
        measured = _measured(draw, noun, verb, tense)
        if measured:
            return measured
    if "count" in verb.uses and tense != "now" and draw.chance(0.2):
        return Phrase(noun, "count", plural=True, count=draw.number(2, 10 if tense == "past" else 5))
    return Phrase(noun, "a", adjective=adjective) if draw.chance(0.45) else None


def owned(noun: Noun, owner: Subject, adjective: Adjective | None, *, plural: bool = False) -> Phrase:
    """My new car, her red hat; adjectives that end in 的 would stand clumsily after the 的 of the owner."""
    short = adjective and (len(adjective.zh_before) == 1 or adjective.zh_kind == "是")
    return Phrase(noun, "of", plural, adjective if short else None, owner)


def time_for(draw: Draw, tense: Tense, verb: Verb | None = None, *, far: bool = True) -> Time:
    """When it was, is or will be: within a day, or as far off as the verb allows and `far` does not forbid."""
    if verb is None or "year" not in verb.uses or not far or tense in ("habit", "now"):
        return draw.one(_near_times(tense, verb))
    if draw.chance(0.75):
        return draw.one(words_for(TIMES, tense))
    if draw.chance(0.4):
        return date(draw)
    unit = draw.one(("day", "week", "month", "year") if tense == "past" else ("day", "week", "month"))
    return Span(draw.number(2, 6), nouns()[unit], "ago" if tense == "past" else "in")


@cache
def _near_times(tense: Tense, verb: Verb | None) -> tuple[Word, ...]:
    reach = {"near", "week", "habit", "now"} if verb and {"week", "year"} & verb.uses else {"near", "habit", "now"}
    unfit = UNFIT_TIMES.get(verb.en_tail, ()) if verb else ()
    fitting = [word for word in words_for(TIMES, tense) if not any(part in word.en for part in unfit)]
    return tuple(word for word in fitting if reach & word.uses)


def date(draw: Draw) -> Date:
    month = draw.number(0, 11)
    return Date(words(MONTHS)[month], draw.number(1, DAYS_OF_MONTH[month]))
