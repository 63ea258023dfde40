"""A meaning in French: agreement, negation, est-ce que, passé composé with avoir and être, futur proche."""

from scripts.demo_corpus.conjugation import IMPERFECT, PAST_WITH_ETRE, agree, conjugate
from scripts.demo_corpus.french_phrases import Agreement, agreement, glue, number, phrase
from scripts.demo_corpus.meaning import (
    Act,
    Age,
    Clause,
    Clock,
    Comparison,
    Date,
    Existence,
    HowMany,
    Joined,
    Located,
    Moment,
    Near,
    Order,
    Pain,
    Phrase,
    Place,
    Presentation,
    Price,
    Profession,
    Quality,
    Saying,
    Sentence,
    Span,
    Sum,
    Tense,
    Time,
    Verb,
    Weather,
    Where,
    Word,
)

DEGREES = {"": "", "very": "très", "too": "trop"}
MODALS = {"want": "vouloir", "can": "pouvoir", "must": "devoir", "know": "savoir", "like": "aimer", "love": "aimer"}
REFLEXIVES = ("me", "te", "se", "nous", "vous", "se")
ASKING = {"yes-no": "", "where": "où", "what": "qu'", "when": "quand", "why": "pourquoi"}
NEGATIVE_TAILS = {"de la musique": "de musique", "une douche": "de douche"}
SIDES = {"ago": "il y a", "in": "dans", "for": "pendant"}
HE = Agreement(2, False, False)


def render(sentence: Sentence) -> str:
    if isinstance(sentence.body, Saying):
        return sentence.body.word.fr
    text, asked = _body(sentence)
    if sentence.vocative:
        text = f"{text}, {sentence.vocative.fr}"
    text = glue(text)
    return text[0].upper() + text[1:] + (" ?" if asked else ".")


def _body(said: Sentence) -> tuple[str, bool]:
    """The words, not yet elided, and whether they ask."""
    body = said.body
    match body:
        case Clause():
            return _clause(body, said), bool(body.question)
        case Joined(first, link, second):
            comma = "," if link.en == "but" else ""
            return f"{_clause(first, said)}{comma} {link.fr} {_clause(second, said)}", False
        case Order():
            return _order(body, said), False
        case Existence():
            return _existence(body, said), body.question
        case Presentation():
            return _presentation(body, said), body.question
        case Comparison():
            return _comparison(body, said), False
        case Weather():
            return _weather(body), body.question
        case Moment():
            return _moment(body, said), False
        case Price():
            return _price(body, said), not body.euros
        case HowMany(subject, noun):
            have = conjugate("avoir").present[agreement(subject, said).person]
            return f"combien de {noun.fr_plural} est-ce que {phrase(subject, said)} {have}", True
        case Pain():
            return _pain(body, said), body.question
        case Sum(first=first, second=second):
            return f"{number(first)} et {number(second)} font {number(first + second)}", False
        case Saying(word):
            return word.fr, False


def _clause(clause: Clause, said: Sentence) -> str:
    subject = agreement(clause.subject, said)
    verb = _predicate(clause, subject, said)
    around = _circumstances(clause, said)
    if clause.question == "who":
        return f"qui {verb} {around}"
    who = phrase(clause.subject, said)
    if clause.question == "where" and isinstance(clause.predicate, Located):
        return f"où {verb} {who}"
    if isinstance(clause.predicate, Age) and not clause.predicate.years:
        return f"quel âge {verb} {who}"
    asking = ""
    if clause.question:
        asking = f"{ASKING[clause.question]} est-ce que".replace("' ", "'").strip()
    return f"{asking} {who} {verb} {around}"


def _predicate(clause: Clause, subject: Agreement, said: Sentence) -> str:
    match clause.predicate:
        case Quality(adjective, degree):
            verb = "avoir" if adjective.fr_avoir else "être"
            word = adjective.fr[0] if adjective.fr_avoir else adjective.fr[subject.female + 2 * subject.plural]
            return _negated(clause, _state(verb, clause.tense, subject), f"{DEGREES[degree]} {word}")
        case Profession():
            return _negated(clause, _state("être", clause.tense, subject), _profession(clause.predicate, subject, said))
        case Located(where):
            place = location(where, said) if where else ""
            return _negated(clause, _state("être", clause.tense, subject), place)
        case Age(years):
            age = f"{number(years)} an{'' if years == 1 else 's'}" if years else ""
            return _negated(clause, _state("avoir", clause.tense, subject), age)
        case Act():
            return _act(clause.predicate, clause, subject, said)


