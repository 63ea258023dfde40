"""One line in, one line out: `LineFilter` runs a model on blocks of lines and writes the outputs in order.

    with TextInput(file) as source, open_output(output) as out:
        lines = LineFilter(source, executor, TranslationWriter(out, "text", n_best=1))
        lines.run()

`translate`, `summarize`, `generate` and `classify` differ in the executor, which runs the model, and in the writer.
"""

import contextlib
import itertools
import json
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, Protocol

from heedful.cli.input import TextInput
from heedful.cli.output import print_message
from heedful.cli.progress import ProgressReporter
from heedful.data.formats import Field, decode
from heedful.data.lines import MAX_LINE_BYTES, Line
from heedful.data.problems import BadData, Location, remedy_for
from heedful.decoding.decoding_stats import TRANSLATIONS, DecodingStats, OutputNoun
from heedful.decoding.input_text import LINE_BREAK, BadText
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.translation import BlockResult, Translation
    from heedful.decoding.worker_pool import BatchExecutor

Format = Literal["text", "jsonl"]
BadLines = Literal["error", "keep", "skip"]
# Problems that make a line unreadable, as they are described in the output and in the warnings.
UNREADABLE = {
    "encoding": "not UTF-8",
    "binary": "not UTF-8",
    "too-long": f"longer than {MAX_LINE_BYTES >> 20} MB",
}


class LineWriter(Protocol):
    """Writes one output for each line of the input."""

    def write(self, number: int, output: Any) -> None:
        """Write the output for line `number`, counted from 0."""

    def write_bad(self, number: int, content: bytes, problem: str) -> None:
        """Write `content` in place of line `number`, which could not be read."""

    def flush(self) -> None: ...


class _Block(NamedTuple):
    """A submitted block."""

    lines: list[Line]
    cells: list[Field]
    start: int  # the number of its first line, from 0
    result: "Future[BlockResult[Any]]"


class LineFilter:
    """Reads lines from an input, runs a model on them in blocks, and passes the outputs to a writer."""

    def __init__(
        self,
        source: TextInput,
        executor: "BatchExecutor[Any]",
        writer: LineWriter,
        *,
        on_bad_line: BadLines | None = None,
        can_keep: bool = True,
        verb: str = "translate",
        written: OutputNoun = TRANSLATIONS,
    ) -> None:
        """Connect the three parts.

        `on_bad_line` is the value of the command's option, None for a command without that option; with `can_keep` the
        option also takes "keep". `verb` and `written` name the activity and its outputs in messages.
        """
        self.source, self.executor, self.writer = source, executor, writer
        self.verb, self.written = verb, written
        self.on_bad_line = on_bad_line or "error"
        # The other values of --on-bad-line, for the error message.
        self.alternatives = () if on_bad_line is None else ("keep", "skip") if can_keep else ("skip",)
        self.n_bad: Counter[str] = Counter()  # number of unreadable lines by problem
        self.tally = DecodingStats()

    def run(self, *, hidden: bool = False) -> None:
        """Process all lines; `hidden` shows no progress, which would mix with the output in a terminal."""
        if self.source.is_terminal:
            print(f"type a line to {self.verb} it; Ctrl-D ends", file=sys.stderr)
        n_bytes = self.source.n_bytes
        activity = f"{self.verb.removesuffix('e')}ing"
        with contextlib.nullcontext() if hidden else ProgressReporter(unit="sentences") as progress:
            for n_lines, end in itertools.chain([(0, 0)], self._process()):
                if progress is not None:
                    progress.update(activity, n_lines, min(1.0, end / n_bytes) if n_bytes else None)

    def print_warnings(self) -> None:
        """Print warnings about lines that were cut, split, copied or left empty."""
        for text in self.warnings():
            print_message(text)

    def warnings(self) -> list[str]:
        """Return the warnings about lines that were cut, split, copied or left empty."""
        action = "left empty" if self.on_bad_line == "skip" else "copied"
        bad = [
            f"{'1 line' if n == 1 else f'{n:,} lines'} that could not be read, {problem}: {action}"
            for problem, n in self.n_bad.items()
        ]
        return [*self.tally.warnings(of="line", written=self.written), *bad]

    def _process(self) -> Iterator[tuple[int, int]]:
        """Process the input and yield, after each block, the numbers of lines and bytes that are done."""
        pending: deque[_Block] = deque()
        start = 0
        for lines in self.source.blocks():
            cells = [decode(line) for line in lines]
            bad = self._first_refused(cells)
            if bad is not None:  # the lines before it are still processed
                cells = cells[: cells.index(bad)]
                lines = lines[: len(cells)]
            result = self.executor.submit([cell.text for cell in cells], start)
            pending.append(_Block(lines, cells, start, result))
            start += len(cells)
            while pending and (bad or len(pending) >= self.executor.width or not self.source.ready()):
                yield self._write(pending.popleft())
            if bad is not None:
                raise _bad_data(self.source.name, bad, self.alternatives)
        while pending:
            yield self._write(pending.popleft())

    def _first_refused(self, cells: Sequence[Field]) -> Field | None:
        """Return the first unreadable line that `on_bad_line` does not allow; "keep" does not allow too long lines."""
        allowed = {"error": (), "keep": ("encoding", "binary"), "skip": tuple(UNREADABLE)}[self.on_bad_line]
        return next((cell for cell in cells if (kind := bad_kind(cell)) is not None and kind not in allowed), None)

    def _write(self, block: _Block) -> tuple[int, int]:
        """Wait for a block and write its outputs; return the numbers of lines and bytes that are done then."""
        try:
            result = block.result.result()
        except BadText as error:
            cell = block.cells[error.number - block.start]
            raise UserError(f"{Location(self.source.name, cell.line, cell.byte)}: {error.what}") from None
        end = 0
        for number, (line, cell, output) in enumerate(zip(block.lines, block.cells, result.outputs, strict=True)):
            kind = bad_kind(cell)
            if kind is None:
                self.writer.write(block.start + number, output)
            else:
                self.n_bad[UNREADABLE[kind]] += 1
                content = line.content if self.on_bad_line == "keep" else b""
                self.writer.write_bad(block.start + number, content, UNREADABLE[kind])
            end = line.byte + len(line.content) + 1
        self.writer.flush()
        self.tally += result.stats
        return block.start + len(block.cells), end


