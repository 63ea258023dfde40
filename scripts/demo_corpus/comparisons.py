"""Comparisons: who is taller, what is more expensive. Sizes and speeds agree with the world."""

from functools import cache
from typing import Literal

from scripts.demo_corpus.adjectives import adjective, predicative
from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.meaning import Adjective, Comparison, Noun, Phrase, Subject
from scripts.demo_corpus.nouns import nouns, nouns_of
from scripts.demo_corpus.people import ME, WE, YOU, name, person, relative

How = Literal["more", "less", "as"]
HOW: tuple[How, ...] = ("more", "more", "less", "as")
UNFIT = frozenset(
    {"good", "new", "delicious", "big", "small", "fast", "slow", "heavy", "dangerous", "strong", "wide", "warm"}
)

# In ascending order: a mouse is never bigger than a horse, nor a bus faster than a plane.
SIZES = ("mouse", "bird", "rabbit", "cat", "monkey", "dog", "sheep", "pig", "tiger", "horse", "elephant")
SPEEDS = ("boat", "bus", "car", "train", "plane")


def comparison(draw: Draw) -> Comparison:
    """Draw a comparison such as "The train is faster than the bus"."""
    how = draw.choose(HOW)
    if draw.chance(0.5):
        word = draw.choose(predicative(frozenset({"trait"})))
        first: Subject = person(draw, pronoun=False)
        second: Subject = name(draw) if draw.chance(0.5) else relative(draw, draw.choose((ME, YOU)))
        return Comparison(first, relative(draw, WE) if first == second else second, word, how)
    group = draw.choose(
        ("animal", "carriage", "clothing", "edible", "computer television fridge", "furniture", "carried")
    )
    if group in ("animal", "carriage") and draw.chance(0.6):
        return _ranked(draw, group)
    noun, other = draw.shuffled([noun for noun in nouns_of(group) if noun.en not in ("animal", "egg")])[:2]
    adjectives = [word for word in _comparable(noun) if word.predicates & other.classes]
    if not adjectives:
        return _ranked(draw, "animal")
    first, second = Phrase(noun, draw.choose(("the", "this"))), Phrase(other, draw.choose(("the", "that")))
    return Comparison(first, second, draw.choose(adjectives), how)


def _ranked(draw: Draw, group: str) -> Comparison:
    """Draw a true comparison of sizes or speeds: "Horses are bigger than dogs"."""
    ranks = SIZES if group == "animal" else SPEEDS
    lower, higher = sorted(draw.shuffled(range(len(ranks)))[:2])
    if draw.chance(0.5):
        lower, higher = higher, lower
    more = "big" if group == "animal" else "fast"
    less = "small" if group == "animal" else "slow"
    noun, other = nouns()[ranks[lower]], nouns()[ranks[higher]]
    how: How = "less" if lower < higher and draw.chance(0.5) else "more"
    word = adjective(less if lower < higher and how == "more" else more)
    generic = group == "animal" and draw.chance(0.5)
    first = Phrase(noun, "generic" if generic else "the", generic)
    return Comparison(first, Phrase(other, "generic" if generic else "the", generic), word, how)


@cache
def _comparable(noun: Noun) -> tuple[Adjective, ...]:
    """Return the adjectives in which the noun may be compared: not size and speed, which `_ranked` does."""
    unfit = UNFIT - {"heavy"} if "carried" in noun.classes else UNFIT
    words = predicative(noun.classes)
    return tuple(word for word in words if word.zh_kind == "很" and not word.fr_avoir and word.en not in unfit)
