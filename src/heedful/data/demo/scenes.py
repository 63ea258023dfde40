"""How things are: moods, qualities, places, comparisons, reasons, prices, ages, dates, the weather.

Each function draws one meaning of its kind; `grammar.py` says how many of each the corpus has.
"""

from functools import cache
from typing import Literal

from heedful.data.demo.adjectives import adjective, said_of
from heedful.data.demo.choices import (
    HE,
    ME,
    SHE,
    WE,
    YOU,
    Draw,
    adjective_for,
    couple,
    date,
    name,
    person,
    relative,
)
from heedful.data.demo.lexicon import OFTEN, RELATIONS, SEASONS, TIMES, WEATHER, WEEKDAYS, places, words, words_for
from heedful.data.demo.meaning import (
    Act,
    Adjective,
    Age,
    Clause,
    Comparison,
    Degree,
    Existence,
    HowMany,
    Located,
    Moment,
    Near,
    Noun,
    Pain,
    Phrase,
    Polarity,
    Presentation,
    Price,
    Profession,
    Quality,
    Question,
    Subject,
    Sum,
    Tense,
    Weather,
    Where,
)
from heedful.data.demo.nouns import nouns, nouns_of
from heedful.data.demo.sentences import clock, mood_of
from heedful.data.demo.verbs import ACTIVITIES, SCHEDULE, read_verbs

HOW: tuple[Literal["more", "less", "as"], ...] = ("more", "more", "less", "as")
TOO = frozenset(
    {"big", "small", "old", "young", "long", "short", "expensive", "heavy", "difficult", "easy", "cold", "hot", "sweet"}
    | {"slow", "noisy", "wide", "dangerous", "tired", "busy", "shy", "lazy", "dirty"}
)
OWNABLE = frozenset({"goods", "small", "pet", "vehicle", "house", "garden", "flat"})
SINGLE = frozenset({"unique", "flat", "house", "garden"})
MEAL_HOURS = {"breakfast": (6, 7, 8, 9), "lunch": (11, 1), "dinner": (6, 7, 8)}

# Relation | landmarks | what is found there.
SETTINGS = (
    ("on", "table bed sofa chair", "small ware cat newspaper"),
    ("under", "table bed sofa chair tree car", "pet ball bag box"),
    ("in", "bag box suitcase", "key book phone pen camera wallet letter passport"),
    ("in", "fridge", "food edible milk beer wine water cake"),
    ("behind", "door house school sofa", "pet bike ball suitcase box"),
    ("in front of", "house school station hotel museum bank", "car bike tree truck taxi"),
    ("next to", "bed window door sofa", "table chair lamp bag guitar"),
    ("near", "station school park river hospital hotel museum", "bank pharmacy restaurant bakery hotel shop library"),
)


def degree_for(draw: Draw, word: Adjective, polarity: Polarity, question: Question) -> Degree:
    if question or word.zh_kind != "很" or word.en in ("delicious", "new") or draw.chance(0.45):
        return ""
    return "too" if polarity == "yes" and word.en in TOO and draw.chance(0.4) else "very"


def feeling(draw: Draw) -> Clause:
    """Anna was very tired yesterday. Are you hungry?"""
    word = draw.one(said_of(frozenset({"mood"})))
    polarity, question = mood_of(draw)
    if word.en == "angry":  # 不生气 and 生气吗 would speak of a habit
        polarity, question = "yes", ""
    subject = person(draw, first=not question)
    quality = Quality(word, degree_for(draw, word, polarity, question))
    if draw.chance(0.25):
        return Clause(subject, quality, "past", polarity, question, time=draw.one(words_for(TIMES, "past")[:3]))
    if polarity == "yes" and word.zh_kind == "很" and draw.chance(0.25):
        return Clause(subject, Quality(word), "habit", "yes", question, often=draw.one(words(OFTEN)))
    time = words_for(TIMES, "present")[0] if draw.chance(0.25) else None
    return Clause(subject, quality, "habit", polarity, question, time=time)


def character(draw: Draw) -> Clause:
    """Thomas is funny. My teacher is not very polite."""
    word = draw.one(said_of(frozenset({"trait", "nation"})))
    polarity, question = mood_of(draw)
    subject = person(draw, first=not question)
    return Clause(subject, Quality(word, degree_for(draw, word, polarity, question)), "habit", polarity, question)


def occupation(draw: Draw) -> Clause:
    """Her husband is a good dentist."""
    noun = draw.one(nouns_of("job"))
    polarity, question = mood_of(draw)
    subject = draw.who(ME, HE, SHE, YOU, name(draw), name(draw), relative(draw), couple(draw))
    if question and subject == ME:
        subject = YOU
    word = None
    if polarity == "yes" and subject not in (HE, SHE) and draw.chance(0.3):  # not "il est un bon …" but "c'est"
        word = adjective(draw.one(("good", "young")))
    return Clause(subject, Profession(noun, word), "habit", polarity, question)


@cache
def _describable() -> tuple[Noun, ...]:
    return tuple(noun for noun in nouns().values() if said_of(noun.classes))


