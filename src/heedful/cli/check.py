"""`heedful check FILES…`: find problems in a corpus before training, and print them for people or as JSON."""

import io
import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heedful.cli.options import DATA, OUTPUT, Json
from heedful.cli.progress import ProgressReporter
from heedful.data.corpus import Corpus, format_of, open_corpus, read_labelled, read_text
from heedful.data.formats import Field
from heedful.data.lines import is_pipe, plain_name
from heedful.data.problems import KINDS, Content, Location, ProblemCount, remedy_for
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.data.check import Report
    from heedful.data.clean import CleanResult

MARKS = {"fatal": ("✗", "bold red"), "warning": ("!", "yellow"), "note": ("·", "dim")}
UNITS = {"pairs": "pairs", "text": "lines", "labels": "labelled texts"}


def check(
    *files: Annotated[Path, Parameter(group=DATA)],
    test: Annotated[list[Path] | None, Parameter(consume_multiple=True, group=DATA)] = None,
    languages: Annotated[str | None, Parameter(group=DATA)] = None,
    columns: Annotated[str, Parameter(group=DATA)] = "1,2",
    content: Annotated[Content | None, Parameter(group=DATA)] = None,
    fix: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    json: Json = False,
) -> int:
    """Check a corpus: problems with file, line and byte, overlap with test sets.

    Two text files are the two sides of one corpus; .tsv, .jsonl, .tmx and
    .parquet stand alone; one text file is text for a language model. More text
    files are paired by name: train.en with train.de, valid.en with valid.de.
    Each may end in .gz, .xz or .bz2.

    The exit code is 1 if there is data that cannot be used, otherwise 0, also
    with warnings.

    Parameters
    ----------
    files
        The files to check.
    test
        Test sets: each training source that also occurs in one of these files is reported.
    languages
        Source and target language, for example en,de, in files that name their languages.
    columns
        The columns of a TSV file that hold source and target, or text and label.
    content
        What the files hold, if their names do not say it: pairs, text or labels (text TAB label).
    fix
        Write cleaned copies to this new folder, with a log, dropped.jsonl, of what was left out and why.
    """
    if not files:
        raise UserError("no files to check. Name them first: heedful check train.en train.de --test test.en")
    from heedful.data.check import check_corpus, read_test_sources
    from heedful.data.clean import write_clean

    layout = Layout(_languages(languages), _columns(columns))
    corpora = group(files, content=content, layout=layout)
    sources = read_test_sources([_open_test(path, content, layout) for path in test or ()])
    repairs: list[CleanResult] = []
    with ProgressReporter(unit="examples") as reporter:

        def progress(report: "Report", last: Field) -> None:
            reporter.update(report.corpus.name, report.n_examples, _share(report.corpus, last))

        if fix is None:
            reports = [check_corpus(corpus, test_sources=sources, progress=progress) for corpus in corpora]
        else:
            repairs = write_clean(corpora, fix, test_sources=sources, progress=progress)
            reports = [repair.report for repair in repairs]
    if json:
        _print_json(reports, repairs)
    else:
        for report in reports:
            print_report(report)
        if fix is not None:
            print_repair(repairs, fix)
    return 0 if fix is not None or all(report.usable for report in reports) else 1


class Layout(NamedTuple):
    """Which languages or columns of a file are the source and the target."""

    languages: tuple[str, str] | None = None
    columns: tuple[int, int] = (1, 2)

    def open_pairs(self, paths: Path | list[Path]) -> Corpus:
        """Open one file of pairs, or two aligned text files."""
        return open_corpus(paths, languages=self.languages, columns=self.columns)


def _open_test(path: Path, content: Content | None, layout: Layout) -> Corpus:
    """Open a test set: a text file as lines of text, any other file with the content of the checked files."""
    if content == "text" or format_of(path) == "text":
        return read_text(path)
    return read_labelled(path, columns=layout.columns) if content == "labels" else layout.open_pairs(path)


