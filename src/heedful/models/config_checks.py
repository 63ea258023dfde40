"""What every family refuses alike, in the same words: sizes out of all bounds, shares that are none, texts too long.

A damaged or hostile config.json must be refused, not built for hours.

The names of what a classifier tells apart.
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


MOST_LABELS = 10**6


def check_labels(head: str, labels: tuple[str, ...], *, needed_by: tuple[str, ...], multi_label: bool) -> None:
    """A head for labels must have some, and no other head may. Two may have one name: ImageNet has two "crane"."""
    if head in needed_by and not labels:
        raise UserError(f"head = '{head}' needs 'labels', the names of its classes, and there are none")
    if head not in needed_by and labels:
        raise UserError(f"head = '{head}' has no labels, found {len(labels)}; use head = '{needed_by[0]}'")
    if len(labels) > MOST_LABELS:
        raise UserError(f"'labels' has {len(labels):,} names; at most {MOST_LABELS:,} are allowed")
    if len(labels) == 1 and not multi_label:
        raise UserError(f"one label ({labels[0]!r}) leaves nothing to choose: give two, or set multi_label = true")
