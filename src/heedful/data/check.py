"""Which hashes came before: 8 bytes for each different one, however many millions there are.

What is usual in a corpus, learnt from its first examples: scripts, length ratio, and the words of each side.

Nothing here knows any language. A pair whose two sides are swapped is found because each side uses the words that the
other file uses everywhere else.

The check-up of a corpus: one pass, every problem counted by kind and file, three examples of each.

Memory does not grow with the corpus but for 8 bytes a pair, by which duplicates are found (`seen.py`).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.data.corpus import FATAL, Corpus
from heedful.data.formats import Field, Record
from heedful.data.problems import KINDS, BadData, Content, Place, Problem, ProblemCount, excerpt
from heedful.data.unicode_scripts import ScriptOf, fits, main_script

Hashes = npt.NDArray[np.int64]


class DuplicateDetector:
    """Sorted runs of growing length, as in a log-structured merge tree: a set of Python strings would take 100 bytes
    and more for each. While two runs are merged, they lie in memory twice.

    Two different pairs with equal 64-bit hashes are taken for one: among a million pairs with a chance of 3 in 10^8.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def add(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """True for each hash that was added before, or that stands earlier in `hashes`."""
        repeated = np.ones(len(hashes), dtype=bool)
        values, first = np.unique(hashes, return_index=True)
        known = np.zeros(len(values), dtype=bool)
        for run in self._runs:
            at = np.searchsorted(run, values)
            at[at == len(run)] = 0
            known |= run[at] == values
        repeated[first[~known]] = False
        self._append(values[~known])
        return repeated

    @property
    def n_different(self) -> int:
        return sum(len(run) for run in self._runs)

    def _append(self, run: Hashes) -> None:
        """Each run stays more than twice as long as the next: there are few of them, and each hash moves seldom."""
        if len(run):
            self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            pair = np.concatenate(self._runs[-2:])
            pair.sort(kind="stable")  # timsort: two sorted runs are merged in one go
            self._runs[-2:] = [pair]


MIN_LINES = 4  # fewer have no usual script
MIN_PAIRS = 50  # fewer have no usual ratio, and no usual words
FORGIVEN = 15  # characters that mean nothing in a ratio: short lines vary
MAX_FACTOR = 4.0  # off the usual ratio
MAX_FACTOR_UNKNOWN = 9.0  # off equal length, where nothing is usual
MIN_COUNT = 10  # of a word in the sample
LOOK_AT = 300  # characters of a line
APART = 0.9  # of the pairs must have both sides told apart by their words
TELLING = 2.0  # log odds of a word that is typical of one side
SURE = 12.0  # natural logarithm of the odds


@dataclass(frozen=True)
class Profile:
    scripts: tuple[str, ...]  # of each side, "" when no script has the majority
    ratios: tuple[float, float] = (1 / MAX_FACTOR_UNKNOWN, MAX_FACTOR_UNKNOWN)  # the least and the greatest allowed
    weights: dict[str, float] = field(default_factory=dict)  # word -> log odds that it stands on the source side
    telling: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())  # the words typical of each side
    script_of: ScriptOf = field(default_factory=ScriptOf)

    def is_extreme(self, source: str, target: str) -> bool:
        return not self.ratios[0] <= _ratio(source, target) <= self.ratios[1]

    def reads_like_other(self, text: str, side: int) -> bool:
        """Whether the words of `text` are those of the other side, beyond doubt."""
        words = text[:LOOK_AT].lower().split()
        if self.telling[1 - side].isdisjoint(words):
            return False  # nearly every line: no need to add anything up
        return self._odds(words) * (1 if side else -1) > SURE

    def tells_apart(self, source: str, target: str) -> bool:
        return self._odds(source[:LOOK_AT].lower().split()) > 0 > self._odds(target[:LOOK_AT].lower().split())

    def _odds(self, words: list[str]) -> float:
        """Above 0: reads like the source side; below: like the target side."""
        weights = self.weights
        return sum([weights[word] for word in words if word in weights])


