"""Choose objects, adjectives and times that make sense together."""

from dataclasses import replace
from functools import cache

from scripts.demo_corpus.adjectives import attributive
from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.lexicon import MONTHS, TIMES, words, words_for
from scripts.demo_corpus.meaning import (
    Adjective,
    Date,
    Noun,
    Phrase,
    Place,
    Polarity,
    Pronoun,
    Span,
    Subject,
    Tense,
    Time,
    Verb,
    Word,
)
from scripts.demo_corpus.nouns import nouns, nouns_of
from scripts.demo_corpus.people import ACQUIRING, HE, ME, SHE, WE, YOU, name, pronoun_for, related, relative

OWNABLE = frozenset({"goods", "small", "pet", "vehicle", "dwelling", "photo", "garden", "room", "mail"})
SHARED = frozenset({"furniture", "pet", "vehicle", "dwelling", "garden", "room", "television"})  # our table; but my pen
CREATING = frozenset({"make", "write", "draw"})  # the object is new: "a letter", not "my letter"
PLAIN = frozenset({"understand", "write", "drive", "hear", "make", "break"})  # take no adjective
OPINIONS = frozenset(  # for something new to the listener: an interesting film, this interesting film
    {"interesting", "boring", "good", "expensive", "comfortable", "fresh", "warm", "easy", "difficult", "long", "short"}
)
UNWANTED = frozenset({"old", "heavy", "boring", "difficult", "expensive"})
# The highest number of these things in a sentence; it is 1 for `UNCOUNTED` things and 3 for all others.
COUNTED = {"edible": 8, "flower": 6, "chair": 6, "animal": 4}
UNCOUNTED = frozenset({"machine", "furniture", "vehicle", "driven", "dwelling", "guitar", "passport", "wallet", "tale"})
SERVED = {"coffee": "cup", "tea": "cup", "soup": "bowl", "rice": "bowl", "bread": "piece", "chocolate": "piece"}
WEIGHED = frozenset({"meat", "cheese", "beef", "chicken", "fish", "apple", "orange", "tomato", "pear"})
# Times that do not suit a verb, by a word in them: no dinner in the morning, no water on Saturdays only.
UNFIT_TIMES = {
    "breakfast": ("night", "evening"),
    "lunch": ("night", "evening", "morning"),
    "dinner": ("morning",),
    "up early": ("night", "evening", "morning"),
    "drink": ("Saturday", "Sunday", "week"),
    "buy": ("every evening",),
    "stay": ("morning",),
    "a shower": ("Saturday", "Sunday", "week"),
}
# Times at which a kind of place is closed or not visited, by a word in them.
CLOSED = {
    "weekday": ("night", "evening", "Saturday", "Sunday"),
    "day": ("night", "evening"),
    "museum": ("night", "evening"),
    "leisure": ("every day", "every morning", "every evening"),
    "daily": ("every week",),
}
GOING = frozenset({"go", "come", "visit"})
DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def animal(draw: Draw) -> Phrase:
    """Choose an animal as a subject: "my cat", "the black dogs"."""
    noun = draw.choose(nouns_of("pet farm"))
    if "pet" in noun.classes and draw.chance(0.4):
        return Phrase(noun, "of", owner=draw.choose((ME, ME, YOU, HE, SHE, WE)))
    return Phrase(noun, "the", plural=draw.chance(0.2), adjective=adjective_for(draw, noun, 0.2))


def adjective_for(draw: Draw, noun: Noun, probability: float) -> Adjective | None:
    """Choose an adjective for the noun, or None; `probability` is that of an adjective."""
    words = attributive(noun.classes)
    return draw.choose(words) if words and draw.chance(probability) else None


