"""Who it is about: names, relatives, people of a trade, and the pronouns that stand for them."""

from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.lexicon import NAMES, words
from scripts.demo_corpus.meaning import Name, Noun, Pair, Phrase, Pronoun, Subject, Verb
from scripts.demo_corpus.nouns import nouns, nouns_of

ME, YOU, HE, SHE = Pronoun(1), Pronoun(2), Pronoun(3), Pronoun(3, female=True)
WE, THEY = Pronoun(1, plural=True), Pronoun(3, plural=True)
WOMEN = Pronoun(3, plural=True, female=True)
ACQUIRING = frozenset({"buy", "want", "need", "borrow", "have", "choose"})  # what one does not own yet
YOUNG, ELDERLY = frozenset({"child", "child-noun"}), frozenset({"elderly"})
GROWN_UP = frozenset({"wine", "dwelling", "furniture", "car", "truck", "boat", "offspring"})  # not for children


def single(draw: Draw) -> Subject:
    return draw.who(ME, HE, SHE, name(draw), name(draw), relative(draw, ME, several=False))


def person(draw: Draw, *, first: bool = True, pronoun: bool = True) -> Subject:
    """Somebody; `first` allows I, we, my and our (one asks about your mother, not mine), `pronoun` any pronoun."""
    if pronoun and draw.chance(0.45):
        return draw.one((ME, ME, WE, HE, HE, SHE, SHE, THEY, YOU) if first else (YOU, YOU, YOU, HE, SHE, THEY))
    if draw.chance(0.45):
        return name(draw)
    if draw.chance(0.55):
        whose = None if first else name(draw) if draw.chance(0.2) else draw.one((YOU, YOU, YOU, HE, SHE))
        return relative(draw, whose, woman=draw.chance(0.25))
    if draw.chance(0.3):
        return couple(draw, ME if first else YOU)
    job = draw.one(nouns_of("job adult-noun child-noun"))
    woman = job.fr_woman is not None and draw.chance(0.15)
    return Phrase(job, "the", plural=draw.chance(0.25), woman=woman)


def name(draw: Draw) -> Name:
    return Name(draw.one(words(NAMES)))


def couple(draw: Draw, nearest: Pronoun = ME) -> Pair:
    if draw.chance(0.4):
        owner = draw.one((nearest, HE, SHE))
        first, second = ("father", "mother") if draw.chance(0.5) else ("son", "daughter")
        return Pair(Phrase(nouns()[first], "of", owner=owner), Phrase(nouns()[second], "of", owner=owner))
    first_name = name(draw)
    others = [word for word in words(NAMES) if word is not first_name.word]
    return Pair(first_name, Name(draw.one(others)))


def relative(
    draw: Draw,
    owner: Subject | None = None,
    but: Noun | None = None,
    *,
    several: bool = True,
    woman: bool = False,
    friends: bool = True,
) -> Phrase:
    """My mother, Anna's friend: one of somebody's family or `friends`, or `several` of them."""
    if owner is None:
        owner = name(draw) if draw.chance(0.2) else draw.one((ME, ME, ME, WE, YOU, HE, SHE))
    if several and draw.chance(0.08):
        return Phrase(nouns()["parent"], "of", plural=True, owner=owner)
    if friends and draw.chance(0.2):
        plural = several and draw.chance(0.3)
        return Phrase(draw.one(nouns_of("owned")), "of", plural, owner=owner, woman=woman)
    if owner == HE and draw.chance(0.1):
        return Phrase(nouns()["wife"], "of", owner=owner)
    if owner == SHE and draw.chance(0.1):
        return Phrase(nouns()["husband"], "of", owner=owner)
    return Phrase(draw.one([noun for noun in nouns_of("kin") if noun is not but]), "of", owner=owner)


def related(draw: Draw, subject: Subject) -> Phrase:
    """Somebody of the subject's own: the engineers' friends, and not their aunt, whom they would have to share."""
    own = pronoun_for(subject)
    if isinstance(subject, Pair) and isinstance(subject.first, Phrase):  # her father and her mother, her son and …
        return Phrase(nouns()[draw.one(("friend", "neighbour"))], "of", plural=True, owner=own)
    if not isinstance(subject, Phrase):
        return relative(draw, own)
    if subject.plural:
        theirs = ("friend", "neighbour") if "parents" in subject.noun.classes else ("friend", "neighbour", "parent")
        return Phrase(nouns()[draw.one(theirs)], "of", plural=True, owner=own)
    found = relative(draw, own, subject.noun)
    child = subject.noun.classes & YOUNG and found.noun.classes & {"colleague", "wife", "husband", "offspring"}
    older = subject.noun.classes & ELDERLY and found.noun.classes & {"adult", "colleague"}
    return Phrase(nouns()["friend"], "of", owner=own) if child or older else found


def wearer(subject: Subject, thing: Phrase) -> Subject:
    """The subject, or she where a man would have a skirt, or somebody of whom one does not hear."""
    who = pronoun_for(subject)
    unknown = isinstance(subject, Phrase) and subject.noun.fr_woman is not None
    return SHE if "womenswear" in thing.noun.classes and (who in (HE, THEY) or unknown) else subject


def able(draw: Draw, subject: Subject, verb: Verb, thing: Phrase | None = None) -> Subject:
    """The subject, or somebody else where a child would drive or drink wine, or a grandfather play football."""
    has = thing.noun.classes if thing and verb.en in ACQUIRING | {"drink", "like"} else frozenset()
    unfit: frozenset[str] = ELDERLY if "vigorous" in verb.uses else frozenset()
    if "adult" in verb.uses or has & GROWN_UP:
        unfit |= YOUNG
    people = (subject.first, subject.second) if isinstance(subject, Pair) else (subject,)
    return name(draw) if any(isinstance(who, Phrase) and who.noun.classes & unfit for who in people) else subject


def pronoun_for(subject: Subject) -> Pronoun:
    """The pronoun that a second mention takes: he, they, it."""
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
