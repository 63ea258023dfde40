"""Render a meaning in French: agreement, negation, est-ce que, passé composé with avoir and être, futur proche."""

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
    Sentence,
    SetPhrase,
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
    """Return the French sentence."""
    if isinstance(sentence.body, SetPhrase):
        return sentence.body.word.fr
    text, asked = _body(sentence)
    if sentence.vocative:
        text = f"{text}, {sentence.vocative.fr}"
    text = glue(text)
    return text[0].upper() + text[1:] + (" ?" if asked else ".")


def _body(sentence: Sentence) -> tuple[str, bool]:
    """Return the words before elision, and whether they are a question."""
    body = sentence.body
    match body:
        case Clause():
            return _clause(body, sentence), bool(body.question)
        case Joined(first, link, second):
            comma = "," if link.en == "but" else ""
            return f"{_clause(first, sentence)}{comma} {link.fr} {_clause(second, sentence)}", False
        case Order():
            return _order(body, sentence), False
        case Existence():
            return _existence(body, sentence), body.question
        case Presentation():
            return _presentation(body, sentence), body.question
        case Comparison():
            return _comparison(body, sentence), False
        case Weather():
            return _weather(body), body.question
        case Moment():
            return _moment(body, sentence), False
        case Price():
            return _price(body, sentence), not body.euros
        case HowMany(subject, noun):
            have = conjugate("avoir").present[agreement(subject, sentence).person]
            return f"combien de {noun.fr_plural} est-ce que {phrase(subject, sentence)} {have}", True
        case Pain():
            return _pain(body, sentence), body.question
        case Sum(first=first, second=second):
            return f"{number(first)} et {number(second)} font {number(first + second)}", False
        case SetPhrase(word):
            return word.fr, False


def _clause(clause: Clause, sentence: Sentence) -> str:
    subject = agreement(clause.subject, sentence)
    verb = _predicate(clause, subject, sentence)
    around = _circumstances(clause, sentence)
    if clause.question == "who":
        return f"qui {verb} {around}"
    who = phrase(clause.subject, sentence)
    if clause.question == "where" and isinstance(clause.predicate, Located):
        return f"où {verb} {who}"
    if isinstance(clause.predicate, Age) and not clause.predicate.years:
        return f"quel âge {verb} {who}"
    asking = ""
    if clause.question:
        asking = f"{ASKING[clause.question]} est-ce que".replace("' ", "'").strip()
    return f"{asking} {who} {verb} {around}"


def _predicate(clause: Clause, subject: Agreement, sentence: Sentence) -> str:
    match clause.predicate:
        case Quality(adjective, degree):
            verb = "avoir" if adjective.fr_avoir else "être"
            word = adjective.fr[0] if adjective.fr_avoir else adjective.fr[subject.female + 2 * subject.plural]
            return _negated(clause, _state(verb, clause.tense, subject), f"{DEGREES[degree]} {word}")
        case Profession():
            return _negated(
                clause, _state("être", clause.tense, subject), _profession(clause.predicate, subject, sentence)
            )
        case Located(where):
            place = location(where, sentence) if where else ""
            return _negated(clause, _state("être", clause.tense, subject), place)
        case Age(years):
            age = f"{number(years)} an{'' if years == 1 else 's'}" if years else ""
            return _negated(clause, _state("avoir", clause.tense, subject), age)
        case Act():
            return _act(clause.predicate, clause, subject, sentence)


def _profession(predicate: Profession, subject: Agreement, sentence: Sentence) -> str:
    woman = subject.female and predicate.noun.fr_woman is not None
    determiner: str = "a" if predicate.adjective else "bare"
    noun = Phrase(
        predicate.noun, "a" if determiner == "a" else "bare", subject.plural, predicate.adjective, woman=woman
    )
    return phrase(noun, sentence)


def _state(infinitive: str, tense: Tense, subject: Agreement) -> str:
    forms = IMPERFECT[infinitive] if tense == "past" else conjugate(infinitive).present
    return forms[subject.person]


def _negated(clause: Clause, finite: str, rest: str) -> str:
    """Put ne … pas or ne … jamais around the finite verb, and the adverb after it."""
    adverb = clause.often.fr if clause.often else ""
    if clause.polarity == "yes":
        return f"{finite} {adverb} {rest}"
    return f"ne {finite} {'pas' if clause.polarity == 'no' else 'jamais'} {adverb} {rest}"


def _act(act: Act, clause: Clause, subject: Agreement, sentence: Sentence) -> str:
    finite, rest = _verb_group(act, clause.tense, subject)
    tail = act.verb.fr_tail
    fond = "bien" if act.modal == "like" or tail == "bien" else ""
    if fond and clause.polarity == "yes":  # j'aime bien, but je n'aime pas
        finite = f"{finite} bien"
    objects = _objects(act, sentence, negative=clause.polarity != "yes" and act.modal != "like")
    return _negated(clause, finite, f"{rest} {objects}")


def _verb_group(act: Act, tense: Tense, subject: Agreement) -> tuple[str, str]:
    """Return the finite verb with its reflexive pronoun, and the participle or infinitive after a negation."""
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


