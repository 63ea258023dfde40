"""`heedful translate`: lines in, lines out, as many as came in."""

import contextlib
import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple

from cyclopts import Parameter

from heedful.cli.progress import Passing
from heedful.cli.text_input import STANDARD_INPUT, TextInput
from heedful.cli.text_output import open_output
from heedful.config import from_values, with_overrides
from heedful.data.findings import BadData, Place, remedy_for
from heedful.data.lines import Line
from heedful.data.records import Cell, decode
from heedful.decoding.long_text import LINE_BREAK, BadText, Long, Tally
from heedful.decoding.settings import SearchSettings
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.translation import Answer, Translation
    from heedful.decoding.workers import Opening, Translates

Format = Literal["text", "jsonl"]
BadLines = Literal["error", "keep", "skip"]


def translate(
    file: Path = STANDARD_INPUT,
    *,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    output: Path | None = None,
    beam: int = 5,
    n_best: int = 1,
    engine: Literal["auto", "torch", "ctranslate2"] = "auto",
    compute: Literal["float32", "int8"] = "float32",
    format: Format = "text",
    long: Long = "split",
    on_bad_line: BadLines = "error",
    workers: int = 1,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
) -> None:
    """Translate a file, or standard input, line by line.

    One line in, one line out, whatever the line: empty ones stay empty, long
    ones are split into sentences and joined again. A line that is typed, or
    comes through a pipe, is answered at once.

    Parameters
    ----------
    file
        The text to translate; - is standard input.
    model
        The folder of a run or of a model.
    output
        Write to this file; until it is complete it is called OUTPUT.part.
    beam
        How many hypotheses the search follows; 1 is greedy search, the fastest.
    n_best
        How many translations of each line; as text "line ||| translation ||| score", lines counted from 0.
    engine
        What computes: torch can run every model, ctranslate2 is faster; auto takes it where it can.
    compute
        Numbers to compute with; int8 is faster and a little less exact.
    format
        Lines of text, or of JSON: text, score, tokens, alignment.
    long
        Lines that are longer than the model takes: split them, truncate them, extract what matters, error, or whole.
    on_bad_line
        A line that is not UTF-8: stop with an error, keep it as it is, or skip it, which leaves an empty line.
    workers
        How many processes share the work, each with the model in memory.
    set
        Change any setting of the search: --set length_penalty=0.6 max_len=100 sampling.seed=7
    """
    from heedful.decoding.workers import Opening

    if on_bad_line == "keep" and format == "jsonl":
        raise UserError("--on-bad-line keep: JSON cannot hold what is not UTF-8; use --on-bad-line skip")
    values = {"beam": beam, "n_best": n_best, "attention": format == "jsonl"}
    settings = from_values(SearchSettings, with_overrides(values, set or ()), where="--set")
    scores = format == "jsonl" or settings.n_best > 1  # without them, greedy search is faster
    opening = Opening(str(_required(model)), engine=engine, compute=compute, long=long, scores=scores)
    with TextInput(file) as source, _place(opening, settings, workers) as place, open_output(output) as out:
        if file == STANDARD_INPUT and sys.stdin.isatty():
            print("type a line to translate it; Ctrl-D ends", file=sys.stderr)
        writer = Writer(out, format, n_best=settings.n_best)
        shown = output is not None or not sys.stdout.isatty()
        with Passing(unit="sentences") if shown else contextlib.nullcontext() as passing:
            work = Work(source, place, writer, on_bad_line=on_bad_line, passing=passing)
            work.run(full=settings.sampling is not None)
    for words in work.warnings():
        print(f"heedful: {words}", file=sys.stderr)


def _required(model: Path | None) -> Path:
    if model is None:
        raise UserError(
            "which model? Name the folder of a run: heedful translate -m runs/en-de\n"
            "`heedful demo` makes a first one in some minutes; "
            "`heedful train runs/mine --source A --target B` makes one of your own text"
        )
    return model


@contextlib.contextmanager
def _place(opening: "Opening", settings: SearchSettings, n_workers: int) -> "Iterator[Translates]":
    """Where the work is done: here, or in other processes, and then this one need not load the model."""
    from heedful.decoding.translator import InThisProcess, Translator
    from heedful.decoding.workers import Workers
    from heedful.models.find import find_model_folder

    if n_workers == 1:
        yield InThisProcess(Translator.open(opening), settings)
        return
    find_model_folder(opening.path)  # said once, not by each of the processes
    with Workers(opening, settings, n_workers) as workers:
        yield workers


class Job(NamedTuple):
    cells: list[Cell]
    lines: list[Line]
    start: int
    answer: "Future[Answer]"


