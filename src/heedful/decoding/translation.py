"""Translations of whole texts, put together from the results for their segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from heedful.decoding.decoding_stats import DecodingStats
from heedful.decoding.search.request import Hypothesis
from heedful.decoding.segmentation import SegmentedText
from heedful.models.model_info import SourceLimit
from heedful.text import Tokenizers
from heedful.text.tokenizer import decode_generated, generated_pieces


@dataclass(frozen=True)
class Translation:
    """One translation of one text."""

    text: str
    score: float = 0.0  # natural log-probability of its tokens and the ends of its segments
    normalized_score: float = 0.0  # the score after the penalties, by which translations are sorted
    tokens: tuple[str, ...] = ()
    source_tokens: tuple[str, ...] = ()
    # (index of a source token, index of a token): for each token the source token that it attends to most
    alignment: tuple[tuple[int, int], ...] | None = None
    # for each token, its attention to each source token and the end of the source; for texts of one segment only
    attention: tuple[tuple[float, ...], ...] | None = None
    complete: bool = True  # whether each segment ended before the length limit


Output = TypeVar("Output")


@dataclass(frozen=True)
class BlockResult(Generic[Output]):
    """The outputs of a model for a block of texts, one for each text (a Translator's are lists: the n best)."""

    outputs: Sequence[Output]
    stats: DecodingStats


def combine_segments(
    plan: SegmentedText, results: Sequence[Sequence[Hypothesis]], tokenizers: Tokenizers, *, n_best: int
) -> list[Translation]:
    """Make the n best translations of a text from the n best hypotheses of each of its segments, best first."""
    if not plan.segments:
        return [Translation(plan.join([]))]
    texts = [[decode_generated(tokenizers.target, hypothesis.ids) for hypothesis in best] for best in results]
    source_tokens = tuple(token for segment in plan.segments for token in tokenizers.source.pieces(segment.ids))
    translations = []
    for choice in best_choices([[hypothesis.normalized_score for hypothesis in best] for best in results], n_best):
        chosen = [best[index] for best, index in zip(results, choice, strict=True)]
        ids = [id for hypothesis in chosen for id in hypothesis.ids]
        translations.append(
            Translation(
                text=plan.join([options[index] for options, index in zip(texts, choice, strict=True)]),
                score=sum(hypothesis.score for hypothesis in chosen),
                normalized_score=sum(hypothesis.normalized_score for hypothesis in chosen),
                tokens=tuple(generated_pieces(tokenizers.target, ids)),
                source_tokens=source_tokens,
                alignment=_alignment(plan, chosen),
                attention=_attention(chosen),
                complete=all(hypothesis.complete for hypothesis in chosen),
            )
        )
    return translations


def stats_of(
    translations: Sequence[Sequence[Translation]],
    results: Sequence[Sequence[Sequence[Hypothesis]]],
    reach: SourceLimit,
    *,
    start: int,
) -> DecodingStats:
    """Count the texts with translations that were cut off, or are longer than the model was trained for.

    `results` has, for each text and segment, the hypotheses; `start` is the index of the first text.
    """
    cut = [number for number, best in enumerate(translations, start) if not all(each.complete for each in best)]
    far: list[int] = []
    if not reach.is_hard:
        for number, segments in enumerate(results, start):
            # A model reads a start token before its own tokens, and its max_len counts both.
            if any(len(hypothesis.ids) >= reach.max_len for best in segments for hypothesis in best):
                far.append(number)
    return DecodingStats(
        max_len=reach.max_len,
        n_cut=len(cut),
        first_cut=min(cut, default=None),
        n_far=len(far),
        first_far=min(far, default=None),
    )


def best_choices(scores: Sequence[Sequence[float]], n: int) -> list[list[int]]:
    """Return the n choices of one index from each list with the largest sums, best first; the lists are descending.

    >>> best_choices([[-1.0, -3.0], [-2.0, -2.5]], n=3)
    [[0, 0], [0, 1], [1, 0]]
    """
    sums, steps = [0.0], []
    for row in scores:
        # (i + 1) (j + 1) - 1 others beat choice i of the lists before together with choice j of this one.
        pairs = [
            (before + row[j], i, j) for i, before in enumerate(sums) for j in range(min(len(row), max(1, n // (i + 1))))
        ]
        pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
        sums = [total for total, _, _ in pairs[:n]]
        steps.append([(i, j) for _, i, j in pairs[:n]])
    choices = []
    for last in range(len(sums)):
        choice, at = [], last
        for step in reversed(steps):
            at, index = step[at]
            choice.append(index)
        choices.append(choice[::-1])
    return choices


def _alignment(plan: SegmentedText, chosen: Sequence[Hypothesis]) -> tuple[tuple[int, int], ...] | None:
    """Link each token to the source token with its largest attention, the end of the source left out."""
    links: list[tuple[int, int]] = []
    first_source = first_target = 0
    for segment, hypothesis in zip(plan.segments, chosen, strict=True):
        if hypothesis.attention is None:
            return None
        for target, row in enumerate(hypothesis.attention[: len(hypothesis.ids)]):
            source = max(range(len(segment.ids)), key=lambda index, row=row: row[index])  # type: ignore[misc]
            links.append((first_source + source, first_target + target))
        first_source += len(segment.ids)
        first_target += len(hypothesis.ids)
    return tuple(links)


def _attention(chosen: Sequence[Hypothesis]) -> tuple[tuple[float, ...], ...] | None:
    if len(chosen) != 1 or chosen[0].attention is None:
        return None
    return tuple(tuple(row) for row in chosen[0].attention)
