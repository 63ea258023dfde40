"""The tensors of somebody else's folder: safetensors, in one file or in parts, and nothing that could run.

Folders of Hugging Face's `transformers`, read and written: config.json, safetensors, tokenizer files.

Nothing of theirs is run and no pickle is read. The settings are read by an allow-list, the weights by one table for
each family, and whatever does not fit exactly is refused with the reason. Neither direction needs `transformers`.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from heedful.atomic_io import atomic_folder, write_json
from heedful.config import config_from_dict, config_to_dict, read_json
from heedful.errors import UserError
from heedful.interop.huggingface import bart, bert, config_files, gpt2, llama, marian, pegasus, t5, vit
from heedful.interop.huggingface.tensor_map import TensorMap, read_table, write_table
from heedful.interop.huggingface.tokenizer_export import export_tokenizers
from heedful.interop.huggingface.tokenizer_import import fit_to_model, import_tokenizers
from heedful.models.model_info import explain_unsupported_folder, find_model_folder
from heedful.models.model_io import (
    CARD,
    CONFIG,
    FAMILIES,
    WEIGHTS,
    load_model,
    save_model,
    weights_of,
)
from heedful.models.weights import PRECISIONS

INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


def read_folder_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of model.safetensors, or of the files that its index names."""
    if (folder / WEIGHTS).is_file():
        return _read_file(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_shards(folder)
    found = next((name for name in PICKLES if (folder / name).exists()), None)
    if found is not None:
        raise UserError(
            f"{folder / found}: heedful reads safetensors only, since such a file can run code when it is opened. "
            "Load it where you trust it and save it again: model.save_pretrained(folder, safe_serialization=True)"
        )
    no_weights = f"has no weights ({WEIGHTS}); copy the folder again, with all of its files"
    raise UserError(f"{folder}: {explain_unsupported_folder(folder) or no_weights}")


def _read_shards(folder: Path) -> dict[str, Tensor]:
    where, places = folder / INDEX, read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise UserError(f"{where}: has no 'weight_map' of names to files")
    weights: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(f"{where}: {name!r} is not the name of a safetensors file in this folder")
        found = _read_file(folder / name)
        if twice := sorted(set(found) & set(weights)):
            raise UserError(f"{where}: '{twice[0]}' stands in two files")
        weights |= found
    if set(weights) != set(places):
        raise UserError(f"{where}: its list differs from what is in the files; copy the folder again")
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


def to_common_dtype(weights: dict[str, Tensor], *, where: str) -> dict[str, Tensor]:
    """All in the widest type that is there, which loses nothing; every number must be finite."""
    widest = torch.bfloat16
    types = {tensor.dtype for tensor in weights.values()}
    for one in types:
        widest = one if len(types) == 1 else torch.promote_types(widest, one)
    if not widest.is_floating_point:
        raise UserError(f"{where}: its weights are of type {widest}; heedful reads {', '.join(PRECISIONS)}")
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise UserError(f"{where}: '{name}' holds a number that is not finite (NaN or infinity)")
    return {name: tensor.to(widest) for name, tensor in weights.items()}


WITHOUT_TEXT = ("vit",)
OWN = "heedful"  # the key of heedful's own settings in a config.json that it wrote


class Family(NamedTuple):
    """How one `model_type` of theirs is a family of ours."""

    family: str  # its name in models/model_io.py
    config_from: Callable[..., Any]  # (values, *, where) -> our settings, or a UserError that names what has no place
    config_to: Callable[[Any], dict[str, Any]]  # our settings -> values, or a UserError with the reason
    table: Callable[[Any], list[TensorMap]]  # our settings -> one row for each tensor of theirs
    prefix: str = ""  # of the names of the base model: a file of the base model alone goes without
    ignored: tuple[str, ...] = ()  # patterns of tensors that hold nothing to keep, unless the table asks for them
    settle: Callable[..., Any] | None = None  # (config, tensors, *, where) -> config, for what the tensors alone say
    complete: Callable[..., Any] | None = None  # (config, folder, tokenizers) -> config, for what other files say
    finish_export: Callable[[Any, Path], None] | None = None  # (config, folder): writes other files
    computed: Callable[[Any], dict[str, Tensor]] | None = None  # config -> what their file has and heedful computes


# model_type -> how. Of several for one family the export takes the first whose config_to does not refuse.
MODEL_TYPES: dict[str, Family] = {
    "marian": Family(
        "seq2seq",
        marian.config_from,
        marian.config_to,
        marian.table,
        ignored=marian.IGNORED,
        settle=marian.settle,
        complete=config_files.complete,
        finish_export=config_files.write,
    ),
    "pegasus": Family(
        "seq2seq",
        pegasus.config_from,
        pegasus.config_to,
        pegasus.table,
        ignored=marian.IGNORED,
        settle=marian.settle,
        complete=config_files.complete,
        finish_export=config_files.write,
        computed=pegasus.computed,
    ),
    "bart": Family(
        "bart",
        bart.config_from,
        bart.config_to,
        bart.table,
        prefix="model.",
        ignored=bart.IGNORED,
        complete=config_files.complete,
        finish_export=config_files.write,
    ),
    "gpt2": Family(
        "gpt",
        gpt2.config_from,
        gpt2.config_to,
        gpt2.table,
        prefix="transformer.",
        ignored=gpt2.IGNORED,
        settle=gpt2.settle,
        complete=gpt2.complete,
        finish_export=gpt2.finish_export,
    ),
    "llama": Family(
        "gpt",
        llama.config_from,
        llama.config_to,
        llama.table,
        prefix="model.",
        ignored=llama.IGNORED,
        settle=gpt2.settle,
        complete=gpt2.complete,
        finish_export=gpt2.finish_export,
    ),
    "t5": Family(
        "t5",
        t5.config_from,
        t5.config_to,
        t5.table,
        ignored=t5.IGNORED,
        settle=t5.settle,
        complete=config_files.complete,
        finish_export=config_files.write,
    ),
    "bert": Family(
        "bert",
        bert.config_from,
        bert.config_to,
        bert.table,
        prefix=bert.PREFIX,
        ignored=bert.IGNORED,
        settle=bert.settle,
        complete=bert.complete,
    ),
    "vit": Family(
        "vit",
        vit.config_from,
        vit.config_to,
        vit.table,
        prefix=vit.PREFIX,
        ignored=vit.IGNORED,
        settle=vit.settle,
        complete=vit.complete,
        finish_export=vit.finish_export,
    ),
}


def import_huggingface(folder: str | Path, output: str | Path) -> Path:
    """Read a folder such as `save_pretrained` writes into a model folder of heedful's."""
    folder = Path(folder)
    kind, config = read_config(folder)
    family, where = MODEL_TYPES[kind], str(folder)
    theirs = read_folder_weights(folder)
    if family.settle is not None:
        config = family.settle(config, theirs, where=where)
    tokenizers = import_tokenizers(folder, model_type=kind)
    if tokenizers is None and family.family not in WITHOUT_TEXT:
        warnings.warn(f"{folder}: has no tokenizer files, so the model will take ids, not text", stacklevel=2)
    if tokenizers is not None:
        tokenizers = fit_to_model(tokenizers, config, folder)
    if family.complete is not None:
        config = family.complete(config, folder, tokenizers)
    with torch.device("meta"):
        model = FAMILIES[family.family][1](config)
    weights = fitting(family, theirs, config, where=where)
    names = {part: row.theirs for row in family.table(config) for part in row.parts}
    check_shapes(weights, weights_of(model), names, where=where)
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie()
    card = folder / CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    return save_model(output, model.eval(), tokenizers, card=text)


def export_huggingface(folder: str | Path, output: str | Path) -> Path:
    """Write a model folder (or a run's best model) as a folder that `from_pretrained` reads."""
    source, output = find_model_folder(folder), Path(output)
    loaded = load_model(source, as_stored=True)
    kind, values = chosen(loaded.family, loaded.model.config, where=str(source))
    family, ours = MODEL_TYPES[kind], weights_of(loaded.model)
    with atomic_folder(output) as aside:
        values |= {OWN: {**config_to_dict(loaded.model.config)}}
        precision = next(iter(ours.values())).dtype
        values["dtype"] = str(precision).removeprefix("torch.")
        write_json(aside / CONFIG, values)
        theirs = write_table(family.table(loaded.model.config), ours)
        if family.computed is not None:
            theirs |= {name: tensor.to(precision) for name, tensor in family.computed(loaded.model.config).items()}
        save_file(theirs, aside / WEIGHTS, metadata={"format": "pt"})
        if loaded.tokenizers is not None:
            export_tokenizers(loaded.tokenizers, aside, model_type=kind)
        elif family.family not in WITHOUT_TEXT:
            warnings.warn(f"{source}: has no tokenizer, so none is written", stacklevel=2)
        if family.finish_export is not None:
            family.finish_export(loaded.model.config, aside)
        if (source / CARD).is_file():
            (aside / CARD).write_bytes((source / CARD).read_bytes())
    return output


def read_config(folder: Path) -> tuple[str, Any]:
    """The model_type and our settings of a folder of theirs."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give one with {CONFIG} and {WEIGHTS}, as save_pretrained writes it")
    if not (folder / CONFIG).is_file() and (other := explain_unsupported_folder(folder)) is not None:
        raise UserError(f"{folder}: {other}")
    values, where = read_json(folder / CONFIG), str(folder / CONFIG)
    if "auto_map" in values:
        raise UserError(f"{where}: 'auto_map' asks for code of its own, and heedful runs no code of a model's folder")
    if (packed := values.get("quantization_config")) is not None:
        how = packed.get("quant_method") if isinstance(packed, dict) else packed
        raise UserError(
            f"{where}: 'quantization_config' says that the weights are packed ({how}), and heedful reads them as they "
            "were before; get the model that this one was made from, or save it dequantized"
        )
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        # No "did you mean": RoBERTa is close to BERT by name, and read as one it would compute something else.
        raise UserError(f"{where}: 'model_type' is {kind!r}\nheedful reads: {', '.join(MODEL_TYPES)}")
    own, family = values.pop(OWN, None), MODEL_TYPES[kind]
    config = _own_config(family, own, values)
    if config is not None:
        return kind, config
    try:
        return kind, family.config_from(values, where=where)
    except UserError as error:
        raise error if str(error).startswith(where) else UserError(f"{where}: {error}") from None


def _own_config(family: Family, own: object, values: Mapping[str, Any]) -> Any:
    """The settings that heedful wrote beside theirs, if these still say the same: so a model comes back as it was."""
    if not isinstance(own, dict):
        return None
    try:
        config = config_from_dict(FAMILIES[family.family][0], own, where=OWN)
        said = family.config_to(config)
    except UserError:
        return None
    return config if all(values[name] == value for name, value in said.items() if name in values) else None


def chosen(name: str, config: object, *, where: str) -> tuple[str, dict[str, Any]]:
    """The first model_type that computes what such a model computes, and its values; else all the reasons."""
    reasons = []
    for kind, family in MODEL_TYPES.items():
        if family.family == name:
            try:
                return kind, {**family.config_to(config), "model_type": kind}
            except UserError as error:
                reasons.append(f"as {kind}: {error}")
    raise UserError(
        f"{where}: cannot be written for Hugging Face: " + ("; ".join(reasons) or f"there is no family like '{name}'")
    )


def fitting(family: Family, theirs: Mapping[str, Tensor], config: object, *, where: str) -> dict[str, Tensor]:
    """The tensors of a file under our names."""
    prefix, rows = family.prefix, family.table(config)
    known = {name for row in rows for name in row.names}
    if prefix and not any(name.startswith(prefix) for name in theirs):
        theirs = {f"{prefix}{name}" if name not in known else name: tensor for name, tensor in theirs.items()}
    dropped = re.compile("|".join(family.ignored)) if family.ignored else None
    kept = {
        name: tensor
        for name, tensor in theirs.items()
        if name in known or dropped is None or not dropped.fullmatch(name)
    }
    return to_common_dtype(read_table(rows, kept, where=where), where=where)


def check_shapes(
    weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], theirs: Mapping[str, str], *, where: str
) -> None:
    """Refuse tensors of other sizes than config.json says; `theirs` has their names for ours."""
    assert set(weights) == set(expected), f"the table is not the model: {sorted(set(weights) ^ set(expected))[:5]}"
    for name, tensor in weights.items():
        if tensor.shape != expected[name].shape:
            found, wanted = tuple(tensor.shape), tuple(expected[name].shape)
            raise UserError(
                f"{where}: '{theirs[name]}' ('{name}' in heedful) has shape {found}, but {CONFIG} asks for {wanted}"
            )