def object_for(draw: Draw, verb: Verb, subject: Subject, *, tense: Tense, polarity: Polarity = "yes") -> Phrase:
    """Choose something that the verb may be done to, with a determiner that suits the sentence."""
    noun = draw.choose(nouns_of(" ".join(sorted(verb.objects))))
    if isinstance(subject, Phrase) and noun is subject.noun:  # not "the journalists help the journalist"
        noun = nouns()["friend"]
    if verb.en == "like" and noun.en == "water":
        noun = nouns()["milk"]
    own = pronoun_for(subject)
    if "kin" in noun.classes and "sibling" not in verb.objects:
        own_noun = subject.noun if isinstance(subject, Phrase) else None
        if verb.en == "love":
            land = Phrase(draw.choose(nouns_of("land")), "generic")
            return land if own.plural else relative(draw, own, own_noun, friends=False)
        if verb.en == "know":  # not "Paul knows his mother"
            return relative(draw, _other_owner(draw, subject), own_noun)
        kin = related(draw, subject) if draw.chance(0.7) else relative(draw, None, own_noun)
        if kin.owner == subject:  # not "Emma thanked Emma's grandfather"
            kin = replace(kin, owner=own)
        guest = verb.en not in ("invite", "visit") or not kin.noun.classes & {"wife", "husband"}
        return kin if guest else Phrase(nouns()["friend"], "of", owner=own)
    if "generic" in verb.uses or noun.classes & {"language", "science", "land"}:
        return Phrase(noun, "bare" if verb.en == "speak" else "generic", plural=not noun.mass)
    if "own" in verb.uses:
        return belonging(noun, own) if draw.chance(0.8) else Phrase(noun, "the", plural=noun.en == "key")
    if "human" in noun.classes:
        return _someone(draw, noun, verb, own, polarity)
    if noun.mass:
        return _some(draw, noun, verb, tense=tense, polarity=polarity)
    if noun.classes & {"fruits", "vegetables"}:
        return Phrase(noun, "a", plural=True, adjective=_suitable_adjective(draw, noun, verb, polarity))
    if noun.classes & {"unique", "crossing", "field"}:
        return Phrase(noun, "the")
    return _thing(draw, noun, verb, own, tense=tense, polarity=polarity)


def _other_owner(draw: Draw, subject: Subject) -> Subject:
    """Choose an owner other than the subject."""
    return draw.choose([owner for owner in (ME, YOU, name(draw)) if owner not in (subject, pronoun_for(subject))])


def belonging(noun: Noun, own: Pronoun) -> Phrase:
    """Return what the subject owns: "my keys", "our car", "their umbrellas".

    Several people share one car, but each has an umbrella.
    """
    return Phrase(noun, "of", noun.en == "key" or (own.plural and not noun.classes & SHARED), owner=own)


def _someone(draw: Draw, noun: Noun, verb: Verb, own: Pronoun, polarity: Polarity) -> Phrase:
    """Return a person as an object: "the doctor", "my neighbours"."""
    if "owned" in noun.classes:
        owner = _other_owner(draw, own) if verb.en == "know" else own
        return Phrase(noun, "of", plural=draw.chance(0.3), owner=owner)
    described = polarity == "yes" and verb.en in ("see", "meet", "know")
    adjective = adjective_for(draw, noun, 0.15) if described else None
    return Phrase(noun, "this" if draw.chance(0.25) else "the", plural=draw.chance(0.2), adjective=adjective)


def _some(draw: Draw, noun: Noun, verb: Verb, *, tense: Tense, polarity: Polarity) -> Phrase:
    """Return an amount of a mass noun: "some bread", "a cup of tea"."""
    if polarity == "yes" and draw.chance(0.35):
        measured = _measured(draw, noun, verb, tense)
        if measured:
            return measured
    if tense in ("now", "past") and draw.chance(0.15):
        return Phrase(noun, "the")
    return Phrase(noun, "a", adjective=_suitable_adjective(draw, noun, verb, polarity))


