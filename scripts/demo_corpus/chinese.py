"""Render a meaning in Chinese: measure words, 的, 了, 没有, 在, 吗, time before the verb, 两 and 二; no spaces."""

from scripts.demo_corpus.meaning import (
    Act,
    Adjective,
    Age,
    Body,
    Clause,
    Clock,
    Comparison,
    Date,
    Existence,
    HowMany,
    Joined,
    Located,
    Moment,
    Name,
    Near,
    Noun,
    Order,
    Pain,
    Pair,
    Phrase,
    Place,
    Presentation,
    Price,
    Profession,
    Pronoun,
    Quality,
    Sentence,
    SetPhrase,
    Span,
    Subject,
    Sum,
    Time,
    Weather,
    Where,
    Word,
)

DIGITS = "零一二三四五六七八九"
MODALS = {"want": "想", "can": "能", "must": "必须", "know": "会", "like": "喜欢", "love": "爱"}
LISTENERS = {"friend": "你", "polite": "您", "group": "你们"}
CONTAINERS = {"cup": "杯", "glass": "杯", "bottle": "瓶", "bowl": "碗"}
FAMILY = frozenset({"kin", "wife", "husband", "parents"})  # 我妈妈, without 的
GROUPS = frozenset({"child-noun", "student", "teacher"})  # plural with 们: 孩子们, but 那些警察
UNPLANNED = frozenset({"arrive", "come", "stay"})  # future with 会: 会到, 会回来; an intention takes 要


def render(sentence: Sentence) -> str:
    """Return the Chinese sentence."""
    text = _body(sentence.body, sentence)
    if sentence.vocative:
        return f"{sentence.vocative.zh}，{text}"
    return text


def _body(body: Body, sentence: Sentence) -> str:
    match body:
        case Clause():
            return _clause(body, sentence) + ("？" if body.question else "。")
        case Joined(first, link, second):
            return f"{_clause(first, sentence)}，{link.zh}{_clause(second, sentence)}。"
        case Order(act, negative):
            objects = _verb_phrase(act, sentence, bare=negative, some=not negative)
            return f"{'别' if negative else '请'}{objects}。"
        case Existence():
            return _existence(body, sentence)
        case Presentation():
            return _presentation(body, sentence)
        case Comparison():
            return _comparison(body, sentence)
        case Weather():
            return _weather(body)
        case Moment():
            return _moment(body, sentence)
        case Price(what, euros):
            return phrase(what, sentence) + (f"{number(euros, counting=True)}欧元。" if euros else "多少钱？")
        case HowMany(subject, noun):
            return f"{phrase(subject, sentence)}有几{noun.measure}{noun.zh}？"
        case Pain(subject, part, question):
            return f"{phrase(subject, sentence)}{part.zh}疼{'吗？' if question else '。'}"
        case Sum(first=first, second=second):
            return f"{number(first)}加{number(second)}等于{number(first + second)}。"
        case SetPhrase(word):
            return word.zh


def number(n: int, *, counting: bool = False) -> str:
    """Spell a number from 0 to 100: 十二, 二十; `counting` gives 两 before a measure word, not 二."""
    if n < 10:
        return "两" if counting and n == 2 else DIGITS[n]
    if n == 100:
        return "一百"
    tens, units = divmod(n, 10)
    return f"{DIGITS[tens] if tens > 1 else ''}十{DIGITS[units] if units else ''}"


def phrase(what: Subject, sentence: Sentence, *, bare: bool = False, some: bool = False) -> str:
    """Render a subject or an object.

    `bare` leaves 一本 out, `some` puts 一些 before an indefinite plural or mass noun.
    """
    match what:
        case Pronoun(person, plural, female, thing):
            if person == 2:
                return LISTENERS[sentence.listener]
            one = "我" if person == 1 else "它" if thing else "她" if female else "他"
            return f"{one}们" if plural else one
        case Name(word):
            return word.zh
        case Pair(first, second):
            return f"{phrase(first, sentence)}和{phrase(second, sentence)}"
        case Phrase():
            return _noun_phrase(what, sentence, bare=bare, some=some)


