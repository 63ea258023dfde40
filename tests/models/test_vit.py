"""What holds of every vit: patches, places, masked patches, heads; what is refused."""

from pathlib import Path

import pytest
import torch

from deterministic import fill, largest_difference, numbers, uniform
from heedful.errors import UserError
from heedful.models.model_io import load_model, save_model
from heedful.models.vit import Vit, VitConfig

SIZES = {"image_size": 12, "patch_size": 4, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20}
HEADS = {
    "classify": {"head": "classify", "labels": ("a", "b", "c")},
    "masked_patches": {"head": "masked_patches"},
    "patch_order": {"head": "patch_order"},
    "pool": {"head": "pool"},
    "none": {"head": "none"},
}
SHAPES = {
    "classify": (2, 3),
    "masked_patches": (2, 9, 48),
    "patch_order": (2, 9, 9),
    "pool": (2, 16),
    "none": (2, 10, 16),
}


def made(**changes) -> Vit:
    return fill(Vit(VitConfig(**{**SIZES, **changes})))


def pixels(n: int = 2) -> torch.Tensor:
    return numbers(n, 3, 12, 12, name="pixels")


@pytest.mark.parametrize("head", HEADS)
def test_each_head_has_its_shape(head: str) -> None:
    assert tuple(made(**HEADS[head])(pixels()).shape) == SHAPES[head]


@pytest.mark.parametrize("head", HEADS)
def test_the_folder_gives_the_same_model_back(head: str, tmp_path: Path) -> None:
    model = made(**HEADS[head], mean=(0.1, 0.2, 0.3), qkv_bias=False).float()
    loaded = load_model(save_model(tmp_path / "model", model, None))
    assert (loaded.family, loaded.model.config) == ("vit", model.config)
    assert torch.equal(loaded.model(pixels().float()), model(pixels().float()))


def test_masked_patches_change_nothing() -> None:
    model = made(head="masked_patches")
    masked = uniform(2, 9, name="masked") < 0.5
    image, other = pixels(), pixels()
    hidden = masked.reshape(2, 1, 3, 3).repeat_interleave(4, dim=2).repeat_interleave(4, dim=3).expand_as(image)
    other[hidden] = 7.0
    assert torch.equal(model(image, masked=masked), model(other, masked=masked))
    assert not torch.allclose(model(image), model(other))


def test_without_positions_the_order_of_the_patches_means_nothing() -> None:
    model = made(head="none")
    order = torch.tensor([[3, 1, 4, 0, 5, 8, 2, 6, 7], [8, 7, 6, 5, 4, 3, 2, 1, 0]])
    plain = model.hidden_states(pixels(), with_positions=False)
    mixed = model.hidden_states(pixels(), order=order, with_positions=False)
    assert largest_difference(mixed[:, 0], plain[:, 0]) < 1e-12
    patches = plain[:, 1:].gather(1, order[..., None].expand(2, 9, 16))
    assert largest_difference(mixed[:, 1:], patches) < 1e-12
    assert not torch.allclose(model.hidden_states(pixels(), order=order)[:, 0], model.hidden_states(pixels())[:, 0])


REFUSED = {
    "patches": ({"patch_size": 5}, "does not divide"),
    "heads": ({"n_heads": 3}, "does not divide"),
    "labels": ({"head": "classify"}, "needs 'labels'"),
    "mean": ({"mean": (0.5, 0.5)}, "'mean'"),
    "std": ({"std": (0.5, 0.0, 0.5)}, "'std'"),
    "size": ({"image_size": 10**6}, "image_size"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_configs_are_refused(case: str) -> None:
    changes, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        VitConfig(**{**SIZES, "head": "none", **changes})


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(UserError, match="resize them"):
        made(head="none")(numbers(1, 3, 16, 16))


def test_hiding_patches_needs_the_head_for_it() -> None:
    with pytest.raises(ValueError, match="masked patches"):
        made(head="none").hidden_states(pixels(), masked=torch.ones(2, 9, dtype=torch.bool))
