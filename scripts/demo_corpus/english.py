"""Render a meaning in English: articles, third person, do-support, tenses, possessives, dates and times."""

from scripts.demo_corpus.meaning import (
    Act,
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

UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SUBJECTS = {(1, False): "I", (1, True): "we", (2, False): "you", (2, True): "you", (3, True): "they"}
OWNERS = {(1, False): "my", (1, True): "our", (2, False): "your", (2, True): "your", (3, True): "their"}
BE, WAS, DO = ("am", "are", "is"), ("was", "were", "was"), ("do", "do", "does")
NOT = {"am": "am not", "can": "can't", "must": "must not"}  # other auxiliaries take n't
MODALS = {
    "want": ("want", "wants", "to"),
    "know": ("know", "knows", "how to"),
    "like": ("like", "likes", ""),
    "love": ("love", "loves", ""),
}
ASKING = {"where": "where", "what": "what", "when": "when", "why": "why"}
SOUNDS_LIKE_CONSONANT = ("uni", "use", "one", "euro")


def render(sentence: Sentence) -> str:
    """Return the English sentence."""
    text = _body(sentence.body)
    if isinstance(sentence.body, SetPhrase):
        return text
    if sentence.vocative:
        text = f"{text[:-1]}, {sentence.vocative.en}{text[-1]}"
    return text[0].upper() + text[1:]


def _body(body: Body) -> str:
    match body:
        case Clause():
            return _clause(body) + ("?" if body.question else ".")
        case Joined(first, link, second):
            comma = "," if link.en == "but" else ""
            return f"{_clause(first)}{comma} {link.en} {_clause(second)}."
        case Order():
            return _order(body)
        case Existence():
            return _existence(body)
        case Presentation():
            return _presentation(body)
        case Comparison():
            return _comparison(body)
        case Weather():
            return _weather(body)
        case Moment():
            return _moment(body)
        case Price():
            return _price(body)
        case HowMany(subject, noun):
            return f"how many {noun.en_plural} {DO[_agreement(subject)]} {phrase(subject)} have?"
        case Pain():
            return _pain(body)
        case Sum(first=first, second=second):
            return f"{number(first)} and {number(second)} make {number(first + second)}."
        case SetPhrase(word):
            return word.en


def number(n: int) -> str:
    """Spell a number from 0 to 100."""
    if n < 20:
        return UNITS[n]
    if n == 100:
        return "one hundred"
    tens, units = divmod(n, 10)
    return f"{TENS[tens]}-{UNITS[units]}" if units else TENS[tens]


def phrase(what: Subject, loose: str = "") -> str:
    """Render a subject or an object.

    `loose` is the determiner of an indefinite plural or mass noun: some, any, or nothing.
    """
    match what:
        case Pronoun(person, plural, female, thing):
            if person == 3 and not plural:
                return "it" if thing else "she" if female else "he"
            return SUBJECTS[person, plural]
        case Name(word):
            return word.en
        case Pair(first, second):
            return f"{phrase(first)} and {phrase(second)}"
        case Phrase():
            return _noun_phrase(what, loose)


def _noun_phrase(what: Phrase, loose: str) -> str:
    noun, plural = what.noun, what.plural
    if what.container:
        content = noun.en if noun.mass else noun.en_plural
        words = f"{what.container.en_plural if plural else what.container.en} of {content}"
    else:
        words = noun.en_plural if plural else noun.en
        if what.adjective:
            words = f"{what.adjective.en} {words}"
    match what.determiner:
        case "a":
            if plural or (noun.mass and not what.container):
                return f"{loose} {words}" if loose else words
            return f"{_article(words)} {words}"
        case "the":
            return f"the {words}"
        case "this":
            return f"{'these' if plural else 'this'} {words}"
        case "that":
            return f"{'those' if plural else 'that'} {words}"
        case "of":
            assert what.owner is not None
            return f"{possessive(what.owner)} {words}"
        case "count":
            return f"{number(what.count)} {words}"
        case "generic" | "bare":
            return words


def _article(words: str) -> str:
    vowel = words[0] in "aeiou" and not words.startswith(SOUNDS_LIKE_CONSONANT)
    return "an" if vowel or words.startswith("hour") else "a"


def possessive(owner: Subject) -> str:
    """Render an owner: my, Anna's, my parents'."""
    if isinstance(owner, Pronoun):
        if owner.person == 3 and not owner.plural:
            return "its" if owner.thing else "her" if owner.female else "his"
        return OWNERS[owner.person, owner.plural]
    words = phrase(owner)
    plural = isinstance(owner, Phrase) and owner.plural and words.endswith("s")
    return f"{words}'" if plural else f"{words}'s"


def _agreement(subject: Subject) -> int:
    """Return 0 for I, 1 for you and plurals, 2 for the third person singular: an index into BE, WAS and DO."""
    match subject:
        case Pronoun(person, plural):
            return 1 if plural or person == 2 else 0 if person == 1 else 2
        case Phrase(plural=plural):
            return 1 if plural else 2
        case Name():
            return 2
        case Pair():
            return 1


def _clause(clause: Clause) -> str:
    helper, main = _verb_group(clause)
    if clause.polarity == "no":
        helper = _negated(helper)
    adverb = "never" if clause.polarity == "never" else clause.often.en if clause.often else ""
    if isinstance(clause.predicate, Age) and clause.question:
        return f"how old {helper} {phrase(clause.subject)}"
    if clause.question == "who":
        order = ["who", helper, adverb, main]
    elif clause.question:
        order = [ASKING.get(clause.question, ""), helper, phrase(clause.subject), adverb, main]
    else:
        order = [phrase(clause.subject), helper, adverb, main]
    order.append(_circumstances(clause))
    return " ".join(filter(None, order))


def _negated(helper: str) -> str:
    return NOT.get(helper, helper + "n't")


def _verb_group(clause: Clause) -> tuple[str, str]:
    """Return the auxiliary, which moves in a question and takes the negation, and the words up to the objects."""
    agreement = _agreement(clause.subject)
    be = (WAS if clause.tense == "past" else BE)[agreement]
    match clause.predicate:
        case Quality(adjective, degree):
            return be, f"{degree} {adjective.en}" if degree else adjective.en
        case Profession(noun, adjective):
            word = noun.en_plural if _is_plural(clause.subject) else noun.en
            words = f"{adjective.en} {word}" if adjective else word
            if _is_plural(clause.subject):
                return be, words
            return be, f"{_article(words)} {words}"
        case Located(where):
            return be, location(where) if where else ""
        case Age(years):
            return be, f"{number(years)} year{'' if years == 1 else 's'} old"
        case Act() as act:
            helper, verb = _act(act, clause, agreement)
            return helper, " ".join(filter(None, [verb, _objects(act, clause)]))


def _is_plural(subject: Subject) -> bool:
    return isinstance(subject, Pair) or (isinstance(subject, Pronoun | Phrase) and subject.plural)


def _act(act: Act, clause: Clause, agreement: int) -> tuple[str, str]:
    verb, tense = act.verb, clause.tense
    helped = clause.polarity == "no" or clause.question not in ("", "who")
    if act.modal in ("can", "must"):
        return act.modal, verb.en
    if act.modal:
        base, third, link = MODALS[act.modal]
        follow = f"{link} {verb.en}" if link else verb.en_ing
        return (DO[agreement], f"{base} {follow}") if helped else ("", f"{third if agreement == 2 else base} {follow}")
    if verb.en == "be":
        return WAS[agreement], ""
    if tense == "now":
        return BE[agreement], verb.en_ing
    if tense == "future":
        return BE[agreement], f"going to {verb.en}"
    if tense == "past":
        return ("did", verb.en) if helped else ("", verb.en_past)
    if helped:
        return DO[agreement], verb.en
    return "", verb.en_s if agreement == 2 else verb.en


def _objects(act: Act, clause: Clause) -> str:
    loose = _loose(act, clause)
    tail = act.verb.en_tail
    if act.goal:
        return f"{tail} {_goal(act)}".strip()
    if act.recipient:
        thing = phrase(act.object, loose) if act.object else ""
        return f"{thing} {tail} {phrase(act.recipient)}"
    return f"{tail} {phrase(act.object, loose)}".strip() if act.object else tail


def _loose(act: Act, clause: Clause) -> str:
    """Return some or any: drinks milk, drank some milk, didn't drink any milk."""
    if clause.tense in ("habit", "now") and not act.modal and "state" not in act.verb.uses:
        return ""
    asks = clause.question == "yes-no" and act.verb.en != "want" and not act.modal
    return "any" if clause.polarity == "no" or asks else "some"


def _goal(act: Act) -> str:
    assert act.goal is not None
    if act.verb.en_tail.endswith("from"):
        return act.goal.en
    return act.goal.en_to if act.verb.en == "go" else act.goal.en_at


def _circumstances(clause: Clause) -> str:
    parts = [
        f"with {phrase(clause.companion)}" if clause.companion else "",
        location(clause.where) if clause.where else "",
        clause.vehicle.en if clause.vehicle else "",
        moment(clause.time) if clause.time else "",
    ]
    return " ".join(filter(None, parts))


def location(where: Where) -> str:
    """Render a place with its preposition."""
    match where:
        case Place(en_at=words):
            return words
        case Near(relation, landmark):
            return f"{relation.en} {phrase(landmark)}"


def moment(time: Time) -> str:
    """Render a time as an adverbial: yesterday, two days ago, on May 3, at one o'clock."""
    match time:
        case Word(en=words):
            return words
        case Span(count, unit, side):
            span = f"{number(count)} {unit.en if count == 1 else unit.en_plural}"
            return f"{span} ago" if side == "ago" else f"{side} {span}"
        case Date(month, day):
            return f"on {month.en} {day}"
        case Clock():
            return f"at {clock(time)}"


def clock(time: Clock) -> str:
    """Render a time of day."""
    hour, minute = number(time.hour), time.minute
    following = number(time.hour % 12 + 1)
    if minute == 0:
        return f"{hour} o'clock"
    if minute == 30:
        return f"half past {hour}"
    if minute in (15, 45):
        return f"a quarter past {hour}" if minute == 15 else f"a quarter to {following}"
    return f"{number(minute)} past {hour}" if minute < 30 else f"{number(60 - minute)} to {following}"


def _order(order: Order) -> str:
    words = order.act.verb.en
    objects = _objects(order.act, Clause(Pronoun(2), order.act, "future", "no" if order.negative else "yes"))
    words = f"{words} {objects}".strip()
    return f"don't {words}." if order.negative else f"{words}, please."


def _existence(existence: Existence) -> str:
    be = "are" if existence.what.plural else "is"
    loose = "any" if existence.polarity == "no" or existence.question else "some"
    what, where = phrase(existence.what, loose), location(existence.where)
    if existence.question:
        return f"{be} there {what} {where}?"
    return f"there {_negated(be) if existence.polarity == 'no' else be} {what} {where}."


def _presentation(presentation: Presentation) -> str:
    plural = presentation.what.plural
    what, be = phrase(presentation.what), "are" if plural else "is"
    pointer = ("those" if plural else "that") if presentation.far else ("these" if plural else "this")
    if presentation.question:
        return f"{be} {pointer} {what}?"
    return f"{pointer} {_negated(be) if presentation.negative else be} {what}."


def _comparison(comparison: Comparison) -> str:
    adjective = comparison.adjective
    be = BE[_agreement(comparison.first)]
    if comparison.how == "more":
        words = f"{be} {adjective.en_more} than"
    else:
        words = f"{be if comparison.how == 'as' else _negated(be)} as {adjective.en} as"
    return f"{phrase(comparison.first)} {words} {phrase(comparison.second)}."


def _weather(weather: Weather) -> str:
    kind, tense = weather.kind, weather.tense
    helped = weather.negative or weather.question
    if "verb" not in kind.uses:
        helper, main = (
            ("was", kind.en) if tense == "past" else ("is", f"going to be {kind.en}" if tense == "future" else kind.en)
        )
    elif tense == "past":
        helper, main = ("did", kind.en) if helped else ("", f"{kind.en}ed")
    elif tense == "habit":
        helper, main = "", f"often {kind.en}s"
    else:
        helper, main = "is", f"going to {kind.en}" if tense == "future" else f"{kind.en}ing"
    if weather.negative:
        helper = _negated(helper)
    order = [helper, "it", main] if weather.question else ["it", helper, main]
    order += [weather.city.en_at if weather.city else "", weather.time.en if weather.time else ""]
    return " ".join(filter(None, order)) + ("?" if weather.question else ".")


def _moment(statement: Moment) -> str:
    if isinstance(statement.when, Clock):
        return f"it is {clock(statement.when)}."
    if isinstance(statement.about, Phrase):
        return f"{phrase(statement.about)} is {moment(statement.when)}."
    weekday = f"{statement.weekday.en}, " if statement.weekday else ""
    return f"{statement.about.en} is {weekday}{moment(statement.when).removeprefix('on ')}."


def _price(price: Price) -> str:
    what, plural = phrase(price.what), price.what.plural
    if not price.euros:
        return f"how much {'do' if plural else 'does'} {what} cost?"
    return f"{what} cost{'' if plural else 's'} {number(price.euros)} euro{'' if price.euros == 1 else 's'}."


def _pain(pain: Pain) -> str:
    plural = "several" in pain.part.classes
    what = f"{possessive(pain.subject)} {pain.part.en_plural if plural else pain.part.en}"
    if pain.question:
        return f"{'do' if plural else 'does'} {what} hurt?"
    return f"{what} hurt{'' if plural else 's'}."
