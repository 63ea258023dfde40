"""What holds of every bert: which tokens have a say, what the heads give, what is refused."""

from pathlib import Path

import pytest
import torch

from deterministic import fill, largest_difference, whole_numbers
from heedful.errors import UserError
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import load_model, save_model
from heedful.text.special_ids import SpecialIds

SIZES = {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20, "max_len": 10}
HEADS = {
    "masked": {"head": "masked"},
    "classify": {"head": "classify", "labels": ("a", "b", "c")},
    "tag": {"head": "tag", "labels": ("a", "b", "c")},
    "pool": {"head": "pool"},
    "none": {"head": "none"},
}
SHAPES = {"masked": (2, 6, 30), "classify": (2, 3), "tag": (2, 6, 3), "pool": (2, 16), "none": (2, 6, 16)}


def made(**changes) -> Bert:
    return fill(Bert(BertConfig(30, **{**SIZES, **changes})))


def ids(*shape: int) -> torch.Tensor:
    return whole_numbers(*shape, below=30, name="ids")


@pytest.mark.parametrize("head", HEADS)
def test_each_head_has_its_shape(head: str) -> None:
    assert tuple(made(**HEADS[head])(ids(2, 6)).shape) == SHAPES[head]


@pytest.mark.parametrize("head", HEADS)
def test_padding_on_the_right_changes_nothing(head: str) -> None:
    model = made(**HEADS[head])
    short = ids(2, 6)
    padded = torch.cat([short, ids(2, 3)], dim=1)
    mask = torch.arange(9).expand(2, 9) < 6
    found = model(padded, mask)
    found = found[:, :6] if found.dim() == 3 else found
    assert largest_difference(found, model(short)) < 1e-12


def test_every_token_attends_to_every_other() -> None:
    model = made(head="none")
    before = model(ids(1, 6))
    for place in range(6):
        changed = ids(1, 6)
        changed[0, place] = (changed[0, place] + 1) % 30
        moved = (model(changed) - before).abs().amax(dim=-1)[0]
        assert (moved > 1e-6).all()


def test_segments_count_and_zero_is_the_default() -> None:
    model, row = made(head="none"), ids(1, 6)
    assert torch.equal(model(row), model(row, segments=torch.zeros_like(row)))
    assert not torch.allclose(model(row), model(row, segments=torch.ones_like(row)))


def test_the_tied_head_shares_the_embedding() -> None:
    model = Bert(BertConfig(30, **SIZES))
    assert model.head.linear.weight is model.embedding.table.weight
    own = Bert(BertConfig(30, tied=False, **SIZES))
    assert own.head.linear.weight is not own.embedding.table.weight


def test_the_head_is_before_then_linear() -> None:
    model = made(head="masked")
    states = model.hidden_states(ids(2, 6))
    assert torch.equal(model(ids(2, 6)), model.head.linear(model.head.before(states)))
    chosen = model.head(states[:, 2])
    assert largest_difference(chosen, model(ids(2, 6))[:, 2]) < 1e-12


@pytest.mark.parametrize("head", HEADS)
def test_the_folder_gives_the_same_model_back(head: str, tmp_path: Path) -> None:
    model = made(**HEADS[head], special_ids=SpecialIds(pad_id=9, bos_id=8, eos_id=7, mask_id=6)).float()
    loaded = load_model(save_model(tmp_path / "model", model, None))
    assert loaded.family == "bert"
    assert loaded.model.config == model.config
    assert torch.equal(loaded.model(ids(2, 6)), model(ids(2, 6)))


def test_a_text_beyond_the_last_position_is_refused() -> None:
    with pytest.raises(UserError, match="11 tokens, but this model has learned only 10 positions"):
        made()(ids(1, 11))


REFUSED = {
    "no label": ({"head": "classify"}, "needs 'labels'"),
    "labels for nothing": ({"labels": ("a", "b")}, "has no labels"),
    "one label": ({"head": "classify", "labels": ("a",)}, "nothing to choose"),
    "heads": ({"n_heads": 3}, "does not divide"),
    "dropout": ({"dropout": 1.0}, "dropout"),
    "classifier_dropout": ({"classifier_dropout": -0.1}, "classifier_dropout"),
    "norm_eps": ({"norm_eps": 0.0}, "norm_eps"),
    "mask_id": ({"special_ids": SpecialIds(mask_id=30)}, "special_ids.* 30"),
    "special_ids": ({"special_ids": SpecialIds(eos_id=31)}, "special_ids.* 31"),
    "layers": ({"n_layers": 10**6}, "n_layers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_configs_are_refused(case: str) -> None:
    changes, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        BertConfig(30, **{**SIZES, **changes})


def test_an_untrained_model_has_small_weights() -> None:
    torch.manual_seed(0)
    model = Bert(BertConfig(300, **SIZES))
    assert abs(float(model.embedding.table.weight.detach().std()) - 0.02) < 0.002
    assert all(not parameter.any() for name, parameter in model.named_parameters() if name.endswith("to_q.bias"))
