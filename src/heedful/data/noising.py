"""Noise for models that learn to restore text: BERT's masking, T5's span corruption, BART's denoising.

Each function takes ids and a generator and returns (input, target); equal ids and equal states of the generator give
equal results. The ids in `special_ids`, and the ids in `protected`, are never hidden and never drawn as random
replacements. No BOS or EOS is added: `heedful.data.collate` does that.

BERT: Devlin et al. 2019, arXiv 1810.04805, section 3.1. T5: Raffel et al. 2020, arXiv 1910.10683, section 3.1.4.
BART: Lewis et al. 2020, arXiv 1910.13461, section 2.2.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.data.seeding import IntArray
from heedful.errors import UserError
from heedful.text import SpecialIds

BoolArray = npt.NDArray[np.bool_]


class Noised(NamedTuple):
    """What a model reads, and what it is to predict."""

    input: IntArray
    target: IntArray


def mask_tokens(
    ids: IntArray,
    generator: np.random.Generator,
    *,
    special_ids: SpecialIds,
    mask_id: int,
    vocab_size: int,
    rate: float = 0.15,
    starts: BoolArray | None = None,
    protected: Collection[int] = (),
) -> Noised:
    """BERT's masking: of the chosen ids, 80 % become the mask, 10 % a random id, and 10 % stay as they are.

    The target has the original id where one was chosen, and padding elsewhere, which is left out of the loss. With
    `starts`, which is True where a word begins, whole words are chosen.
    """
    ids = np.asarray(ids)
    fixed = _fixed(special_ids, protected, mask_id)
    chosen = _choose(~np.isin(ids, fixed), generator, rate=rate, at_least=1, starts=starts)
    noised, target = ids.copy(), np.full_like(ids, special_ids.pad_id)
    target[chosen] = ids[chosen]
    dice = generator.random(len(ids))
    noised[chosen & (dice < 0.8)] = mask_id
    swapped = chosen & (dice >= 0.9)
    noised[swapped] = _draw(int(swapped.sum()), generator, vocab_size=vocab_size, fixed=fixed)
    return Noised(noised, target)


def corrupt_spans(
    ids: IntArray,
    generator: np.random.Generator,
    *,
    special_ids: SpecialIds,
    sentinels: Sequence[int],
    rate: float = 0.15,
    mean_span: float = 3.0,
    protected: Collection[int] = (),
) -> Noised:
    """T5's span corruption: `a b c d e f g` becomes the input `a b <s0> e <s1>` and the target `<s0> c d <s1> f g`.

    The length decides how many ids and spans are removed; the places of the spans are random, every division equally
    likely, except that the text never begins with a span.
    """
    _check(rate=rate, mean_span=mean_span)
    ids = np.asarray(ids)
    ordinary = np.flatnonzero(~np.isin(ids, _fixed(special_ids, protected, *sentinels)))
    hidden = np.zeros(len(ids), bool)
    if len(ordinary) >= 2:
        n_hidden = int(np.clip(round(len(ordinary) * rate), 1, len(ordinary) - 1))
        n_spans = int(np.clip(round(n_hidden / mean_span), 1, min(n_hidden, len(ordinary) - n_hidden)))
        kept_lengths = _divide(len(ordinary) - n_hidden, n_spans, generator)
        hidden_lengths = _divide(n_hidden, n_spans, generator)
        runs = np.stack([kept_lengths, hidden_lengths], axis=1).ravel()  # kept, hidden, kept, hidden, ...
        hidden[ordinary] = np.repeat(np.arange(2 * n_spans) % 2 == 1, runs)
    begins = hidden & ~np.concatenate([[False], hidden[:-1]])
    n_spans = int(begins.sum())  # may be more than planned: a protected id inside a span splits it
    if n_spans > len(sentinels):
        raise UserError(
            f"{len(ids)} ids need {n_spans} sentinels, the vocabulary has {len(sentinels)}: use shorter rows"
        )
    # In the input, a sentinel replaces each masked span; in the target, it precedes the span.
    marks = np.asarray(sentinels[:n_spans], ids.dtype)
    noised = ids.copy()
    noised[begins] = marks
    at = np.flatnonzero(begins[hidden])
    return Noised(noised[~hidden | begins], np.insert(ids[hidden], at, marks))


def infill(
    ids: IntArray,
    generator: np.random.Generator,
    *,
    special_ids: SpecialIds,
    mask_id: int,
    rate: float = 0.3,
    mean_span: float = 3.0,
    protected: Collection[int] = (),
) -> Noised:
    """BART's text infilling: each span, of Poisson length, becomes one mask; a span of length 0 inserts a mask.

    The text never becomes longer: no more masks are inserted than the other spans have removed ids.
    """
    _check(rate=rate, mean_span=mean_span)
    ids = np.asarray(ids)
    ordinary = np.flatnonzero(~np.isin(ids, _fixed(special_ids, protected, mask_id)))
    n_hidden = round(len(ordinary) * rate)
    if not n_hidden:
        return Noised(ids.copy(), ids.copy())
    spans = _poisson_spans(n_hidden, mean_span, generator)
    n_kept = len(ordinary) - n_hidden
    # A span lies before a kept id or after the last one. While there are enough of these places, each is used once, so
    # that spans do not touch and become one.
    spans = spans[spans > 0] if len(spans) > n_kept + 1 else spans
    places = generator.choice(n_kept + 1, size=len(spans), replace=len(spans) > n_kept + 1)
    at = np.sort(places) + np.concatenate([[0], np.cumsum(spans)[:-1]])  # before which ordinary id each span begins
    hidden = np.zeros(len(ids), bool)
    hidden[ordinary[np.repeat(at, spans) + _ranges(spans)]] = True
    begins = hidden & ~np.concatenate([[False], hidden[:-1]])
    noised = np.where(hidden, mask_id, ids)
    empty = np.append(ordinary, ordinary[-1] + 1)[at[spans == 0]]
    keep = ~hidden | begins
    room = np.count_nonzero(~keep)  # a text that became longer might be too long for the model
    empty = empty if len(empty) <= room else generator.choice(empty, size=room, replace=False)
    return Noised(np.insert(noised[keep], np.cumsum(np.append(0, keep))[empty], mask_id), ids.copy())


def permute_sentences(ids: IntArray, generator: np.random.Generator, *, ends: BoolArray) -> Noised:
    """BART's sentence permutation; `ends` is True at the last id of each sentence."""
    ids = np.asarray(ids)
    sentences = np.split(ids, np.flatnonzero(ends[:-1]) + 1)
    order = generator.permutation(len(sentences))
    return Noised(np.concatenate([sentences[i] for i in order]), ids.copy())