def bad_kind(cell: Field) -> str | None:
    """Return why a line is unreadable, a key of `UNREADABLE`, or None for a readable line."""
    return next((problem.kind for problem in cell.problems if problem.kind in UNREADABLE), None)


def require_readable(name: str, cells: Sequence[Field]) -> None:
    """Raise the error for the first unreadable line of an input, if there is one."""
    for cell in cells:
        if bad_kind(cell) is not None:
            raise _bad_data(name, cell, ())


def _bad_data(name: str, cell: Field, alternatives: Sequence[str]) -> BadData:
    problem = next(problem for problem in cell.problems if problem.kind in UNREADABLE)
    place = Location(name, cell.line, cell.byte if problem.byte is None else problem.byte)
    values = "|".join(each for each in alternatives if each == "skip" or problem.kind != "too-long")
    remedy = remedy_for(problem.kind, name) + (f"\nOr pass --on-bad-line {values}" if values else "")
    return BadData(problem.kind, place, problem.value, remedy=remedy)


def refuse_keep_in_json(on_bad_line: BadLines, format: Format) -> None:
    """Refuse `--on-bad-line keep` beside `--format jsonl`."""
    if on_bad_line == "keep" and format == "jsonl":
        raise UserError("--on-bad-line keep: JSON cannot hold what is not UTF-8; use --on-bad-line skip")


class TranslationWriter:
    """Writes translations as lines of text or of JSON; with `n_best` > 1, several for each line of the input."""

    def __init__(self, out: BinaryIO, format: Format, *, n_best: int) -> None:
        self._out, self._format, self._n_best = out, format, n_best

    def write(self, number: int, translations: "list[Translation]") -> None:
        if self._format == "jsonl":
            source = {"source_tokens": translations[0].source_tokens}
            others = {} if self._n_best == 1 else {"candidates": [_values(each) for each in translations]}
            self._out.write(json_line({**_values(translations[0]), **source, **others}))
        elif self._n_best == 1:
            self._out.write(one_line(translations[0].text).encode() + b"\n")
        else:
            for each in translations:
                self._out.write(f"{number} ||| {one_line(each.text)} ||| {each.score:.6f}\n".encode())

    def write_bad(self, number: int, content: bytes, problem: str) -> None:
        if self._format == "jsonl":
            self._out.write(json_line({"text": "", "error": problem}))
        elif self._n_best == 1:
            self._out.write(content + b"\n")
        else:
            self._out.write(b"%d ||| %b ||| %.6f\n" % (number, content, 0.0))

    def flush(self) -> None:
        self._out.flush()


def one_line(text: str) -> str:
    """Replace line breaks, of any kind, by spaces: one line in, one line out."""
    return LINE_BREAK.sub(" ", text)


def json_line(values: dict[str, Any]) -> bytes:
    """Return one line of JSON in UTF-8; U+2028 and its like are escaped, since some readers split lines there."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return LINE_BREAK.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode("utf-8", "replace") + b"\n"


def _values(translation: "Translation") -> dict[str, Any]:
    values: dict[str, Any] = {
        "text": one_line(translation.text),
        "score": translation.score,
        "tokens": translation.tokens,
        "complete": translation.complete,
    }
    if translation.alignment is not None:
        values["alignment"] = translation.alignment
    return values
