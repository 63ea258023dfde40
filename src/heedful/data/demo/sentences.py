"""What people do: eating, reading, buying, playing, travelling, giving, asking, ordering.

Each function draws one meaning of its kind; `grammar.py` says how many of each the corpus has.
"""

from heedful.data.demo.choices import (
    HE,
    ME,
    SHE,
    WE,
    YOU,
    Draw,
    animal,
    date,
    name,
    object_for,
    person,
    pronoun_for,
    relative,
    single,
    time_for,
)
from heedful.data.demo.lexicon import OFTEN, VEHICLES, places, words
from heedful.data.demo.meaning import (
    Act,
    Clause,
    Clock,
    Modal,
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
from heedful.data.demo.nouns import nouns, nouns_of
from heedful.data.demo.verbs import (
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
MODALS: tuple[Modal, ...] = ("want", "want", "can", "can", "must", "know", "like", "love")
SETTINGS = {"place": "study home", "outside": "outside", "water": "water", "meal": "meal", "country": "country"}


def mood_of(draw: Draw) -> tuple[Polarity, Question]:
    """Mostly a plain statement, sometimes a negation or a question."""
    if draw.chance(0.16):
        return "no", ""
    return "yes", "yes-no" if draw.chance(0.16) else ""


def tense_for(draw: Draw, act: Verb) -> Tense:
    return draw.one([tense for tense in TENSES if tense in act.uses])


def doer(draw: Draw, question: Question) -> Subject:
    return person(draw, first=not question)


def when(
    draw: Draw, tense: Tense, act: Verb, polarity: Polarity, *, far: bool = True
) -> tuple[Word | None, Time | None]:
    """An adverb of frequency, a time, or nothing."""
    if tense == "habit":
        if polarity != "yes":
            return None, None
        if draw.chance(0.5):
            return draw.one(words(OFTEN)), None
        return None, time_for(draw, tense, act)
    if (tense == "now" and draw.chance(0.9)) or (tense == "past" and draw.chance(0.3)):
        return None, None
    return None, time_for(draw, tense, act, far=far and polarity == "yes")  # not "in six months he isn't going to …"


def transitive(draw: Draw) -> Clause:
    """Paul bought three red apples yesterday."""
    act = draw.one(DYNAMIC)
    tense = tense_for(draw, act)
    polarity, question = mood_of(draw)
    if tense == "habit" and polarity == "no" and draw.chance(0.4):
        polarity = "never"
    subject = doer(draw, question)
    if "single" in act.uses:
        subject = YOU if question else single(draw)
    thing = object_for(draw, act, subject, tense=tense, polarity=polarity)
    if thing.noun.en in ("dress", "skirt") and act.en == "wear":
        subject = SHE
    often, time = when(draw, tense, act, polarity)
    return Clause(subject, Act(act, thing), tense, polarity, question, often, time)


def activity(draw: Draw) -> Clause:
    """My sister often plays football in the park with her friends."""
    act = draw.one(read_verbs(ACTIVITIES))
    polarity, question = mood_of(draw)
    if "animal" in act.uses and draw.chance(0.35):
        return Clause(animal(draw), Act(act), "now", polarity, question)
    tense = tense_for(draw, act)
    subject = doer(draw, question)
    often, time = when(draw, tense, act, polarity)
    if polarity == "no":
        return Clause(subject, Act(act), tense, polarity, question, often, time)
    where = place_for(draw, act) if draw.chance(0.4) else None
    companion = None
    if act.objects & {"outside", "meal"} and draw.chance(0.3):
        companion = relative(draw, pronoun_for(subject))
    return Clause(subject, Act(act), tense, polarity, question, often, time, where, companion)


def place_for(draw: Draw, act: Verb) -> Place | None:
    if act.en == "work":
        return draw.one(places("work home"))
    kinds = next((kinds for name, kinds in SETTINGS.items() if name in act.objects), "")
    return draw.one(places(kinds)) if kinds else None


def lasting(draw: Draw) -> Clause:
    """David slept for eight hours."""
    act = draw.one(verbs_for(ACTIVITIES, USES["t"]))
    unit, low, high = draw.one((("hour", 2, 10), ("hour", 2, 10), ("minute", 2, 10)))
    count = draw.number(low, high) * (5 if unit == "minute" else 1)
    return Clause(person(draw), Act(act), "past", time=Span(count, nouns()[unit], "for"))


def modal(draw: Draw) -> Clause:
    """Anna wants to read this book. Can you open the window?"""
    how = draw.one(MODALS)
    polarity, question = mood_of(draw)
    subject = doer(draw, question)
    if how in ("must", "love"):
        polarity, question = "yes", ""
    if how == "can" and draw.chance(0.5):
        polarity, question, subject = "yes", "yes-no", draw.one((YOU, YOU, ME, WE))
    act = _modal_act(draw, how, subject, polarity)
    time = None
    if how in ("want", "must") and polarity == "yes" and not question and draw.chance(0.3):
        time = time_for(draw, "future", act.verb)
    return Clause(subject, act, "habit", polarity, question, time=time)


def _modal_act(draw: Draw, how: Modal, subject: Subject, polarity: Polarity) -> Act:
    if how == "know":
        if draw.chance(0.3):
            return Act(verb(TRANSITIVE, "speak"), Phrase(draw.one(nouns_of("language")), "bare"), modal=how)
        return Act(draw.one(verbs_named(ACTIVITIES, "swim dance sing cook play")), modal=how)
    if how in ("like", "love"):
        return Act(draw.one(verbs_for(ACTIVITIES, "modal", "get smoke take rest")), modal=how)
    if draw.chance(0.35):
        return Act(draw.one(verbs_for(ACTIVITIES, "modal", "smoke")), modal=how)
    act = draw.one(verbs_for(TRANSITIVE, "modal", "speak"))
    return Act(act, object_for(draw, act, subject, tense="future", polarity=polarity), modal=how)


def state(draw: Draw) -> Clause:
    """Sophie likes cats. We need a new table. Do you know my neighbour?"""
    act = draw.one(verbs_for(TRANSITIVE, "state", "have"))
    if draw.chance(0.25):
        act = verb(TRANSITIVE, "like")
    polarity, question = mood_of(draw)
    if act.en == "love":
        polarity, question = "yes", ""
    subject = doer(draw, question)
    thing = object_for(draw, act, subject, tense="habit", polarity=polarity)
    return Clause(subject, Act(act, thing), "habit", polarity, question)


def having(draw: Draw) -> Clause:
    """My uncle has two dogs."""
    have = verb(TRANSITIVE, "have")
    polarity, question = mood_of(draw)
    subject = doer(draw, question)
    thing = object_for(draw, have, subject, tense="habit", polarity=polarity)
    if polarity == "no" or question:
        thing = Phrase(thing.noun, "a", adjective=thing.adjective)
    elif thing.determiner not in ("a", "count"):
        thing = Phrase(thing.noun, "count", plural=True, count=draw.number(2, 5))
    return Clause(subject, Act(have, thing), "habit", polarity, question)


def giving(draw: Draw) -> Clause:
    """Emma gave a flower to her grandmother."""
    act = draw.one(read_verbs(GIVING))
    tense = tense_for(draw, act)
    polarity, question = mood_of(draw)
    subject = doer(draw, question)
    thing = object_for(draw, act, subject, tense=tense, polarity=polarity)
    if thing.determiner == "of":
        thing = Phrase(thing.noun, "this", thing.plural, thing.adjective)
    receiver: Subject = name(draw) if draw.chance(0.3) else relative(draw, pronoun_for(subject))
    if receiver == subject:
        receiver = relative(draw, pronoun_for(subject))
    _, time = when(draw, tense, act, polarity)
    return Clause(subject, Act(act, thing, receiver), tense, polarity, question, time=time)


def motion(draw: Draw) -> Clause:
    """We are going to go to Paris by train next week."""
    act = verb(MOTION, "go") if draw.chance(0.6) else draw.one(verbs_named(MOTION, "arrive come")[:2])
    tense = tense_for(draw, act)
    polarity, question = mood_of(draw)
    abroad = tense != "habit" and draw.chance(0.4)
    goal = draw.one(places("city country" if abroad else "arrival" if act.en == "arrive" else "goal"))
    vehicle = None
    if act.en == "go" and draw.chance(0.35):
        train, bus, car, plane, bike, foot = words(VEHICLES)
        far = (plane,) if "country" in goal.kinds else (train, bus, car, plane)
        vehicle = draw.one(far if abroad else (bus, car, bike, foot))
    often, time = when(draw, tense, act, polarity, far=abroad)
    if act.en == "arrive" and draw.chance(0.4):
        time = clock(draw)
    subject = doer(draw, question)
    return Clause(subject, Act(act, goal=goal), tense, polarity, question, often, time, vehicle=vehicle)


def dwelling(draw: Draw) -> Clause:
    """Where people live, come from, were born and stay."""
    how = draw.one(("live", "come", "be", "birthday", "stay"))
    polarity, question = mood_of(draw)
    subject = doer(draw, question)
    if how == "birthday":
        born = read_verbs(MOTION)[-1]
        return Clause(draw.who(ME, HE, name(draw), name(draw), relative(draw, ME)), Act(born), "past", time=date(draw))
    if how == "stay":
        stay = verb(MOTION, "stay")
        tense = tense_for(draw, stay)
        goal = draw.one(places("stay city"))
        return Clause(subject, Act(stay, goal=goal), tense, polarity, question, time=time_for(draw, tense))
    goal = draw.one(places("city country"))
    if how == "be":
        return Clause(subject, Act(verb(MOTION, "be", "born"), goal=goal), "past", "yes", question)
    act = verb(MOTION, how, "from" if how == "come" else "")
    return Clause(subject, Act(act, goal=goal), "habit", polarity, question)


def asking(draw: Draw) -> Clause:
    """Who, what, when and why; where has its own."""
    question: Question = draw.one(("who", "what", "when", "why"))
    subject = doer(draw, question)
    if question == "who":
        act = draw.one(verbs_for(TRANSITIVE, "past", "lose find"))
        tense: Tense = draw.one([tense for tense in TENSES[1:] if tense in act.uses])
        return Clause(HE, Act(act, object_for(draw, act, YOU, tense=tense)), tense, question=question)
    if question == "what":
        act = verb(TRANSITIVE, draw.one(("eat", "drink", "read", "write", "draw", "make", "buy", "learn", "study")))
        tense = draw.one(("now", "past", "future"))
        time = time_for(draw, tense) if tense == "future" or (tense == "past" and draw.chance(0.5)) else None
        return Clause(subject, Act(act), tense, question=question, time=time)
    if question == "when":
        act = verb(MOTION, *draw.one((("go", ""), ("arrive", ""), ("come", "back from"))))
        tense = draw.one(("past", "future"))
        return Clause(subject, Act(act, goal=draw.one(places("arrival city"))), tense, question=question)
    act = draw.one(verbs_named(ACTIVITIES, "cry laugh sleep run work"))
    return Clause(subject, Act(act), "now", question=question)


def asking_where(draw: Draw) -> Clause:
    subject = doer(draw, "where")
    if draw.chance(0.25):
        return Clause(subject, Act(verb(MOTION, "live")), "habit", question="where")
    tense: Tense = draw.one(("past", "future"))
    act = verb(MOTION, "go") if draw.chance(0.4) else draw.one(verbs_named(ACTIVITIES, "work study swim have"))
    if act.en in ("work", "study") and draw.chance(0.5):
        return Clause(subject, Act(act), "habit", question="where")
    return Clause(subject, Act(act), tense, question="where", time=time_for(draw, tense, act))


def order(draw: Draw) -> Order:
    """Open the window, please. Don't buy any bread."""
    act = draw.one((*verbs_for(TRANSITIVE, "order"), *verbs_for(ACTIVITIES, "order")))
    negative = act.en == "smoke" or (act.en != "rest" and draw.chance(0.35))
    if act in read_verbs(ACTIVITIES):
        return Order(Act(act), negative)
    thing = object_for(draw, act, YOU, tense="future", polarity="no" if negative else "yes")
    if act.en in ("read", "look", "listen") and thing.determiner in ("a", "count"):  # one points at what to look at
        thing = Phrase(thing.noun, "this")
    return Order(Act(act, thing), negative)


def clock(draw: Draw, *hours: int) -> Clock:
    """A time of day, at one of these hours or at any."""
    hour = draw.one(hours) if hours else draw.number(1, 11)
    minutes = (0, 0, 5, 10, 15, 20, 30, 30, 40, 45, 50) if hour < 11 else (0, 10, 15, 20, 30)
    return Clock(hour, draw.one(minutes))
