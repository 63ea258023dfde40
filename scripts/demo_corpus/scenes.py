"""Sentences about states: moods, qualities, places, prices, ages, dates, the weather.

Each function draws one meaning of its kind; `grammar.py` lists how many of each kind the corpus has.
"""

from dataclasses import replace
from functools import cache

from scripts.demo_corpus.adjectives import adjective, predicative
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
LASTING = "tired busy hungry thirsty sleepy worried"  # moods that may come often, sometimes or always
PRAISE = ("kind", "clever", "polite")  # not of oneself
MEAL_HOURS = {"breakfast": (6, 7, 8, 9), "lunch": (1, 1, 2), "dinner": (6, 7, 8)}
HOURS = {
    "lesson": (8, 9, 10, 2, 3),
    "exam": (8, 9, 10, 2),
    "film": (3, 5, 7, 8),
    "open": (7, 8, 9, 10),
    "close": (5, 6, 7, 8),
}

# Relation, landmarks, things that may be there.
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
    """Choose "very", "too" or no degree."""
    if question or word.zh_kind != "很" or word.en in ("delicious", "new") or draw.chance(0.45):
        return ""
    return "too" if polarity == "yes" and word.en in TOO and draw.chance(0.4) else "very"


def feeling(draw: Draw) -> Clause:
    """Draw a mood: "Anna was very tired yesterday.", "Are you hungry?"."""
    word = draw.choose(predicative(frozenset({"mood"})))
    polarity, question = mood_of(draw)
    if word.en == "angry":  # 不生气 and 生气吗 would mean a habit
        polarity, question = "yes", ""
    subject = person(draw, first=not question)
    quality = Quality(word, degree_for(draw, word, polarity, question))
    if draw.chance(0.25):
        return Clause(subject, quality, "past", polarity, question, time=draw.choose(words_for(TIMES, "past")[:3]))
    if polarity == "yes" and word.en in LASTING.split() and word.zh_kind == "很" and draw.chance(0.4):
        return Clause(subject, Quality(word), "habit", "yes", question, often=draw.choose(words(OFTEN)))
    time = words_for(TIMES, "present")[0] if draw.chance(0.25) else None
    return Clause(subject, quality, "habit", polarity, question, time=time)


def character(draw: Draw) -> Clause:
    """Draw a trait or a nationality: "Thomas is funny"."""
    word = draw.choose(predicative(frozenset({"trait", "nation"})))
    polarity, question = mood_of(draw)
    subject = person(draw, first=not question)
    if (subject in (ME, WE) and word.en in PRAISE) or (subject == YOU and question and "trait" in word.predicates):
        subject = name(draw)
    return Clause(subject, Quality(word, degree_for(draw, word, polarity, question)), "habit", polarity, question)


def occupation(draw: Draw) -> Clause:
    """Draw a profession: "Her husband is a good dentist"."""
    noun = draw.choose(nouns_of("job"))
    polarity, question = mood_of(draw)
    subject = draw.choose_subject(ME, HE, SHE, YOU, name(draw), name(draw), relative(draw), couple(draw))
    if question and subject == ME:
        subject = YOU
    unlikely = {"elderly", "adult"} if noun.en == "student" else {"elderly"}
    if isinstance(subject, Phrase) and subject.noun.classes & unlikely:
        subject = name(draw)
    word = None
    praised = polarity == "yes" and subject not in (HE, SHE, ME, YOU)  # "il est un bon …" is wrong in French
    if praised and draw.chance(0.3):
        word = adjective("good")
    return Clause(subject, Profession(noun, word), "habit", polarity, question)


@cache
def _describable() -> tuple[Noun, ...]:
    """Return the nouns that may be the subject of an adjective.

    Not "fruit", singular in English and plural in French; nor "history", in French the word for a story, too.
    """
    return tuple(noun for noun in nouns().values() if predicative(noun.classes) and noun.en not in ("fruit", "history"))


def quality(draw: Draw) -> Clause:
    """Draw a quality of a thing: "These bags are too expensive"."""
    noun = draw.choose(_describable())
    word = draw.choose([word for word in predicative(noun.classes) if (noun.en, word.en) != ("water", "delicious")])
    polarity, question = mood_of(draw)
    subject = _described_thing(draw, noun)
    if question and subject.owner == ME:  # one knows what one's own pen costs
        subject = replace(subject, owner=YOU)
    degree = degree_for(draw, word, polarity, question)
    if degree == "too" and noun.classes & {"animal", "building"}:
        degree = "very"
    return Clause(subject, Quality(word, degree), "habit", polarity, question)


