"""What every family refuses alike, in the same words: sizes out of all bounds, shares that are none, texts too long.

A damaged or hostile config.json must be refused, not built for hours.
"""

from collections.abc import Mapping

from heedful.errors import UserError


def check_sizes(config: object, largest: Mapping[str, int]) -> None:
    """Each of these fields is a whole number from 1 to its largest; None, where a field may be, is left out."""
    for name, most in largest.items():
        value = getattr(config, name)
        if value is not None and not 1 <= value <= most:
            raise UserError(f"'{name}' must lie between 1 and {most:,}, found {value}")


def check_shares(config: object, *names: str) -> None:
    """Each of these fields, dropout for example, is a share below the whole."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0.0 <= value < 1.0:
            raise UserError(f"'{name}' must lie in [0, 1), found {value}")


def check_positions(length: int, max_len: int) -> None:
    """A learned table has a last row."""
    if length > max_len:
        raise UserError(
            f"{length} tokens are more than the {max_len} positions that this model has learned; "
            "split the text, or train with a larger model.max_len"
        )
