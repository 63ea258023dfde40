"""CTranslate2's searches equal heedful's: tokens, scores and stopping rules."""

import math
import threading

import pytest
import torch

from ct2_models import convert_here, log_probabilities, make_engine, make_model, score_of, some_requests, tie
from heedful.decoding.engines.auto import AutoEngine, open_engine
from heedful.decoding.engines.ctranslate2_engine import CTranslate2Engine
from heedful.decoding.engines.ctranslate2_tuning import BATCHES, Speed, measure, speed_for
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import Sampling, SearchSettings
from heedful.errors import UserError
from heedful.models.model_io import save_model
from heedful.text import SPECIAL_IDS

REQUESTS = some_requests(40, longest=14)


@pytest.fixture(scope="module")
def model():
    return make_model(residual="pre")


@pytest.fixture(scope="module")
def engine(model, tmp_path_factory) -> CTranslate2Engine:
    return make_engine(model, tmp_path_factory.mktemp("ct2") / "model")


@pytest.fixture(scope="module")
def reference(model) -> TorchEngine:
    return TorchEngine(model)


BEAMS = {
    "usual": {},
    "n-best": {"n_best": 5},
    "no length penalty": {"length_penalty": 0.0},
    "no length penalty, patient": {"length_penalty": 0.0, "patience": 2.0, "n_best": 5},
    "weak length penalty": {"length_penalty": 0.6, "n_best": 3},
    "negative length penalty": {"length_penalty": -0.5},
    "patient": {"patience": 2.0, "n_best": 3},
    "impatient": {"patience": 0.3},
    "rounded like Python": {"patience": 0.5},  # 2.5 of 5
    "coverage": {"coverage_penalty": 0.4, "n_best": 2},
    "wide": {"beam": 12},
    "two": {"beam": 2},
    "short": {"max_len": 3},
    "one token": {"max_len": 1},
}


@pytest.mark.parametrize("changes", BEAMS.values(), ids=BEAMS)
def test_a_beam_finds_what_torch_finds(changes, model, engine, reference):
    settings = SearchSettings(**{"beam": 5, "max_len": 20, **changes})
    found, expected = engine.search(REQUESTS, settings), reference.search(REQUESTS, settings)
    for request, theirs, ours in zip(REQUESTS, found, expected, strict=True):
        assert len(theirs) == len(ours)
        for a, b in zip(theirs, ours, strict=True):
            assert a.normalized_score == pytest.approx(b.normalized_score, abs=1e-4)
            near = [
                each.ids for each in ours if abs(each.normalized_score - a.normalized_score) < 1e-4
            ]  # of equals, any may come first
            assert a.ids == b.ids or tie(model, request, a, b) < 1e-4 or a.ids in near
            assert a.complete == b.complete or a.ids != b.ids
            assert a.score == pytest.approx(score_of(model, request, a), abs=1e-4)


ALONE = {
    "usual": {},
    "at least so many": {"min_len": 9},
    "repetition": {"repetition_penalty": 1.7},
    "no pair twice": {"no_repeat_ngram": 2},
    "no token twice": {"no_repeat_ngram": 1},
    "forbidden": {"forbidden": (5, 9, 20, 21, 22)},
    "gnmt": {"length_rule": "gnmt"},
    "coverage": {"coverage_penalty": 0.4},
    "short": {"max_len": 2},
}


@pytest.mark.parametrize("n_prefix", [0, 3])
@pytest.mark.parametrize("changes", ALONE.values(), ids=ALONE)
def test_greedy_search_with_all_its_filters_is_torchs(changes, n_prefix, model, engine, reference):
    requests = some_requests(30, prefix=n_prefix)
    settings = SearchSettings(**{"beam": 1, "max_len": 18, **changes})
    found, expected = engine.search(requests, settings), reference.search(requests, settings)
    for request, (theirs,), (ours,) in zip(requests, found, expected, strict=True):
        assert theirs.ids == ours.ids or tie(model, request, theirs, ours) < 1e-4
        assert theirs.score == pytest.approx(score_of(model, request, theirs), abs=1e-4)
        if settings.repetition_penalty == 1.0:
            assert theirs.normalized_score == pytest.approx(ours.normalized_score, abs=1e-4) or theirs.ids != ours.ids
        assert theirs.complete == ours.complete or theirs.ids != ours.ids
        assert theirs.ids[:n_prefix] == list(request.prefix)[: settings.limit(len(request))]