def _measured(draw: Draw, noun: Noun, verb: Verb, tense: Tense) -> Phrase | None:
    """Return an amount in containers, such as "two glasses of water", or None if the noun has no container."""
    container = container_for(noun, verb)
    if container is None:
        return None
    if tense in ("now", "habit") or draw.chance(0.7):  # not "is drinking three glasses"
        return Phrase(noun, "a", container=container)
    return Phrase(noun, "count", plural=True, count=draw.number(2, 3), container=container)


def container_for(noun: Noun, verb: Verb) -> Noun | None:
    """Return the container in which people have it: a cup of tea, a piece of bread; from the shop, a kilo of apples."""
    if verb.en == "buy":
        if "drink" in noun.classes and noun.en not in ("tea", "coffee"):
            return nouns()["bottle"]
        return nouns()["kilo"] if noun.en in WEIGHED else None
    if noun.en in SERVED:
        return nouns()[SERVED[noun.en]]
    return nouns()["glass"] if "drink" in noun.classes else None


def _thing(draw: Draw, noun: Noun, verb: Verb, own: Pronoun, *, tense: Tense, polarity: Polarity) -> Phrase:
    """Return a countable thing as an object."""
    adjective = _suitable_adjective(draw, noun, verb, polarity)
    if tense == "habit" and "state" not in verb.uses:  # not "she often eats the egg"
        return Phrase(noun, "a", polarity != "yes" or own.plural or draw.chance(0.5), adjective)
    if "edible" in noun.classes and own.plural:  # two people do not share an egg
        return Phrase(noun, "a" if polarity != "yes" else draw.choose(("a", "a", "the", "this")), True, adjective)
    if verb.en == "buy" and "edible" in noun.classes and draw.chance(0.4):  # "some pears", not "that pear"
        return Phrase(noun, "a", True, adjective)
    if verb.en == "need" and "ticket" not in noun.classes:
        return Phrase(noun, "a", adjective=adjective)
    if verb.en == "hear" and polarity != "yes":
        return Phrase(noun, "the")
    several = "single" not in verb.uses and most(noun) > 1 and (tense != "now" or polarity == "yes")
    if "definite" not in verb.uses:
        indefinite = _indefinite_thing(draw, noun, verb, adjective, tense, polarity, several=several)
        if indefinite:
            return indefinite
    if verb.en == "buy" and "edible" in noun.classes:
        return Phrase(noun, "the", True, adjective)
    if verb.en in CREATING:
        return Phrase(noun, "the" if polarity == "no" and tense == "past" else "a", adjective=adjective)
    if noun.classes & OWNABLE and verb.en not in ACQUIRING and draw.chance(0.45):
        owner: Subject = name(draw) if draw.chance(0.2) else own if draw.chance(0.6) else draw.choose((ME, YOU))
        if pronoun_for(owner) == own:  # not "Sophie sold Sophie's car"
            owner = own
        alone = not pronoun_for(owner).plural and (pronoun_for(owner) != HE or "womenswear" not in noun.classes)
        if noun.classes & SHARED or alone:  # not "they are reading their book", nor "Paul is washing his skirt"
            return owned(noun, owner, adjective)
    if draw.chance(0.35) and verb.en != "hear":
        return Phrase(noun, "that" if draw.chance(0.3) else "this", several and draw.chance(0.2), adjective)
    if adjective and adjective.en in OPINIONS:
        return Phrase(noun, "this", adjective=adjective)
    return Phrase(noun, "the", several and draw.chance(0.25), adjective)


def _suitable_adjective(draw: Draw, noun: Noun, verb: Verb, polarity: Polarity) -> Adjective | None:
    """Choose an adjective that suits verb and polarity, or None: not "he isn't eating any fresh bread"."""
    adjective = adjective_for(draw, noun, 0.25)
    if adjective is None or (adjective.en in ("hot", "cold") and verb.en not in ("drink", "want")):
        return None
    if verb.en in ("wash", "need"):
        return adjective if adjective.zh_kind == "是" or (verb.en == "need" and adjective.en == "new") else None
    if polarity != "yes":
        return adjective if verb.en in ACQUIRING and adjective.en == "new" else None
    return None if verb.en in PLAIN or (verb.en in ACQUIRING and adjective.en in UNWANTED) else adjective


