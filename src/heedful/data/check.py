"""`heedful check`: find every problem of a corpus in one pass, count it by kind and file, and keep three examples.

    report = check_corpus(open_corpus(["train.en", "train.de"]))
    for finding in report.in_order():
        print(finding.kind, finding.file, finding.count)

Memory does not grow with the corpus, except for 8 bytes per distinct pair, with which duplicates are found. No language
is known in advance: what is usual in a corpus is learnt from its first examples (`Profile`).
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
from heedful.data.problems import KINDS, BadData, Content, Location, Problem, ProblemCount, excerpt
from heedful.data.unicode_scripts import ScriptOf, fits, main_script

SAMPLE = 20_000  # records from which the profile is learnt
CHUNK = 8_192  # records checked together,
CHUNK_CHARACTERS = 1 << 24  # or fewer, if they are long
LONG: dict[Content, int] = {"pairs": 2_000, "labels": 20_000, "text": 200_000}  # characters

# Characters that are not printable in Python's sense and cause trouble. Printable lines are not searched for them.
BAD_CHARACTERS = re.compile(
    "(?P<nul>\0)|(?P<separator>[\x0b\x0c\x1c-\x1e\x85\u2028\u2029])|(?P<carriage_return>\r)|(?P<line_break>\n)"
    "|(?P<control>[\x01-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f])|(?P<inner_bom>\ufeff)"
)


class CheckedRecord(NamedTuple):
    """A record with its problems, each with the number of its side (0: source, 1: target)."""

    record: Record
    problems: tuple[tuple[int, Problem], ...]


@dataclass
class Report:
    """The result of a check. `n_suspicious` counts the examples with a fatal problem or a warning."""

    corpus: Corpus
    n_examples: int = 0
    n_suspicious: int = 0
    n_characters: list[int] = field(default_factory=lambda: [0, 0])
    findings: dict[tuple[str, str], ProblemCount] = field(default_factory=dict)  # by kind and file

    @property
    def usable(self) -> bool:
        """Whether there is no fatal problem."""
        return not any(finding.kind in FATAL for finding in self.findings.values())

    @property
    def suspicious_share(self) -> float:
        return self.n_suspicious / max(1, self.n_examples)

    def add(self, kind: str, place: Location, value: str) -> None:
        """Count a problem."""
        finding = self.findings.setdefault((kind, place.file), ProblemCount(kind, place.file))
        finding.add(place, value)

    def count(self, kind: str) -> int:
        """Count the problems of one kind in all files."""
        return sum(finding.count for finding in self.findings.values() if finding.kind == kind)

    def in_order(self) -> list[ProblemCount]:
        """List the findings by severity, in the order of KINDS; for each kind, the source file first."""
        kinds, files = list(KINDS), [str(path) for path in self.corpus.paths]

        def order(finding: ProblemCount) -> tuple[int, int]:
            return kinds.index(finding.kind), files.index(finding.file) if finding.file in files else len(files)

        return sorted(self.findings.values(), key=order)


def check_corpus(
    corpus: Corpus,
    *,
    test_sources: dict[str, str] | None = None,
    progress: Callable[[Report, Field], None] | None = None,
) -> Report:
    """Check a whole corpus.

    `test_sources` are the sources of test sets (`read_test_sources`), which should not occur in the corpus. `progress`
    is called after each chunk with the report so far and the last field read.
    """
    checker = CorpusChecker(corpus, test_sources=test_sources)
    for checked in checker:
        if progress:
            progress(checker.report, checked[-1].record.fields[0])
    return checker.report


def read_test_sources(corpora: Iterable[Corpus]) -> dict[str, str]:
    """Read the sources of test sets: text (with single spaces) -> its place."""
    sources: dict[str, str] = {}
    for corpus in corpora:
        for example in corpus:
            sources.setdefault(_single_spaced(example.source), f"{Path(corpus.paths[0])}:{example.line}")
    return sources


class CorpusChecker:
    """Checks a corpus while it is iterated over: yields chunks of records with their problems, and fills `report`."""

    def __init__(self, corpus: Corpus, *, test_sources: dict[str, str] | None = None) -> None:
        self.corpus = corpus
        self.report = Report(corpus)
        self._files = [str(path) for path in corpus.field_paths]
        self._unit = "row" if corpus.format == "parquet" else "line"
        self._test_sources = test_sources or {}
        self._duplicates = DuplicateDetector()
        self._is_pairs = corpus.content == "pairs"
        self._long = LONG[corpus.content]

    def __iter__(self) -> Iterator[list[CheckedRecord]]:
        records = self.corpus.records()
        profile: Profile | None = None
        try:
            for chunk in _chunks(records):
                if profile is None:
                    profile = learn_profile(chunk, is_pairs=self._is_pairs)
                checked = self._check(chunk, profile)
                self._count(checked)
                yield checked
        except BadData as error:
            self.report.add(error.kind, error.place, error.value)

    def _check(self, chunk: list[Record], profile: "Profile") -> list[CheckedRecord]:
        checked = []
        for record, is_repeated in zip(chunk, self._repeated(chunk), strict=True):
            problems: list[tuple[int, Problem]] = []
            for side, part in enumerate(record.fields):
                if part.problems:
                    problems += [(side, problem) for problem in part.problems]
            if not problems or not any(problem.kind in FATAL for _, problem in problems):
                self._check_readable(record.fields, is_repeated, profile, problems)
            checked.append(CheckedRecord(record, tuple(problems)))
        return checked

    def _check_readable(
        self, fields: tuple[Field, ...], is_repeated: bool, profile: "Profile", problems: list[tuple[int, Problem]]
    ) -> None:
        """Add the problems of texts that can be read; most lines pass each test at once."""
        for side, part in enumerate(fields):
            text = part.text
            if not text.isprintable():
                problems += [(side, problem) for problem in _bad_characters(part)]
            if "\ufffd" in text:
                problems.append((side, Problem("replacement", f"“{excerpt(text)}”")))
            if len(text) > self._long:
                problems.append((side, Problem("long", f"{len(text):,} characters: “{excerpt(text, 40)}”")))
        empty = [side for side, part in enumerate(fields) if not part.text or part.text.isspace()]
        if empty:
            problems += self._empty(fields, empty)
            return
        if is_repeated:
            kind = "repeat" if self.corpus.content == "text" else "duplicate"
            problems.append((0, Problem(kind, _all_texts(fields))))
        if self._test_sources and (place := self._test_sources.get(_single_spaced(fields[0].text))):
            problems.append((0, Problem("overlap", f"{place}: “{excerpt(fields[0].text)}”")))
        if self._is_pairs:
            problems += _compare_sides(fields[0].text, fields[1].text, profile)
        elif not fits(fields[0].text, profile.scripts[0], profile.script_of):
            problems.append(_wrong_script(0, fields[0].text, profile))

    def _empty(self, fields: tuple[Field, ...], empty: list[int]) -> list[tuple[int, Problem]]:
        if self.corpus.content == "text":
            return [(0, Problem("blank"))]
        if any(problem.kind == "blank" for problem in fields[0].problems):
            return []  # a blank line of JSONL is not a record, and is counted already
        if len(empty) == 2:
            return [(0, Problem("empty", "both sides"))]
        return [(empty[0], Problem("empty", f"the other side: “{excerpt(fields[1 - empty[0]].text)}”"))]

    def _repeated(self, chunk: list[Record]) -> list[bool]:
        """Find the records that occurred before. Unreadable and empty ones are reported for other reasons."""
        hashes = [hash(tuple([part.text for part in record.fields])) for record in chunk]
        repeated: list[bool] = self._duplicates.is_repeated(np.array(hashes, dtype=np.int64)).tolist()
        return repeated

    def _count(self, checked: list[CheckedRecord]) -> None:
        report = self.report
        report.n_examples += len(checked)
        for record, problems in checked:
            for side, part in enumerate(record.fields):
                report.n_characters[side] += len(part.text)
            if problems:
                for side, problem in problems:
                    part = record.fields[side]
                    byte = part.byte if problem.byte is None else problem.byte
                    report.add(problem.kind, Location(self._files[side], part.line, byte, self._unit), problem.value)
                report.n_suspicious += any(KINDS[problem.kind].severity != "note" for _, problem in problems)


def _chunks(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Divide records into chunks. The first is larger, as a sample; of long texts there are fewer in a chunk."""
    chunk: list[Record] = []
    n_characters, limit = 0, SAMPLE
    try:
        for record in records:
            chunk.append(record)
            for part in record.fields:
                n_characters += len(part.text)
            if len(chunk) >= limit or n_characters >= CHUNK_CHARACTERS:
                yield chunk
                chunk, n_characters, limit = [], 0, CHUNK
    except BadData:  # the file is cut off or damaged here; the records before it count
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _bad_characters(part: Field) -> Iterator[Problem]:
    """Yield each kind of bad character once, with the byte of its first occurrence."""
    kinds = set()
    for match in BAD_CHARACTERS.finditer(part.text):
        kind = str(match.lastgroup).replace("_", "-")
        if kind not in kinds:
            kinds.add(kind)
            start = match.start()
            byte = None if part.byte is None else part.byte + len(part.text[:start].encode())
            around = excerpt(part.text[max(0, start - 20) : start + 20])
            yield Problem(kind, f"U+{ord(match.group()):04X} in “{around}”", byte)