def _noun_phrase(what: Phrase, sentence: Sentence, *, bare: bool, some: bool) -> str:
    noun, plural = what.noun, what.plural
    words = _described(noun, what.adjective)
    measure = CONTAINERS.get(what.container.en, what.container.zh) if what.container else noun.measure
    mass = noun.mass and not what.container
    match what.determiner:
        case "a":
            if plural or mass:
                return f"一些{words}" if some else words
            return words if bare and not what.container else f"一{measure}{words}"
        case "the":
            if mass or ("unique" in noun.classes and not what.adjective):
                return words
            if plural and noun.classes & GROUPS and not what.adjective:
                return f"{words}们"
            return f"那些{words}" if plural else f"那{measure}{words}"
        case "this" | "that":
            return f"{'这' if what.determiner == 'this' else '那'}{'些' if plural else measure}{words}"
        case "of":
            return _owned(what, words, sentence)
        case "count":
            return f"{number(what.count, counting=True)}{measure}{words}"
        case "generic" | "bare":
            return words


def _described(noun: Noun, adjective: Adjective | None) -> str:
    return f"{adjective.zh_before}{noun.zh}" if adjective else noun.zh


def _owned(what: Phrase, words: str, sentence: Sentence) -> str:
    assert what.owner is not None
    owner = phrase(what.owner, sentence)
    if isinstance(what.owner, Phrase):  # 你们弟弟的吉他: drop the first of two 的
        owner = owner.replace("的", "", 1)
    if isinstance(what.owner, Pronoun) and what.noun.classes & FAMILY and not owner.endswith("们"):
        return owner + words
    words = words.replace("色的", "色")  # 我的红色帽子
    several = "们" if what.plural and "human" in what.noun.classes else ""
    return f"{owner}的{words}{several}"


def _clause(clause: Clause, sentence: Sentence) -> str:
    subject = "谁" if clause.question == "who" else phrase(clause.subject, sentence)
    before = moment(clause.time) if clause.time and not _lasts(clause.time) else ""
    if clause.question == "when":
        before += "是什么时候" if clause.tense == "past" else "什么时候"
    if clause.question == "why":
        before += "为什么"
    if isinstance(clause.predicate, Act) and clause.predicate.verb.zh == "出生的":
        before = f"是{before}"
    often = clause.often.zh if clause.often else ""
    asking = "吗" if clause.question == "yes-no" else ""
    return f"{subject}{before}{often}{_predicate(clause, sentence)}{asking}"


def _lasts(time: Time) -> bool:
    return isinstance(time, Span) and time.side == "for"


def _predicate(clause: Clause, sentence: Sentence) -> str:
    negation = {"yes": "", "no": "不", "never": "从来不"}[clause.polarity]
    match clause.predicate:
        case Quality():
            return _quality(clause.predicate, clause, negation)
        case Profession(noun, adjective):
            one = f"一{noun.measure}" if adjective and not _is_plural(clause.subject) and not negation else ""
            return f"{negation}是{one}{_described(noun, adjective)}"
        case Located(where):
            return f"{negation}在{location(where, sentence) if where else '哪儿'}"
        case Age(years):
            return f"{number(years, counting=True)}岁" if years else _how_old(clause.subject)
        case Act():
            return _act(clause.predicate, clause, sentence)


def _how_old(subject: Subject) -> str:
    """Ask for an age; more politely if the person is of one's parents' age."""
    return "多大年纪" if isinstance(subject, Phrase) and "adult" in subject.noun.classes else "多大"


def _is_plural(subject: Subject) -> bool:
    return isinstance(subject, Pair) or (isinstance(subject, Pronoun | Phrase) and subject.plural)


