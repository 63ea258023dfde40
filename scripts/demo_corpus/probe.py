"""The split `probe`: pairs of sentences that show whether a model uses the whole sentence or only its words.

There are two kinds of pairs. In an antecedent pair one word differs, and with it the noun that a pronoun stands for:
"The animal didn't cross the street because it was too tired / too wide". In a role pair the words are the same, but
subject and object are exchanged: "The girl saw the horse." / "The horse saw the girl."
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from scripts.demo_corpus.adjectives import attributive
from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.lexicon import NAMES, words
from scripts.demo_corpus.meaning import (
    Act,
    Adjective,
    Clause,
    Joined,
    Modal,
    Name,
    Noun,
    Phrase,
    Quality,
    Sentence,
    Subject,
    Tense,
)
from scripts.demo_corpus.nouns import nouns_of
from scripts.demo_corpus.people import pronoun_for
from scripts.demo_corpus.reasons import BECAUSE, OBSTACLES, adjectives_named
from scripts.demo_corpus.verbs import TRANSITIVE, verbs_named

SEED = 7
N_ANTECEDENT_PAIRS = 240
MODALS: tuple[Modal, ...] = ("", "can", "want")  # didn't cross, can't cross, doesn't want to cross
LARGE = ("animal", "cow", "elephant", "horse", "tiger")  # animals that may be too big to cross a garden
TENSES: tuple[Tense, ...] = ("past", "now")

# How many pairs, their verbs, and the noun classes of the two roles; the class "name" stands for the names.
ROLE_PAIRS = (
    (60, "help thank meet see", "job adult-noun child-noun", "job adult-noun child-noun"),
    (40, "help thank meet see", "name", "name"),
    (30, "see hear", "animal", "animal"),
    (40, "see", "job adult-noun child-noun", "animal"),
    (40, "eat", "name adult-noun child-noun", "edible dish food broth"),
    (15, "drink", "name adult-noun", "drink"),
    (15, "read wash carry", "name adult-noun", "read clothing moved"),
)


class ProbePair(NamedTuple):
    """Two sentences to compare and, in an antecedent pair, the noun that the pronoun of each sentence stands for."""

    kind: Literal["antecedent", "roles"]
    sentences: tuple[Sentence, Sentence]
    antecedents: tuple[Noun, Noun] | None = None


def probe_pairs(is_new: Callable[[Sentence], bool], *, same_gender: bool) -> list[ProbePair]:
    """Return all pairs of one direction; a sentence is used once, and only if `is_new` accepts it.

    The two nouns of an antecedent pair have the same gender in French, or different genders. With different genders,
    il or elle in a French translation shows the antecedent. French sources take the same gender: otherwise the two
    sentences would differ in the pronoun, too.
    """
    return [*_antecedent_pairs(is_new, same_gender=same_gender), *_role_pairs(is_new)]


def _antecedent_pairs(is_new: Callable[[Sentence], bool], *, same_gender: bool) -> list[ProbePair]:
    draw = Draw(SEED)
    pairs: list[ProbePair] = []
    # Feminine animals first: they are few, and without them "tired" alone would give il away. Then the past tense,
    # because the corpus has modal verbs only in sentences of one clause.
    groups = sorted(draw.shuffled(list(_crossings())), key=lambda group: (not group.beast.feminine, group.modal != ""))
    for group in groups:
        if (group.beast.feminine == group.barrier.feminine) != same_gender:
            continue
        of_beast, of_barrier = ([it for it in draw.shuffled(side) if is_new(it)] for side in group.reasons())
        antecedents = (group.beast, group.barrier)
        pairs += [
            ProbePair("antecedent", sentences, antecedents) for sentences in zip(of_beast, of_barrier, strict=False)
        ]
    return pairs[:N_ANTECEDENT_PAIRS]


class _Crossing(NamedTuple):
    """What did not cross what: "The black cat can't cross the bridge"."""

    beast: Noun
    look: Adjective | None
    barrier: Noun
    modal: Modal

    def reasons(self) -> tuple[list[Sentence], list[Sentence]]:
        """Return the sentences whose reason is about the animal, and those whose reason is about the barrier."""
        beast = Phrase(self.beast, "the", adjective=self.look)
        barrier = Phrase(self.barrier, "the")
        act = next(act for act in verbs_named(TRANSITIVE, "cross") if act.objects & self.barrier.classes)
        tense: Tense = "habit" if self.modal else "past"
        first = Clause(beast, Act(act, barrier, modal=self.modal), tense, "no")

        def because(about: Phrase, why: str) -> list[Sentence]:
            words = [word for word in adjectives_named(about.noun.classes, why) if not self.is_ambiguous(word.en)]
            clauses = [Clause(pronoun_for(about), Quality(word, "too"), tense) for word in words]
            return [Sentence(Joined(first, BECAUSE, clause)) for clause in clauses]

        return because(beast, "tired old"), because(barrier, OBSTACLES[self.barrier.en])

    def is_ambiguous(self, why: str) -> bool:
        """Tell whether the reason could apply to either noun, or repeats the adjective of the animal."""
        if why == "old":  # a bridge may be too old, too
            return self.barrier.en == "bridge" or (self.look is not None and self.look.en in ("old", "big", "small"))
        if why == "big":
            return self.beast.en in LARGE or (self.look is not None and self.look.en == "big")
        return why == "dangerous" and "wild" in self.beast.classes


def _crossings() -> Iterator[_Crossing]:
    for modal, beast, barrier in itertools.product(MODALS, nouns_of("animal"), nouns_of("crossing field")):
        if "winged" not in beast.classes:
            for look in (None, *attributive(beast.classes)):
                yield _Crossing(beast, look, barrier, modal)


def _role_pairs(is_new: Callable[[Sentence], bool]) -> list[ProbePair]:
    pairs: list[ProbePair] = []
    for number, (count, verb_names, *classes) in enumerate(ROLE_PAIRS):
        draw = Draw(SEED + number)
        first, second = (_participants(names) for names in classes)
        options = itertools.product(verbs_named(TRANSITIVE, verb_names), TENSES, first, second)
        added: set[Sentence] = set()
        chosen: list[ProbePair] = []
        for verb, tense, one, other in draw.shuffled(list(options)):
            objects = [who.noun.classes for who in (one, other) if isinstance(who, Phrase)]
            suits = tense in verb.uses and ("name" in classes or any(verb.objects & names for names in objects))
            there = Sentence(Clause(one, Act(verb, other), tense))
            back = Sentence(Clause(other, Act(verb, one), tense))
            if suits and one != other and there not in added and is_new(there) and is_new(back):
                added |= {there, back}
                chosen.append(ProbePair("roles", (there, back)))
        pairs += chosen[:count]
    return pairs


def _participants(classes: str) -> list[Subject]:
    """Return "the" with each noun of the classes, and all names if "name" is among the classes."""
    names: list[Subject] = [Name(word) for word in words(NAMES)] if "name" in classes.split() else []
    return [*names, *(Phrase(noun, "the") for noun in nouns_of(classes))]
