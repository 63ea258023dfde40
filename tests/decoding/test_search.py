"""Searches state equalities: beam 1 = greedy, wide beam = brute force, any batch = one by one, score = re-score."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from heedful.data import pad_sources
from heedful.decoding.engines.torch_engine import TorchEngine, with_attention
from heedful.decoding.search import continuous_batching
from heedful.decoding.search.beam_search import argmax_by_chunks, extend_beam, topk_by_chunks
from heedful.decoding.search.callback import BeamTrace, SearchCallback
from heedful.decoding.search.continuous_batching import search
from heedful.decoding.search.hypotheses import NextTokenScores
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import Sampling, SearchSettings, length_limit, length_norm
from heedful.decoding.steps.fast_seq2seq import FastSeq2SeqStep
from heedful.decoding.steps.reference import Seq2SeqStep
from heedful.errors import UserError
from heedful.models.seq2seq import Seq2Seq
from heedful.text import SPECIAL_IDS
from heedful.text.special_ids import SpecialIds
from tiny_models import PATTERNS, random_model, sentences, tiny_model

VARIANTS: dict[str, dict[str, object]] = {
    "paper": {},
    "pre-norm": {"residual": "pre", "norm": "rms", "activation": "swiglu"},
    "no residual": {"residual": "none"},
    "learned": {"positions": "learned", "max_len": 64},
    "rotary": {"positions": "rotary", "n_kv_heads": 1},
    "relative": {"positions": "relative"},
    "alibi": {"positions": "alibi"},
    "matching": {"join": "matching", "n_decoder_layers": 3},
    "tied": {"tied": "all", "activation": "gelu"},
}
SLOW = {**VARIANTS, "window": {"pattern": PATTERNS["window"]}, "additive": {"pattern": PATTERNS["additive"]}}


@torch.inference_mode()
def rescored(model: Seq2Seq, request: Request, hypothesis: Hypothesis) -> float:
    """The sum of log-probabilities, teacher-forced: all positions at once, no cache, no search."""
    source, mask = pad_sources([request.source], special_ids=SPECIAL_IDS)
    ids = hypothesis.ids + [SPECIAL_IDS.eos_id] * hypothesis.complete
    fed = torch.tensor([[SPECIAL_IDS.bos_id, *ids[:-1]]])
    logits = model(source, fed, mask)[0].log_softmax(dim=-1)
    return float(logits[range(len(ids)), ids].sum())


def ids_of(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.ids for hypothesis in row] for row in found]


@pytest.mark.parametrize("variant", SLOW)
@pytest.mark.parametrize("beam", [1, 4])
def test_scores_are_what_a_teacher_forced_pass_says(variant: str, beam: int) -> None:
    model = tiny_model(**SLOW[variant])
    requests = sentences(12)
    found = TorchEngine(model, batch_rows=4 * beam).search(requests, SearchSettings(beam=beam, n_best=beam))
    for request, hypotheses in zip(requests, found, strict=True):
        for hypothesis in hypotheses:
            assert hypothesis.score == pytest.approx(rescored(model, request, hypothesis), abs=1e-5)
            norm = length_norm(len(hypothesis.ids) + hypothesis.complete, SearchSettings())
            assert hypothesis.normalized_score == pytest.approx(hypothesis.score / norm)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("beam", [1, 3])
def test_the_quick_step_is_the_model(variant: str, beam: int) -> None:
    """Refilled batches through the quick step = batches of the model itself, to the token."""
    model = tiny_model(seed=1, **VARIANTS[variant])
    requests, settings = sentences(40, seed=1), SearchSettings(beam=beam, n_best=beam)
    quick = search(FastSeq2SeqStep(model), requests, settings, n_rows=5 * beam)
    reference = search(Seq2SeqStep(model), requests, settings, n_rows=7 * beam)
    assert ids_of(quick) == ids_of(reference)
    if variant not in ("no residual", "tied"):  # of those few random ones end
        assert len({len(row[0].ids) for row in quick}) > 3  # of many lengths, or nothing was refilled


@pytest.mark.parametrize("step", [FastSeq2SeqStep, Seq2SeqStep])
@pytest.mark.parametrize("beam", [1, 4])
def test_any_batch_is_one_by_one(step: type, beam: int) -> None:
    model, requests = tiny_model(seed=2), sentences(30, seed=2)
    settings = SearchSettings(beam=beam, n_best=beam)
    alone = [search(step(model), [request], settings, n_rows=beam)[0] for request in requests]
    for n_rows in (2 * beam, 9 * beam, 64 * beam):
        assert ids_of(search(step(model), requests, settings, n_rows=n_rows)) == ids_of(alone)


def test_lanes_change_nothing() -> None:
    model, requests = tiny_model(seed=2), sentences(50, seed=2)
    for settings in (SearchSettings(beam=1), SearchSettings(beam=3), SearchSettings(sampling=Sampling(seed=3))):
        alone = TorchEngine(model, lanes=1).search(requests, settings)
        assert ids_of(TorchEngine(model, lanes=3).search(requests, settings)) == ids_of(alone)


def test_a_lane_keeps_its_positions_whatever_another_puts_there() -> None:
    class Outpaced(FastSeq2SeqStep):
        """Another lane, which needs one position, is always the last to set the table."""

        @property
        def codes(self) -> Tensor:  # type: ignore[override]
            return self._codes

        @codes.setter
        def codes(self, table: Tensor) -> None:
            self._codes = table[:1]

    model, requests, settings = tiny_model(seed=2), sentences(10, seed=2), SearchSettings(beam=3)
    assert search(Outpaced(model), requests, settings) == search(FastSeq2SeqStep(model), requests, settings)


def test_lanes_stop_when_one_fails() -> None:
    class Failing(Chain):
        calls = 0

        def __call__(self, tokens: Tensor, state: Chain) -> Tensor:
            self.calls += 1
            if self.calls == 5:
                raise RuntimeError("the fifth step")
            return super().__call__(tokens, state)

    step = Failing({SPECIAL_IDS.bos_id: {4: 1.0}, 4: {4: 1.0}})  # without end
    with pytest.raises(RuntimeError, match="the fifth step"):
        search(step, sentences(8), SearchSettings(beam=1, max_len=100_000), lanes=2)
    assert step.calls < 10_000


@pytest.mark.parametrize("n_sentences", [300, pytest.param(1000, marks=pytest.mark.long)])
def test_beam_1_is_greedy(n_sentences: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, requests = tiny_model(seed=3), sentences(n_sentences, seed=3)
    step = FastSeq2SeqStep(model)
    greedy = search(step, requests, SearchSettings(beam=1))
    monkeypatch.setattr(continuous_batching, "strategy_for", lambda settings, callback: extend_beam)
    beam = search(step, requests, SearchSettings(beam=1))
    assert ids_of(greedy) == ids_of(beam)
    for (a,), (b,) in zip(greedy, beam, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-6)
        assert a.complete == b.complete


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.long)])
def test_a_beam_that_drops_nothing_finds_the_best_of_all(seeds: range, penalty: float) -> None:
    for seed in seeds:
        model = random_model(seed, vocab_size=5, n_layers=1, d_model=8)
        (request,) = sentences(1, seed=seed, vocab_size=5, longest=3)
        settings = SearchSettings(beam=400, max_len=3, length_penalty=penalty, stop="proven")
        (found,) = TorchEngine(model, batch_rows=400).search([request], settings)
        rank, ids = brute_force(model, request, 3, settings)
        assert found[0].ids == ids
        assert found[0].normalized_score == pytest.approx(rank, abs=1e-6)


@torch.inference_mode()
def brute_force(model: Seq2Seq, request: Request, limit: int, settings: SearchSettings) -> tuple[float, list[int]]:
    """The best of all sequences; their log-probabilities come from one batch of all longest ones."""
    tokens = range(model.config.target_vocab_size)
    texts = torch.tensor(list(itertools.product(tokens, repeat=limit)))
    fed = torch.cat([torch.full((len(texts), 1), SPECIAL_IDS.bos_id), texts[:, :-1]], dim=1)
    source, mask = pad_sources([request.source] * len(texts), special_ids=SPECIAL_IDS)
    scores = model(source, fed, mask).log_softmax(dim=-1).gather(2, texts[:, :, None]).squeeze(2).cumsum(dim=1)
    best = (-math.inf, [-1])
    for text, sums in zip(texts.tolist(), scores.tolist(), strict=True):
        length = text.index(SPECIAL_IDS.eos_id) + 1 if SPECIAL_IDS.eos_id in text else limit
        ids = [token for token in text[:length] if token != SPECIAL_IDS.eos_id]
        best = max(best, (sums[length - 1] / length_norm(length, settings), ids))
    return best


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_the_proven_stop_finds_what_a_search_to_the_limit_finds(penalty: float) -> None:
    """Nothing that a beam would finish after a proven stop is better than what it had."""
    model, requests = tiny_model(seed=5), sentences(40, seed=5)
    engine, common = TorchEngine(model), {"beam": 3, "max_len": 30, "length_penalty": penalty}
    to_the_limit = engine.search(requests, SearchSettings(**common, patience=1000.0))  # type: ignore[arg-type]
    proven = engine.search(requests, SearchSettings(**common, stop="proven"))  # type: ignore[arg-type]
    assert ids_of(proven) == ids_of(to_the_limit)


class Chain:
    """A model of one rule, for a search that knows no model: which token may follow which, and how likely."""

    device, max_len, refills, special_ids = torch.device("cpu"), None, False, SpecialIds()

    def __init__(self, follows: dict[int, dict[int, float]], vocab_size: int = 20) -> None:
        self.follows, self.vocab_size = follows, vocab_size

    def begin(self, sources: object, width: int, *, attention: bool = False) -> "Chain":
        self.attention = None
        return self

    def reorder(self, rows: Tensor) -> None: ...

    def keep(self, sentences: Tensor) -> None: ...

    def replace(self, state: "Chain", places: Tensor, sources: object) -> None: ...

    def __call__(self, tokens: Tensor, state: "Chain") -> Tensor:
        probabilities = torch.full((len(tokens), self.vocab_size), 1e-30, dtype=torch.float64)
        for row, token in enumerate(tokens.tolist()):
            for following, probability in self.follows.get(token, {SPECIAL_IDS.eos_id: 1.0}).items():
                probabilities[row, following] = probability
        return probabilities.log()


def test_the_proven_stop_waits_for_a_long_text_that_wins_by_its_length() -> None:
    """A short text with a fair score is finished at once; an unlikely beginning goes on with certainty for long."""
    long = list(range(4, 14))
    step = Chain(
        {SPECIAL_IDS.bos_id: {SPECIAL_IDS.eos_id: 0.8, 4: 0.2}, **{token: {token + 1: 1.0} for token in long[:-1]}}
    )
    common = {"beam": 2, "max_len": 30}
    ((early, *_),) = search(step, [Request([5])], SearchSettings(**common, patience=0.5))  # type: ignore[arg-type]
    ((proven, *_),) = search(step, [Request([5])], SearchSettings(**common, stop="proven"))  # type: ignore[arg-type]
    assert early.ids == []
    assert proven.ids == long
    assert proven.normalized_score == pytest.approx(math.log(0.2) / 11)


def test_a_sentence_that_runs_on_stops_at_its_limit() -> None:
    model = tiny_model(seed=6)
    requests = sentences(5, seed=6)
    found = TorchEngine(model).search(requests, SearchSettings(beam=1))
    for request, (hypothesis,) in zip(requests, found, strict=True):
        if not hypothesis.complete:
            assert len(hypothesis.ids) == length_limit(len(request))
    assert any(not row[0].complete for row in found)


def test_learned_positions_end_a_text_where_their_table_ends() -> None:
    model = tiny_model(seed=6, positions="learned", max_len=20)
    found = TorchEngine(model, batch_rows=3).search(sentences(12, seed=6), SearchSettings(beam=1))
    assert max(len(row[0].ids) for row in found) <= 20


def test_minimum_and_maximum_length() -> None:
    model, requests = tiny_model(seed=7), sentences(20, seed=7)
    for beam in (1, 3):
        found = TorchEngine(model).search(requests, SearchSettings(beam=beam, min_len=6, max_len=9))
        assert all(6 <= len(row[0].ids) <= 9 for row in found)


def test_a_prefix_stands_at_the_beginning() -> None:
    model = tiny_model(seed=8)
    requests = [Request(request.source, prefix=(7, 9, 11)) for request in sentences(10, seed=8)]
    for settings in (SearchSettings(beam=1), SearchSettings(beam=4), SearchSettings(sampling=Sampling(seed=1))):
        for request, row in zip(requests, TorchEngine(model).search(requests, settings), strict=True):
            assert row[0].ids[:3] == [7, 9, 11]
            assert row[0].score == pytest.approx(rescored(model, request, row[0]), abs=1e-5)


def test_forbidden_tokens_are_not_written() -> None:
    model, requests = tiny_model(seed=9), sentences(20, seed=9)
    usual = TorchEngine(model).search(requests, SearchSettings(beam=3))
    forbidden = tuple({token for row in usual for token in row[0].ids[:2]})
    assert forbidden
    found = TorchEngine(model).search(requests, SearchSettings(beam=3, forbidden=forbidden))
    assert not {token for row in found for token in row[0].ids} & set(forbidden)


@pytest.mark.parametrize("beam", [1, 5])
def test_required_words_get_in(beam: int) -> None:
    model = tiny_model(seed=10)
    runs = ((10, 11), (15,))
    requests = [Request(request.source, required=runs) for request in sentences(12, seed=10)]
    found = TorchEngine(model).search(requests, SearchSettings(beam=beam))
    for request, (best, *_) in zip(requests, found, strict=True):
        text = "".join(f",{token}" for token in best.ids) + ","
        assert ",10,11," in text
        assert ",15," in text
        assert best.score == pytest.approx(rescored(model, request, best), abs=1e-5)


def test_no_ngram_stands_twice() -> None:
    model, requests = tiny_model(seed=11), sentences(20, seed=11)

    def repeats(ids: list[int]) -> bool:
        pairs = list(itertools.pairwise(ids))
        return len(set(pairs)) < len(pairs)

    usual = TorchEngine(model).search(requests, SearchSettings(beam=1, max_len=40))
    assert any(repeats(row[0].ids) for row in usual)
    for beam in (1, 3):
        found = TorchEngine(model).search(requests, SearchSettings(beam=beam, no_repeat_ngram=2, max_len=40))
        assert not any(repeats(row[0].ids) for row in found)


def test_a_repetition_penalty_makes_texts_more_various() -> None:
    model, requests = tiny_model(seed=11), sentences(20, seed=11)

    def variety(penalty: float) -> float:
        settings = SearchSettings(beam=1, max_len=40, repetition_penalty=penalty)
        found = TorchEngine(model).search(requests, settings)
        return sum(len(set(row[0].ids)) / max(1, len(row[0].ids)) for row in found)

    assert variety(2.0) > variety(1.0)


@pytest.mark.parametrize("beam", [1, 3])
def test_filters_change_what_is_chosen_not_what_it_counts(beam: int) -> None:
    model = tiny_model(seed=11)
    requests = [Request(request.source, prefix=(7, 8)) for request in sentences(10, seed=11)]
    settings = SearchSettings(
        beam=beam, max_len=30, min_len=3, repetition_penalty=1.5, no_repeat_ngram=3, forbidden=(7, 9)
    )
    for request, (best,) in zip(requests, TorchEngine(model).search(requests, settings), strict=True):
        assert best.ids[:2] == [7, 8]  # a prescribed beginning, whatever is forbidden
        assert not {7, 9} & set(best.ids[2:])
        assert best.score == pytest.approx(rescored(model, request, best), abs=1e-5)


def test_without_penalties_the_n_best_are_those_of_a_search_to_the_limit() -> None:
    model, requests = tiny_model(seed=19), sentences(60, seed=19)
    common = {"beam": 4, "n_best": 3, "max_len": 20, "length_penalty": 0.0}
    early = TorchEngine(model).search(requests, SearchSettings(**common))  # type: ignore[arg-type]
    proven = TorchEngine(model).search(requests, SearchSettings(**common, stop="proven"))  # type: ignore[arg-type]
    both = [(a, b) for a, b in zip(early, proven, strict=True) if len(a) == len(b) == 3]
    assert both
    for a, b in both:
        assert [h.score for h in a] == pytest.approx([h.score for h in b])


def test_the_coverage_penalty_sums_where_the_last_layer_looked() -> None:
    """The rank of a hypothesis = its normalised score + beta x sum of log min(1, attention received)."""
    model, requests = tiny_model(seed=12), sentences(6, seed=12)
    settings = SearchSettings(beam=3, n_best=3, coverage_penalty=0.3)
    for step in (FastSeq2SeqStep(model), Seq2SeqStep(model)):
        found = search(step, requests, settings, n_rows=6)
        for request, row in zip(requests, found, strict=True):
            for hypothesis in row:
                # The step that wrote the end mark looked as well: it is the last one of the text with one token more.
                fed = replace(hypothesis, ids=hypothesis.ids + [SPECIAL_IDS.eos_id] * hypothesis.complete)
                (looked,) = with_attention(step, [request], [[fed]], 1)
                received = torch.tensor(looked[0].attention).sum(dim=0)
                penalty = 0.3 * float(received.clamp(1e-9, 1.0).log().sum())
                assert hypothesis.normalized_score == pytest.approx(hypothesis.score / len(fed.ids) + penalty, abs=1e-5)


def test_attention_rows_sum_to_one_over_the_sentence_alone() -> None:
    model, requests = tiny_model(seed=13), sentences(9, seed=13)
    for request, row in zip(
        requests, TorchEngine(model).search(requests, SearchSettings(beam=2, attention=True)), strict=True
    ):
        assert row[0].attention is not None
        assert len(row[0].attention) == len(row[0].ids)
        for weights in row[0].attention:
            assert len(weights) == len(request)
            assert sum(weights) == pytest.approx(1.0)


def test_draws_depend_on_the_seed_and_the_request_alone() -> None:
    model, requests = tiny_model(seed=14), sentences(12, seed=14)
    settings = SearchSettings(n_best=3, sampling=Sampling(seed=5))
    all_at_once = TorchEngine(model, batch_rows=64).search(requests, settings)
    in_threes = TorchEngine(model, batch_rows=9).search(requests, settings)
    other = TorchEngine(model).search(requests, SearchSettings(n_best=3, sampling=Sampling(seed=6)))
    assert ids_of(all_at_once) == ids_of(in_threes)
    assert ids_of(all_at_once) != ids_of(other)
    assert any(row[0].ids != row[1].ids for row in all_at_once)


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-4}])
def test_the_narrowest_draw_is_greedy(narrow: dict[str, float]) -> None:
    model, requests = tiny_model(seed=15), sentences(20, seed=15)
    drawn = TorchEngine(model).search(requests, SearchSettings(sampling=Sampling(**narrow)))  # type: ignore[arg-type]
    assert ids_of(drawn) == ids_of(TorchEngine(model).search(requests, SearchSettings(beam=1)))


def test_draws_follow_the_probabilities() -> None:
    model = random_model(16, vocab_size=8)
    (request,) = sentences(1, seed=16, vocab_size=8)
    found = TorchEngine(model).search([request], SearchSettings(n_best=1000, max_len=1, sampling=Sampling(seed=1)))
    source, mask = pad_sources([request.source], special_ids=SPECIAL_IDS)
    with torch.inference_mode():
        expected = model(source, torch.tensor([[SPECIAL_IDS.bos_id]]), mask)[0, 0].softmax(dim=0)
    firsts = [row.ids[0] if row.ids else SPECIAL_IDS.eos_id for row in found[0]]
    for token, probability in enumerate(expected.tolist()):
        sigma = math.sqrt(1000 * probability * (1 - probability))
        assert abs(firsts.count(token) - 1000 * probability) <= 5 * sigma + 1


def test_diversity_makes_the_n_best_differ_more() -> None:
    model, requests = tiny_model(seed=17), sentences(20, seed=17)

    def first_tokens(diversity: float) -> int:
        settings = SearchSettings(beam=6, n_best=6, diversity=diversity)
        return sum(len({tuple(h.ids[:2]) for h in row}) for row in TorchEngine(model).search(requests, settings))

    assert first_tokens(3.0) > first_tokens(0.0)


def test_required_words_of_draws_are_refused() -> None:
    settings = SearchSettings(beam=1, sampling=Sampling())
    with pytest.raises(UserError, match="required of a beam only"):
        TorchEngine(tiny_model(seed=17)).search([Request([5, 6], required=[[7]])], settings)


def test_the_diary_of_a_beam_tells_its_end() -> None:
    model, (request,) = tiny_model(seed=18), sentences(1, seed=18)
    settings = SearchSettings(beam=3, n_best=3)
    trace = BeamTrace()
    [found] = TorchEngine(model).search([request], settings, callback=SearchCallback(on_candidates=trace.add))
    events = trace.events
    assert ids_of([found]) == ids_of(TorchEngine(model).search([request], settings))
    nodes = {event.node: event for event in events}
    texts = []
    for event in events:
        if event.fate == "finished":
            path, at = [], event
            while True:
                path.append(at.token)
                if at.parent == 0:
                    break
                at = nodes[at.parent]
                assert at.fate == "kept"
            texts.append(([token for token in reversed(path) if token != SPECIAL_IDS.eos_id], event.normalized_score))
    best = sorted(texts, key=lambda text: -text[1])[:3]
    assert [ids for ids, _ in best] == [hypothesis.ids for hypothesis in found]
    kept = [event for event in events if event.step == 1 and event.fate == "kept"]
    assert len(kept) == 3


def test_topk_by_chunks_is_topk() -> None:
    torch.manual_seed(0)
    for n, size, k in ((7, 8000, 10), (3, 8011, 4), (5, 100, 10), (2, 5, 5)):
        logits: Tensor = torch.randn(n, size)
        values, ids = topk_by_chunks(logits, k)
        expected = logits.topk(k, dim=1)
        assert torch.equal(values, expected.values)
        assert torch.equal(ids, expected.indices)


def test_argmax_by_chunks_is_argmax() -> None:
    torch.manual_seed(0)
    for n, size in ((7, 8000), (5, 8011), (3, 8000), (5, 100), (4, 2048), (6, 2049)):
        logits = torch.randn(n, size)
        assert torch.equal(argmax_by_chunks(logits), logits.argmax(dim=1, keepdim=True))
        logits[0, -1] = logits[1, 0] = 99.0  # the last, the first
        logits[2, size // 3] = logits[2, size // 2] = 99.0  # of equals the first
        assert argmax_by_chunks(logits)[:3, 0].tolist() == [size - 1, 0, size // 3]
    hidden = torch.full((5, 8000), -torch.inf)
    assert argmax_by_chunks(hidden).shape == (5, 1)


def test_log_probabilities_are_equal_by_either_kernel() -> None:
    torch.manual_seed(0)
    raw = torch.randn(5, 300)
    logits = raw.clone()
    logits[:, 7] = -torch.inf
    tokens = torch.tensor([[7], [0], [7], [299], [3]])
    for scores in (NextTokenScores(raw, raw), NextTokenScores(logits, raw)):
        assert scores.log_probs_of_one(tokens) == pytest.approx(scores.log_probs(tokens), abs=1e-5)
    assert NextTokenScores(logits, raw).log_probs_of_one(tokens)[0, 0] == -math.inf


@pytest.mark.parametrize(
    "wrong",
    [{"beam": 0}, {"n_best": 6}, {"length_penalty": math.nan}, {"max_len": 2, "min_len": 3}, {"patience": 0.0}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError):
        SearchSettings(**wrong)  # type: ignore[arg-type]


def test_nothing_in_nothing_out() -> None:
    assert TorchEngine(tiny_model()).search([], SearchSettings()) == []
    (row,) = TorchEngine(tiny_model()).search([Request([])], SearchSettings())
    assert row
