"""The work of a filter: blocks of lines go out to be worked on, and are written in their order when they come back."""

import contextlib
import itertools
import json
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, Protocol

from heedful.cli.input import TextInput
from heedful.cli.progress import ProgressReporter
from heedful.data.formats import Field, decode
from heedful.data.lines import MAX_LINE_BYTES, Line
from heedful.data.problems import BadData, Place, remedy_for
from heedful.decoding.input_text import LINE_BREAK, BadText
from heedful.decoding.segmentation import TRANSLATIONS, DecodingStats, OutputNoun
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.translation import BlockResult, Translation
    from heedful.decoding.worker_pool import BatchExecutor

Format = Literal["text", "jsonl"]
BadLines = Literal["error", "keep", "skip"]
WRONG = {
    "encoding": "not UTF-8",
    "binary": "not UTF-8",
    "too-long": f"longer than {MAX_LINE_BYTES >> 20} MB",
}  # what a line may be


class OutputFormat(Protocol):
    def write(self, number: int, best: Any) -> None:
        """What became of line `number`, counted from 0."""

    def write_bad(self, number: int, content: bytes, what: str) -> None:
        """In place of line `number`, which could not be read: `what` is wrong with it."""

    def flush(self) -> None: ...


class Job(NamedTuple):
    lines: list[Line]
    cells: list[Field]
    start: int  # the number of the first line, from 0
    answer: "Future[BlockResult[Any]]"


