"""What a sentence leaves open, and the other meanings that it may have.

English "you" is tu or vous, "they" is ils or elles; French "ce" is this or that, "son" is his or her; Chinese often has
no number and no article. A translation of any of these meanings is right. The corpus always translates the first
meaning, so that its pairs do not contradict one another.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

from scripts.demo_corpus import chinese, english, french
from scripts.demo_corpus.meaning import (
    Act,
    Body,
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
    Profession,
    Pronoun,
    Sentence,
)
from scripts.demo_corpus.people import pronoun_for

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
POINTING: tuple[Determiner, ...] = ("the", "this", "that")
CE: tuple[Determiner, ...] = ("this", "that")
FIXED_NUMBER = frozenset({"fruits", "vegetables", "edible", "parents", "kin", "wife", "husband"})
OWNERS = ("subject's owner", "owner")
Path = tuple[str, ...]

# The attributes of a meaning that hold other meanings.
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
    """Something that a language may leave open: its value, the possible values (preferred first), a setter."""

    value: object
    options: tuple[Any, ...]
    set: Callable[[Sentence, Any], Sentence]


def canonical(meaning: Sentence, language: Language, text: str) -> Sentence:
    """Return the preferred one of the meanings that are rendered as this text."""
    render = RENDER[language]
    for feature in _features(meaning, language):
        for option in feature.options:
            if option == feature.value:
                break
            changed = feature.set(meaning, option)
            if render(changed) == text:
                meaning = changed
                break
    return meaning


def readings(meaning: Sentence, language: Language) -> Iterator[Sentence]:
    """Yield every meaning that is rendered as the same text."""
    render = RENDER[language]
    text = render(meaning)
    features = list(_features(meaning, language))
    possible = [
        [option for option in feature.options if render(feature.set(meaning, option)) == text] for feature in features
    ]
    for choice in itertools.product(*possible):
        reading = meaning
        for feature, option in zip(features, choice, strict=True):
            reading = feature.set(reading, option)
        if render(reading) == text:  # two options may exclude each other
            yield reading


def _features(meaning: Sentence, language: Language) -> Iterator[Feature]:
    """Yield what the sentence may leave open."""
    mentioned: set[tuple[Pronoun, str]] = set()
    _collect_pronouns(meaning, "", mentioned)
    people = {(pronoun.person, pronoun.plural) for pronoun, _ in mentioned}
    if people & {(1, False), (1, True)}:
        yield Feature(meaning.speaker_female, (False, True), _set_speaker)
    if meaning.vocative is None and ((2, False) in people or isinstance(meaning.body, Order)):
        listeners = LISTENERS[:4] if names_listeners_profession(meaning.body) else LISTENERS
        yield Feature((meaning.listener, meaning.listener_female), listeners, _set_listener)
    if (3, True) in people and not _are_named(meaning):
        female = any(pronoun.female for pronoun, _ in mentioned if pronoun.plural and pronoun.person == 3)
        yield Feature(female, (False, True), _set_them)
    for role in OWNERS:
        owners = {pronoun.female for pronoun, place in mentioned if place == role and _is_he_or_she(pronoun)}
        if len(owners) == 1:
            owned: set[str] = set()
            _collect_owned(meaning, "", role, owned)
            first = (role == "owner" and _subject_is_female(meaning)) or "womenswear" in owned or "husband" in owned
            both = not owned & {"husband", "wife"}
            yield Feature(owners.pop(), (first, not first) if both else (first,), _owner_setter(role))
    body = meaning.body
    if isinstance(body, Presentation):
        yield Feature(body.far, (False, True), lambda sentence, far: _replace_at(sentence, ("body", "far"), far))
    for path, clause in _clauses(meaning):
        yield from _tense(path, clause)
    yield from _phrases(meaning, language)


def _are_named(meaning: Sentence) -> bool:
    """Tell whether the subject shows who "they" are: "Anna and Sophie … because they were ill"."""
    body = meaning.body.first if isinstance(meaning.body, Joined) else meaning.body
    named = isinstance(body, Clause) and not isinstance(body.subject, Pronoun)
    return named and isinstance(body, Clause) and pronoun_for(body.subject).plural


def names_listeners_profession(body: Body) -> bool:
    """Tell whether it names the listener's profession: then "a lawyer" shows that "you" is one person."""
    return isinstance(body, Clause) and isinstance(body.predicate, Profession) and body.subject == Pronoun(2)


def _set_speaker(sentence: Sentence, female: bool) -> Sentence:
    return replace(sentence, speaker_female=female)


def _set_listener(sentence: Sentence, listener: tuple[Listener, bool]) -> Sentence:
    return replace(sentence, listener=listener[0], listener_female=listener[1])


def _set_them(sentence: Sentence, female: bool) -> Sentence:
    """Set the gender of "they" in the whole sentence: ils or elles, 他们 or 她们."""
    return _with_pronouns(sentence, lambda it, _: replace(it, female=female) if it.person == 3 and it.plural else it)


def _owner_setter(role: str) -> Callable[[Sentence, bool], Sentence]:
    """Return a setter of his or her, for the owner of the subject ("his mother") or for other owners."""

    def set_owner(sentence: Sentence, female: bool) -> Sentence:
        def change(pronoun: Pronoun, place: str) -> Pronoun:
            is_owner = place == role and _is_he_or_she(pronoun)
            return replace(pronoun, female=female) if is_owner else pronoun

        return _with_pronouns(sentence, change)

    return set_owner


def _with_pronouns(sentence: Sentence, change: Callable[[Pronoun, str], Pronoun]) -> Sentence:
    return cast("Sentence", _map_pronouns(sentence, change))


