"""The grammar of the demo corpus: rules for every sentence, and sentences with known translations."""

import re
from collections import Counter

import pytest

from scripts.demo_corpus import chinese, english, french, french_phrases
from scripts.demo_corpus.adjectives import adjective
from scripts.demo_corpus.conjugation import conjugate
from scripts.demo_corpus.grammar import all_meanings
from scripts.demo_corpus.lexicon import MONTHS, NAMES, RELATIONS, VOCATIVES, words
from scripts.demo_corpus.meaning import (
    Act,
    Adjective,
    Age,
    Clause,
    Clock,
    Date,
    Existence,
    Moment,
    Name,
    Near,
    Noun,
    Order,
    Phrase,
    Profession,
    Quality,
    Sentence,
    SetPhrase,
)
from scripts.demo_corpus.nouns import nouns
from scripts.demo_corpus.people import HE, ME, SHE, THEY, WOMEN, YOU
from scripts.demo_corpus.verbs import ACTIVITIES, TRANSITIVE, read_verbs, verb

VOWEL = "[aeiouyhàâéèêëîïôûœAEIOUHÉÈ]"
NOUN = nouns()
MEANINGS = [meaning for meaning in all_meanings() if not isinstance(meaning.body, SetPhrase)]
ENGLISH = [english.render(meaning) for meaning in MEANINGS]
FRENCH = [french.render(meaning) for meaning in MEANINGS]
CHINESE = [chinese.render(meaning) for meaning in MEANINGS]


def matching(pattern: str, texts: list[str]) -> list[str]:
    """Return the first five texts in which the pattern occurs."""
    compiled = re.compile(pattern)
    return [text for text in texts if compiled.search(text)][:5]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (rf"(?i)\b(je|me|te|se|ne|le|la|de|que|ce) (?!huit|onze){VOWEL}", "elision"),
        (r"(?i)\b(de|à) les?\b", "du, au, des, aux"),
        (rf"(?i)\b(du|au) (?!huit|onze){VOWEL}", "de l', à l'"),
        (rf"(?i)\b(ma|ta|sa) {VOWEL}", "mon amie"),
        (rf"(?i)\b(beau|nouveau|(?<![sx] )(?<!de )vieux|ce) {VOWEL}", "bel homme, nouvel ami, vieil arbre, cet homme"),
        (rf"(?i)\b(bel|nouvel|vieil|cet) (?!{VOWEL})", "beau chien"),
        (r"(?<!n'est )(?<!ne sont )\bpas (un|une|des|du) (?!piano|Mexique|Japon|Canada)", "pas de, except after être"),
        (r"'\s", "nothing stands between an apostrophe and its word"),
        (r"[^ ]\?$", "a space before the question mark"),
        (r" [.,]|\s\s|_|[{}~]", "no stray space, no placeholder"),
    ],
)
def test_no_french_sentence_breaks_a_rule(pattern: str, why: str) -> None:
    assert matching(pattern, FRENCH) == [], why


NAMED = "|".join(word.en for word in words(NAMES))


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?i)\ba (?!uni|one|euro)[aeiou]", "an apple"),
        (r"(?i)\ban (?!hour)[^aeiou]", "a car"),
        (rf"^(?!.*\b([Dd]oes|[Dd]id|to) ).*(?<!and )\b({NAMED}|he|she|it) (do|don't|have|are|were)\b", "she has"),
        (r"\b(I|you|we|they) (does|has|doesn't|is|was)\b(?<!I was)", "they have"),
        (r"\b(didn't|don't|doesn't|can't) (?!need)[a-z]+(ed|[^s]s)\b", "one past is enough: didn't walk"),
        (r"\bzero\b", "0 stands for a question: how old, how much"),
        (r" [.,?]|\s\s|_|[{}~]", "no stray space, no placeholder"),
    ],
)
def test_no_english_sentence_breaks_a_rule(pattern: str, why: str) -> None:
    assert matching(pattern, ENGLISH) == [], why


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\s|[A-Za-z{}~\-_.,?!]", "no spaces, no Latin letters, full-width punctuation"),
        (r"(?<!十)二[本只个辆张杯件条位封份把台部块根匹头朵支盏幅棵顶瓶碗公点天年岁]", "两本, and 二 only in numbers"),
        (r"两(日|月|十|加|等)", "二十, 二日"),
        (r"没有没|不没|不有|没有有|了了|的的|(?<!现)在在|会不|吗。", "clashing particles"),
        (r"(没有|没在|不会|别)[^，。]*了[^，]", "没有 and 了 do not meet in one clause"),
    ],
)
def test_no_chinese_sentence_breaks_a_rule(pattern: str, why: str) -> None:
    assert matching(pattern, CHINESE) == [], why


def test_a_chinese_question_has_a_word_that_asks() -> None:
    asked = [text for text in CHINESE if text.endswith("？")]
    assert len(asked) > 2000
    assert matching("^((?!吗？|谁|什么|哪儿|几|多大|多少).)*$", asked) == []


