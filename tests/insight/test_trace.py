"""A trace records every module and attention, and leaves the model unchanged."""

import threading

import pytest
import torch
from torch import Tensor, nn

from deterministic import largest_difference, whole_numbers
from heedful.decoding.search.continuous_batching import search
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.reference import Seq2SeqStep
from heedful.insight.trace import trace
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.attention import attention_weights, masked_softmax, share_heads
from look_models import VARIANTS, look_model


def inputs(model: Seq2Seq) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return two sentences of different lengths."""
    config = model.config
    source = whole_numbers(2, 9, below=config.source_vocab_size, first=4, name="source")
    target = whole_numbers(2, 7, below=config.target_vocab_size, first=4, name="target")
    source_mask = torch.arange(9) < torch.tensor([[9], [5]])
    target_mask = torch.arange(7) < torch.tensor([[7], [4]])
    return source, target, source_mask, target_mask


def state_of(model: nn.Module) -> list[object]:
    """Return everything of a model that a trace could change."""
    return [
        (
            name,
            id(module),
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
            id(getattr(module, "attend", None)),
        )
        for name, module in model.named_modules(remove_duplicate=False)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("training", [False, True], ids=["resting", "training"])
def test_tracing_changes_no_bit_and_leaves_the_model_unchanged(variant: str, training: bool) -> None:
    model = look_model(variant).model.train(training)
    before = state_of(model)
    try:
        buffers = {name: one.clone() for name, one in model.named_buffers()}
        torch.manual_seed(1)
        untraced = model(*inputs(model))
        model.load_state_dict(buffers, strict=False)  # running statistics of a norm go on while training
        torch.manual_seed(1)
        with trace(model) as t:
            traced = t.model(*inputs(model))
            assert state_of(model) == before
        model.load_state_dict(buffers, strict=False)
    finally:
        model.eval()
    assert torch.equal(traced, untraced)
    assert torch.equal(t["head"], untraced)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_weights_are_those_of_the_formula(variant: str) -> None:
    """Rows sum to one, padding has weight 0, heads are weights x values, and full attention is a softmax."""
    model = look_model(variant).model
    source, target, source_mask, target_mask = inputs(model)
    with trace(model) as t, torch.inference_mode():
        t.model(source, target, source_mask, target_mask)
    paths = [name.removesuffix(".weights") for name in t.calls if name.endswith(".weights")]
    assert len(paths) == len(model.encoder.layers) + 2 * len(model.decoder.layers)
    for path in paths:
        weights, n_heads = t[f"{path}.weights"], model.config.n_heads
        sums = weights.sum(dim=-1)
        real = sums[source_mask[:, None].expand_as(sums)] if path.startswith("encoder") else sums
        if model.config.pattern.kind in ("full", "additive") or "cross" in path:
            assert largest_difference(real, torch.ones_like(real)) < 1e-5
            mask = t[f"{path}.mask"] if f"{path}.mask" in t.calls else None
            assert largest_difference(masked_softmax(t[f"{path}.scaled"], mask), weights) < 1e-5
        if not path.startswith("decoder") or "cross" in path:
            hidden = ~source_mask[:, None, None].expand_as(weights)
            assert not weights[hidden].any()
        elif model.config.residual == "post":
            assert not weights.triu(1).any()
        values = share_heads(t[f"{path}.v"], n_heads)
        assert largest_difference(weights @ values, t[f"{path}.heads"]) < 1e-5


def test_each_module_has_its_own_name() -> None:
    """A tied embedding is one module under two names; the trace distinguishes them, and the position code as well."""
    model = look_model().model
    assert model.source_embedding is model.target_embedding
    source, target, *masks = inputs(model)
    with trace(model) as t:
        t.model(source, target, *masks)
    assert t["source_embedding"].shape == (2, 9, 16) and t["target_embedding"].shape == (2, 7, 16)
    assert torch.equal(t["target_embedding.table"] * 4.0, t["target_embedding"])
    assert torch.equal(t["source_embedding.table.input"], source)
    for name in ("q", "k", "v", "scores", "scaled", "mask", "weights", "heads", "to_out"):
        assert f"decoder.layers.1.attention.{name}" in t.calls
    for name in (
        "source_positions",
        "encoder.layers.0.attention_residual",
        "encoder.layers.0.attention_residual.norm",
        "encoder.layers.0.attention_residual.norm.input",
        "encoder.layers.0.feed_forward.inner",
        "encoder.layers.0.feed_forward.outer.input",
        "encoder.0",
        "decoder",
        "head",
    ):
        assert name in t.calls, name
    assert not any("dropout" in name for name in t.calls)
    with pytest.raises(KeyError, match=r"encoder\.layer\.0"):
        t["encoder.layer.0"]


def test_a_whole_decode_is_recorded_step_by_step() -> None:
    model = look_model().model
    requests, settings = [Request([5, 9, 30, 7])], SearchSettings(beam=3, max_len=9)
    untraced = search(Seq2SeqStep(model), requests, settings)
    with trace(model) as t:
        traced = search(Seq2SeqStep(t.model), requests, settings)
    assert traced == untraced
    calls = t.calls["decoder.layers.0.attention.weights"]
    assert [one.size(-1) for one in calls] == list(range(1, len(calls) + 1))  # one more key at each step
    assert len(t.calls["encoder.layers.0"]) == 1
    keys = t.calls["decoder.layers.0.attention.k"]
    assert keys[0].size(2) == 1 and torch.isfinite(keys[0]).all()


def test_after_the_block_nothing_more_is_recorded_and_names_stay_readable() -> None:
    model = look_model().model
    with trace(model) as t:
        t.model(*inputs(model))
    n_calls = len(t.calls["head"])
    t.model(*inputs(model))
    assert len(t.calls["head"]) == n_calls


def test_a_traced_model_can_be_used_by_other_threads() -> None:
    model = look_model().model
    batch = inputs(model)
    with torch.inference_mode():
        expected = model(*batch)
    answers: list[bool] = []
    stop = threading.Event()

    def use() -> None:
        with torch.inference_mode():
            while not stop.is_set():
                answers.append(torch.equal(model(*batch), expected))

    user = threading.Thread(target=use)
    user.start()
    for _ in range(10):
        with trace(model) as t:
            t.model(*batch)
    stop.set()
    user.join()
    assert answers and all(answers)


def test_scores_are_before_the_scale() -> None:
    model = look_model().model
    with trace(model) as t:
        t.model(*inputs(model))
    path = "encoder.layers.1.attention"
    q, k = t[f"{path}.q"], t[f"{path}.k"]
    assert torch.equal(t[f"{path}.scores"], q @ k.transpose(-2, -1))
    assert largest_difference(t[f"{path}.scaled"], t[f"{path}.scores"] / 2.0) < 1e-6  # d_head = 4
    assert largest_difference(t[f"{path}.weights"], attention_weights(q, k, t[f"{path}.mask"])) < 1e-6
