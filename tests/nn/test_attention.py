"""Attention: the formula against a reference written out pair by pair, the kernel against the formula, the heads."""

import math
import random
from functools import partial

import pytest
import torch
from torch import Tensor

from deterministic import fill, largest_difference, mask_of, numbers
from heedful.nn.attention import (
    AdditiveAttend,
    MultiHeadAttention,
    attend,
    attend_fused,
    attention_weights,
    share_heads,
)
from heedful.nn.masks import as_additive, causal_mask, padding_mask

ATTENDS = {"formula": attend, "fused": attend_fused}


def reference(q, k, v, mask=None, *, scale=None, bias=None):
    """Attention for people who distrust broadcasting: one query after the other, in float64."""
    batch, n_heads, n_queries, d_head = q.shape
    per_key_head = n_heads // k.size(1)
    scale = 1 / math.sqrt(d_head) if scale is None else scale
    n_keys = k.size(2)
    may = torch.ones(batch, n_heads, n_queries, n_keys, dtype=torch.bool) if mask is None else mask
    may = may.expand(batch, n_heads, n_queries, n_keys)
    added = torch.zeros(1, dtype=torch.float64) if bias is None else bias.double()
    added = added.expand(batch, n_heads, n_queries, n_keys)
    out = []
    for b in range(batch):
        for h in range(n_heads):
            for t in range(n_queries):
                seen = [s for s in range(n_keys) if may[b, h, t, s]]
                result = torch.zeros(v.size(-1), dtype=torch.float64)
                if seen:
                    keys, values = k[b, h // per_key_head].double(), v[b, h // per_key_head].double()
                    scores = torch.stack(
                        [(q[b, h, t].double() * keys[s]).sum() * scale + added[b, h, t, s] for s in seen]
                    )
                    shares = (scores - scores.max().detach()).exp()
                    result = sum(w * values[s] for w, s in zip(shares / shares.sum(), seen, strict=True))
                out.append(result)
    return torch.stack(out).view(batch, n_heads, n_queries, -1)


def tensors(shape, *, n_kv_heads=None, n_keys=None, d_value=None, name="", dtype=torch.float64):
    batch, n_heads, n_queries, d_head = shape
    n_kv_heads, n_keys = n_kv_heads or n_heads, n_keys or n_queries
    q = numbers(*shape, name=f"{name} q", dtype=dtype)
    k = numbers(batch, n_kv_heads, n_keys, d_head, name=f"{name} k", dtype=dtype)
    v = numbers(batch, n_kv_heads, n_keys, d_value or d_head, name=f"{name} v", dtype=dtype)
    return [x.requires_grad_() for x in (q, k, v)]


def with_gradients(function, inputs: list[Tensor], name: str = "") -> list[Tensor]:
    """The output, and the gradient of every input under the same arbitrary downstream gradient."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs, numbers(*out.shape, name=f"{name} d", dtype=out.dtype))]


def a_mask(kind, batch, n_heads, n_queries, n_keys, name):
    if kind == "none":
        return None
    if kind == "padding":
        return padding_mask(
            torch.arange(n_keys)[None] < torch.randint(1, n_keys + 1, (batch, 1), generator=seeded(name))
        )
    if kind == "causal":
        return causal_mask(n_queries, max(n_keys, n_queries))[:, :n_keys]
    mask = mask_of(batch, n_heads if kind == "per head" else 1, n_queries, n_keys, name=name, density=0.5)
    if kind == "empty rows":
        mask[:, :, ::2] = False
        mask[0] = False
    return mask


def seeded(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(random.Random(name).randrange(2**31))


MASKS = ("none", "padding", "causal", "per query", "per head", "empty rows")


@pytest.mark.parametrize("function", ATTENDS.values(), ids=ATTENDS)
@pytest.mark.parametrize("mask_kind", MASKS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_the_reference_with_gradients(function, mask_kind, with_bias):
    shape, n_keys = (2, 4, 3, 6), 5
    q, k, v = tensors(shape, n_kv_heads=2, n_keys=n_keys, name=mask_kind)
    mask = a_mask(mask_kind, 2, 4, 3, n_keys, name=mask_kind)
    bias = [numbers(4, 3, n_keys, name="bias")] if with_bias else []
    ours, wanted = (
        with_gradients(lambda q, k, v, *b, f=f: f(q, k, v, mask, bias=b[0] if b else None), [q, k, v, *bias])
        for f in (function, reference)
    )
    assert [largest_difference(a, b) < 1e-12 for a, b in zip(ours, wanted, strict=True)] == [True] * len(wanted)


@pytest.mark.parametrize("seed", range(20))
def test_fused_equals_formula_on_random_shapes(seed):
    """Ten shapes each: 200 in all, float64, forward and every gradient."""
    for part in range(10):
        name = f"{seed}.{part}"
        choose = random.Random(name)
        n_kv_heads, groups = choose.randint(1, 3), choose.randint(1, 3)
        batch, n_queries, n_keys = choose.randint(1, 3), choose.randint(1, 40), choose.randint(1, 40)
        n_heads, d_head = n_kv_heads * groups, choose.randint(1, 20)
        mask = a_mask(choose.choice(MASKS), batch, n_heads, n_queries, n_keys, name)
        bias = numbers(n_heads, n_queries, n_keys, name=f"{name} bias") if choose.random() < 0.5 else None
        scale = choose.choice([None, 1.0, 0.3])
        inputs = tensors((batch, n_heads, n_queries, d_head), n_kv_heads=n_kv_heads, n_keys=n_keys, name=name)
        ours = with_gradients(partial(attend_fused, mask=mask, scale=scale, bias=bias), inputs)
        wanted = with_gradients(partial(attend, mask=mask, scale=scale, bias=bias), inputs)
        for a, b in zip(ours, wanted, strict=True):
            assert largest_difference(a, b) < 1e-11, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask_kind", MASKS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_fused_is_as_exact_as_the_formula_in_the_same_precision(dtype, mask_kind, with_bias):
    """PyTorch's own rule: against float64, at most three times the error of the plain computation."""
    shape, n_keys = (2, 4, 33, 16), 47
    inputs = tensors(shape, n_keys=n_keys, name=mask_kind, dtype=dtype)
    mask = a_mask(mask_kind, 2, 4, 33, n_keys, name=mask_kind)
    bias = numbers(4, 33, n_keys, name="bias", dtype=dtype) if with_bias else None
    exact = with_gradients(
        lambda q, k, v: attend(q, k, v, mask, bias=None if bias is None else bias.double()),
        [x.double() for x in inputs],
    )
    fused = with_gradients(lambda q, k, v: attend_fused(q, k, v, mask, bias=bias), inputs)
    plain = with_gradients(lambda q, k, v: attend(q, k, v, mask, bias=bias), inputs)
    for what, wanted, ours, simple in zip(("out", "dq", "dk", "dv"), exact, fused, plain, strict=True):
        wanted = wanted.to(dtype).double()  # what the best computation could return
        allowed = 3 * largest_difference(simple, wanted) + torch.finfo(dtype).eps * float(wanted.abs().max())
        assert largest_difference(ours, wanted) <= allowed, what


@pytest.mark.parametrize("function", ATTENDS.values(), ids=ATTENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 2, 3, 4), (2, 2, 40, 64)], ids=str)
def test_a_query_that_may_attend_to_nothing_gets_zeros(function, dtype, with_bias, shape):
    q, k, v = tensors(shape, dtype=dtype)
    bias = numbers(shape[1], shape[2], shape[2], name="bias", dtype=dtype) if with_bias else None
    mask = mask_of(2, 1, shape[2], shape[2], name="some")
    mask[0, :, 1] = False
    mask[1] = False
    out = function(q, k, v, mask, bias=bias)
    assert (out[0, :, 1] == 0).all()
    assert (out[1] == 0).all()
    for gradient in torch.autograd.grad(out.float().square().sum(), [q, k, v]):
        assert gradient.isfinite().all()
        assert (gradient[1] == 0).all()


