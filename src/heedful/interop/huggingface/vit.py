"""ViT as heedful's family `vit`.

How an image becomes numbers is not in config.json but in preprocessor_config.json.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.atomic_io import write_json
from heedful.config import config_from_dict, config_to_dict, read_json
from heedful.errors import UserError
from heedful.interop.huggingface.bert import without_prefix
from heedful.interop.huggingface.config_files import (
    ACTIVATIONS,
    HFConfig,
    has_pooler,
    hf_activation,
    read_head,
    read_labels,
    read_multi_label,
    write_labels,
)
from heedful.interop.huggingface.model_type import ModelType
from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.models.vit import VitConfig
from heedful.text import Tokenizers

PREFIX = "vit."
PREPROCESSOR = "preprocessor_config.json"

# Hugging Face's classes -> heedful's heads
HEADS = {"ViTForImageClassification": "classify", "ViTForMaskedImageModeling": "masked_patches", "ViTModel": "pool"}
CLASSES = {ours: theirs for theirs, ours in HEADS.items()} | {"none": "ViTModel"}
WITHOUT_PREFIX = ("pool", "none")  # heads of the base model, whose checkpoints leave out the prefix of tensor names
RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers

# heedful's names in a layer -> Hugging Face's, and those that some checkpoints of Transformers 5 have
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
WITHOUT_BIAS = ("attention.to_q", "attention.to_k", "attention.to_v")  # if `qkv_bias` is false


class VitType(ModelType):
    """ViT with any of heedful's heads."""

    family = "vit"
    prefix = PREFIX
    ignored = (r"vit\.pooler\.dense\.(weight|bias)", r"vit\.embeddings\.mask_token")

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> VitConfig:
        hf = HFConfig(values, where=where)
        hf.require("pooler_act", "tanh")
        d_model = hf.get_int("hidden_size")
        hf.require("pooler_output_size", d_model)
        patch_size = _get_side(hf, "patch_size", 16)
        head = read_head(hf, HEADS, default="ViTModel")
        if head == "masked_patches":
            hf.require("encoder_stride", patch_size)
        labels = read_labels(hf) if head == "classify" else ()
        ours = {
            "image_size": _get_side(hf, "image_size", 224),
            "patch_size": patch_size,
            "n_channels": hf.get_int("num_channels", 3),
            "d_model": d_model,
            "n_layers": hf.get_int("num_hidden_layers"),
            "n_heads": hf.get_int("num_attention_heads"),
            "d_ff": hf.get_int("intermediate_size"),
            "dropout": hf.get_float("hidden_dropout_prob", 0.0),
            "attention_dropout": hf.get_float("attention_probs_dropout_prob", 0.0),
            "activation": hf.get_choice("hidden_act", ACTIVATIONS, "gelu"),
            "norm_eps": hf.get_float("layer_norm_eps", 1e-12),
            "qkv_bias": hf.get_bool("qkv_bias", True),
            "head": head,
            "labels": labels,
            "multi_label": read_multi_label(hf, labels) if labels else False,
        }
        hf.warn_unused(("initializer_range", "encoder_stride", "is_encoder_decoder"))
        return config_from_dict(VitConfig, ours, where=where)

    def config_to_hf(self, config: VitConfig) -> dict[str, Any]:
        if config.head not in CLASSES:
            raise UserError(f"head = '{config.head}': ViT has no such head")
        return {
            "architectures": [CLASSES[config.head]],
            "image_size": config.image_size,
            "patch_size": config.patch_size,
            "num_channels": config.n_channels,
            "encoder_stride": config.patch_size,
            "hidden_size": config.d_model,
            "num_hidden_layers": config.n_layers,
            "num_attention_heads": config.n_heads,
            "intermediate_size": config.d_ff,
            "hidden_act": hf_activation(config.activation),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.norm_eps,
            "qkv_bias": config.qkv_bias,
            **write_labels(config.labels, multi_label=config.multi_label),
        }

    def tensor_map(self, config: VitConfig) -> list[TensorMap]:
        rows = [
            TensorMap("vit.embeddings.cls_token", "class_token.vector", unsqueeze=True),
            TensorMap("vit.embeddings.position_embeddings", "positions.table.weight", unsqueeze=True),
            *_weight_and_bias("vit.embeddings.patch_embeddings.projection", "patches.projection"),
            *_weight_and_bias("vit.layernorm", "encoder.final_norm"),
        ]
        for i in range(config.n_layers):
            for ours, (theirs, newer) in LAYER.items():
                pair = _weight_and_bias(
                    f"vit.encoder.layer.{i}.{theirs}", f"encoder.layers.{i}.{ours}", f"vit.layers.{i}.{newer}"
                )
                rows += pair[:1] if ours in WITHOUT_BIAS and not config.qkv_bias else pair
        rows += _head_rows(config)
        return [without_prefix(row, PREFIX) for row in rows] if config.head in WITHOUT_PREFIX else rows

    def infer_from_weights(self, config: VitConfig, tensors: Mapping[str, Tensor], *, where: str) -> VitConfig:
        """Infer whether a base model has a pooler, which is not in config.json; DINO's models have none."""
        return replace(config, head="none") if config.head == "pool" and not has_pooler(tensors, PREFIX) else config

    def infer_from_files(self, config: VitConfig, folder: Path, tokenizers: Tokenizers | None) -> VitConfig:
        """Read how images are prepared; without preprocessor_config.json the defaults are those of ViT's class."""
        path = folder / PREPROCESSOR
        if not path.is_file():
            return config
        hf = HFConfig(read_json(path), where=str(path))
        hf.require("do_resize", True)
        hf.require("do_rescale", True)
        hf.require("do_center_crop", False)
        if abs(hf.get_float("rescale_factor", 1 / 255) - 1 / 255) > 1e-9:
            raise hf.error("rescale_factor", "1/255, which maps pixels to between 0 and 1")
        size = hf.get("size", config.image_size)
        if size not in (config.image_size, {"height": config.image_size, "width": config.image_size}):
            raise hf.error("size", f"that of the model, {config.image_size}")
        resample = hf.get_int("resample", 2)
        if resample not in RESAMPLING:
            raise hf.error("resample", "0 (nearest), 2 (bilinear) or 3 (bicubic)")
        ours: dict[str, Any] = {"resize": RESAMPLING[resample], "mean": [0.0], "std": [1.0]}
        if hf.get_bool("do_normalize", True):
            ours |= {"mean": hf.get("image_mean", [0.5]), "std": hf.get("image_std", [0.5])}
        return config_from_dict(VitConfig, {**config_to_dict(config), **ours}, where=str(path))

    def write_extra_files(self, config: VitConfig, folder: Path) -> None:
        """Write preprocessor_config.json: how images are prepared."""
        normalization = {
            f"image_{name}": list(values) * (config.n_channels if len(values) == 1 else 1)
            for name, values in (("mean", config.mean), ("std", config.std))
        }
        values = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "size": {"height": config.image_size, "width": config.image_size},
            "resample": next(number for number, name in RESAMPLING.items() if name == config.resize),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            **normalization,
        }
        write_json(folder / PREPROCESSOR, values)


def _head_rows(config: VitConfig) -> list[TensorMap]:
    if config.head == "classify":
        return _weight_and_bias("classifier", "head.linear")
    if config.head == "masked_patches":
        return [
            TensorMap("vit.embeddings.mask_token", "mask_token.vector", unsqueeze=True),
            TensorMap("decoder.0.weight", "head.linear.weight", conv1x1=True),
            TensorMap("decoder.0.bias", "head.linear.bias"),
        ]
    return _weight_and_bias("vit.pooler.dense", "head.linear") if config.head == "pool" else []


def _weight_and_bias(theirs: str, ours: str, newer: str = "") -> list[TensorMap]:
    return [
        TensorMap(f"{theirs}.{part}", f"{ours}.{part}", aliases=(f"{newer}.{part}",) if newer else ())
        for part in ("weight", "bias")
    ]


def _get_side(hf: HFConfig, name: str, default: int) -> int:
    """Return the side of a square: one number, or a pair of equal ones."""
    value = hf.get(name, default)
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        value = value[0]
    if type(value) is not int:
        raise hf.error(name, "a whole number: heedful's images and patches are square")
    return value