def group(files: Sequence[Path], *, content: Content | None = None, layout: Layout | None = None) -> list[Corpus]:
    """Return the corpora that the files form; two text files are a pair, more are paired by name."""
    layout = layout or Layout()
    for number, path in enumerate(files):
        if path in files[:number]:
            raise UserError(f"{path}: named twice")
    if content == "text":
        return [read_text(path) for path in files]
    if content == "labels":
        return [read_labelled(path, columns=layout.columns) for path in files]
    plain = [path for path in files if format_of(path) == "text"]
    if len(plain) == 1 and content is None:
        pairs: dict[str, list[Path]] = {}
    elif len(plain) == 2:
        pairs = {"": plain}
    else:
        pairs = _pair_by_name(plain)
    corpora = []
    for path in files:
        if path not in plain:
            corpora.append(layout.open_pairs(path))
        elif len(plain) == 1 and content is None:
            corpora.append(read_text(path))
        else:
            pair = next(pair for pair in pairs.values() if path in pair)
            if path == pair[0]:
                corpora.append(layout.open_pairs(pair))
    return corpora


def _pair_by_name(plain: list[Path]) -> dict[str, list[Path]]:
    """Pair text files whose names differ only in the last suffix."""
    pairs: dict[str, list[Path]] = {}
    for path in plain:
        pairs.setdefault(str(path.parent / Path(plain_name(path)).stem), []).append(path)
    for name, pair in pairs.items():
        if len(pair) != 2:
            names = ", ".join(map(str, pair))
            raise UserError(
                f"{names}: several text files are paired by name (train.en with train.de), and of {name}.* there "
                f"{'is' if len(pair) == 1 else 'are'} {len(pair)}.\n"
                "Name two files at a time, or pass --content text for text without translation"
            )
    return pairs


