"""The check-up for the eye, and for programs."""

import io
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heedful.data.checkup import Report
from heedful.data.findings import KINDS, Finding, Place, remedy_for
from heedful.data.repair import LOG, Repair

MARKS = {"fatal": ("✗", "bold red"), "warning": ("!", "yellow"), "note": ("·", "dim")}
UNITS = {"pairs": "pairs", "text": "lines", "labels": "labelled texts"}


def report_values(report: Report, repair: Repair | None = None) -> dict[str, object]:
    """The report as plain values for JSON; the keys are stable."""
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


def print_report(report: Report) -> None:
    console = _console()
    console.print(_headline(report))
    findings = report.in_order()
    if findings:
        console.print(_summary(report, findings))
        for finding in findings:
            _print_details(console, finding, report)
    console.print(_verdict(report))
    console.print()


def print_repair(repairs: list[Repair], folder: Path) -> None:
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
    """As wide as the terminal; a file or a pipe gets room for the examples. What it cannot write it escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    return console


def _headline(report: Report) -> Text:
    corpus = report.corpus
    n = max(1, report.n_examples)
    sizes = [size / n for size in report.n_characters[: 2 if corpus.content == "pairs" else 1]]
    usual = " / ".join(f"{size:,.0f}" for size in sizes)
    text = Text(corpus.name, "bold")
    return text.append(f"  {report.n_examples:,} {UNITS[corpus.content]}, on average {usual} characters", "not bold")


def _summary(report: Report, findings: list[Finding]) -> Table:
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
            "" if kind.fix == "refuse" else _share(finding.count, report.n_examples),
            _number(place.line),
            _number(place.byte),
        )
    return table


def _print_details(console: Console, finding: Finding, report: Report) -> None:
    """What it means, and the first three, each on one line however long it is."""
    kind = KINDS[finding.kind]
    mark, style = MARKS[kind.severity]
    name = Path(finding.file).name
    remedy = remedy_for(finding.kind, finding.file, content=report.corpus.content)
    console.print(Text.assemble((f"{mark} {kind.what}", style), (f" in {name}", "dim"), f": {remedy}"))
    places = [place for place, _ in finding.examples]
    line_width = max(len(_number(place.line)) for place in places)
    byte_width = max(len(_number(place.byte)) for place in places)
    for place, value in finding.examples:
        where = "" if place.line is None else f"{place.unit} {_number(place.line):>{line_width}}  "
        if place.byte is not None:
            where += f"byte {_number(place.byte):>{byte_width}}  "
        line = Text.assemble("    ", (where if value else where.rstrip(), "dim"), value)
        is_long = KINDS[finding.kind].fix == "refuse"  # one for the whole file: the reader wants all of it
        console.print(line, no_wrap=not is_long, overflow="fold" if is_long else "ellipsis")
    console.print()


def _verdict(report: Report) -> Text:
    if not report.usable:
        return Text("There is data here that cannot be used: training would stop at it.", "bold red")
    if report.n_suspicious:
        share = _share(report.n_suspicious, report.n_examples)
        n = f"{report.n_suspicious:,} of {report.n_examples:,} {UNITS[report.corpus.content]} ({share})"
        return Text(f"Usable. {n} are suspicious; --fix FOLDER writes a copy without them.", "bold yellow")
    return Text("Usable, and nothing suspicious.", "bold green")


def _share(count: int, of: int) -> str:
    if not of:
        return ""
    percent = 100 * count / of
    return "< 0.01 %" if percent < 0.01 else f"{percent:.2f} %"


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _finding_values(finding: Finding, report: Report) -> dict[str, object]:
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


def _example_values(place: Place, value: str) -> dict[str, object]:
    return {"file": place.file, place.unit: place.line, "byte": place.byte, "value": value}
