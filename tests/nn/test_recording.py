import pytest
import torch
from torch import Tensor, nn

from deterministic import fill, largest_difference, mask_of, numbers, whole_numbers
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from heedful.nn.attention import AdditiveAttend, Attend, MultiHeadAttention, attend, attend_fused, attention_weights
from heedful.nn.masks import combine
from heedful.nn.recording import record_attention, structural_copy, weights_of
from heedful.nn.sparse_attention import (
    Dilated,
    Local,
    PatternAttention,
    Sparse,
    Strided,
    TopKAttention,
    Window,
    pattern_mask,
)

PATTERNS = ("full", "additive", "local", "window", "strided", "dilated", "sparse", "top_k")


def tiny(**changes: object) -> Seq2Seq:
    values = {
        "source_vocab_size": 20,
        "target_vocab_size": 20,
        "d_model": 16,
        "n_layers": 2,
        "n_heads": 4,
        "d_ff": 32,
        **changes,
    }
    model = fill(Seq2Seq(Seq2SeqConfig(**values)))  # type: ignore[arg-type]
    assert isinstance(model, Seq2Seq)
    return model


def inputs(n_source: int = 9, n_target: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two sentences of unlike lengths."""
    source = whole_numbers(2, n_source, below=20, first=4, name="source")
    target = whole_numbers(2, n_target, below=20, first=4, name="target")
    source_mask = torch.arange(n_source) < torch.tensor([[n_source], [n_source - 4]])
    target_mask = torch.arange(n_target) < torch.tensor([[n_target], [n_target - 3]])
    return source, target, source_mask, target_mask


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("changes", [{}, {"n_kv_heads": 2, "positions": "rotary"}], ids=["plain", "shared heads"])
def test_the_copys_outputs_are_the_models_bit_for_bit(pattern: str, changes: dict[str, object]) -> None:
    model = tiny(pattern=PatternConfig(kind=pattern, span=2), **changes)  # type: ignore[arg-type]
    twin, records = record_attention(model)
    assert torch.equal(twin(*inputs()), model(*inputs()))
    assert sorted(records) == sorted(
        f"{stack}.layers.{i}.{name}"
        for stack, names in (("encoder", ["attention"]), ("decoder", ["attention", "cross_attention"]))
        for name in names
        for i in range(2)
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_sum_to_one_over_real_keys_and_padding_gets_nothing(pattern: str) -> None:
    twin, records = record_attention(tiny(pattern=PatternConfig(kind=pattern, span=2)))  # type: ignore[arg-type]
    source, target, source_mask, target_mask = inputs()
    twin(source, target, source_mask, target_mask)
    for path, (weights,) in records.items():
        n_keys = source.size(1) if "encoder" in path or "cross" in path else target.size(1)
        assert weights.shape == (2, 4, source.size(1) if "encoder" in path else target.size(1), n_keys)
        assert (weights >= 0).all()
        real_queries = source_mask if "encoder" in path else target_mask
        sums = weights.sum(dim=-1).transpose(1, 2)[real_queries]
        assert largest_difference(sums, torch.ones_like(sums)) < 1e-12
        if n_keys == source.size(1):
            assert (weights.transpose(1, 3)[~source_mask] == 0).all()
        else:
            assert (weights.triu(1) == 0).all()  # no look into the future


def test_the_model_is_not_touched() -> None:
    model = tiny(pattern=PatternConfig(kind="additive"))
    before = model(*inputs())
    modules = {path: (module, dict(vars(module))) for path, module in model.named_modules()}
    twin, records = record_attention(model)
    twin(*inputs())
    twin.train()
    assert all(records.values())
    assert dict(model.named_modules()) == {p: m for p, (m, _) in modules.items()}
    for module, values in modules.values():
        assert vars(module).keys() == values.keys()
        assert all(vars(module)[name] is value for name, value in values.items())
        assert not module.training
        if isinstance(module, MultiHeadAttention):
            assert isinstance(module.attend, AdditiveAttend)
    n_recorded = len(records["decoder.layers.0.attention"])
    assert torch.equal(model(*inputs()), before)
    assert len(records["decoder.layers.0.attention"]) == n_recorded == 1


def test_the_copy_has_other_modules_around_the_same_parameters() -> None:
    model = tiny(positions="learned", norm="batch")
    twin = structural_copy(model)
    ours, theirs = set(model.modules()), set(twin.modules())
    assert not ours & theirs and len(ours) == len(theirs)
    assert [(n, id(p)) for n, p in model.named_parameters()] == [(n, id(p)) for n, p in twin.named_parameters()]
    assert [(n, id(p)) for n, p in model.named_buffers()] == [(n, id(p)) for n, p in twin.named_buffers()]
    assert twin.target_embedding is twin.source_embedding  # tied stays tied
    with torch.no_grad():
        next(model.parameters()).mul_(2.0)
    assert torch.equal(model(*inputs()), twin(*inputs()))


def test_a_module_that_is_used_twice_is_copied_once_and_records_each_use() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([MultiHeadAttention(d_model=8, n_heads=2)] * 2)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    model = fill(Twice())
    twin, records = record_attention(model)
    assert torch.equal(twin(numbers(1, 3, 8)), model(numbers(1, 3, 8)))
    assert {path: len(calls) for path, calls in records.items()} == {"layers.0": 2}


def masks_and_attends() -> list[tuple[str, Attend, Tensor | None]]:
    """An attend, and the mask under which plain attention has the same weights."""
    rules = [Local(2), Window(3), Strided(2), Dilated(3), Sparse(2), Local(2, causal=True), Sparse(3, causal=True)]
    return [
        ("formula", attend, None),
        ("fused", attend_fused, None),
        *((repr(rule), PatternAttention(rule), pattern_mask(rule, 11, 11)) for rule in rules),
    ]


@pytest.mark.parametrize(
    ("name", "function", "own"), masks_and_attends(), ids=lambda x: x if isinstance(x, str) else ""
)
@pytest.mark.parametrize("n_heads", [4, 2])
def test_the_weights_are_those_of_the_formula(name: str, function: Attend, own: Tensor | None, n_heads: int) -> None:
    q, k, v = numbers(2, 4, 11, 6, name="q"), numbers(2, n_heads, 11, 6, name="k"), numbers(2, n_heads, 11, 6, name="v")
    mask = mask_of(2, 1, 1, 11, name="real") | (torch.arange(11) < 2)
    shared = k.repeat_interleave(4 // n_heads, dim=1)
    expected = attention_weights(q, shared, combine(own, mask), scale=0.7)
    found = weights_of(function, q, k, v, mask, scale=0.7)
    assert largest_difference(found, expected) < 1e-12


@pytest.mark.parametrize(
    "function", [attend, attend_fused, TopKAttention(3), AdditiveAttend(n_heads=4, d_head=6).double()]
)
@pytest.mark.parametrize("n_keys", [1, 5, 6, 7, 40])
def test_the_weights_times_the_values_are_the_output(function: Attend, n_keys: int) -> None:
    q, k, v = numbers(2, 4, 3, 6, name="q"), numbers(2, 4, n_keys, 6, name="k"), numbers(2, 4, n_keys, 6, name="v")
    bias = numbers(1, 4, 3, n_keys, name="bias")
    weights = weights_of(function, q, k, v, bias=bias)
    assert largest_difference(weights @ v, function(q, k, v, bias=bias)) < 1e-12


@pytest.mark.parametrize("pattern", ["full", "local"])
def test_cached_steps_attend_as_the_whole_row_does(pattern: str) -> None:
    """Row t of one pass over the whole target is the query of the step that produced token t, with its cache."""
    model = tiny(pattern=PatternConfig(kind=pattern, span=2))  # type: ignore[arg-type]
    source, target, source_mask, _ = inputs()
    whole, records = record_attention(model)
    whole(source, target, source_mask)
    stepwise, steps = record_attention(model)
    memory, cache = stepwise.encode(source, source_mask), stepwise.make_cache()
    for t in range(target.size(1)):
        stepwise.decode(target[:, t : t + 1], memory, cache=cache)
    for path in (f"decoder.layers.{i}.cross_attention" for i in range(2)):
        rows = torch.cat(steps[path], dim=2)
        assert largest_difference(rows, records[path][0]) < 1e-12


def test_nothing_recorded_holds_a_graph() -> None:
    twin, records = record_attention(tiny())
    assert twin(*inputs()).requires_grad
    assert not any(weights.requires_grad for (weights,) in records.values())