def _compare_sides(source: str, target: str, profile: "Profile") -> list[tuple[int, Problem]]:
    """Find the problems that show only when both sides are compared."""
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


def _wrong_script(side: int, text: str, profile: "Profile") -> tuple[int, Problem]:
    script = main_script(text, profile.script_of)
    return side, Problem("script", f"{script}, not {profile.scripts[side]}: “{excerpt(text)}”")


def _all_texts(fields: tuple[Field, ...]) -> str:
    return " / ".join(f"“{excerpt(part.text, 60 // len(fields))}”" for part in fields)


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


# Duplicates

Hashes = npt.NDArray[np.int64]


class DuplicateDetector:
    """A set of 64-bit hashes, stored in sorted arrays that grow as in a log-structured merge tree.

    It takes 8 bytes per distinct hash (16 while arrays are merged); a set of Python strings would take 100 and more.
    Two different pairs with equal hashes count as duplicates: among a million pairs, with a probability of 3 in 10^8.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def is_repeated(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Add hashes, and return True for each that was added before or occurs earlier in `hashes`."""
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
        """The number of distinct hashes."""
        return sum(len(run) for run in self._runs)

    def _append(self, run: Hashes) -> None:
        """Add a sorted array, and merge until each array is more than twice as long as the next.

        So there are few arrays, and each hash is moved rarely.
        """
        if len(run):
            self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            pair = np.concatenate(self._runs[-2:])
            pair.sort(kind="stable")  # timsort merges two sorted arrays in one pass
            self._runs[-2:] = [pair]


