"""Mistakes that proof-readers found in the demo corpus: one test for each kind, so that none of them returns.

`test_demo_grammar.py` is about agreement and particles; this file is about sentences without sense, and about pairs
whose two sides differ in meaning. Each pattern matched a sentence of an earlier corpus.
"""

import re
from functools import cache

import pytest

from scripts.demo_corpus import chinese, english, french
from scripts.demo_corpus.comparisons import SIZES, SPEEDS
from scripts.demo_corpus.corpus import Example, demo_corpus, translations
from scripts.demo_corpus.grammar import all_meanings
from scripts.demo_corpus.lexicon import NAMES, words
from scripts.demo_corpus.meaning import Act, Age, Clause, Comparison, Language, Phrase, Pronoun
from scripts.demo_corpus.people import GROWN_UP, YOUNG, pronoun_for

MEANINGS = all_meanings()
CLAUSES = [meaning.body for meaning in MEANINGS if isinstance(meaning.body, Clause)]
ENGLISH = [english.render(meaning) for meaning in MEANINGS]
CHILD = r"(the|The) (child|children|boys?|girls?)"
KIN = "爸爸|妈妈|哥哥|弟弟|姐姐|妹妹|爷爷|奶奶|叔叔|阿姨|儿子|女儿|父母|妻子|丈夫"


@cache
def pairs(source: Language, target: Language) -> list[Example]:
    corpus = demo_corpus(source, target)
    return [*corpus.train, *corpus.valid, *corpus.test, *corpus.combinations]


@cache
def chinese_texts() -> list[str]:
    """Return all Chinese sources, and the translations of English and French sentences."""
    return [
        *(example.source for example in pairs("zh", "en")),
        *(example.target for example in (*pairs("en", "zh"), *pairs("fr", "zh"))),
    ]


def matching(pattern: str, texts: list[str]) -> list[str]:
    """Return the first five texts in which the pattern occurs."""
    compiled = re.compile(pattern)
    return [text for text in texts if compiled.search(text)][:5]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\bfruit (are|aren't)\b|^Are (the|these|those) fruit\b", "fruit is one, not many"),
        (r"^You are going to (?!.*\?)", "nobody foretells what the listener is going to do"),
        (rf"^{CHILD}\b.*\b(beer|wine|smok\w+|driv\w+|drove|work(s|ed|ing))\b", "children drink no beer"),
        (
            r"grand(father|mother) (is playing|played|is going to play) (football|basketball|tennis)",
            "nor do grandmothers play football",
        ),
        (r"didn't cross .* too (hungry|thirsty|small)\b", "a thirsty cow would cross the river"),
        (r"didn't work .*\bbusy\b", "too busy to work"),
        (rf"^{CHILD} (go|goes|went|is going to go|are going to go) to the university", "but to school"),
        (r"(guitar|piano|music|sing\w*|danc\w*) at the library", "a library is quiet"),
        (r"(write|written|sell|buy)\b.* in (two|three|four|five|six) (days|weeks|months)", "that is how long it takes"),
        (r"(snows|cold)\b.* in (spring|summer)|\bhot\b.* in (spring|autumn|winter)", "seasons"),
        (r"sunny\b.*night", "no sun at night"),
        (r"(behind|in front of) (the|my|your|his|her) apartment", "one stands behind a house"),
        (
            r"(two|three|four|five|six|seven) (sofas|beds|tables|televisions|computers|phones|boats|trucks)\b",
            "nobody has six sofas in the garden",
        ),
        (r"\bdelicious (soup|sandwich|pizza|cake)\b", "isn't eating any delicious soup"),
        (r"^(Were you born|Do you (live|come|have)) .*(Mum|Dad|children)\?", "one knows it"),
        (r"\b(my|your|our) (mother|father|son|daughter|uncle|aunt)\b.*, (Mum|Dad|children)[.?]$", "they are one's own"),
        (r"^(Are|Were) you driving|^Did you drive", "one sees it"),
        (r"^(Buy|Don't buy) .*, (sir|madam|children)\.$", "strangers and children are not sent shopping"),
        (r"(skirts?|dress(es)?) for ", "not for one's uncle"),
        (r"^(Paul|Lucas|David|Thomas|He|My father) (has|needs|wants|doesn't have) (?!to ).*(dress|skirt)", ""),
        (r"sometimes (takes? a shower|goe?s? to (school|the office|the university)\.)", "every day, or not at all"),
        (r" to the (bank|post office)\b.*(tonight|last night|evening|Sunday)", "closed"),
        (r"^The \w+s have .*\b(brother|sister|son|daughter)s?\b", "do they share them?"),
        (r"want to (eat|buy) (two|three) .*\?", "an apple, or none"),
        (r"\b(beer|wine) every morning\b", ""),
        (r"drinks? water every (Saturday|Sunday|week)", ""),
    ],
    ids=lambda value: "" if not value or "\\" in value else value.replace(" ", "-"),
)
def test_no_sentence_is_nonsense(pattern: str, why: str) -> None:
    assert matching(pattern, ENGLISH) == [], why


