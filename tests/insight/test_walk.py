"""The formulas of the paper, applied to the numbers of the walk, give the next numbers, up to the model's logits."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deterministic import largest_difference
from heedful.insight.look import look
from heedful.insight.positions import position_facts
from heedful.insight.trace import trace
from heedful.insight.walk import FeedForwardVectors, HeadVectors, Layer, Vector, walk_through
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.feedforward import FEED_FORWARDS
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.nn.positions import sinusoidal_code
from look_models import SENTENCE, VARIANTS, look_model

EVERYTHING = 10_000
SOURCE, TARGET = [5, 9, 30, 7, 3], [2, 11, 40, 8]


def whole(vector: object) -> Tensor:
    assert isinstance(vector, Vector)
    values = torch.from_numpy(vector.first.values)
    norms = torch.from_numpy(vector.norm.values)
    assert largest_difference(torch.linalg.vector_norm(values, dim=-1), norms) < 1e-4
    return values


def close(result: Tensor, expected: Tensor) -> bool:
    return result.shape == expected.shape and largest_difference(result, expected) < 1e-4


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_number_follows_from_those_before_it(variant: str) -> None:
    model = look_model(variant).model
    with trace(model) as t, torch.inference_mode():
        logits = t.model(torch.tensor([SOURCE]), torch.tensor([TARGET]))[0]
    with torch.inference_mode():
        walk = walk_through(t, numbers=EVERYTHING)
        memories = _encode(model, walk.encoder.layers, _start(model, walk.encoder.start, SOURCE), walk.encoder.end.norm)
        x = _start(model, walk.decoder.start, TARGET)
        for i, (layer, parts) in enumerate(zip(model.decoder.layers, walk.decoder.layers, strict=True)):
            x = _layer(model, layer, parts, x, memories[i if len(memories) > 1 else 0])  # type: ignore[arg-type]
        if walk.decoder.end.norm is not None:
            assert model.decoder.final_norm is not None
            assert close(model.decoder.final_norm(x), whole(walk.decoder.end.norm))
            x = whole(walk.decoder.end.norm)
        assert close(model.head(x), logits)


def _start(model: Seq2Seq, start: object, ids: list[int]) -> Tensor:
    embedding = whole(start.embedding)  # type: ignore[attr-defined]
    assert close(embedding, (model.source_embedding if ids is SOURCE else model.target_embedding).table.weight[ids])
    scaled = whole(start.scaled)  # type: ignore[attr-defined]
    assert close(scaled, embedding * model.config.d_model**0.5)
    position = start.position  # type: ignore[attr-defined]
    total = scaled if position is None else scaled + whole(position)
    assert close(total, whole(start.input))  # type: ignore[attr-defined]
    return total


def _encode(model: Seq2Seq, layers: tuple[Layer, ...], x: Tensor, norm: Vector | None) -> list[Tensor]:
    outputs = []
    for layer, parts in zip(model.encoder.layers, layers, strict=True):
        x = _layer(model, layer, parts, x, None)  # type: ignore[arg-type]
        outputs.append(x)
    memories: list[Tensor] = [one[0] for one in model.encoder.join([one[None] for one in outputs])]
    if norm is not None:
        assert model.encoder.final_norm is not None
        memories = [model.encoder.final_norm(one) for one in memories]
    return memories


def _layer(
    model: Seq2Seq, layer: EncoderLayer | DecoderLayer, parts: Layer, x: Tensor, memory: Tensor | None
) -> Tensor:
    x = _sub_layer(model, layer, parts, "attention", x, None)
    if memory is not None:
        x = _sub_layer(model, layer, parts, "cross_attention", x, memory)
    return _sub_layer(model, layer, parts, "feed_forward", x, None)


def _sub_layer(model: Seq2Seq, layer: nn.Module, parts: Layer, name: str, x: Tensor, memory: Tensor | None) -> Tensor:
    norm, residual = getattr(layer, f"{name}_residual").norm, model.config.residual
    normed = whole(parts[f"{name}.norm"])
    reads = normed if residual == "pre" else x
    vectors = parts[name]
    if isinstance(vectors, HeadVectors):
        out = _attention(model, getattr(layer, name), vectors, reads, reads if memory is None else memory)
    else:
        assert isinstance(vectors, FeedForwardVectors)
        out = _feed_forward(model, getattr(layer, name), vectors, reads)
    if residual == "none":
        assert parts[f"{name}.added"] is None and close(norm(out), normed)
        return normed
    added = whole(parts[f"{name}.added"])
    assert close(x + out, added)
    assert close(norm(x if residual == "pre" else added), normed)
    return added if residual == "pre" else normed


def _attention(model: Seq2Seq, attention: nn.Module, vectors: HeadVectors, reads: Tensor, memory: Tensor) -> Tensor:
    """Compare q, k, v with the projections (without rotation), and `out` with the concatenated heads times W_O."""
    heads = whole(vectors.heads)  # (H, T, K)
    if attention.rotary is None:
        split = attention.to_q(reads).unflatten(-1, (model.config.n_heads, -1)).transpose(0, 1)
        assert close(split, whole(vectors.q))
    groups = model.config.n_heads // attention.n_kv_heads
    values = attention.to_v(memory).unflatten(-1, (attention.n_kv_heads, -1)).transpose(0, 1)
    assert close(values.repeat_interleave(groups, dim=0), whole(vectors.v))
    out = whole(vectors.out)
    assert close(attention.to_out(heads.transpose(0, 1).flatten(1)), out)
    return out


def _feed_forward(model: Seq2Seq, network: nn.Module, vectors: FeedForwardVectors, reads: Tensor) -> Tensor:
    bend = FEED_FORWARDS[model.config.activation][1]
    inner = whole(vectors.inner)
    assert close(network.inner(reads), inner)
    if vectors.gate is not None:
        assert close(network.gate(reads), whole(vectors.gate))
        assert close(bend(whole(vectors.gate)) * inner, whole(vectors.activated))
    else:
        assert close(bend(inner), whole(vectors.activated))
    out = whole(vectors.out)
    assert close(network.outer(whole(vectors.activated)), out)
    return out


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_six_steps_of_one_head(variant: str) -> None:
    """q . k, x scale, + bias, mask, softmax, x v: computed from the numbers of the file alone."""
    result = look(look_model(variant), SENTENCE, beam=1, target="Ein Hund rennt.")
    with trace(look_model(variant).model) as t, torch.inference_mode():
        t.model(torch.tensor([result.source.ids]), torch.tensor([result.target.input_ids]))
    with torch.inference_mode():
        walk = walk_through(t, numbers=EVERYTHING)
    stacks = (("encoder", walk.encoder.layers, "attention"), ("decoder", walk.decoder.layers, "attention"))
    for kind, layers, name in (*stacks, ("cross", walk.decoder.layers, "cross_attention")):
        maps = result.attention[kind]
        for i, parts in enumerate(layers):
            vectors = parts[name]
            assert isinstance(vectors, HeadVectors)
            scores = torch.from_numpy(maps.scores.values[i])
            if result.model.score == "dot":
                assert close(whole(vectors.q) @ whole(vectors.k).transpose(-2, -1), scores)
            scaled = scores * vectors.scale
            if vectors.bias:
                bias = result.positions.bias
                assert bias is not None and kind != "cross"
                table = bias.encoder if kind == "encoder" else bias.decoder
                n_queries, n_keys = scores.shape[1:]
                scaled = scaled + torch.from_numpy(table.values[:, :n_queries, :n_keys])
            mask = torch.from_numpy(np.broadcast_to(maps.mask.values, maps.weights.values.shape)[i].astype(bool))
            weights = scaled.masked_fill(~mask, -torch.inf).softmax(dim=-1)
            assert close(weights, torch.from_numpy(maps.weights.values[i]))
            assert close(weights @ whole(vectors.v), whole(vectors.heads))


def test_the_file_has_the_first_numbers_and_the_length_of_all() -> None:
    result = look(look_model(), SENTENCE, beam=1)
    q = result.tensors["encoder.layers.0.feed_forward.inner"][0]
    inner = result.walk.encoder.layers[0]["feed_forward"]
    assert isinstance(inner, FeedForwardVectors)
    assert inner.inner.first.values.shape == (len(result.source.ids), 8)
    assert largest_difference(torch.from_numpy(inner.inner.first.values), q[:, :8]) == 0
    assert largest_difference(torch.from_numpy(inner.inner.norm.values), torch.linalg.vector_norm(q, dim=-1)) < 1e-5


@pytest.mark.parametrize(
    ("variant", "steps"),
    [
        ("plain", "attention attention.added attention.norm feed_forward feed_forward.added feed_forward.norm"),
        ("pre-norm", "attention.norm attention attention.added feed_forward.norm feed_forward feed_forward.added"),
        ("no residual", "attention attention.norm feed_forward feed_forward.norm"),
    ],
)
def test_the_walk_lists_the_order_of_its_steps(variant: str, steps: str) -> None:
    result = look(look_model(variant), SENTENCE, beam=1)
    assert result.walk.encoder.steps == tuple(steps.split())
    assert [step for step in result.walk.decoder.steps if "cross" not in step] == steps.split()


# Positions


def test_the_position_code_is_the_papers() -> None:
    facts = position_facts(look_model().model, 7)
    assert facts.code is not None and facts.similarity is not None and facts.rows == 20
    assert largest_difference(torch.from_numpy(facts.code.values), sinusoidal_code(torch.arange(20), 16)) < 1e-6
    assert np.allclose(np.diag(facts.similarity.values), 1, atol=1e-6)


def test_a_rotation_is_shown_as_cosines_and_sines() -> None:
    model = look_model("rotary").model
    facts = position_facts(model, 30)
    assert facts.code is not None and facts.rows == 30 and facts.code.values.shape == (30, 6)
    angles = np.arange(30)[:, None] * 10_000.0 ** (-np.arange(3) / 3)
    expected = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(30, 6)
    assert np.abs(facts.code.values - expected).max() < 1e-6


def test_a_learned_table_limits_the_shown_positions() -> None:
    facts = position_facts(look_model("learned").model, 400)
    assert facts.rows == 120 and facts.target_code is not None and facts.code is not None
    assert not np.array_equal(facts.code.values, facts.target_code.values)


@pytest.mark.parametrize("variant", ["relative", "alibi", "no positions"])
def test_positions_that_add_nothing_to_the_embedding_have_no_code(variant: str) -> None:
    facts = position_facts(look_model(variant).model, 10)
    assert facts.code is None and facts.similarity is None
    assert (facts.bias is None) == (variant == "no positions")
