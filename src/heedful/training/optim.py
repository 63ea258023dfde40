"""The optimiser and the learning rate: settings, parameter groups, schedules, clipping.

A schedule is a pure function of the step, so there is nothing to save and nothing to restore.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.t5 import T5
from heedful.nn.attention import MultiHeadAttention
from heedful.training.finetuning import depths_of
from heedful.training.muon import Muon, matrices_within
from heedful.training.setting_ranges import AT_LEAST_0, BELOW_1, POSITIVE, Range, check_ranges

RATIO = Range(0, 1, open_low=True)


@dataclass(frozen=True)
class ScheduleSettings:
    """[schedule]: how the learning rate changes over the steps."""

    kind: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"  # shape after the warm-up
    warmup_steps: Annotated[int, AT_LEAST_0] = 4000  # steps over which the rate grows linearly to its highest value
    final_lr: Annotated[float, AT_LEAST_0] = 0.0  # rate of cosine and linear at the last step

    def __post_init__(self) -> None:
        check_ranges(self)


def learning_rate(step: int, *, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    """Return the rate of update number `step`, counted from 0; it grows linearly to `peak` over the warm-up.

    >>> learning_rate(4, peak=0.001, steps=100, schedule=ScheduleSettings(kind="constant", warmup_steps=10))
    0.0005
    """
    warmup = schedule.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    return SHAPES[schedule.kind](step, peak, steps, schedule)


def _inverse_sqrt(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    """Fall with the square root of the step (Vaswani et al. 2017, section 5.3)."""
    return peak * math.sqrt(max(schedule.warmup_steps, 1) / (step + 1))


def _cosine(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    done = _done(step, steps, schedule.warmup_steps)
    return schedule.final_lr + (peak - schedule.final_lr) * (1 + math.cos(math.pi * done)) / 2


def _linear(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    return peak + (schedule.final_lr - peak) * _done(step, steps, schedule.warmup_steps)


def _constant(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    return peak


def _done(step: int, steps: int, warmup: int) -> float:
    """Return the share of the steps after the warm-up that is over, 0 to 1."""
    return min(1.0, max(0.0, (step - warmup) / max(1, steps - warmup)))


SHAPES: dict[str, Callable[[int, float, int, ScheduleSettings], float]] = {
    "inverse_sqrt": _inverse_sqrt,
    "cosine": _cosine,
    "linear": _linear,
    "constant": _constant,
}


def lr_multipliers(model: nn.Module) -> dict[int, float]:
    """Return factors of the learning rate by `id(parameter)`; parameters without one have factor 1.

    AdamW and Muon change every weight by about the rate, however large the weight is. Two weights of T5 have another
    scale than in other models: its embeddings have variance 1 where others multiply small ones by sqrt(D), and its
    queries are smaller by sqrt(K) where others divide the scores. With these factors a step changes the model as much
    as in the others. (T5's own optimiser, Adafactor, makes each step proportional to the weight.)
    """
    multipliers: dict[int, float] = {}
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and module.scale is not None:
            for parameter in module.to_q.parameters():
                multipliers[id(parameter)] = module.d_head**-0.5 / module.scale
        if isinstance(module, T5):
            multipliers[id(module.embedding.table.weight)] = module.config.d_model**0.5
    return multipliers


@dataclass(frozen=True)
class OptimiserSettings:
    """[optimiser]: how gradients change the weights."""

    kind: Literal["adamw", "muon"] = "adamw"  # muon: Muon for the matrices inside the model, AdamW for the rest
    lr: Annotated[float | None, POSITIVE] = None  # highest rate; by default (d_model x warmup_steps)^-0.5
    beta1: Annotated[float, BELOW_1] = 0.9  # decay of AdamW's mean of gradients
    beta2: Annotated[float, BELOW_1] = 0.98  # decay of AdamW's mean of squared gradients
    eps: Annotated[float, POSITIVE] = 1e-9  # added to AdamW's denominator
    weight_decay: Annotated[float, AT_LEAST_0] = 0.0  # weight decay of matrices; biases and norms never decay
    momentum: Annotated[float, BELOW_1] = 0.95  # decay of Muon's mean of gradients
    max_grad_norm: Annotated[float, AT_LEAST_0] = 1.0  # gradients are clipped to this norm; 0: never
    frozen: tuple[str, ...] = ()  # parts that are not trained: embedding, encoder.layers.0, *.layers.0
    layer_decay: Annotated[float, RATIO] = 1.0  # rate of each layer, relative to the layer above it
    unfreeze_every: Annotated[int, AT_LEAST_0] = 0  # steps until one more layer, from the top, is trained; 0: train all

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.kind == "muon" and self.by_depth:
            raise UserError("'optimiser.layer_decay' and 'optimiser.unfreeze_every' need optimiser.kind = 'adamw'")

    @property
    def by_depth(self) -> bool:
        """Return whether the learning rate depends on the depth of a layer."""
        return self.layer_decay < 1.0 or self.unfreeze_every > 0


def peak_rate(settings: OptimiserSettings, *, d_model: int, warmup_steps: int) -> float:
    """Return optimiser.lr, or else the paper's peak, (d_model x warmup_steps)^-0.5."""
    return settings.lr or (d_model * max(warmup_steps, 1)) ** -0.5


def make_optimiser(model: nn.Module, settings: OptimiserSettings, *, bfloat16: bool = False) -> torch.optim.Optimizer:
    """Make AdamW for all parameters, or Muon for the matrices inside the model and AdamW for all other parameters.

    bfloat16: Muon multiplies its matrices in bfloat16, as the run does.
    """
    matrices = matrices_within(model) if settings.kind == "muon" else []
    with_muon = {id(matrix) for matrix in matrices}
    rest = {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in with_muon}
    depths = depths_of(model) if settings.by_depth else dict.fromkeys(rest, 0)
    if settings.by_depth and not any(depths.values()):
        raise UserError(
            "'optimiser.layer_decay' and 'optimiser.unfreeze_every' are for models of several layers, and this one "
            "applies one layer repeatedly: leave them out"
        )
    multipliers = lr_multipliers(model)
    adamw = make_adamw(rest, settings, depths, multipliers) if rest or not matrices else None
    if adamw is not None and not matrices:
        return adamw
    return Muon(
        matrices,
        adamw,
        multipliers=[multipliers.get(id(matrix), 1.0) for matrix in matrices],
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        bfloat16=bfloat16,
    )


def make_adamw(
    trained: Mapping[str, nn.Parameter],
    settings: OptimiserSettings,
    depths: Mapping[str, int],
    multipliers: Mapping[int, float],
) -> torch.optim.AdamW:
    """Make AdamW in its fused form: one pass over memory for each parameter.

    Parameters of one depth and one multiplier are a group with its own rate. The weight decay is divided by the
    multiplier, so that it does not depend on it.
    """
    top = max(depths.values())
    groups: list[dict[str, Any]] = []
    group_of = {name: (depths[name], multipliers.get(id(parameter), 1.0)) for name, parameter in trained.items()}
    for depth, multiplier in sorted(set(group_of.values()), reverse=True):
        members = [parameter for name, parameter in trained.items() if group_of[name] == (depth, multiplier)]
        rate = {"depth": depth, "share": multiplier * settings.layer_decay ** (top - depth), "active": 1.0}
        decay = settings.weight_decay / multiplier
        groups += [
            {"params": [p for p in members if p.dim() >= 2], "weight_decay": decay, **rate},
            {"params": [p for p in members if p.dim() < 2], "weight_decay": 0.0, **rate},
        ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=0.0,  # set before every step
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
    )


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group: its share of `rate`, or 0 while it is frozen."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("share", 1.0) * group.get("active", 1.0)


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale the gradient down to `max_norm` if its norm is larger (0: never); return the norm before that."""
    parameters = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if max_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm
