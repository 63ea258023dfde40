"""The learning rate as a pure function of the step: nothing to save, nothing to restore.

How large the numbers of a weight are by design, beside those of other models: it learns at that many times the rate.

AdamW and Muon move every number by about the rate, however large it is. T5 writes two things in another unit: its
embeddings have variance one where others multiply small ones by sqrt(D), and its queries are smaller by sqrt(K) where
others divide the scores. Each at its own rate, a step is the one that the others would have taken. (T5's own optimiser,
Adafactor, makes each step in proportion to the weight.)

How gradients become updates.
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
    """The rate of update number `step`, counted from 0. The peak is reached at the end of the warm-up."""
    warmup = schedule.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    return SHAPES[schedule.kind](step, peak, steps, schedule)


def _inverse_sqrt(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    """Section 5.3 of the paper; its peak is d_model^-0.5 x warmup_steps^-0.5."""
    return peak * math.sqrt(max(schedule.warmup_steps, 1) / (step + 1))


def _cosine(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    done = _done(step, steps, schedule.warmup_steps)
    return schedule.final_lr + (peak - schedule.final_lr) * (1 + math.cos(math.pi * done)) / 2


def _linear(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    return peak + (schedule.final_lr - peak) * _done(step, steps, schedule.warmup_steps)


def _constant(step: int, peak: float, steps: int, schedule: ScheduleSettings) -> float:
    return peak


def _done(step: int, steps: int, warmup: int) -> float:
    """How much of the way from the end of the warm-up to the last step lies behind, 0 to 1."""
    return min(1.0, max(0.0, (step - warmup) / max(1, steps - warmup)))


SHAPES: dict[str, Callable[[int, float, int, ScheduleSettings], float]] = {
    "inverse_sqrt": _inverse_sqrt,
    "cosine": _cosine,
    "linear": _linear,
    "constant": _constant,
}


def lr_multipliers(model: nn.Module) -> dict[int, float]:
    """By the id of a parameter; those that are not there have 1."""
    found: dict[int, float] = {}
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and module.scale is not None:
            for parameter in module.to_q.parameters():
                found[id(parameter)] = module.d_head**-0.5 / module.scale
        if isinstance(module, T5):
            found[id(module.embedding.table.weight)] = module.config.d_model**0.5
    return found


@dataclass(frozen=True)
class OptimiserSettings:
    """[optimiser]: how gradients change the weights."""

    kind: Literal["adamw", "muon"] = "adamw"  # muon: Muon for the matrices inside the model, AdamW for the rest
    lr: Annotated[float | None, POSITIVE] = None  # highest rate; by default (d_model x warmup_steps)^-0.5
    beta1: Annotated[float, BELOW_1] = 0.9  # decay of AdamW's mean of gradients
    beta2: Annotated[float, BELOW_1] = 0.98  # decay of AdamW's mean of squared gradients
    eps: Annotated[float, POSITIVE] = 1e-9  # added to AdamW's denominator
    weight_decay: Annotated[float, AT_LEAST_0] = 0.0  # of matrices; biases and norms never decay
    momentum: Annotated[float, BELOW_1] = 0.95  # of muon
    max_grad_norm: Annotated[float, AT_LEAST_0] = 1.0  # gradients are clipped to this norm; 0: never
    frozen: tuple[str, ...] = ()  # parts that are not trained: embedding, encoder.layers.0, *.layers.0
    layer_decay: Annotated[float, RATIO] = 1.0  # rate of each layer, relative to the layer above it
    unfreeze_every: Annotated[int, AT_LEAST_0] = 0  # train the top alone, one more layer every so many steps; 0: all

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.kind == "muon" and self.by_depth:
            raise UserError("'optimiser.layer_decay' and 'optimiser.unfreeze_every' need optimiser.kind = 'adamw'")

    @property
    def by_depth(self) -> bool:
        """Whether layers differ in how they learn."""
        return self.layer_decay < 1.0 or self.unfreeze_every > 0


def peak_rate(settings: OptimiserSettings, *, d_model: int, warmup_steps: int) -> float:
    return settings.lr or (d_model * max(warmup_steps, 1)) ** -0.5


def make_optimiser(model: nn.Module, settings: OptimiserSettings, *, bfloat16: bool = False) -> torch.optim.Optimizer:
    """AdamW for all parameters, or Muon for the matrices inside the model and AdamW for the rest.

    `bfloat16`: the run multiplies matrices in such numbers; so does Muon then.
    """
    matrices = matrices_within(model) if settings.kind == "muon" else []
    chosen = {id(matrix) for matrix in matrices}
    rest = {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in chosen}
    depths = depths_of(model) if settings.by_depth else dict.fromkeys(rest, 0)
    if settings.by_depth and not any(depths.values()):
        raise UserError(
            "'optimiser.layer_decay' and 'optimiser.unfreeze_every' are for models of several layers, and this one "
            "goes through one layer again and again: leave them out"
        )
    sizes = lr_multipliers(model)
    adamw = make_adamw(rest, settings, depths, sizes) if rest or not matrices else None  # frozen: all but matrices
    if adamw is not None and not matrices:
        return adamw
    how = {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
    return Muon(matrices, adamw, sizes=[sizes.get(id(matrix), 1.0) for matrix in matrices], bfloat16=bfloat16, **how)


def make_adamw(
    trained: Mapping[str, nn.Parameter],
    settings: OptimiserSettings,
    depths: Mapping[str, int],
    sizes: Mapping[int, float],
) -> torch.optim.AdamW:
    """AdamW in its fused form: one pass over memory for each parameter.

    Each depth is a group with its own rate; so is, within it, each size that numbers have by design. Whatever the size,
    as large a share of it decays.
    """
    top = max(depths.values())
    groups: list[dict[str, Any]] = []
    places = {name: (depths[name], sizes.get(id(parameter), 1.0)) for name, parameter in trained.items()}
    for depth, size in sorted(set(places.values()), reverse=True):
        here = [parameter for name, parameter in trained.items() if places[name] == (depth, size)]
        rate = {"depth": depth, "share": size * settings.layer_decay ** (top - depth), "active": 1.0}
        groups += [
            {"params": [p for p in here if p.dim() >= 2], "weight_decay": settings.weight_decay / size, **rate},
            {"params": [p for p in here if p.dim() < 2], "weight_decay": 0.0, **rate},
        ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=0.0,  # set before every step
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
    )


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("share", 1.0) * group.get("active", 1.0)


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """The length of the whole gradient; where it is longer than `max_norm`, it is shortened to that."""
    parameters = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if max_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm
