"""Which two languages a run translates between: as the settings say, or as the names of its files do.

The card of the model then says it, and a server needs not be told (`heedful serve -m runs/en-de`).
"""

import re
from pathlib import Path

from heedful.data.lines import plain_name
from heedful.training.record import RunRecord

# Two letters, and a script or a region where there is one. Three letters would take `.txt` for a language.
_CODE = r"[a-z]{2}(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))?"
_SIDE = re.compile(rf"\.({_CODE})$")
_BOTH = re.compile(rf"\b({_CODE})-({_CODE})(?=\.[a-z]+$)")

Languages = tuple[str, str]


def languages_of(record: RunRecord) -> Languages | None:
    """Source and target; None where nothing says it."""
    given = record.settings.data.languages
    return (given[0], given[1]) if given else guessed(record.files.pairs())


def sentence_language(record: RunRecord) -> str:
    """By which sources are split into sentences: what `heedful summarize` will read on the card; else English."""
    languages = languages_of(record)
    return languages[0].split("-")[0].lower() if languages else "en"


def guessed(corpora: list[tuple[str, ...]]) -> Languages | None:
    """From `train.en` and `train.de`, or `train.en-de.tsv`; None unless all corpora say the same two."""
    found = {_guess(tuple(plain_name(Path(path)) for path in corpus)) for corpus in corpora}
    return found.pop() if len(found) == 1 else None


def _guess(names: tuple[str, ...]) -> Languages | None:
    if len(names) == 1:
        both = _BOTH.search(names[0])
        codes = list(both.groups()) if both else []
    else:
        codes = [found[1] for name in names if (found := _SIDE.search(name))]
    if len(codes) != 2 or codes[0] == codes[1]:
        return None
    return codes[0].replace("_", "-"), codes[1].replace("_", "-")


def say_languages(record: RunRecord) -> str:
    """What a run says of it before it begins."""
    languages = languages_of(record)
    if languages is None:
        return (
            "the names of the files do not say which languages they are in, so the card of the model will not either: "
            '--set data.languages=["en","de"] says it'
        )
    by = "" if record.settings.data.languages else ", by the names of the files (--set data.languages=… decides)"
    return f"from {languages[0]} to {languages[1]}{by}"