@pytest.mark.parametrize("function", ATTENDS.values(), ids=ATTENDS)
def test_no_gradient_comes_from_hidden_keys(function):
    q, k, v = tensors((2, 2, 5, 4), n_keys=7)
    mask = padding_mask(torch.arange(7)[None] < torch.tensor([[7], [3]]))
    dk, dv = torch.autograd.grad(function(q, k, v, mask).square().sum(), [k, v])
    assert (dk[1, :, 3:] == 0).all()
    assert (dv[1, :, 3:] == 0).all()
    assert (dk[1, :, :3] != 0).all()


def test_the_weights_of_each_query_sum_to_one_over_what_it_may_see():
    q, k, _ = tensors((2, 2, 5, 4))
    mask = mask_of(2, 1, 5, 5, name="weights")
    mask[..., 0] = True
    weights = attention_weights(q, k, mask)
    assert largest_difference(weights.sum(-1), torch.ones(2, 2, 5)) < 1e-14
    assert (weights[~mask.expand_as(weights)] == 0).all()


def test_a_boolean_mask_equals_the_same_mask_as_a_bias():
    q, k, v = tensors((2, 2, 5, 4))
    mask = mask_of(2, 1, 5, 5, name="additive") | torch.eye(5, dtype=torch.bool)
    added = as_additive(mask, torch.float64)
    assert largest_difference(attend(q, k, v, mask), attend(q, k, v, bias=added)) == 0
    # exp(-1000) is 0 in float64, so a bias of -1000 masks like -inf.
    thousand = torch.where(mask, 0.0, -1000.0).double()
    assert largest_difference(attend(q, k, v, mask), attend(q, k, v, bias=thousand)) == 0