class Work:
    """From lines to lines: blocks go out to be translated, and are written in their order when they come back."""

    def __init__(
        self,
        source: TextInput,
        place: "Translates",
        writer: "Writer",
        *,
        on_bad_line: BadLines,
        passing: Passing | None,
    ) -> None:
        self.source, self.place, self.writer = source, place, writer
        self.on_bad_line: BadLines = on_bad_line
        self.passing = passing
        self.n_bytes = source.n_bytes
        self.n_bad = 0
        self.tally = Tally()

    def run(self, *, full: bool) -> None:
        pending: deque[Job] = deque()
        n_lines = 0
        self._progress(0, None)
        for lines in self.source.blocks(full=full):
            cells = [decode(line) for line in lines]
            bad = self._refused(cells)
            if bad is not None:  # what stands before it is still translated
                cells = cells[: cells.index(bad)]
            answer = self.place.submit([cell.text for cell in cells], n_lines)
            pending.append(Job(cells, lines, n_lines, answer))
            n_lines += len(cells)
            while pending and (bad or len(pending) >= self.place.width or not self.source.ready()):
                self._finish(pending.popleft())
            if bad is not None:
                raise _bad_data(self.source.name, bad)
        while pending:
            self._finish(pending.popleft())

    def warnings(self) -> list[str]:
        lines = "1 line" if self.n_bad == 1 else f"{self.n_bad:,} lines"
        done = "left empty" if self.on_bad_line == "skip" else "copied"
        bad = (
            [f"{lines} that could not be read as UTF-8 text {'was' if self.n_bad == 1 else 'were'} {done}"]
            if self.n_bad
            else []
        )
        return [*self.tally.warnings(), *bad]

    def _refused(self, cells: Sequence[Cell]) -> Cell | None:
        """The first cell that stops the work. A line too long to be read cannot be kept either."""
        allowed = {"error": (), "keep": ("encoding",), "skip": ("encoding", "too-long")}[self.on_bad_line]
        return next((cell for cell in cells if (kind := bad_kind(cell)) is not None and kind not in allowed), None)

    def _finish(self, job: Job) -> None:
        try:
            answer = job.answer.result()
        except BadText as error:
            cell = job.cells[error.number - job.start]
            raise UserError(f"{Place(self.source.name, cell.line, cell.byte)}: {error.what}") from None
        for number, (cell, line, best) in enumerate(
            zip(job.cells, job.lines, answer.translations, strict=False), start=job.start
        ):
            if bad_kind(cell) is None:
                self.writer.write(number, best)
            else:
                self.n_bad += 1
                self.writer.write_bad(line.content if self.on_bad_line == "keep" else b"")
        self.writer.flush()
        self.tally += answer.tally
        if job.cells:
            self._progress(job.start + len(job.cells), job.lines[len(job.cells) - 1])

    def _progress(self, n_lines: int, last: Line | None) -> None:
        if self.passing is not None:
            n_bytes = 0 if last is None else last.byte + len(last.content) + 1
            self.passing.update("translating", n_lines, min(1.0, n_bytes / self.n_bytes) if self.n_bytes else None)


def bad_kind(cell: Cell) -> str | None:
    """Why the line cannot be translated: "encoding", "too-long", or None."""
    return next((problem.kind for problem in cell.problems if problem.kind in ("encoding", "too-long")), None)


def _bad_data(name: str, cell: Cell) -> BadData:
    problem = next(problem for problem in cell.problems if problem.kind in ("encoding", "too-long"))
    place = Place(name, cell.line, cell.byte if problem.byte is None else problem.byte)
    ways = "keep|skip" if problem.kind == "encoding" else "skip"
    remedy = f"{remedy_for(problem.kind, name)} Or pass --on-bad-line {ways}"
    return BadData(problem.kind, place, problem.value, remedy=remedy)


class Writer:
    """Translations as lines of text or of JSON."""

    def __init__(self, out: BinaryIO, format: Format, *, n_best: int) -> None:
        self._out, self._format, self._n_best = out, format, n_best

    def write(self, number: int, best: "list[Translation]") -> None:
        """The translations of line `number`, counted from 0."""
        if self._format == "jsonl":
            self._write_json({**_values(best[0]), **self._candidates(best)})
        elif self._n_best == 1:
            self._write_line(one_line(best[0].text))
        else:
            for translation in best:
                self._write_line(f"{number} ||| {one_line(translation.text)} ||| {translation.score:.6f}")

    def write_bad(self, content: bytes) -> None:
        """In place of a line that could not be read."""
        if self._format == "jsonl":
            self._write_json({"text": "", "error": "not UTF-8"})
        elif self._n_best == 1:
            self._out.write(content + b"\n")

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
        "source_tokens": translation.source_tokens,
    }
    if translation.alignment is not None:
        values["alignment"] = translation.alignment
    return values
