"""`--fix`: a cleaned copy of a corpus, and a log of every example that was dropped or changed, and why.

Nothing is edited in place. The folder appears when everything in it is written, or not at all.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from re import Match
from typing import TextIO

from heedful.data.checkup import TROUBLE, Checkup, Judged, Report
from heedful.data.corpus import FATAL, Corpus
from heedful.data.findings import KINDS, Problem, remedy_for
from heedful.data.records import Cell
from heedful.data.writers import WRITERS
from heedful.errors import UserError
from heedful.files import folder_aside

LOG = "dropped.jsonl"
# What takes the place of a troublesome character; a line break inside a text is the text's own affair.
INSTEAD = {"nul": "", "inner_bom": "", "line_break": "\n"}
# Of running text a line is part of its document: only what must not stay is taken out.
DROPPED_FROM_TEXT = FATAL | {"overlap"}


@dataclass
class Repair:
    """What was written of one corpus: how many were kept, and how many dropped or changed, by kind."""

    report: Report
    n_kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)


def write_clean(
    corpora: Sequence[Corpus],
    folder: Path,
    *,
    test_sources: dict[str, str] | None = None,
    progress: Callable[[Report, Cell], None] | None = None,
) -> list[Repair]:
    """Write each corpus, cleaned, under its own names into the new `folder`, beside `dropped.jsonl`."""
    _refuse_folder(folder, corpora)
    repairs = []
    try:
        with folder_aside(folder) as aside, (aside / LOG).open("w", encoding="utf-8") as log:
            for corpus in corpora:
                repairs.append(_write_one(corpus, aside, log, test_sources, progress))
    except OSError as error:  # of writing: what goes wrong in reading is BadData
        raise UserError(f"--fix {folder}: cannot be written: {error.strerror or error}; nothing was kept") from None
    return repairs


def _write_one(
    corpus: Corpus,
    folder: Path,
    log: TextIO,
    test_sources: dict[str, str] | None,
    progress: Callable[[Report, Cell], None] | None,
) -> Repair:
    checkup = Checkup(corpus, test_sources=test_sources)
    repair = Repair(checkup.report)
    writer = WRITERS[corpus.format](corpus, folder)
    try:
        for judged in checkup:
            for one in judged:
                _repair(one, corpus, repair, log, writer.write)
            if progress:
                progress(checkup.report, judged[-1].record.cells[0])
    finally:
        writer.close()
    _refuse_hopeless(repair)
    return repair


def _repair(judged: Judged, corpus: Corpus, repair: Repair, log: TextIO, write: Callable[..., None]) -> None:
    record, problems = judged
    if any(problem.kind == "blank" for _, problem in problems) and corpus.content != "text":
        return  # a blank line of JSONL is no example
    reason = next((found for found in problems if _drops(found[1], corpus)), None)
    if reason is None:
        texts = [_clean(cell.text) for cell in record.cells]
        if corpus.content != "text" and not all(text.strip() for text in texts):
            reason = (0, Problem("empty", "nothing but control characters"))
    if reason is not None:
        repair.dropped[reason[1].kind] += 1
        _log(log, "dropped", corpus, record.cells, *reason)
        return
    for side, problem in problems:
        if KINDS[problem.kind].fix == "change":
            repair.changed[problem.kind] += 1
            if problem.kind not in ("bom", "crlf", "unterminated"):  # counted is enough: CRLF is on every line
                _log(log, "changed", corpus, record.cells, side, problem)
    repair.n_kept += 1
    write(record, texts)


def _drops(problem: Problem, corpus: Corpus) -> bool:
    if corpus.content == "text":
        return problem.kind in DROPPED_FROM_TEXT
    return KINDS[problem.kind].fix in ("drop", "refuse")


def _clean(text: str) -> str:
    return text if text.isprintable() else TROUBLE.sub(_instead, text)


def _instead(match: Match[str]) -> str:
    return INSTEAD.get(str(match.lastgroup), " ")


def _log(log: TextIO, action: str, corpus: Corpus, cells: tuple[Cell, ...], side: int, problem: Problem) -> None:
    cell = cells[side]
    row = {
        "action": action,
        "kind": problem.kind,
        "file": str(corpus.cell_paths[side]),
        "line": cell.line,
        "byte": cell.byte if problem.byte is None else problem.byte,
        "value": problem.value,
        "texts": [cell.text for cell in cells],
    }
    line = json.dumps(row, ensure_ascii=False)
    # JSON lets them stand as they are; whoever reads the log with splitlines() would break its rows there.
    log.write(re.sub("[\x7f-\x9f\u2028\u2029]", lambda match: f"\\u{ord(match.group()):04x}", line) + "\n")


def _refuse_folder(folder: Path, corpora: Sequence[Corpus]) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--fix {folder}: exists and is not empty. Name a new folder: nothing is overwritten")
    names = Counter(path.name for corpus in corpora for path in corpus.paths)
    for name, count in names.items():
        if count > 1 or name in (LOG, "manifest.json"):
            raise UserError(f"--fix {folder}: more than one file would be called {name} there. Fix them one by one")


def _refuse_hopeless(repair: Repair) -> None:
    for finding in repair.report.in_order():
        if KINDS[finding.kind].fix == "refuse":
            place, value = finding.examples[0]
            remedy = remedy_for(finding.kind, finding.file)
            raise UserError(f"{place}: {value}. --fix cannot repair this, nothing was written. {remedy}")
    if repair.n_kept == 0:
        reasons = ", ".join(f"{count:,} × {KINDS[kind].what}" for kind, count in repair.dropped.most_common())
        raise UserError(f"{repair.report.corpus.name}: nothing would be left ({reasons}); nothing was written")