def _described_thing(draw: Draw, noun: Noun) -> Phrase:
    """Return the noun as the subject of an adjective, with a determiner that suits it."""
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
    """Choose an owner for the thing."""
    if "womenswear" in noun.classes:
        return draw.choose((ME, YOU, SHE, SHE))
    if draw.chance(0.3):
        kin = relative(draw, draw.choose((ME, ME, YOU, HE, SHE)), several=False, friends=False)
        child = kin.noun.classes & YOUNG and noun.classes & GROWN_UP
        return name(draw) if child or draw.chance(0.6) else kin  # not Anna's friend's car: 安娜的朋友的车
    return draw.choose((ME, ME, YOU, HE, SHE, WE if noun.classes & SHARED else HE))


def _spot(draw: Draw) -> tuple[Where, Noun]:
    """Choose a place, and something that may be there."""
    if draw.chance(0.15):
        room = draw.choose(tuple(ROOMS))
        return next(place for place in places("indoors") if place.en == f"the {room}"), draw.choose(
            nouns_of(ROOMS[room])
        )
    relation, landmarks, things = draw.choose(SETTINGS)
    landmark = draw.choose(nouns_of(landmarks))
    thing = draw.choose([noun for noun in nouns_of(things) if noun is not landmark])
    owned = landmark.classes & {"furniture", "small", "house"} and draw.chance(0.3)
    where = Phrase(landmark, "of", owner=draw.choose((ME, YOU, HE, SHE))) if owned else Phrase(landmark, "the")
    return Near(next(word for word in words(RELATIONS) if word.en == relation), where), thing


def existence(draw: Draw) -> Existence:
    """Draw "There are three books on the table"."""
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
    """Draw a location: "My keys are under the bed.", "Is Paul at home?"."""
    polarity, question = mood_of(draw)
    if draw.chance(0.35):
        place = draw.choose(places("indoors room home goal city"))
        return Clause(person(draw, first=not question), Located(place), "habit", polarity, question)
    where, noun = _spot(draw)
    thing = _located_thing(draw, noun)
    if isinstance(where, Near) and thing.determiner == "of":  # not "our rabbit is under his chair"
        where = Near(where.relation, Phrase(where.landmark.noun, "the"))
    return Clause(thing, Located(where), "habit", polarity, question)


def _located_thing(draw: Draw, noun: Noun) -> Phrase:
    """Return the noun as the subject of a location."""
    if not noun.classes & OWNABLE or draw.chance(0.4):
        return Phrase(noun, "the", plural="edible" in noun.classes)
    return Phrase(noun, "of", plural=noun.en == "key", owner=owner(draw, noun))


def whereabouts_asked(draw: Draw) -> Clause:
    """Draw a question for a location: "Where is the pharmacy?"."""
    if draw.chance(0.3):
        return Clause(relative(draw) if draw.chance(0.6) else name(draw), Located(None), question="where")
    noun = draw.choose(nouns_of("small building pet machine bike car"))
    return Clause(_located_thing(draw, noun), Located(None), question="where")


def presentation(draw: Draw) -> Presentation:
    """Draw "This is my umbrella.", "Are those your keys?"."""
    noun = draw.choose(nouns_of("goods small pet vehicle dwelling photo gift"))
    polarity, question = mood_of(draw)
    if draw.chance(0.7):
        plural = most(noun) > 1 and not noun.classes & {"ticket", "passport"} and draw.chance(0.3)
        what = Phrase(noun, "of", plural, owner=owner(draw, noun))
    else:
        what = Phrase(noun, "a", adjective=adjective_for(draw, noun, 0.5))
    return Presentation(what, draw.chance(0.3), polarity == "no", bool(question))


def age(draw: Draw) -> Clause:
    """Draw an age: "My grandmother is eighty-two years old"."""
    who = relative(draw)
    subject = draw.choose_subject(ME, HE, SHE, name(draw), name(draw), HE if who.plural else who)
    classes = subject.noun.classes if isinstance(subject, Phrase) else frozenset()
    if isinstance(subject, Phrase) and draw.chance(0.15):
        whose = YOU if subject.owner in (ME, WE) else subject.owner
        return Clause(replace(subject, owner=whose), Age(0), question="what")
    if classes & {"grandmother", "grandfather"}:
        return Clause(subject, Age(draw.number(65, 95)))
    low, high = (2, 20) if "child" in classes else (28, 60) if classes & {"adult", "owned"} else (8, 60)
    return Clause(subject, Age(draw.number(low, high)))


