"""Modal verbs: what people want, can, must, like and know how to do."""

from dataclasses import replace
from functools import cache

from scripts.demo_corpus.chance import Draw
from scripts.demo_corpus.choices import UNWANTED as DISLIKED
from scripts.demo_corpus.choices import object_for, time_for
from scripts.demo_corpus.meaning import Act, Clause, Modal, Phrase, Verb
from scripts.demo_corpus.people import ME, WE, YOU, person, suitable_subject, wearer
from scripts.demo_corpus.sentences import DYNAMIC, doer, mood_of
from scripts.demo_corpus.verbs import ACTIVITIES, TRANSITIVE, verbs_for, verbs_named

MODALS: tuple[Modal, ...] = ("want", "want", "can", "can", "must", "know", "like", "love")

# What people request, are allowed to do and have to do. They may want anything except `UNWANTED`.
REQUESTED = {
    TRANSITIVE: "buy sing tell open close wash clean make repair answer help call wait invite carry",
    ACTIVITIES: "sing cook take get",
}
ALLOWED = {
    TRANSITIVE: "eat drink read watch sing open close use borrow visit call invite help",
    ACTIVITIES: "swim sing dance rest play go take watch listen",
}
OBLIGED = {
    TRANSITIVE: "buy read write wash clean repair answer learn study help visit call wait invite thank",
    ACTIVITIES: "sleep work study cook rest get take",
}
UNWANTED = "carry answer smoke"


def modal(draw: Draw) -> Clause:
    """Draw a sentence with a modal verb: "Anna wants to read this book.", "Can you open the window?"."""
    how = draw.choose(MODALS)
    polarity, question = mood_of(draw)
    subject = doer(draw, question)
    if how in ("must", "love"):
        polarity, question = "yes", ""
    if how == "can":  # not "he can wash the bike", which is no news
        polarity, question = ("no", "") if draw.chance(0.3) else ("yes", "yes-no")
        subject = person(draw) if polarity == "no" else draw.choose((YOU, YOU, ME, WE))
    if how == "want" and subject == YOU:  # ask, because the listener knows what he wants
        polarity, question = "yes", "yes-no"
    act = _modal_verb(draw, how, request=subject == YOU and polarity == "yes")
    subject = suitable_subject(draw, subject, act)
    thing = object_for(draw, act, subject, tense="future", polarity=polarity) if act in DYNAMIC else None
    if thing and thing.adjective and (how == "can" or thing.adjective.en in DISLIKED):
        thing = replace(thing, adjective=None)
    if thing and how == "must" and act.en == "read" and thing.determiner in ("a", "count"):
        thing = Phrase(thing.noun, "this")
    if thing and question and thing.determiner == "count":
        thing = Phrase(thing.noun, "a", container=thing.container)
    if thing and how == "can" and polarity == "no" and act.en not in ("eat", "drink") and thing.determiner == "a":
        thing = Phrase(thing.noun, "this")  # not "he can't read any letters"
    if thing and act.en == "choose":
        subject = wearer(subject, thing)
    time = None
    if how in ("want", "must") and "future" in act.uses and polarity == "yes" and not question and draw.chance(0.4):
        time = time_for(draw, "future", act)
    return Clause(
        suitable_subject(draw, subject, act, thing), Act(act, thing, modal=how), "habit", polarity, question, time=time
    )


def _modal_verb(draw: Draw, how: Modal, *, request: bool) -> Verb:
    """Choose the verb that follows the modal verb."""
    if how == "know":
        return draw.choose(verbs_named(ACTIVITIES, "swim dance sing cook play"))
    if how in ("like", "love"):
        return draw.choose(verbs_for(ACTIVITIES, "modal", "get smoke take rest"))
    return draw.choose(_possible(ACTIVITIES if draw.chance(0.35) else TRANSITIVE, how, request))


@cache
def _possible(table: str, how: Modal, request: bool) -> tuple[Verb, ...]:
    """Return the verbs that suit want, must and can; `request` is for "can you …?"."""
    if how == "want":
        return tuple(act for act in verbs_for(table, "modal", UNWANTED) if "ware" not in act.objects)
    named = OBLIGED if how == "must" else REQUESTED if request else ALLOWED
    known = [act for act in verbs_named(table, named[table]) if "modal" in act.uses and "far" not in act.uses]
    return tuple(act for act in known if how != "must" or "museum" not in act.objects)
