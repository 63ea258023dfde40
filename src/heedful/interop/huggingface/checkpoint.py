"""Read and write folders of Hugging Face's `transformers`: config.json, safetensors, tokenizer files.

No code of a folder is run and no pickle is read. An allow-list reads the settings (`config_files`), one row for each
tensor maps the weights (`tensor_map`), and what does not fit exactly is a UserError. Only the tokenizer is
read by `transformers` itself (`tokenizer_import`).
"""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from heedful.atomic_io import atomic_folder, write_json
from heedful.config import config_from_dict, config_to_dict, read_json
from heedful.errors import UserError
from heedful.interop.huggingface.bart import BartType
from heedful.interop.huggingface.bert import BertType
from heedful.interop.huggingface.gpt import Gpt2Type, LlamaType
from heedful.interop.huggingface.marian import MarianType, PegasusType
from heedful.interop.huggingface.model_type import ModelType
from heedful.interop.huggingface.t5 import T5Type
from heedful.interop.huggingface.tensor_map import read_tensors, write_tensors
from heedful.interop.huggingface.tokenizer_export import export_tokenizers
from heedful.interop.huggingface.tokenizer_import import fit_to_model, import_tokenizers
from heedful.interop.huggingface.vit import VitType
from heedful.models.model_info import explain_unsupported_folder, find_model_folder
from heedful.models.model_io import CARD, CONFIG, FAMILIES, WEIGHTS, load_model, save_model, weights_of
from heedful.models.weights import PRECISIONS

# The export takes the first type of a family that computes the model.
MODEL_TYPES: dict[str, ModelType] = {
    "marian": MarianType(),
    "pegasus": PegasusType(),
    "bart": BartType(),
    "gpt2": Gpt2Type(),
    "llama": LlamaType(),
    "t5": T5Type(),
    "bert": BertType(),
    "vit": VitType(),
}
WITHOUT_TEXT = ("vit",)  # families without a tokenizer
OWN = "heedful"  # the key of heedful's own settings in a config.json that heedful wrote

INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


def import_huggingface(folder: str | Path, output: str | Path) -> Path:
    """Convert a folder that `save_pretrained` wrote into a model folder of heedful's, and return its path."""
    folder = Path(folder)
    kind, config = read_config(folder)
    model_type, where = MODEL_TYPES[kind], str(folder)
    theirs = read_folder_weights(folder)
    config = model_type.infer_from_weights(config, theirs, where=where)
    tokenizers = import_tokenizers(folder, model_type=kind)
    if tokenizers is None and model_type.family not in WITHOUT_TEXT:
        warnings.warn(f"{folder}: has no tokenizer files, so the model will take ids, not text", stacklevel=2)
    if tokenizers is not None:
        tokenizers = fit_to_model(tokenizers, config, folder)
    config = model_type.infer_from_files(config, folder, tokenizers)
    with torch.device("meta"):
        model = FAMILIES[model_type.family][1](config)
    weights = rename_tensors(model_type, theirs, config, where=where)
    hf_names = {name: row.hf_name for row in model_type.tensor_map(config) for name in row.names}
    _check_shapes(weights, weights_of(model), hf_names, where=where)
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie()
    card = folder / CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    return save_model(output, model.eval(), tokenizers, card=text)


def export_huggingface(folder: str | Path, output: str | Path) -> Path:
    """Write a model folder (or the best model of a run) as a folder that `from_pretrained` reads."""
    source, output = find_model_folder(folder), Path(output)
    loaded = load_model(source, as_stored=True)
    config = loaded.model.config
    kind, values = choose_model_type(loaded.family, config, where=str(source))
    model_type, ours = MODEL_TYPES[kind], weights_of(loaded.model)
    with atomic_folder(output) as aside:
        dtype = next(iter(ours.values())).dtype
        values |= {OWN: config_to_dict(config), "dtype": str(dtype).removeprefix("torch.")}
        write_json(aside / CONFIG, values)
        theirs = write_tensors(model_type.tensor_map(config), ours)
        theirs |= {name: tensor.to(dtype) for name, tensor in model_type.constant_tensors(config).items()}
        save_file(theirs, aside / WEIGHTS, metadata={"format": "pt"})
        if loaded.tokenizers is not None:
            export_tokenizers(loaded.tokenizers, aside, model_type=kind)
        elif model_type.family not in WITHOUT_TEXT:
            warnings.warn(f"{source}: has no tokenizer, so none is written", stacklevel=2)
        model_type.write_extra_files(config, aside)
        if (source / CARD).is_file():
            (aside / CARD).write_bytes((source / CARD).read_bytes())
    return output