# What is usual in a corpus

MIN_LINES = 4  # with fewer, no script is usual
MIN_PAIRS = 50  # with fewer, no ratio and no words are usual
FORGIVEN = 15  # characters added to both lengths before their ratio is taken, because short lines vary
MAX_FACTOR = 4.0  # the largest allowed deviation from the usual ratio
MAX_FACTOR_UNKNOWN = 9.0  # the largest allowed ratio if no ratio is usual
MIN_COUNT = 10  # of a word in the sample
LOOK_AT = 300  # characters of a line whose words are counted
SEPARABLE = 0.9  # minimum share of pairs whose words must identify their sides
TYPICAL = 2.0  # log odds of a word that is typical of one side
SURE = 12.0  # log odds of a text that is recognised as the other side's


@dataclass(frozen=True)
class Profile:
    """The usual scripts, length ratios and words of a corpus.

    A pair whose sides are swapped is found because each side has the words that the other side has everywhere else.
    """

    scripts: tuple[str, ...]  # of each side; "" if no script has the majority
    ratios: tuple[float, float] = (1 / MAX_FACTOR_UNKNOWN, MAX_FACTOR_UNKNOWN)  # the smallest and largest allowed
    weights: dict[str, float] = field(default_factory=dict)  # word -> log odds that it is on the source side
    typical: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())  # words typical of each side
    script_of: ScriptOf = field(default_factory=ScriptOf)

    def is_extreme(self, source: str, target: str) -> bool:
        """Return whether the ratio of the lengths is unusual."""
        return not self.ratios[0] <= _ratio(source, target) <= self.ratios[1]

    def reads_like_other(self, text: str, side: int) -> bool:
        """Return whether the words of a text are, with near certainty, typical of the other side."""
        words = text[:LOOK_AT].lower().split()
        if self.typical[1 - side].isdisjoint(words):
            return False  # nearly all lines: the sum is not needed
        return self._odds(words) * (1 if side else -1) > SURE

    def tells_apart(self, source: str, target: str) -> bool:
        """Return whether the words of each text are typical of its side."""
        return self._odds(source[:LOOK_AT].lower().split()) > 0 > self._odds(target[:LOOK_AT].lower().split())

    def _odds(self, words: list[str]) -> float:
        """Compute log odds: above 0 for words of the source side, below 0 for words of the target side."""
        weights = self.weights
        return sum([weights[word] for word in words if word in weights])


