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
SURE = 12.0  # natural logarithm of the odds


@dataclass(frozen=True)
class Profile:
    scripts: tuple[str, ...]  # of each side, "" when no script has the majority
    log_ratio: float = 0.0  # the usual log((source + 15) / (target + 15)), in characters
    max_factor: float = MAX_FACTOR_UNKNOWN
    weights: dict[str, float] = field(default_factory=dict)  # word -> log odds that it stands on the source side
    script_of: ScriptOf = field(default_factory=ScriptOf)

    def is_extreme(self, source: str, target: str) -> bool:
        return abs(_log_ratio(source, target) - self.log_ratio) > math.log(self.max_factor)

    def odds(self, text: str) -> float:
        """Above 0: reads like the source side; below: like the target side."""
        weights = self.weights
        return sum([weights[word] for word in text[:LOOK_AT].lower().split() if word in weights])


def learn_profile(records: Sequence[Record], *, is_pairs: bool) -> Profile:
    """From the first records of a corpus; the majority decides what is usual."""
    script_of = ScriptOf()
    n_sides = 2 if is_pairs else 1
    sides = [[record.cells[side].text for record in records] for side in range(n_sides)]
    scripts = tuple(_majority([main_script(text, script_of) for text in texts]) for texts in sides)
    pairs = [pair for pair in zip(*sides, strict=True) if all(pair)] if is_pairs else []
    if len(pairs) < MIN_PAIRS:
        return Profile(scripts, script_of=script_of)
    ratio = float(np.median([_log_ratio(source, target) for source, target in pairs]))
    profile = Profile(scripts, ratio, MAX_FACTOR, _word_weights(*sides), script_of)
    # Summaries, or dialects: where the words do not tell the sides apart, no line may be judged by them.
    apart = sum(profile.odds(source) > 0 > profile.odds(target) for source, target in pairs)
    return profile if apart > APART * len(pairs) else replace(profile, weights={})


def _log_ratio(source: str, target: str) -> float:
    return math.log((len(source) + FORGIVEN) / (len(target) + FORGIVEN))


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
