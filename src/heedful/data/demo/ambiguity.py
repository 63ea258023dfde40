"""What a sentence leaves open, and the other meanings that it may have.

English "you" is tu or vous, "they" is ils or elles; French "ce" is this or that and "son" his or her; Chinese leaves
number, articles and more to the hearer. Every translation of every such meaning is right; the corpus always has the
first of them, so that what a model learns does not contradict itself.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

from heedful.data.demo import chinese, english, french
from heedful.data.demo.choices import pronoun_for
from heedful.data.demo.meaning import (
    Act,
    Clause,
    Comparison,
    Determiner,
    Existence,
    HowMany,
    Joined,
    Language,
    Listener,
    Located,
    Moment,
    Near,
    Order,
    Pain,
    Pair,
    Phrase,
    Presentation,
    Price,
    Pronoun,
    Sentence,
)

RENDER: dict[Language, Callable[[Sentence], str]] = {
    "en": english.render,
    "fr": french.render,
    "zh": chinese.render,
}
LISTENERS: tuple[tuple[Listener, bool], ...] = (
    *(("friend", False), ("friend", True)),
    *(("polite", False), ("polite", True)),
    *(("group", False), ("group", True)),
)
FIXED_NUMBER = frozenset({"fruits", "vegetables", "parents", "edible"})
OWNERS = ("subject's owner", "owner")
Path = tuple[str, ...]

# Where in a meaning other meanings are: what a walk through it follows.
PARTS: dict[type, tuple[str, ...]] = {
    Sentence: ("body",),
    Clause: ("subject", "predicate", "where", "companion"),
    Joined: ("first", "second"),
    Order: ("act",),
    Existence: ("what", "where"),
    Presentation: ("what",),
    Comparison: ("first", "second"),
    Price: ("what",),
    HowMany: ("subject",),
    Pain: ("subject",),
    Moment: ("about",),
    Act: ("object", "recipient"),
    Located: ("where",),
    Near: ("landmark",),
    Phrase: ("owner",),
    Pair: ("first", "second"),
}


class Feature(NamedTuple):
    """Something that a language may leave open: what it is here, what it may be (preferred first), how to set it."""

    value: object
    options: tuple[Any, ...]
    set: Callable[[Sentence, Any], Sentence]


def canonical(meaning: Sentence, language: Language) -> Sentence:
    """The first of the meanings that are said as this one is."""
    render = RENDER[language]
    text = ""
    for feature in _features(meaning):
        for option in feature.options:
            if option == feature.value:
                break
            text = text or render(meaning)
            changed = feature.set(meaning, option)
            if render(changed) == text:
                meaning = changed
                break
    return meaning


def readings(meaning: Sentence, language: Language) -> Iterator[Sentence]:
    """Every meaning that is said as this one is."""
    render = RENDER[language]
    text = render(meaning)
    features = list(_features(meaning))
    fitting = [
        [option for option in feature.options if render(feature.set(meaning, option)) == text] for feature in features
    ]
    for choice in itertools.product(*fitting):
        reading = meaning
        for feature, option in zip(features, choice, strict=True):
            reading = feature.set(reading, option)
        if render(reading) == text:
            yield reading


def _features(meaning: Sentence) -> Iterator[Feature]:
    mentioned: set[tuple[Pronoun, str]] = set()
    _collect(meaning, "", mentioned)
    people = {(pronoun.person, pronoun.plural) for pronoun, _ in mentioned}
    if people & {(1, False), (1, True)}:
        yield Feature(meaning.speaker_female, (False, True), _set_speaker)
    if meaning.vocative is None and ((2, False) in people or isinstance(meaning.body, Order)):
        yield Feature((meaning.listener, meaning.listener_female), LISTENERS, _set_listener)
    if (3, True) in people:
        female = any(pronoun.female for pronoun, _ in mentioned if pronoun.plural and pronoun.person == 3)
        yield Feature(female, (False, True), _set_them)
    for role in OWNERS:
        owners = {pronoun.female for pronoun, place in mentioned if place == role and _is_he_or_she(pronoun)}
        if len(owners) == 1:
            first = role == "owner" and _subject_is_female(meaning)
            yield Feature(owners.pop(), (first, not first), _owner_setter(role))
    body = meaning.body
    if isinstance(body, Presentation):
        yield Feature(body.far, (False, True), lambda said, far: _put(said, ("body", "far"), far))
    for path, clause in _clauses(meaning):
        yield from _tense(path, clause)
    for path, phrase, determiners in _phrases(meaning):
        yield _phrase_feature(path, phrase, determiners)


def _set_speaker(said: Sentence, female: bool) -> Sentence:
    return replace(said, speaker_female=female)


def _set_listener(said: Sentence, listener: tuple[Listener, bool]) -> Sentence:
    return replace(said, listener=listener[0], listener_female=listener[1])


def _set_them(said: Sentence, female: bool) -> Sentence:
    """Ils or elles, 他们 or 她们, all through the sentence."""
    return _with_pronouns(said, lambda it, _: replace(it, female=female) if it.person == 3 and it.plural else it)


def _owner_setter(role: str) -> Callable[[Sentence, bool], Sentence]:
    """His or her: in the subject ("his mother"), or in what is said of it."""

    def put(said: Sentence, female: bool) -> Sentence:
        def turn(it: Pronoun, place: str) -> Pronoun:
            return replace(it, female=female) if place == role and _is_he_or_she(it) else it

        return _with_pronouns(said, turn)

    return put


def _with_pronouns(said: Sentence, change: Callable[[Pronoun, str], Pronoun]) -> Sentence:
    return cast("Sentence", _mapped(said, change))


def _is_he_or_she(pronoun: Pronoun) -> bool:
    return pronoun.person == 3 and not pronoun.plural and not pronoun.thing


def _subject_is_female(meaning: Sentence) -> bool:
    """Whose "son" is it? The subject's, where the subject is one person."""
    body = meaning.body.first if isinstance(meaning.body, Joined) else meaning.body
    if not isinstance(body, Clause):
        return False
    who = pronoun_for(body.subject)
    return _is_he_or_she(who) and who.female


