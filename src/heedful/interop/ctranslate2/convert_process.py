"""Convert a model folder for CTranslate2. Run as a program: python -m … MODEL OUTPUT KEY, with an empty OUTPUT.

It runs in a separate process so that torch and its OpenMP runtime stay out of the process that translates. Built-in
models need no torch, and `cache` often converts them without another process.

EXIT_USER_ERROR and EXIT_NOT_CONVERTIBLE come with a message for the user on standard error.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np

from heedful.atomic_io import sha256, write_json
from heedful.config import config_to_dict
from heedful.errors import UserError
from heedful.interop.ctranslate2.conversion import (
    EXIT_NOT_CONVERTIBLE,
    EXIT_USER_ERROR,
    INFO,
    ConversionInfo,
    NotConvertible,
    not_convertible,
)
from heedful.interop.ctranslate2.library import library
from heedful.interop.ctranslate2.model_config import Ct2Config, Ct2ModelConfig, ct2_config, why_not
from heedful.interop.ctranslate2.spec import Floats, ct2_model, write_model
from heedful.models.configs import read_config
from heedful.models.model_info import SCALE, WEIGHTS, is_builtin
from heedful.text.tokenizer_files import OWN_FILES


def convert_into(model: Path, folder: Path, *, key: str) -> None:
    """Write the conversion of a model folder, and its ConversionInfo with the key, into an empty folder."""
    if is_builtin(model):
        config, weights = _read_builtin(model)
        with without_torch():
            write_model(config, weights, folder)
    else:
        config, weights = _load_checked(model)
        write_model(config, weights, folder)
    write_json(folder / INFO, config_to_dict(conversion_info(config, key, model)))


def conversion_info(config: Ct2ModelConfig, key: str, model: Path) -> ConversionInfo:
    """Return what a search must know of a conversion, with the hashes of the model's tokenizer files."""
    return ConversionInfo(
        key=key,
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
        n_positions=config.n_positions,
        learned_positions=config.positions == "learned",
        end_id=config.special_ids.eos_id,
        forbidden=config.special_ids.forbidden_ids,
        tokenizers={name: sha256(model / name) for name in OWN_FILES if (model / name).is_file()},
    )


@contextlib.contextmanager
def without_torch() -> Iterator[None]:
    """Keep CTranslate2's specification classes from importing torch, which they do if it is installed but do not need.

    Afterwards these modules are removed, so that a later import of them imports torch as usual. Do not use this while
    another thread may import torch.
    """
    if "torch" in sys.modules:  # already imported: nothing to save
        yield
        return
    before = set(sys.modules)
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]
        if "ctranslate2.specs" not in before:
            for name in {name for name in sys.modules if name.startswith("ctranslate2.specs")} - before:
                del sys.modules[name]
            vars(library()).pop("specs", None)


def _load_checked(model: Path) -> tuple[Ct2ModelConfig, dict[str, Floats]]:
    """Load a model with all checks of `load_model`: hashes, settings, shapes, and the tokenizers in a child process."""
    from heedful.models.model_io import load_model

    loaded = load_model(model)
    reason = why_not(loaded.model.config)
    if reason is not None:
        raise not_convertible(model, reason)
    return ct2_model(loaded)


def _read_builtin(model: Path) -> tuple[Ct2ModelConfig, dict[str, Floats]]:
    """Read a built-in model without torch, whose import takes longer than the conversion.

    The usual checks are skipped: the tests cover the built-in models.
    """
    from safetensors.numpy import load_file

    arrays = load_file(model / WEIGHTS)
    scales = {name.removesuffix(SCALE): arrays.pop(name)[:, None] for name in list(arrays) if name.endswith(SCALE)}
    weights = {
        name: np.multiply(array, scales.get(name, np.float32(1)), dtype=np.float32) for name, array in arrays.items()
    }
    return ct2_config(cast(Ct2Config, read_config(model)[1])), weights


def main() -> int:
    model, folder, key = sys.argv[1:]
    try:
        convert_into(Path(model), Path(folder), key=key)
    except UserError as error:
        print(error, file=sys.stderr)
        return EXIT_NOT_CONVERTIBLE if isinstance(error, NotConvertible) else EXIT_USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
