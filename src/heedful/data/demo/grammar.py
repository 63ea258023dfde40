"""How much of what: the kinds of sentences, and the stock of meanings that every corpus is made from."""

from collections.abc import Callable
from functools import cache

from heedful.data.demo import reasons, scenes, sentences
from heedful.data.demo.ambiguity import names_your_job
from heedful.data.demo.choices import Draw
from heedful.data.demo.lexicon import VOCATIVES, words
from heedful.data.demo.meaning import Body, Clause, Listener, Order, Pronoun, Quality, Sentence
from heedful.data.demo.sayings import sayings

# How often each kind is drawn; what is drawn twice counts once.
KINDS: tuple[tuple[Callable[[Draw], Body], int], ...] = (
    (sentences.transitive, 7600),
    (sentences.activity, 2700),
    (sentences.modal, 2800),
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
    (scenes.comparison, 1000),
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
def stock() -> tuple[Sentence, ...]:
    """Every meaning that the corpus is made from, each once, always in the same order."""
    always: tuple[Body, ...] = (*sayings(), *reasons.notes())
    meanings = dict.fromkeys(Sentence(body) for body in always)
    for number, (kind, count) in enumerate(KINDS):
        draw = Draw(number)
        meanings.update(dict.fromkeys(_said(draw, kind(draw)) for _ in range(count)))
    return tuple(meanings)


def _said(draw: Draw, body: Body) -> Sentence:
    """Who speaks to whom. A form of address ("sir") settles how you is said in French and Chinese."""
    if _calls_for_address(body) and draw.chance(0.3):
        address = draw.one([word for word in words(VOCATIVES) if "polite" in word.uses or not names_your_job(body)])
        listener: Listener = "polite" if "polite" in address.uses else "group" if "group" in address.uses else "friend"
        return Sentence(body, listener=listener, listener_female="female" in address.uses, vocative=address)
    if draw.chance(0.06):
        return Sentence(body, speaker_female=True)
    if draw.chance(0.06):
        return Sentence(body, listener="polite" if draw.chance(0.5) or names_your_job(body) else "group")
    return Sentence(body)


def _calls_for_address(body: Body) -> bool:
    """An order, or a question to you; but nobody asks "are you kind, sir?"."""
    if isinstance(body, Clause) and body.subject == Pronoun(2) and body.question:
        return not (isinstance(body.predicate, Quality) and "trait" in body.predicate.adjective.predicates)
    return isinstance(body, Order)
