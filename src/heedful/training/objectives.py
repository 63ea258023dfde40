"""Objectives of encoder-decoders: functions (model, batch, step) -> loss, summed over the target tokens of a batch.

The objectives of other models are in the modules of their tasks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from heedful.data.collate import Batch
from heedful.errors import UserError
from heedful.models.bart import Bart
from heedful.models.seq2seq import Seq2Seq
from heedful.models.t5 import T5
from heedful.models.universal import Universal
from heedful.nn.stacks import Memory
from heedful.training.losses import agreeing_cross_entropy, linear_cross_entropy
from heedful.training.setting_ranges import AT_LEAST_1, SHARE, check_ranges


@dataclass(frozen=True)
class ObjectiveSettings:
    """[objective]: which inputs an encoder-decoder is trained with."""

    kind: Literal["teacher_forcing", "scheduled_sampling", "random_replacement"] = "teacher_forcing"  # decoder inputs
    rate: Annotated[float, SHARE] = 0.25  # share of target inputs that are replaced in the end
    decay: Literal["linear", "exponential", "inverse_sigmoid"] = "linear"  # how the share of true inputs falls
    decay_steps: Annotated[int, AT_LEAST_1] = 10_000  # steps over which that share falls
    token_cutoff: Annotated[float, SHARE] = 0.0  # share of masked input tokens; with R-Drop, in one of the two passes

    def __post_init__(self) -> None:
        check_ranges(self)


EncoderDecoder = Seq2Seq | Bart | T5 | Universal

# (model, batch, step) -> loss; each takes its own family of models and kind of batches
Objective = Callable[[Any, Any, int], Tensor]


def make_objective(
    settings: ObjectiveSettings, *, label_smoothing: float, r_drop: float, family: str = "seq2seq"
) -> Objective:
    """Return the objective that the settings describe.

    label_smoothing: share of the probability that is spread over the vocabulary.
    r_drop: weight of R-Drop; 0: one pass.
    """
    change_inputs = INPUTS[settings.kind]

    def objective(model: EncoderDecoder, batch: Batch, step: int) -> Tensor:
        if r_drop > 0.0:
            batch = _joined(batch, _with_cutoff(batch, settings.token_cutoff, model.config.special_ids.pad_id))
        elif settings.token_cutoff > 0.0:
            batch = _with_cutoff(batch, settings.token_cutoff, model.config.special_ids.pad_id)
        memory = model.encode(batch.source, batch.source_mask)
        inputs = change_inputs(model, batch, memory, replaced_share(step, settings))
        states = model.hidden_states(inputs, memory, target_mask=batch.target_mask)
        return token_loss(model, states, batch, label_smoothing=label_smoothing, r_drop=r_drop)

    def pondering(model: Universal, batch: Batch, step: int) -> Tensor:
        """Add the ponder cost: how often all positions were updated, times `ponder_weight` (Graves 2016)."""
        states, ponder = model.hidden_states_and_ponder(
            batch.source, batch.target_in, batch.source_mask, batch.target_mask
        )
        loss = token_loss(model, states, batch, label_smoothing=label_smoothing)
        return loss + model.config.ponder_weight * ponder

    if family == "universal":
        if settings.kind != "teacher_forcing" or r_drop > 0.0 or settings.token_cutoff > 0.0:
            raise UserError(
                "the family 'universal' is trained with teacher forcing: leave objective.kind, loss.r_drop and "
                "objective.token_cutoff out"
            )
        return pondering
    return objective


def pair_loss(model: EncoderDecoder, batch: Batch) -> Tensor:
    """Return the loss of validation: teacher forcing, no label smoothing."""
    memory = model.encode(batch.source, batch.source_mask)
    states = model.hidden_states(batch.target_in, memory, target_mask=batch.target_mask)
    return token_loss(model, states, batch, label_smoothing=0.0)


def token_loss(
    model: EncoderDecoder, states: Tensor, batch: Batch, *, label_smoothing: float, r_drop: float = 0.0
) -> Tensor:
    """Return the summed loss of the target tokens, without padding; states (B, T, D)."""
    states, target = states[batch.target_mask], batch.target_out[batch.target_mask]
    linear = model.head.linear
    if r_drop > 0.0:
        return agreeing_cross_entropy(
            states, linear.weight, target, bias=linear.bias, label_smoothing=label_smoothing, agreement=r_drop
        )
    return linear_cross_entropy(states, linear.weight, target, bias=linear.bias, label_smoothing=label_smoothing)


def _teacher_forcing(model: EncoderDecoder, batch: Batch, memory: Memory, share: float) -> Tensor:
    """Return the reference as input."""
    return batch.target_in


def _scheduled_sampling(model: EncoderDecoder, batch: Batch, memory: Memory, share: float) -> Tensor:
    """Replace some inputs by the model's own predictions, made in a first parallel pass without gradients.

    Scheduled sampling for Transformers (Mihaylova & Martins 2019, Duckworth et al. 2019).
    """
    if share == 0.0:
        return batch.target_in
    with torch.no_grad():
        states = model.hidden_states(batch.target_in, memory, target_mask=batch.target_mask)
        predicted = model.head(states).argmax(dim=-1)  # (B, T); predicted[:, t] takes the place of target_in[:, t + 1]
    replaced = _random_positions(batch, share)
    replaced[:, 0] = False  # the start token stays
    return torch.where(replaced, predicted.roll(1, dims=1), batch.target_in)


def _random_replacement(model: EncoderDecoder, batch: Batch, memory: Memory, share: float) -> Tensor:
    """Replace some inputs by random tokens of the vocabulary."""
    n_special = 4  # pad, unk, start, end are not words
    words = torch.randint(
        n_special, model.head.linear.out_features, batch.target_in.shape, device=batch.target_in.device
    )
    replaced = _random_positions(batch, share)
    replaced[:, 0] = False
    return torch.where(replaced, words, batch.target_in)


INPUTS: dict[str, Callable[[EncoderDecoder, Batch, Memory, float], Tensor]] = {
    "teacher_forcing": _teacher_forcing,
    "scheduled_sampling": _scheduled_sampling,
    "random_replacement": _random_replacement,
}


def replaced_share(step: int, settings: ObjectiveSettings) -> float:
    """Return the share of inputs to replace at this step, which grows from 0 to objective.rate."""
    return settings.rate * (1.0 - TEACHER_SHARE[settings.decay](step / settings.decay_steps))


def _inverse_sigmoid(done: float, k: float = 5.0) -> float:
    """k / (k + exp(k x …)), scaled to be a half when half of the steps are done (Bengio et al. 2015)."""
    return 1.0 / (1.0 + math.exp(min(2 * k * (done - 0.5), 700.0)))


# how the share of true inputs falls, by the share of objective.decay_steps that is done
TEACHER_SHARE: dict[str, Callable[[float], float]] = {
    "linear": lambda done: max(0.0, 1.0 - done),
    "exponential": lambda done: math.exp(-3.0 * done),  # 5 % at the end of the steps
    "inverse_sigmoid": _inverse_sigmoid,
}


def _random_positions(batch: Batch, share: float) -> Tensor:
    return torch.rand(batch.target_in.shape, device=batch.target_in.device) < share


def _with_cutoff(batch: Batch, share: float, pad_id: int) -> Batch:
    """Replace a share of the input tokens, of source and target, by padding that the model attends to.

    Token cutoff (Shen et al. 2020). With R-Drop one pass sees all tokens and the other does not: SimCut (Gao et al.
    2022).
    """
    if share == 0.0:
        return batch
    source = torch.rand(batch.source.shape, device=batch.source.device) < share
    target = _random_positions(batch, share)
    target[:, 0] = False  # the start token stays
    return replace(
        batch,
        source=batch.source.masked_fill(source, pad_id),
        target_in=batch.target_in.masked_fill(target, pad_id),
    )


def _joined(first: Batch, second: Batch) -> Batch:
    """Put the rows of two batches of the same widths into one, so that each copy gets its own dropout."""
    return Batch(**{f.name: torch.cat([getattr(first, f.name), getattr(second, f.name)]) for f in fields(Batch)})
