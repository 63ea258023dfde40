"""The contract of a Hugging Face model type, which `marian`, `bart`, `t5`, `gpt`, `bert` and `vit` implement."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from heedful.interop.huggingface.tensor_map import TensorMap
from heedful.text import Tokenizers


class ModelType(Protocol):
    """How a checkpoint of one `model_type` becomes a model of a heedful family, and back.

    To add a type: write a class with these members and add it to `checkpoint.MODEL_TYPES`. The first three methods are
    required, the others have defaults. A `config` is the config dataclass of the family.
    """

    @property
    def family(self) -> str:
        """The family of heedful's, a key of `models.model_io.FAMILIES`."""

    prefix: str = ""  # of tensor names, which a checkpoint of the base model alone leaves out
    ignored: Sequence[str] = ()  # regular expressions of tensors to leave out, unless `tensor_map` has a row for them

    def config_from_hf(self, values: Mapping[str, Any], *, where: str) -> Any:
        """Return the config that config.json describes. A setting that heedful does not support is a UserError."""

    def config_to_hf(self, config: Any) -> dict[str, Any]:
        """Return the values of config.json; raise a UserError if this model type cannot represent the config."""

    def tensor_map(self, config: Any) -> list[TensorMap]:
        """Return one row for each tensor."""

    def infer_from_weights(self, config: Any, tensors: Mapping[str, Tensor], *, where: str) -> Any:
        """Return the config with settings that only the tensors show, such as a bias."""
        return config

    def infer_from_files(self, config: Any, folder: Path, tokenizers: Tokenizers | None) -> Any:
        """Return the config with settings of other files, such as generation_config.json and the tokenizer's."""
        return config

    def constant_tensors(self, config: Any) -> dict[str, Tensor]:
        """Return tensors that the checkpoint has and heedful computes; they are written and not read."""
        return {}

    def write_extra_files(self, config: Any, folder: Path) -> None:
        """Write files beside config.json and the weights, such as generation_config.json."""
        return
