"""The meaning of a sentence without its language: words of the lexicon, phrases and clauses.

`english.py`, `french.py` and `chinese.py` render a `Sentence`. Only the words carry their forms in each language.
Words are compared by identity: each exists once.
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
    """A noun with its forms in three languages and its classes, which decide where it may be used."""

    en: str
    en_plural: str
    fr: str
    fr_plural: str
    feminine: bool  # the gender of the French noun
    fr_woman: tuple[str, str] | None  # the form for a woman: étudiante, étudiantes
    zh: str
    measure: str  # the measure word between a number (or 这, 那) and the noun: 本, 只, 个
    classes: frozenset[str]

    @property
    def mass(self) -> bool:
        return "mass" in self.classes


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective with its forms in three languages and the noun classes that it goes with."""

    en: str
    en_more: str  # "bigger", "more expensive"
    fr: tuple[str, str, str, str]  # masculine, feminine, and both plurals
    fr_vowel: str  # before a masculine noun that begins with a vowel: bel, nouvel, vieil
    fr_before: bool  # un petit chat, but un chat noir
    fr_avoir: bool  # used with avoir, not être: avoir faim
    zh: str
    zh_before: str  # before a noun: 大, 漂亮的
    zh_kind: Literal["很", "是", "了", "着"]  # the form of its predicate: 很大, 是红色的, 坏了, 开着
    describes: frozenset[str]  # noun classes it may be used with
    predicates: frozenset[str]  # noun classes it may be a predicate of


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb with its forms in three languages, the classes of its objects and its uses."""

    en: str
    en_s: str
    en_past: str
    en_ing: str
    en_tail: str  # "to" of "listen to", "football" of "play football"
    fr: str  # infinitive
    fr_tail: str  # "au football" of "jouer au football"
    fr_reflexive: bool
    zh: str  # {} the object, {to} the recipient, ~ the place of 了
    zh_now: str  # the progressive if 在 is wrong, such as 穿着{}; else empty
    objects: frozenset[str]
    uses: frozenset[str]  # tenses, "modal", "count" and others; see verbs.py


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A place with its prepositions."""

    en: str
    en_at: str
    en_to: str
    fr: str  # with the article that follows a preposition
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
    """A personal pronoun."""

    person: Literal[1, 2, 3]
    plural: bool = False
    female: bool = False  # for "it", the gender of the French antecedent
    thing: bool = False


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun with determiner, number, adjective and owner: "my new car", "two cups of tea"."""

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
    """A first name."""

    word: Word

    @property
    def female(self) -> bool:
        return "female" in self.word.uses


@dataclass(frozen=True, slots=True)
class Pair:
    """Two people joined by "and"."""

    first: "Subject"
    second: "Subject"


Subject = Pronoun | Phrase | Name | Pair


@dataclass(frozen=True, slots=True)
class Near:
    """A location relative to a landmark: "under the table"."""

    relation: Word
    landmark: Phrase


Where = Place | Near


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time: "two days ago", "in two days", "for two days"."""

    count: int
    unit: Noun
    side: Literal["ago", "in", "for"]


@dataclass(frozen=True, slots=True)
class Date:
    """A day of a month."""

    month: Word
    day: int


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day."""

    hour: int  # 1 … 12
    minute: int  # 0, 5, 10, 15, 20, 25, 30, 45, 50, 55


Time = Word | Span | Date | Clock


@dataclass(frozen=True, slots=True)
class Act:
    """A verb with its objects, as the predicate of a clause or in an order."""

    verb: Verb
    object: Subject | None = None
    recipient: Subject | None = None
    goal: Place | None = None  # to Paris, from school
    modal: Modal = ""


@dataclass(frozen=True, slots=True)
class Quality:
    """An adjective as a predicate: "is very tired"."""

    adjective: Adjective
    degree: Degree = ""


@dataclass(frozen=True, slots=True)
class Profession:
    """A profession as a predicate: "is a good dentist"."""

    noun: Noun
    adjective: Adjective | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """A location as a predicate: "is under the bed"."""

    where: Where | None  # None in "where is …?"


@dataclass(frozen=True, slots=True)
class Age:
    """An age as a predicate: "is eight years old"; 0 years in a question."""

    years: int


Predicate = Act | Quality | Profession | Located | Age


@dataclass(frozen=True, slots=True)
class Clause:
    """A subject and a predicate, with tense, polarity, question and adverbials."""

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
    """Two clauses joined by because, but or and."""

    first: Clause
    link: Word
    second: Clause


@dataclass(frozen=True, slots=True)
class Order:
    """An imperative: "Open the window, please"."""

    act: Act
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Existence:
    """Something exists: "There is a cat under the table"."""

    what: Phrase
    where: Where
    polarity: Polarity = "yes"
    question: bool = False


@dataclass(frozen=True, slots=True)
class Presentation:
    """Something is presented: "This is my house"."""

    what: Phrase
    far: bool = False
    negative: bool = False
    question: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two things are compared: "The train is faster than the bus"."""

    first: Subject
    second: Subject
    adjective: Adjective
    how: Literal["more", "less", "as"] = "more"


@dataclass(frozen=True, slots=True)
class Weather:
    """The weather of a time and a city: "It is going to rain in London tomorrow"."""

    kind: Word
    tense: Tense
    time: Word | None = None
    city: Place | None = None
    negative: bool = False
    question: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A time or date: "It is half past eight.", "Today is Monday, May 3.", "My birthday is on May 3"."""

    when: Clock | Date
    about: Word | Phrase
    weekday: Word | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """The price of something: "This hat costs twenty euros"."""

    what: Phrase
    euros: int  # 0 in a question


@dataclass(frozen=True, slots=True)
class HowMany:
    """A question for a number: "How many cats does Anna have?"."""

    subject: Subject
    noun: Noun


@dataclass(frozen=True, slots=True)
class Pain:
    """A part of the body hurts: "My head hurts"."""

    subject: Subject
    part: Noun
    question: bool = False


@dataclass(frozen=True, slots=True)
class Sum:
    """An addition: "Two and three make five"."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class SetPhrase:
    """A set phrase: a whole sentence with one form in each language."""

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
    | SetPhrase
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A meaning with its speaker and listener: French agrees with both (je suis fatiguée, vous êtes seuls)."""

    body: Body
    speaker_female: bool = False
    listener: Listener = "friend"
    listener_female: bool = False
    vocative: Word | None = None