def learn_profile(records: Sequence[Record], *, is_pairs: bool) -> Profile:
    """From the first records of a corpus; the majority decides what is usual."""
    script_of = ScriptOf()
    n_sides = 2 if is_pairs else 1
    sides = [[record.cells[side].text for record in records] for side in range(n_sides)]
    scripts = tuple(_majority([main_script(text, script_of) for text in texts]) for texts in sides)
    pairs = [pair for pair in zip(*sides, strict=True) if all(pair)] if is_pairs else []
    if len(pairs) < MIN_PAIRS:
        return Profile(scripts, script_of=script_of)
    usual = float(np.median([_ratio(source, target) for source, target in pairs]))
    weights = _word_weights(*sides)
    telling = (
        frozenset(word for word, weight in weights.items() if weight >= TELLING),
        frozenset(word for word, weight in weights.items() if weight <= -TELLING),
    )
    profile = Profile(scripts, (usual / MAX_FACTOR, usual * MAX_FACTOR), weights, telling, script_of)
    # Summaries, or dialects: where the words do not tell the sides apart, no line may be judged by them.
    apart = sum(profile.tells_apart(source, target) for source, target in pairs)
    return profile if apart > APART * len(pairs) else replace(profile, telling=(frozenset(), frozenset()))


def _ratio(source: str, target: str) -> float:
    return (len(source) + FORGIVEN) / (len(target) + FORGIVEN)


def _majority(scripts: list[str]) -> str:
    known = Counter(script for script in scripts if script)
    if known.total() < MIN_LINES:
        return ""
    script, count = known.most_common(1)[0]
    return script if 2 * count > known.total() else ""


def _word_weights(sources: list[str], targets: list[str]) -> dict[str, float]:
    """log P(word | source) / P(word | target), for the words frequent enough to say something."""
    left, right = (
        Counter(word for text in texts for word in text[:LOOK_AT].lower().split()) for texts in (sources, targets)
    )
    offset = math.log((right.total() + 1) / (left.total() + 1))
    weights = {}
    for word in left.keys() | right.keys():
        if left[word] + right[word] >= MIN_COUNT:
            weight = math.log((left[word] + 0.5) / (right[word] + 0.5)) + offset
            if abs(weight) > 1:
                weights[word] = max(-4.0, min(4.0, weight))  # no single word may decide
    return weights


SAMPLE = 20_000  # records from which the profile is learnt
CHUNK = 8_192  # records looked at together
CHUNK_CHARACTERS = 1 << 24  # … or fewer, if they are long
LONG: dict[Content, int] = {"pairs": 2_000, "labels": 20_000, "text": 200_000}  # characters

# Every character that is not printable in Python's sense and means trouble. A line of printable ones is not searched.
BAD_CHARACTERS = re.compile(
    "(?P<nul>\0)|(?P<separator>[\x0b\x0c\x1c-\x1e\x85\u2028\u2029])|(?P<carriage_return>\r)|(?P<line_break>\n)"
    "|(?P<control>[\x01-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f])|(?P<inner_bom>\ufeff)"
)


class CheckedRecord(NamedTuple):
    """One record and its problems, each with the side it stands on."""

    record: Record
    problems: tuple[tuple[int, Problem], ...]


@dataclass
class Report:
    """What the check-up found. `n_suspicious` counts examples with at least one fatal problem or warning."""

    corpus: Corpus
    n_examples: int = 0
    n_suspicious: int = 0
    n_characters: list[int] = field(default_factory=lambda: [0, 0])
    findings: dict[tuple[str, str], ProblemCount] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        return not any(finding.kind in FATAL for finding in self.findings.values())

    @property
    def suspicious_share(self) -> float:
        return self.n_suspicious / max(1, self.n_examples)

    def add(self, kind: str, place: Place, value: str) -> None:
        finding = self.findings.setdefault((kind, place.file), ProblemCount(kind, place.file))
        finding.add(place, value)

    def count(self, kind: str) -> int:
        return sum(finding.count for finding in self.findings.values() if finding.kind == kind)

    def in_order(self) -> list[ProblemCount]:
        """The gravest first, as KINDS lists them; of one kind the source before the target."""
        kinds, files = list(KINDS), [str(path) for path in self.corpus.paths]

        def order(finding: ProblemCount) -> tuple[int, int]:
            return kinds.index(finding.kind), files.index(finding.file) if finding.file in files else len(files)

        return sorted(self.findings.values(), key=order)