def read_config(folder: Path) -> tuple[str, Any]:
    """Return the model type of a checkpoint's folder, and heedful's config for it."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give one with {CONFIG} and {WEIGHTS}, as save_pretrained writes it")
    if not (folder / CONFIG).is_file() and (other := explain_unsupported_folder(folder)) is not None:
        raise UserError(f"{folder}: {other}")
    values, where = read_json(folder / CONFIG), str(folder / CONFIG)
    if "auto_map" in values:
        raise UserError(f"{where}: 'auto_map' asks for the model's own code, and heedful runs no code of a checkpoint")
    if (packed := values.get("quantization_config")) is not None:
        method = packed.get("quant_method") if isinstance(packed, dict) else packed
        raise UserError(
            f"{where}: 'quantization_config': the weights are quantized ({method}), and heedful reads only weights "
            "that are not; get the model that this one was made from, or save it dequantized"
        )
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        # No "did you mean": RoBERTa's name is close to BERT's, but read as a BERT it would compute something else.
        raise UserError(f"{where}: 'model_type' is {kind!r}\nheedful reads: {', '.join(MODEL_TYPES)}")
    own = values.pop(OWN, None)
    config = _own_config(MODEL_TYPES[kind], own, values)
    if config is not None:
        return kind, config
    try:
        return kind, MODEL_TYPES[kind].config_from_hf(values, where=where)
    except UserError as error:
        raise error if str(error).startswith(where) else UserError(f"{where}: {error}") from None


def choose_model_type(family: str, config: object, *, where: str) -> tuple[str, dict[str, Any]]:
    """Return the first model type that computes such a model, and the values of its config.json.

    If there is none, the UserError has the reason for each type.
    """
    reasons = []
    for kind, model_type in MODEL_TYPES.items():
        if model_type.family == family:
            try:
                return kind, {**model_type.config_to_hf(config), "model_type": kind}
            except UserError as error:
                reasons.append(f"as {kind}: {error}")
    reason = "; ".join(reasons) or f"it has no model like the family '{family}'"
    raise UserError(f"{where}: cannot be written for Hugging Face: {reason}")


def rename_tensors(
    model_type: ModelType, theirs: Mapping[str, Tensor], config: object, *, where: str
) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint under heedful's names, in heedful's layout and one dtype."""
    prefix, rows = model_type.prefix, model_type.tensor_map(config)
    known = {name for row in rows for name in row.hf_names}
    if prefix and not any(name.startswith(prefix) for name in theirs):
        theirs = {f"{prefix}{name}" if name not in known else name: tensor for name, tensor in theirs.items()}
    ignored = re.compile("|".join(model_type.ignored)) if model_type.ignored else None
    kept = {
        name: tensor
        for name, tensor in theirs.items()
        if name in known or ignored is None or not ignored.fullmatch(name)
    }
    return to_common_dtype(read_tensors(rows, kept, where=where), where=where)


def read_folder_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of model.safetensors, or of the files that its index names."""
    if (folder / WEIGHTS).is_file():
        return _read_file(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_shards(folder)
    pickle = next((name for name in PICKLES if (folder / name).exists()), None)
    if pickle is not None:
        raise UserError(
            f"{folder / pickle}: such a file can run code when it is opened, so heedful reads only safetensors. Load "
            "the model where you trust it and save it again: model.save_pretrained(folder, safe_serialization=True)"
        )
    no_weights = f"has no weights ({WEIGHTS}); copy the folder again, with all of its files"
    raise UserError(f"{folder}: {explain_unsupported_folder(folder) or no_weights}")


def to_common_dtype(weights: dict[str, Tensor], *, where: str) -> dict[str, Tensor]:
    """Return all tensors in the widest dtype among them, which loses nothing. A NaN or infinity is a UserError."""
    widest = torch.bfloat16
    dtypes = {tensor.dtype for tensor in weights.values()}
    for dtype in dtypes:
        widest = dtype if len(dtypes) == 1 else torch.promote_types(widest, dtype)
    if not widest.is_floating_point:
        raise UserError(f"{where}: its weights are of type {widest}; heedful reads {', '.join(PRECISIONS)}")
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise UserError(f"{where}: '{name}' holds a number that is not finite (NaN or infinity)")
    return {name: tensor.to(widest) for name, tensor in weights.items()}


def _own_config(model_type: ModelType, own: object, values: Mapping[str, Any]) -> Any:
    """Return the config that heedful wrote into config.json, if Hugging Face's values still agree with it; else None.

    So an exported model comes back with all settings, including settings that Hugging Face does not have.
    """
    if not isinstance(own, dict):
        return None
    try:
        config = config_from_dict(FAMILIES[model_type.family][0], own, where=OWN)
        expected = model_type.config_to_hf(config)
    except UserError:
        return None
    return config if all(values[name] == value for name, value in expected.items() if name in values) else None


def _check_shapes(
    weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], hf_names: Mapping[str, str], *, where: str
) -> None:
    """Raise a UserError for tensors of other sizes than in config.json; `hf_names` maps our names to Hugging Face's."""
    assert set(weights) == set(expected), f"the rows are not the model's: {sorted(set(weights) ^ set(expected))[:5]}"
    for name, tensor in weights.items():
        if tensor.shape != expected[name].shape:
            raise UserError(
                f"{where}: '{hf_names[name]}' ('{name}' in heedful) has shape {tuple(tensor.shape)}, but {CONFIG} asks "
                f"for {tuple(expected[name].shape)}"
            )


def _read_shards(folder: Path) -> dict[str, Tensor]:
    where, files = folder / INDEX, read_json(folder / INDEX).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise UserError(f"{where}: has no 'weight_map' from tensor names to file names")
    weights: dict[str, Tensor] = {}
    for name in sorted(set(files.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(f"{where}: {name!r} is not the name of a safetensors file in this folder")
        shard = _read_file(folder / name)
        if repeated := sorted(set(shard) & set(weights)):
            raise UserError(f"{where}: '{repeated[0]}' is in two files")
        weights |= shard
    if set(weights) != set(files):
        raise UserError(f"{where}: the weight files contain other tensors than this index lists; copy the folder again")
    return weights


def _read_file(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                if (precision := file.get_slice(name).get_dtype()) not in (*PRECISIONS, "I64", "I32", "U8", "BOOL"):
                    raise UserError(f"{path}: '{name}' is of type {precision}; allowed: {', '.join(PRECISIONS)}")
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable safetensors file: {error}") from None
