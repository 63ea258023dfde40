"""A look at a BART, a T5 and a Universal Transformer shows what these models compute."""

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from deterministic import largest_difference
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translator import Translator
from heedful.insight.look import Look, look
from heedful.insight.trace import trace
from heedful.insight.walk import HeadVectors, Vector, walk_through
from heedful.models.model_info import SourceLimit
from heedful.models.model_io import save_model
from heedful.models.universal import Universal
from heedful.nn.recording import record_attention
from look_models import OTHER_FAMILIES, SENTENCE, other_look_model, tokenizers
from trace_checks import TraceError, check_trace

EVERYTHING = 10_000
LOOKS: dict[str, Look] = {}


def cached_look(name: str) -> Look:
    if name not in LOOKS:
        LOOKS[name] = look(other_look_model(name), SENTENCE, beam=3)
    return LOOKS[name]


def forced(name: str) -> Tensor:
    """Return the logits (T, V) of the shown text."""
    result = cached_look(name)
    with torch.inference_mode():
        source_ids, target_in = torch.tensor([result.source.ids]), torch.tensor([result.target.input_ids])
        return other_look_model(name).model(source_ids, target_in)[0]


def whole(vector: object) -> Tensor:
    assert isinstance(vector, Vector)
    return torch.from_numpy(vector.first.values)


