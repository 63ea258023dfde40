"""What a sentence says, apart from any language: words of the lexicon, phrases and clauses made of them.

A `Sentence` is rendered by `english.py`, `french.py` and `chinese.py`; nothing here knows how it will be said, except
the words themselves, which carry their form in each language. Words are compared by identity: each exists once.
"""

from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "fr", "zh"]
Tense = Literal["habit", "now", "past", "future"]  # a state ("knows", "is tired") is a habit
Polarity = Literal["yes", "no", "never"]
Question = Literal["", "yes-no", "where", "what", "when", "who", "why"]
Determiner = Literal["a", "the", "this", "that", "of", "count", "generic", "bare"]
Modal = Literal["", "want", "can", "must", "know", "like", "love"]
Degree = Literal["", "very", "too"]
Listener = Literal["friend", "polite", "group"]  # tu, vous, vous; 你, 您, 你们; "you" in English


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    en: str
    en_plural: str
    fr: str
    fr_plural: str
    feminine: bool  # the gender of the French noun
    fr_woman: tuple[str, str] | None  # its form for a woman: étudiante, étudiantes
    zh: str
    measure: str  # 本, 只, 个…: stands between a number (or 这, 那) and the noun
    classes: frozenset[str]

    @property
    def mass(self) -> bool:
        return "mass" in self.classes


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    en: str
    en_more: str  # "bigger", "more expensive"
    fr: tuple[str, str, str, str]  # masculine, feminine, and the plurals of the two
    fr_vowel: str  # before a masculine noun that begins with a vowel: bel, nouvel, vieil
    fr_before: bool  # un petit chat, but un chat noir
    fr_avoir: bool  # a noun that is said with avoir: avoir faim
    zh: str
    zh_before: str  # before a noun: 大, 漂亮的
    zh_kind: Literal["很", "是", "了", "着"]  # how it makes a predicate: 很大, 是红色的, 坏了, 开着
    describes: frozenset[str]  # noun classes that it may stand beside
    predicates: frozenset[str]  # noun classes of which it may be said


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    en: str
    en_s: str
    en_past: str
    en_ing: str
    en_tail: str  # "to" of "listen to", "football" of "play football"
    fr: str  # infinitive
    fr_tail: str  # "au football" of "jouer au football"
    fr_reflexive: bool
    zh: str  # {} the object, {to} the recipient, ~ the place of 了
    zh_now: str  # 穿着{}, where 在 will not do; else empty
    objects: frozenset[str]
    uses: frozenset[str]  # tenses, modals, "count": what sense and custom allow; see verbs.py


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    en: str
    en_at: str
    en_to: str
    fr: str  # with the article that stands after a preposition
    fr_at: str  # the prepositions
    fr_to: str
    fr_from: str
    zh: str
    zh_at: str
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """A word or set phrase with one form in each language: names, adverbs, times, relations, greetings."""

    en: str
    fr: str
    zh: str
    uses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Pronoun:
    person: Literal[1, 2, 3]
    plural: bool = False
    female: bool = False  # of "it": the gender of the French noun that it stands for
    thing: bool = False


@dataclass(frozen=True, slots=True)
class Phrase:
    noun: Noun
    determiner: Determiner
    plural: bool = False
    adjective: Adjective | None = None
    owner: "Subject | None" = None  # with determiner "of"
    count: int = 1  # with determiner "count"
    container: Noun | None = None  # a cup of, two kilos of
    woman: bool = False  # for nouns with `fr_woman`


@dataclass(frozen=True, slots=True)
class Name:
    word: Word

    @property
    def female(self) -> bool:
        return "female" in self.word.uses


@dataclass(frozen=True, slots=True)
class Pair:
    first: "Subject"
    second: "Subject"


Subject = Pronoun | Phrase | Name | Pair


@dataclass(frozen=True, slots=True)
class Near:
    """Where something is, seen from a landmark: under the table."""

    relation: Word
    landmark: Phrase


Where = Place | Near


@dataclass(frozen=True, slots=True)
class Span:
    """Two days ago; in two days; for two days."""

    count: int
    unit: Noun
    side: Literal["ago", "in", "for"]


@dataclass(frozen=True, slots=True)
class Date:
    month: Word
    day: int


@dataclass(frozen=True, slots=True)
class Clock:
    hour: int  # 1 … 12
    minute: int  # 0, 5, 10, 15, 20, 25, 30, 45, 50, 55


Time = Word | Span | Date | Clock


@dataclass(frozen=True, slots=True)
class Act:
    verb: Verb
    object: Subject | None = None
    recipient: Subject | None = None
    goal: Place | None = None  # to Paris, from school
    modal: Modal = ""


@dataclass(frozen=True, slots=True)
class Quality:
    adjective: Adjective
    degree: Degree = ""


@dataclass(frozen=True, slots=True)
class Profession:
    noun: Noun
    adjective: Adjective | None = None


@dataclass(frozen=True, slots=True)
class Located:
    where: Where | None  # None in "where is …?"


@dataclass(frozen=True, slots=True)
class Age:
    years: int


Predicate = Act | Quality | Profession | Located | Age


@dataclass(frozen=True, slots=True)
class Clause:
    subject: Subject
    predicate: Predicate
    tense: Tense = "habit"
    polarity: Polarity = "yes"
    question: Question = ""
    often: Word | None = None
    time: Time | None = None
    where: Where | None = None
    companion: Subject | None = None
    vehicle: Word | None = None  # by train


@dataclass(frozen=True, slots=True)
class Joined:
    """Two clauses and the word between them: because, but, and."""

    first: Clause
    link: Word
    second: Clause


@dataclass(frozen=True, slots=True)
class Order:
    act: Act
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Existence:
    """There is a cat under the table."""

    what: Phrase
    where: Where
    polarity: Polarity = "yes"
    question: bool = False


@dataclass(frozen=True, slots=True)
class Presentation:
    """This is my house."""

    what: Phrase
    far: bool = False
    negative: bool = False
    question: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    first: Subject
    second: Subject
    adjective: Adjective
    how: Literal["more", "less", "as"] = "more"


@dataclass(frozen=True, slots=True)
class Weather:
    kind: Word
    tense: Tense
    time: Word | None = None
    city: Place | None = None
    negative: bool = False
    question: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """It is half past eight. Today is Monday, May 3. My birthday is on May 3."""

    when: Clock | Date
    about: Word | Phrase
    weekday: Word | None = None


@dataclass(frozen=True, slots=True)
class Price:
    what: Phrase
    euros: int  # 0: how much does it cost?


@dataclass(frozen=True, slots=True)
class HowMany:
    subject: Subject
    noun: Noun


@dataclass(frozen=True, slots=True)
class Pain:
    subject: Subject
    part: Noun
    question: bool = False


@dataclass(frozen=True, slots=True)
class Sum:
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Saying:
    """A whole utterance that is said one way."""

    word: Word


Body = (
    Clause
    | Joined
    | Order
    | Existence
    | Presentation
    | Comparison
    | Weather
    | Moment
    | Price
    | HowMany
    | Pain
    | Sum
    | Saying
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """What is said, by whom and to whom: French agrees with both (je suis fatiguée, vous êtes seuls)."""

    body: Body
    speaker_female: bool = False
    listener: Listener = "friend"
    listener_female: bool = False
    vocative: Word | None = None