def _is_he_or_she(pronoun: Pronoun) -> bool:
    return pronoun.person == 3 and not pronoun.plural and not pronoun.thing


def _subject_is_female(meaning: Sentence) -> bool:
    """Tell whether the subject is one woman: then "son" is hers."""
    body = meaning.body.first if isinstance(meaning.body, Joined) else meaning.body
    if not isinstance(body, Clause):
        return False
    who = pronoun_for(body.subject)
    return _is_he_or_she(who) and who.female


def _collect_owned(node: object, inside: str, role: str, classes: set[str]) -> None:
    """Add the classes of all that the owner in this role has: ses robes are her dresses, son mari is her husband."""
    for name in PARTS.get(type(node), ()):
        part = getattr(node, name)
        if part is None:
            continue
        if name == "owner" and isinstance(node, Phrase) and isinstance(part, Pronoun) and _role(inside, name) == role:
            classes.update(node.noun.classes)
        _collect_owned(part, _role(inside, name), role, classes)


def _collect_pronouns(node: object, role: str, pronouns: set[tuple[Pronoun, str]]) -> None:
    """Add every pronoun of a meaning with its role."""
    if isinstance(node, Pronoun):
        pronouns.add((node, role))
        return
    for name in PARTS.get(type(node), ()):
        part = getattr(node, name)
        if part is not None:
            _collect_pronouns(part, _role(role, name), pronouns)


def _map_pronouns(node: Any, change: Callable[[Pronoun, str], Pronoun], role: str = "") -> Any:
    """Return the meaning with every pronoun changed."""
    if isinstance(node, Pronoun):
        return change(node, role)
    names = PARTS.get(type(node), ())
    if not names:
        return node
    return replace(node, **{name: _map_pronouns(getattr(node, name), change, _role(role, name)) for name in names})


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
    """Yield the tense if it is open: French "il mange" is "he is eating" or "he eats"."""
    act = clause.predicate
    if not isinstance(act, Act) or act.modal or clause.tense not in ("now", "habit") or clause.often or clause.time:
        return
    if clause.polarity == "never" or clause.question == "where":  # "never eats" and "où travaille-t-il" are habits
        return
    if {"now", "habit"} <= act.verb.uses:
        yield Feature(
            clause.tense, ("now", "habit"), lambda sentence, tense: _replace_at(sentence, (*path, "tense"), tense)
        )


def _phrases(meaning: Sentence, language: Language) -> Iterator[Feature]:
    """Yield number and determiner of the noun phrases in which they may be open."""
    for path, clause in _clauses(meaning):
        fixed = len(path) > 1  # the pronoun of the second clause shows the number
        yield from _phrase(clause.subject, (*path, "subject"), POINTING, language, fixed_number=fixed)
        if isinstance(clause.predicate, Act):
            determiners = POINTING if fixed else _object_determiners(clause.predicate)
            place = (*path, "predicate", "object")
            yield from _phrase(clause.predicate.object, place, determiners, language, fixed_number=fixed)
    match meaning.body:
        case Order(act):
            yield from _phrase(act.object, ("body", "act", "object"), _object_determiners(act), language)
        case Comparison(first, second):
            yield from _phrase(first, ("body", "first"), POINTING, language)
            yield from _phrase(second, ("body", "second"), POINTING, language)
        case Existence(what) | Price(what):
            yield from _phrase(what, ("body", "what"), POINTING, language)


def _object_determiners(act: Act) -> tuple[Determiner, ...]:
    if not isinstance(act.object, Phrase) or "definite" in act.verb.uses or "unique" in act.object.noun.classes:
        return POINTING
    return ("a", *POINTING) if act.object.noun.mass else (*POINTING, "a")


def _phrase(
    phrase: object, path: Path, determiners: tuple[Determiner, ...], language: Language, *, fixed_number: bool = False
) -> Iterator[Feature]:
    if not isinstance(phrase, Phrase):
        return
    noun = phrase.noun
    if language == "fr" and phrase.determiner in CE:
        determiners = CE
    elif language != "zh" or phrase.determiner not in determiners or phrase.container:
        determiners = (phrase.determiner,)
    shown = language == "fr" or (language == "en" and noun.en != noun.en_plural)
    fixed = fixed_number or shown or noun.mass or phrase.container or noun.classes & FIXED_NUMBER
    numbers = (phrase.plural,) if fixed or phrase.determiner in ("count", "generic", "bare") else (False, True)
    women = (False, True) if noun.fr_woman else (False,)

    def set_phrase(sentence: Sentence, option: tuple[Determiner, bool, bool]) -> Sentence:
        determiner, plural, woman = option
        before = _get_at(sentence, path)
        after = replace(before, determiner=determiner, plural=plural, woman=woman)
        if path[-1] == "subject":  # "the dentist and her neighbour": la dentiste, not le dentiste
            old, new = pronoun_for(before), pronoun_for(after)
            sentence = _with_pronouns(sentence, lambda it, place: new if it == old and place == "owner" else it)
        return cast("Sentence", _replace_at(sentence, path, after))

    options = tuple(itertools.product(determiners, numbers, women))
    yield Feature((phrase.determiner, phrase.plural, phrase.woman), options, set_phrase)


def _get_at(node: Any, path: Path) -> Any:
    for name in path:
        node = getattr(node, name)
    return node


def _replace_at(node: Any, path: Path, value: object) -> Any:
    if not path:
        return value
    return replace(node, **{path[0]: _replace_at(getattr(node, path[0]), path[1:], value)})