def test_nobody_is_named_twice_in_a_clause() -> None:
    for word in words(NAMES):
        assert matching(rf"^{word.en} (?!and ).*\b{word.en}'s\b", ENGLISH) == []


def test_children_do_not_have_what_is_for_grown_ups() -> None:
    for clause in CLAUSES:
        act = clause.predicate
        if isinstance(clause.subject, Phrase) and isinstance(act, Act) and isinstance(act.object, Phrase):
            young = bool(clause.subject.noun.classes & YOUNG)
            getting = act.verb.en in ("have", "buy", "need", "want", "drink")
            assert not (young and getting and act.object.noun.classes & GROWN_UP), clause


def test_wives_and_husbands_are_grown_up() -> None:
    ages = [
        clause.predicate.years
        for clause in CLAUSES
        if isinstance(clause.predicate, Age) and isinstance(clause.subject, Phrase)
        if clause.subject.noun.en in ("wife", "husband") and clause.predicate.years
    ]
    assert min(ages) >= 28


def test_always_needs_a_place_or_a_vehicle() -> None:
    """Not "she always studies": French "elle étudie toujours" means that she still does."""
    always = [clause for clause in CLAUSES if clause.often and clause.often.en == "always"]
    acts = [clause for clause in always if isinstance(clause.predicate, Act)]
    assert len(acts) > 20
    assert all(clause.where or clause.vehicle for clause in acts)


def test_comparisons_of_sizes_and_speeds_are_true() -> None:
    checked = 0
    for meaning in MEANINGS:
        body = meaning.body
        if not isinstance(body, Comparison) or body.adjective.en not in ("big", "small", "fast", "slow"):
            continue
        assert isinstance(body.first, Phrase), body
        assert isinstance(body.second, Phrase), body
        order = SIZES if body.adjective.en in ("big", "small") else SPEEDS
        first, second = order.index(body.first.noun.en), order.index(body.second.noun.en)
        more = (body.adjective.en in ("big", "fast")) == (body.how == "more")
        assert body.how != "as", body
        assert (first > second) == more, body
        checked += 1
    assert checked > 50


def test_nobody_is_said_to_know_their_own_family() -> None:
    """Everybody does, so "she knows her mother" is no news."""
    for clause in CLAUSES:
        act = clause.predicate
        if isinstance(act, Act) and act.verb.en == "know" and isinstance(act.object, Phrase):
            assert act.object.owner not in (clause.subject, pronoun_for(clause.subject)), clause


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?<!现)在在", "one 在 is enough"),
        (
            r"(明天|下个星期.|下个月|明年|今天晚上)[^，]*(?<!不)会(?!到|从|待|下|是|很|冷|热)",
            "what one is going to do takes 要; 会 is for what will come by itself",
        ),
        (r"每(天(早上|晚上)?|个星期[六天]?)(?!早上|晚上|六|天|都)", "每 … 都"),
        (rf"(我们|你们|他们|她们)({KIN})(?!的)", "我们的爷爷, but 我爷爷"),
        (rf"的({KIN}|朋友|邻居|同事)们?的", "no 的 after 的"),
        (r"日出生(?!的)", "是 … 出生的"),
        (r"在(中国|法国|日本|加拿大|意大利|德国|西班牙|墨西哥|印度)旅行", "去 … 旅行"),
        (r"没(开|关)着", "门没开"),
        (r"[^子孩生师友居事你我他她]们|(律|厨|牙|工程|面包)师们", "那些警察, not 警察们"),
        (r"病了(?<!生病了)|没病", "生病了, 没生病"),
        (r"(爸爸|妈妈|爷爷|奶奶|叔叔|阿姨|父母)多大？", "多大年纪, of one's elders"),
        (r"不是一[本张只支个盏](书|票|狗|猫|笔|包|灯|床)。", "不是狗"),
        (r"买单", "请结账: the guest does not ask the waiter to pay"),
        (r"(明白|明白了)(那|这)", "懂那首诗"),
    ],
)
def test_no_chinese_sentence_is_unidiomatic(pattern: str, why: str) -> None:
    assert matching(pattern, chinese_texts()) == [], why


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\b[Ll]a grande fille\b|\b[Ll]e grand garçon\b", "that would be a big girl"),
        (r"(voiture|camion|bateau)s?( de \w+)? (est|sont|n'est pas|ne sont pas) cassé", "en panne"),
        (r"fait la cuisine dans la cuisine", "once is enough"),
        (r"\b[Ll]es fruits (sont|ne sont)", "see fruit"),
        (r"moins (petit|lent)", "not so big; but less small?"),
    ],
)
def test_no_french_sentence_is_unidiomatic(pattern: str, why: str) -> None:
    assert matching(pattern, [example.target for example in pairs("en", "fr")]) == [], why