def _profession(predicate: Profession, subject: Agreement, said: Sentence) -> str:
    woman = subject.female and predicate.noun.fr_woman is not None
    determiner: str = "a" if predicate.adjective else "bare"
    noun = Phrase(
        predicate.noun, "a" if determiner == "a" else "bare", subject.plural, predicate.adjective, woman=woman
    )
    return phrase(noun, said)


def _state(infinitive: str, tense: Tense, subject: Agreement) -> str:
    forms = IMPERFECT[infinitive] if tense == "past" else conjugate(infinitive).present
    return forms[subject.person]


def _negated(clause: Clause, finite: str, rest: str) -> str:
    """The finite verb with ne … pas or ne … jamais around it, and the adverb after it."""
    adverb = clause.often.fr if clause.often else ""
    if clause.polarity == "yes":
        return f"{finite} {adverb} {rest}"
    return f"ne {finite} {'pas' if clause.polarity == 'no' else 'jamais'} {adverb} {rest}"


def _act(act: Act, clause: Clause, subject: Agreement, said: Sentence) -> str:
    finite, rest = _verb_group(act, clause.tense, subject)
    tail = act.verb.fr_tail
    fond = "bien" if act.modal == "like" or tail == "bien" else ""
    if fond and clause.polarity == "yes":  # j'aime bien, but je n'aime pas
        finite = f"{finite} bien"
    objects = _objects(act, said, negative=clause.polarity != "yes" and act.modal != "like")
    return _negated(clause, finite, f"{rest} {objects}")


def _verb_group(act: Act, tense: Tense, subject: Agreement) -> tuple[str, str]:
    """The finite verb with its reflexive pronoun, and what follows the negation: a participle or an infinitive."""
    verb, person = act.verb, subject.person
    reflexive = f"{REFLEXIVES[person]} " if verb.fr_reflexive else ""
    if act.modal:
        return conjugate(MODALS[act.modal]).present[person], reflexive + verb.fr
    if tense == "future":
        return conjugate("aller").present[person], reflexive + verb.fr
    if tense == "past":
        helper, participle = _passe_compose(verb, subject)
        return reflexive + helper, participle
    return reflexive + conjugate(verb.fr).present[person], ""


def _passe_compose(verb: Verb, subject: Agreement) -> tuple[str, str]:
    participle = conjugate(verb.fr).participle
    if verb.fr_reflexive or verb.fr in PAST_WITH_ETRE:
        helper = conjugate("être").present[subject.person]
        return helper, agree(participle, female=subject.female, plural=subject.plural)
    return conjugate("avoir").present[subject.person], participle


def _objects(act: Act, said: Sentence, *, negative: bool) -> str:
    tail = "" if act.verb.fr_tail == "bien" else act.verb.fr_tail
    if act.goal:
        return _goal(act.verb, act.goal)
    if act.object is None and tail in ("à", "de"):  # where did she go?
        return ""
    if act.object is None:
        return NEGATIVE_TAILS.get(tail, tail) if negative else tail
    indefinite = "none" if tail.endswith(" de") else "de" if negative and not tail else ""
    if act.recipient:
        given = phrase(act.object, said, indefinite="de" if negative else "")
        return f"{given} {tail} {phrase(act.recipient, said)}"
    return f"{tail} {phrase(act.object, said, indefinite=indefinite)}"


def _goal(verb: Verb, place: Place) -> str:
    if verb.fr in ("venir", "revenir"):
        return f"{place.fr_from} {place.fr}"
    return f"{place.fr_to if verb.fr in ('aller', 'arriver') else place.fr_at} {place.fr}"


def _circumstances(clause: Clause, said: Sentence) -> str:
    parts = [
        f"avec {phrase(clause.companion, said)}" if clause.companion else "",
        location(clause.where, said) if clause.where else "",
        clause.vehicle.fr if clause.vehicle else "",
        moment(clause.time) if clause.time else "",
    ]
    return " ".join(parts)


def location(where: Where, said: Sentence) -> str:
    match where:
        case Place(fr=words, fr_at=at):
            return f"{at} {words}"
        case Near(relation, landmark):
            return f"{relation.fr} {phrase(landmark, said)}"


def moment(time: Time) -> str:
    match time:
        case Word(fr=words):
            return words
        case Span(count, unit, side):
            return f"{SIDES[side]} {number(count, female=unit.feminine)} {unit.fr if count == 1 else unit.fr_plural}"
        case Date(month, day):
            return f"le {'1er' if day == 1 else day} {month.fr}"
        case Clock():
            return f"à {clock(time)}"


