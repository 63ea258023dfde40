"""How much of what: the kinds of sentences, and the stock of meanings that every corpus is made from."""

from collections.abc import Callable
from functools import cache

from scripts.demo_corpus import comparisons, modals, reasons, scenes, sentences
from scripts.demo_corpus.ambiguity import names_your_job
from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.lexicon import VOCATIVES, words
from scripts.demo_corpus.meaning import (
    Act,
    Body,
    Clause,
    Listener,
    Order,
    Phrase,
    Profession,
    Pronoun,
    Quality,
    Sentence,
    Word,
)
from scripts.demo_corpus.people import GROWN_UP
from scripts.demo_corpus.sayings import sayings

ASKED_OF_STRANGERS = frozenset({"open", "close", "wait", "rest", "smoke", "answer", "help"})
PERSONAL = frozenset({"be", "live", "come", "have", "work", "know", "teach", "speak"})

# How often each kind is drawn; what is drawn twice counts once.
KINDS: tuple[tuple[Callable[[Draw], Body], int], ...] = (
    (sentences.transitive, 8200),
    (sentences.activity, 2700),
    (modals.modal, 2800),
    (sentences.state, 1800),
    (sentences.having, 1000),
    (sentences.giving, 1100),
    (sentences.motion, 2100),
    (sentences.dwelling, 800),
    (sentences.lasting, 350),
    (sentences.asking, 1300),
    (sentences.asking_where, 450),
    (sentences.order, 850),
    (scenes.feeling, 1900),
    (scenes.character, 1100),
    (scenes.occupation, 800),
    (scenes.quality, 3300),
    (scenes.existence, 1300),
    (scenes.whereabouts, 1300),
    (scenes.whereabouts_asked, 220),
    (comparisons.comparison, 1000),
    (scenes.presentation, 600),
    (scenes.age, 800),
    (scenes.price, 600),
    (scenes.timetable, 650),
    (scenes.calendar, 800),
    (scenes.weather, 700),
    (scenes.pain, 180),
    (scenes.total, 220),
    (scenes.how_many, 260),
    (reasons.crossing, 800),
    (reasons.refusal, 500),
    (reasons.absence, 350),
    (reasons.emotion, 350),
    (reasons.contrast, 600),
    (reasons.two_scenes, 420),
)


@cache
def stock(scale: int = 1) -> tuple[Sentence, ...]:
    """Return every meaning that the corpus is made from, each once and always in the same order.

    `scale` multiplies the counts of `KINDS`.
    """
    always: tuple[Body, ...] = (*sayings(), *reasons.notes())
    meanings = dict.fromkeys(Sentence(body) for body in always)
    for number, (kind, count) in enumerate(KINDS):
        draw = Draw(number)
        meanings.update(dict.fromkeys(_said(draw, kind(draw)) for _ in range(count * scale)))
    return tuple(meanings)


def _said(draw: Draw, body: Body) -> Sentence:
    """Who speaks to whom. A form of address ("sir") settles how you is said in French and Chinese."""
    addresses = _addresses(body)
    if addresses and draw.chance(0.3):
        address = draw.one(addresses)
        listener: Listener = "polite" if "polite" in address.uses else "group" if "group" in address.uses else "friend"
        return Sentence(body, listener=listener, listener_female="female" in address.uses, vocative=address)
    if draw.chance(0.06):
        return Sentence(body, speaker_female=True)
    if draw.chance(0.06):
        return Sentence(body, listener="polite" if draw.chance(0.5) or not _said_to_several(body) else "group")
    return Sentence(body)


def _addresses(body: Body) -> list[Word]:
    """Whom an order or a question may be addressed to: nobody asks "are you kind, sir?" or "are you German, Mum?"."""
    known = words(VOCATIVES)
    polite = [word for word in known if "polite" in word.uses]
    if not _said_to_several(body):
        known = tuple(word for word in known if "group" not in word.uses)
    if isinstance(body, Order):
        if body.act.verb.en not in ASKED_OF_STRANGERS:
            return [] if _names_our_family(body.act) else [word for word in known if word not in polite]
        return polite if _names_our_family(body.act) else list(known)
    known = tuple(word for word in known if "female" in word.uses or not _names_your_dress(body))
    if not isinstance(body, Clause) or body.subject != Pronoun(2) or not body.question:
        return []
    if isinstance(body.predicate, Quality) and "trait" in body.predicate.adjective.predicates:
        return []
    if _asks_who_you_are(body) or (isinstance(body.predicate, Act) and _names_our_family(body.predicate)):
        return polite
    return list(known)


def _asks_who_you_are(clause: Clause) -> bool:
    """What one's own mother and children are not asked: trade, nation, home, what and whom they have."""
    match clause.predicate:
        case Profession():
            return True
        case Quality(adjective):
            return "nation" in adjective.predicates
        case Act(verb, modal=""):
            return verb.en in PERSONAL
    return False


def _names_our_family(act: Act) -> bool:
    """My mother, your uncle: one's own mother and children are theirs too, and would be told a name."""
    ours = {Pronoun(1), Pronoun(2), Pronoun(1, plural=True)}
    people = [who for who in (act.object, act.recipient) if isinstance(who, Phrase)]
    return any(who.owner in ours and who.noun.classes & {"kin", "parents"} for who in people)


def _names_your_dress(body: Body) -> bool:
    act = body.predicate if isinstance(body, Clause) else None
    return isinstance(act, Act) and isinstance(act.object, Phrase) and "womenswear" in act.object.noun.classes


def _said_to_several(body: Body) -> bool:
    """Whether it may be said to several people, to children too: a job is one person's, and so is a coat."""
    act = body.predicate if isinstance(body, Clause) else body.act if isinstance(body, Order) else None
    if not isinstance(act, Act):
        return not names_your_job(body)
    grown_up = isinstance(act.object, Phrase) and act.object.noun.classes & GROWN_UP
    return not grown_up and act.verb.en != "buy" and not act.verb.uses & {"single", "adult"}
