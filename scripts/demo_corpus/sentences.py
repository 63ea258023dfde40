"""Sentences about actions: eating, reading, buying, playing, travelling, giving, asking, ordering.

Each function draws one meaning of its kind; `grammar.py` lists how many of each kind the corpus has.
"""

from dataclasses import replace
from typing import NamedTuple

from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.choices import CREATING, SHARED, animal, date, most, object_for, time_for
from scripts.demo_corpus.lexicon import OFTEN, VEHICLES, places, words, words_for
from scripts.demo_corpus.meaning import (
    Act,
    Clause,
    Clock,
    Order,
    Phrase,
    Place,
    Polarity,
    Question,
    Span,
    Subject,
    Tense,
    Time,
    Verb,
    Word,
)
from scripts.demo_corpus.nouns import nouns
from scripts.demo_corpus.people import (
    HE,
    ME,
    SHE,
    YOU,
    name,
    person,
    pronoun_for,
    related,
    relative,
    single,
    suitable_subject,
    wearer,
)
from scripts.demo_corpus.verbs import (
    ACTIVITIES,
    GIVING,
    MOTION,
    TRANSITIVE,
    USES,
    read_verbs,
    verb,
    verbs_for,
    verbs_named,
)

DYNAMIC = tuple(act for act in read_verbs(TRANSITIVE) if "state" not in act.uses)
TENSES: tuple[Tense, ...] = ("habit", "now", "past", "future")

SEVERAL = frozenset({"flower", "photo", "book", "novel", "magazine", "letter", "email", "gift"})  # given in any number
OCCASIONS = frozenset({"for a walk", "a shower", "lunch", "dinner"})


class Frame(NamedTuple):
    """Subject, tense, polarity and question of a clause."""

    subject: Subject
    tense: Tense
    polarity: Polarity
    question: Question


def mood_of(draw: Draw) -> tuple[Polarity, Question]:
    """Choose a plain statement most of the time, sometimes a negation or a question."""
    if draw.chance(0.16):
        return "no", ""
    return "yes", "yes-no" if draw.chance(0.16) else ""


def tense_for(draw: Draw, act: Verb) -> Tense:
    """Choose a tense that the verb has."""
    return draw.choose([tense for tense in TENSES if tense in act.uses])


def frame_for(draw: Draw, act: Verb) -> Frame:
    """Choose a frame that suits the verb."""
    tense = tense_for(draw, act)
    polarity, question = mood_of(draw)
    subject = suitable_subject(draw, doer(draw, question), act)
    if subject == YOU and tense == "future":  # not "you are going to close the window"
        polarity, question = "yes", "yes-no"
    return Frame(subject, tense, polarity, question)


def doer(draw: Draw, question: Question) -> Subject:
    """Choose a subject; in a question, not the speaker."""
    return person(draw, first=not question)


def when(
    draw: Draw,
    tense: Tense,
    act: Verb,
    polarity: Polarity,
    *,
    far: bool = True,
    goal: Place | None = None,
) -> tuple[Word | None, Time | None]:
    """Choose an adverb of frequency, a time, or neither."""
    if tense == "habit":
        if polarity != "yes":
            return None, None
        if draw.chance(0.5):
            return draw.choose(words_for(OFTEN, "now-and-then")), None
        return None, time_for(draw, tense, act, goal=goal)
    if (tense == "now" and draw.chance(0.9)) or (tense == "past" and draw.chance(0.3)):
        return None, None
    far = far and polarity == "yes"  # not "in six months he isn't going to …"
    near = polarity != "yes" and "year" not in act.uses
    return None, time_for(draw, tense, act, far=far or "far" in act.uses, near=near, goal=goal)


def transitive(draw: Draw) -> Clause:
    """Draw a clause with an object: "Paul bought three red apples yesterday"."""
    act = draw.choose(DYNAMIC)
    subject, tense, polarity, question = frame_for(draw, act)
    if act.en in ("lose", "break"):  # "she didn't lose her hat last Saturday" is no news
        polarity = "yes"
    if act.en == "drive":  # neither denied nor asked: it is obvious
        polarity, question = "yes", ""
    if tense == "habit" and polarity == "no" and draw.chance(0.4):
        polarity = "never"
    if "single" in act.uses:
        subject = YOU if question else suitable_subject(draw, single(draw), act)
    thing = object_for(draw, act, subject, tense=tense, polarity=polarity)
    if question and thing.determiner == "count":  # not "did you eat two pears?"
        thing = Phrase(thing.noun, "a")
    if thing.noun.en in ("dress", "skirt") and act.en == "wear":
        subject = SHE
        thing = replace(thing, owner=SHE) if thing.determiner == "of" else thing
    if act.en == "choose":
        subject = wearer(subject, thing)
    often, time = when(draw, tense, act, polarity)
    if act.en == "drink" and "wine" in thing.noun.classes and isinstance(time, Word) and "morning" in time.en:
        often, time = (words(OFTEN)[0], None) if tense == "habit" else (None, None)  # nobody has beer for breakfast
    if often and thing.determiner == "a" and not thing.noun.mass and not thing.container:  # often eats sandwiches
        thing = replace(thing, plural=True)
    return Clause(suitable_subject(draw, subject, act, thing), Act(act, thing), tense, polarity, question, often, time)


