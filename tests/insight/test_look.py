"""A look shows what the model computes: rows, weights, tokens and scores."""

import copy
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import heedful
from deterministic import largest_difference
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.insight.attention_maps import word_alignment
from heedful.insight.beam_tree import MemoryStep, write_greedily
from heedful.insight.look import Look, look
from heedful.insight.packed_arrays import unpack
from heedful.models.model_info import SourceLimit
from heedful.models.model_io import LoadedModel, save_model
from heedful.models.seq2seq import Memory
from heedful.nn.recording import record_attention
from heedful.text import SPECIAL_IDS
from look_models import SENTENCE, VARIANTS, look_model, tokenizers
from trace_checks import TraceError, check_trace

LOOKS: dict[tuple[str, int], Look] = {}


def cached_look(variant: str = "plain", beam: int = 3) -> Look:
    if (variant, beam) not in LOOKS:
        LOOKS[variant, beam] = look(look_model(variant), SENTENCE, beam=beam)
    return LOOKS[variant, beam]


def forced(result: Look, variant: str) -> Tensor:
    """Return the logits (T, V) of the shown translation."""
    with torch.inference_mode():
        return look_model(variant).model(torch.tensor([result.source.ids]), torch.tensor([result.target.input_ids]))[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_trace_file_fits_its_schema(variant: str) -> None:
    check_trace(json.loads(cached_look(variant).to_json()))


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_sum_to_one_over_what_they_may_attend_to(variant: str) -> None:
    for name, maps in cached_look(variant).attention.items():
        weights = maps.weights.values
        mask = np.broadcast_to(maps.mask.values.astype(bool), weights.shape)
        sums = weights.sum(axis=-1)
        assert np.abs(sums - 1).max() < 1e-5, name
        assert (weights[~mask] == 0).all(), name
        if name == "decoder":
            assert (weights[..., np.triu(np.ones(weights.shape[-2:], bool), 1)] == 0).all()
        packed = unpack(json.loads(json.dumps(maps.weights.to_json())))
        assert np.abs(packed - weights).max() <= 1 / 131070 + 1e-7


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_equal_those_of_decoding_step_by_step(variant: str) -> None:
    """The weights equal those of decoding the same tokens with a cache, not those of another row of the beam."""
    result, model = cached_look(variant), look_model(variant).model
    twin, records = record_attention(model)
    with torch.inference_mode():
        memory = twin.encode(torch.tensor([result.source.ids]))
        cache = twin.make_cache()
        for id in result.target.input_ids:
            twin.decode(torch.tensor([[id]]), memory, cache=cache)
    for layer in range(len(model.decoder.layers)):
        cross = torch.cat(records[f"decoder.layers.{layer}.cross_attention"], dim=2)[0]
        assert largest_difference(cross, torch.from_numpy(result.attention["cross"].weights.values[layer])) < 2e-5
        own = result.attention["decoder"].weights.values[layer]
        for t, row in enumerate(records[f"decoder.layers.{layer}.attention"]):
            assert np.abs(row[0, :, 0].numpy() - own[:, t, : t + 1]).max() < 2e-5


@pytest.mark.parametrize("variant", ["plain", "pre-norm", "rotary", "learned"])
def test_the_translation_equals_the_engines(variant: str) -> None:
    result = cached_look(variant)
    settings = SearchSettings(beam=3, n_best=3, max_len=result.beam.limit)
    best = TorchEngine(look_model(variant).model).search([Request(result.source.ids[:-1])], settings)[0]
    assert [tuple(one.ids) for one in best] == [one.ids for one in result.beam.hypotheses]
    assert [one.score for one in best] == pytest.approx([one.score for one in result.beam.hypotheses], abs=1e-4)
    assert result.translation.text == tokenizers().target.decode(best[0].ids) == result.target.text
    target_ids = best[0].ids + [SPECIAL_IDS.eos_id] * best[0].complete
    assert list(result.target.ids) == target_ids and list(result.target.input_ids) == [
        SPECIAL_IDS.bos_id,
        *target_ids[:-1],
    ]


def test_a_row_is_the_query_that_produced_its_token() -> None:
    """Row t does not depend on token t and later tokens; row t + 1 does."""
    one = look(look_model(), SENTENCE, target="Ein Hund rennt.", beam=1)
    two = look(look_model(), SENTENCE, target="Ein Mann isst Brot.", beam=1)
    t = next(i for i, (a, b) in enumerate(zip(one.target.ids, two.target.ids, strict=False)) if a != b)
    assert t > 0
    for kind in ("cross", "decoder"):
        first, second = (x.attention[kind].weights.values[..., : t + 1] for x in (one, two))
        assert np.abs(first[:, :, : t + 1] - second[:, :, : t + 1]).max() < 1e-6
        assert np.abs(first[:, :, t + 1] - second[:, :, t + 1]).max() > 1e-4
    assert one.steps[t].top == two.steps[t].top and one.steps[t].probability != two.steps[t].probability


@pytest.mark.parametrize("variant", ["plain", "pre-norm", "batch norm", "alibi"])
def test_steps_are_the_models_own_distribution(variant: str) -> None:
    result = cached_look(variant)
    p = forced(result, variant).double().softmax(dim=-1)
    for t, step in enumerate(result.steps):
        assert step.probability == pytest.approx(float(p[t, step.id]), abs=1e-6)
        assert math.exp(step.logit - step.log_sum) == pytest.approx(step.probability)
        assert step.entropy == pytest.approx(float(-(p[t] * p[t].log2()).sum()), abs=1e-4)
        assert [one.probability for one in step.top] == pytest.approx(p[t].topk(10).values.tolist(), abs=1e-6)
        assert step.rank == int((p[t] > p[t, step.id]).sum())
        assert [one.token for one in step.top] == tokenizers().target.pieces([one.id for one in step.top])


def test_the_score_is_the_sum_of_the_steps() -> None:
    result = cached_look()
    assert sum(math.log(step.probability) for step in result.steps) == pytest.approx(result.translation.score, abs=1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_last_lens_equals_the_model(variant: str) -> None:
    result = cached_look(variant)
    last = [
        *result.lens.decoder[-1:],
        *(result.lens.encoder[-1:] if look_model(variant).model.config.join == "last" else ()),
    ]
    for layer in last:
        for lens, step in zip(layer.steps, result.steps, strict=True):
            assert lens.probability == pytest.approx(step.probability, abs=1e-5)
            assert lens.entropy == pytest.approx(step.entropy, abs=1e-3)
            assert [one.probability for one in lens.top] == pytest.approx(
                [one.probability for one in step.top[:3]], abs=1e-5
            )
    model = look_model(variant).model
    assert [one.layer for one in result.lens.decoder] == list(range(len(model.decoder.layers) + 1))
    assert [one.layer for one in result.lens.encoder] == list(range(len(model.encoder.layers) + 1))


def test_the_text_of_the_last_decoder_lens_is_the_models_greedy_text() -> None:
    result = cached_look("plain", beam=1)
    target_ids = [id for id in result.target.ids if id != SPECIAL_IDS.eos_id]
    last, first = result.lens.encoder[-1], result.lens.encoder[0]
    assert list(last.ids[: len(target_ids)]) == target_ids
    assert first.ids != last.ids
    memory = look_model().model.encode(torch.tensor([result.source.ids]))
    states = result.tensors["encoder.layers.0"]
    (alone,) = write_greedily(MemoryStep(look_model().model, Memory([states], memory.mask)), [], max_len=40)
    assert result.lens.encoder[1].ids[:40] == tuple(alone)[: len(result.lens.encoder[1].ids)]


def test_the_tree_leads_to_the_hypotheses() -> None:
    result = cached_look()
    events = {event.node: event for event in result.beam.events}
    assert sorted(events) == list(range(1, len(events) + 1))
    for hypothesis in result.beam.hypotheses:
        path = [events[node] for node in hypothesis.nodes]
        assert [one.parent for one in path] == [0, *hypothesis.nodes[:-1]]
        assert [one.step for one in path] == list(range(1, len(path) + 1))
        assert [one.id for one in path] == [*hypothesis.ids, *([SPECIAL_IDS.eos_id] if hypothesis.complete else [])]
        assert [one.fate for one in path] == ["kept"] * (len(path) - 1) + ["finished"]
        assert (path[-1].score, path[-1].normalized_score) == (hypothesis.score, hypothesis.normalized_score)
    assert all(event.token == tokenizers().target.pieces([event.id])[0] for event in result.beam.events)
    assert all(event.continuation is None for event in result.beam.events)


def test_the_continuation_of_a_pruned_branch_equals_a_forced_prefix() -> None:
    result = look(look_model(), SENTENCE, beam=3, branches=4)
    events = {event.node: event for event in result.beam.events}
    cut = [event for event in result.beam.events if event.continuation is not None]
    assert len(cut) == 4 and all(event.fate == "pruned" for event in cut)
    check_trace(json.loads(result.to_json()))
    event = cut[-1]
    prefix, node = [], event.node
    while node:
        prefix.insert(0, events[node].id)
        node = events[node].parent
    again = look(look_model(), SENTENCE, beam=1, prefix=prefix)
    assert event.continuation is not None
    assert list(event.continuation.ids[: len(prefix)]) == prefix
    assert event.continuation.ids == tuple(id for id in again.target.ids if id != SPECIAL_IDS.eos_id)
    assert event.continuation.text == again.target.text == again.translation.text
    assert event.continuation.score == pytest.approx(again.translation.score, abs=1e-4)
    assert (again.target.kind, again.target.n_forced) == ("prefix", len(prefix))


def test_a_reference_is_shown_with_the_models_own_translation() -> None:
    result = look(look_model(), SENTENCE, target="Ein Hund rennt.", beam=3)
    assert (result.target.kind, result.target.n_forced) == ("reference", len(result.target.ids))
    assert result.target.text == "Ein Hund rennt." and result.target.tokens[-1] == "</s>"
    assert result.translation.text == cached_look().translation.text
    assert result.beam == cached_look().beam
    check_trace(json.loads(result.to_json()))


def test_the_alignment_has_the_largest_weight_of_the_last_layer() -> None:
    result = cached_look()
    mean = result.attention["cross"].weights.values[-1].mean(axis=0)[:, :-1]  # without the end mark
    assert {t: s for s, t in result.alignment} == {
        t: int(row.argmax()) for t, row in enumerate(mean) if result.target.ids[t] != SPECIAL_IDS.eos_id
    }


def test_the_alignment_excludes_end_tokens() -> None:
    weights = torch.tensor([[[[0.1, 0.3, 0.6], [0.2, 0.1, 0.7], [0.0, 0.0, 1.0]]]])
    end = SPECIAL_IDS.eos_id
    assert word_alignment(weights, [5, 6, end], [7, 8, end], {end}) == ((1, 0), (0, 1))


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_summary_numbers_of_heads(kind: str) -> None:
    maps = cached_look().attention[kind]
    weights = maps.weights.values.astype(float)
    bits = -np.where(weights > 0, weights * np.log2(np.maximum(weights, 1e-300)), 0).sum(axis=-1).mean(axis=-1)
    assert np.allclose(maps.entropy, bits, atol=1e-5)
    if kind != "cross":
        near = np.abs(np.subtract.outer(np.arange(weights.shape[2]), np.arange(weights.shape[3]))) <= 1
        assert np.allclose(maps.locality, (weights * near).sum(axis=-1).mean(axis=-1), atol=1e-5)
    assert (maps.alignment is None) == (kind != "cross")


# Changes: heads that are silent, words that are hidden


@pytest.mark.parametrize("variant", ["plain", "rotary", "additive", "window"])
def test_an_ablated_head_equals_a_zero_block_of_w_o(variant: str) -> None:
    heads = [("cross", 1, 2), ("encoder", 0, 0), ("decoder", 1, 3)]
    result = look(look_model(variant), SENTENCE, beam=2, target="Ein Hund.", without_heads=heads)
    model = copy.deepcopy(look_model(variant).model)
    attentions = {
        "cross": model.decoder.layers[1].cross_attention,
        "encoder": model.encoder.layers[0].attention,
        "decoder": model.decoder.layers[1].attention,
    }
    with torch.inference_mode():
        for kind, _, head in heads:
            d_head = attentions[kind].d_head
            attentions[kind].to_out.weight[:, head * d_head : (head + 1) * d_head] = 0.0
        logits = model(torch.tensor([result.source.ids]), torch.tensor([result.target.input_ids]))[0]
    expected = logits.double().log_softmax(dim=-1)
    for t, step in enumerate(result.steps):
        assert math.log(step.probability) == pytest.approx(float(expected[t, step.id]), abs=1e-4)
    assert not result.tensors["decoder.layers.1.cross_attention.heads"][:, 2].any()
    assert np.abs(result.attention["cross"].weights.values[1, 2].sum(axis=-1) - 1).max() < 1e-5  # it looks, in vain
    check_trace(json.loads(result.to_json()))


def test_changes_compare_before_and_after() -> None:
    plain, result = (
        cached_look(),
        look(look_model(), SENTENCE, beam=3, without_heads=[("cross", 0, 1)], masked_words=[1]),
    )
    assert result.changes is not None and plain.changes is None
    assert result.changes.before.text == plain.translation.text
    assert [step.id for step in result.changes.steps] == list(plain.target.ids)
    assert [step.before for step in result.changes.steps] == pytest.approx(
        [step.probability for step in plain.steps], abs=1e-6
    )
    assert any(abs(step.before - step.after) > 1e-4 for step in result.changes.steps)


def test_after_is_the_changed_models_probability_of_the_unchanged_translation() -> None:
    plain, result = cached_look(), look(look_model(), SENTENCE, beam=3, without_heads=[("encoder", 1, 3)])
    model = copy.deepcopy(look_model().model)
    with torch.inference_mode():
        model.encoder.layers[1].attention.to_out.weight[:, 12:] = 0.0  # four heads of four numbers
        logits = model(torch.tensor([plain.source.ids]), torch.tensor([plain.target.input_ids]))[0]
    expected = logits.double().softmax(dim=-1)
    assert result.changes is not None
    assert [step.after for step in result.changes.steps] == pytest.approx(
        [float(expected[t, id]) for t, id in enumerate(plain.target.ids)], abs=1e-6
    )


@pytest.mark.parametrize("variant", ["plain", "pre-norm", "local", "alibi"])
def test_a_masked_word_has_no_influence(variant: str) -> None:
    """Two sentences that differ only in the masked word, with the same number of tokens, have the same translation."""
    pieces = {
        word: len(tokenizers().source.encode(f"A {word} runs.")) for word in ("dog", "cat", "man", "big", "tired")
    }
    first, second = next(pair for pair in itertools.combinations(pieces, 2) if pieces[pair[0]] == pieces[pair[1]])
    one, two = (look(look_model(variant), f"A {word} runs.", beam=2, masked_words=[1]) for word in (first, second))
    assert one.source.ids != two.source.ids and len(one.source.ids) == len(two.source.ids)
    assert one.source.masked == tuple(range(*one.source.words[1])) and one.source.masked
    assert one.translation.text == two.translation.text
    assert [s.probability for s in one.steps] == pytest.approx([s.probability for s in two.steps], abs=1e-6)
    for kind in ("encoder", "cross"):
        assert not one.attention[kind].weights.values[..., list(one.source.masked)].any()
    check_trace(json.loads(one.to_json()))


# What can be looked at, and what is refused


def test_every_kind_of_model_argument_gives_the_same_look(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "mine", look_model().model, tokenizers())
    translator = Translator(TorchEngine(look_model().model), tokenizers(), reach=SourceLimit(64))
    looks = [
        heedful.look(folder, SENTENCE, beam=2),
        heedful.look(str(folder), SENTENCE, beam=2),
        heedful.look(translator, SENTENCE, beam=2),
        heedful.look(Translator.load(folder, engine="torch"), SENTENCE, beam=2),
        heedful.look(LoadedModel("seq2seq", look_model().model, tokenizers()), SENTENCE, beam=2),
    ]
    assert {one.translation.text for one in looks} == {looks[0].translation.text}
    assert [one.model.name for one in looks] == ["mine", "mine", "model", "mine", "model"]
    assert str(tmp_path) not in looks[0].to_json()


def test_the_model_keeps_its_mode() -> None:
    model = look_model().model.train()
    try:
        assert look(look_model(), SENTENCE, beam=3).to_json() == cached_look().to_json()
        assert model.training and model.encoder.layers[0].training
    finally:
        model.eval()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("  ", {}, "empty"),
        ("dog " * 300, {}, "255"),
        (SENTENCE, {"target": "Hund " * 600}, "511"),
        (SENTENCE, {"target": "Hund", "prefix": [5]}, "prefix"),
        (SENTENCE, {"prefix": [10_000]}, "10000"),
        (SENTENCE, {"prefix": [3]}, "prefix: 3"),
        (SENTENCE, {"masked_words": [9]}, "masked_words: 9 would be word number 10"),
        (SENTENCE, {"masked_words": [0, 1, 2, 3]}, "all words"),
        (SENTENCE, {"without_heads": [("crss", 0, 0)]}, "did you mean 'cross'"),
        (SENTENCE, {"without_heads": [("cross", 2, 0)]}, "layer number 3"),
        (SENTENCE, {"without_heads": [("encoder", 0, 4)]}, "head number 5"),
        (SENTENCE, {"beam": 0}, "'beam'"),
    ],
)
def test_errors_name_the_value(text: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        look(look_model(), text, **options)  # type: ignore[arg-type]


def test_the_schema_rejects_damaged_files() -> None:
    good = json.loads(cached_look().to_json())
    check_trace(good)

    def changed(*path: object, value: object) -> dict[str, object]:
        trace = copy.deepcopy(good)
        place = trace
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return trace

    for path, value in [
        (("version",), 1),
        (("steps",), good["steps"][1:]),
        (("steps", 0, "probability"), 1.5),
        (("steps", 0, "probability"), None),
        (("source", "words"), [[0, 1]]),
        (("attention", "cross", "weights"), good["attention"]["decoder"]["mask"]),
        (("walk", "encoder", "layers", 0, "attention", "q"), None),
        (("walk", "encoder", "layers", 0, "surplus"), None),
        (("halting",), {}),
        (("answer",), []),
        (("beam", "events", 0, "fate"), "lost"),
        (("changes",), {}),
    ]:
        with pytest.raises(TraceError):
            check_trace(changed(*path, value=value))
