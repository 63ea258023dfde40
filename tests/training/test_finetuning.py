"""Frozen parts, layer-wise learning rates, gradual unfreezing, and weights of a model to start from."""

import pytest
import torch
from torch import nn

from heedful.errors import UserError
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import LoadedModel
from heedful.models.t5 import T5, T5Config
from heedful.models.universal import Universal, UniversalConfig
from heedful.training.finetuning import depths_of, freeze, load_matching_weights, unfreeze_layers
from heedful.training.optim import OptimiserSettings, make_optimiser, set_rate


def bert(**changes: object) -> Bert:
    return Bert(BertConfig(20, d_model=8, d_ff=16, n_heads=2, n_layers=3, max_len=8, **changes))  # type: ignore[arg-type]


def rates(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, float]:
    rate = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    return {name: rate[id(parameter)] for name, parameter in model.named_parameters()}


def test_depths_count_from_the_input() -> None:
    depths = depths_of(bert())
    assert depths["embedding.table.weight"] == depths["positions.table.weight"] == 0
    layer = next(name for name in depths if name.startswith("encoder.layers.1."))
    assert (depths[layer], depths["head.linear.bias"]) == (2, 4)


def test_tables_of_distances_have_depth_0() -> None:
    config = T5Config(20, d_model=8, d_ff=16, n_heads=2, d_head=4, n_layers=2)
    depths = depths_of(T5(config))
    tables = [name for name in depths if name.endswith("table.weight")]
    assert len(tables) == 3 and {depths[name] for name in tables} == {0}
    assert depths["decoder.final_norm.weight"] == 3


@pytest.mark.parametrize("settings", [{"layer_decay": 0.5}, {"unfreeze_every": 5}])
def test_a_universal_transformer_has_no_depths(settings: dict[str, float]) -> None:
    model = Universal(UniversalConfig(20, 20, d_model=8, d_ff=16, n_heads=2, n_steps=2))
    with pytest.raises(UserError, match="applies one layer repeatedly"):
        make_optimiser(model, OptimiserSettings(**settings))  # type: ignore[arg-type]


def test_lower_layers_learn_more_slowly() -> None:
    model = bert()
    optimiser = make_optimiser(model, OptimiserSettings(layer_decay=0.5))
    set_rate(optimiser, 1.0)
    found, depths = rates(model, optimiser), depths_of(model)
    assert all(found[name] == 0.5 ** (4 - depths[name]) for name in found)


def test_layers_are_unfrozen_from_the_top() -> None:
    model = bert()
    optimiser = make_optimiser(model, OptimiserSettings(unfreeze_every=10))
    depths = depths_of(model)
    for step, lowest in ((0, 4), (9, 4), (10, 3), (35, 1), (40, 0), (1000, 0)):
        unfreeze_layers(optimiser, step, 10)
        set_rate(optimiser, 1.0)
        found = rates(model, optimiser)
        assert {name for name in found if found[name]} == {name for name in depths if depths[name] >= lowest}


def test_frozen_layers_do_not_change() -> None:
    model = bert()
    optimiser = make_optimiser(model, OptimiserSettings(unfreeze_every=5, weight_decay=0.1))
    unfreeze_layers(optimiser, 0, 5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    set_rate(optimiser, 0.1)
    model(torch.arange(8)[None]).sum().backward()
    optimiser.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved and all(name.startswith("head.") for name in moved)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("embedding", {"embedding.table.weight"}),
        ("*.layers.0", None),
        ("head.linear.bias", {"head.linear.bias"}),
    ],
)
def test_frozen_parts(pattern: str, names: set[str] | None) -> None:
    model = bert()
    frozen = set(freeze(model, [pattern]))
    assert frozen == (names or {name for name, _ in model.named_parameters() if ".layers.0." in name})
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == frozen


def test_an_unknown_part_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'embeddings'.*did you mean 'embedding'"):
        freeze(bert(), ["embeddings"])
    with pytest.raises(UserError, match="nothing to train"):
        freeze(bert(), ["*"])


def test_a_head_for_other_labels_is_new_even_if_it_fits() -> None:
    start = LoadedModel("bert", bert(head="classify", labels=("good", "bad")), None)
    same, other = bert(head="classify", labels=("good", "bad")), bert(head="classify", labels=("bad", "good"))
    assert "new" not in load_matching_weights(same, start)
    assert torch.equal(same.head.linear.weight, start.model.head.linear.weight)  # type: ignore[union-attr,arg-type]
    assert "new: head." in load_matching_weights(other, start)
    assert not torch.equal(other.head.linear.weight, start.model.head.linear.weight)  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize("begin", [{"head": "masked", "pooler": True}, {"head": "pool"}])
def test_the_pooler_of_pre_training_is_taken_into_another_head(begin: dict[str, object]) -> None:
    start, model = bert(**begin), bert(head="classify", labels=("good", "bad"))
    words = load_matching_weights(model, LoadedModel("bert", start, None))
    before = start.head if begin["head"] == "pool" else start.head.pooler
    assert torch.equal(model.head.pooler.linear.weight, before.linear.weight)  # type: ignore[union-attr,arg-type]
    assert "new: head.linear.weight, head.linear.bias" in words
    assert "pooler" not in words and ("not used: head" in words) == (begin["head"] == "masked")


def test_only_a_masked_head_keeps_a_pooler() -> None:
    with pytest.raises(UserError, match="pooler = true is only for head = 'masked'"):
        bert(head="pool", pooler=True)


def test_layer_decay_needs_adamw() -> None:
    with pytest.raises(UserError, match="adamw"):
        OptimiserSettings(kind="muon", layer_decay=0.9)
