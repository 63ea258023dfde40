"""What a model is trained for: functions (model, batch, step) -> loss, a sum over the batch's target tokens.

The loop knows none of them. Here are those of models that read a source and write a target; the others stand with their
tasks.
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

    kind: Literal["teacher_forcing", "scheduled_sampling", "random_replacement"] = "teacher_forcing"  # target inputs
    rate: Annotated[float, SHARE] = 0.25  # share of target inputs that are replaced in the end
    decay: Literal["linear", "exponential", "inverse_sigmoid"] = "linear"  # how the share of true inputs falls
    decay_steps: Annotated[int, AT_LEAST_1] = 10_000  # steps over which it falls
    token_cutoff: Annotated[float, SHARE] = 0.0  # share of input tokens hidden; with R-Drop, in one of the two passes

    def __post_init__(self) -> None:
        check_ranges(self)


EncoderDecoder = Seq2Seq | Bart | T5 | Universal

# (model, batch, step) -> loss; each knows its own family of models and kind of batches
Objective = Callable[[Any, Any, int], Tensor]


def make_objective(
    settings: ObjectiveSettings, *, label_smoothing: float, r_drop: float, family: str = "seq2seq"
) -> Objective:
    """The objective that the settings name, with its numbers filled in."""
    change = INPUTS[settings.kind]

    def objective(model: EncoderDecoder, batch: Batch, step: int) -> Tensor:
        if r_drop > 0.0:
            batch = _joined(batch, _hiding(batch, settings.token_cutoff, model.config.special_ids.pad_id))
        elif settings.token_cutoff > 0.0:
            batch = _hiding(batch, settings.token_cutoff, model.config.special_ids.pad_id)
        memory = model.encode(batch.source, batch.source_mask)
        inputs = change(model, batch, memory, replaced_share(step, settings))
        states = model.hidden_states(inputs, memory, target_mask=batch.target_mask)
        return token_loss(model, states, batch, label_smoothing=label_smoothing, r_drop=r_drop)

    def pondering(model: Universal, batch: Batch, step: int) -> Tensor:
        """With the price of thinking long: how often the positions were gone over in all, times its weight."""
        states, ponder = model.hidden_states_and_ponder(
            batch.source, batch.target_in, batch.source_mask, batch.target_mask
        )
        loss = token_loss(model, states, batch, label_smoothing=label_smoothing)
        return loss + model.config.ponder_weight * ponder

    if family == "universal":
        if settings.kind != "teacher_forcing" or r_drop > 0.0 or settings.token_cutoff > 0.0:
            raise UserError(
                "the family 'universal' learns by teacher forcing, without loss.r_drop and objective.token_cutoff"
            )
        return pondering
    return objective


def pair_loss(model: EncoderDecoder, batch: Batch) -> Tensor:
    """As validation sees it: the reference as input, nothing smoothed."""
    memory = model.encode(batch.source, batch.source_mask)
    states = model.hidden_states(batch.target_in, memory, target_mask=batch.target_mask)
    return token_loss(model, states, batch, label_smoothing=0.0)


def token_loss(
    model: EncoderDecoder, states: Tensor, batch: Batch, *, label_smoothing: float, r_drop: float = 0.0
) -> Tensor:
    """The loss of real target tokens only: padding has no part in it, forward or backward."""
    states, target = states[batch.target_mask], batch.target_out[batch.target_mask]
    linear = model.head.linear
    if r_drop > 0.0:
        return agreeing_cross_entropy(
            states, linear.weight, target, bias=linear.bias, label_smoothing=label_smoothing, agreement=r_drop
        )
    return linear_cross_entropy(states, linear.weight, target, bias=linear.bias, label_smoothing=label_smoothing)


def _reference(model: EncoderDecoder, batch: Batch, memory: Memory, share: float) -> Tensor:
    """Teacher forcing: the input is what should have been said before."""
    return batch.target_in


def _own_words(model: EncoderDecoder, batch: Batch, memory: Memory, share: float) -> Tensor:
    """Scheduled sampling for Transformers: a first pass in parallel says what the model would say; some of that is put
    in place of the reference, and the second pass learns from there (Mihaylova & Martins 2019, Duckworth et al. 2019).
    """
    if share == 0.0:
        return batch.target_in
    with torch.no_grad():
        states = model.hidden_states(batch.target_in, memory, target_mask=batch.target_mask)
        said = model.head(states).argmax(dim=-1)  # (B, T); said[:, t] stands where target_in[:, t + 1] does
    replaced = _chosen(batch, share)
    replaced[:, 0] = False  # the start mark is never a mistake
    return torch.where(replaced, said.roll(1, dims=1), batch.target_in)


def _wrong_words(model: EncoderDecoder, batch: Batch, memory: Memory, share: float) -> Tensor:
    """Wrong inputs now and then: some target words are replaced by any other word of the vocabulary."""
    n_special = 4  # pad, unk, start, end are not words
    words = torch.randint(
        n_special, model.head.linear.out_features, batch.target_in.shape, device=batch.target_in.device
    )
    replaced = _chosen(batch, share)
    replaced[:, 0] = False
    return torch.where(replaced, words, batch.target_in)


INPUTS: dict[str, Callable[[EncoderDecoder, Batch, Memory, float], Tensor]] = {
    "teacher_forcing": _reference,
    "scheduled_sampling": _own_words,
    "random_replacement": _wrong_words,
}


def replaced_share(step: int, settings: ObjectiveSettings) -> float:
    """The share of inputs to replace at this step: from 0 towards `rate`, as trust in the reference falls."""
    return settings.rate * (1.0 - TRUST[settings.decay](step / settings.decay_steps))


def _inverse_sigmoid(done: float, k: float = 5.0) -> float:
    """k / (k + exp(k x …)), scaled so that trust is a half when half of the steps are done (Bengio et al. 2015)."""
    return 1.0 / (1.0 + math.exp(min(2 * k * (done - 0.5), 700.0)))


TRUST: dict[str, Callable[[float], float]] = {
    "linear": lambda done: max(0.0, 1.0 - done),
    "exponential": lambda done: math.exp(-3.0 * done),  # 5 % are left when the steps are done
    "inverse_sigmoid": _inverse_sigmoid,
}


def _chosen(batch: Batch, share: float) -> Tensor:
    return torch.rand(batch.target_in.shape, device=batch.target_in.device) < share


def _hiding(batch: Batch, share: float, padding: int) -> Batch:
    """The same batch with a share of its words out of sight: padding stands in their place, as if it were real.

    Token cutoff (Shen et al. 2020). Where a pass that sees all must agree with one that does not, it is SimCut (Gao et
    al. 2022).
    """
    if share == 0.0:
        return batch
    source = torch.rand(batch.source.shape, device=batch.source.device) < share
    target = _chosen(batch, share)
    target[:, 0] = False  # there is always a start
    return replace(
        batch,
        source=batch.source.masked_fill(source, padding),
        target_in=batch.target_in.masked_fill(target, padding),
    )


def _joined(first: Batch, second: Batch) -> Batch:
    """The rows of one after those of the other, of the same widths: each meets its own dropout."""
    return Batch(**{f.name: torch.cat([getattr(first, f.name), getattr(second, f.name)]) for f in fields(Batch)})