def activity(draw: Draw) -> Clause:
    """Draw a clause without an object: "My sister often plays football in the park with her friends"."""
    act = draw.choose(read_verbs(ACTIVITIES))
    if "animal" in act.uses and draw.chance(0.35):
        polarity, question = mood_of(draw)
        return Clause(animal(draw), Act(act), "now", polarity, question)
    subject, tense, polarity, question = frame_for(draw, act)
    if tense == "habit" and act.en_tail in OCCASIONS:
        polarity = "yes"  # "she doesn't take a shower" would mean now
    # "He often works" needs a place ("at home"), and "he is going to have lunch" is no news.
    bare = (tense == "habit" and act.en in ("work", "study")) or (tense != "now" and act.en == "have")
    where = place_for(draw, act) if act.en == "travel" or bare or draw.chance(0.4) else None
    if polarity == "no" and act.en != "travel":
        where = None
    often, time = when(draw, tense, act, polarity, goal=where)
    if often and act.en_tail == "a shower":  # people shower every day
        often, time = None, time_for(draw, tense, act)
    if tense == "past" and not time and not where and ("lasting" in act.uses or act.en == "smoke"):  # when or where?
        time = time_for(draw, tense, act)
    if polarity == "no":
        return Clause(subject, Act(act), tense, polarity, question, often, time, where)
    if where and often and draw.chance(0.3):
        often = words(OFTEN)[-1]
    companion = None
    if "company" in act.uses and draw.chance(0.3):
        companion = related(draw, subject)
        if "vigorous" in act.uses and ("elderly" in companion.noun.classes or (where and "school" in where.kinds)):
            companion = Phrase(nouns()["friend"], "of", plural=True, owner=companion.owner)
    return Clause(subject, Act(act), tense, polarity, question, often, time, where, companion)


def place_for(draw: Draw, act: Verb) -> Place | None:
    """Choose a place for an activity, or None if it has none."""
    known = places(" ".join(sorted(act.objects)))
    return draw.choose(known) if known else None


def lasting(draw: Draw) -> Clause:
    """Draw a duration: "David slept for eight hours"."""
    act = draw.choose(verbs_for(ACTIVITIES, USES["t"]))
    unit, low, high = draw.choose((("hour", 2, 10), ("hour", 2, 10), ("minute", 2, 10)))
    count = draw.number(low, high) * (5 if unit == "minute" else 1)
    return Clause(suitable_subject(draw, person(draw), act), Act(act), "past", time=Span(count, nouns()[unit], "for"))


def state(draw: Draw) -> Clause:
    """Draw a state: "Sophie likes cats.", "We need a new table"."""
    act = draw.choose(verbs_for(TRANSITIVE, "state", "have"))
    if draw.chance(0.25):
        act = verb(TRANSITIVE, "like")
    polarity, question = mood_of(draw)
    if act.en == "love":
        polarity, question = "yes", ""
    subject = suitable_subject(draw, doer(draw, question), act)
    thing = object_for(draw, act, subject, tense="habit", polarity=polarity)
    if question and thing.determiner == "count":
        thing = Phrase(thing.noun, "a", container=thing.container)
    subject = suitable_subject(draw, subject, act, thing)
    if act.en in ("need", "want"):
        if subject == YOU and polarity == "yes":
            question = "yes-no"
        subject = wearer(_one_each(draw, subject, thing), thing)
    return Clause(subject, Act(act, thing), "habit", polarity, question)


def having(draw: Draw) -> Clause:
    """Draw a possession: "My uncle has two dogs"."""
    have = verb(TRANSITIVE, "have")
    polarity, question = mood_of(draw)
    subject = doer(draw, question)
    thing = object_for(draw, have, subject, tense="habit", polarity=polarity)
    if polarity == "no" or question:
        thing = Phrase(thing.noun, "a", adjective=thing.adjective)
    elif thing.determiner not in ("a", "count"):
        several = most(thing.noun) > 1
        thing = Phrase(thing.noun, "count" if several else "a", several, count=draw.number(2, 3) if several else 1)
    subject = wearer(_one_each(draw, suitable_subject(draw, subject, have, thing), thing), thing)
    return Clause(subject, Act(have, thing), "habit", polarity, question)