def quality(draw: Draw) -> Clause:
    """These bags are too expensive. The soup is hot."""
    noun = draw.one(_describable())
    word = draw.one(said_of(noun.classes))
    polarity, question = mood_of(draw)
    subject = _described_thing(draw, noun)
    return Clause(subject, Quality(word, degree_for(draw, word, polarity, question)), "habit", polarity, question)


def _described_thing(draw: Draw, noun: Noun) -> Phrase:
    if noun.classes & {"language", "science"}:
        return Phrase(noun, "generic")
    if noun.classes & {"fruits", "vegetables"}:
        return Phrase(noun, "the", plural=True)
    plural = not noun.mass and not noun.classes & SINGLE and draw.chance(0.2)
    if noun.classes & OWNABLE and draw.chance(0.45):
        return Phrase(noun, "of", plural, owner=owner(draw))
    if draw.chance(0.4):
        return Phrase(noun, "that" if draw.chance(0.3) else "this", plural)
    return Phrase(noun, "the", plural)


def owner(draw: Draw) -> Subject:
    if draw.chance(0.3):
        return name(draw) if draw.chance(0.6) else relative(draw)
    return draw.one((ME, ME, YOU, HE, SHE, WE))


def _spot(draw: Draw) -> tuple[Where, Noun]:
    """A place near a landmark, and something that is found there."""
    if draw.chance(0.15):
        return draw.one(places("indoors")), draw.one(nouns_of("furniture pet"))
    relation, landmarks, things = draw.one(SETTINGS)
    landmark = draw.one(nouns_of(landmarks))
    thing = draw.one([noun for noun in nouns_of(things) if noun is not landmark])
    owned = landmark.classes & {"furniture", "small", "house"} and draw.chance(0.3)
    where = Phrase(landmark, "of", owner=draw.one((ME, YOU, HE, SHE, WE))) if owned else Phrase(landmark, "the")
    return Near(next(word for word in words(RELATIONS) if word.en == relation), where), thing


def existence(draw: Draw) -> Existence:
    """There are three books on the table."""
    where, noun = _spot(draw)
    polarity, question = mood_of(draw)
    if noun.mass:
        return Existence(Phrase(noun, "a"), where, polarity, bool(question))
    if polarity == "no" or question:
        return Existence(Phrase(noun, "a", plural="edible" in noun.classes), where, polarity, bool(question))
    if "building" not in noun.classes and draw.chance(0.5):
        return Existence(Phrase(noun, "count", plural=True, count=draw.number(2, 8)), where)
    plural = "edible" in noun.classes
    return Existence(Phrase(noun, "a", plural, adjective_for(draw, noun, 0.3)), where)


def whereabouts(draw: Draw) -> Clause:
    """My keys are under the bed. Is Paul at home?"""
    polarity, question = mood_of(draw)
    if draw.chance(0.35):
        place = draw.one(places("indoors room home goal city"))
        return Clause(person(draw, first=not question), Located(place), "habit", polarity, question)
    where, noun = _spot(draw)
    thing = _located_thing(draw, noun)
    if isinstance(where, Near) and thing.determiner == "of":  # not "our rabbit is under his chair"
        where = Near(where.relation, Phrase(where.landmark.noun, "the"))
    return Clause(thing, Located(where), "habit", polarity, question)


def _located_thing(draw: Draw, noun: Noun) -> Phrase:
    if not noun.classes & OWNABLE or draw.chance(0.4):
        return Phrase(noun, "the", plural="edible" in noun.classes)
    return Phrase(noun, "of", plural=noun.en == "key", owner=owner(draw))


def whereabouts_asked(draw: Draw) -> Clause:
    """Where is the pharmacy?"""
    if draw.chance(0.3):
        return Clause(relative(draw) if draw.chance(0.6) else name(draw), Located(None), question="where")
    noun = draw.one(nouns_of("small building pet machine bike car"))
    return Clause(_located_thing(draw, noun), Located(None), question="where")


def comparison(draw: Draw) -> Comparison:
    """The train is faster than the bus."""
    how = draw.one(HOW)
    if draw.chance(0.5):
        word = draw.one(said_of(frozenset({"trait"})))
        first: Subject = person(draw, pronoun=False)
        second: Subject = name(draw) if draw.chance(0.5) else relative(draw, draw.one((ME, YOU)))
        return Comparison(first, relative(draw, WE) if first == second else second, word, how)
    group = draw.one(("animal", "carriage", "clothing", "edible", "machine", "furniture", "carried"))
    one, other = draw.shuffled([noun for noun in nouns_of(group) if noun.en != "animal"])[:2]
    word = draw.one([word for word in _comparable(one) if word.predicates & other.classes])
    if group == "animal" and draw.chance(0.4):
        return Comparison(Phrase(one, "generic", True), Phrase(other, "generic", True), word, how)
    return Comparison(Phrase(one, draw.one(("the", "this"))), Phrase(other, draw.one(("the", "that"))), word, how)


