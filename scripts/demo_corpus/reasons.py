"""Two clauses joined by because, but or and. The pronoun in the second clause agrees with its antecedent."""

from functools import cache

from scripts.demo_corpus.adjectives import adjective, predicative
from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.choices import adjective_for, belonging
from scripts.demo_corpus.lexicon import LINKS, TIMES, words, words_for
from scripts.demo_corpus.meaning import Act, Adjective, Clause, Degree, Joined, Phrase, Quality, Subject, Verb
from scripts.demo_corpus.nouns import nouns, nouns_of
from scripts.demo_corpus.people import ME, YOU, name, person, pronoun_for, relative, suitable_subject
from scripts.demo_corpus.verbs import ACTIVITIES, TRANSITIVE, verb, verbs_for, verbs_named

BECAUSE, BUT, AND = words(LINKS)
DRIVE = verb(TRANSITIVE, "drive")

# Verb, noun classes of its object, reasons.
REFUSALS = (
    ("buy", "clothing furniture computer phone camera vehicle", "expensive old"),
    ("eat", "pizza cake soup", "cold sweet hot"),
    ("drink", "coffee tea milk", "hot cold"),
    ("read", "novel", "boring"),
    ("watch", "film", "boring long"),
    ("carry", "moved chair table", "heavy"),
)


@cache
def adjectives_named(classes: frozenset[str], names: str) -> tuple[Adjective, ...]:
    """Return those of the named adjectives that may be predicates of these noun classes."""
    return tuple(word for word in predicative(classes) if word.en in names.split())


def _somebody(draw: Draw) -> Subject:
    """Choose a subject whose sex is known: not "the teacher", which may be he or she."""
    subject = person(draw)
    return name(draw) if isinstance(subject, Phrase) and "human" in subject.noun.classes else subject


# Reasons why an animal does not cross it.
OBSTACLES = {
    "street": "wide dangerous noisy",
    "river": "wide dangerous",
    "bridge": "long dangerous",
    "forest": "big dangerous",
    "square": "big noisy",
    "park": "big",
    "garden": "big",
}


def crossing(draw: Draw) -> Joined:
    """Draw a sentence whose pronoun has two possible antecedents.

    "The animal didn't cross the street because it was too tired": the animal was; "… too wide": the street was.
    """
    beast = draw.choose([noun for noun in nouns_of("animal") if "winged" not in noun.classes])
    barrier = draw.choose(nouns_of("crossing crossing field"))
    look = adjective_for(draw, beast, 0.3)
    first, second = Phrase(beast, "the", adjective=look), Phrase(barrier, "the")
    act = next(act for act in verbs_named(TRANSITIVE, "cross") if act.objects & barrier.classes)
    if draw.chance(0.5):
        old = not (look and look.en in ("old", "big", "small"))
        word, about = draw.choose(adjectives_named(beast.classes, "tired old" if old else "tired")), first
    else:
        word, about = draw.choose(adjectives_named(barrier.classes, OBSTACLES[barrier.en])), second
    reason = Clause(pronoun_for(about), Quality(word, "too"), "past")
    return Joined(Clause(first, Act(act, second), "past", "no"), BECAUSE, reason)


@cache
def well_known_examples() -> tuple[Joined, Joined]:
    """Return the best-known example of its kind, with both endings: "it" is the animal, or the street."""
    animal, street = Phrase(nouns()["animal"], "the"), Phrase(nouns()["street"], "the")
    didnt_cross = Clause(animal, Act(verb(TRANSITIVE, "cross"), street), "past", "no")
    tired = Clause(pronoun_for(animal), Quality(adjective("tired"), "too"), "past")
    wide = Clause(pronoun_for(street), Quality(adjective("wide"), "too"), "past")
    return Joined(didnt_cross, BECAUSE, tired), Joined(didnt_cross, BECAUSE, wide)


