"""The loader: its three-number state determines all later batches, for any number of workers and ranks."""

import dataclasses
import itertools
import json
import threading
import time

import numpy as np
import pytest
import torch

from heedful.data import Batch, Loader, LoaderState, PairDataset
from heedful.errors import UserError
from heedful.text import SPECIAL_IDS
from prepared_corpus import prepared, tokenizers

BATCH_TOKENS = 150


@pytest.fixture(scope="module", params=[False, True], ids=["ids", "sampled"])
def pairs(request, tmp_path_factory) -> PairDataset:
    shards = prepared(tmp_path_factory.mktemp("shards"), 60, keep_text=request.param)
    return PairDataset(shards, special_ids=SPECIAL_IDS, tokenizers=tokenizers(sample_alpha=0.1))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> PairDataset:
    return PairDataset(prepared(tmp_path_factory.mktemp("plain"), 60), special_ids=SPECIAL_IDS)


def make_loader(pairs: PairDataset, **options: object) -> Loader[Batch]:
    return Loader(pairs, **{"batch_tokens": BATCH_TOKENS, "seed": 3} | options)


def same(first: Batch, second: Batch) -> bool:
    return all(torch.equal(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(Batch))


def all_same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(map(same, first, second))


def indices(batches: list[Batch]) -> list[list[int]]:
    return [sorted(batch.indices.tolist()) for batch in batches]


@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_loader_restored_anywhere_in_three_epochs_yields_the_same_remaining_batches(pairs, n_workers):
    whole = make_loader(pairs, epochs=3)
    states, batches = [whole.state], []
    for batch in whole:
        batches.append(batch)
        states.append(whole.state)
    assert [state.epoch for state in states] == sorted(state.epoch for state in states)
    assert len({state.epoch for state in states}) == 4 and states[-1].position == 0
    for done, state in enumerate(states):
        restored = LoaderState(**json.loads(json.dumps(dataclasses.asdict(state))))
        rest = make_loader(pairs, epochs=3, state=restored, n_workers=n_workers)
        assert all_same(list(rest), batches[done:]), state
        assert rest.state == states[-1]


def test_workers_do_not_change_the_batches(pairs):
    inline = list(make_loader(pairs, epochs=2))
    for n_workers in (1, 2, 4):
        assert all_same(list(make_loader(pairs, epochs=2, n_workers=n_workers)), inline)


def test_each_epoch_has_every_example_once_in_another_order(pairs):
    for epoch in range(3):
        loader = make_loader(pairs, state=LoaderState(epoch=epoch, position=0, seed=3), epochs=epoch + 1)
        assert sorted(itertools.chain.from_iterable(indices(list(loader)))) == list(range(60))
    epochs = [indices(list(itertools.islice(make_loader(pairs, state=LoaderState(e, 0, 3)), 4))) for e in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_sampled_batches_stay_within_the_token_budget(pairs):
    """Sampled segmentations are longer than the best ones, by a random amount."""
    for batch in make_loader(pairs, epochs=5):
        assert batch.target_out.numel() <= BATCH_TOKENS
        assert batch.source.numel() <= 2 * BATCH_TOKENS * 1.2


def test_the_ids_are_those_of_the_corpus(pairs):
    pieces = tokenizers(sample_alpha=0.1)
    numbers = 0
    for batch in make_loader(pairs, epochs=1):
        for source, target, number in zip(batch.source.tolist(), batch.target_out.tolist(), batch.indices, strict=True):
            assert pieces.source.decode(source).startswith(f"{number} ")
            assert pieces.target.decode(target).endswith(f" {number}")
            numbers += 1
    assert numbers == 60


def test_sampling_differs_from_epoch_to_epoch_and_from_the_plain_segmentation(tmp_path):
    pieces = tokenizers(sample_alpha=0.1)
    pairs = PairDataset(prepared(tmp_path, 60, keep_text=True), special_ids=SPECIAL_IDS, tokenizers=pieces)
    segmentations: list[dict[int, list[int]]] = []
    for epoch in range(2):
        loader = make_loader(pairs, state=LoaderState(epoch, 0, 3), epochs=epoch + 1)
        rows = {}
        for batch in loader:
            for row, number in enumerate(batch.indices.tolist()):
                rows[number] = batch.target_out[row][batch.target_mask[row]].tolist()[:-1]
        segmentations.append(rows)
    texts = pairs.corpora.shards[0].target.texts(np.arange(60))
    plain = dict(enumerate(pieces.target.encode_batch(texts)))
    assert sum(segmentations[0][n] != segmentations[1][n] for n in range(60)) > 50
    assert sum(segmentations[0][n] != plain[n] for n in range(60)) > 50


@pytest.mark.parametrize("n_ranks", [2, 4, 7])
def test_ranks_share_each_step_without_changing_it(pairs, n_ranks):
    whole = list(make_loader(pairs, epochs=2))
    parts = [
        list(make_loader(pairs, epochs=2, rank=rank, n_ranks=n_ranks, n_workers=rank % 2)) for rank in range(n_ranks)
    ]
    assert {len(part) for part in parts} == {len(whole)}
    for step, batch in enumerate(whole):
        mine = [part[step] for part in parts]
        assert sorted(i for part in mine for i in part.indices.tolist()) == sorted(batch.indices.tolist())
        assert sum(part.n_target_tokens for part in mine) == batch.n_target_tokens
        ids = {int(i): batch.target_out[row][batch.target_mask[row]] for row, i in enumerate(batch.indices)}
        for part in mine:
            for row, i in enumerate(part.indices):
                assert torch.equal(part.target_out[row][part.target_mask[row]], ids[int(i)])


def test_changing_the_number_of_ranks_does_not_change_the_steps(pairs):
    whole = list(make_loader(pairs, epochs=2))
    done, state, members = 0, None, []
    for n_ranks, n_steps in ((1, 3), (2, 5), (1, None)):
        ranks = [make_loader(pairs, epochs=2, state=state, rank=rank, n_ranks=n_ranks) for rank in range(n_ranks)]
        steps = list(itertools.islice(zip(*ranks, strict=True), n_steps))
        members += [sorted(i for part in step for i in part.indices.tolist()) for step in steps]
        assert len({loader.state for loader in ranks}) == 1
        state, done = ranks[0].state, done + len(steps)
    assert members == indices(whole)


def test_a_step_with_fewer_rows_than_ranks_gives_the_last_ranks_empty_batches(plain):
    steps = list(zip(*[make_loader(plain, epochs=1, rank=rank, n_ranks=40) for rank in range(40)], strict=True))
    empty = [part for step in steps for part in step if not len(part)]
    assert empty
    assert all(part.source.shape == (0, 1) and part.n_target_tokens == 0 for part in empty)


def test_the_shuffle_is_not_replayed_from_epoch_0(plain):
    """transformers#8878, accelerate#4071: after a resume in epoch 2 the order of epoch 0 came again."""
    loader = make_loader(plain, state=LoaderState(epoch=2, position=1, seed=3))
    fresh = list(make_loader(plain, epochs=3))
    n_before = sum(len(list(make_loader(plain, state=LoaderState(e, 0, 3), epochs=e + 1))) for e in range(2))
    assert same(next(loader), fresh[n_before + 1])
    assert not same(next(make_loader(plain, state=LoaderState(2, 1, 3))), fresh[1])


def test_a_state_at_the_end_of_an_epoch_continues_with_the_next(plain):
    """verl#5725, fairseq#1275, mosaicml/streaming#700: no batch at all, and no error."""
    loader = make_loader(plain)
    for _ in range(loader.n_batches):
        next(loader)
    assert loader.state == LoaderState(epoch=1, position=0, seed=3)
    expected = next(loader)
    assert same(next(make_loader(plain, state=LoaderState(1, 0, 3))), expected)
    # The same position in its other form: all batches of epoch 0 are done.
    n_batches = make_loader(plain).n_batches
    other = make_loader(plain, state=LoaderState(epoch=0, position=n_batches, seed=3))
    assert other.state == LoaderState(1, 0, 3)
    assert same(next(other), expected)


def test_the_epoch_after_a_resumed_one_is_complete(plain):
    """allenai/OLMo#650: the start index was used again in the next epoch."""
    loader = make_loader(plain, state=LoaderState(epoch=0, position=3, seed=3), epochs=2)
    batches = list(loader)
    second = list(make_loader(plain, state=LoaderState(1, 0, 3), epochs=2))
    assert all_same(batches[-len(second) :], second)
    assert sorted(itertools.chain.from_iterable(indices(second))) == list(range(60))


class Seeds:
    """A dataset whose batches are the seeds that it receives."""

    def __init__(self, pairs: PairDataset) -> None:
        self.keys, self.sizes = pairs.keys, pairs.sizes
        self.source_lengths, self.target_lengths = pairs.source_lengths, pairs.target_lengths

    def batch(self, indices: np.ndarray, rows: np.ndarray, *, seed: int) -> int:
        return seed


def test_every_step_has_its_own_seed_which_all_ranks_share(plain):
    def seeds(**options: object) -> list[int]:
        return list(Loader(Seeds(plain), **{"batch_tokens": BATCH_TOKENS, "seed": 3, "epochs": 20} | options))

    assert len(set(seeds())) == len(seeds()) > 100
    assert seeds() == seeds(rank=1, n_ranks=2)
    assert not set(seeds()) & set(seeds(seed=4))


def test_the_state_counts_consumed_batches_not_those_made_ahead(pairs):
    loader = make_loader(pairs, n_workers=2)
    assert loader.state == LoaderState(0, 0, 3)
    for n in range(1, 4):
        next(loader)
        time.sleep(0.02)  # let the workers make batches ahead
        assert loader.state == LoaderState(0, n, 3)


def test_a_second_iterator_continues_instead_of_starting_again(plain):
    """PrimeIntellect-ai/prime-rl#3332: a new iterator began at the start, whatever the state was."""
    loader = make_loader(plain, n_workers=2)
    first = list(itertools.islice(iter(loader), 3))
    second = list(itertools.islice(iter(loader), 3))
    assert all_same(first + second, list(itertools.islice(make_loader(plain), 6)))


def test_a_failing_batch_is_not_skipped(plain, monkeypatch):
    loader = make_loader(plain)
    expected = list(itertools.islice(make_loader(plain), 2))
    assert same(next(loader), expected[0])
    with monkeypatch.context() as patch:
        patch.setattr(plain, "batch", lambda *_, **__: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            next(loader)
        assert loader.state == LoaderState(0, 1, 3)
    assert same(next(loader), expected[1])


def test_the_loader_ends_after_its_epochs(plain):
    loader = make_loader(plain, epochs=1)
    list(loader)
    assert loader.state == LoaderState(1, 0, 3)
    assert list(loader) == []
    assert list(make_loader(plain, epochs=1, state=loader.state)) == []


def test_an_unsuitable_state_is_refused(plain):
    with pytest.raises(UserError, match="seed 4"):
        make_loader(plain, state=LoaderState(0, 0, 4))
    with pytest.raises(UserError, match=r"cannot resume the data from .*10000.*batches"):
        make_loader(plain, state=LoaderState(0, 10_000, 3))
    for state in (LoaderState(0, -1, 3), LoaderState(-1, 0, 3), LoaderState(0, 0, -3)):
        with pytest.raises(UserError, match="must be at least 0"):
            make_loader(plain, state=state, seed=state.seed)


def test_the_fingerprint_changes_if_and_only_if_the_batches_change(plain, tmp_path):
    base = make_loader(plain).fingerprint
    assert make_loader(plain, rank=1, n_ranks=4, n_workers=2, state=LoaderState(1, 2, 3)).fingerprint == base
    other = PairDataset(prepared(tmp_path, 60, seed=9), special_ids=SPECIAL_IDS)
    changed = [
        make_loader(other),
        make_loader(plain, batch_tokens=151),
        make_loader(plain, source_tokens=500),
        make_loader(plain, max_len=100),
        make_loader(plain, weights=[2.0]),
    ]
    assert len({base, *(loader.fingerprint for loader in changed)}) == 6


def test_the_version_of_the_plan_changes_only_the_fingerprints_of_plans_that_differ(plain, monkeypatch):
    """Version 2 differs from version 1 only where fractions of examples add up over the epochs."""
    weights = {"whole": [1.0], "half": [0.5], "tenths": [0.3], "thirds": [1 / 3], "parts": [0.51]}
    before = {name: make_loader(plain, weights=one).fingerprint for name, one in weights.items()}
    monkeypatch.setattr("heedful.data.loader.PLAN_VERSION", 3)
    after = {name: make_loader(plain, weights=one).fingerprint for name, one in weights.items()}
    assert [name for name in weights if before[name] != after[name]] == ["parts"]


def test_examples_that_are_too_long_are_listed(plain):
    loader = make_loader(plain, max_len=20, epochs=1)
    long = np.flatnonzero((plain.source_lengths > 20) | (plain.target_lengths > 20))
    assert 0 < len(long) < 60
    assert loader.left_out.tolist() == long.tolist()
    assert sorted(itertools.chain.from_iterable(indices(list(loader)))) == sorted(set(range(60)) - set(long.tolist()))


def test_a_loader_without_any_batch_is_refused(plain):
    with pytest.raises(UserError, match=r"60 of 60 examples are longer than data\.batch_tokens = 2"):
        make_loader(plain, batch_tokens=2)
    for weight in (0.0, 0.01):  # 0.6 of an example is none in the first epoch
        with pytest.raises(UserError, match=rf"with the weights \[{weight}\], epoch 0 has none of the 60 examples"):
            make_loader(plain, weights=[weight])


def test_weighted_corpora_resume_exactly(tmp_path):
    pairs = PairDataset([prepared(tmp_path / "a", 40), prepared(tmp_path / "b", 30, seed=5)], special_ids=SPECIAL_IDS)
    whole = make_loader(pairs, weights=[0.5, 2.0], epochs=4)
    states, batches = [whole.state], []
    for batch in whole:
        batches.append(batch)
        states.append(whole.state)
    counts = np.bincount([i for batch in batches for i in batch.indices.tolist()], minlength=70)
    assert set(counts[:40]) == {2}  # four epochs at half weight
    assert set(counts[40:]) == {8}  # four epochs at double weight
    for done in range(0, len(states), 5):
        rest = make_loader(pairs, weights=[0.5, 2.0], epochs=4, state=states[done], n_workers=2)
        assert all_same(list(rest), batches[done:])
    places = [pairs.corpora.locate(i) for i in range(70)]
    texts = [pairs.corpora.shards[corpus].source.ids(np.array([number]))[0] for corpus, number in places]
    for batch in batches[:5]:
        for row, i in enumerate(batch.indices.tolist()):
            assert batch.source[row][batch.source_mask[row]].tolist()[:-1] == texts[i].tolist()


def test_workers_end_with_the_loader(plain):
    loader = make_loader(plain, n_workers=2)
    next(loader)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")]
    del loader
    end = time.monotonic() + 10
    while any(thread.name.startswith("loader") for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_trial_batches_leave_the_loader_as_it_is(plain: PairDataset) -> None:
    loader, untouched = make_loader(plain), make_loader(plain)
    longest, spaced = loader.trial_batches()
    assert len(spaced) == min(8, loader.n_batches)
    rows = max(int(batch.target_mask.sum(dim=1).max()) for batch in make_loader(plain, epochs=1))
    assert int(longest.target_mask.sum(dim=1).max()) == rows
    assert loader.state == untouched.state
    assert same(next(loader), next(untouched))