@cache
def _comparable(noun: Noun) -> tuple[Adjective, ...]:
    words = said_of(noun.classes)
    return tuple(
        word
        for word in words
        if word.zh_kind == "很" and not word.fr_avoir and word.en not in ("good", "new", "delicious")
    )


def presentation(draw: Draw) -> Presentation:
    """This is my umbrella. Are those your keys?"""
    noun = draw.one(nouns_of("goods small pet vehicle house photo gift"))
    polarity, question = mood_of(draw)
    if draw.chance(0.7):
        what = Phrase(noun, "of", draw.chance(0.25), owner=owner(draw))
    else:
        what = Phrase(noun, "a", adjective=adjective_for(draw, noun, 0.5))
    return Presentation(what, draw.chance(0.3), polarity == "no", bool(question))


def age(draw: Draw) -> Clause:
    """My grandmother is eighty-two years old."""
    who = relative(draw)
    subject = draw.who(ME, HE, SHE, name(draw), name(draw), HE if who.plural else who)
    classes = subject.noun.classes if isinstance(subject, Phrase) else frozenset()
    if isinstance(subject, Phrase) and draw.chance(0.15):
        return Clause(subject, Age(0), question="what")
    if classes & {"grandmother", "grandfather"}:
        return Clause(subject, Age(draw.number(65, 95)))
    low, high = (2, 20) if "child" in classes else (28, 60) if classes & {"adult", "owned"} else (8, 60)
    return Clause(subject, Age(draw.number(low, high)))


def price(draw: Draw) -> Price:
    """This hat costs twenty euros."""
    cheap = draw.chance(0.4)
    classes = "edible dish ware pen ball" if cheap else "clothing accessory ticket book bag lamp umbrella"
    noun = draw.one(nouns_of(classes))
    euros = 0 if draw.chance(0.2) else draw.number(2, 12) if cheap else 5 * draw.number(1, 20)
    if "edible" in noun.classes:
        return Price(Phrase(noun, "this", True), euros)
    return Price(Phrase(noun, draw.one(("this", "this", "the", "that")), draw.chance(0.15)), euros)


def timetable(draw: Draw) -> Clause:
    """The train leaves at half past eight. We have lunch at one o'clock."""
    if draw.chance(0.5):
        act = draw.one([act for act in read_verbs(ACTIVITIES) if act.en_tail in MEAL_HOURS])
        return Clause(person(draw), Act(act), "habit", time=clock(draw, *MEAL_HOURS[act.en_tail]))
    act = draw.one(read_verbs(SCHEDULE))
    noun = draw.one(nouns_of(" ".join(sorted(act.objects))))
    return Clause(Phrase(noun, "the"), Act(act), "habit", time=clock(draw))


def calendar(draw: Draw) -> Moment:
    """It is a quarter to nine. Today is Monday, May 3."""
    if draw.chance(0.3):
        return Moment(clock(draw), words(TIMES)[-1])
    if draw.chance(0.35):
        return Moment(date(draw), Phrase(nouns()["birthday"], "of", owner=draw.who(ME, YOU, HE, SHE, name(draw))))
    about = draw.one([word for word in words(TIMES) if word.en in ("today", "tomorrow")])
    return Moment(date(draw), about, draw.one(words(WEEKDAYS)) if draw.chance(0.6) else None)


def weather(draw: Draw) -> Weather:
    """It is going to rain in London tomorrow."""
    kind = draw.one(words(WEATHER))
    polarity, question = mood_of(draw)
    city = draw.one(places("city")) if draw.chance(0.75) else None
    if city and draw.chance(0.25):
        season = draw.one(words(SEASONS))
        if "verb" in kind.uses:
            return Weather(kind, "habit", season, city)
        if kind.en in ("cold", "hot"):
            return Weather(kind, "now", season, city, polarity == "no", bool(question))
    tense: Tense = draw.one(("now", "past", "future"))
    if tense == "now":
        time = words_for(TIMES, "present")[0] if draw.chance(0.6) or not city else None
    else:
        time = draw.one([word for word in words_for(TIMES, tense) if {"near", "week"} & word.uses])
    return Weather(kind, tense, time, city, polarity == "no", bool(question))


def pain(draw: Draw) -> Pain:
    """My head hurts."""
    question = draw.chance(0.2)
    subject = YOU if question else draw.who(ME, ME, HE, SHE, name(draw), relative(draw))
    return Pain(subject, draw.one(nouns_of("body")), question)


def total(draw: Draw) -> Sum:
    return Sum(draw.number(1, 20), draw.number(1, 20))


def how_many(draw: Draw) -> HowMany:
    """How many cats does Anna have?"""
    if draw.chance(0.3):
        return HowMany(draw.who(YOU, HE, SHE, name(draw)), draw.one(nouns_of("sibling offspring")))
    subject = draw.who(YOU, YOU, HE, SHE, name(draw), relative(draw))
    return HowMany(
        subject,
        draw.one(nouns_of("pet book novel magazine coat shirt sweater hat vehicle flower umbrella ball bag pen")),
    )
