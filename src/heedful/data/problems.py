"""What can be wrong with a corpus: one table of kinds, and the words for each.

The readers refuse what is `fatal`; the check-up counts everything; `--fix` drops or changes by the third column.
"""

import shlex
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from heedful.errors import UserError

Content = Literal["pairs", "text", "labels"]

Severity = Literal["fatal", "warning", "note"]
# refuse: the file as a whole cannot be repaired; drop: leave the example out, on both sides; change: repair the text.
Fix = Literal["refuse", "drop", "change", "keep"]


class ProblemKind(NamedTuple):
    severity: Severity
    fix: Fix
    what: str
    remedy: str


KINDS: dict[str, ProblemKind] = {
    # The file as a whole.
    "empty-file": ProblemKind("fatal", "refuse", "nothing to read", "Is it the right file, and did its download end?"),
    "counts": ProblemKind(
        "fatal",
        "refuse",
        "counts that differ",
        "The two sides no longer belong together from some line on: take both files from their source again.",
    ),
    "utf16": ProblemKind("fatal", "refuse", "UTF-16 or UTF-32", "Convert it with: iconv -f utf-16 -t utf-8 FILE > NEW"),
    "compressed": ProblemKind(
        "fatal", "refuse", "misnamed file", "Give the file the name that fits what it is, then try again."
    ),
    "damaged": ProblemKind(
        "fatal", "refuse", "damaged file", "Most likely a download that was cut short: take it again."
    ),
    "xml": ProblemKind("fatal", "refuse", "unreadable TMX", "Export it again, as TMX 1.4 without entities of its own."),
    "column-type": ProblemKind(
        "fatal", "refuse", "column without texts", "Each row needs a text or a whole number there: store the column so."
    ),
    # One line that cannot be used.
    "encoding": ProblemKind(
        "fatal", "drop", "invalid UTF-8", "If it is Latin-1, convert with: iconv -f latin1 -t utf-8 FILE > NEW"
    ),
    "too-long": ProblemKind("fatal", "drop", "line too long to read", "Probably not text, or line ends are missing."),
    "columns": ProblemKind(
        "fatal", "drop", "too few columns", "Each line needs source TAB target; quotes mean nothing."
    ),
    "json": ProblemKind(
        "fatal", "drop", "unusable JSON line", "One complete JSON object a line, every line with the same keys."
    ),
    # One line that can be used, and probably should not be, or not as it is.
    "nul": ProblemKind("warning", "change", "NUL characters", "Remove them: tr -d '\\000' < FILE > NEW"),
    "separator": ProblemKind(
        "warning",
        "change",
        "hidden line separators",
        "U+2028, U+2029, U+0085, VT, FF, FS, GS, RS: other tools break the line there and shift every later pair.",
    ),
    "carriage-return": ProblemKind(
        "warning", "change", "CR inside a line", "Other tools break the line there. Old Mac file? tr '\\r' '\\n'"
    ),
    "control": ProblemKind("warning", "change", "control characters", "Often Windows-1252 that was read as Latin-1."),
    "replacement": ProblemKind(
        "warning", "drop", "lost characters", "U+FFFD: an earlier conversion lost them; convert again."
    ),
    "inner-bom": ProblemKind(
        "warning", "change", "BOM inside the file", "Files were joined with their marks: remove U+FEFF."
    ),
    "extra-columns": ProblemKind(
        "warning",
        "drop",
        "surplus columns",
        "More than the first whole line has: a TAB inside a text shifts the columns.",
    ),
    "empty": ProblemKind("warning", "drop", "empty side", "Training leaves the pair out, on both sides."),
    "copy": ProblemKind("warning", "drop", "source = target", "Untranslated text teaches the model to copy."),
    "duplicate": ProblemKind(
        "warning", "drop", "pairs seen before", "Repeated pairs weigh more, and leak into held-out sets."
    ),
    "ratio": ProblemKind(
        "warning", "drop", "extreme length ratio", "One side is far longer than is usual in this corpus."
    ),
    "long": ProblemKind(
        "warning", "drop", "over-long lines", "Split them into sentences, or training will leave them out."
    ),
    "script": ProblemKind("warning", "drop", "another script", "Most letters are not of the script of this file."),
    "swapped": ProblemKind("warning", "drop", "sides swapped", "Each side reads like the other file's language."),
    "language": ProblemKind(
        "warning", "drop", "other side's language", "Reads like the other file: left untranslated?"
    ),
    "overlap": ProblemKind(
        "warning", "drop", "also in a test set", "Scores on that test set would be too good: drop the pair."
    ),
    # Harmless; said so that nothing is changed in silence.
    "bom": ProblemKind("note", "change", "BOM at the start", "The reader leaves it out."),
    "crlf": ProblemKind("note", "change", "CRLF line ends", "The reader takes one CR off the end of each line."),
    "unterminated": ProblemKind("note", "change", "no final newline", "The last line is read all the same."),
    "blank": ProblemKind(
        "note", "keep", "blank lines", "Between documents they are welcome; in JSONL they are passed over."
    ),
    "repeat": ProblemKind("note", "keep", "lines seen before", "Usual in running text; a whole document twice is not."),
    "line-break": ProblemKind("note", "keep", "inner line breaks", "Two aligned text files could not hold this text."),
    "markup": ProblemKind("note", "keep", "inline tags taken out", "TMX codes for formatting are no part of the text."),
}


STANDARD_INPUT = "standard input"  # in place of the name of a file


def remedy_for(kind: str, file: str, *, content: Content = "pairs") -> str:
    """What to do about it, its command ready to be typed."""
    if (kind, content) == ("columns", "labels"):
        return "Each line needs text TAB label; quotes mean nothing."
    to = f"{shlex.quote(file)} > {shlex.quote(f'{file}.new')}" if file != STANDARD_INPUT else "FILE | heedful …"
    return KINDS[kind].remedy.replace("FILE > NEW", to)


class Place(NamedTuple):
    """Where in which file; `line` and `byte` are None where they mean nothing."""

    file: str
    line: int | None = None
    byte: int | None = None
    unit: str = "line"

    def __str__(self) -> str:
        if self.line is None:
            return self.file
        byte = "" if self.byte is None else f" (byte {self.byte:,})"
        return f"{self.file}: {self.unit} {self.line:,}{byte}"


class Problem(NamedTuple):
    """Something of a kind in KINDS; `byte` counts from the start of the file, None for the start of the line."""

    kind: str
    value: str = ""
    byte: int | None = None


class BadData(UserError):
    """Data that cannot be used, with its kind and place, so that the check-up can count instead of stopping."""

    def __init__(self, kind: str, place: Place, value: str, *, remedy: str = "") -> None:
        self.kind, self.place, self.value = kind, place, value
        self.remedy = remedy or remedy_for(kind, place.file)
        super().__init__(f"{place}: {value}. {self.remedy}")


@dataclass
class ProblemCount:
    """All problems of one kind in one file: how many, and the first three."""

    kind: str
    file: str
    count: int = 0
    examples: list[tuple[Place, str]] = field(default_factory=list)

    def add(self, place: Place, value: str) -> None:
        self.count += 1
        if len(self.examples) < 3:
            self.examples.append((place, value))


def excerpt(text: str, width: int = 60) -> str:
    """`text` on one line and harmless: shortened, and whatever does not print as an escape."""
    cut = text[: width + 1]
    if not cut.isprintable():
        cut = "".join(character if character.isprintable() else _escape(character) for character in cut)
    return cut if len(cut) <= width else cut[: width - 1] + "…"


def _escape(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
