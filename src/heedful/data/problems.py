"""Everything that can be wrong with a corpus: a table of the kinds of problems, with severity, repair and remedy.

Readers raise BadData for a `fatal` problem, `heedful check` counts all problems, and `heedful check --fix` treats the
example according to the column `fix`.
"""

import shlex
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from heedful.errors import UserError

Content = Literal["pairs", "text", "labels"]

Severity = Literal["fatal", "warning", "note"]
# refuse: the file as a whole cannot be used; drop: leave the example out, on both sides; change: repair the text;
# keep: do nothing.
Fix = Literal["refuse", "drop", "change", "keep"]


class ProblemKind(NamedTuple):
    """A row of the table: `what` names the problem in a report, `remedy` is the advice to the user."""

    severity: Severity
    fix: Fix
    what: str
    remedy: str


KINDS: dict[str, ProblemKind] = {
    # The file as a whole.
    "empty-file": ProblemKind(
        "fatal", "refuse", "nothing to read", "Is it the right file, and was its download complete?"
    ),
    "counts": ProblemKind(
        "fatal",
        "refuse",
        "counts that differ",
        "From some line on, the two sides do not belong together: download both files again.",
    ),
    "utf16": ProblemKind("fatal", "refuse", "UTF-16 or UTF-32", "Convert it with: iconv -f utf-16 -t utf-8 FILE > NEW"),
    "compressed": ProblemKind(
        "fatal", "refuse", "misnamed file", "Give the file the suffix of its format, then try again."
    ),
    "damaged": ProblemKind(
        "fatal", "refuse", "damaged file", "Probably a download that was cut off: download it again."
    ),
    "xml": ProblemKind(
        "fatal", "refuse", "unreadable TMX", "Export it again, as TMX 1.4 without a DOCTYPE that declares entities."
    ),
    "column-type": ProblemKind(
        "fatal", "refuse", "column without texts", "Each row needs a text or a whole number in this column."
    ),
    # One line that cannot be used.
    "encoding": ProblemKind(
        "fatal", "drop", "invalid UTF-8", "If it is Latin-1, convert with: iconv -f latin1 -t utf-8 FILE > NEW"
    ),
    "binary": ProblemKind("fatal", "drop", "not text", "Is it the right file? Text has no NUL bytes."),
    "too-long": ProblemKind(
        "fatal", "drop", "line too long to read", "Probably not text, or its line ends are missing."
    ),
    "columns": ProblemKind(
        "fatal", "drop", "too few columns", "Each line needs source TAB target; quotes have no meaning."
    ),
    "json": ProblemKind(
        "fatal",
        "drop",
        "unusable JSON line",
        "Each line needs one complete JSON object, with the same keys as the others.",
    ),
    # One line that can be used, but probably should be dropped or changed.
    "nul": ProblemKind("warning", "change", "NUL characters", "Remove them: tr -d '\\000' < FILE > NEW"),
    "separator": ProblemKind(
        "warning",
        "change",
        "hidden line separators",
        "U+2028, U+2029, U+0085, VT, FF, FS, GS, RS: other tools split the line there, which shifts all later pairs.",
    ),
    "carriage-return": ProblemKind(
        "warning",
        "change",
        "CR inside a line",
        "Other tools split the line there. An old Mac file? Convert it with: tr '\\r' '\\n'",
    ),
    "control": ProblemKind(
        "warning", "change", "control characters", "Often Windows-1252 that was decoded as Latin-1."
    ),
    "replacement": ProblemKind(
        "warning", "drop", "lost characters", "U+FFFD: an earlier conversion lost them; convert the original again."
    ),
    "inner-bom": ProblemKind(
        "warning", "change", "BOM inside the file", "Files were joined with their byte order marks: remove U+FEFF."
    ),
    "extra-columns": ProblemKind(
        "warning",
        "drop",
        "surplus columns",
        "More columns than the first complete line has: a TAB inside a text shifts the columns.",
    ),
    "empty": ProblemKind("warning", "drop", "empty side", "Training leaves such pairs out."),
    "copy": ProblemKind("warning", "drop", "source = target", "Untranslated pairs teach the model to copy."),
    "duplicate": ProblemKind(
        "warning",
        "drop",
        "pairs seen before",
        "Repeated pairs count more in training, and may also be in held-out sets.",
    ),
    "ratio": ProblemKind(
        "warning", "drop", "extreme length ratio", "One side is far longer than is usual in this corpus."
    ),
    "long": ProblemKind(
        "warning", "drop", "over-long lines", "Split them into sentences, or training will leave them out."
    ),
    "script": ProblemKind("warning", "drop", "another script", "Most letters are not in the script of this file."),
    "swapped": ProblemKind("warning", "drop", "sides swapped", "Each side looks like the language of the other file."),
    "language": ProblemKind(
        "warning", "drop", "other side's language", "Looks like the language of the other file: untranslated?"
    ),
    "overlap": ProblemKind(
        "warning", "drop", "also in a test set", "Scores on that test set would be too high: drop the pair."
    ),
    # Harmless, but reported, so that nothing is changed silently.
    "bom": ProblemKind("note", "change", "BOM at the start", "The reader ignores it."),
    "crlf": ProblemKind("note", "change", "CRLF line ends", "The reader removes one CR from the end of each line."),
    "unterminated": ProblemKind("note", "change", "no final newline", "The last line is read nevertheless."),
    "blank": ProblemKind("note", "keep", "blank lines", "They separate documents; in JSONL they are skipped."),
    "repeat": ProblemKind(
        "note", "keep", "lines seen before", "Common in running text, unless a whole document is repeated."
    ),
    "line-break": ProblemKind("note", "keep", "inner line breaks", "Two aligned text files could not hold this text."),
    "markup": ProblemKind("note", "keep", "inline tags removed", "TMX codes for formatting are not part of the text."),
}


