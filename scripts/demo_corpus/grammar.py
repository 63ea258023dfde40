"""The kinds of sentences with the number of each, and all meanings that the corpora consist of."""

from collections.abc import Callable
from functools import cache

from scripts.demo_corpus import comparisons, modals, reasons, scenes, sentences
from scripts.demo_corpus.ambiguity import names_listeners_profession
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
from scripts.demo_corpus.set_phrases import set_phrases

ASKED_OF_STRANGERS = frozenset({"open", "close", "wait", "rest", "smoke", "answer", "help"})
PERSONAL = frozenset({"be", "live", "come", "have", "work", "know", "teach", "speak"})

# How many random meanings of each kind are generated; duplicates count once.
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
def all_meanings(scale: int = 1) -> tuple[Sentence, ...]:
    """Return every meaning that the corpus is made from, each once and always in the same order.

    `scale` multiplies the counts of `KINDS`.
    """
    always: tuple[Body, ...] = (*set_phrases(), *reasons.well_known_examples())
    meanings = dict.fromkeys(Sentence(body) for body in always)
    for number, (kind, count) in enumerate(KINDS):
        draw = Draw(number)
        meanings.update(dict.fromkeys(_with_speaker_and_listener(draw, kind(draw)) for _ in range(count * scale)))
    return tuple(meanings)


def _with_speaker_and_listener(draw: Draw, body: Body) -> Sentence:
    """Choose speaker and listener. A form of address ("sir") decides between tu and vous, 你 and 您."""
    addresses = _addresses(body)
    if addresses and draw.chance(0.3):
        address = draw.choose(addresses)
        listener: Listener = "polite" if "polite" in address.uses else "group" if "group" in address.uses else "friend"
        return Sentence(body, listener=listener, listener_female="female" in address.uses, vocative=address)
    if draw.chance(0.06):
        return Sentence(body, speaker_female=True)
    if draw.chance(0.06):
        return Sentence(body, listener="polite" if draw.chance(0.5) or not _suits_several_listeners(body) else "group")
    return Sentence(body)


def _addresses(body: Body) -> list[Word]:
    """Return the forms of address that suit an order or a question.

    A stranger is not asked "are you kind, sir?", nor one's mother "are you German, Mum?".
    """
    known = words(VOCATIVES)
    polite = [word for word in known if "polite" in word.uses]
    if not _suits_several_listeners(body):
        known = tuple(word for word in known if "group" not in word.uses)
    if isinstance(body, Order):
        if body.act.verb.en not in ASKED_OF_STRANGERS:
            return [] if _names_relative(body.act) else [word for word in known if word not in polite]
        return polite if _names_relative(body.act) else list(known)
    known = tuple(word for word in known if "female" in word.uses or not _names_womenswear(body))
    if not isinstance(body, Clause) or body.subject != Pronoun(2) or not body.question:
        return []
    if isinstance(body.predicate, Quality) and "trait" in body.predicate.adjective.predicates:
        return []
    if _asks_personal_question(body) or (isinstance(body.predicate, Act) and _names_relative(body.predicate)):
        return polite
    return list(known)


def _asks_personal_question(clause: Clause) -> bool:
    """Tell whether it asks for profession, nation, home or possessions, which one's own family is not asked."""
    match clause.predicate:
        case Profession():
            return True
        case Quality(adjective):
            return "nation" in adjective.predicates
        case Act(verb, modal=""):
            return verb.en in PERSONAL
    return False


def _names_relative(act: Act) -> bool:
    """Tell whether it names a relative of speaker or listener; a family uses first names instead."""
    ours = {Pronoun(1), Pronoun(2), Pronoun(1, plural=True)}
    people = [who for who in (act.object, act.recipient) if isinstance(who, Phrase)]
    return any(who.owner in ours and who.noun.classes & {"kin", "parents"} for who in people)


def _names_womenswear(body: Body) -> bool:
    """Tell whether the object is clothing for women."""
    act = body.predicate if isinstance(body, Clause) else None
    return isinstance(act, Act) and isinstance(act.object, Phrase) and "womenswear" in act.object.noun.classes


def _suits_several_listeners(body: Body) -> bool:
    """Tell whether several listeners, or children, may be addressed: not about a profession or a purchase."""
    act = body.predicate if isinstance(body, Clause) else body.act if isinstance(body, Order) else None
    if not isinstance(act, Act):
        return not names_listeners_profession(body)
    grown_up = isinstance(act.object, Phrase) and act.object.noun.classes & GROWN_UP
    return not grown_up and act.verb.en != "buy" and not act.verb.uses & {"single", "adult"}
