"""What is usual in a corpus, learnt from its first examples: scripts, length ratio, and the words of each side.

Nothing here knows any language. A pair whose two sides are swapped is found because each side uses the words that the
other file uses everywhere else.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from heedful.data.records import Record
from heedful.data.scripts import ScriptOf, main_script

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