def test_limits_are_those_of_each_request(engine):
    requests = [Request([5] * 3), Request([6] * 40), Request([7] * 70)]
    lengths = [
        len(best.ids) for (best,) in engine.search(requests, SearchSettings(beam=1, forbidden=(SPECIAL_IDS.eos_id,)))
    ]
    assert lengths == [SearchSettings().limit(len(request)) for request in requests]


def test_nothing_ends_beyond_its_limit_by_itself(engine):
    ((best,),) = engine.search([Request([5, 6])], SearchSettings(beam=1, max_len=4, forbidden=(SPECIAL_IDS.eos_id,)))
    assert (len(best.ids), best.complete) == (4, False)


def test_attention_is_the_mean_of_the_last_layers_heads(model, engine):
    for beam in (1, 4):
        for request, (best,) in zip(
            REQUESTS, engine.search(REQUESTS, SearchSettings(beam=beam, max_len=9, attention=True)), strict=True
        ):
            assert len(best.attention) == len(best.ids)
            if best.ids:
                expected = last_cross_attention(model, request, best.ids)
                assert torch.allclose(torch.tensor(best.attention), expected, atol=1e-5)
    assert all(best.attention is None for (best,) in engine.search(REQUESTS[:3], SearchSettings(max_len=4)))


@torch.inference_mode()
@pytest.mark.parametrize("size", [1, 100, 1_000])
def test_attention_of_a_beam_is_the_same_in_batches(model, tmp_path, size):
    engine = make_engine(model, tmp_path / "model", speed=Speed(1, 1, size, size))
    settings = SearchSettings(beam=4, n_best=3, max_len=14, attention=True)
    bare = engine.search(REQUESTS, SearchSettings(beam=4, n_best=3, max_len=14))
    for request, found, expected in zip(REQUESTS, engine.search(REQUESTS, settings), bare, strict=True):
        assert [(one.ids, one.score) for one in found] == [(one.ids, one.score) for one in expected]
        for one in found:
            assert len(one.attention) == len(one.ids)
            if one.ids:
                wanted = last_cross_attention(model, request, one.ids)
                assert torch.allclose(torch.tensor(one.attention), wanted, atol=1e-5)


def last_cross_attention(model, request, ids):
    """(T, S), by the formula: the queries of the last cross-attention against its keys."""
    from heedful.nn.attention import attention_weights

    seen = []
    layer = model.decoder.layers[-1].cross_attention
    plain = layer.attend

    def look(q, k, v, mask=None, **options):
        seen.append(attention_weights(q, k, mask, scale=options.get("scale")))
        return plain(q, k, v, mask, **options)

    layer.attend = look
    try:
        log_probabilities(model, request, ids[:-1])
    finally:
        layer.attend = plain
    return seen[0][0].mean(dim=0)


def test_an_empty_source_is_asked_of_the_model_too(model, engine, reference):
    for beam in (1, 5):
        settings = SearchSettings(beam=beam, max_len=9)
        ((theirs,),), ((ours,),) = engine.search([Request([])], settings), reference.search([Request([])], settings)
        assert theirs.ids == ours.ids
        assert theirs.score == pytest.approx(ours.score, abs=1e-4)


def test_marks_in_the_source_are_tokens_like_others(model, engine):
    for source in (
        [SPECIAL_IDS.bos_id],
        [SPECIAL_IDS.eos_id],
        [SPECIAL_IDS.eos_id, 7],
        [7, SPECIAL_IDS.eos_id, SPECIAL_IDS.eos_id],
        [SPECIAL_IDS.pad_id, 8],
    ):
        request = Request(source)
        ((best,),) = engine.search([request], SearchSettings(beam=1, max_len=6))
        assert best.score == pytest.approx(score_of(model, request, best), abs=1e-4)


def test_the_order_of_the_requests_is_kept(engine):
    requests = [REQUESTS[number % 7] for number in range(50)]
    one_by_one = [engine.search([request], SearchSettings(max_len=12))[0] for request in REQUESTS[:7]]
    found = engine.search(requests, SearchSettings(max_len=12))
    assert [[best.ids for best in one] for one in found] == [
        [best.ids for best in one_by_one[number % 7]] for number in range(50)
    ]