def _objects(act: Act, sentence: Sentence, *, negative: bool) -> str:
    tail = "" if act.verb.fr_tail == "bien" else act.verb.fr_tail
    if act.goal:
        return _goal(act.verb, act.goal)
    if act.object is None and tail in ("à", "de"):  # where did she go?
        return ""
    if act.object is None:
        return NEGATIVE_TAILS.get(tail, tail) if negative else tail
    indefinite = "none" if tail.endswith(" de") else "de" if negative and not tail else ""
    if act.recipient:
        thing = phrase(act.object, sentence, indefinite="de" if negative else "")
        return f"{thing} {tail} {phrase(act.recipient, sentence)}"
    return f"{tail} {phrase(act.object, sentence, indefinite=indefinite)}"


def _goal(verb: Verb, place: Place) -> str:
    if verb.fr in ("venir", "revenir"):
        return f"{place.fr_from} {place.fr}"
    return f"{place.fr_to if verb.fr in ('aller', 'arriver') else place.fr_at} {place.fr}"


def _circumstances(clause: Clause, sentence: Sentence) -> str:
    parts = [
        f"avec {phrase(clause.companion, sentence)}" if clause.companion else "",
        location(clause.where, sentence) if clause.where else "",
        clause.vehicle.fr if clause.vehicle else "",
        moment(clause.time) if clause.time else "",
    ]
    return " ".join(parts)


def location(where: Where, sentence: Sentence) -> str:
    """Render a place with its preposition."""
    match where:
        case Place(fr=words, fr_at=at):
            return f"{at} {words}"
        case Near(relation, landmark):
            return f"{relation.fr} {phrase(landmark, sentence)}"


def moment(time: Time) -> str:
    """Render a time as an adverbial: hier, il y a deux jours, le 3 mai, à une heure."""
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
    """Render a time of day."""
    minute = time.minute
    hour = time.hour + 1 if minute > 30 else time.hour
    hours = f"{number(hour, female=True)} heure{'' if hour == 1 else 's'}"
    if minute in (0, 15, 30, 45):
        return hours + {0: "", 15: " et quart", 30: " et demie", 45: " moins le quart"}[minute]
    return f"{hours} {number(minute)}" if minute < 30 else f"{hours} moins {number(60 - minute)}"


def _order(order: Order, sentence: Sentence) -> str:
    act, polite = order.act, sentence.listener != "friend"
    finite = conjugate(act.verb.fr).imperative(polite=polite)
    objects = _objects(act, sentence, negative=order.negative)
    if order.negative:
        reflexive = ("vous" if polite else "te") if act.verb.fr_reflexive else ""
        return f"ne {reflexive} {finite} pas {objects}"
    reflexive = ("-vous" if polite else "-toi") if act.verb.fr_reflexive else ""
    return f"{finite}{reflexive} {objects}, s'il {'vous' if polite else 'te'} plaît"


def _existence(existence: Existence, sentence: Sentence) -> str:
    negative = existence.polarity == "no"
    what = phrase(existence.what, sentence, indefinite="de" if negative else "")
    words = f"{'il ne y a pas' if negative else 'il y a'} {what} {location(existence.where, sentence)}"
    return f"est-ce que {words}" if existence.question else words


def _presentation(presentation: Presentation, sentence: Sentence) -> str:
    be = "sont" if presentation.what.plural else "est"
    words = f"ce ne {be} pas" if presentation.negative else f"ce {be}"
    words = f"{words} {phrase(presentation.what, sentence)}"
    return f"est-ce que {words}" if presentation.question else words


def _comparison(comparison: Comparison, sentence: Sentence) -> str:
    first = agreement(comparison.first, sentence)
    form = comparison.adjective.fr[first.female + 2 * first.plural]
    how = {"more": "plus", "less": "moins", "as": "aussi"}[comparison.how]
    be = conjugate("être").present[first.person]
    return f"{phrase(comparison.first, sentence)} {be} {how} {form} que {phrase(comparison.second, sentence)}"


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


def _moment(statement: Moment, sentence: Sentence) -> str:
    if isinstance(statement.when, Clock):
        return f"il est {clock(statement.when)}"
    if isinstance(statement.about, Phrase):
        return f"{phrase(statement.about, sentence)} est {moment(statement.when)}"
    weekday = f"le {statement.weekday.fr} " if statement.weekday else "le "
    return f"{statement.about.fr}, c'est {weekday}{moment(statement.when).removeprefix('le ')}"


def _price(price: Price, sentence: Sentence) -> str:
    what = phrase(price.what, sentence)
    cost = "coûtent" if price.what.plural else "coûte"
    if not price.euros:
        return f"combien {cost} {what}"
    return f"{what} {cost} {number(price.euros)} euro{'' if price.euros == 1 else 's'}"


def _pain(pain: Pain, sentence: Sentence) -> str:
    several = "several" in pain.part.classes
    part = f"les {pain.part.fr_plural}" if several else f"{'la' if pain.part.feminine else 'le'} {pain.part.fr}"
    have = conjugate("avoir").present[agreement(pain.subject, sentence).person]
    words = f"{phrase(pain.subject, sentence)} {have} mal à {part}"
    return f"est-ce que {words}" if pain.question else words