@pytest.mark.parametrize("function", ATTENDS.values(), ids=ATTENDS)
def test_dropout_drops_weights_and_keeps_their_expectation(function):
    q, k, _ = tensors((1, 1, 50, 4), n_keys=400)
    ones = torch.ones(1, 1, 400, 1, dtype=torch.float64)
    torch.manual_seed(0)
    dropped = torch.cat([function(q, k, ones, dropout=0.25) for _ in range(20)])
    assert dropped.std() > 0.01
    assert abs(dropped.mean() - 1) < 0.01
    assert (function(q, k, ones, dropout=0.0) - 1).abs().max() < 1e-12


def test_sharing_heads_repeats_each_for_its_group():
    x = numbers(1, 2, 3, 4)
    assert share_heads(x, 2) is x
    shared = share_heads(x, 6)
    for head in range(6):
        assert torch.equal(shared[:, head], x[:, head // 3])


def test_additive_attention_is_bahdanaus():
    module = fill(AdditiveAttend(n_heads=2, d_head=4))
    q, k, v = tensors((2, 2, 3, 4), n_keys=5)
    mask = mask_of(2, 1, 3, 5, name="additive", density=0.8)
    mask[..., 0] = True
    out = module(q, k, v, mask)
    for b, h, t in [(0, 0, 0), (1, 0, 2), (0, 1, 1), (1, 1, 0)]:
        seen = [s for s in range(5) if mask[b, 0, t, s]]
        scores = [(module.direction[h] @ torch.tanh(q[b, h, t] + k[b, h, s])).item() for s in seen]
        shares = torch.tensor(scores, dtype=torch.float64).softmax(0)
        wanted = sum(w * v[b, h, s] for w, s in zip(shares, seen, strict=True))
        assert largest_difference(out[b, h, t], wanted) < 1e-12


def test_additive_attention_takes_a_bias_and_gives_zeros_for_nothing():
    module = fill(AdditiveAttend(n_heads=2, d_head=4))
    q, k, v = tensors((1, 2, 3, 4))
    hidden = as_additive(torch.tensor([True, False, True]), torch.float64)
    only = torch.tensor([True, False, True])[None, None, None]
    assert largest_difference(module(q, k, v, bias=hidden), module(q, k, v, only)) < 1e-14
    assert (module(q, k, v, torch.zeros(1, 1, 3, 3, dtype=torch.bool)) == 0).all()


# The heads


def make(**changes):
    sizes = {"d_model": 12, "n_heads": 4, **changes}
    return fill(MultiHeadAttention(**sizes))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("d_head", [None, 2, 5])
def test_heads_as_a_reshape_equal_a_loop_over_heads(n_kv_heads, d_head):
    module = make(n_kv_heads=n_kv_heads, d_head=d_head)
    size = module.d_head
    x, memory = numbers(2, 3, 12, name="x"), numbers(2, 5, 12, name="memory")
    mask = mask_of(2, 1, 3, 5, name="mask") | torch.tensor([True, False, False, False, False])
    heads = []
    for h in range(4):
        own, shared = slice(h * size, (h + 1) * size), h // (4 // n_kv_heads)
        kv = slice(shared * size, (shared + 1) * size)
        q = x @ module.to_q.weight[own].T + module.to_q.bias[own]
        k = memory @ module.to_k.weight[kv].T + module.to_k.bias[kv]
        v = memory @ module.to_v.weight[kv].T + module.to_v.bias[kv]
        scores = (q @ k.transpose(1, 2) / size**0.5).masked_fill(~mask[:, 0], -torch.inf)
        heads.append(scores.softmax(-1) @ v)
    wanted = torch.cat(heads, dim=-1) @ module.to_out.weight.T + module.to_out.bias
    assert largest_difference(module(x, memory, mask=mask), wanted) < 1e-12


def test_one_head_with_identity_weights_is_attend_itself():
    module = MultiHeadAttention(d_model=6, n_heads=1, bias=False).double()
    for linear in (module.to_q, module.to_k, module.to_v, module.to_out):
        torch.nn.init.eye_(linear.weight)
    x, memory = numbers(2, 3, 6, name="x"), numbers(2, 4, 6, name="memory")
    wanted = attend(x[:, None], memory[:, None], memory[:, None])[:, 0]
    assert largest_difference(module(x, memory), wanted) < 1e-14


def test_self_attention_is_attention_with_x_as_memory():
    module = make()
    x = numbers(2, 5, 12)
    assert torch.equal(module(x), module(x, x))


def test_heads_cost_no_parameters_at_the_usual_head_size():
    def count(n_heads):
        return sum(p.numel() for p in MultiHeadAttention(d_model=12, n_heads=n_heads).parameters())

    assert count(1) == count(3) == count(12) == 4 * (12 * 12 + 12)


def test_without_positions_a_shuffle_in_is_the_same_shuffle_out():
    module = make(attend=attend_fused)
    x = numbers(2, 7, 12)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    assert largest_difference(module(x)[:, order], module(x[:, order])) < 1e-13


def test_the_scale_can_be_given():
    x = numbers(1, 5, 12)
    divided, plain = make(), make(scale=1.0)
    plain.load_state_dict(divided.state_dict())
    with torch.no_grad():
        divided.to_q.weight *= 3**0.5
        divided.to_q.bias *= 3**0.5
    assert largest_difference(divided(x), plain(x)) < 1e-13


def test_dropout_acts_in_training_only():
    module = make(dropout=0.5)
    x = numbers(2, 5, 12)
    assert torch.equal(module(x), module(x))
    module.train()
    assert not torch.equal(module(x), module(x))


@pytest.mark.parametrize("changes", [{"n_heads": 5}, {"n_kv_heads": 3}])
def test_impossible_head_counts_are_refused(changes):
    with pytest.raises(ValueError, match="must divide"):
        MultiHeadAttention(**{"d_model": 12, "n_heads": 4, **changes})


# "Thinking Machines", the example of J. Alammar's "The Illustrated Transformer", d_k = 64


def thinking_machines():
    """Vectors of 64 numbers with q1.k1 = 112 and q1.k2 = 96, the scores of the example."""
    q = torch.stack([torch.full((64,), 1.0), torch.arange(64) / 64]).double()
    k = torch.stack([torch.full((64,), 1.75), torch.full((64,), 1.5)]).double()
    return q, k, numbers(2, 64, name="v")


def test_thinking_machines_in_six_steps_on_vectors():
    (q1, _), (k1, k2), (v1, v2) = thinking_machines()  # 1. the three vectors of each word
    scores = [q1 @ k1, q1 @ k2]  # 2. the scores
    assert [float(s) for s in scores] == [112, 96]
    divided = [s / math.sqrt(64) for s in scores]  # 3. divided by 8
    assert [float(s) for s in divided] == [14, 12]
    exponentials = [s.exp() for s in divided]  # 4. softmax
    shares = [e / sum(exponentials) for e in exponentials]
    assert [round(float(s), 2) for s in shares] == [0.88, 0.12]
    weighted = [shares[0] * v1, shares[1] * v2]  # 5. the values, weighted
    z1 = weighted[0] + weighted[1]  # 6. their sum
    matrices = [x[None, None] for x in thinking_machines()]
    assert [round(float(w), 2) for w in attention_weights(*matrices[:2])[0, 0, 0]] == [0.88, 0.12]
    for function in ATTENDS.values():
        assert largest_difference(function(*matrices)[0, 0, 0], z1) < 1e-14
