"""Each sparse pattern equals full attention under its own mask, with gradients, for every length.

Attention to fixed distances equals gathering the keys, and its derivatives are right to the second order.
"""

import random

import pytest
import torch
from torch import Tensor

from deterministic import largest_difference, mask_of, numbers
from heedful.nn.attention import attend, share_heads
from heedful.nn.masks import causal_mask, document_mask, padding_mask
from heedful.nn.sparse_attention import (
    PATTERNS,
    Dilated,
    Local,
    PatternAttention,
    Sparse,
    Strided,
    TopKAttention,
    Window,
    gathered_mix,
    gathered_scores,
    pattern_mask,
)

KINDS = list(PATTERNS)


def pairs(pattern, n_queries: int, n_keys: int) -> list[list[bool]]:
    return pattern_mask(pattern, n_queries, n_keys).tolist()


def naive(kind: str, span: int, causal: bool, n_global: int, n_queries: int, n_keys: int) -> list[list[bool]]:
    """The patterns' definitions, one pair at a time."""

    def near(query: int, key: int) -> bool:
        distance = abs(query - key)
        if kind == "local":
            return distance <= span
        if kind == "window":
            return query // span == key // span
        if kind == "strided":
            return distance % span == 0
        if kind == "dilated":
            return distance in [0, *(2**i for i in range(span))]
        return abs(query // span - key // span) <= 1 or query < n_global or key < n_global

    first = n_keys - n_queries
    return [
        [near(query, key) and (key <= query or not causal) for key in range(n_keys)] for query in range(first, n_keys)
    ]


def make(kind: str, span: int, causal: bool, n_global: int = 1):
    if kind == "sparse":
        return Sparse(span, causal=causal, n_global=n_global)
    return PATTERNS[kind](span, causal=causal)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_the_mask_of_a_pattern_is_its_definition(kind, causal):
    for span in (1, 2, 3, 5, 8, 30):
        for n_global in (0, 1, 3):
            for n_queries, n_keys in ((1, 1), (9, 9), (12, 12), (1, 12), (4, 11)):
                wanted = naive(kind, span, causal, n_global, n_queries, n_keys)
                assert pairs(make(kind, span, causal, n_global), n_queries, n_keys) == wanted


def test_pictures_of_the_patterns():
    def draw(rule) -> list[str]:
        return ["".join("x" if may else "." for may in row) for row in pairs(rule, 6, 6)]

    assert draw(Local(1)) == ["xx....", "xxx...", ".xxx..", "..xxx.", "...xxx", "....xx"]
    assert draw(Local(1, causal=True)) == ["x.....", "xx....", ".xx...", "..xx..", "...xx.", "....xx"]
    assert draw(Window(3)) == ["xxx...", "xxx...", "xxx...", "...xxx", "...xxx", "...xxx"]
    assert draw(Strided(2)) == ["x.x.x.", ".x.x.x", "x.x.x.", ".x.x.x", "x.x.x.", ".x.x.x"]
    assert draw(Dilated(3, causal=True)) == ["x.....", "xx....", "xxx...", ".xxx..", "x.xxx.", ".x.xxx"]
    assert draw(Sparse(2, n_global=1)) == ["xxxxxx", "xxxx..", "xxxxxx", "xxxxxx", "x.xxxx", "x.xxxx"]
    assert draw(Sparse(1, n_global=1, causal=True)) == ["x.....", "xx....", "xxx...", "x.xx..", "x..xx.", "x...xx"]


def gradients(function, inputs: list[Tensor]) -> list[Tensor]:
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    return [out, *torch.autograd.grad(out, inputs, numbers(*out.shape, name="downstream"))]


def masked(rule, q, k, v, mask=None, scale=None):
    """Full attention under the rule's mask."""
    own = pattern_mask(rule, q.size(2), k.size(2))
    return attend(q, k, v, own if mask is None else own & mask, scale=scale)


def tensors(batch, n_heads, n_kv_heads, n_queries, n_keys, d_head, name) -> list[Tensor]:
    return [
        numbers(batch, n_heads, n_queries, d_head, name=f"{name} q"),
        numbers(batch, n_kv_heads, n_keys, d_head, name=f"{name} k"),
        numbers(batch, n_kv_heads, n_keys, d_head, name=f"{name} v"),
    ]


def compare(ours, wanted, inputs, where):
    for found, expected in zip(gradients(ours, inputs), gradients(wanted, inputs), strict=True):
        assert largest_difference(found, expected) < 1e-10, where


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_equals_full_attention_under_the_mask(kind, causal):
    """Lengths that the span divides and not, spans beyond the length, real lengths that differ, shared heads."""
    for case in range(30):
        name = f"{kind} {causal} {case}"
        choose = random.Random(name)
        length, span, batch = choose.randint(1, 24), choose.choice([1, 2, 3, 4, 7, 64]), choose.randint(1, 3)
        n_kv_heads, groups = choose.randint(1, 2), choose.randint(1, 2)
        rule = make(kind, span, causal, n_global=choose.choice([0, 1, 2, 5, 30]))
        inputs = tensors(batch, n_kv_heads * groups, n_kv_heads, length, length, choose.randint(1, 5), name)
        mask = None
        if choose.random() < 0.7:
            lengths = torch.tensor([[choose.randint(1, length)] for _ in range(batch)])
            mask = padding_mask(torch.arange(length)[None] < lengths)
        scale = choose.choice([None, 1.0])
        compare(
            lambda q, k, v, r=rule, m=mask, s=scale: PatternAttention(r)(q, k, v, m, scale=s),
            lambda q, k, v, r=rule, m=mask, s=scale: masked(r, q, k, v, m, s),
            inputs,
            f"{name}: {rule}, length {length}, scale {scale}, mask {mask}",
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_a_few_queries_against_many_keys(kind, causal):
    """What a decoding step with a cache asks for: the queries are the last positions."""
    for n_queries, n_keys, span in ((1, 1, 3), (1, 9, 2), (3, 9, 4), (2, 10, 64), (5, 6, 1)):
        rule = make(kind, span, causal)
        inputs = tensors(2, 4, 2, n_queries, n_keys, 3, f"{n_queries} {n_keys}")
        where = f"{rule} {n_queries} {n_keys}"
        compare(PatternAttention(rule), lambda q, k, v, r=rule: masked(r, q, k, v), inputs, where)
        whole = tensors(2, 4, 2, n_keys, n_keys, 3, f"{n_queries} {n_keys}")
        last = PatternAttention(rule)(*whole)[:, :, n_keys - n_queries :]
        step = PatternAttention(rule)(whole[0][:, :, n_keys - n_queries :], *whole[1:])
        assert largest_difference(step, last) < 1e-12, where


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_other_shapes(kind):
    """A mask for the whole batch, one that differs from query to query, and one that hides a whole sentence."""
    rule = make(kind, 2, False)
    inputs = tensors(2, 2, 2, 7, 7, 3, kind)
    for mask in (
        padding_mask(mask_of(1, 7, name="one for all")),
        document_mask(torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2, 2]])),
        causal_mask(7),
        padding_mask(torch.tensor([[True] * 7, [False] * 7])),
    ):
        compare(
            lambda q, k, v, m=mask: PatternAttention(rule)(q, k, v, m),
            lambda q, k, v, m=mask: masked(rule, q, k, v, m),
            inputs,
            f"{rule} {tuple(mask.shape)}",
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_hidden_keys_pass_no_gradient(kind, causal):
    real = torch.arange(9)[None] < torch.tensor([[9], [4]])
    _, _, dk, dv = gradients(
        lambda q, k, v: PatternAttention(make(kind, 3, causal))(q, k, v, padding_mask(real)),
        tensors(2, 2, 2, 9, 9, 3, kind),
    )
    assert (dk[1, :, 4:] == 0).all()
    assert (dv[1, :, 4:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_a_batch_without_rows_passes_through(kind, causal):
    q = torch.zeros(0, 2, 1, 4)
    assert PatternAttention(make(kind, 3, causal))(q, q, q, torch.zeros(0, 1, 1, 1, dtype=torch.bool)).shape == q.shape


@pytest.mark.parametrize("kind", KINDS)
def test_a_span_far_beyond_the_input_costs_nothing(kind):
    rule = make(kind, 10**9, True)
    inputs = tensors(1, 1, 1, 5, 5, 3, kind)
    compare(PatternAttention(rule), lambda q, k, v: masked(rule, q, k, v), inputs, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_dropped_in_training(kind):
    torch.manual_seed(0)
    q, k, v = tensors(1, 1, 1, 40, 40, 4, kind)
    rule = make(kind, 4, False)
    ones = torch.ones_like(v)
    dropped = torch.cat([PatternAttention(rule)(q, k, ones, dropout=0.25) for _ in range(200)])
    assert dropped.std() > 0.05
    assert abs(dropped.mean() - 1) < 0.02


@pytest.mark.parametrize("kind", ["local", "window", "sparse"])
def test_time_and_memory_grow_with_the_length_not_its_square(kind, monkeypatch):
    """Counted in pairs of query and key that reach the kernel, not in seconds."""
    counted = []

    def counting(q, k, v, mask=None, **rest):
        counted.append(q.size(0) * q.size(2) * k.size(2))
        return attend(q, k, v, mask, **rest)

    monkeypatch.setattr("heedful.nn.sparse_attention.attend_fused", counting)
    for length in (128, 256):
        counted.append(0)
        q = numbers(1, 1, length, 2)
        PatternAttention(make(kind, 8, False))(q, q, q)
        counted[:] = [counted[0], sum(counted[1:])] if length == 256 else [sum(counted)]
    assert counted[1] <= 2 * counted[0]
    assert counted[1] < 256**2 / 4


def test_a_pattern_takes_no_bias():
    q = numbers(1, 1, 4, 2)
    with pytest.raises(ValueError, match="takes no bias"):
        PatternAttention(Local(2))(q, q, q, bias=numbers(1, 4, 4))


# Learned sparsity


def strongest(q, k, v, mask, *, span, causal, bias):
    """Query by query: keep the highest `span` scores among the allowed, softmax over them alone."""
    k, v = share_heads(k, q.size(1)), share_heads(v, q.size(1))
    batch, n_heads, n_queries, d_head = q.shape
    n_keys = k.size(2)
    may = torch.ones(batch, n_heads, n_queries, n_keys, dtype=torch.bool)
    may = may & causal_mask(n_queries, n_keys) if causal else may
    may = may if mask is None else may & mask
    rows = []
    for b in range(batch):
        for h in range(n_heads):
            for t in range(n_queries):
                scores = (q[b, h, t] @ k[b, h].T) / d_head**0.5
                scores = scores if bias is None else scores + bias[h, t]
                seen = sorted((s for s in range(n_keys) if may[b, h, t, s]), key=lambda s: -scores[s].item())[:span]
                rows.append(scores[seen].softmax(0) @ v[b, h, seen] if seen else torch.zeros_like(v[b, h, 0]))
    return torch.stack(rows).view(batch, n_heads, n_queries, -1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("span", [1, 3, 64])
@pytest.mark.parametrize("with_bias", [False, True])
def test_top_k_keeps_the_highest_scores(causal, span, with_bias):
    for n_queries, n_keys in ((6, 6), (2, 7), (1, 1)):
        inputs = tensors(2, 4, 2, n_queries, n_keys, 3, f"{span}")
        bias = numbers(4, n_queries, n_keys, name="bias") if with_bias else None
        lengths = torch.tensor([[n_keys], [(n_keys + 1) // 2]])
        for mask in (None, padding_mask(torch.arange(n_keys)[None] < lengths)):
            compare(
                lambda q, k, v, m=mask, b=bias: TopKAttention(span, causal)(q, k, v, m, bias=b),
                lambda q, k, v, m=mask, b=bias: strongest(q, k, v, m, span=span, causal=causal, bias=b),
                inputs,
                f"span {span} causal {causal} {n_queries} {n_keys}",
            )


def test_top_k_of_all_keys_is_full_attention():
    inputs = tensors(2, 2, 2, 6, 6, 3, "all")
    compare(TopKAttention(6), attend, inputs, "non-causal")
    compare(TopKAttention(6, causal=True), lambda q, k, v: attend(q, k, v, causal_mask(6)), inputs, "causal")


def test_top_k_reads_exactly_k_keys():
    q, k, v = tensors(1, 1, 1, 8, 8, 4, "count")
    v = torch.eye(8, dtype=torch.float64)[None, None]  # the output is the row of weights itself
    assert ((TopKAttention(3)(q, k, v) > 0).sum(-1) == 3).all()


# Attention to fixed distances

DISTANCES = [0, -1, 3, -4, 6, 9]  # 9 reaches beyond the end of every sequence here


def draw(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def gather(x: Tensor) -> Tensor:
    """x[t + d], zero outside: (B, H, T, K) -> (B, H, T, few, K)."""
    length = x.size(2)
    keys = torch.arange(length)[:, None] + torch.tensor(DISTANCES)
    inside = (keys >= 0) & (keys < length)
    return x[:, :, keys.clamp(0, length - 1)] * inside[..., None]


@pytest.mark.parametrize("length", [1, 4, 8])
def test_scores_are_those_of_gathered_keys(length: int) -> None:
    q, k = draw(2, 3, length, 4), draw(2, 3, length, 5)[..., :4]
    torch.testing.assert_close(gathered_scores(q, k, DISTANCES), (q[:, :, :, None] * gather(k)).sum(-1))


@pytest.mark.parametrize("length", [1, 4, 8])
def test_mixes_are_those_of_gathered_values(length: int) -> None:
    weights, v = draw(2, 3, length, len(DISTANCES)), draw(2, 3, length, 5)
    torch.testing.assert_close(gathered_mix(weights, v, DISTANCES), (weights[..., None] * gather(v)).sum(-2))


def test_derivatives_of_first_and_second_order() -> None:
    q, k, weights = draw(1, 2, 5, 3), draw(1, 2, 5, 3), draw(1, 2, 5, len(DISTANCES))
    assert torch.autograd.gradcheck(lambda a, b: gathered_scores(a, b, DISTANCES), (q, k))
    assert torch.autograd.gradcheck(lambda a, b: gathered_mix(a, b, DISTANCES), (weights, k))
    assert torch.autograd.gradgradcheck(lambda a, b: gathered_scores(a, b, DISTANCES), (q, k))
    assert torch.autograd.gradgradcheck(lambda a, b: gathered_mix(a, b, DISTANCES), (weights, k))


def test_the_size_of_a_pass_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, weights = draw(2, 2, 11, 4), draw(2, 2, 11, 4), draw(2, 2, 11, len(DISTANCES))
    whole = gathered_scores(q, k, DISTANCES), gathered_mix(weights, k, DISTANCES)
    for rows in (1, 3, 11):
        monkeypatch.setattr("heedful.nn.sparse_attention.PASS_SIZE", rows * 2 * 2 * 4)
        torch.testing.assert_close((gathered_scores(q, k, DISTANCES), gathered_mix(weights, k, DISTANCES)), whole)
