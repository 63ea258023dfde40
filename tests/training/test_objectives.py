"""Inputs and targets of the decoder, and that micro-batches do not change the gradient."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from deterministic import fill, largest_difference, whole_numbers
from heedful.data import Batch, collate_pairs
from heedful.errors import UserError
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS
from heedful.training.objectives import (
    INPUTS,
    ObjectiveSettings,
    make_objective,
    replaced_share,
)

LENGTHS = [(3, 5), (7, 2), (1, 9), (4, 4), (6, 1)]


def batch_of(lengths: list[tuple[int, int]] = LENGTHS) -> Batch:
    sources = [whole_numbers(n, first=4, below=20, name=f"s{i}").numpy() for i, (n, _) in enumerate(lengths)]
    targets = [whole_numbers(n, first=4, below=20, name=f"t{i}").numpy() for i, (_, n) in enumerate(lengths)]
    return collate_pairs(sources, targets, torch.arange(len(lengths)).numpy(), special_ids=SPECIAL_IDS)


def model_of(**changes: object) -> Seq2Seq:
    config = Seq2SeqConfig(20, 20, d_model=8, d_ff=16, n_heads=2, n_layers=2, dropout=0.0, **changes)  # type: ignore[arg-type]
    model = fill(Seq2Seq(config))
    assert isinstance(model, Seq2Seq)
    return model


def gradients(model: Seq2Seq, parts: list[Batch], *, n_tokens: int, r_drop: float = 0.0) -> dict[str, Tensor]:
    objective = make_objective(ObjectiveSettings(), label_smoothing=0.1, r_drop=r_drop)
    model.zero_grad()
    for part in parts:
        (objective(model, part, 0) / n_tokens).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("n_parts", [2, 3, 5, 7])
@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_micro_batches_are_one_large_batch(n_parts: int, r_drop: float) -> None:
    """Rows of uneven length and parts of uneven size, even empty ones, give the same gradient up to rounding."""
    model, batch = model_of(), batch_of()
    whole = gradients(model, [batch], n_tokens=batch.n_target_tokens, r_drop=r_drop)
    parts = gradients(model, batch.split(n_parts), n_tokens=batch.n_target_tokens, r_drop=r_drop)
    assert whole.keys() == parts.keys()
    assert max(largest_difference(whole[name], parts[name]) for name in whole) <= 1e-10


def test_teacher_forcing_is_cross_entropy_of_real_tokens() -> None:
    model, batch = model_of(), batch_of()
    objective = make_objective(ObjectiveSettings(), label_smoothing=0.0, r_drop=0.0)
    expected = 0.0
    for row in range(len(batch)):
        length = int(batch.target_mask[row].sum())
        source = batch.source[row : row + 1, batch.source_mask[row]]
        logits = model(source, batch.target_in[row : row + 1, :length])
        expected += torch.nn.functional.cross_entropy(logits[0], batch.target_out[row, :length], reduction="sum").item()
    assert objective(model, batch, 0).item() == pytest.approx(expected, abs=1e-9)


def test_scheduled_sampling_feeds_the_prediction_of_the_step_before() -> None:
    model, batch = model_of(), batch_of()
    memory = model.encode(batch.source, batch.source_mask)
    notes = model.decode(batch.target_in, memory).argmax(-1)
    fed = INPUTS["scheduled_sampling"](model, batch, memory, 1.0)
    assert torch.equal(fed[:, 0], batch.target_in[:, 0])
    assert torch.equal(fed[:, 1:], notes[:, :-1])
    assert torch.equal(INPUTS["scheduled_sampling"](model, batch, memory, 0.0), batch.target_in)


def test_random_replacement_replaces_the_given_share_by_words() -> None:
    model, batch = model_of(), batch_of([(5, 30)] * 40)
    torch.manual_seed(0)
    fed = INPUTS["random_replacement"](model, batch, model.encode(batch.source, batch.source_mask), 0.25)
    changed = fed != batch.target_in
    assert torch.equal(fed[:, 0], batch.target_in[:, 0])
    assert fed[changed].min() >= 4 and fed.max() < 20
    assert 0.25 * 15 / 16 - 0.04 < changed[:, 1:].double().mean() < 0.25 + 0.04  # one in 16 hits the right word


@pytest.mark.parametrize("decay", ["linear", "exponential", "inverse_sigmoid"])
def test_the_share_of_replaced_inputs_grows(decay: str) -> None:
    settings = ObjectiveSettings(kind="scheduled_sampling", rate=0.4, decay=decay, decay_steps=100)  # type: ignore[arg-type]
    shares = [replaced_share(step, settings) for step in range(0, 1000, 5)]
    assert shares[0] <= 0.4 * 0.01
    assert all(a <= b for a, b in itertools.pairwise(shares))
    assert shares[-1] == pytest.approx(0.4, abs=0.01)


def test_agreement_sees_two_different_dropouts() -> None:
    model, batch = model_of(), batch_of()
    model.train()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.3
    plain = make_objective(ObjectiveSettings(), label_smoothing=0.0, r_drop=1e-9)
    apart = make_objective(ObjectiveSettings(), label_smoothing=0.0, r_drop=10.0)
    torch.manual_seed(0)
    low = float(plain(model, batch, 0))
    torch.manual_seed(0)
    assert float(apart(model, batch, 0)) > low + 0.01


def all_hidden(batch: Batch) -> Batch:
    """Return a batch whose input tokens are all hidden; start tokens, lengths and targets stay."""
    source, target_in = batch.source.clone(), batch.target_in.clone()
    source[batch.source_mask] = 0
    target_in[:, 1:][batch.target_mask[:, 1:]] = 0
    return replace(batch, source=source, target_in=target_in)


def test_token_cutoff_changes_nothing_but_its_tokens() -> None:
    model, batch = model_of(), batch_of()
    plain = make_objective(ObjectiveSettings(), label_smoothing=0.1, r_drop=0.0)
    hiding = make_objective(ObjectiveSettings(token_cutoff=1.0), label_smoothing=0.1, r_drop=0.0)
    assert hiding(model, batch, 0).item() == plain(model, all_hidden(batch), 0).item()
    assert hiding(model, batch, 0).item() != pytest.approx(plain(model, batch, 0).item(), abs=1e-3)


def test_a_pass_that_sees_all_agrees_with_one_that_does_not() -> None:
    """SimCut: the formula, from the logits of both passes."""
    model, batch = model_of(), batch_of()
    logits = [
        model(seen.source, seen.target_in, seen.source_mask)[seen.target_mask] for seen in (batch, all_hidden(batch))
    ]
    wanted = batch.target_out[batch.target_mask]
    p, q = (each.log_softmax(-1) for each in logits)
    apart = ((p.exp() - q.exp()) * (p - q)).sum()  # KL(p || q) + KL(q || p)
    missed = sum(torch.nn.functional.cross_entropy(each, wanted, reduction="sum") for each in logits) / 2
    objective = make_objective(ObjectiveSettings(token_cutoff=1.0), label_smoothing=0.0, r_drop=5.0)
    assert objective(model, batch, 0).item() == pytest.approx(float(missed + 5.0 / 4 * apart), abs=1e-8)


def test_token_cutoff_hides_the_given_share(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of(), batch_of([(30, 30), (11, 20)] * 40)
    seen: list[Tensor] = []
    encode, hidden_states = model.encode, model.hidden_states
    monkeypatch.setattr(model, "encode", lambda source, mask: (seen.append(source), encode(source, mask))[1])
    monkeypatch.setattr(
        model, "hidden_states", lambda target, *a, **k: (seen.append(target), hidden_states(target, *a, **k))[1]
    )
    torch.manual_seed(0)
    make_objective(ObjectiveSettings(token_cutoff=0.2), label_smoothing=0.0, r_drop=1.0)(model, batch, 0)
    for ids, given, real in zip(
        seen, (batch.source, batch.target_in), (batch.source_mask, batch.target_mask), strict=True
    ):
        first, second = ids.chunk(2)
        assert torch.equal(first, given)  # who sees all, sees all
        changed = second != given
        assert (second[changed] == 0).all()
        assert changed[real].double().mean().item() == pytest.approx(0.2, abs=0.03)
    assert torch.equal(seen[1][:, 0], batch.target_in[:, 0].repeat(2))


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_beyond_all_is_refused(share: float) -> None:
    with pytest.raises(UserError, match=r"'token_cutoff' must be in \[0, 1\]"):
        ObjectiveSettings(token_cutoff=share)
