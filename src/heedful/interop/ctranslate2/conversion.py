"""What a conversion for CTranslate2 tells about its model, and the error for a model that cannot be converted.

`cache`, which looks for conversions, and `convert_process`, which makes them, have this in common. Importing it is
cheap.
"""

from dataclasses import dataclass, field
from pathlib import Path

from heedful.errors import UserError

INFO = "facts.json"  # the file of a ConversionInfo
EXIT_USER_ERROR, EXIT_NOT_CONVERTIBLE = 1, 4  # of the child process, with a message on standard error


@dataclass(frozen=True)
class ConversionInfo:
    """What a search must know of a converted model without opening it."""

    key: str  # of the model folder that it was made from, see `cache.key_of`
    source_vocab_size: int
    target_vocab_size: int
    n_positions: int | None = None  # the maximum length of a source and of a translation; None: no limit
    learned_positions: bool = False  # the limit is the model's own, not that of the conversion
    end_id: int = 3
    forbidden: tuple[int, ...] = ()  # ids that the model must never generate
    tokenizers: dict[str, str] = field(default_factory=dict)  # file name -> SHA-256, of tokenizers that were probed


class NotConvertible(UserError):
    """CTranslate2 would not give the results of torch."""


def not_convertible(model: Path, reason: str) -> NotConvertible:
    """Return the error for a model that CTranslate2 cannot run."""
    return NotConvertible(
        f"{model}: CTranslate2 cannot run this model: {reason}. Use --engine torch, which runs every model"
    )
