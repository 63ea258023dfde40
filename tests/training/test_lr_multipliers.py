"""T5 learns like an equal model with the usual scales: small embeddings times sqrt(D), divided scores."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.models.t5 import T5, T5Config
from heedful.nn.attention import MultiHeadAttention
from heedful.training.optim import OptimiserSettings, lr_multipliers, make_optimiser, set_rate

SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": 1, "dropout": 0.0}


def written_as_others_are(model: T5) -> T5:
    """Return a model that computes the same function with the usual scales."""
    twin, d_model = copy.deepcopy(model), model.config.d_model
    twin.config = replace(model.config, scaled=False)
    twin.embedding.scale = d_model**0.5
    with torch.no_grad():
        twin.embedding.table.weight /= d_model**0.5
        for attention in (part for part in twin.modules() if isinstance(part, MultiHeadAttention)):
            attention.scale = None
            attention.to_q.weight *= attention.d_head**0.5
    return twin


def train(model: nn.Module, settings: OptimiserSettings) -> None:
    optimiser = make_optimiser(model, settings)
    for number in range(5):
        ids = torch.randint(4, 20, (3, 5), generator=torch.Generator().manual_seed(number))
        nn.functional.cross_entropy(model(ids, ids).flatten(0, 1), ids.flip(1).flatten()).backward()
        set_rate(optimiser, 0.01)
        optimiser.step()
        optimiser.zero_grad()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_t5_learns_as_its_twin_does(kind: str, tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = T5(T5Config(vocab_size=20, d_head=8, tied=tied, **SIZES)).double()  # type: ignore[arg-type]
    twin, ids = written_as_others_are(model), torch.tensor([[5, 7, 12, 3]])
    torch.testing.assert_close(model(ids, ids), twin(ids, ids))
    before = model(ids, ids)
    settings = OptimiserSettings(kind=kind, eps=1e-30, weight_decay=0.1)  # type: ignore[arg-type]
    train(model, settings)
    monkeypatch.setattr("heedful.training.optim.lr_multipliers", lambda model: {})
    train(twin, settings)
    torch.testing.assert_close(model(ids, ids), twin(ids, ids), rtol=1e-6, atol=1e-6)  # Muon adds 1e-7
    assert (model(ids, ids) - before).abs().max() > 0.1


def test_other_models_have_one_rate() -> None:
    config = Seq2SeqConfig(source_vocab_size=20, target_vocab_size=20, **SIZES)  # type: ignore[arg-type]
    assert lr_multipliers(Seq2Seq(config)) == {}
    undivided = Seq2Seq(replace(config, init="t5"))
    queries = {id(p) for name, p in undivided.named_parameters() if "to_q" in name}
    assert set(lr_multipliers(undivided)) == queries
    assert set(lr_multipliers(undivided).values()) == {8**-0.5}