def test_the_shortest_go_last_in_smaller_batches(model, engine, tmp_path, monkeypatch):
    """So that no worker waits long for another's last batch; the results are those of a single batch."""
    small = make_engine(model, tmp_path / "model", speed=Speed(inter=2, batch=40))
    calls = []
    submit = small._submit
    monkeypatch.setattr(small, "_submit", lambda *given: calls.append(given) or submit(*given))
    greedy = SearchSettings(beam=1, max_len=9)
    assert _ids(small.search(REQUESTS, greedy)) == _ids(engine.search(REQUESTS, greedy))
    (first, *_, full, _), (last, *_, half, _) = calls
    assert (full["max_batch_size"], half["max_batch_size"]) == (40, 20)
    assert sorted(map(len, [*first, *last]), reverse=True) == [len(each) for each in [*first, *last]]
    share = sum(map(len, last)) / sum(map(len, [*first, *last]))
    assert 0.25 <= share < 0.3

    calls.clear()
    long = [Request([5] * 500)]
    assert _ids(small.search(long, greedy)) == _ids(engine.search(long, greedy))
    assert [len(given[0]) for given in calls] == [1]


def _ids(found):
    return [[each.ids for each in several] for several in found]


def test_no_requests_no_results(engine):
    assert engine.search([], SearchSettings()) == []


def test_several_threads_may_search_at_once(model, tmp_path):
    engine = make_engine(model, tmp_path / "ct2", speed=Speed(2, 1, 40, 40))
    expected = engine.search(REQUESTS, SearchSettings(max_len=12))
    found = [None] * 4

    def run(number):
        found[number] = engine.search(REQUESTS, SearchSettings(max_len=12))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[[best.ids for best in one] for one in each] for each in found] == [
        [[best.ids for best in one] for one in expected]
    ] * 4


def test_without_scores_the_tokens_are_the_same(model, engine, tmp_path):
    bare = make_engine(model, tmp_path / "ct2", scores=False)
    for beam in (1, 3):
        settings = SearchSettings(beam=beam, max_len=12)
        with_scores, without = engine.search(REQUESTS, settings), bare.search(REQUESTS, settings)
        assert [one[0].ids for one in with_scores] == [one[0].ids for one in without]
    assert math.isnan(bare.search(REQUESTS[:1], SearchSettings(beam=1))[0][0].score)


REFUSED = {
    "GNMT": {"length_rule": "gnmt"},
    "finished": {"stop": "proven"},
    "alike": {"diversity": 0.5},
    "must not be written": {"no_repeat_ngram": 2},
    "gives the probability": {"min_len": 2},
    "half the vocabulary": {"beam": 40},
    "random numbers": {"sampling": Sampling()},
    "float32": {"length_penalty": 9.0},
}


@pytest.mark.parametrize(("words", "changes"), REFUSED.items(), ids=REFUSED)
def test_settings_that_it_cannot_follow_are_refused(words, changes, engine):
    settings = SearchSettings(**changes)
    assert words in engine.why_not([], settings)
    with pytest.raises(UserError, match=words):
        engine.search(REQUESTS[:1], settings)


def test_requests_that_it_cannot_follow_are_refused(engine):
    for request, words in {
        "required": (Request([5], required=[[7]]), "given words"),
        "prefix": (Request([5], prefix=[7]), "prefix"),
        "long": (Request([5] * 9_000), "9,001 tokens"),
    }.values():
        with pytest.raises(UserError, match=words):
            engine.search([request], SearchSettings(beam=5))
    with pytest.raises(UserError, match="9,000 target tokens"):
        engine.search([Request([5])], SearchSettings(max_len=9_000))
    for bad in ([60], [-1]):
        with pytest.raises(UserError, match="between 0 and 59"):
            engine.search([Request(bad)], SearchSettings())


def test_learned_positions_end_a_translation_but_never_cut_a_source(tmp_path):
    model = make_model(positions="learned", max_len=12)
    engine = make_engine(model, tmp_path / "ct2")
    ((best,),) = engine.search([Request([5] * 11)], SearchSettings(beam=1, forbidden=(SPECIAL_IDS.eos_id,)))
    assert (len(best.ids), best.complete) == (12, False)
    with pytest.raises(UserError, match="13 tokens are more than the 12 positions"):
        engine.search([Request([5] * 12)], SearchSettings(beam=1))


