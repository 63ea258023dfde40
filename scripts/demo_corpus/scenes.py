"""How things are: moods, qualities, places, prices, ages, dates, the weather.

Each function draws one meaning of its kind; `grammar.py` says how many of each the corpus has.
"""

from dataclasses import replace
from functools import cache

from scripts.demo_corpus.adjectives import adjective, said_of
from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.choices import SHARED, adjective_for, date, most
from scripts.demo_corpus.lexicon import OFTEN, RELATIONS, SEASONS, TIMES, WEATHER, WEEKDAYS, places, words, words_for
from scripts.demo_corpus.meaning import (
    Act,
    Adjective,
    Age,
    Clause,
    Clock,
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
from scripts.demo_corpus.nouns import nouns, nouns_of
from scripts.demo_corpus.people import GROWN_UP, HE, ME, SHE, WE, YOU, YOUNG, couple, name, person, relative
from scripts.demo_corpus.sentences import clock, mood_of
from scripts.demo_corpus.verbs import ACTIVITIES, SCHEDULE, read_verbs

TOO = frozenset(
    {"big", "small", "old", "young", "long", "short", "expensive", "heavy", "difficult", "easy", "cold", "hot", "sweet"}
    | {"slow", "noisy", "wide", "dangerous", "tired", "busy", "shy", "lazy", "dirty"}
)
OWNABLE = frozenset({"goods", "small", "pet", "vehicle", "dwelling", "garden", "flat"})
SINGLE = frozenset({"unique", "flat", "dwelling", "garden"})
LASTING = "tired busy hungry thirsty sleepy worried"  # what one may be often, sometimes or always
PRAISE = ("kind", "clever", "polite")  # what one does not say of oneself
MEAL_HOURS = {"breakfast": (6, 7, 8, 9), "lunch": (1, 1, 2), "dinner": (6, 7, 8)}
HOURS = {
    "lesson": (8, 9, 10, 2, 3),
    "exam": (8, 9, 10, 2),
    "film": (3, 5, 7, 8),
    "open": (7, 8, 9, 10),
    "close": (5, 6, 7, 8),
}

# Relation | landmarks | what is found there.
SETTINGS = (
    ("on", "table", "small ware newspaper cat"),
    ("on", "bed sofa chair", "small newspaper cat"),
    ("under", "table bed sofa chair tree car", "pet ball bag"),
    ("in", "bag box suitcase", "key book phone pen camera wallet letter passport"),
    ("in", "fridge", "food edible milk beer wine water cake"),
    ("behind", "door sofa", "cat dog ball suitcase box bag"),
    ("behind", "house school", "bike ball car tree dog"),
    ("in front of", "house school station hotel museum bank", "car bike tree truck taxi"),
    ("next to", "bed window door sofa", "table chair lamp bag guitar"),
    ("near", "station school park river hospital hotel museum", "bank pharmacy restaurant bakery hotel shop library"),
)
ROOMS = {
    "garden": "table chair ball bike pet",
    "kitchen": "table chair pet",
    "living room": "sofa table chair lamp television guitar pet",
    "bedroom": "bed chair lamp television computer pet",
}
PRICES = (
    ("edible dish ware pen ball", 2, 12, 1),
    ("book umbrella lamp", 8, 30, 1),
    ("clothing accessory bag", 3, 20, 5),
)
SEASONAL = {"snow": ("in winter",), "cold": ("in winter",), "hot": ("in summer",)}


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
    if polarity == "yes" and word.en in LASTING.split() and word.zh_kind == "很" and draw.chance(0.4):
        return Clause(subject, Quality(word), "habit", "yes", question, often=draw.one(words(OFTEN)))
    time = words_for(TIMES, "present")[0] if draw.chance(0.25) else None
    return Clause(subject, quality, "habit", polarity, question, time=time)


def character(draw: Draw) -> Clause:
    """Thomas is funny. My teacher is not very polite."""
    word = draw.one(said_of(frozenset({"trait", "nation"})))
    polarity, question = mood_of(draw)
    subject = person(draw, first=not question)
    if (subject in (ME, WE) and word.en in PRAISE) or (subject == YOU and question and "trait" in word.predicates):
        subject = name(draw)
    return Clause(subject, Quality(word, degree_for(draw, word, polarity, question)), "habit", polarity, question)


def occupation(draw: Draw) -> Clause:
    """Her husband is a good dentist."""
    noun = draw.one(nouns_of("job"))
    polarity, question = mood_of(draw)
    subject = draw.who(ME, HE, SHE, YOU, name(draw), name(draw), relative(draw), couple(draw))
    if question and subject == ME:
        subject = YOU
    unlikely = {"elderly", "adult"} if noun.en == "student" else {"elderly"}
    if isinstance(subject, Phrase) and subject.noun.classes & unlikely:
        subject = name(draw)
    word = None
    praised = polarity == "yes" and subject not in (HE, SHE, ME, YOU)  # one says "c'est un bon …", not "il est"
    if praised and draw.chance(0.3):
        word = adjective("good")
    return Clause(subject, Profession(noun, word), "habit", polarity, question)


@cache
def _describable() -> tuple[Noun, ...]:
    """Not "fruit", which is one in English and many in French; nor "history", in French the word for a story too."""
    return tuple(noun for noun in nouns().values() if said_of(noun.classes) and noun.en not in ("fruit", "history"))


def quality(draw: Draw) -> Clause:
    """These bags are too expensive. The soup is hot."""
    noun = draw.one(_describable())
    word = draw.one([word for word in said_of(noun.classes) if (noun.en, word.en) != ("water", "delicious")])
    polarity, question = mood_of(draw)
    subject = _described_thing(draw, noun)
    if question and subject.owner == ME:  # one knows what one's own pen costs
        subject = replace(subject, owner=YOU)
    degree = degree_for(draw, word, polarity, question)
    if degree == "too" and noun.classes & {"animal", "building"}:
        degree = "very"
    return Clause(subject, Quality(word, degree), "habit", polarity, question)


def _described_thing(draw: Draw, noun: Noun) -> Phrase:
    if noun.classes & {"language", "science"}:
        return Phrase(noun, "generic")
    if noun.classes & {"fruits", "vegetables"}:
        return Phrase(noun, "the", plural=True)
    plural = "edible" in noun.classes or (not noun.mass and not noun.classes & SINGLE and draw.chance(0.2))
    if noun.classes & OWNABLE and draw.chance(0.45):
        return Phrase(noun, "of", plural and most(noun) > 1, owner=owner(draw, noun))
    if draw.chance(0.4):
        return Phrase(noun, "that" if draw.chance(0.3) else "this", plural)
    return Phrase(noun, "the", plural)


def owner(draw: Draw, noun: Noun) -> Subject:
    if "womenswear" in noun.classes:
        return draw.one((ME, YOU, SHE, SHE))
    if draw.chance(0.3):
        kin = relative(draw, draw.one((ME, ME, YOU, HE, SHE)), several=False, friends=False)
        child = kin.noun.classes & YOUNG and noun.classes & GROWN_UP
        return name(draw) if child or draw.chance(0.6) else kin  # not Anna's friend's car: 安娜的朋友的车
    return draw.one((ME, ME, YOU, HE, SHE, WE if noun.classes & SHARED else HE))


def _spot(draw: Draw) -> tuple[Where, Noun]:
    """A place near a landmark, and something that is found there."""
    if draw.chance(0.15):
        room = draw.one(tuple(ROOMS))
        return next(place for place in places("indoors") if place.en == f"the {room}"), draw.one(nouns_of(ROOMS[room]))
    relation, landmarks, things = draw.one(SETTINGS)
    landmark = draw.one(nouns_of(landmarks))
    thing = draw.one([noun for noun in nouns_of(things) if noun is not landmark])
    owned = landmark.classes & {"furniture", "small", "house"} and draw.chance(0.3)
    where = Phrase(landmark, "of", owner=draw.one((ME, YOU, HE, SHE))) if owned else Phrase(landmark, "the")
    return Near(next(word for word in words(RELATIONS) if word.en == relation), where), thing


def existence(draw: Draw) -> Existence:
    """There are three books on the table."""
    where, noun = _spot(draw)
    polarity, question = mood_of(draw)
    if noun.mass:
        return Existence(Phrase(noun, "a"), where, polarity, bool(question))
    if polarity == "no" or question:
        return Existence(Phrase(noun, "a", plural="edible" in noun.classes), where, polarity, bool(question))
    several = 4 if noun.classes & {"car", "bike", "tree"} else most(noun)
    if "building" not in noun.classes and several > 1 and draw.chance(0.5):
        return Existence(Phrase(noun, "count", plural=True, count=draw.number(2, several)), where)
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
    return Phrase(noun, "of", plural=noun.en == "key", owner=owner(draw, noun))


def whereabouts_asked(draw: Draw) -> Clause:
    """Where is the pharmacy?"""
    if draw.chance(0.3):
        return Clause(relative(draw) if draw.chance(0.6) else name(draw), Located(None), question="where")
    noun = draw.one(nouns_of("small building pet machine bike car"))
    return Clause(_located_thing(draw, noun), Located(None), question="where")


def presentation(draw: Draw) -> Presentation:
    """This is my umbrella. Are those your keys?"""
    noun = draw.one(nouns_of("goods small pet vehicle dwelling photo gift"))
    polarity, question = mood_of(draw)
    if draw.chance(0.7):
        plural = most(noun) > 1 and not noun.classes & {"ticket", "passport"} and draw.chance(0.3)
        what = Phrase(noun, "of", plural, owner=owner(draw, noun))
    else:
        what = Phrase(noun, "a", adjective=adjective_for(draw, noun, 0.5))
    return Presentation(what, draw.chance(0.3), polarity == "no", bool(question))


def age(draw: Draw) -> Clause:
    """My grandmother is eighty-two years old."""
    who = relative(draw)
    subject = draw.who(ME, HE, SHE, name(draw), name(draw), HE if who.plural else who)
    classes = subject.noun.classes if isinstance(subject, Phrase) else frozenset()
    if isinstance(subject, Phrase) and draw.chance(0.15):
        whose = YOU if subject.owner in (ME, WE) else subject.owner
        return Clause(replace(subject, owner=whose), Age(0), question="what")
    if classes & {"grandmother", "grandfather"}:
        return Clause(subject, Age(draw.number(65, 95)))
    low, high = (2, 20) if "child" in classes else (28, 60) if classes & {"adult", "owned"} else (8, 60)
    return Clause(subject, Age(draw.number(low, high)))


def price(draw: Draw) -> Price:
    """This hat costs twenty euros."""
    classes, low, high, step = draw.one(PRICES)
    noun = draw.one(nouns_of(classes))
    euros = 0 if draw.chance(0.2) else step * draw.number(low, high)
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
    hours = HOURS.get(act.en, HOURS.get(noun.en, ()))
    time = clock(draw, *hours)
    if hours and time.minute not in (0, 15, 30):  # nothing opens at twenty to nine
        time = Clock(time.hour, 0)
    return Clause(Phrase(noun, "the"), Act(act), "habit", time=time)


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
        season = draw.one([word for word in words(SEASONS) if word.en in SEASONAL.get(kind.en, (word.en,))])
        if "verb" in kind.uses:
            return Weather(kind, "habit", season, city)
        if kind.en in ("cold", "hot"):
            return Weather(kind, "now", season, city, question=bool(question))
    tense: Tense = draw.one(("now", "past", "future"))
    if tense == "now":
        time = words_for(TIMES, "present")[0] if draw.chance(0.6) or not city else None
    else:
        known = [word for word in words_for(TIMES, tense) if {"near", "week"} & word.uses]
        time = draw.one([word for word in known if kind.en != "sunny" or "night" not in word.en])
    return Weather(kind, tense, time, city, polarity == "no", bool(question))


def pain(draw: Draw) -> Pain:
    """My head hurts."""
    question = draw.chance(0.2)
    known = relative(draw, ME, several=False, friends=False)
    subject = YOU if question else draw.who(ME, ME, HE, SHE, name(draw), known)
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
        draw.one(nouns_of("pet book novel magazine coat shirt sweater hat car bike umbrella ball bag pen")),
    )