def _collect(node: object, role: str, found: set[tuple[Pronoun, str]]) -> None:
    """Every pronoun of a meaning, and its place there."""
    if isinstance(node, Pronoun):
        found.add((node, role))
        return
    for name in PARTS.get(type(node), ()):
        part = getattr(node, name)
        if part is not None:
            _collect(part, _role(role, name), found)


def _mapped(node: Any, change: Callable[[Pronoun, str], Pronoun], role: str = "") -> Any:
    """The same meaning with every pronoun changed."""
    if isinstance(node, Pronoun):
        return change(node, role)
    names = PARTS.get(type(node), ())
    if not names:
        return node
    return replace(node, **{name: _mapped(getattr(node, name), change, _role(role, name)) for name in names})


def _role(inside: str, name: str) -> str:
    if name == "owner":
        return "subject's owner" if inside.startswith("subject") else "owner"
    return "subject" if inside == "subject" else name


def _clauses(meaning: Sentence) -> list[tuple[Path, Clause]]:
    body = meaning.body
    if isinstance(body, Joined):
        return [(("body", "first"), body.first), (("body", "second"), body.second)]
    return [(("body",), body)] if isinstance(body, Clause) else []


def _tense(path: Path, clause: Clause) -> Iterator[Feature]:
    """Il mange: he is eating, he eats."""
    act = clause.predicate
    if not isinstance(act, Act) or act.modal or clause.tense not in ("now", "habit") or clause.often or clause.time:
        return
    if {"now", "habit"} <= act.verb.uses:
        yield Feature(clause.tense, ("now", "habit"), lambda said, tense: _put(said, (*path, "tense"), tense))


def _phrases(meaning: Sentence) -> Iterator[tuple[Path, Phrase, tuple[Determiner, ...]]]:
    """The noun phrases whose number and determiner may be open, and the determiners that suit their place."""
    places: list[tuple[Path, object]] = []
    for path, clause in _clauses(meaning):
        places.append(((*path, "subject"), clause.subject))
        if isinstance(clause.predicate, Act):
            places.append(((*path, "predicate", "object"), clause.predicate.object))
    match meaning.body:
        case Order(act):
            places.append((("body", "act", "object"), act.object))
        case Comparison(first, second):
            places += [(("body", "first"), first), (("body", "second"), second)]
        case Existence(what) | Price(what):
            places.append((("body", "what"), what))
    for path, place in places:
        if isinstance(place, Phrase):
            yield path, place, _determiners(place, path[-1])


def _determiners(phrase: Phrase, role: str) -> tuple[Determiner, ...]:
    if phrase.determiner not in ("a", "the", "this", "that") or phrase.container:
        return (phrase.determiner,)
    if role == "what" and phrase.determiner == "a":
        return ("a",)
    if role != "object":
        return ("the", "this", "that")
    return ("a", "the", "this", "that") if phrase.noun.mass else ("the", "this", "that", "a")


def _phrase_feature(path: Path, phrase: Phrase, determiners: tuple[Determiner, ...]) -> Feature:
    fixed = phrase.noun.mass or phrase.container or phrase.noun.classes & FIXED_NUMBER
    counted = phrase.determiner in ("count", "generic", "bare")
    numbers = (phrase.plural,) if fixed or counted else (False, True)
    women = (False, True) if phrase.noun.fr_woman else (False,)
    options = tuple(itertools.product(determiners, numbers, women))

    def put(said: Sentence, option: tuple[Determiner, bool, bool]) -> Sentence:
        determiner, plural, woman = option
        phrase = replace(_at(said, path), determiner=determiner, plural=plural, woman=woman)
        return cast("Sentence", _put(said, path, phrase))

    return Feature((phrase.determiner, phrase.plural, phrase.woman), options, put)


def _at(node: Any, path: Path) -> Any:
    for name in path:
        node = getattr(node, name)
    return node


def _put(node: Any, path: Path, value: object) -> Any:
    if not path:
        return value
    return replace(node, **{path[0]: _put(getattr(node, path[0]), path[1:], value)})
