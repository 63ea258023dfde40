"""Random segmentations of one word, for training: BPE-dropout, and sampling from a unigram model.

SentencePiece can do both, but not twice: its generator takes a salt from each process, so the same seed gives other
pieces after a restart (seen in 0.2.2), and a resumed run would not be the run that was interrupted. Here the numbers
come from Python's `random.Random.random()`, which is promised to stay the same. As no piece reaches beyond a word, the
words of a text can be drawn one by one, and what is known of a word can be kept.
"""

import bisect
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

Sampler = Callable[[str, Random], list[int]]

# Of long "words", which are whole sentences in scripts without spaces, few come again.
_LONGEST_KEPT = 24
_KEPT_WORDS = 16_384

_UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown character is so much worse than the worst piece


@dataclass(frozen=True)
class Vocabulary:
    """What the samplers need of a model: the ids and scores of its pieces, and the ids of a character it lacks."""

    ids: Mapping[str, int]
    scores: Mapping[str, float]
    spell: Callable[[str], list[int]]


def bpe_dropout(vocabulary: Vocabulary, *, probability: float) -> Sampler:
    """Provilkov et al. 2020 (arXiv 1910.13267): each merge, when its turn comes, is dropped with a probability."""
    per_log = 1.0 / math.log1p(-probability)

    def merges_until_drop(random: Random) -> int:
        return int(math.log(1.0 - random.random()) * per_log)  # geometric: one number instead of one for each merge

    @functools.lru_cache(_KEPT_WORDS)
    def whole(word: str) -> tuple[list[int], int]:
        symbols, n_merges = _merge(word, vocabulary.scores, itertools.repeat(True))
        return _ids(symbols, vocabulary), n_merges

    def sample(word: str, random: Random) -> list[int]:
        first = merges_until_drop(random)
        if len(word) <= _LONGEST_KEPT:
            ids, n_merges = whole(word)
            if first >= n_merges:
                return ids
        return _ids(_merge(word, vocabulary.scores, _Drops(first, merges_until_drop, random))[0], vocabulary)

    return sample


class _Drops:
    """Whether to do the next merge, one answer after the other."""

    def __init__(self, first: int, merges_until_drop: Callable[[Random], int], random: Random) -> None:
        self._left = first
        self._merges_until_drop = merges_until_drop
        self._random = random

    def __iter__(self) -> "_Drops":
        return self

    def __next__(self) -> bool:
        if self._left > 0:
            self._left -= 1
            return True
        self._left = self._merges_until_drop(self._random)
        return False


def _merge(
    word: str, scores: Mapping[str, float], decisions: "itertools.repeat[bool] | _Drops"
) -> tuple[list[str], int]:
    """BPE: the best pair of neighbours first, the left one of two equals; the symbols, and how many merges it took."""
    symbols = list(word)
    left_of, right_of = list(range(-1, len(word) - 1)), list(range(1, len(word) + 1))
    queue: list[tuple[float, int, int]] = []
    n_merges = 0

    def offer(left: int) -> None:
        if left >= 0 and right_of[left] < len(word):
            pair = symbols[left] + symbols[right_of[left]]
            if pair in scores:
                heapq.heappush(queue, (-scores[pair], left, len(pair)))

    for left in range(len(word) - 1):
        offer(left)
    while queue:
        _, left, size = heapq.heappop(queue)
        right = right_of[left]
        gone = not symbols[left] or right >= len(word) or len(symbols[left]) + len(symbols[right]) != size
        if gone or not next(decisions):
            continue
        n_merges += 1
        symbols[left] += symbols[right]
        symbols[right] = ""
        right_of[left] = right_of[right]
        if right_of[left] < len(word):
            left_of[right_of[left]] = left
        offer(left_of[left])
        offer(left)
    return [symbol for symbol in symbols if symbol], n_merges


class _Ending(NamedTuple):
    """The pieces that can end at one place of a word: where each starts, its ids, its probability summed up."""

    starts: list[int]
    ids: list[list[int]]
    cumulative: list[float]


def unigram_sampling(vocabulary: Vocabulary, *, alpha: float) -> Sampler:
    """Kudo 2018 (arXiv 1804.10959): a segmentation with the probability P(segmentation)^alpha, of all there are."""
    unknown_score = min(vocabulary.scores.values(), default=0.0) - _UNKNOWN_PENALTY
    beginnings = {piece[:end] for piece in vocabulary.scores for end in range(1, len(piece) + 1)}

    def lattice(word: str) -> list[_Ending]:
        edges: list[list[tuple[int, list[int], float]]] = [[] for _ in range(len(word) + 1)]
        total = [0.0]  # log of the summed weights of all ways to get to a place
        endings = [_Ending([], [], [])]
        for start in range(len(word)):
            if start:
                ending, log_sum = _ending(edges[start])
                endings.append(ending)
                total.append(log_sum)
            if word[start] not in vocabulary.scores:
                weight = total[start] + alpha * unknown_score
                edges[start + 1].append((start, vocabulary.spell(word[start]), weight))
            end = start + 1
            while end <= len(word) and word[start:end] in beginnings:
                piece = word[start:end]
                if piece in vocabulary.scores:
                    weight = total[start] + alpha * vocabulary.scores[piece]
                    edges[end].append((start, [vocabulary.ids[piece]], weight))
                end += 1
        endings.append(_ending(edges[len(word)])[0])
        return endings

    kept_lattice = functools.lru_cache(_KEPT_WORDS)(lattice)

    def sample(word: str, random: Random) -> list[int]:
        endings = kept_lattice(word) if len(word) <= _LONGEST_KEPT else lattice(word)
        chosen: list[list[int]] = []
        end = len(word)
        while end:
            ending = endings[end]
            choice = bisect.bisect_right(ending.cumulative, random.random(), hi=len(ending.cumulative) - 1)
            chosen.append(ending.ids[choice])
            end = ending.starts[choice]
        return [number for ids in reversed(chosen) for number in ids]

    return sample


def _ending(edges: list[tuple[int, list[int], float]]) -> tuple[_Ending, float]:
    best = max(weight for _, _, weight in edges)
    cumulative = list(itertools.accumulate(math.exp(weight - best) for _, _, weight in edges))
    total = cumulative[-1]
    ending = _Ending([edge[0] for edge in edges], [edge[1] for edge in edges], [value / total for value in cumulative])
    return ending, best + math.log(total)


def _ids(symbols: list[str], vocabulary: Vocabulary) -> list[int]:
    ids: list[int] = []
    for symbol in symbols:
        number = vocabulary.ids.get(symbol)
        ids += vocabulary.spell(symbol) if number is None else [number]
    return ids
