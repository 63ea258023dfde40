"""Auxiliary losses (Al-Rfou et al. 2018): their value, when they end, and that saved models have no part of them."""

import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from deterministic import fill
from heedful import UserError, load_model, train
from heedful.data import LmBatch
from heedful.models.gpt import Gpt, GptConfig
from heedful.training import Settings
from heedful.training.auxiliary_losses import AuxiliarySettings, auxiliary_heads, with_auxiliary_heads
from heedful.training.checkpoint import list_checkpoints, load_checkpoint
from heedful.training.tasks.language_modeling import next_token_loss
from small_tasks import CASES, Case

N_LAYERS = 4
PAPER = AuxiliarySettings(layers=1.0, ahead=2)


def model_with(settings: AuxiliarySettings | None) -> Gpt:
    config = GptConfig(vocab_size=30, d_model=16, n_layers=N_LAYERS, n_heads=2, d_ff=24, max_len=16, dropout=0.0)
    model = Gpt(config)
    model = fill(model if settings is None else with_auxiliary_heads(model, settings))
    assert isinstance(model, Gpt)
    return model


def rows() -> LmBatch:
    """Two documents in the first row, padding at the end of the last."""
    ids = 4 + torch.arange(3 * 9).reshape(3, 9) * 7 % 25
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[2, 6:] = False
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [2] * 8, [3] * 6 + [-1] * 2])
    return LmBatch(ids[:, :-1], ids[:, 1:], mask, documents, torch.zeros(3, 8).long(), torch.arange(3))


def gradients(model: Gpt, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: tensor for name, tensor in zip(named, found, strict=True) if tensor is not None}


def test_the_schedule() -> None:
    """Of n layers, layer l stops contributing after l / 2n of the training; the last never does."""
    heads = auxiliary_heads(model_with(PAPER))
    assert heads is not None
    assert heads.targets == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (4, 2)]
    active = {
        0.0: [1, 2, 3],
        0.124: [1, 2, 3],
        0.125: [2, 3],
        0.249: [2, 3],
        0.25: [3],
        0.374: [3],
        0.375: [],
        0.5: [],
        1.0: [],
    }
    for done, layers in active.items():
        for layer in (1, 2, 3):
            assert heads.weight(layer, 1, done) == (1.0 if layer in layers else 0.0)
            assert heads.weight(layer, 2, done) == (0.5 if layer in layers else 0.0)
        assert heads.weight(4, 2, done) == 0.5


def test_without_weight_it_is_the_plain_loss_bit_for_bit() -> None:
    plain, model = model_with(None), model_with(AuxiliarySettings(layers=1.0))
    batch = rows()
    expected = next_token_loss(plain, batch, isolate_documents=True)
    loss = next_token_loss(model, batch, isolate_documents=True, done=0.5)
    assert loss.item() == expected.item()
    wanted, found = gradients(plain, expected), gradients(model, loss)
    assert [name for name in wanted if not torch.equal(wanted[name], found[name])] == []
    extra = found.keys() - wanted.keys()
    assert len(extra) == N_LAYERS - 1 and not any(found[name].any() for name in extra)  # for the other ranks' sake
    assert next_token_loss(model, batch, isolate_documents=True).item() == expected.item()  # as validation asks


@pytest.mark.parametrize("isolate_documents", [True, False])
def test_auxiliary_losses_written_out(isolate_documents: bool) -> None:
    model, batch = model_with(PAPER), rows()
    heads = auxiliary_heads(model)
    assert heads is not None
    layers: list[torch.Tensor] = []
    model.hidden_states(batch.target_in, documents=batch.documents if isolate_documents else None, layers=layers)
    expected = next_token_loss(model, batch, isolate_documents=isolate_documents)
    matrices = dict(zip(heads.targets, heads.matrices(), strict=True))
    for row, t in batch.target_mask.nonzero().tolist():
        for (layer, ahead), matrix in matrices.items():
            there = t + ahead - 1
            is_real = there < 8 and bool(batch.target_mask[row, there])
            # At 0.2 of the training, layer 1 of 4 has stopped.
            if (
                layer == 1
                or not is_real
                or (isolate_documents and batch.documents[row, there] != batch.documents[row, t])
            ):
                continue
            logits = model.final_norm(layers[layer - 1][row, t]) @ matrix.T
            loss = F.cross_entropy(logits[None], batch.target_out[row, there][None])
            expected = expected + (1.0 if ahead == 1 else 0.5) * loss
    torch.testing.assert_close(next_token_loss(model, batch, isolate_documents=isolate_documents, done=0.2), expected)


def test_micro_batches_have_the_gradient_of_the_batch() -> None:
    model, batch = model_with(PAPER), rows()
    whole = next_token_loss(model, batch, isolate_documents=True, done=0.1)
    parts = sum(next_token_loss(model, part, isolate_documents=True, done=0.1) for part in batch.split(2))
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    wanted = gradients(model, whole)
    for name, tensor in gradients(model, parts).items():
        torch.testing.assert_close(tensor, wanted[name], rtol=1e-9, atol=1e-12, msg=name)


def test_auxiliary_heads_do_not_change_new_weights() -> None:
    config = GptConfig(vocab_size=30, d_model=16, n_layers=2, n_heads=2, d_ff=24)
    torch.manual_seed(1)
    plain = Gpt(config).state_dict()
    torch.manual_seed(1)
    with_heads = with_auxiliary_heads(Gpt(config), PAPER).state_dict()
    assert all(torch.equal(with_heads[name], tensor) for name, tensor in plain.items())
    assert with_heads.keys() - plain.keys() == {f"auxiliary.heads.{i}.linear.weight" for i in range(3)}


def test_a_run_leaves_plain_models_and_resumes_exactly(tmp_path: Path) -> None:
    plain = CASES["next_token windows"]
    options = ["model.n_layers=2", "auxiliary.layers=1.0", "auxiliary.ahead=2", "run.ema=0.0", "run.validate_every=4"]
    case = Case(plain.kind, plain.family, [*plain.settings, *options])
    files = case.files(tmp_path / "files")
    train(folder=tmp_path / "run", family=case.family, overrides=case.overrides, **files)  # type: ignore[arg-type]
    for name in ("best", "last", "average"):
        model = load_model(tmp_path / "run" / name).model
        assert isinstance(model, Gpt) and not any("auxiliary" in key for key in model.state_dict())
    checkpoints = list_checkpoints(tmp_path / "run" / "checkpoints")
    whole = load_checkpoint(checkpoints[-1])
    assert any(name.startswith("auxiliary.") for name in whole.model)
    assert any(name.startswith("auxiliary.") for name in whole.optimiser)
    for folder in checkpoints:  # as if it had been stopped after the third step
        if load_checkpoint(folder).state.step > 3:
            shutil.rmtree(folder)
    train(folder=tmp_path / "run", resume=True)
    again = load_checkpoint(list_checkpoints(tmp_path / "run" / "checkpoints")[-1])
    assert again.state.step == whole.state.step == 12 and again.state.scores == whole.state.scores
    for kind in ("model", "optimiser"):
        a, b = getattr(again, kind), getattr(whole, kind)
        assert a.keys() == b.keys() and [name for name in a if not torch.equal(a[name], b[name])] == []


def test_mistakes_are_said() -> None:
    with pytest.raises(UserError, match="for language models"):
        Settings(family="bert", auxiliary=PAPER)
    with pytest.raises(UserError, match=r"ahead"):
        AuxiliarySettings(ahead=0)
    with pytest.raises(UserError, match=r"layers"):
        AuxiliarySettings(layers=-1.0)