class CorpusChecker:
    """Iterate for the records with their problems, chunk by chunk; `report` grows on the way.

    `test_sources` are those of test sets, with their places, as `read_test_sources` gives them.
    """

    def __init__(self, corpus: Corpus, *, test_sources: dict[str, str] | None = None) -> None:
        self.corpus = corpus
        self.report = Report(corpus)
        self._files = [str(path) for path in corpus.cell_paths]
        self._unit = "row" if corpus.format == "parquet" else "line"
        self._tests = test_sources or {}
        self._seen = DuplicateDetector()
        self._is_pairs = corpus.content == "pairs"
        self._long = LONG[corpus.content]

    def __iter__(self) -> Iterator[list[CheckedRecord]]:
        records = self.corpus.records()
        profile: Profile | None = None
        try:
            for chunk in _chunks(records):
                if profile is None:
                    profile = learn_profile(chunk, is_pairs=self._is_pairs)
                judged = self._judge(chunk, profile)
                self._count(judged)
                yield judged
        except BadData as error:
            self.report.add(error.kind, error.place, error.value)

    def _judge(self, chunk: list[Record], profile: Profile) -> list[CheckedRecord]:
        judged = []
        repeated = self._repeated(chunk)
        for record, again in zip(chunk, repeated, strict=True):
            problems: list[tuple[int, Problem]] = []
            for side, cell in enumerate(record.cells):
                if cell.problems:
                    problems += [(side, problem) for problem in cell.problems]
            if not problems or not any(problem.kind in FATAL for _, problem in problems):
                self._judge_readable(record.cells, again, profile, problems)
            judged.append(CheckedRecord(record, tuple(problems)))
        return judged

    def _judge_readable(
        self, cells: tuple[Field, ...], again: bool, profile: Profile, problems: list[tuple[int, Problem]]
    ) -> None:
        """Everything that text which can be read may still have; most lines pass each test at once."""
        for side, cell in enumerate(cells):
            text = cell.text
            if not text.isprintable():
                problems += [(side, problem) for problem in _trouble(cell)]
            if "\ufffd" in text:
                problems.append((side, Problem("replacement", f"“{excerpt(text)}”")))
            if len(text) > self._long:
                problems.append((side, Problem("long", f"{len(text):,} characters: “{excerpt(text, 40)}”")))
        empty = [side for side, cell in enumerate(cells) if not cell.text or cell.text.isspace()]
        if empty:
            problems += self._empty(cells, empty)
            return
        if again:
            problems.append((0, Problem("repeat" if self.corpus.content == "text" else "duplicate", _both(cells))))
        if self._tests and (where := self._tests.get(_normal(cells[0].text))):
            problems.append((0, Problem("overlap", f"{where}: “{excerpt(cells[0].text)}”")))
        if self._is_pairs:
            problems += _compare(cells[0].text, cells[1].text, profile)
        elif not fits(cells[0].text, profile.scripts[0], profile.script_of):
            problems.append(_wrong_script(0, cells[0].text, profile))

    def _empty(self, cells: tuple[Field, ...], empty: list[int]) -> list[tuple[int, Problem]]:
        if self.corpus.content == "text":
            return [(0, Problem("blank"))]
        if any(problem.kind == "blank" for problem in cells[0].problems):
            return []  # a blank line of JSONL is no record at all, and already noted
        if len(empty) == 2:
            return [(0, Problem("empty", "both sides"))]
        return [(empty[0], Problem("empty", f"the other side: “{excerpt(cells[1 - empty[0]].text)}”"))]

    def _repeated(self, chunk: list[Record]) -> list[bool]:
        """Whether each record was seen before; unreadable and empty ones are judged by other rules."""
        hashes = [hash(tuple([cell.text for cell in record.cells])) for record in chunk]
        repeated: list[bool] = self._seen.add(np.array(hashes, dtype=np.int64)).tolist()
        return repeated

    def _count(self, judged: list[CheckedRecord]) -> None:
        report = self.report
        report.n_examples += len(judged)
        for record, problems in judged:
            for side, cell in enumerate(record.cells):
                report.n_characters[side] += len(cell.text)
            if problems:
                for side, problem in problems:
                    cell = record.cells[side]
                    byte = cell.byte if problem.byte is None else problem.byte
                    report.add(problem.kind, Place(self._files[side], cell.line, byte, self._unit), problem.value)
                report.n_suspicious += any(KINDS[problem.kind].severity != "note" for _, problem in problems)


