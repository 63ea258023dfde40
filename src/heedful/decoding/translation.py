"""What a user gets: translations of whole texts, put together from what the engine found for their pieces."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from heedful.decoding.search.request import Hypothesis
from heedful.decoding.segmentation import DecodingStats, SegmentedText
from heedful.models.model_info import SourceLimit
from heedful.text import Tokenizers
from heedful.text.tokenizer import decode_generated, generated_pieces


@dataclass(frozen=True)
class Translation:
    """One translation of one text."""

    text: str
    score: float = 0.0  # natural log-probability of its tokens and their end marks
    normalized_score: float = 0.0  # what the search ranked it by: the score after the penalties
    tokens: tuple[str, ...] = ()
    source_tokens: tuple[str, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = (
        None  # (source token, token): for each the source token it is nearest
    )
    attention: tuple[tuple[float, ...], ...] | None = None  # token x source token and end; only of a text in one piece
    complete: bool = True  # it ended by itself, not at the limit of its length


Output = TypeVar("Output")


@dataclass(frozen=True)
class BlockResult(Generic[Output]):
    """The outputs of a model for a block of texts, one for each text; of a Translator the n best, best first."""

    outputs: Sequence[Output]
    tally: DecodingStats


def put_together(
    plan: SegmentedText, found: Sequence[Sequence[Hypothesis]], tokenizers: Tokenizers, *, n_best: int
) -> list[Translation]:
    """The n best translations of a text from the n best of each of its pieces, best first."""
    if not plan.pieces:
        return [Translation(plan.join([]))]
    texts = [[decode_generated(tokenizers.target, hypothesis.ids) for hypothesis in best] for best in found]
    source_tokens = tuple(piece for part in plan.pieces for piece in tokenizers.source.pieces(part.ids))
    translations = []
    for choice in best_choices([[hypothesis.normalized_score for hypothesis in best] for best in found], n_best):
        chosen = [best[number] for best, number in zip(found, choice, strict=True)]
        translations.append(
            Translation(
                text=plan.join([options[number] for options, number in zip(texts, choice, strict=True)]),
                score=sum(hypothesis.score for hypothesis in chosen),
                normalized_score=sum(hypothesis.normalized_score for hypothesis in chosen),
                tokens=tuple(
                    generated_pieces(tokenizers.target, [id for hypothesis in chosen for id in hypothesis.ids])
                ),
                source_tokens=source_tokens,
                alignment=_alignment(plan, chosen),
                attention=_attention(chosen),
                complete=all(hypothesis.complete for hypothesis in chosen),
            )
        )
    return translations


def tally_of(
    translations: Sequence[Sequence[Translation]],
    found: Sequence[Sequence[Sequence[Hypothesis]]],
    reach: SourceLimit,
    *,
    start: int,
) -> DecodingStats:
    """How many texts have translations that were cut off, or that go beyond the positions that the model has learned.

    `found` has, for each text, what was found for its pieces; the first text has the number `start`.
    """
    cut = [number for number, best in enumerate(translations, start) if not all(one.complete for one in best)]
    far: list[int] = []
    if not reach.is_hard:
        for number, pieces in enumerate(found, start):
            # A model reads the start mark before what it has written, and its max_len counts both.
            if any(len(hypothesis.ids) >= reach.max_len for best in pieces for hypothesis in best):
                far.append(number)
    return DecodingStats(
        max_len=reach.max_len,
        n_cut=len(cut),
        first_cut=min(cut, default=None),
        n_far=len(far),
        first_far=min(far, default=None),
    )


def best_choices(ranks: Sequence[Sequence[float]], n: int) -> list[list[int]]:
    """The n choices of one from each list with the largest sums, best first; each list is sorted, best first."""
    sums, steps = [0.0], []
    for row in ranks:
        # Choice i of what came before with choice j of this row is beaten by (i + 1) (j + 1) - 1 others.
        pairs = [
            (before + row[j], i, j) for i, before in enumerate(sums) for j in range(min(len(row), max(1, n // (i + 1))))
        ]
        pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
        sums = [total for total, _, _ in pairs[:n]]
        steps.append([(i, j) for _, i, j in pairs[:n]])
    choices = []
    for place in range(len(sums)):
        choice = []
        for step in reversed(steps):
            place, number = step[place]
            choice.append(number)
        choices.append(choice[::-1])
    return choices


def _alignment(plan: SegmentedText, chosen: Sequence[Hypothesis]) -> tuple[tuple[int, int], ...] | None:
    """For each token the source token that it looked at most; the end mark, which many look at, is left out."""
    links: list[tuple[int, int]] = []
    first_source = first_target = 0
    for piece, hypothesis in zip(plan.pieces, chosen, strict=True):
        if hypothesis.attention is None:
            return None
        for target, row in enumerate(hypothesis.attention[: len(hypothesis.ids)]):
            source = max(range(len(piece.ids)), key=lambda place, row=row: row[place])  # type: ignore[misc]
            links.append((first_source + source, first_target + target))
        first_source += len(piece.ids)
        first_target += len(hypothesis.ids)
    return tuple(links)


def _attention(chosen: Sequence[Hypothesis]) -> tuple[tuple[float, ...], ...] | None:
    if len(chosen) != 1 or chosen[0].attention is None:
        return None
    return tuple(tuple(row) for row in chosen[0].attention)