def test_every_sentence_begins_with_a_capital_and_ends_with_punctuation() -> None:
    assert matching(r"^[^A-Z]|[^.?]$", ENGLISH) == []
    assert matching(r"^[^A-ZÀÉÊ]|[^.?]$", FRENCH) == []
    assert matching(r"[^。？]$", CHINESE) == []


def test_a_question_is_a_question_in_every_language() -> None:
    for texts in zip(ENGLISH, FRENCH, CHINESE, strict=True):
        assert len({text.endswith(("?", "？")) for text in texts}) == 1, texts


def counted(meaning: Sentence) -> list[Phrase]:
    """Return the counted things of a sentence."""
    body = meaning.body
    things: list[object] = []
    if isinstance(body, Clause) and isinstance(body.predicate, Act):
        things.append(body.predicate.object)
    if isinstance(body, Existence):
        things.append(body.what)
    return [thing for thing in things if isinstance(thing, Phrase) and thing.determiner == "count"]


def test_what_is_counted_has_a_plural_or_a_measure_word() -> None:
    checked = 0
    for i, meaning in enumerate(MEANINGS):
        for thing in counted(meaning):
            head = thing.container or thing.noun
            assert f"{english.number(thing.count)} {head.en_plural}" in ENGLISH[i]
            assert f"{french_phrases.number(thing.count)} {head.fr_plural}" in FRENCH[i]
            measure = chinese.CONTAINERS.get(head.en, head.zh) if thing.container else thing.noun.measure
            assert measure, thing.noun.en
            assert chinese.number(thing.count, counting=True) + measure + thing.noun.zh in CHINESE[i]
            checked += 1
    assert checked > 500


def test_nouns_with_the_same_form_are_known() -> None:
    """Two nouns may share a form only if the grammar distinguishes them: ma femme is my wife, la femme the woman."""
    all_nouns = list(NOUN.values())
    shared = {word for word, n in Counter(noun.fr for noun in all_nouns).items() if n > 1}
    assert shared == {"femme", "fille", "histoire"}
    assert [word for word, n in Counter(noun.zh for noun in all_nouns).items() if n > 1] == []


PAUL, ANNA = (Name(word) for word in words(NAMES)[:2])
SIR = words(VOCATIVES)[0]
EAT, BUY, DRINK = verb(TRANSITIVE, "eat"), verb(TRANSITIVE, "buy"), verb(TRANSITIVE, "drink")
REST = next(act for act in read_verbs(ACTIVITIES) if act.en == "rest")


def the(noun: str, plural: bool = False, adj: Adjective | None = None) -> Phrase:
    return Phrase(NOUN[noun], "the", plural, adj)


def a(noun: str, plural: bool = False, adj: Adjective | None = None) -> Phrase:
    return Phrase(NOUN[noun], "a", plural, adj)


