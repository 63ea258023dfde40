"""The kind of a sentence: tense, polarity, what it asks, and how many clauses it has."""

from typing import NamedTuple

from scripts.demo_corpus.meaning import (
    Age,
    Clause,
    Comparison,
    Existence,
    HowMany,
    Joined,
    Moment,
    Order,
    Pain,
    Presentation,
    Price,
    Sentence,
    SetPhrase,
    Sum,
    Weather,
)

TENSES = {"habit": "present", "now": "progressive", "past": "past", "future": "future"}
POLARITIES = {"yes": "affirmative", "no": "negative", "never": "never"}


class Kind(NamedTuple):
    """The columns of the tables that describe a sentence."""

    tense: str  # present, progressive, past, future, imperative, or "" for a set phrase
    polarity: str  # affirmative, negative, never, or "" for a set phrase
    question: str  # yes-no, where, what, when, who, why, how old, how many, how much, or "" for no question
    clauses: int  # 0 for a set phrase


def kind_of(sentence: Sentence) -> Kind:
    """Describe a sentence; tense and polarity of two clauses are those of the first one."""
    match sentence.body:
        case SetPhrase(word):
            return Kind("", "", _question_word(word.en), 0)
        case Joined(first):
            return _clause_kind(first)._replace(clauses=2)
        case Clause() as clause:
            return _clause_kind(clause)
        case Order(negative=negative):
            return _kind("imperative", negative=negative)
        case Existence(polarity=polarity, question=question):
            return _kind(negative=polarity != "yes", question="yes-no" if question else "")
        case Presentation(negative=negative, question=question):
            return _kind(negative=negative, question="yes-no" if question else "")
        case Comparison(how=how):
            return _kind(negative=how == "less")  # English and Chinese use "not as … as" for "less"
        case Weather(kind, tense, negative=negative, question=question):
            is_state = "verb" not in kind.uses and tense == "now"  # it is cold; but it is raining
            named = "present" if is_state else TENSES[tense]
            return _kind(named, negative=negative, question="yes-no" if question else "")
        case Price(euros=euros):
            return _kind(question="" if euros else "how much")
        case HowMany():
            return _kind(question="how many")
        case Pain(question=question):
            return _kind(question="yes-no" if question else "")
        case Moment() | Sum():
            return _kind()


def _kind(tense: str = "present", *, negative: bool = False, question: str = "") -> Kind:
    return Kind(tense, "negative" if negative else "affirmative", question, 1)


def _clause_kind(clause: Clause) -> Kind:
    question = "how old" if isinstance(clause.predicate, Age) and clause.question else clause.question
    return Kind(TENSES[clause.tense], POLARITIES[clause.polarity], question, 1)


def _question_word(phrase: str) -> str:
    """Return the kind of question that a set phrase asks: "How old are you?" asks "how old"."""
    if not phrase.endswith("?"):
        return ""
    words = phrase.lower().split()
    if words[0] == "how":
        return " ".join(words[:2]) if words[1] in ("old", "much", "many") else "how"
    return words[0] if words[0] in ("where", "what", "when", "who", "why") else "yes-no"