def _check(*, rate: float, mean_span: float = 1.0) -> None:
    if not 0 <= rate <= 1:
        raise UserError(f"the rate of noise is {rate}: expected a share from 0 to 1, for example 0.15")
    if not mean_span > 0:
        raise UserError(f"the mean length of masked spans is {mean_span}: expected a number above 0, for example 3")


def _fixed(special_ids: SpecialIds, protected: Collection[int], *more: int) -> IntArray:
    """List the ids that noise must not touch, sorted."""
    return np.unique([*special_ids.all_ids, *protected, *more])


def _choose(
    allowed: BoolArray,
    generator: np.random.Generator,
    *,
    rate: float,
    at_least: int = 0,
    starts: BoolArray | None = None,
) -> BoolArray:
    """Choose round(rate x allowed) of the allowed places, but `at_least` that many.

    With `starts`, choose whole words until there are enough.
    """
    _check(rate=rate)
    words = np.arange(len(allowed)) if starts is None else np.cumsum(starts)
    words = np.where(allowed, words, -1)
    numbers, sizes = np.unique(words[allowed], return_counts=True)
    order = generator.permutation(len(numbers))
    n_needed = max(at_least, round(rate * np.count_nonzero(allowed)))
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen: BoolArray = np.isin(words, numbers[order[before < n_needed]])
    return chosen


def _draw(n: int, generator: np.random.Generator, *, vocab_size: int, fixed: IntArray) -> IntArray:
    """Draw n ids that are not in `fixed`, each equally likely."""
    fixed = fixed[fixed < vocab_size]
    drawn = generator.integers(vocab_size - len(fixed), size=n)
    for excluded in fixed:  # ascending: step over each excluded id in turn
        drawn += drawn >= excluded
    return drawn


def _divide(total: int, n_parts: int, generator: np.random.Generator) -> IntArray:
    """Divide `total` into n_parts whole numbers of at least 1, every division equally likely."""
    cuts = np.sort(generator.choice(total - 1, size=n_parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


def _poisson_spans(total: int, mean: float, generator: np.random.Generator) -> IntArray:
    """Draw Poisson lengths, some of them zero, that add up to `total`; the last one is cut to fit."""
    spans = generator.poisson(mean, size=total)
    while spans.sum() < total:
        spans = np.append(spans, generator.poisson(mean, size=total))
    last = int(np.argmax(np.cumsum(spans) >= total))
    spans = spans[: last + 1]
    spans[last] -= spans.sum() - total
    return spans


def _ranges(lengths: IntArray) -> IntArray:
    """Concatenate range(length) for each length: [3, 0, 2] gives [0, 1, 2, 0, 1]."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
