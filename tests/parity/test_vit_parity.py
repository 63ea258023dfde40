"""heedful's ViT equals Hugging Face's: logits, hidden states and gradients, in both directions."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from deterministic import fill, numbers, uniform
from heedful.decoding.classifier import Classifier
from heedful.decoding.encoder_inputs import image_tensor
from heedful.errors import UserError
from heedful.interop import export_huggingface, import_huggingface
from heedful.interop.huggingface.vit import VitType
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.models.vit import Vit, VitConfig
from heedful.nn.embeddings import from_patches
from hugging_face import close, gradients_differ, imported, recorded, unlike

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

SIZES = {
    "image_size": 12,
    "patch_size": 4,
    "encoder_stride": 4,
    "num_channels": 3,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
}
HEADS = {
    "classify": transformers.ViTForImageClassification,
    "masked_patches": transformers.ViTForMaskedImageModeling,
    "pool": transformers.ViTModel,
    "none": partial(transformers.ViTModel, add_pooling_layer=False),  # as DINO's are
}
SWITCHES = {
    "plain": {},
    "gelu through tanh": {"hidden_act": "gelu_pytorch_tanh"},
    "relu": {"hidden_act": "relu"},
    "no bias of queries, keys, values": {"qkv_bias": False},
    "another eps": {"layer_norm_eps": 1e-6},
    "one channel": {"num_channels": 1},
    "larger patches": {"patch_size": 6, "encoder_stride": 6},
}


def theirs_of(head: str, dtype: torch.dtype = torch.float32, **changes):
    labels = {"num_labels": 5} if head == "classify" else {}
    return unlike(HEADS[head](transformers.ViTConfig(**{**SIZES, **labels, **changes})), dtype)


def batch(config: VitConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    pixels = numbers(3, config.n_channels, config.image_size, config.image_size, name="pixels", dtype=dtype)
    return pixels, uniform(3, config.n_patches, name="masked") < 0.4


def both(ours: Vit, theirs, dtype: torch.dtype) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Return heedful's output, Hugging Face's, and Hugging Face's hidden states."""
    pixels, masked = batch(ours.config, dtype)
    if ours.config.head == "masked_patches":
        there = theirs(pixels, bool_masked_pos=masked, output_hidden_states=True)
        patches = ours(pixels, masked=masked)
        image = from_patches(patches, ours.config.patch_size, n_channels=ours.config.n_channels)
        return image, there.reconstruction, there.hidden_states
    there = theirs(pixels, output_hidden_states=True)
    named = {"classify": "logits", "pool": "pooler_output", "none": "last_hidden_state"}
    return ours(pixels), there[named[ours.config.head]], there.hidden_states


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("switch", SWITCHES)
def test_logits_states_and_gradients_are_equal(switch: str, head: str, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = theirs_of(head, dtype, **SWITCHES[switch])
    ours = imported(theirs, tmp_path)
    assert ours.config.head == head
    states = recorded(ours, ours.dropout, *ours.encoder.layers)
    logits, wanted, hidden = both(ours, theirs, dtype)
    assert close(logits, wanted, dtype)
    assert len(states) == len(hidden) == SIZES["num_hidden_layers"] + 1
    for state, there in zip(states, hidden, strict=True):
        assert close(state, there, dtype)
    weights = numbers(*logits.shape, name="loss", dtype=dtype)
    (logits * weights).sum().backward()
    (wanted * weights).sum().backward()
    assert gradients_differ(ours, theirs, "vit", dtype) == []


OURS = {
    "classify": {"head": "classify", "labels": ("cat", "dog", "cat"), "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)},
    "no bias": {"head": "classify", "labels": ("cat", "dog"), "qkv_bias": False, "resize": "bicubic"},
    "masked patches": {"head": "masked_patches", "norm_eps": 1e-6},
    "pool": {"head": "pool", "activation": "gelu_tanh"},
    "no pooler": {"head": "none"},
}


def made(**changes) -> Vit:
    sizes = {"image_size": 12, "patch_size": 4, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20}
    return fill(Vit(VitConfig(**{**sizes, **changes})), dtype=torch.float32)


def saved_as(head: str, folder: Path):
    """Return Hugging Face's model of a folder, and its loading report."""
    if head == "none":
        return transformers.ViTModel.from_pretrained(folder, add_pooling_layer=False, output_loading_info=True)
    return HEADS[head].from_pretrained(folder, output_loading_info=True)


@pytest.mark.parametrize("case", OURS)
def test_there_and_back_is_the_same_to_the_bit(case: str, tmp_path: Path) -> None:
    model = made(**OURS[case])
    exported = export_huggingface(save_model(tmp_path / "model", model, None), tmp_path / "there")
    theirs, info = saved_as(model.config.head, exported)
    assert [info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[name]] == []
    logits, wanted, _ = both(model, theirs.eval(), torch.float32)
    assert close(logits, wanted, torch.float32)
    theirs.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "preprocessor_config.json").write_bytes((exported / "preprocessor_config.json").read_bytes())
    for place in (exported, tmp_path / "saved"):
        back = load_model(import_huggingface(place, tmp_path / "back")).model
        assert numbers_of(back.config) == numbers_of(model.config)
        found = weights_of(back)
        assert all(torch.equal(tensor, found[name]) for name, tensor in weights_of(model).items())


def numbers_of(config: VitConfig) -> dict:
    """Return the config with one mean and std for each channel; one for all channels is equivalent."""
    each = {
        name: tuple(getattr(config, name)) * (3 if len(getattr(config, name)) == 1 else 1) for name in ("mean", "std")
    }
    return {**vars(config), **each}


def test_images_are_prepared_as_by_their_processor(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pixels = (uniform(40, 31, 3, name="photo") * 256).to(torch.uint8).numpy()
    pillow.fromarray(pixels).save(tmp_path / "photo.png")
    model = made(**OURS["classify"])
    exported = export_huggingface(save_model(tmp_path / "model", model, None), tmp_path / "there")
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    processor = ViTImageProcessorPil.from_pretrained(exported)
    wanted = processor(pillow.open(tmp_path / "photo.png"), return_tensors="pt")["pixel_values"]
    found = image_tensor(model, [tmp_path / "photo.png"])
    assert float((found - wanted).abs().max()) < 1e-5
    scores = {one.label: one.score for one in Classifier(model).classify([tmp_path / "photo.png"])[0]}
    logits = HEADS["classify"].from_pretrained(exported).eval()(wanted).logits[0].softmax(dim=-1)
    assert np.isclose(scores["dog"], float(logits[1].detach()), atol=1e-5)


def test_every_tensor_has_its_row() -> None:
    for changes in OURS.values():
        model = made(**changes)
        parts = [name for row in VitType().tensor_map(model.config) for name in row.names]
        assert sorted(parts) == sorted(weights_of(model))


def values(**changes) -> dict:
    return {**SIZES, "model_type": "vit", "architectures": ["ViTForImageClassification"], **changes}


REFUSED = {
    "oblong images": ({"image_size": [12, 16]}, "image_size"),
    "another bend of the pooler": ({"pooler_act": "relu"}, "pooler_act"),
    "another width of the pooler": ({"pooler_output_size": 9}, "pooler_output_size"),
    "another head": ({"architectures": ["ViTForSomething"]}, "architectures"),
    "patches that do not fit": ({"patch_size": 5}, "patch_size"),
    "strides that do not fit": (
        {"architectures": ["ViTForMaskedImageModeling"], "encoder_stride": 2},
        "encoder_stride",
    ),
    "far too large": ({"image_size": 10**9}, "image_size"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_settings_are_refused_by_name(case: str) -> None:
    changes, word = REFUSED[case]
    with pytest.raises(UserError, match=word):
        VitType().config_from_hf(values(**changes), where="config.json")


PREPARED = {
    "cropped": ({"do_center_crop": True}, "do_center_crop"),
    "not resized": ({"do_resize": False}, "do_resize"),
    "another scale": ({"rescale_factor": 1.0}, "rescale_factor"),
    "another size": ({"size": {"height": 8, "width": 8}}, "size"),
    "an odd filter": ({"resample": 1}, "resample"),
    "a zero": ({"image_std": [0.5, 0.0, 0.5]}, "std"),
}


@pytest.mark.parametrize("case", PREPARED)
def test_unsupported_image_settings_are_refused_by_name(case: str, tmp_path: Path) -> None:
    exported = export_huggingface(save_model(tmp_path / "model", made(**OURS["classify"]), None), tmp_path / "there")
    changes, word = PREPARED[case]
    path = exported / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(UserError, match=word):
        import_huggingface(exported, tmp_path / "back")


def test_a_head_that_hugging_face_lacks_is_refused() -> None:
    with pytest.raises(UserError, match="head = 'patch_order'"):
        VitType().config_to_hf(VitConfig(image_size=12, patch_size=4, d_model=16, n_heads=4, head="patch_order"))