def test_auto_gives_torch_what_ctranslate2_cannot_do(model, reference, tmp_path, monkeypatch):
    folder = save_model(tmp_path / "model", model, None)
    monkeypatch.setattr("heedful.decoding.engines.auto.convert", lambda path: convert_here(model, tmp_path / "ct2"))
    engine = open_engine(folder, threads=1)
    assert isinstance(engine, AutoEngine)
    requests = [*REQUESTS[:4], Request([5, 6, 7], prefix=[9, 10]), *REQUESTS[4:8]]
    for settings in (SearchSettings(max_len=10), SearchSettings(max_len=10, min_len=3), SearchSettings(beam=1)):
        found, expected = engine.search(requests, settings), reference.search(requests, settings)
        assert [one[0].ids for one in found] == [one[0].ids for one in expected]


def test_a_model_that_does_not_map_runs_on_torch(tmp_path):
    folder = save_model(tmp_path / "model", make_model(positions="alibi"), None)
    assert open_engine(folder).name == "torch"
    assert open_engine(folder, engine="torch").name == "torch"
    with pytest.raises(UserError, match="ALiBi"):
        open_engine(folder, engine="ctranslate2")
    for name in ("auto", "torch"):
        with pytest.raises(UserError, match="int8"):
            open_engine(folder, engine=name, compute="int8")


@pytest.mark.parametrize(("option", "value"), [("engine", "ctranslate"), ("compute", "int4")])
def test_unknown_names_are_refused_with_the_nearest(option, value, tmp_path):
    with pytest.raises(UserError, match=f"{value}.*did you mean"):
        open_engine(tmp_path, **{option: value})


def test_int8_is_near_float32(model, engine, tmp_path):
    small = make_engine(model, tmp_path / "ct2", compute="int8")
    settings = SearchSettings(beam=1, max_len=10)
    pairs = list(zip(small.search(REQUESTS, settings), engine.search(REQUESTS, settings), strict=True))
    assert sum(a[0].ids[:1] == b[0].ids[:1] for a, b in pairs) > 0.7 * len(pairs)


def test_the_speed_is_measured_once_and_kept(model, tmp_path, monkeypatch):
    folder = convert_here(model, tmp_path / "ct2").folder
    asked = []
    monkeypatch.setattr(
        "heedful.decoding.engines.ctranslate2_tuning._measured", lambda *given: asked.append(given) or Speed(3, 2, 17)
    )
    assert [speed_for(folder, "float32"), speed_for(folder, "float32")] == [Speed(3, 2, 17)] * 2
    assert len(asked) == 1
    (path,) = folder.glob("speed-*.json")
    path.write_text('{"inter": 0}')
    assert speed_for(folder, "float32") == Speed(3, 2, 17)
    assert len(asked) == 2
    speed_for(folder, "int8")
    assert len(asked) == 3  # each has its own


def test_measuring_uses_no_more_than_the_cores(model, tmp_path, monkeypatch):
    folder = convert_here(model, tmp_path / "ct2").folder
    (folder / "facts.json").write_text('{"source_vocab_size": 60}')
    monkeypatch.setattr("heedful.decoding.engines.ctranslate2_tuning.n_cores", lambda: 1)
    found = measure(folder, "int8")
    assert (found.inter, found.intra) == (1, 1)
    assert found.batch in BATCHES


def test_it_is_measured_when_there_is_much_to_do(model, tmp_path, monkeypatch):
    converted = convert_here(model, tmp_path / "ct2")
    asked = []
    monkeypatch.setattr(
        "heedful.decoding.engines.ctranslate2_tuning._measured", lambda *given: asked.append(given) or Speed(1, 1, 17)
    )
    engine = CTranslate2Engine(converted)
    few = engine.search(REQUESTS, SearchSettings(beam=1, max_len=3))
    assert asked == []
    many = engine.search([*REQUESTS, *some_requests(700, longest=9)], SearchSettings(beam=1, max_len=3))
    assert (len(asked), engine.speed) == (1, Speed(1, 1, 17))
    assert [one[0].ids for one in many[: len(few)]] == [one[0].ids for one in few]
    assert CTranslate2Engine(converted).speed == Speed(1, 1, 17)