def _languages(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    codes = [code.strip() for code in text.split(",")]
    if len(codes) != 2 or not all(codes) or codes[0] == codes[1]:
        raise UserError(f"--languages {text}: expected the source and the target, for example --languages en,de")
    return codes[0], codes[1]


def _columns(text: str) -> tuple[int, int]:
    numbers = [int(number) for number in text.split(",") if number.strip().isdecimal()]
    if len(numbers) != 2 or text.count(",") != 1 or min(numbers) < 1 or numbers[0] == numbers[1]:
        raise UserError(f"--columns {text}: expected two different columns, counted from 1, for example --columns 2,1")
    return numbers[0], numbers[1]


def _share(corpus: Corpus, last: Field) -> float | None:
    """Return how much of the first file has been read; None for a pipe or a compressed file."""
    path = corpus.paths[0]
    if last.byte is None or plain_name(path) != path.name or is_pipe(path):
        return None
    return min(1.0, last.byte / max(1, path.stat().st_size))


# The report as JSON.


def _print_json(reports: "list[Report]", repairs: "list[CleanResult]") -> None:
    repair_of: dict[int, CleanResult] = dict(enumerate(repairs))
    values = [report_values(report, repair_of.get(number)) for number, report in enumerate(reports)]
    print(dumps({"version": 1, "usable": all(report.usable for report in reports), "corpora": values}, indent=1))


def report_values(report: "Report", repair: "CleanResult | None" = None) -> dict[str, object]:
    """Return the report as plain values for JSON; the keys are stable."""
    corpus = report.corpus
    values: dict[str, object] = {
        "name": corpus.name,
        "files": [str(path) for path in corpus.paths],
        "content": corpus.content,
        "format": corpus.format,
        "examples": report.n_examples,
        "suspicious": report.n_suspicious,
        "usable": report.usable,
        "findings": [_finding_values(finding, report) for finding in report.in_order()],
    }
    if repair is not None:
        values |= {"kept": repair.n_kept, "dropped": dict(repair.dropped), "changed": dict(repair.changed)}
    return values


def _finding_values(finding: ProblemCount, report: "Report") -> dict[str, object]:
    kind = KINDS[finding.kind]
    return {
        "kind": finding.kind,
        "severity": kind.severity,
        "what": kind.what,
        "remedy": remedy_for(finding.kind, finding.file, content=report.corpus.content),
        "file": finding.file,
        "count": finding.count,
        "share": finding.count / max(1, report.n_examples),
        "examples": [_example_values(place, value) for place, value in finding.examples],
    }


def _example_values(place: Location, value: str) -> dict[str, object]:
    return {"file": place.file, place.unit: place.line, "byte": place.byte, "value": value}


# The report for people.


def print_report(report: "Report") -> None:
    """Print the number of examples, a table of the problems, examples of each problem, and the verdict."""
    console = _console()
    console.print(_headline(report))
    findings = report.in_order()
    if findings:
        console.print(_table(report, findings))
        for finding in findings:
            _print_details(console, finding, report)
    console.print(_verdict(report))
    console.print()


def print_repair(repairs: "list[CleanResult]", folder: Path) -> None:
    """Print what --fix dropped and changed in each corpus."""
    from heedful.data.clean import LOG

    console = _console()
    for repair in repairs:
        dropped, changed = (
            ", ".join(f"{count:,} × {KINDS[kind].what}" for kind, count in counts.most_common()) or "nothing"
            for counts in (repair.dropped, repair.changed)
        )
        unit = UNITS[repair.report.corpus.content]
        console.print(Text(f"{repair.report.corpus.name}: {repair.n_kept:,} {unit} kept"))
        console.print(Text(f"  dropped  {dropped}\n  changed  {changed}"))
    console.print(Text(f"Written to {folder}; every example that was dropped or changed is in {folder / LOG}", "bold"))


def _console() -> Console:
    """Make a console as wide as the terminal, or 120 columns; characters that its encoding lacks are escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    return console


def _headline(report: "Report") -> Text:
    corpus = report.corpus
    n = max(1, report.n_examples)
    sizes = [size / n for size in report.n_characters[: 2 if corpus.content == "pairs" else 1]]
    mean = " / ".join(f"{size:,.0f}" for size in sizes)
    text = Text(corpus.name, "bold")
    return text.append(f"  {report.n_examples:,} {UNITS[corpus.content]}, on average {mean} characters", "not bold")


def _table(report: "Report", findings: list[ProblemCount]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("finding")
    table.add_column("file", overflow="fold")
    for name in ("count", "share", "first line", "byte"):
        table.add_column(name, justify="right", no_wrap=True)
    for finding in findings:
        kind = KINDS[finding.kind]
        mark, style = MARKS[kind.severity]
        place = finding.examples[0][0]
        table.add_row(
            Text(mark, style),
            Text(kind.what, "" if kind.severity == "note" else style),
            Text(Path(finding.file).name),
            f"{finding.count:,}",
            "" if kind.fix == "refuse" else _percentage(finding.count, report.n_examples),
            _number(place.line),
            _number(place.byte),
        )
    return table


def _print_details(console: Console, finding: ProblemCount, report: "Report") -> None:
    """Print the meaning of a problem and its first examples, each on one line."""
    kind = KINDS[finding.kind]
    mark, style = MARKS[kind.severity]
    name = Path(finding.file).name
    remedy = remedy_for(finding.kind, finding.file, content=report.corpus.content)
    console.print(Text.assemble((f"{mark} {kind.what}", style), (f" in {name}", "dim"), f": {remedy}"))
    places = [place for place, _ in finding.examples]
    line_width = max(len(_number(place.line)) for place in places)
    byte_width = max(len(_number(place.byte)) for place in places)
    for place, value in finding.examples:
        position = "" if place.line is None else f"{place.unit} {_number(place.line):>{line_width}}  "
        if place.byte is not None:
            position += f"byte {_number(place.byte):>{byte_width}}  "
        line = Text.assemble("    ", (position if value else position.rstrip(), "dim"), value)
        is_whole_file = KINDS[finding.kind].fix == "refuse"  # there is one example: print all of it
        console.print(line, no_wrap=not is_whole_file, overflow="fold" if is_whole_file else "ellipsis")
    console.print()


def _verdict(report: "Report") -> Text:
    if not report.usable:
        return Text("There is data here that cannot be used: training would stop at it.", "bold red")
    if report.n_suspicious:
        share = _percentage(report.n_suspicious, report.n_examples)
        n = f"{report.n_suspicious:,} of {report.n_examples:,} {UNITS[report.corpus.content]} ({share})"
        return Text(f"Usable. {n} are suspicious; --fix FOLDER writes a copy without them.", "bold yellow")
    return Text("Usable, and nothing suspicious.", "bold green")


def _percentage(count: int, of: int) -> str:
    if not of:
        return ""
    percent = 100 * count / of
    return "< 0.01 %" if percent < 0.01 else f"{percent:.2f} %"


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"
