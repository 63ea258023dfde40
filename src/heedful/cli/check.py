"""`heedful check FILES…`: is this corpus fit to train on, and where not?"""

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from heedful.cli.check_report import print_repair, print_report, report_values
from heedful.cli.progress import Passing
from heedful.data.checkup import Report, check_corpus, read_test_sources
from heedful.data.corpus import Corpus, format_of, open_corpus, read_labelled, read_text
from heedful.data.fields import Content
from heedful.data.lines import is_pipe, plain_name
from heedful.data.records import Cell
from heedful.data.repair import Repair, write_clean
from heedful.errors import UserError


def check(
    *files: Path,
    test: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    languages: str | None = None,
    columns: str = "1,2",
    content: Content | None = None,
    fix: Path | None = None,
    json: bool = False,
) -> int:
    """Check a corpus: counts, problems with file, line and byte, overlap with test sets.

    Two text files are the two sides of one corpus; .tsv, .jsonl, .tmx and
    .parquet stand alone; one text file is text for a language model. More text
    files are paired by name: train.en with train.de, valid.en with valid.de.
    Each may end in .gz, .xz or .bz2.

    The exit code is 1 when there is data that cannot be used, and 0 otherwise,
    however many warnings there are.

    Parameters
    ----------
    files
        The files to check.
    test
        Test sets: each training source that also stands in one of these files is reported.
    languages
        Source and target, for example en,de, where a file names its languages.
    columns
        The columns of a TSV file that hold source and target, or text and label.
    content
        What the files hold, when their names do not say it: pairs, text or labels (text TAB label).
    fix
        Write cleaned copies into this new folder, with a log, dropped.jsonl, of what was left out and why.
    json
        Print one JSON object, for programs.
    """
    if not files:
        raise UserError(
            "heedful check: no files given. Name them first: heedful check train.en train.de --test test.en"
        )
    reading = Reading(_languages(languages), _columns(columns))
    corpora = group(files, content=content, reading=reading)
    sources = read_test_sources([_open_test(path, content, reading) for path in test or ()])
    repairs: list[Repair] = []
    with Passing(unit="examples") as passing:

        def progress(report: Report, last: Cell) -> None:
            passing.update(report.corpus.name, report.n_examples, _share(report.corpus, last))

        if fix is None:
            reports = [check_corpus(corpus, test_sources=sources, progress=progress) for corpus in corpora]
        else:
            repairs = write_clean(corpora, fix, test_sources=sources, progress=progress)
            reports = [repair.report for repair in repairs]
    _say(reports, repairs, fix, json)
    return 0 if fix is not None or all(report.usable for report in reports) else 1


class Reading(NamedTuple):
    """Where in a file the two sides are."""

    languages: tuple[str, str] | None = None
    columns: tuple[int, int] = (1, 2)

    def open_pairs(self, paths: Path | list[Path]) -> Corpus:
        return open_corpus(paths, languages=self.languages, columns=self.columns)


def _open_test(path: Path, content: Content | None, reading: Reading) -> Corpus:
    """Lines of text are what they are; everything else holds what the files to check hold."""
    if content == "text" or format_of(path) == "text":
        return read_text(path)
    return read_labelled(path, columns=reading.columns) if content == "labels" else reading.open_pairs(path)


def group(files: Sequence[Path], *, content: Content | None = None, reading: Reading | None = None) -> list[Corpus]:
    """The corpora that the files make; text files are paired, two of them whatever their names, more by name."""
    reading = reading or Reading()
    for number, path in enumerate(files):
        if path in files[:number]:
            raise UserError(f"{path}: given twice")
    if content == "text":
        return [read_text(path) for path in files]
    if content == "labels":
        return [read_labelled(path, columns=reading.columns) for path in files]
    plain = [path for path in files if format_of(path) == "text"]
    if len(plain) == 1 and content is None:
        pairs: dict[str, list[Path]] = {}
    elif len(plain) == 2:
        pairs = {"": plain}
    else:
        pairs = _by_name(plain)
    corpora = []
    for path in files:
        if path not in plain:
            corpora.append(reading.open_pairs(path))
        elif len(plain) == 1 and content is None:
            corpora.append(read_text(path))
        else:
            pair = next(pair for pair in pairs.values() if path in pair)
            if path == pair[0]:
                corpora.append(reading.open_pairs(pair))
    return corpora


def _by_name(plain: list[Path]) -> dict[str, list[Path]]:
    """Files that differ only in their last ending belong together."""
    pairs: dict[str, list[Path]] = {}
    for path in plain:
        pairs.setdefault(str(path.parent / Path(plain_name(path)).stem), []).append(path)
    for name, pair in pairs.items():
        if len(pair) != 2:
            listed = ", ".join(map(str, pair))
            raise UserError(
                f"{listed}: several text files are paired by name (train.en with train.de), and of {name}.* there "
                f"{'is' if len(pair) == 1 else 'are'} {len(pair)}.\n"
                "Give two files at a time, or --content text for text without translation"
            )
    return pairs


def _languages(given: str | None) -> tuple[str, str] | None:
    if given is None:
        return None
    names = [name.strip() for name in given.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise UserError(f"--languages {given}: expected the source and the target, for example --languages en,de")
    return names[0], names[1]


def _columns(given: str) -> tuple[int, int]:
    numbers = [int(number) for number in given.split(",") if number.strip().isdecimal()]
    if len(numbers) != 2 or given.count(",") != 1 or min(numbers) < 1 or numbers[0] == numbers[1]:
        raise UserError(f"--columns {given}: expected two different columns, counted from 1, for example --columns 2,1")
    return numbers[0], numbers[1]


def _share(corpus: Corpus, last: Cell) -> float | None:
    """How much of the first file is read; of a compressed one that is not known."""
    path = corpus.paths[0]
    if last.byte is None or plain_name(path) != path.name or is_pipe(path):
        return None
    return min(1.0, last.byte / max(1, path.stat().st_size))


def _say(reports: list[Report], repairs: list[Repair], fix: Path | None, json: bool) -> None:
    if json:
        usable = all(report.usable for report in reports)
        of: dict[int, Repair] = dict(enumerate(repairs))
        values = [report_values(report, of.get(number)) for number, report in enumerate(reports)]
        print(dumps({"version": 1, "usable": usable, "corpora": values}, indent=1))
        return
    for report in reports:
        print_report(report)
    if fix is not None:
        print_repair(repairs, fix)