def _quality(quality: Quality, clause: Clause, negation: str) -> str:
    adjective, word = quality.adjective, quality.adjective.zh
    match adjective.zh_kind:
        case "是":
            return f"{negation}是{adjective.zh_before}"
        case "了":
            return f"没{word}" if negation else f"{word}了"
        case "着":
            return f"没{word}" if negation else f"{word}着"
        case "很":
            if negation and quality.degree == "very":
                return f"不太{word}"
            if negation:
                return f"没{word}" if word.startswith("有") else f"{negation}{word}"
            if quality.degree == "too":
                return f"太{word}了"
            if clause.question == "yes-no" and not clause.often:
                return word
            return f"{'非常' if quality.degree == 'very' else '很'}{word}"


def _act(act: Act, clause: Clause, sentence: Sentence) -> str:
    positive, asks = clause.polarity == "yes", clause.question == "yes-no"
    bare = not positive or (asks and not act.modal and clause.tense in ("habit", "now"))
    around = _around(clause, sentence)
    pattern = act.verb.zh
    if clause.tense == "now" and act.verb.zh_now and positive:
        pattern = act.verb.zh_now
    if clause.time and _lasts(clause.time):
        pattern = pattern.replace("睡觉", "睡") + moment(clause.time)
    emphatic = clause.tense == "past" and (clause.question == "when" or "在哪儿" in around)
    verb = _verb_phrase(
        act,
        sentence,
        pattern=pattern,
        bare=bare,
        some=(clause.tense == "past" or "state" in act.verb.uses) and positive and not asks,
        done=clause.tense == "past" and positive and not emphatic,
    )
    return f"{_lead(act, clause)}{around}{verb}{'的' if emphatic else ''}"


def _lead(act: Act, clause: Clause) -> str:
    """Return the words between subject and verb for tense, negation and modal verb."""
    positive = clause.polarity == "yes"
    if act.modal:
        return f"{'' if positive else '不'}{MODALS[act.modal]}"
    if act.verb.zh.startswith("有"):
        return "" if positive else "没"
    if clause.tense == "past":
        return "" if positive else "没有"
    if clause.tense == "future":
        if not positive:
            return "不会"
        return "" if clause.question == "when" else "会" if act.verb.en in UNPLANNED else "要"
    if clause.tense == "now":
        if act.verb.zh_now:
            return "" if positive else "没有"
        if clause.where:
            return "正" if positive else "没有"  # 正在公园里跑步: the 在 of the place is enough
        return "在" if positive else "没在"
    return {"yes": "", "no": "不", "never": "从来不"}[clause.polarity]


def _around(clause: Clause, sentence: Sentence) -> str:
    """Return the adverbials between subject and verb: companion, place, vehicle."""
    companion = f"跟{phrase(clause.companion, sentence)}一起" if clause.companion else ""
    where = f"在{location(clause.where, sentence)}" if clause.where else ""
    if isinstance(clause.predicate, Act) and clause.predicate.verb.en == "travel":  # 去日本旅行, 想去旅行
        where = where.replace("在", "去", 1) or ("去" if clause.predicate.modal == "want" else "")
    if clause.question == "where" and isinstance(clause.predicate, Act) and "{}" not in clause.predicate.verb.zh:
        where = "是在哪儿" if clause.tense == "past" else "在哪儿"
    return f"{companion}{where}{clause.vehicle.zh if clause.vehicle else ''}"


def _verb_phrase(
    act: Act, sentence: Sentence, *, pattern: str = "", bare: bool = False, some: bool = False, done: bool = False
) -> str:
    if act.goal:
        target = act.goal.zh_at if act.verb.en in ("live", "stay") else act.goal.zh
    elif act.object:
        target = phrase(act.object, sentence, bare=bare, some=some)
    else:
        target = "哪儿" if act.verb.en_tail in ("", "back from", "from", "born") and act.verb.en in GOING else "什么"
    words = (pattern or act.verb.zh).replace("~", "了" if done else "").replace("{}", target)
    return words.replace("{to}", phrase(act.recipient, sentence)) if act.recipient else words


GOING = frozenset({"go", "arrive", "come", "live", "stay", "be"})