def learn_profile(records: Sequence[Record], *, is_pairs: bool) -> Profile:
    """Learn the profile of a corpus from its first records."""
    script_of = ScriptOf()
    n_sides = 2 if is_pairs else 1
    sides = [[record.fields[side].text for record in records] for side in range(n_sides)]
    scripts = tuple(_majority([main_script(text, script_of) for text in texts]) for texts in sides)
    pairs = [pair for pair in zip(*sides, strict=True) if all(pair)] if is_pairs else []
    if len(pairs) < MIN_PAIRS:
        return Profile(scripts, script_of=script_of)
    usual = float(np.median([_ratio(source, target) for source, target in pairs]))
    weights = _word_weights(*sides)
    typical = (
        frozenset(word for word, weight in weights.items() if weight >= TYPICAL),
        frozenset(word for word, weight in weights.items() if weight <= -TYPICAL),
    )
    profile = Profile(scripts, (usual / MAX_FACTOR, usual * MAX_FACTOR), weights, typical, script_of)
    # In summaries or dialects, words do not tell the sides apart: then no line is judged by its words.
    n_apart = sum(profile.tells_apart(source, target) for source, target in pairs)
    return profile if n_apart > SEPARABLE * len(pairs) else replace(profile, typical=(frozenset(), frozenset()))


def _ratio(source: str, target: str) -> float:
    return (len(source) + FORGIVEN) / (len(target) + FORGIVEN)


def _majority(scripts: list[str]) -> str:
    known = Counter(script for script in scripts if script)
    if known.total() < MIN_LINES:
        return ""
    script, count = known.most_common(1)[0]
    return script if 2 * count > known.total() else ""


def _word_weights(sources: list[str], targets: list[str]) -> dict[str, float]:
    """Compute log P(word | source) / P(word | target) for words that are frequent and distinctive."""
    left, right = (
        Counter(word for text in texts for word in text[:LOOK_AT].lower().split()) for texts in (sources, targets)
    )
    offset = math.log((right.total() + 1) / (left.total() + 1))
    weights = {}
    for word in left.keys() | right.keys():
        if left[word] + right[word] >= MIN_COUNT:
            weight = math.log((left[word] + 0.5) / (right[word] + 0.5)) + offset
            if abs(weight) > 1:
                weights[word] = max(-4.0, min(4.0, weight))  # limited, so that no single word decides
    return weights