@pytest.mark.parametrize(
    ("body", "en", "fr", "zh"),
    [
        (
            Clause(PAUL, Act(EAT, a("apple")), "now"),
            "Paul is eating an apple.",
            "Paul mange une pomme.",
            "保罗在吃一个苹果。",
        ),
        (
            Clause(PAUL, Act(EAT, a("apple", True)), "past", "no"),
            "Paul didn't eat any apples.",
            "Paul n'a pas mangé de pommes.",
            "保罗没有吃苹果。",
        ),
        (
            Clause(ANNA, Act(DRINK, a("water")), "future", question="yes-no"),
            "Is Anna going to drink any water?",
            "Est-ce qu'Anna va boire de l'eau ?",
            "安娜要喝水吗？",
        ),
        (
            Clause(SHE, Act(REST), "past", "no"),
            "She didn't rest.",
            "Elle ne s'est pas reposée.",
            "她没有休息。",
        ),
        (
            Clause(WOMEN, Quality(adjective("tired"), "very")),
            "They are very tired.",
            "Elles sont très fatiguées.",
            "她们非常累。",
        ),
        (
            Clause(THEY, Quality(adjective("hungry")), "past", "no"),
            "They weren't hungry.",
            "Ils n'avaient pas faim.",
            "他们不饿。",
        ),
        (
            Clause(SHE, Profession(NOUN["student"])),
            "She is a student.",
            "Elle est étudiante.",
            "她是学生。",
        ),
        (
            Clause(ME, Act(BUY, Phrase(NOUN["tree"], "this", False, adjective("beautiful"))), "past"),
            "I bought this beautiful tree.",
            "J'ai acheté ce bel arbre.",
            "我买了这棵漂亮的树。",
        ),
        (
            Clause(HE, Act(BUY, a("bag", True, adjective("beautiful"))), "past"),
            "He bought some beautiful bags.",
            "Il a acheté de beaux sacs.",
            "他买了一些漂亮的包。",
        ),
        (
            Clause(
                Phrase(NOUN["friend"], "of", owner=ME, woman=True),
                Act(BUY, Phrase(NOUN["cake"], "count", True, count=2)),
                "past",
            ),
            "My friend bought two cakes.",
            "Mon amie a acheté deux gâteaux.",
            "我的朋友买了两个蛋糕。",
        ),
        (
            Existence(a("cat"), Near(words(RELATIONS)[1], the("table"))),
            "There is a cat under the table.",
            "Il y a un chat sous la table.",
            "桌子下面有一只猫。",
        ),
        (
            Existence(a("pharmacy"), Near(words(RELATIONS)[6], the("hospital")), question=True),
            "Is there a pharmacy near the hospital?",
            "Est-ce qu'il y a une pharmacie près de l'hôpital ?",
            "医院附近有药店吗？",
        ),
        (
            Clause(PAUL, Age(0), question="what"),
            "How old is Paul?",
            "Quel âge a Paul ?",
            "保罗多大？",
        ),
        (
            Moment(Clock(8, 30), words(MONTHS)[0]),
            "It is half past eight.",
            "Il est huit heures et demie.",
            "现在八点半。",
        ),
        (
            Moment(Date(words(MONTHS)[4], 1), Phrase(NOUN["birthday"], "of", owner=ME)),
            "My birthday is on May 1.",
            "Mon anniversaire est le 1er mai.",
            "我的生日是五月一日。",
        ),
        (
            Order(Act(verb(TRANSITIVE, "open"), the("window")), negative=True),
            "Don't open the window.",
            "N'ouvre pas la fenêtre.",
            "别打开窗户。",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else "",
)
def test_a_meaning_in_three_languages(body: object, en: str, fr: str, zh: str) -> None:
    sentence = Sentence(body)  # type: ignore[arg-type]
    assert (english.render(sentence), french.render(sentence), chinese.render(sentence)) == (en, fr, zh)


def test_a_polite_listener() -> None:
    tired = Clause(YOU, Quality(adjective("tired")), question="yes-no")
    sentence = Sentence(tired, listener="polite", vocative=SIR)
    assert english.render(sentence) == "Are you tired, sir?"
    assert french.render(sentence) == "Est-ce que vous êtes fatigué, monsieur ?"
    assert chinese.render(sentence) == "先生，您累吗？"


@pytest.mark.parametrize(
    ("n", "en", "fr", "zh"),
    [
        (2, "two", "deux", "二"),
        (12, "twelve", "douze", "十二"),
        (21, "twenty-one", "vingt et un", "二十一"),
        (70, "seventy", "soixante-dix", "七十"),
        (71, "seventy-one", "soixante et onze", "七十一"),
        (80, "eighty", "quatre-vingts", "八十"),
        (81, "eighty-one", "quatre-vingt-un", "八十一"),
        (99, "ninety-nine", "quatre-vingt-dix-neuf", "九十九"),
        (100, "one hundred", "cent", "一百"),
    ],
)
def test_numbers(n: int, en: str, fr: str, zh: str) -> None:
    assert (english.number(n), french_phrases.number(n), chinese.number(n)) == (en, fr, zh)


@pytest.mark.parametrize(
    ("infinitive", "present", "participle"),
    [
        ("manger", "mange manges mange mangeons mangez mangent", "mangé"),
        ("commencer", "commence commences commence commençons commencez commencent", "commencé"),
        ("acheter", "achète achètes achète achetons achetez achètent", "acheté"),
        ("appeler", "appelle appelles appelle appelons appelez appellent", "appelé"),
        ("nettoyer", "nettoie nettoies nettoie nettoyons nettoyez nettoient", "nettoyé"),
        ("choisir", "choisis choisis choisit choisissons choisissez choisissent", "choisi"),
        ("vendre", "vends vends vend vendons vendez vendent", "vendu"),
        ("étudier", "étudie étudies étudie étudions étudiez étudient", "étudié"),
    ],
)
def test_french_verbs(infinitive: str, present: str, participle: str) -> None:
    forms = conjugate(infinitive)
    assert (" ".join(forms.present), forms.participle) == (present, participle)


@pytest.mark.parametrize(
    ("text", "glued"),
    [
        ("le homme de le village", "l'homme du village"),
        ("à les enfants", "aux enfants"),
        ("parce que elle ne aime pas le eau", "parce qu'elle n'aime pas l'eau"),
        ("à côté de le hôtel", "à côté de l'hôtel"),
        ("le onze mai , monsieur", "le onze mai, monsieur"),
    ],
)
def test_elision_and_contraction(text: str, glued: str) -> None:
    assert french_phrases.glue(text) == glued


def test_every_noun_occurs_in_a_sentence() -> None:
    all_texts = " ".join(ENGLISH)
    unused = [noun.en for noun in NOUN.values() if not re.search(rf"\b({noun.en}|{noun.en_plural})\b", all_texts)]
    assert unused == []
    assert Noun is type(NOUN["cat"])