def clock(time: Clock) -> str:
    minute = time.minute
    hour = time.hour + 1 if minute > 30 else time.hour
    hours = f"{number(hour, female=True)} heure{'' if hour == 1 else 's'}"
    if minute in (0, 15, 30, 45):
        return hours + {0: "", 15: " et quart", 30: " et demie", 45: " moins le quart"}[minute]
    return f"{hours} {number(minute)}" if minute < 30 else f"{hours} moins {number(60 - minute)}"


def _order(order: Order, said: Sentence) -> str:
    act, polite = order.act, said.listener != "friend"
    finite = conjugate(act.verb.fr).imperative(polite=polite)
    objects = _objects(act, said, negative=order.negative)
    if order.negative:
        reflexive = ("vous" if polite else "te") if act.verb.fr_reflexive else ""
        return f"ne {reflexive} {finite} pas {objects}"
    reflexive = ("-vous" if polite else "-toi") if act.verb.fr_reflexive else ""
    return f"{finite}{reflexive} {objects}, s'il {'vous' if polite else 'te'} plaît"


def _existence(there: Existence, said: Sentence) -> str:
    negative = there.polarity == "no"
    what = phrase(there.what, said, indefinite="de" if negative else "")
    words = f"{'il ne y a pas' if negative else 'il y a'} {what} {location(there.where, said)}"
    return f"est-ce que {words}" if there.question else words


def _presentation(this: Presentation, said: Sentence) -> str:
    be = "sont" if this.what.plural else "est"
    words = f"ce ne {be} pas" if this.negative else f"ce {be}"
    words = f"{words} {phrase(this.what, said)}"
    return f"est-ce que {words}" if this.question else words


def _comparison(comparison: Comparison, said: Sentence) -> str:
    first = agreement(comparison.first, said)
    form = comparison.adjective.fr[first.female + 2 * first.plural]
    how = {"more": "plus", "less": "moins", "as": "aussi"}[comparison.how]
    be = conjugate("être").present[first.person]
    return f"{phrase(comparison.first, said)} {be} {how} {form} que {phrase(comparison.second, said)}"


def _weather(weather: Weather) -> str:
    kind, tense, negative = weather.kind.fr, weather.tense, weather.negative
    ne, pas = ("ne", "pas") if negative else ("", "")
    if "verb" in weather.kind.uses:
        forms = conjugate(kind)
        if tense == "past":
            words = f"il {ne} a {pas} {forms.participle}"
        elif tense == "future":
            words = f"il {ne} va {pas} {kind}"
        else:
            words = f"il {ne} {forms.present[2]} {pas} {'souvent' if tense == 'habit' else ''}"
    elif kind.startswith("du "):
        what = f"de {kind.removeprefix('du ')}" if negative else kind
        words = (
            f"il {ne} va {pas} y avoir {what}"
            if tense == "future"
            else f"il {ne} y {_state('avoir', tense, HE)} {pas} {what}"
        )
    else:
        words = (
            f"il {ne} va {pas} faire {kind}"
            if tense == "future"
            else f"il {ne} {_state('faire', tense, HE)} {pas} {kind}"
        )
    city = f"à {weather.city.fr}" if weather.city else ""
    words = f"{words} {city} {weather.time.fr if weather.time else ''}"
    return f"est-ce que {words}" if weather.question else words


def _moment(saying: Moment, said: Sentence) -> str:
    if isinstance(saying.when, Clock):
        return f"il est {clock(saying.when)}"
    if isinstance(saying.about, Phrase):
        return f"{phrase(saying.about, said)} est {moment(saying.when)}"
    weekday = f"le {saying.weekday.fr} " if saying.weekday else "le "
    return f"{saying.about.fr}, c'est {weekday}{moment(saying.when).removeprefix('le ')}"


def _price(price: Price, said: Sentence) -> str:
    what = phrase(price.what, said)
    cost = "coûtent" if price.what.plural else "coûte"
    if not price.euros:
        return f"combien {cost} {what}"
    return f"{what} {cost} {number(price.euros)} euro{'' if price.euros == 1 else 's'}"


def _pain(pain: Pain, said: Sentence) -> str:
    several = "several" in pain.part.classes
    part = f"les {pain.part.fr_plural}" if several else f"{'la' if pain.part.feminine else 'le'} {pain.part.fr}"
    have = conjugate("avoir").present[agreement(pain.subject, said).person]
    words = f"{phrase(pain.subject, said)} {have} mal à {part}"
    return f"est-ce que {words}" if pain.question else words
