"""Loss functions, summed over target tokens; the trainer divides.

`smoothed_cross_entropy` and `smoothed_kl` are the formulas. `linear_cross_entropy` computes the cross-entropy and its
gradients from the states before the output layer, a few rows at a time, so that the logits of a batch (tokens x
vocabulary, by far the largest tensor of a training step) never exist as a whole.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.nn.cpu import pad_rows

ROWS = 512  # rows of logits in memory at a time: enough for fast matrix products, small compared with the model


def smoothed_cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return -sum over tokens of sum_v t(v) log p(v), where t(v) = (1 - e) [v is the target] + e / V.

    logits (M, V), target (M,).
    """
    return F.cross_entropy(logits, target, label_smoothing=label_smoothing, reduction="sum")


def smoothed_kl(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return KL(t || p), summed over tokens: the cross-entropy minus the entropy of t, which is a constant."""
    return smoothed_cross_entropy(logits, target, label_smoothing) - len(target) * entropy_of_smoothed(
        label_smoothing, logits.size(-1)
    )


def entropy_of_smoothed(label_smoothing: float, vocab_size: int) -> float:
    """Return the entropy of t: the minimum of the smoothed cross-entropy of a token."""
    other = label_smoothing / vocab_size
    target = 1.0 - label_smoothing + other
    return -target * math.log(target) - (vocab_size - 1) * (other * math.log(other) if other > 0 else 0.0)


def linear_cross_entropy(
    states: Tensor, weight: Tensor, target: Tensor, *, bias: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Return smoothed_cross_entropy(states @ weight.T + bias, target), without keeping the logits.

    states (M, D), weight (V, D), target (M,).
    """
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
    """Return the loss of R-Drop (Liang et al. 2021): two passes over the same tokens with different dropout.

    It is the mean of both cross-entropies plus `agreement` / 4 x (KL(p || q) + KL(q || p)), as in the paper.
    states (2M, D): the rows of the first pass, then those of the second. weight (V, D), target (2M,).
    """
    loss: Tensor = _AgreeingCrossEntropy.apply(states, weight, bias, target, label_smoothing, agreement)  # type: ignore[no-untyped-call]
    return loss


def product_type(states: Tensor) -> torch.dtype:
    """Return the number type of matrix products: that of autocast if it is on."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


class _WithKnownGradients(torch.autograd.Function):
    """A function whose forward also computes the gradients, chunk by chunk, and whose backward only scales them."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = grads
        scaled = tuple(None if gradient is None else gradient * scale for gradient in ctx.saved_tensors)
        return scaled + (None,) * (len(ctx.needs_input_grad) - len(scaled))


class _LinearCrossEntropy(_WithKnownGradients):
    """smoothed_cross_entropy of a linear layer, with its gradients.

    With p = softmax(z): dL/dz = p - (1 - e) onehot(y) - e / V. The last term is the same for all words, so it is not
    subtracted from the (rows, V) matrix: it adds -e / V x (sum of all rows of W) to the gradient of each state, and
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
        # Under autocast only the products use its number type, not sums, logarithms and gradients.
        kind = product_type(states)
        states, weight = states.to(kind), weight.to(kind)
        weight_sum = weight.sum(dim=0)
        total = states.new_zeros((), dtype=torch.float64 if states.device.type == "cpu" else torch.float32)
        for start in range(0, n_rows, ROWS):
            targets = target[start : start + ROWS, None]
            rows = pad_rows(states[start : start + ROWS])
            logits = torch.mm(rows, weight.T)[: len(targets)].to(grad_states.dtype)
            if bias is not None:
                logits += bias
            target_logit = logits.gather(1, targets)
            # One pass of exponentials gives both: the largest probability is exp(its logit) / the sum of all.
            probabilities = logits.softmax(dim=1)
            log_total = logits.amax(dim=1, keepdim=True) - probabilities.amax(dim=1, keepdim=True).log()
            total += (log_total - (1.0 - label_smoothing) * target_logit).sum()
            if label_smoothing > 0.0:
                shift = 0.0 if bias is None else bias.sum()
                total -= uniform * (rows.sum(dim=0).to(total.dtype) @ weight_sum.to(total.dtype) + len(targets) * shift)
            if need_gradients:
                gradient = probabilities.scatter_add_(1, targets, torch.full_like(target_logit, label_smoothing - 1.0))
                if grad_bias is not None:
                    grad_bias += gradient.sum(dim=0)
                gradient = pad_rows(gradient.to(kind))
                grad_states[start : start + ROWS] = torch.mm(gradient, weight)[: len(targets)]
                grad_weight += torch.mm(gradient.T, rows)
        if label_smoothing > 0.0 and need_gradients:
            grad_states -= uniform * weight_sum
            grad_weight -= uniform * states.sum(dim=0)
            if grad_bias is not None:
                grad_bias -= uniform * n_rows
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        return total.to(grad_states.dtype)


class _AgreeingCrossEntropy(_WithKnownGradients):
    """R-Drop's loss of a linear layer, with its gradients.

    With p = softmax(z) of one pass, q of the other and k = KL(p || q), the sum of both divergences has the gradient
    dL/dz = p (log p - log q + 1 - k) - q; the gradient of the cross-entropy is that of _LinearCrossEntropy.
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
            # The same few tokens of both passes, one below the other.
            parts = [slice(half + start, half + min(start + ROWS // 2, n_pairs)) for half in (0, n_pairs)]
            rows = pad_rows(torch.cat([states[part] for part in parts]).to(kind))
            targets = torch.cat([target[part] for part in parts])[:, None]
            logits = torch.mm(rows, weight.T)[: len(targets)].to(grad_states.dtype)
            if bias is not None:
                logits += bias
            logs = logits.log_softmax(dim=1)
            probabilities = logs.exp()
            target_logit = logs.gather(1, targets)
            total -= ((1.0 - label_smoothing) * target_logit.sum() + uniform * logs.sum()) / 2
            (p, q), (log_p, log_q) = probabilities.chunk(2), logs.chunk(2)
            log_ratio = log_p.sub_(log_q)  # in place of log p; its negative in place of log q
            torch.neg(log_ratio, out=log_q)
            divergence = torch.linalg.vecdot(probabilities, logs)[:, None]  # (R, 1): KL(p || q), then KL(q || p)
            total += share * divergence.sum()
            # In place: first the factor of each probability, then the whole gradient.
            gradient = logs.sub_(divergence).mul_(share).add_(share + 0.5).mul_(probabilities)
            for half, other in zip(gradient.chunk(2), (q, p), strict=True):
                half.sub_(other, alpha=share)
            gradient.sub_(uniform / 2).scatter_add_(
                1, targets, target_logit.new_full(target_logit.shape, (label_smoothing - 1.0) / 2)
            )
            if grad_bias is not None:
                grad_bias += gradient.sum(dim=0)
            product = pad_rows(gradient.to(kind))
            of_states = torch.mm(product, weight)
            for part, gradient_part in zip(parts, of_states[: len(targets)].chunk(2), strict=True):
                grad_states[part] = gradient_part
            grad_weight += torch.mm(product.T, rows)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        return total.to(grad_states.dtype)