def check_corpus(
    corpus: Corpus,
    *,
    test_sources: dict[str, str] | None = None,
    progress: Callable[[Report, Field], None] | None = None,
) -> Report:
    """The whole check-up; `progress` is called after each chunk with the report so far and the last cell read."""
    checkup = CorpusChecker(corpus, test_sources=test_sources)
    for judged in checkup:
        if progress:
            progress(checkup.report, judged[-1].record.cells[0])
    return checkup.report


def read_test_sources(corpora: Iterable[Corpus]) -> dict[str, str]:
    """Each source of the test sets, its whitespace made one, with the place it stands."""
    sources: dict[str, str] = {}
    for corpus in corpora:
        for example in corpus:
            sources.setdefault(_normal(example.source), f"{Path(corpus.paths[0])}:{example.line}")
    return sources


def _chunks(records: Iterator[Record]) -> Iterator[list[Record]]:
    """The first chunk is the larger sample; long texts make shorter chunks, so that memory stays bounded."""
    chunk: list[Record] = []
    n_characters, limit = 0, SAMPLE
    try:
        for record in records:
            chunk.append(record)
            for cell in record.cells:
                n_characters += len(cell.text)
            if len(chunk) >= limit or n_characters >= CHUNK_CHARACTERS:
                yield chunk
                chunk, n_characters, limit = [], 0, CHUNK
    except BadData:  # the file breaks off there; what came before it counts
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _trouble(cell: Field) -> Iterator[Problem]:
    """Each kind of troublesome character once, with the byte where the first of it stands."""
    seen = set()
    for match in BAD_CHARACTERS.finditer(cell.text):
        kind = str(match.lastgroup).replace("_", "-")
        if kind not in seen:
            seen.add(kind)
            start = match.start()
            byte = None if cell.byte is None else cell.byte + len(cell.text[:start].encode())
            around = excerpt(cell.text[max(0, start - 20) : start + 20])
            yield Problem(kind, f"U+{ord(match.group()):04X} in “{around}”", byte)


def _compare(source: str, target: str, profile: Profile) -> list[tuple[int, Problem]]:
    """What only the two sides together can show."""
    if source == target or source.strip() == target.strip():
        return [(0, Problem("copy", f"“{excerpt(source)}”"))]
    texts = source, target
    wrong = [not fits(text, script, profile.script_of) for text, script in zip(texts, profile.scripts, strict=True)]
    other = [profile.reads_like_other(source, 0), profile.reads_like_other(target, 1)]
    if all(wrong) or all(other):
        return [(0, Problem("swapped", f"“{excerpt(source, 40)}” / “{excerpt(target, 40)}”"))]
    problems = []
    for side, text in enumerate(texts):
        if wrong[side]:
            problems.append(_wrong_script(side, text, profile))
        elif other[side]:
            problems.append((side, Problem("language", f"“{excerpt(text)}”")))
    if profile.is_extreme(source, target):
        sizes = f"{len(source):,} / {len(target):,} characters"
        problems.append((0, Problem("ratio", f"{sizes}: “{excerpt(source, 30)}” / “{excerpt(target, 30)}”")))
    return problems


def _wrong_script(side: int, text: str, profile: Profile) -> tuple[int, Problem]:
    found = main_script(text, profile.script_of)
    return side, Problem("script", f"{found}, not {profile.scripts[side]}: “{excerpt(text)}”")


def _both(cells: tuple[Field, ...]) -> str:
    return " / ".join(f"“{excerpt(cell.text, 60 // len(cells))}”" for cell in cells)


def _normal(text: str) -> str:
    return " ".join(text.split())
