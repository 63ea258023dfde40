"""Run as a program: convert the model folder sys.argv[1] into the empty folder sys.argv[2].

A process of its own, so that torch, and the OpenMP runtime that it brings, stay out of the one that translates. A model
that comes with heedful needs no torch, and then often no such process (`ctranslate2_cache`).
The exit codes MISTAKE and REFUSED come with a message for the user on standard error.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from heedful.atomic_io import write_json
from heedful.config import config_to_dict, read_json
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import FACTS, MISTAKE, REFUSED, NotConvertible, facts_of, key_of, refusal
from heedful.interop.ctranslate2.library import library
from heedful.interop.ctranslate2.model_config import Ct2ModelConfig, outline_of
from heedful.interop.ctranslate2.spec import Floats, described, why_not_values, write_model
from heedful.models.model_info import CONFIG, SCALE, WEIGHTS, is_builtin


def convert_into(model_folder: Path, folder: Path) -> None:
    key = key_of(model_folder)
    if is_builtin(model_folder):
        outline, weights = _builtin(model_folder)
        with without_torch():
            write_model(outline, weights, folder)
    else:
        outline, weights = _checked(model_folder)
        write_model(outline, weights, folder)
    facts = facts_of(outline, key, model_folder)
    write_json(folder / FACTS, config_to_dict(facts))


def _checked(model_folder: Path) -> tuple[Ct2ModelConfig, dict[str, Floats]]:
    """`load_model` checks everything: hashes, settings, shapes, and the tokenizers in a child process."""
    from heedful.models.model_io import load_model

    loaded = load_model(model_folder)
    reason = why_not_values({"family": loaded.family, **config_to_dict(loaded.model.config)})
    if reason is not None:
        raise refusal(model_folder, reason)
    return described(loaded)


def _builtin(model_folder: Path) -> tuple[Ct2ModelConfig, dict[str, Floats]]:
    """Without torch, whose import takes longer than all the rest: what comes with heedful is checked by its tests."""
    from safetensors.numpy import load_file

    numbers = load_file(model_folder / WEIGHTS)
    scales = {name.removesuffix(SCALE): numbers.pop(name)[:, None] for name in list(numbers) if name.endswith(SCALE)}
    weights = {
        name: np.multiply(array, scales.get(name, np.float32(1)), dtype=np.float32) for name, array in numbers.items()
    }
    return outline_of(read_json(model_folder / CONFIG)), weights


@contextlib.contextmanager
def without_torch() -> Iterator[None]:
    """CTranslate2's descriptions import torch where there is one, and do as well without. Whoever imports them later
    gets them as if nobody had. Not beside a thread that may import torch.
    """
    if "torch" in sys.modules:  # too late, or rather: it costs nothing now
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


def main() -> int:
    try:
        convert_into(Path(sys.argv[1]), Path(sys.argv[2]))
    except UserError as error:
        print(error, file=sys.stderr)
        return REFUSED if isinstance(error, NotConvertible) else MISTAKE
    return 0


if __name__ == "__main__":
    sys.exit(main())