def test_both_sides_say_never() -> None:
    """In an earlier corpus ne … jamais became 没在, and "where does he work" became "where is he working"."""
    examples = [example for example in pairs("fr", "zh") if " jamais " in example.source]
    assert len(examples) > 5
    assert all("从来不" in example.target for example in examples)
    asked = [example for example in pairs("fr", "en") if re.match("Où est-ce que .* travaille ", example.source)]
    assert len(asked) > 5
    assert all(re.match("Where do(es)? ", example.target) for example in asked)


def test_nobody_asks_what_somebody_makes() -> None:
    """Chinese 在做什么 asks what somebody is doing."""
    assert matching("^What .*(making|make)", ENGLISH) == []


def test_a_bottle_stays_a_bottle_in_a_question() -> None:
    asked = [example for example in pairs("en", "zh") if re.search(r"a (bottle|bowl|cup) of .*\?", example.source)]
    assert len(asked) > 10
    assert all(re.search("一[瓶碗杯]", example.target) for example in asked)


def test_a_husband_is_hers_and_a_wife_is_his() -> None:
    for example in pairs("fr", "zh"):
        if re.search(r"\b[Ss]on mari\b", example.source):
            assert "她丈夫" in example.target, example
        if re.search(r"\b[Ss]a femme\b", example.source):
            assert "他妻子" in example.target, example
    dresses = [example for example in pairs("fr", "en") if re.match("Ses? (robe|jupe)s? ", example.source)]
    assert all(example.target.startswith("Her ") for example in dresses)


WOMEN = "|".join(word.en for word in words(NAMES) if "female" in word.uses)


def test_they_are_women_if_both_are_women() -> None:
    both = re.compile(rf"^({WOMEN}) and ({WOMEN}) .*\bthey\b")
    examples = [example for example in pairs("en", "fr") if both.match(example.source)]
    assert len(examples) > 3
    assert all(re.search(r"\bqu'elles|\belles\b", example.target) for example in examples), examples
    for example in pairs("en", "zh"):
        if re.match(r"The (girls|women) .*\btheir\b", example.source):
            assert "她们" in example.target, example


def test_the_dentist_and_her_neighbour() -> None:
    """English and Chinese show by the pronoun that she is a woman, French by the noun."""
    examples = [
        example for example in pairs("en", "fr") if re.match(r"The (baker|nurse|singer) .*\bher\b", example.source)
    ]
    assert len(examples) > 3
    for example in examples:
        assert re.match("La (boulangère|chanteuse)|L'infirmière", example.target), example
        assert not [text for text in translations(example.source, "en", "fr") if re.match("Le |L'infirmier ", text)]


def test_the_future_in_three_languages() -> None:
    future = [
        meaning
        for meaning in MEANINGS
        if isinstance(meaning.body, Clause) and meaning.body.tense == "future" and not meaning.body.question
    ]
    assert len(future) > 2000
    for meaning in future:
        text = chinese.render(meaning)
        assert isinstance(meaning.body, Clause)
        if meaning.body.polarity == "no":
            assert "不会" in text, text
        else:
            assert ("会" if re.search("arrive|come back|stay", english.render(meaning)) else "要") in text, text
        assert re.search(r"\b(vais|vas|va|allons|allez|vont)\b", french.render(meaning)), text


def test_a_listener_is_not_told_what_he_wants() -> None:
    """Not "you want some chocolate": the listener is asked."""
    for clause in CLAUSES:
        if clause.subject == Pronoun(2) and isinstance(clause.predicate, Act) and clause.polarity == "yes":
            wants = clause.predicate.verb.en == "want" or clause.predicate.modal == "want"
            assert clause.question or not wants, clause
