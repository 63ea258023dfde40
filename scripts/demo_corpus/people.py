"""The people of the sentences: names, relatives, professions, and the pronouns that refer to them."""

from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.lexicon import NAMES, words
from scripts.demo_corpus.meaning import Name, Noun, Pair, Phrase, Pronoun, Subject, Verb
from scripts.demo_corpus.nouns import nouns, nouns_of

ME, YOU, HE, SHE = Pronoun(1), Pronoun(2), Pronoun(3), Pronoun(3, female=True)
WE, THEY = Pronoun(1, plural=True), Pronoun(3, plural=True)
WOMEN = Pronoun(3, plural=True, female=True)
ACQUIRING = frozenset({"buy", "want", "need", "borrow", "have", "choose"})  # what the subject does not own yet
YOUNG, ELDERLY = frozenset({"child", "child-noun"}), frozenset({"elderly"})
GROWN_UP = frozenset({"wine", "dwelling", "furniture", "car", "truck", "boat", "offspring"})  # not for children


def single(draw: Draw) -> Subject:
    """Choose one person."""
    return draw.choose_subject(ME, HE, SHE, name(draw), name(draw), relative(draw, ME, several=False))


def person(draw: Draw, *, first: bool = True, pronoun: bool = True) -> Subject:
    """Choose a subject: a person or several.

    `first` allows I, we, my and our: one asks about your mother, not about mine. `pronoun` allows pronouns.
    """
    if pronoun and draw.chance(0.45):
        return draw.choose((ME, ME, WE, HE, HE, SHE, SHE, THEY, YOU) if first else (YOU, YOU, YOU, HE, SHE, THEY))
    if draw.chance(0.45):
        return name(draw)
    if draw.chance(0.55):
        whose = None if first else name(draw) if draw.chance(0.2) else draw.choose((YOU, YOU, YOU, HE, SHE))
        return relative(draw, whose, woman=draw.chance(0.25))
    if draw.chance(0.3):
        return couple(draw, ME if first else YOU)
    job = draw.choose(nouns_of("job adult-noun child-noun"))
    woman = job.fr_woman is not None and draw.chance(0.15)
    return Phrase(job, "the", plural=draw.chance(0.25), woman=woman)


def name(draw: Draw) -> Name:
    """Choose a name."""
    return Name(draw.choose(words(NAMES)))


def couple(draw: Draw, nearest: Pronoun = ME) -> Pair:
    """Choose two people: two names, or the parents or children of a person."""
    if draw.chance(0.4):
        owner = draw.choose((nearest, HE, SHE))
        first, second = ("father", "mother") if draw.chance(0.5) else ("son", "daughter")
        return Pair(Phrase(nouns()[first], "of", owner=owner), Phrase(nouns()[second], "of", owner=owner))
    first_name = name(draw)
    others = [word for word in words(NAMES) if word is not first_name.word]
    return Pair(first_name, Name(draw.choose(others)))


def relative(
    draw: Draw,
    owner: Subject | None = None,
    excluding: Noun | None = None,
    *,
    several: bool = True,
    woman: bool = False,
    friends: bool = True,
) -> Phrase:
    """Choose a relative: "my mother", "Anna's friend".

    `friends` allows friends, neighbours and colleagues, `several` allows a plural.
    """
    if owner is None:
        owner = name(draw) if draw.chance(0.2) else draw.choose((ME, ME, ME, WE, YOU, HE, SHE))
    if several and draw.chance(0.08):
        return Phrase(nouns()["parent"], "of", plural=True, owner=owner)
    if friends and draw.chance(0.2):
        plural = several and draw.chance(0.3)
        return Phrase(draw.choose(nouns_of("owned")), "of", plural, owner=owner, woman=woman)
    if owner == HE and draw.chance(0.1):
        return Phrase(nouns()["wife"], "of", owner=owner)
    if owner == SHE and draw.chance(0.1):
        return Phrase(nouns()["husband"], "of", owner=owner)
    return Phrase(draw.choose([noun for noun in nouns_of("kin") if noun is not excluding]), "of", owner=owner)


def related(draw: Draw, subject: Subject) -> Phrase:
    """Choose a relative or friend of the subject.

    Several people have friends in common, but no aunt: "the engineers thanked their friends".
    """
    own = pronoun_for(subject)
    if isinstance(subject, Pair) and isinstance(subject.first, Phrase):  # her father and her mother, her son and …
        return Phrase(nouns()[draw.choose(("friend", "neighbour"))], "of", plural=True, owner=own)
    if not isinstance(subject, Phrase):
        return relative(draw, own)
    if subject.plural:
        theirs = ("friend", "neighbour") if "parents" in subject.noun.classes else ("friend", "neighbour", "parent")
        return Phrase(nouns()[draw.choose(theirs)], "of", plural=True, owner=own)
    kin = relative(draw, own, subject.noun)
    child = subject.noun.classes & YOUNG and kin.noun.classes & {"colleague", "wife", "husband", "offspring"}
    older = subject.noun.classes & ELDERLY and kin.noun.classes & {"adult", "colleague"}
    return Phrase(nouns()["friend"], "of", owner=own) if child or older else kin


def wearer(subject: Subject, thing: Phrase) -> Subject:
    """Return the subject, or "she" if the thing is for women and the subject is or may be a man."""
    who = pronoun_for(subject)
    unknown = isinstance(subject, Phrase) and subject.noun.fr_woman is not None
    return SHE if "womenswear" in thing.noun.classes and (who in (HE, THEY) or unknown) else subject


def suitable_subject(draw: Draw, subject: Subject, verb: Verb, thing: Phrase | None = None) -> Subject:
    """Return the subject, or a name if the act does not suit the subject: children do not drive cars."""
    has = thing.noun.classes if thing and verb.en in ACQUIRING | {"drink", "like"} else frozenset()
    unfit: frozenset[str] = ELDERLY if "vigorous" in verb.uses else frozenset()
    if "adult" in verb.uses or has & GROWN_UP:
        unfit |= YOUNG
    people = (subject.first, subject.second) if isinstance(subject, Pair) else (subject,)
    return name(draw) if any(isinstance(who, Phrase) and who.noun.classes & unfit for who in people) else subject


def pronoun_for(subject: Subject) -> Pronoun:
    """Return the pronoun that refers to the subject: he, they, it."""
    match subject:
        case Pronoun():
            return subject
        case Name():
            return SHE if subject.female else HE
        case Pair(first, second):
            return WOMEN if pronoun_for(first).female and pronoun_for(second).female else THEY
        case Phrase(noun=noun, plural=plural):
            human = bool(noun.classes & {"human", "kin", "wife", "husband", "parents"})
            female = noun.feminine or subject.woman
            return Pronoun(3, plural, female, thing=not human and not plural)
