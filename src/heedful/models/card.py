"""What the card of a model says of its languages. Imports no torch: translating needs none."""

import re
from pathlib import Path

from heedful.models.find import CARD

_HEAD = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_LANGUAGES = re.compile(r"^language:\n((?:- .*\n?)+)", re.MULTILINE)


def card_languages(folder: Path) -> list[str]:
    """The codes that the head of the card lists, as they stand there: of a translating model source and target."""
    try:
        text = (folder / CARD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    head = _HEAD.match(text)
    listed = _LANGUAGES.search(head[1] + "\n") if head else None
    return [] if listed is None else [line[2:].strip().strip("\"'") for line in listed[1].splitlines()]


def source_language(folder: Path) -> str | None:
    """The language that a model reads, without script or region ("de"); None if its card does not name it."""
    languages = card_languages(folder)
    return languages[0].replace("_", "-").split("-")[0].lower() if languages else None
