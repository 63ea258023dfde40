"""How far the model is from the reference: a sum over target tokens, for others to divide.

`smoothed_cross_entropy` and `smoothed_kl` are the formulas. `linear_cross_entropy` gives the first one's number and
gradients from the vectors before the output layer, a few rows at a time, so that the logits of a batch (tokens x
vocabulary, by far the largest tensor of a training step) never exist.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.nn.cpu import pad_rows

ROWS = 512  # rows of logits alive at a time: enough for a good matrix product, few enough to be small beside the model


def smoothed_cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """-sum over tokens of sum_v t(v) log p(v); t gives 1 - e to the reference and e / V to every word.

    logits (M, V), target (M,).
    """
    return F.cross_entropy(logits, target, label_smoothing=label_smoothing, reduction="sum")


def smoothed_kl(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """KL(t || p), summed over tokens: the cross-entropy without the entropy of t, which no parameter can change."""
    return smoothed_cross_entropy(logits, target, label_smoothing) - len(target) * entropy_of_smoothed(
        label_smoothing, logits.size(-1)
    )


def entropy_of_smoothed(label_smoothing: float, vocab_size: int) -> float:
    """The entropy of t: the least that the smoothed cross-entropy of a token can be."""
    rest = label_smoothing / vocab_size
    right = 1.0 - label_smoothing + rest
    return -right * math.log(right) - (vocab_size - 1) * (rest * math.log(rest) if rest > 0 else 0.0)


def linear_cross_entropy(
    states: Tensor, weight: Tensor, target: Tensor, *, bias: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """smoothed_cross_entropy(states @ weight.T + bias, target). states (M, D), weight (V, D), target (M,)."""
    loss: Tensor = _LinearCrossEntropy.apply(states, weight, bias, target, label_smoothing)  # type: ignore[no-untyped-call]
    return loss


def agreeing_cross_entropy(
    states: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    label_smoothing: float,
    agreement: float,
) -> Tensor:
    """R-Drop (Liang et al. 2021): two passes over the same tokens, (2M, D), the second half after the first.

    The mean of both cross-entropies, plus `agreement` / 4 x (KL(p || q) + KL(q || p)): the paper's proportion.
    """
    loss: Tensor = _AgreeingCrossEntropy.apply(states, weight, bias, target, label_smoothing, agreement)  # type: ignore[no-untyped-call]
    return loss


def product_type(states: Tensor) -> torch.dtype:
    """The numbers of matrix products: those of autocast, where it is on."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


class _KnowsItsGradients(torch.autograd.Function):
    """Forward computes the gradients too, while each chunk's probabilities are at hand; backward only scales them."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = grads
        scaled = tuple(None if gradient is None else gradient * scale for gradient in ctx.saved_tensors)
        return scaled + (None,) * (len(ctx.needs_input_grad) - len(scaled))


class _LinearCrossEntropy(_KnowsItsGradients):
    """The gradients of smoothed_cross_entropy.

    With p = softmax(z): dL/dz = p - (1 - e) onehot(y) - e / V. The last term is the same for every word, so it is
    never subtracted from the big matrix: it adds -e / V x (sum of all rows of W) to each gradient of a state, and
    -e / V x (sum of all states) to each row of the gradient of W.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, label_smoothing: float
    ) -> Tensor:
        (n_rows, _), vocab_size = states.shape, weight.size(0)
        uniform = label_smoothing / vocab_size
        need_gradients = any(ctx.needs_input_grad[:3])
        grad_states = torch.empty_like(states)
        grad_weight = torch.zeros_like(weight)
        grad_bias = None if bias is None else torch.zeros_like(bias)
        # Under autocast the products are its kind of numbers; sums, logarithms and gradients stay what they are.
        kind = product_type(states)
        states, weight = states.to(kind), weight.to(kind)
        weight_sum = weight.sum(dim=0)
        total = states.new_zeros((), dtype=torch.float64 if states.device.type == "cpu" else torch.float32)
        for start in range(0, n_rows, ROWS):
            wanted = target[start : start + ROWS, None]
            rows = pad_rows(states[start : start + ROWS])
            logits = torch.mm(rows, weight.T)[: len(wanted)].to(grad_states.dtype)
            if bias is not None:
                logits += bias
            right = logits.gather(1, wanted)
            # One pass of exponentials for both: the likeliest word's probability is exp(its logit) / the sum of all.
            slope = logits.softmax(dim=1)
            log_total = logits.amax(dim=1, keepdim=True) - slope.amax(dim=1, keepdim=True).log()
            total += (log_total - (1.0 - label_smoothing) * right).sum()
            if label_smoothing > 0.0:
                shift = 0.0 if bias is None else bias.sum()
                total -= uniform * (rows.sum(dim=0).to(total.dtype) @ weight_sum.to(total.dtype) + len(wanted) * shift)
            if need_gradients:
                slope.scatter_add_(1, wanted, torch.full_like(right, label_smoothing - 1.0))
                if grad_bias is not None:
                    grad_bias += slope.sum(dim=0)
                slope = pad_rows(slope.to(kind))
                grad_states[start : start + ROWS] = torch.mm(slope, weight)[: len(wanted)]
                grad_weight += torch.mm(slope.T, rows)
        if label_smoothing > 0.0 and need_gradients:
            grad_states -= uniform * weight_sum
            grad_weight -= uniform * states.sum(dim=0)
            if grad_bias is not None:
                grad_bias -= uniform * n_rows
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        return total.to(grad_states.dtype)