def close(result: Tensor, expected: Tensor) -> bool:
    return result.shape == expected.shape and largest_difference(result, expected) < 1e-4


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_the_trace_file_fits_its_schema(name: str) -> None:
    values = json.loads(cached_look(name).to_json())
    check_trace(values)
    assert values["model"]["family"] == name.split()[0].strip(",")
    values["halting"] = {"encoder": None, "decoder": None}
    with pytest.raises(TraceError):
        check_trace(values)


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_the_text_equals_the_engines(name: str) -> None:
    result, look_model = cached_look(name), other_look_model(name)
    special_ids = look_model.model.config.special_ids
    settings = SearchSettings(beam=3, n_best=3, max_len=result.beam.limit)
    best = TorchEngine(look_model.model).search([Request(tokenizers().source.encode(SENTENCE))], settings)[0]
    assert [tuple(one.ids) for one in best] == [one.ids for one in result.beam.hypotheses]
    assert [one.score for one in best] == pytest.approx([one.score for one in result.beam.hypotheses], abs=1e-4)
    opening = [special_ids.bos_id] * special_ids.n_forced
    target_ids = opening + best[0].ids + [special_ids.eos_id] * best[0].complete
    assert list(result.target.ids) == target_ids and list(result.target.input_ids) == [
        special_ids.start_id,
        *target_ids[:-1],
    ]
    assert list(result.source.ids) == [
        *special_ids.with_source_bos(tokenizers().source.encode(SENTENCE)),
        special_ids.eos_id,
    ]
    events = {event.node: event.id for event in result.beam.events}
    assert [events[node] for node in result.beam.hypotheses[0].nodes] == target_ids
    assert result.target.n_forced == len(opening)


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_steps_and_the_last_lens_are_the_models_own_distribution(name: str) -> None:
    result = cached_look(name)
    p = forced(name).double().softmax(dim=-1)
    for t, step in enumerate(result.steps):
        assert step.probability == pytest.approx(float(p[t, step.id]), abs=1e-6)
        assert [one.probability for one in step.top] == pytest.approx(p[t].topk(10).values.tolist(), abs=1e-6)
    for layer in (result.lens.decoder[-1], result.lens.encoder[-1]):
        for lens, step in zip(layer.steps, result.steps, strict=True):
            assert lens.probability == pytest.approx(step.probability, abs=1e-5)
    assert len(result.lens.decoder) == result.model.n_decoder_layers + 1
    assert len(result.lens.encoder) == result.model.n_encoder_layers + 1


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_weights_equal_those_of_decoding_token_by_token(name: str) -> None:
    result, model = cached_look(name), other_look_model(name).model
    for kind, maps in result.attention.items():
        weights = maps.weights.values
        assert np.abs(weights.sum(axis=-1) - 1).max() < 1e-5, kind
        assert (weights[~np.broadcast_to(maps.mask.values.astype(bool), weights.shape)] == 0).all(), kind
    twin, records = record_attention(model)
    with torch.inference_mode():
        memory = twin.encode(torch.tensor([result.source.ids]))
        cache = twin.make_cache()
        for id in result.target.input_ids:
            twin.decode(torch.tensor([[id]]), memory, cache=cache)
    n_tokens = len(result.target.ids)
    for layer in range(result.model.n_decoder_layers):
        if isinstance(model, Universal):
            calls = records["decoder_layer.cross_attention"]
            rows = calls[layer :: len(calls) // n_tokens]
        else:
            rows = records[f"decoder.layers.{layer}.cross_attention"]
        cross = torch.cat(rows, dim=2)[0]
        assert largest_difference(cross, torch.from_numpy(result.attention["cross"].weights.values[layer])) < 2e-5


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_the_walk_leads_from_the_embedding_to_the_logits(name: str) -> None:
    result, model = cached_look(name), other_look_model(name).model
    with trace(model) as t, torch.inference_mode():
        logits = t.model(torch.tensor([result.source.ids]), torch.tensor([result.target.input_ids]))[0]
    with torch.inference_mode():
        walk = walk_through(t, numbers=EVERYTHING)
    for stack in (walk.encoder, walk.decoder):
        start = stack.start
        assert close(whole(start.scaled), whole(start.embedding) * result.model.embedding_scale)
        total = whole(start.scaled) if start.position is None else whole(start.scaled) + whole(start.position)
        assert close(total, whole(start.input))
        enters = start.norm or start.input
        assert close(whole(stack.layers[0]["input"]), whole(enters))
        for step, (before, after) in enumerate(zip(stack.layers, stack.layers[1:], strict=False), start=1):
            out = whole(before[stack.steps[-1]])
            if name == "universal, no halting":
                out = model.encoder_steps.add_position_and_step(out[None], torch.arange(len(out)), step)[0]
            if name != "universal":  # there who has stopped stays as they were
                assert close(out, whole(after["input"]))
    last = walk.decoder.end.norm or walk.decoder.end.mean or walk.decoder.layers[-1]["feed_forward.norm"]
    with torch.inference_mode():
        assert close(model.head(whole(last) * result.model.output_scale), logits)
    _check_six_steps(result, walk)


def _check_six_steps(result: Look, walk: object) -> None:
    """q . k, x scale, + bias, mask, softmax, x v: computed from the numbers of the file alone."""
    stacks = (("encoder", walk.encoder, "attention"), ("decoder", walk.decoder, "attention"))
    for kind, stack, part in (*stacks, ("cross", walk.decoder, "cross_attention")):
        maps = result.attention[kind]
        for i, parts in enumerate(stack.layers):
            vectors = parts[part]
            assert isinstance(vectors, HeadVectors)
            scores = torch.from_numpy(maps.scores.values[i])
            assert close(whole(vectors.q) @ whole(vectors.k).transpose(-2, -1), scores)
            scaled = scores * vectors.scale
            if vectors.bias:
                table = result.positions.bias.encoder if kind == "encoder" else result.positions.bias.decoder
                scaled = scaled + torch.from_numpy(table.values[:, : scores.shape[1], : scores.shape[2]])
            mask = torch.from_numpy(np.broadcast_to(maps.mask.values, maps.weights.values.shape)[i].astype(bool))
            weights = scaled.masked_fill(~mask, -torch.inf).softmax(dim=-1)
            assert close(weights, torch.from_numpy(maps.weights.values[i]))
            assert close(weights @ whole(vectors.v), whole(vectors.heads))


def test_the_output_of_a_universal_transformer_is_the_mean_of_its_steps() -> None:
    result = cached_look("universal")
    with trace(other_look_model("universal").model) as t, torch.inference_mode():
        t.model(torch.tensor([result.source.ids]), torch.tensor([result.target.input_ids]))
    read = {"encoder": "decoder_layer.cross_attention.to_k.input", "decoder": "head.linear.input"}
    for side, packed in (("encoder", result.halting.encoder), ("decoder", result.halting.decoder)):
        weights = torch.from_numpy(packed.values)  # (steps, tokens)
        states = torch.cat(t.calls[f"{side}_layer"])  # (steps, tokens, D)
        assert close((weights[..., None] * states).sum(dim=0), t[read[side]][0])
        assert close(weights.sum(dim=0), torch.ones(weights.size(1)))
    steps = (result.halting.encoder.values > 0).sum(axis=0)
    assert result.model.n_encoder_layers == steps.max() <= 4 and steps.min() < steps.max()
    assert cached_look("universal, no halting").halting is None


def test_a_lens_of_a_universal_transformer_is_the_model_with_fewer_steps() -> None:
    result, model = cached_look("universal"), other_look_model("universal").model
    model.decoder_steps.n_steps = 1
    try:
        p = forced("universal").double().softmax(dim=-1)
    finally:
        model.decoder_steps.n_steps = 3
    assert [one.probability for one in result.lens.decoder[1].steps] == pytest.approx(
        [float(p[t, step.id]) for t, step in enumerate(result.steps)], abs=1e-5
    )


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_changes_and_references(name: str) -> None:
    look_model = other_look_model(name)
    result = look(look_model, SENTENCE, beam=2, target="Ein Hund.", without_heads=[("cross", 0, 1)], masked_words=[1])
    check_trace(json.loads(result.to_json()))
    assert result.target.kind == "reference" and result.changes is not None
    assert not result.attention["cross"].weights.values[..., list(result.source.masked)].any()
    assert any(abs(step.before - step.after) > 1e-4 for step in result.changes.steps)
    forced_on = look(look_model, SENTENCE, beam=2, prefix=[5, 6], branches=3)
    opening = look_model.model.config.special_ids.n_forced
    assert forced_on.target.ids[opening : opening + 2] == (5, 6)
    assert sum(math.log(step.probability) for step in forced_on.steps[opening:]) == pytest.approx(
        forced_on.translation.score, abs=1e-3
    )


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_every_kind_of_model_argument_gives_the_same_look(name: str, tmp_path) -> None:
    look_model = other_look_model(name)
    folder = save_model(tmp_path / "mine", look_model.model, tokenizers())
    translator = Translator(TorchEngine(look_model.model), tokenizers(), reach=SourceLimit(64))
    texts = {look(one, SENTENCE, beam=2).translation.text for one in (folder, translator, look_model)}
    assert len(texts) == 1
    seen_there = look(folder, SENTENCE, beam=2)
    for suffix in ("html", "json", "npz", "svg"):
        assert seen_there.save(tmp_path / f"a.{suffix}").stat().st_size > 1000


@pytest.mark.parametrize("name", ["bart", "bart with BOS", "t5"])
def test_a_branch_is_forced_by_its_ids_after_the_forced_start(name: str) -> None:
    """The prefix is made as docs/look.md describes."""
    result = look(other_look_model(name), SENTENCE, beam=2, branches=12)
    target_ids: dict[int, list[int]] = {0: []}
    for event in result.beam.events:
        target_ids[event.node] = [*target_ids[event.parent], event.id]
    for event in result.beam.events:
        if event.continuation is not None:
            prefix = target_ids[event.node][result.beam.n_opening :]
            assert look(other_look_model(name), SENTENCE, beam=1, prefix=prefix).target.text == event.continuation.text
