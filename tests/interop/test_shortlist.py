"""A shortlist has the translations of the tokens of a text, and a search with it generates nothing else."""

from dataclasses import replace

import pytest
import torch

from ct2_models import convert_here, make_model, some_requests
from heedful.decoding.engines.ctranslate2_engine import CTranslate2Engine
from heedful.decoding.engines.ctranslate2_tuning import Speed
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError
from heedful.interop.ctranslate2.shortlist import Shortlist, has_shortlist, learn_shortlist, write_shortlist
from heedful.text import SPECIAL_IDS


def corpus(n: int = 400) -> list[tuple[list[int], list[int]]]:
    """Pairs in which token s becomes s + 30, in another order; every target also has a 5 without a counterpart."""
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for _ in range(n):
        source = torch.randint(10, 30, (4,), generator=generator)
        target = source[torch.randperm(4, generator=generator)] + 30
        pairs.append((source.tolist(), [5, *target.tolist()]))
    return pairs


def test_translations_are_learned_from_whole_sentences():
    found = learn_shortlist(corpus(), target_vocab_size=60, joint=False, n_always=1, n_candidates=1, n_rounds=5)
    assert found.always == [5]
    assert found.candidates == {number: [number + 30] for number in range(10, 30)}


def test_with_a_joint_vocabulary_a_token_may_be_copied():
    found = learn_shortlist(corpus(), target_vocab_size=60, joint=True, n_candidates=1, n_rounds=5)
    assert found.candidates[17] == [17, 47]


def test_rare_candidates_are_left_out():
    found = learn_shortlist(corpus(), target_vocab_size=60, joint=False, n_candidates=20, least=0.3, n_rounds=5)
    assert all(ids == [number + 30] for number, ids in found.candidates.items())


def test_without_pairs_there_is_nothing_to_learn():
    with pytest.raises(UserError, match="no pair"):
        learn_shortlist([([], [5])], target_vocab_size=60, joint=False)


def test_a_search_generates_only_listed_tokens(tmp_path):
    converted = convert_here(make_model(), tmp_path / "ct2")
    assert not has_shortlist(converted)
    with pytest.raises(UserError, match="heedful shortlist"):
        CTranslate2Engine(converted, speed=Speed()).search(some_requests(1), SearchSettings(shortlist=True))
    listed = Shortlist([7, 8, 9, 10], {number: [number] for number in range(20, 60)})
    write_shortlist(converted, listed)
    engine = CTranslate2Engine(converted, speed=Speed())
    for request in some_requests(20, longest=8):
        allowed = {*listed.always, *SPECIAL_IDS.__dict__.values(), *(n for n in request.source if n >= 20)}
        for beam in (1, 2):
            ((best,),) = engine.search([request], SearchSettings(beam=beam, max_len=10, shortlist=True))
            assert set(best.ids) <= allowed


def test_with_all_tokens_listed_nothing_changes(tmp_path):
    model = make_model()
    converted = convert_here(model, tmp_path / "ct2")
    plain = CTranslate2Engine(converted, speed=Speed())
    write_shortlist(converted, Shortlist(list(range(60)), {}))
    listed = CTranslate2Engine(converted, speed=Speed())
    for settings in (SearchSettings(beam=1, max_len=12), SearchSettings(max_len=12)):
        requests = some_requests(30)
        expected = plain.search(requests, settings)
        found = listed.search(requests, replace(settings, shortlist=True))
        assert [one[0].ids for one in found] == [one[0].ids for one in expected]
        assert [one[0].score for one in found] == pytest.approx([one[0].score for one in expected], abs=1e-4)


def test_scores_are_those_of_the_model(tmp_path):
    """The shortlist removes tokens from the softmax; the score counts all tokens."""
    model = make_model()
    converted = convert_here(model, tmp_path / "ct2")
    write_shortlist(converted, Shortlist(list(range(4, 20)), {}))
    engine = CTranslate2Engine(converted, speed=Speed())
    requests = some_requests(20)
    for settings in (SearchSettings(beam=1, max_len=12), SearchSettings(beam=4, n_best=3, max_len=12)):
        for request, found in zip(requests, engine.search(requests, replace(settings, shortlist=True)), strict=True):
            assert [one.normalized_score for one in found] == sorted(
                (one.normalized_score for one in found), reverse=True
            )
            for one in found:
                expected = log_probability(model, request, one)
                assert one.score == pytest.approx(expected, abs=1e-3)


def log_probability(model, request, hypothesis):
    """Return the log-probability of a hypothesis, computed by torch."""
    source = torch.tensor([[*request.source, SPECIAL_IDS.eos_id]])
    target = [*hypothesis.ids, *([SPECIAL_IDS.eos_id] if hypothesis.complete else [])]
    with torch.no_grad():
        logits = model(source, torch.tensor([[SPECIAL_IDS.bos_id, *target[:-1]]]))
    return logits.log_softmax(-1)[0].gather(1, torch.tensor(target)[:, None]).sum().item()
