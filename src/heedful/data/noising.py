"""Text made harder, for models that learn to restore it: `(ids, generator) -> (input, target)`, nothing else.

All are pure: the same ids and the same state of the generator give the same result. Ids in `protected` (always with the
special ids and the mask) are never hidden, deleted or drawn. No marks are added: `collate` adds them, so a target that
ends with a span ends with the end mark in the batch.

BERT: Devlin et al. 2019, arXiv 1810.04805, section 3.1. T5: Raffel et al. 2020, arXiv 1910.10683, section 3.1.4.
BART: Lewis et al. 2020, arXiv 1910.13461, section 2.2.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.data.seeding import IntArray
from heedful.errors import UserError
from heedful.text import SPECIAL

BoolArray = npt.NDArray[np.bool_]
_SPECIAL_IDS = (SPECIAL.pad, SPECIAL.unk, SPECIAL.start, SPECIAL.end)


class Noised(NamedTuple):
    input: IntArray
    target: IntArray


def mask_tokens(
    ids: IntArray,
    generator: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
    rate: float = 0.15,
    starts: BoolArray | None = None,
    protected: Collection[int] = (),
) -> Noised:
    """BERT's masking: of the chosen ids 80 % become the mask, 10 % a random id, 10 % stay.

    The target has the original id where one was chosen and pad everywhere else: pad is what a loss leaves out anyway,
    and no ordinary id. `starts` is True where a word begins; then whole words are chosen.
    """
    ids = np.asarray(ids)
    fixed = _fixed(protected, mask_id)
    chosen = _choose(~np.isin(ids, fixed), generator, rate=rate, at_least=1, starts=starts)
    noised, target = ids.copy(), np.full_like(ids, SPECIAL.pad)
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
    sentinels: Sequence[int],
    rate: float = 0.15,
    mean_span: float = 3.0,
    protected: Collection[int] = (),
) -> Noised:
    """T5's span corruption: `a b <s0> e <s1>` and `<s0> c d <s1> f g`, the first span after the first kept id.

    The number of hidden ids and of spans is fixed by the length; where they lie is random, every division alike.
    """
    _check(rate=rate, mean_span=mean_span)
    ids = np.asarray(ids)
    ordinary = np.flatnonzero(~np.isin(ids, _fixed(protected, *sentinels)))
    hidden = np.zeros(len(ids), bool)
    if len(ordinary) >= 2:
        n_hidden = int(np.clip(round(len(ordinary) * rate), 1, len(ordinary) - 1))
        n_spans = int(np.clip(round(n_hidden / mean_span), 1, min(n_hidden, len(ordinary) - n_hidden)))
        kept = _divide(len(ordinary) - n_hidden, n_spans, generator)
        lost = _divide(n_hidden, n_spans, generator)
        turns = np.stack([kept, lost], axis=1).ravel()  # kept, lost, kept, lost, ...
        hidden[ordinary] = np.repeat(np.arange(2 * n_spans) % 2 == 1, turns)
    begins = hidden & ~np.concatenate([[False], hidden[:-1]])
    n_spans = int(begins.sum())  # a protected id inside a span makes two of it
    if n_spans > len(sentinels):
        raise UserError(
            f"{len(ids)} ids need {n_spans} sentinels, the vocabulary has {len(sentinels)}: use shorter rows"
        )
    # Each hidden span leaves its sentinel behind in the input, and follows it in the target.
    marks = np.asarray(sentinels[:n_spans], ids.dtype)
    noised = ids.copy()
    noised[begins] = marks
    at = np.flatnonzero(begins[hidden])
    return Noised(noised[~hidden | begins], np.insert(ids[hidden], at, marks))


def infill(
    ids: IntArray,
    generator: np.random.Generator,
    *,
    mask_id: int,
    rate: float = 0.3,
    mean_span: float = 3.0,
    protected: Collection[int] = (),
) -> Noised:
    """BART's text infilling: spans of Poisson length become one mask each; a span of length 0 is a mask in between.

    No text becomes longer: of masks in between there are only as many as the others have left room for.
    """
    _check(rate=rate, mean_span=mean_span)
    ids = np.asarray(ids)
    ordinary = np.flatnonzero(~np.isin(ids, _fixed(protected, mask_id)))
    n_hidden = round(len(ordinary) * rate)
    if not n_hidden:
        return Noised(ids.copy(), ids.copy())
    spans = _poisson_spans(n_hidden, mean_span, generator)
    n_kept = len(ordinary) - n_hidden
    # A place for a span is before a kept id or after the last; different places while there are enough, so that spans
    # do not touch and become one.
    spans = spans[spans > 0] if len(spans) > n_kept + 1 else spans
    places = generator.choice(n_kept + 1, size=len(spans), replace=len(spans) > n_kept + 1)
    at = np.sort(places) + np.concatenate([[0], np.cumsum(spans)[:-1]])  # before which ordinary id each span begins
    hidden = np.zeros(len(ids), bool)
    hidden[ordinary[np.repeat(at, spans) + _ramps(spans)]] = True
    begins = hidden & ~np.concatenate([[False], hidden[:-1]])
    noised = np.where(hidden, mask_id, ids)
    empty = np.append(ordinary, ordinary[-1] + 1)[at[spans == 0]]
    keep = ~hidden | begins
    room = np.count_nonzero(~keep)  # a longer text than the whole one may be too long for the model
    empty = empty if len(empty) <= room else generator.choice(empty, size=room, replace=False)
    return Noised(np.insert(noised[keep], np.cumsum(np.append(0, keep))[empty], mask_id), ids.copy())


def delete_tokens(
    ids: IntArray, generator: np.random.Generator, *, rate: float = 0.15, protected: Collection[int] = ()
) -> Noised:
    """BART's token deletion: some ids are missing, and nothing says where."""
    ids = np.asarray(ids)
    chosen = _choose(~np.isin(ids, _fixed(protected)), generator, rate=rate)
    return Noised(ids[~chosen], ids.copy())