def most(noun: Noun) -> int:
    """Return the highest number of these things that a sentence mentions."""
    limits = [limit for name, limit in COUNTED.items() if name in noun.classes]
    return limits[0] if limits else 1 if noun.classes & UNCOUNTED else 3


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
    """Return "an apple", "three apples" or "a kilo of apples", or None if the object should be definite."""
    if polarity != "yes":
        return Phrase(noun, "a", several and draw.chance(0.3), adjective) if draw.chance(0.35) else None
    if verb.en == "buy" and draw.chance(0.15):
        measured = _measured(draw, noun, verb, tense)
        if measured:
            return measured
    if "count" in verb.uses and several and tense != "now" and draw.chance(0.2):
        high = most(noun) if verb.en == "buy" or "edible" not in noun.classes else 3  # nobody eats eight pears
        return Phrase(noun, "count", plural=True, count=draw.number(2, high))
    return Phrase(noun, "a", adjective=adjective) if draw.chance(0.45) else None


def owned(noun: Noun, owner: Subject, adjective: Adjective | None, *, plural: bool = False) -> Phrase:
    """Return "my new car" or "her red hat".

    An adjective that ends in 的 is left out: two 的 in a row are clumsy.
    """
    short = adjective and (len(adjective.zh_before) == 1 or adjective.zh_kind == "是")
    return Phrase(noun, "of", plural, adjective if short else None, owner)


def time_for(
    draw: Draw,
    tense: Tense,
    verb: Verb | None = None,
    *,
    far: bool = True,
    near: bool = False,
    goal: Place | None = None,
) -> Time:
    """Choose a time that suits tense and verb.

    `near` asks for a time within a day, `far` allows a distant one if the verb does. A `goal` with closing hours is not
    visited while it is closed.
    """
    kinds = goal.kinds if goal else verb.objects if verb else frozenset()
    closed = tuple(part for kind, parts in CLOSED.items() if kind in kinds for part in parts)
    always_far = verb is not None and "far" in verb.uses
    near = near and not always_far
    if verb is None or near or not (far and {"year", "far"} & verb.uses) or tense in ("habit", "now"):
        return draw.choose(_near_times(tense, verb, closed, near))
    if draw.chance(0.75):
        return draw.choose(_far_times(tense) if always_far else _open_times(tense, closed))
    if draw.chance(0.4) and not always_far:
        return date(draw)
    if tense == "past":
        units = ("month", "year") if always_far else ("day", "week", "month", "year")
        return Span(draw.number(2, 6), nouns()[draw.choose(units)], "ago")
    if verb.en in GOING:  # "write a novel in six days" would mean how long it takes
        return Span(draw.number(2, 6), nouns()[draw.choose(("day", "week", "month"))], "in")
    return draw.choose(_far_times(tense))


@cache
def _open_times(tense: Tense, closed: tuple[str, ...]) -> tuple[Word, ...]:
    return tuple(word for word in words_for(TIMES, tense) if not any(part in word.en for part in closed))


@cache
def _far_times(tense: Tense) -> tuple[Word, ...]:
    return tuple(word for word in words_for(TIMES, tense) if not {"near", "week"} & word.uses)


@cache
def _near_times(tense: Tense, verb: Verb | None, closed: tuple[str, ...], near: bool) -> tuple[Word, ...]:
    reach = {"near", "habit", "now"}
    if verb and {"week", "year"} & verb.uses and not near:
        reach.add("week")
    unfit = (*closed, *(UNFIT_TIMES.get(verb.en_tail or verb.en, ()) if verb else ()))
    return tuple(word for word in _open_times(tense, unfit) if reach & word.uses)


def date(draw: Draw) -> Date:
    """Choose a day of the year."""
    month = draw.number(0, 11)
    return Date(words(MONTHS)[month], draw.number(1, DAYS_OF_MONTH[month]))