def _one_each(draw: Draw, subject: Subject, thing: Phrase) -> Subject:
    """Return the subject, or one person if each needs a thing alone: not "the singers need a ticket"."""
    personal = thing.determiner == "a" and not thing.plural and not thing.noun.mass and not thing.noun.classes & SHARED
    if isinstance(subject, Phrase) and thing.noun.classes & {"sibling", "offspring"}:
        personal = True  # not "the students have a brother" either
    return name(draw) if personal and pronoun_for(subject).plural else subject


def giving(draw: Draw) -> Clause:
    """Draw a clause with a recipient: "Emma gave a flower to her grandmother"."""
    act = draw.choose(read_verbs(GIVING))
    subject, tense, polarity, question = frame_for(draw, act)
    thing = object_for(draw, act, subject, tense=tense, polarity=polarity)
    if thing.determiner == "count" and thing.noun.en not in SEVERAL:
        thing = Phrase(thing.noun, "a")
    if thing.determiner in ("of", "this", "that", "the"):
        thing = Phrase(thing.noun, "this" if thing.determiner == "of" else thing.determiner, adjective=thing.adjective)
    receiver: Subject = name(draw) if draw.chance(0.3) else related(draw, subject)
    if receiver == subject or (isinstance(subject, Phrase) and receiver == subject.owner):
        receiver = related(draw, subject)
    if isinstance(receiver, Phrase) and receiver.plural and thing.noun.classes & {"clothing", "accessory"}:
        thing = Phrase(nouns()["gift"], "a" if polarity == "yes" else "the")  # several people do not get one coat
    _, time = when(draw, tense, act, polarity)
    return Clause(subject, Act(act, thing, receiver), tense, polarity, question, time=time)


def motion(draw: Draw) -> Clause:
    """Draw a clause with a goal: "We are going to go to Paris by train next week"."""
    act = verb(MOTION, "go") if draw.chance(0.6) else draw.choose(verbs_named(MOTION, "arrive come")[:2])
    subject, tense, polarity, question = frame_for(draw, act)
    missing = act.en == "come" and polarity == "no"  # "she didn't come back from the bakery" would be odd
    abroad = tense != "habit" and (missing or draw.chance(0.4))
    goal = draw.choose(places("city country" if abroad else _nearby(act, tense, polarity)))
    if "university" in goal.kinds and isinstance(subject, Phrase) and "child-noun" in subject.noun.classes:
        goal = places("school")[0]
    vehicle = None
    if act.en == "go" and draw.chance(0.35):
        train, bus, car, plane, bike, foot = words(VEHICLES)
        far = (plane,) if "country" in goal.kinds else (train, bus, car, plane)
        near = (bus, car) if "airport" in goal.kinds else (bus, car, bike, foot)
        vehicle = draw.choose(far if abroad else near)
    often, time = when(draw, tense, act, polarity, far=abroad, goal=goal)
    if often and not vehicle and "daily" in goal.kinds:  # not "he sometimes goes to school"
        often, time = None, time_for(draw, tense, act, goal=goal)
    if often and vehicle and draw.chance(0.4):
        often = words(OFTEN)[-1]
    if act.en == "come" and not abroad and time:
        time = time_for(draw, tense, goal=goal)
    on_time = act.en == "arrive" and tense == "past" and polarity == "yes" and not question
    if on_time and "country" not in goal.kinds and draw.chance(0.5):
        time = clock(draw)
    if "office" in goal.kinds or (vehicle and vehicle.en == "by car"):  # Chinese 开车 means driving oneself
        subject = suitable_subject(draw, subject, verb(TRANSITIVE, "drive"))
    return Clause(subject, Act(act, goal=goal), tense, polarity, question, often, time, vehicle=vehicle)


def _nearby(act: Verb, tense: Tense, polarity: Polarity) -> str:
    """Return the kinds of places in town that one goes to, arrives at or comes back from."""
    if act.en == "arrive":
        return "destination" if tense == "future" else "arrival"
    if act.en == "go" and tense == "habit":
        return "regular" if polarity == "yes" else "daily"  # "he doesn't go to school" is news
    return "goal"