def location(where: Where, sentence: Sentence) -> str:
    """Return the place that follows 在."""
    match where:
        case Place(zh_at=words):
            return words
        case Near(relation, landmark):
            bare = landmark.noun.zh if landmark.determiner == "the" else phrase(landmark, sentence)
            return f"{bare}{relation.zh}"


def moment(time: Time) -> str:
    """Render a time as an adverbial."""
    match time:
        case Word(zh=words):
            return words
        case Span(count, unit, side):
            span = f"{number(count, counting=True)}{unit.measure}{unit.zh}"
            return span + {"ago": "前", "in": "后", "for": ""}[side]
        case Date(month, day):
            return f"{month.zh}{number(day)}日"
        case Clock():
            return clock(time)


def clock(time: Clock) -> str:
    """Render a time of day."""
    minute = time.minute
    hour = f"{number(time.hour + (minute > 30), counting=True)}点"
    if minute in (0, 15, 30, 45):
        return {0: hour, 15: f"{hour}一刻", 30: f"{hour}半", 45: f"差一刻{hour}"}[minute]
    if minute > 30:
        return f"差{number(60 - minute)}分{hour}"
    return f"{hour}{'零' if minute < 10 else ''}{number(minute)}分"


def _existence(existence: Existence, sentence: Sentence) -> str:
    negative = existence.polarity == "no"
    what = phrase(
        existence.what, sentence, bare=negative or existence.question, some=not negative and not existence.question
    )
    have = "没有" if negative else "有"
    return f"{location(existence.where, sentence)}{have}{what}{'吗？' if existence.question else '。'}"


def _presentation(presentation: Presentation, sentence: Sentence) -> str:
    pointer = ("那" if presentation.far else "这") + ("些" if presentation.what.plural else "")
    what = phrase(
        presentation.what,
        sentence,
        bare=(presentation.negative or presentation.question) and not presentation.what.adjective,
    )
    return f"{pointer}{'不' if presentation.negative else ''}是{what}{'吗？' if presentation.question else '。'}"


def _comparison(comparison: Comparison, sentence: Sentence) -> str:
    first, second = phrase(comparison.first, sentence), phrase(comparison.second, sentence)
    match comparison.how:
        case "more":
            return f"{first}比{second}{comparison.adjective.zh}。"
        case "less":
            return f"{first}没有{second}那么{comparison.adjective.zh}。"
        case "as":
            return f"{first}跟{second}一样{comparison.adjective.zh}。"


def _weather(weather: Weather) -> str:
    time, city = weather.time.zh if weather.time else "", weather.city.zh if weather.city else ""
    habit = weather.tense == "habit" or (weather.time is not None and weather.time.en.startswith("in "))
    setting = f"{city}{time}" if habit else f"{time}{city}"
    return f"{setting}{_sky(weather)}{'吗？' if weather.question else '。'}"


def _sky(weather: Weather) -> str:
    kind, tense, negative = weather.kind.zh, weather.tense, weather.negative
    will = ("不会" if negative else "会") if tense == "future" else ""
    if "verb" in weather.kind.uses:
        if tense == "past":
            return f"没有{kind}" if negative else f"{kind}了"
        lead = {"now": "没在" if negative else "在", "habit": "常常"}.get(tense, will)
        return f"{lead}{kind}"
    if kind == "晴天":
        return f"{will}是晴天" if will or not negative else "不是晴天"
    noun, quality = ("风", "大") if kind == "风" else ("", kind)
    if will:
        return f"{noun}{will}{'' if not noun and (negative or weather.question) else '很'}{quality}"
    return f"{noun}{'不' if negative else '' if weather.question else '很'}{quality}"


def _moment(statement: Moment, sentence: Sentence) -> str:
    if isinstance(statement.when, Clock):
        return f"现在{clock(statement.when)}。"
    about = phrase(statement.about, sentence) if isinstance(statement.about, Phrase) else statement.about.zh
    weekday = f"，{statement.weekday.zh}" if statement.weekday else ""
    return f"{about}是{moment(statement.when)}{weekday}。"
