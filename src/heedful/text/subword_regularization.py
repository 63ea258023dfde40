"""Random segmentations of words, for training: BPE-dropout, and sampling from a unigram model.

SentencePiece has both, but its generator takes a salt from each process (seen in 0.2.2): equal seeds give other pieces
after a restart, and a resumed run would differ from an uninterrupted one. Here the random numbers come from Python's
`random.Random.random()`, whose sequence is guaranteed. No piece is longer than a word, so each word of a text is
sampled by itself, and intermediate results are cached by word.
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

# Longer "words", such as whole sentences in scripts without spaces, are rarely repeated and not cached.
_LONGEST_KEPT = 24
_KEPT_WORDS = 16_384

_UNKNOWN_PENALTY = 10.0  # as in SentencePiece: an unknown character scores this much less than the worst piece


@dataclass(frozen=True)
class Vocabulary:
    """What the samplers need: the ids and scores of pieces, and `spell`, the ids of a character without a piece."""

    ids: Mapping[str, int]
    scores: Mapping[str, float]
    spell: Callable[[str], list[int]]


def bpe_dropout(vocabulary: Vocabulary, *, probability: float) -> Sampler:
    """Return a sampler that drops each merge with this probability (Provilkov et al. 2020, arXiv 1910.13267)."""
    per_log = 1.0 / math.log1p(-probability)

    def merges_until_drop(random: Random) -> int:
        return int(math.log(1.0 - random.random()) * per_log)  # geometric: one random number for many merges

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
    """An iterator over merges: True to apply a merge, False to drop it."""

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
    """Merge neighbours by score, the left pair first if scores are equal; return symbols and number of merges."""
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
    """The pieces that can end at one position of a word: their starts, their ids, their cumulative probabilities."""

    starts: list[int]
    ids: list[list[int]]
    cumulative: list[float]


def unigram_sampling(vocabulary: Vocabulary, *, alpha: float) -> Sampler:
    """Return a sampler of segmentations with probability proportional to P(segmentation)^alpha, among all of them.

    See Kudo 2018 (arXiv 1804.10959).
    """
    unknown_score = min(vocabulary.scores.values(), default=0.0) - _UNKNOWN_PENALTY
    beginnings = {piece[:end] for piece in vocabulary.scores for end in range(1, len(piece) + 1)}

    def lattice(word: str) -> list[_Ending]:
        edges: list[list[tuple[int, list[int], float]]] = [[] for _ in range(len(word) + 1)]
        total = [0.0]  # log of the sum of the weights of all paths to a position
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
