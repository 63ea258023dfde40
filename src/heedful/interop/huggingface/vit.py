"""heedful's `vit` and Hugging Face's ViT: the same settings and weights under other names.

How an image becomes numbers is not in their config.json but in preprocessor_config.json: `complete` reads it and
`finish_export` writes it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.atomic_io import write_json
from heedful.config import config_from_dict, config_to_dict, read_json
from heedful.errors import UserError
from heedful.interop.huggingface.config_files import (
    ACTIVATIONS,
    ACTIVATIONS_THERE,
    HFConfig,
    has_pooler,
    head_from,
    labels_from,
    labels_to,
    multi_label_from,
)
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.vit import VitConfig
from heedful.text import Tokenizers

PREFIX = "vit."
IGNORED = (r"vit\.pooler\.dense\.(weight|bias)", r"vit\.embeddings\.mask_token")
PREPROCESSOR = "preprocessor_config.json"

# theirs -> ours
HEADS = {"ViTForImageClassification": "classify", "ViTForMaskedImageModeling": "masked_patches", "ViTModel": "pool"}
HEADS_THERE = {ours: theirs for theirs, ours in HEADS.items()} | {"none": "ViTModel"}
BARE = ("pool", "none")  # the heads of their base model, whose file has names without the prefix
RESIZES = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers

# ours -> theirs, in each layer; then as Transformers 5 names it inside, and some files with it
LAYER = {
    "attention.to_q": ("attention.attention.query", "attention.q_proj"),
    "attention.to_k": ("attention.attention.key", "attention.k_proj"),
    "attention.to_v": ("attention.attention.value", "attention.v_proj"),
    "attention.to_out": ("attention.output.dense", "attention.o_proj"),
    "attention_residual.norm": ("layernorm_before", "layernorm_before"),
    "feed_forward.inner": ("intermediate.dense", "mlp.fc1"),
    "feed_forward.outer": ("output.dense", "mlp.fc2"),
    "feed_forward_residual.norm": ("layernorm_after", "layernorm_after"),
}
WITHOUT_BIAS = ("attention.to_q", "attention.to_k", "attention.to_v")  # where `qkv_bias` is false


def config_from(values: Mapping[str, Any], *, where: str) -> VitConfig:
    """Our settings, or a UserError that names what heedful has no place for."""
    given = HFConfig(values, where=where)
    given.require("pooler_act", "tanh")
    width = given.whole("hidden_size")
    given.require("pooler_output_size", width)
    patch_size = _side(given, "patch_size", 16)
    head = head_from(given, HEADS, default="ViTModel")
    if head == "masked_patches":
        given.require("encoder_stride", patch_size)
    labels = labels_from(given) if head == "classify" else ()
    ours = {
        "image_size": _side(given, "image_size", 224),
        "patch_size": patch_size,
        "n_channels": given.whole("num_channels", 3),
        "d_model": width,
        "n_layers": given.whole("num_hidden_layers"),
        "n_heads": given.whole("num_attention_heads"),
        "d_ff": given.whole("intermediate_size"),
        "dropout": given.number("hidden_dropout_prob", 0.0),
        "attention_dropout": given.number("attention_probs_dropout_prob", 0.0),
        "activation": given.choice("hidden_act", ACTIVATIONS, "gelu"),
        "norm_eps": given.number("layer_norm_eps", 1e-12),
        "qkv_bias": given.flag("qkv_bias", True),
        "head": head,
        "labels": labels,
        "multi_label": multi_label_from(given, labels) if labels else False,
    }
    given.warn_unread(("initializer_range", "encoder_stride", "is_encoder_decoder"))
    return config_from_dict(VitConfig, ours, where=where)


def settle(config: VitConfig, theirs: Mapping[str, Tensor], *, where: str) -> VitConfig:
    """Whether a base model has a pooler: those of DINO have none, and config.json does not say."""
    return replace(config, head="none") if config.head == "pool" and not has_pooler(theirs, PREFIX) else config


def complete(config: VitConfig, folder: Path, tokenizers: Tokenizers | None) -> VitConfig:
    """How images are prepared, as preprocessor_config.json says; without one, as their class does by itself."""
    path = folder / PREPROCESSOR
    if not path.is_file():
        return config
    given = HFConfig(read_json(path), where=str(path))
    given.require("do_resize", True)
    given.require("do_rescale", True)
    given.require("do_center_crop", False)
    if abs(given.number("rescale_factor", 1 / 255) - 1 / 255) > 1e-9:
        raise given.wrong("rescale_factor", "1/255, which brings pixels to between 0 and 1")
    size = given.get("size", config.image_size)
    if size not in (config.image_size, {"height": config.image_size, "width": config.image_size}):
        raise given.wrong("size", f"that of the model, {config.image_size}")
    resample = given.whole("resample", 2)
    if resample not in RESIZES:
        raise given.wrong("resample", "0 (nearest), 2 (bilinear) or 3 (bicubic)")
    ours: dict[str, Any] = {"resize": RESIZES[resample], "mean": [0.0], "std": [1.0]}
    if given.flag("do_normalize", True):
        ours |= {"mean": given.get("image_mean", [0.5]), "std": given.get("image_std", [0.5])}
    return config_from_dict(VitConfig, {**config_to_dict(config), **ours}, where=str(path))


def finish_export(config: VitConfig, folder: Path) -> None:
    """Write how images are prepared, beside the weights."""
    numbers = {
        f"image_{name}": list(values) * (config.n_channels if len(values) == 1 else 1)
        for name, values in (("mean", config.mean), ("std", config.std))
    }
    values = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": config.image_size, "width": config.image_size},
        "resample": next(number for number, name in RESIZES.items() if name == config.resize),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        **numbers,
    }
    write_json(folder / PREPROCESSOR, values)


def config_to(config: VitConfig) -> dict[str, Any]:
    """The values of their config.json, or a UserError with the reason."""
    if config.head not in HEADS_THERE:
        raise UserError(f"head = '{config.head}': theirs has none like it")
    return {
        "architectures": [HEADS_THERE[config.head]],
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "num_channels": config.n_channels,
        "encoder_stride": config.patch_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "intermediate_size": config.d_ff,
        "hidden_act": ACTIVATIONS_THERE[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.norm_eps,
        "qkv_bias": config.qkv_bias,
        **labels_to(config.labels, multi_label=config.multi_label),
    }


def table(config: VitConfig) -> list[TensorMap]:
    """One row for each tensor of theirs."""
    rows = [
        TensorMap("vit.embeddings.cls_token", "class_token.vector", wrapped=True),
        TensorMap("vit.embeddings.position_embeddings", "positions.table.weight", wrapped=True),
        *_pair("vit.embeddings.patch_embeddings.projection", "patches.projection"),
        *_pair("vit.layernorm", "encoder.final_norm"),
    ]
    for i in range(config.n_layers):
        for ours, (theirs, newer) in LAYER.items():
            pair = _pair(f"vit.encoder.layer.{i}.{theirs}", f"encoder.layers.{i}.{ours}", f"vit.layers.{i}.{newer}")
            rows += pair[:1] if ours in WITHOUT_BIAS and not config.qkv_bias else pair
    return [_without_prefix(row) if config.head in BARE else row for row in rows + _head_rows(config)]


def _head_rows(config: VitConfig) -> list[TensorMap]:
    if config.head == "classify":
        return _pair("classifier", "head.linear")
    if config.head == "masked_patches":
        return [
            TensorMap("vit.embeddings.mask_token", "mask_token.vector", wrapped=True),
            TensorMap("decoder.0.weight", "head.linear.weight", pointwise=True),
            TensorMap("decoder.0.bias", "head.linear.bias"),
        ]
    return _pair("vit.pooler.dense", "head.linear") if config.head == "pool" else []


def _pair(theirs: str, ours: str, newer: str = "") -> list[TensorMap]:
    return [
        TensorMap(f"{theirs}.{part}", f"{ours}.{part}", aliases=(f"{newer}.{part}",) if newer else ())
        for part in ("weight", "bias")
    ]


def _without_prefix(row: TensorMap) -> TensorMap:
    """As a file of the base model alone has it; other programs write the prefix there, too."""
    bare = tuple(name.removeprefix(PREFIX) for name in row.names)
    return replace(row, theirs=bare[0], aliases=(*bare[1:], *row.names))


def _side(given: HFConfig, name: str, default: int) -> int:
    """One number, or two equal ones."""
    value = given.get(name, default)
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        value = value[0]
    if type(value) is not int:
        raise given.wrong(name, "a whole number: heedful's images and patches are square")
    return value