def price(draw: Draw) -> Price:
    """Draw a price: "This hat costs twenty euros"."""
    classes, low, high, step = draw.choose(PRICES)
    noun = draw.choose(nouns_of(classes))
    euros = 0 if draw.chance(0.2) else step * draw.number(low, high)
    if "edible" in noun.classes:
        return Price(Phrase(noun, "this", True), euros)
    return Price(Phrase(noun, draw.choose(("this", "this", "the", "that")), draw.chance(0.15)), euros)


def timetable(draw: Draw) -> Clause:
    """Draw a daily time: "The train leaves at half past eight"."""
    if draw.chance(0.5):
        act = draw.choose([act for act in read_verbs(ACTIVITIES) if act.en_tail in MEAL_HOURS])
        return Clause(person(draw), Act(act), "habit", time=clock(draw, *MEAL_HOURS[act.en_tail]))
    act = draw.choose(read_verbs(SCHEDULE))
    noun = draw.choose(nouns_of(" ".join(sorted(act.objects))))
    hours = HOURS.get(act.en, HOURS.get(noun.en, ()))
    time = clock(draw, *hours)
    if hours and time.minute not in (0, 15, 30):  # nothing opens at twenty to nine
        time = Clock(time.hour, 0)
    return Clause(Phrase(noun, "the"), Act(act), "habit", time=time)


def calendar(draw: Draw) -> Moment:
    """Draw a time or a date: "It is a quarter to nine.", "Today is Monday, May 3"."""
    if draw.chance(0.3):
        return Moment(clock(draw), words(TIMES)[-1])
    if draw.chance(0.35):
        return Moment(
            date(draw), Phrase(nouns()["birthday"], "of", owner=draw.choose_subject(ME, YOU, HE, SHE, name(draw)))
        )
    about = draw.choose([word for word in words(TIMES) if word.en in ("today", "tomorrow")])
    return Moment(date(draw), about, draw.choose(words(WEEKDAYS)) if draw.chance(0.6) else None)


def weather(draw: Draw) -> Weather:
    """Draw the weather: "It is going to rain in London tomorrow"."""
    kind = draw.choose(words(WEATHER))
    polarity, question = mood_of(draw)
    city = draw.choose(places("city")) if draw.chance(0.75) else None
    if city and draw.chance(0.25):
        season = draw.choose([word for word in words(SEASONS) if word.en in SEASONAL.get(kind.en, (word.en,))])
        if "verb" in kind.uses:
            return Weather(kind, "habit", season, city)
        if kind.en in ("cold", "hot"):
            return Weather(kind, "now", season, city, question=bool(question))
    tense: Tense = draw.choose(("now", "past", "future"))
    if tense == "now":
        time = words_for(TIMES, "present")[0] if draw.chance(0.6) or not city else None
    else:
        known = [word for word in words_for(TIMES, tense) if {"near", "week"} & word.uses]
        time = draw.choose([word for word in known if kind.en != "sunny" or "night" not in word.en])
    return Weather(kind, tense, time, city, polarity == "no", bool(question))


def pain(draw: Draw) -> Pain:
    """Draw "My head hurts"."""
    question = draw.chance(0.2)
    known = relative(draw, ME, several=False, friends=False)
    subject = YOU if question else draw.choose_subject(ME, ME, HE, SHE, name(draw), known)
    return Pain(subject, draw.choose(nouns_of("body")), question)


def total(draw: Draw) -> Sum:
    """Draw "Two and three make five"."""
    return Sum(draw.number(1, 20), draw.number(1, 20))


def how_many(draw: Draw) -> HowMany:
    """Draw "How many cats does Anna have?"."""
    if draw.chance(0.3):
        return HowMany(draw.choose_subject(YOU, HE, SHE, name(draw)), draw.choose(nouns_of("sibling offspring")))
    subject = draw.choose_subject(YOU, YOU, HE, SHE, name(draw), relative(draw))
    return HowMany(
        subject,
        draw.choose(nouns_of("pet book novel magazine coat shirt sweater hat car bike umbrella ball bag pen")),
    )