class _AgreeingCrossEntropy(_KnowsItsGradients):
    """The gradients of R-Drop's loss.

    With p = softmax(z) of one pass, q that of the other and k = KL(p || q), the sum of both divergences has the
    gradient dL/dz = p (log p - log q + 1 - k) - q; that of the cross-entropy is as above.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        label_smoothing: float,
        agreement: float,
    ) -> Tensor:
        n_pairs, uniform, share = len(states) // 2, label_smoothing / weight.size(0), agreement / 4
        grad_states, grad_weight = torch.empty_like(states), torch.zeros_like(weight)
        grad_bias = None if bias is None else torch.zeros_like(bias)
        kind = product_type(states)
        weight = weight.to(kind)
        total = states.new_zeros((), dtype=torch.float64 if states.device.type == "cpu" else torch.float32)
        for start in range(0, n_pairs, ROWS // 2):
            # Both passes over a few tokens, one below the other.
            here = [slice(half + start, half + min(start + ROWS // 2, n_pairs)) for half in (0, n_pairs)]
            rows = pad_rows(torch.cat([states[part] for part in here]).to(kind))
            wanted = torch.cat([target[part] for part in here])[:, None]
            logits = torch.mm(rows, weight.T)[: len(wanted)].to(grad_states.dtype)
            if bias is not None:
                logits += bias
            logs = logits.log_softmax(dim=1)
            slope = logs.exp()
            right = logs.gather(1, wanted)
            total -= ((1.0 - label_smoothing) * right.sum() + uniform * logs.sum()) / 2
            (p, q), (log_p, log_q) = slope.chunk(2), logs.chunk(2)
            apart = log_p.sub_(log_q)  # in place of log p; and its opposite in place of log q
            torch.neg(apart, out=log_q)
            divergence = torch.linalg.vecdot(slope, logs)[:, None]  # (R, 1): KL(p || q), then KL(q || p)
            total += share * divergence.sum()
            # logs becomes what each probability is multiplied with, then the whole gradient.
            gradient = logs.sub_(divergence).mul_(share).add_(share + 0.5).mul_(slope)
            for mine, other in zip(gradient.chunk(2), (q, p), strict=True):
                mine.sub_(other, alpha=share)
            gradient.sub_(uniform / 2).scatter_add_(1, wanted, right.new_full(right.shape, (label_smoothing - 1.0) / 2))
            if grad_bias is not None:
                grad_bias += gradient.sum(dim=0)
            product = pad_rows(gradient.to(kind))
            of_states = torch.mm(product, weight)
            for part, found in zip(here, of_states[: len(wanted)].chunk(2), strict=True):
                grad_states[part] = found
            grad_weight += torch.mm(product.T, rows)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        return total.to(grad_states.dtype)
