"""French noun phrases: gender, number, elision, contraction, the position of the adjective; numbers."""

from typing import NamedTuple

from scripts.demo_corpus.meaning import Name, Pair, Phrase, Pronoun, Sentence, Subject

UNITS = (
    *("zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze", "treize"),
    *("quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf"),
)
TENS = ("", "", "vingt", "trente", "quarante", "cinquante", "soixante", "soixante", "quatre-vingt", "quatre-vingt")

# By person, as je, tu, il, nous, vous, ils: before a masculine, a feminine, a plural noun.
OWNERS = (
    ("mon", "ma", "mes"),
    ("ton", "ta", "tes"),
    ("son", "sa", "ses"),
    ("notre", "notre", "nos"),
    ("votre", "votre", "vos"),
    ("leur", "leur", "leurs"),
)
PRONOUNS = ("je", "tu", "il", "nous", "vous", "ils")
ELIDED = frozenset({"je", "me", "te", "se", "ne", "le", "la", "de", "que", "ce"})
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
VOWELS = frozenset("aeiouyhàâéèêëîïôûœAEIOUYHÉÈ")
WITHOUT_ELISION = frozenset({"huit", "onze"})


class Agreement(NamedTuple):
    """Person, gender and number that verbs and adjectives agree with."""

    person: int  # 0 … 5: je, tu, il, nous, vous, ils
    female: bool
    plural: bool


def agreement(subject: Subject, sentence: Sentence) -> Agreement:
    """Return what a verb or an adjective agrees with if this is its subject."""
    match subject:
        case Pronoun(1, plural):
            return Agreement(3 if plural else 0, sentence.speaker_female, plural)
        case Pronoun(2):
            return Agreement(
                1 if sentence.listener == "friend" else 4, sentence.listener_female, sentence.listener == "group"
            )
        case Pronoun(_, plural, female):
            return Agreement(5 if plural else 2, female, plural)
        case Name():
            return Agreement(2, subject.female, False)
        case Phrase(noun=noun, plural=plural):
            return Agreement(5 if plural else 2, noun.feminine or subject.woman, plural)
        case Pair(first, second):
            women = agreement(first, sentence).female and agreement(second, sentence).female
            return Agreement(5, women, True)


def glue(text: str) -> str:
    """Join words with elision and contraction: le homme, de le pain, à les amis -> l'homme, du pain, aux amis."""
    words = text.split()
    pieces: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in ELIDED and vowel_sound(following):
            word = word[:-1] + "'"
        elif pieces and (pieces[-1], word) in CONTRACTED:
            word = CONTRACTED[pieces.pop(), word]
        pieces.append(word)
    return " ".join(pieces).replace("' ", "'").replace(" ,", ",")


def vowel_sound(word: str) -> bool:
    """Tell whether a word before this one is elided."""
    return word[:1] in VOWELS and word not in WITHOUT_ELISION


def number(n: int, *, female: bool = False) -> str:
    """Spell a number from 0 to 100."""
    if n == 1 and female:
        return "une"
    if n < 20:
        return UNITS[n]
    if n == 100:
        return "cent"
    tens, units = divmod(n, 10)
    if tens in (7, 9):
        units += 10
    if units == 0:
        return "quatre-vingts" if tens == 8 else TENS[tens]
    if units in (1, 11) and tens < 8:
        return f"{TENS[tens]} et {UNITS[units]}"
    return f"{TENS[tens]}-{UNITS[units]}"


def phrase(what: Subject, sentence: Sentence, *, indefinite: str = "") -> str:
    """Render a subject or an object.

    `indefinite` replaces un, des and du: "de" after a negation, "none" after de.
    """
    match what:
        case Pronoun():
            person, female, _ = agreement(what, sentence)
            return PRONOUNS[person].replace("il", "elle") if female and person in (2, 5) else PRONOUNS[person]
        case Name(word):
            return word.fr
        case Pair(first, second):
            return f"{phrase(first, sentence)} et {phrase(second, sentence)}"
        case Phrase():
            return _noun_phrase(what, sentence, indefinite)


def _noun_phrase(what: Phrase, sentence: Sentence, indefinite: str) -> str:
    noun, plural = what.noun, what.plural
    female = noun.feminine or what.woman
    if what.container:
        female = what.container.feminine
        content = noun.fr if noun.mass else noun.fr_plural
        words = f"{what.container.fr_plural if plural else what.container.fr} de {content}"
    else:
        words = _with_adjective(what, female)
    match what.determiner:
        case "a":
            return f"{_indefinite(what, female, indefinite)} {words}"
        case "the" | "generic":
            return f"{_definite(female, plural)} {words}"
        case "this" | "that":
            return f"{'ces' if plural else 'cette' if female else 'cet' if vowel_sound(words) else 'ce'} {words}"
        case "of":
            return _owned(what, words, female, sentence)
        case "count":
            return f"{number(what.count, female=female)} {words}"
        case "bare":
            return words


def _with_adjective(what: Phrase, female: bool) -> str:
    noun, adjective = what.noun, what.adjective
    singular, plural = noun.fr_woman if what.woman and noun.fr_woman else (noun.fr, noun.fr_plural)
    word = plural if what.plural else singular
    if adjective is None:
        return word
    form = adjective.fr[female + 2 * what.plural]
    if not adjective.fr_before:
        return f"{word} {form}"
    if adjective.fr_vowel and not female and not what.plural and vowel_sound(word):
        form = adjective.fr_vowel
    return f"{form} {word}"


def _definite(female: bool, plural: bool) -> str:
    return "les" if plural else "la" if female else "le"


def _indefinite(what: Phrase, female: bool, replaced: str) -> str:
    mass = what.noun.mass and what.container is None
    if replaced == "de":
        return "de"
    if replaced == "none" and (mass or what.plural):
        return ""
    if mass:
        return f"de {_definite(female, False)}"
    if what.plural:  # de beaux livres, des livres noirs
        return "de" if what.adjective and what.adjective.fr_before else "des"
    return "une" if female else "un"


def _owned(what: Phrase, words: str, female: bool, sentence: Sentence) -> str:
    assert what.owner is not None
    if not isinstance(what.owner, Pronoun):
        return f"{_definite(female, what.plural)} {words} de {phrase(what.owner, sentence)}"
    forms = OWNERS[agreement(what.owner, sentence).person]
    if what.plural:
        return f"{forms[2]} {words}"
    return f"{forms[1 if female and not vowel_sound(words) else 0]} {words}"  # ma mère, but mon amie
