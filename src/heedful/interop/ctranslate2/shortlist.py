"""A lexical shortlist: the target tokens that a source can need, learned from parallel text.

The output layer, decoder states times vocabulary, is the largest product of a step; for most sentences a few hundred
of its columns are enough. IBM Model 1 (Brown et al. 1993), which aligns each target token to one source token, gives
the likely translations of a token.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import Converted
from heedful.interop.ctranslate2.library import source_token, target_token

VMAP = "vmap.txt"  # where CTranslate2 looks for it
MOST_LINKS = 12_000_000  # pairs of a source and a target token in one sentence: about 400 MB while learning

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shortlist:
    """Target ids to consider always, and those to consider for each source id in the training text."""

    always: list[int]
    candidates: dict[int, list[int]]


@dataclass(frozen=True)
class Links:
    """All combinations of a source token and a target token that occur within a sentence pair."""

    pairs: Ints  # (P,) distinct pairs, source id x vocabulary + target id
    which: Ints  # (L,) the pair of each link
    occurrence: Ints  # (L,) which target token of the corpus each link explains


def learn_shortlist(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    *,
    target_vocab_size: int,
    joint: bool,
    n_always: int = 500,
    n_candidates: int = 40,
    least: float = 1e-3,
    n_rounds: int = 3,
) -> Shortlist:
    """Learn a shortlist from pairs (source ids, target ids).

    Each source id gets its `n_candidates` likeliest target ids with a probability of at least `least`. The `n_always`
    most frequent target ids are always considered. With a joint vocabulary each source id is also a candidate itself,
    because names and numbers are copied.
    """
    sources, targets = _sample(pairs)
    if not targets:
        raise UserError("a shortlist needs parallel text: there was no pair with tokens on both sides")
    links = _link(sources, targets, target_vocab_size)
    probabilities = _align(links, target_vocab_size, n_rounds=n_rounds)
    candidates = _likeliest(links, probabilities, target_vocab_size, n_candidates=n_candidates, least=least)
    if joint:
        for id in candidates:
            candidates[id] = sorted({id, *candidates[id]})
    counts = np.bincount(np.concatenate(targets), minlength=target_vocab_size)
    always = [int(id) for id in np.argsort(-counts, kind="stable")[:n_always] if counts[id]]
    return Shortlist(always, candidates)


def write_shortlist(converted: Converted, shortlist: Shortlist) -> Path:
    """Write a shortlist where CTranslate2 finds it when it opens the model again, and return the path."""
    lines = [f"\t{_tokens(shortlist.always)}\n"]  # without a source token: always
    lines += [f"{source_token(id)}\t{_tokens(ids)}\n" for id, ids in sorted(shortlist.candidates.items())]
    path = converted.folder / VMAP
    aside = path.with_name(f"{VMAP}-{os.getpid()}")
    try:
        aside.write_text("".join(lines), encoding="ascii")
        aside.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def has_shortlist(converted: Converted) -> bool:
    return (converted.folder / VMAP).is_file()


def _sample(pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> tuple[list[Ints], list[Ints]]:
    """Return pairs until MOST_LINKS is reached. Each source begins with -1, for target tokens without a counterpart."""
    sources, targets, n_links = [], [], 0
    for source, target in pairs:
        n_links += (len(source) + 1) * len(target)
        if n_links > MOST_LINKS:
            break
        if len(source) and len(target):
            sources.append(np.array([-1, *source], np.int64))
            targets.append(np.array(target, np.int64))
    return sources, targets


def _link(sources: list[Ints], targets: list[Ints], vocab_size: int) -> Links:
    keys, occurrences, n = [], [], 0
    for source, target in zip(sources, targets, strict=True):
        keys.append((source[None] * vocab_size + target[:, None]).ravel())  # -1 x V + t: below all others
        occurrences.append(np.repeat(np.arange(n, n + len(target)), len(source)))
        n += len(target)
    pairs, which = np.unique(np.concatenate(keys), return_inverse=True)
    return Links(pairs, which, np.concatenate(occurrences))


def _align(links: Links, vocab_size: int, *, n_rounds: int) -> Floats:
    """Return for each pair the probability of its target token given its source token, by expectation maximisation."""
    _, source = np.unique(links.pairs // vocab_size, return_inverse=True)
    probabilities = np.ones(len(links.pairs))
    for _ in range(n_rounds):
        expected = probabilities[links.which]
        expected /= np.bincount(links.occurrence, expected)[links.occurrence]
        counts = np.bincount(links.which, expected, minlength=len(links.pairs))
        probabilities = counts / np.bincount(source, counts)[source]
    return probabilities


def _likeliest(
    links: Links, probabilities: Floats, vocab_size: int, *, n_candidates: int, least: float
) -> dict[int, list[int]]:
    source, target = links.pairs // vocab_size, links.pairs % vocab_size
    order = np.lexsort((-probabilities, source))
    order = order[(source[order] >= 0)]
    first = np.searchsorted(source[order], source[order], side="left")
    kept = order[(np.arange(len(order)) - first < n_candidates) & (probabilities[order] >= least)]
    candidates: dict[int, list[int]] = {int(id): [] for id in np.unique(source[order])}
    for source_id, target_id in zip(source[kept].tolist(), target[kept].tolist(), strict=True):
        candidates[source_id].append(target_id)
    return candidates


def _tokens(ids: Sequence[int]) -> str:
    return " ".join(target_token(id) for id in ids)
