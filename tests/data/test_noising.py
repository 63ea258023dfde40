"""Noise for masked, span and denoising models: rates, exact restoration, protected ids."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.noising import (
    Noised,
    corrupt_spans,
    infill,
    mask_tokens,
    permute_sentences,
)
from heedful.errors import UserError
from heedful.text import SPECIAL_IDS, SpecialIds

VOCAB, MASK = 200, 4
SENTINELS = list(range(100, 200))
SPECIALS = [SPECIAL_IDS.pad_id, SPECIAL_IDS.unk_id, SPECIAL_IDS.bos_id, SPECIAL_IDS.eos_id]

ordinary = st.integers(5, 99)
texts = st.lists(ordinary, max_size=60).map(lambda ids: np.array(ids, np.int64))
mixed = st.lists(st.one_of(ordinary, st.sampled_from(SPECIALS)), max_size=60).map(lambda ids: np.array(ids, np.int64))
seeds = st.integers(0, 10_000)


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def masked(ids: np.ndarray, seed: int, **options: object) -> Noised:
    return mask_tokens(ids, random(seed), special_ids=SPECIAL_IDS, mask_id=MASK, vocab_size=VOCAB, **options)


NOISES = {
    "mask": lambda ids, r: mask_tokens(ids, r, special_ids=SPECIAL_IDS, mask_id=MASK, vocab_size=VOCAB),
    "spans": lambda ids, r: corrupt_spans(ids, r, special_ids=SPECIAL_IDS, sentinels=SENTINELS),
    "infill": lambda ids, r: infill(ids, r, special_ids=SPECIAL_IDS, mask_id=MASK),
    "permute": lambda ids, r: permute_sentences(ids, r, ends=np.arange(len(ids)) % 7 == 6),
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@given(ids=mixed, seed=seeds)
def test_noise_depends_on_ids_and_generator_alone_and_does_not_change_its_input(noise, ids, seed):
    before = ids.copy()
    first, second = noise(ids, random(seed)), noise(ids, random(seed))
    assert first.input.tolist() == second.input.tolist()
    assert first.target.tolist() == second.target.tolist()
    assert ids.tolist() == before.tolist()


@pytest.mark.parametrize("noise", [NOISES[name] for name in ("mask", "spans", "infill")])
@given(ids=mixed, seed=seeds)
def test_special_ids_are_never_removed(noise, ids, seed):
    kept = [number for number in noise(ids, random(seed)).input.tolist() if number in SPECIALS]
    assert Counter(kept) == Counter(number for number in ids.tolist() if number in SPECIALS)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_another_generator_gives_other_noise(noise):
    ids = np.arange(5, 95)
    assert len({tuple(noise(ids, random(seed)).input.tolist()) for seed in range(5)}) > 1


@given(mixed, seeds)
def test_the_target_of_masking_restores_the_text(ids, seed):
    noised, target = masked(ids, seed)
    assert np.where(target != SPECIAL_IDS.pad_id, target, noised).tolist() == ids.tolist()
    n_ordinary = int((~np.isin(ids, SPECIALS)).sum())
    expected = max(1, round(0.15 * n_ordinary)) if n_ordinary else 0
    assert np.count_nonzero(target) == expected


def test_of_the_chosen_ids_80_percent_are_masked_10_random_10_kept():
    ids = np.tile(np.arange(5, 95), 1000)
    noised, target = masked(ids, 1)
    chosen = target != SPECIAL_IDS.pad_id
    assert chosen.sum() == round(0.15 * len(ids))
    is_mask = noised[chosen] == MASK
    is_same = noised[chosen] == ids[chosen]
    swapped = noised[chosen][~is_mask & ~is_same]
    assert abs(is_mask.mean() - 0.8) < 0.01
    assert abs(is_same.mean() - 0.1) < 0.01  # and one random id in two hundred that happens to be the same
    assert abs(len(swapped) / chosen.sum() - 0.1) < 0.01
    assert not np.isin(swapped, [*SPECIALS, MASK]).any()
    assert set(range(5, VOCAB)) == set(swapped.tolist())  # every ordinary id, the first and the last among them
    assert (noised[~chosen] == ids[~chosen]).all()


@given(texts, seeds, st.integers(1, 4))
def test_with_starts_whole_words_are_chosen(ids, seed, word):
    starts = np.arange(len(ids)) % word == 0
    _, target = masked(ids, seed, starts=starts)
    chosen = (target != SPECIAL_IDS.pad_id).tolist()
    words = [chosen[begin : begin + word] for begin in range(0, len(ids), word)]
    assert all(len(set(one)) == 1 for one in words)
    expected = max(1, round(0.15 * len(ids))) if len(ids) else 0
    assert expected <= sum(chosen) < expected + word


def test_protected_ids_are_neither_masked_nor_drawn():
    ids = np.tile(np.arange(5, 95), 200)
    protected = [50, 60, 199]
    noised, target = masked(ids, 3, rate=0.5, protected=protected)
    assert not np.isin(target, protected).any()
    assert np.isin(noised, protected).sum() == np.isin(ids, protected).sum()


def test_the_special_ids_of_a_converted_model_are_protected_and_no_others():
    """T5 has <pad> 0, </s> 1, <unk> 2, and "▁" with id 3, which is ordinary text; it has no BOS."""
    t5 = SpecialIds(pad_id=0, unk_id=2, bos_id=0, eos_id=1)
    ids = np.tile(np.array([3, 1, 2, 50, 3, 60]), 50)
    noised, target = mask_tokens(ids, random(0), special_ids=t5, mask_id=MASK, vocab_size=VOCAB, rate=0.9)
    assert {3, 50, 60} <= set(target.tolist()) and not {1, 2} & set(target.tolist())
    assert np.count_nonzero(noised == 3) < np.count_nonzero(ids == 3)
    for noise, options in ((corrupt_spans, {"sentinels": SENTINELS}), (infill, {"mask_id": MASK})):
        noised = noise(ids, random(0), special_ids=t5, **options).input
        assert np.count_nonzero(noised == 3) < np.count_nonzero(ids == 3)
        assert Counter(noised[np.isin(noised, [1, 2])].tolist()) == {1: 50, 2: 50}


def restore_spans(noised: np.ndarray, target: np.ndarray) -> list[int]:
    """Replace each sentinel of the input by the ids that follow it in the target."""
    spans: dict[int, list[int]] = {}
    for number in target.tolist():
        if number in SENTINELS:
            spans[number] = []
            current = spans[number]
        else:
            current.append(number)
    return [number for kept in noised.tolist() for number in spans.get(kept, [kept])]


@given(mixed, seeds, st.floats(0.05, 0.6), st.floats(1, 6))
def test_the_target_of_span_corruption_restores_the_text(ids, seed, rate, mean_span):
    noised, target = corrupt_spans(
        ids, random(seed), special_ids=SPECIAL_IDS, sentinels=SENTINELS, rate=rate, mean_span=mean_span
    )
    assert restore_spans(noised, target) == ids.tolist()
    marks = [number for number in noised.tolist() if number in SENTINELS]
    assert marks == SENTINELS[: len(marks)]  # in order, in the input and in the target
    assert [number for number in target.tolist() if number in SENTINELS] == marks


def test_span_corruption_removes_15_percent_in_spans_of_three():
    ids = np.tile(np.arange(5, 95), 10)
    hidden, lengths = [], []
    for seed in range(100):
        noised, target = corrupt_spans(ids, random(seed), special_ids=SPECIAL_IDS, sentinels=SENTINELS)
        marks = np.flatnonzero(np.isin(target, SENTINELS))
        hidden.append(len(target) - len(marks))
        lengths += (np.diff(marks, append=len(target)) - 1).tolist()
        assert noised[0] not in SENTINELS
    assert set(hidden) == {round(0.15 * len(ids))}
    assert np.mean(lengths) == 3.0
    assert min(lengths) == 1 and max(lengths) > 6


def test_too_few_sentinels_are_a_user_error():
    with pytest.raises(UserError, match="5 sentinels, the vocabulary has 2"):
        corrupt_spans(np.arange(5, 105), random(0), special_ids=SPECIAL_IDS, sentinels=[150, 151])


def is_subsequence(short: list[int], long: list[int]) -> bool:
    rest = iter(long)
    return all(number in rest for number in short)


@given(texts, seeds)
def test_infilling_removes_exactly_its_rate_and_keeps_the_order(ids, seed):
    noised, target = infill(ids, random(seed), special_ids=SPECIAL_IDS, mask_id=MASK)
    kept = noised[noised != MASK].tolist()
    assert target.tolist() == ids.tolist()
    assert is_subsequence(kept, ids.tolist())
    assert len(kept) == len(ids) - round(0.3 * len(ids))


@given(st.integers(0, 60), seeds, st.floats(0.05, 1.0), st.floats(0.5, 6))
def test_infilling_never_makes_a_text_longer(n, seed, rate, mean_span):
    """The text may already fill all positions of a model: masks are inserted only into the room that spans leave."""
    ids = random(seed).choice([*SPECIALS, *range(5, 30)], size=n)
    noised, _ = infill(ids, random(seed), special_ids=SPECIAL_IDS, mask_id=MASK, rate=rate, mean_span=mean_span)
    n_ordinary = int((~np.isin(ids, SPECIALS)).sum())
    assert np.count_nonzero(noised != MASK) == len(ids) - round(rate * n_ordinary)
    assert len(noised) <= len(ids)


def test_inserted_masks_stay_while_there_is_room():
    lengths = [
        len(infill(np.arange(5, 405), random(seed), special_ids=SPECIAL_IDS, mask_id=MASK, mean_span=1.0).input)
        for seed in range(50)
    ]
    assert max(lengths) == 400 and np.mean(lengths) > 390


def test_infilled_spans_are_poisson_with_one_mask_each():
    ids = np.arange(5, 4005)
    hidden, gaps, inserted = [], [], 0
    for seed in range(20):
        noised, _ = infill(ids, random(seed), special_ids=SPECIAL_IDS, mask_id=MASK)
        place = 0
        for number in noised:
            if number == MASK:
                continue
            hidden.append(number - 5 - place)
            place = number - 4
        masks = noised == MASK
        assert not (masks[1:] & masks[:-1]).any()  # a span is one mask, and two spans never touch
        gaps.append(masks.sum())
        inserted += masks.sum() - np.count_nonzero(np.diff(np.flatnonzero(np.isin(ids, noised))) > 1)
    spans = np.array([length for length in hidden if length])
    # Poisson(3) without its zeros has the mean 3 / (1 - e^-3); with them, one span in twenty is a mask put in between.
    assert abs(spans.mean() - 3 / (1 - np.exp(-3))) < 0.1
    assert abs(inserted / sum(gaps) - np.exp(-3)) < 0.02


@given(st.lists(st.booleans(), min_size=1, max_size=40), seeds)
def test_permuted_sentences_are_the_same_sentences(flags, seed):
    ends = np.array([*flags[:-1], True])
    ids = np.arange(len(ends)) + 5
    noised, target = permute_sentences(ids, random(seed), ends=ends)
    sentences = np.split(ids, np.flatnonzero(ends) + 1)
    again = np.split(noised, np.flatnonzero(ends[noised - 5]) + 1)
    assert {tuple(one) for one in again} == {tuple(one) for one in sentences}
    assert len(noised) == len(target) == len(ids)


@pytest.mark.parametrize("options", [{"rate": 1.5}, {"rate": -0.1}, {"mean_span": 0.0}, {"mean_span": float("nan")}])
def test_impossible_settings_are_refused(options):
    for noise, more in ((corrupt_spans, {"sentinels": SENTINELS}), (infill, {"mask_id": MASK})):
        with pytest.raises(UserError, match="expected"):
            noise(np.arange(5, 50), random(0), special_ids=SPECIAL_IDS, **more, **options)
