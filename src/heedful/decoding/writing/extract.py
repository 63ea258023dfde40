"""The most important parts of a text that is too long: those that have most in common with the whole.

Each part is a vector of its tokens, weighted by TF-IDF: a token counts the more often it stands in the part, and the
rarer it is in the others. The part nearest to the sum of all is the most central (Radev et al. 2004). Tokens, not
words, so that it works for every language that the model reads.
"""

import math
from collections import Counter
from collections.abc import Sequence

Vector = dict[int, float]


def centrality(parts: Sequence[Sequence[int]]) -> list[float]:
    """The cosine between each part and the sum of all parts; 0 for a part of nothing but what all have."""
    counts = [Counter(ids) for ids in parts]
    n_parts_with = Counter(token for count in counts for token in count)
    # 1 + n: with two parts, what stands in both must still count for something.
    weights = {token: math.log((1 + len(parts)) / n) for token, n in n_parts_with.items()}
    vectors = [_unit({token: n * weights[token] for token, n in count.items()}) for count in counts]
    whole: Vector = {}
    for vector in vectors:
        for token, value in vector.items():
            whole[token] = whole.get(token, 0.0) + value
    whole = _unit(whole)
    return [sum(value * whole[token] for token, value in vector.items()) for vector in vectors]


def most_important(parts: Sequence[Sequence[int]], *, room: int) -> list[int]:
    """Which parts to keep, in their order: the most central first, as long as their tokens fit into `room`."""
    scores = centrality(parts)
    kept: list[int] = []
    for number in sorted(range(len(parts)), key=lambda number: -scores[number]):  # of equals the first
        if len(parts[number]) <= room:
            kept.append(number)
            room -= len(parts[number])
    return sorted(kept)


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(sum(value * value for value in vector.values()))
    return {token: value / length for token, value in vector.items()} if length else vector