def refusal(draw: Draw) -> Joined:
    """Draw a reason not to do something: "Paul didn't buy the coat because it was too expensive"."""
    verb_name, classes, why = draw.choose(REFUSALS)
    noun = draw.choose(nouns_of(classes))
    act = next(act for act in verbs_named(TRANSITIVE, verb_name) if act.objects & noun.classes)
    thing = Phrase(noun, "the" if noun.mass else draw.choose(("the", "this")))
    reason = Clause(pronoun_for(thing), Quality(draw.choose(adjectives_named(noun.classes, why)), "too"), "past")
    subject = suitable_subject(draw, person(draw), DRIVE) if verb_name == "buy" else person(draw)
    return Joined(Clause(subject, Act(act, thing), "past", "no"), BECAUSE, reason)


def absence(draw: Draw) -> Joined:
    """Draw a reason for an absence: "She didn't work yesterday because she was ill"."""
    act = draw.choose(verbs_named(ACTIVITIES, "work swim run dance cook play"))
    subject = suitable_subject(draw, _somebody(draw), act)
    word = adjective(draw.choose(("tired", "tired", "ill", "tired" if act.en == "work" else "busy")))
    degree: Degree = "" if word.zh_kind == "了" else draw.choose(("too", "very"))
    time = draw.choose(words_for(TIMES, "past")[:3]) if draw.chance(0.7) else None
    reason = Clause(pronoun_for(subject), Quality(word, degree), "past")
    return Joined(Clause(subject, Act(act), "past", "no", time=time), BECAUSE, reason)


def emotion(draw: Draw) -> Joined:
    """Draw an emotion and its cause: "Emma is happy because she found her keys"."""
    subject = _somebody(draw)
    who = pronoun_for(subject)
    found = draw.chance(0.4)
    word = adjective("happy" if found else draw.choose(("sad", "angry", "worried")))
    noun = draw.choose(nouns_of("small"))
    thing = belonging(noun, who)
    cause = Clause(who, Act(verb(TRANSITIVE, "find" if found else "lose"), thing), "past")
    return Joined(Clause(subject, Quality(word)), BECAUSE, cause)


def contrast(draw: Draw) -> Joined:
    """Draw two clauses with "but": "I like tea, but I don't like coffee"."""
    subject = _somebody(draw)
    who = pronoun_for(subject)
    if draw.chance(0.35):
        known, unknown = draw.shuffled(verbs_named(ACTIVITIES, "swim dance sing cook play"))[:2]
        can = Clause(subject, Act(known, modal="know"))
        return Joined(can, BUT, Clause(who, Act(unknown, modal="know"), polarity="no"))
    like = verb(TRANSITIVE, "like")
    group = draw.choose(("edible", "food vegetables fruits", "drink", "pet", "language", "science"))
    choice = [noun for noun in nouns_of(group) if noun.en not in ("meat", "water")]  # beef is meat
    liked, other = draw.shuffled(choice)[:2]
    if group == "drink":
        subject = suitable_subject(draw, subject, like, Phrase(nouns()["wine"], "generic"))
        who = pronoun_for(subject)
    first = Clause(subject, Act(like, Phrase(liked, "generic", not liked.mass)))
    return Joined(first, BUT, Clause(who, Act(like, Phrase(other, "generic", not other.mass)), polarity="no"))


def two_scenes(draw: Draw) -> Joined:
    """Draw two clauses with "and": "Lucas is singing and Emma is dancing"."""
    first, second = name(draw), name(draw)
    other: Subject = relative(draw, draw.choose((ME, YOU))) if first == second or draw.chance(0.3) else second
    one_act, other_act = draw.shuffled(_going_on())[:2]
    other = suitable_subject(draw, other, other_act)
    if other == first:
        other = Phrase(nouns()["friend"], "of", owner=ME)
    return Joined(Clause(first, Act(one_act), "now"), AND, Clause(other, Act(other_act), "now"))


@cache
def _going_on() -> tuple[Verb, ...]:
    return verbs_for(ACTIVITIES, "now", "have smoke")