def permute_sentences(ids: IntArray, generator: np.random.Generator, *, ends: BoolArray) -> Noised:
    """BART's sentence permutation; `ends` is True at the last id of each sentence."""
    ids = np.asarray(ids)
    sentences = np.split(ids, np.flatnonzero(ends[:-1]) + 1)
    order = generator.permutation(len(sentences))
    return Noised(np.concatenate([sentences[i] for i in order]), ids.copy())


def rotate(ids: IntArray, generator: np.random.Generator) -> Noised:
    """BART's document rotation: the text begins at a random id; the model has to find the true beginning."""
    ids = np.asarray(ids)
    return Noised(np.roll(ids, -int(generator.integers(max(1, len(ids))))), ids.copy())


def noise_like_bart(
    ids: IntArray, generator: np.random.Generator, *, mask_id: int, ends: BoolArray, protected: Collection[int] = ()
) -> Noised:
    """What BART was trained with in the end: all sentences permuted, then 30 % of the ids infilled."""
    permuted, target = permute_sentences(ids, generator, ends=ends)
    return Noised(infill(permuted, generator, mask_id=mask_id, protected=protected).input, target)


def _check(*, rate: float, mean_span: float = 1.0) -> None:
    if not 0 <= rate <= 1:
        raise UserError(f"the rate of noise is {rate}: expected a share from 0 to 1, for example 0.15")
    if not mean_span > 0:
        raise UserError(f"the mean length of hidden spans is {mean_span}: expected a number above 0, for example 3")


def _fixed(protected: Collection[int], *more: int) -> IntArray:
    return np.unique([*_SPECIAL_IDS, *protected, *more])


def _choose(
    allowed: BoolArray,
    generator: np.random.Generator,
    *,
    rate: float,
    at_least: int = 0,
    starts: BoolArray | None = None,
) -> BoolArray:
    """round(rate x allowed) of the allowed places, `at_least` so many; with `starts` whole words until enough."""
    _check(rate=rate)
    words = np.arange(len(allowed)) if starts is None else np.cumsum(starts)
    words = np.where(allowed, words, -1)
    names, sizes = np.unique(words[allowed], return_counts=True)
    order = generator.permutation(len(names))
    wanted = max(at_least, round(rate * np.count_nonzero(allowed)))
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen: BoolArray = np.isin(words, names[order[before < wanted]])
    return chosen


def _draw(n: int, generator: np.random.Generator, *, vocab_size: int, fixed: IntArray) -> IntArray:
    """n ordinary ids, each as likely as any other."""
    fixed = fixed[fixed < vocab_size]
    drawn = generator.integers(vocab_size - len(fixed), size=n)
    for barred in fixed:  # ascending: step over each barred id in turn
        drawn += drawn >= barred
    return drawn


def _divide(total: int, n_parts: int, generator: np.random.Generator) -> IntArray:
    """`total` in n_parts whole numbers of at least 1, every division as likely as any other."""
    cuts = np.sort(generator.choice(total - 1, size=n_parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


def _poisson_spans(total: int, mean: float, generator: np.random.Generator) -> IntArray:
    """Poisson lengths, zeros among them, that add up to `total`: the last is cut short."""
    spans = generator.poisson(mean, size=total)
    while spans.sum() < total:
        spans = np.append(spans, generator.poisson(mean, size=total))
    last = int(np.argmax(np.cumsum(spans) >= total))
    spans = spans[: last + 1]
    spans[last] -= spans.sum() - total
    return spans


def _ramps(lengths: IntArray) -> IntArray:
    """0, 1, 2 for a 3, 0, 1 for a 2, nothing for a 0, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