def dwelling(draw: Draw) -> Clause:
    """Draw where a person lives, comes from, was born or stays."""
    how = draw.choose(("live", "come", "be", "birthday", "stay"))
    polarity, question = mood_of(draw)
    subject = doer(draw, question)
    if how == "birthday":
        born = read_verbs(MOTION)[-1]
        who = draw.choose_subject(ME, HE, name(draw), name(draw), relative(draw, ME, several=False))
        return Clause(who, Act(born), "past", time=date(draw))
    if how == "stay":
        stay = verb(MOTION, "stay")
        subject, tense, polarity, question = frame_for(draw, stay)
        goal = draw.choose(places("stay city"))
        return Clause(subject, Act(stay, goal=goal), tense, polarity, question, time=time_for(draw, tense, stay))
    goal = draw.choose(places("city country"))
    if how == "be":
        return Clause(subject, Act(verb(MOTION, "be", "born"), goal=goal), "past", "yes", question)
    act = verb(MOTION, how, "from" if how == "come" else "")
    return Clause(subject, Act(act, goal=goal), "habit", polarity, question)


def asking(draw: Draw) -> Clause:
    """Draw a question with who, what, when or why; `asking_where` is for where."""
    question: Question = draw.choose(("who", "what", "when", "why"))
    subject = doer(draw, question)
    if question == "who":
        act = draw.choose(verbs_for(TRANSITIVE, "past", "lose find look sell"))
        tense: Tense = draw.choose([tense for tense in TENSES[1:] if tense in act.uses])
        thing = object_for(draw, act, YOU, tense=tense)
        if thing.determiner in ("a", "count") and (act.en not in CREATING or tense == "past"):
            thing = Phrase(
                thing.noun, "the" if thing.noun.mass or thing.noun.classes & {"fruits", "vegetables"} else "this"
            )
        if thing.determiner == "count":
            thing = Phrase(thing.noun, "a")
        return Clause(HE, Act(act, thing), tense, question=question)
    if question == "what":
        act = verb(TRANSITIVE, draw.choose(("eat", "drink", "read", "write", "draw", "buy", "learn", "study")))
        tense = draw.choose(("now", "past", "future"))
        time = time_for(draw, tense) if tense == "future" or (tense == "past" and draw.chance(0.5)) else None
        return Clause(subject, Act(act), tense, question=question, time=time)
    if question == "when":
        act = verb(MOTION, *draw.choose((("go", ""), ("arrive", ""), ("come", "back from"))))
        tense = draw.choose(("past", "future"))
        return Clause(subject, Act(act, goal=draw.choose(places("arrival city"))), tense, question=question)
    act = draw.choose(verbs_named(ACTIVITIES, "cry laugh sleep run work"))
    return Clause(suitable_subject(draw, subject, act), Act(act), "now", question=question)


def asking_where(draw: Draw) -> Clause:
    """Draw a question with where: "Where did they work last week?"."""
    subject = doer(draw, "where")
    if draw.chance(0.25):
        return Clause(subject, Act(verb(MOTION, "live")), "habit", question="where")
    tense: Tense = draw.choose(("past", "future"))
    act = verb(MOTION, "go") if draw.chance(0.4) else draw.choose(verbs_named(ACTIVITIES, "work study swim have"))
    if act.en in ("work", "study") and draw.chance(0.5):
        return Clause(suitable_subject(draw, subject, act), Act(act), "habit", question="where")
    subject = suitable_subject(draw, subject, act)
    return Clause(subject, Act(act), tense, question="where", time=time_for(draw, tense, act))


def order(draw: Draw) -> Order:
    """Draw an order: "Open the window, please.", "Don't buy any bread"."""
    act = draw.choose((*verbs_for(TRANSITIVE, "order"), *verbs_for(ACTIVITIES, "order")))
    negative = act.en == "smoke" or (act.en not in ("rest", "help") and draw.chance(0.35))
    if act in read_verbs(ACTIVITIES):
        return Order(Act(act), negative)
    thing = object_for(draw, act, YOU, tense="future", polarity="no" if negative else "yes")
    if act.en in ("read", "watch", "look", "listen", "sing") and thing.determiner in ("a", "count"):  # point at it
        thing = Phrase(thing.noun, "this")
    return Order(Act(act, thing), negative)


def clock(draw: Draw, *hours: int) -> Clock:
    """Choose a time of day, at one of these hours if any are given."""
    hour = draw.choose(hours) if hours else draw.number(1, 11)
    minutes = (0, 0, 5, 10, 15, 20, 30, 30, 40, 45, 50) if hour < 11 else (0, 10, 15, 20, 30)
    return Clock(hour, draw.choose(minutes))