STANDARD_INPUT = "standard input"  # used in messages in place of a file name


def remedy_for(kind: str, file: str, *, content: Content = "pairs") -> str:
    """Return the remedy for a kind of problem, with the file name put into its command."""
    if (kind, content) == ("columns", "labels"):
        return "Each line needs text TAB label; quotes have no meaning."
    to = f"{shlex.quote(file)} > {shlex.quote(f'{file}.new')}" if file != STANDARD_INPUT else "FILE | heedful …"
    return KINDS[kind].remedy.replace("FILE > NEW", to)


class Location(NamedTuple):
    """A position in a file; `line` and `byte` are None if the problem concerns the whole file.

    >>> str(Location("train.en", 1200, 51234))
    'train.en: line 1,200 (byte 51,234)'
    """

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
    """A problem of a kind in KINDS. `byte` counts from the start of the file; None means the start of the line."""

    kind: str
    value: str = ""
    byte: int | None = None


class BadData(UserError):
    """Data that cannot be used, with its kind and place, so that `heedful check` can count it instead of stopping."""

    def __init__(self, kind: str, place: Location, value: str, *, remedy: str = "") -> None:
        self.kind, self.place, self.value = kind, place, value
        self.remedy = remedy or remedy_for(kind, place.file)
        super().__init__(f"{place}: {value}. {self.remedy}")


@dataclass
class ProblemCount:
    """All problems of one kind in one file: their number, and the first three."""

    kind: str
    file: str
    count: int = 0
    examples: list[tuple[Location, str]] = field(default_factory=list)

    def add(self, place: Location, value: str) -> None:
        self.count += 1
        if len(self.examples) < 3:
            self.examples.append((place, value))


def excerpt(text: str, width: int = 60) -> str:
    """Shorten a text for a message, and escape the characters that do not print.

    >>> excerpt("one\\ntwo", 20)
    'one\\\\x0atwo'
    """
    cut = text[: width + 1]
    if not cut.isprintable():
        cut = "".join(character if character.isprintable() else _escape(character) for character in cut)
    return cut if len(cut) <= width else cut[: width - 1] + "…"


def _escape(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