class LineFilter:
    """From an input to a writer."""

    def __init__(
        self,
        source: TextInput,
        place: "BatchExecutor[Any]",
        writer: OutputFormat,
        *,
        on_bad_line: BadLines | None = None,
        can_keep: bool = True,
        to: str = "translate",
        written: OutputNoun = TRANSLATIONS,
    ) -> None:
        self.source, self.place, self.writer = source, place, writer
        self.to, self.written = to, written  # what is done to a line, and what becomes of it
        self.on_bad_line = on_bad_line or "error"
        # What else the option of that name takes; without it nobody is told to use it.
        self.other_ways = () if on_bad_line is None else ("keep", "skip") if can_keep else ("skip",)
        self.n_bad: Counter[str] = Counter()  # by what is wrong with them
        self.tally = DecodingStats()

    def run(self, *, hidden: bool = False) -> None:
        """`hidden`: show no progress, which would stand between the lines."""
        if self.source.is_terminal:
            print(f"type a line to {self.to} it; Ctrl-D ends", file=sys.stderr)
        n_bytes = self.source.n_bytes
        with contextlib.nullcontext() if hidden else ProgressReporter(unit="sentences") as passing:
            for n_lines, at in itertools.chain([(0, 0)], self._blocks()):
                if passing is not None:
                    passing.update(
                        f"{self.to.removesuffix('e')}ing", n_lines, min(1.0, at / n_bytes) if n_bytes else None
                    )

    def warnings(self) -> list[str]:
        """What a user must know when it is done."""
        done = "left empty" if self.on_bad_line == "skip" else "copied"
        bad = [
            f"{'1 line' if n == 1 else f'{n:,} lines'} that could not be read, {what}: {done}"
            for what, n in self.n_bad.items()
        ]
        return [*self.tally.warnings(of="line", written=self.written), *bad]

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Lines and bytes that are done, after each block."""
        pending: deque[Job] = deque()
        start = 0
        for lines in self.source.blocks():
            cells = [decode(line) for line in lines]
            bad = self._refused(cells)
            if bad is not None:  # what stands before it is still translated
                cells = cells[: cells.index(bad)]
                lines = lines[: len(cells)]
            answer = self.place.submit([cell.text for cell in cells], start)
            pending.append(Job(lines, cells, start, answer))
            start += len(cells)
            while pending and (bad or len(pending) >= self.place.width or not self.source.ready()):
                yield self._finish(pending.popleft())
            if bad is not None:
                raise _bad_data(self.source.name, bad, self.other_ways)
        while pending:
            yield self._finish(pending.popleft())

    def _refused(self, cells: Sequence[Field]) -> Field | None:
        """The first cell that stops the work. A line too long to be read cannot be kept either."""
        allowed = {"error": (), "keep": ("encoding", "binary"), "skip": tuple(WRONG)}[self.on_bad_line]
        return next((cell for cell in cells if (kind := bad_kind(cell)) is not None and kind not in allowed), None)

    def _finish(self, job: Job) -> tuple[int, int]:
        try:
            answer = job.answer.result()
        except BadText as error:
            cell = job.cells[error.number - job.start]
            raise UserError(f"{Place(self.source.name, cell.line, cell.byte)}: {error.what}") from None
        at = 0
        for number, (line, cell, best) in enumerate(zip(job.lines, job.cells, answer.outputs, strict=True)):
            kind = bad_kind(cell)
            if kind is None:
                self.writer.write(job.start + number, best)
            else:
                self.n_bad[WRONG[kind]] += 1
                kept = line.content if self.on_bad_line == "keep" else b""
                self.writer.write_bad(job.start + number, kept, WRONG[kind])
            at = line.byte + len(line.content) + 1
        self.writer.flush()
        self.tally += answer.tally
        return job.start + len(job.cells), at


def bad_kind(cell: Field) -> str | None:
    """Return the kind of problem because of which the line cannot be translated, or None."""
    return next((problem.kind for problem in cell.problems if problem.kind in WRONG), None)


def _bad_data(name: str, cell: Field, other_ways: Sequence[str]) -> BadData:
    problem = next(problem for problem in cell.problems if problem.kind in WRONG)
    place = Place(name, cell.line, cell.byte if problem.byte is None else problem.byte)
    ways = "|".join(way for way in other_ways if way == "skip" or problem.kind != "too-long")
    remedy = remedy_for(problem.kind, name) + (f"\nOr pass --on-bad-line {ways}" if ways else "")
    return BadData(problem.kind, place, problem.value, remedy=remedy)


class Writer:
    """Translations as lines of text or of JSON."""

    def __init__(self, out: BinaryIO, format: Format, *, n_best: int) -> None:
        self._out, self._format, self._n_best = out, format, n_best

    def write(self, number: int, best: "list[Translation]") -> None:
        """The translations of line `number`, counted from 0."""
        if self._format == "jsonl":
            source = {"source_tokens": best[0].source_tokens}
            self._write_json({**_values(best[0]), **source, **self._candidates(best)})
        elif self._n_best == 1:
            self._write_line(one_line(best[0].text))
        else:
            for translation in best:
                self._write_line(f"{number} ||| {one_line(translation.text)} ||| {translation.score:.6f}")

    def write_bad(self, number: int, content: bytes, what: str) -> None:
        """In place of line `number`, which could not be read."""
        if self._format == "jsonl":
            self._write_json({"text": "", "error": what})
        elif self._n_best == 1:
            self._out.write(content + b"\n")
        else:
            self._out.write(b"%d ||| %b ||| %.6f\n" % (number, content, 0.0))

    def flush(self) -> None:
        self._out.flush()

    def _candidates(self, best: "list[Translation]") -> dict[str, object]:
        return {} if self._n_best == 1 else {"candidates": [_values(translation) for translation in best]}

    def _write_json(self, values: dict[str, object]) -> None:
        # Some readers take U+2028 for the end of a line, inside of a string too.
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
        self._write_line(LINE_BREAK.sub(lambda found: f"\\u{ord(found[0]):04x}", text))

    def _write_line(self, text: str) -> None:
        self._out.write(text.encode() + b"\n")


def one_line(text: str) -> str:
    """A line break, whoever wrote it, becomes a space: one line in, one line out."""
    return LINE_BREAK.sub(" ", text)


def _values(translation: "Translation") -> dict[str, object]:
    values: dict[str, object] = {
        "text": one_line(translation.text),
        "score": translation.score,
        "tokens": translation.tokens,
        "complete": translation.complete,
    }
    if translation.alignment is not None:
        values["alignment"] = translation.alignment
    return values
