"""The names of what a classifier tells apart."""

from heedful.errors import UserError

MOST_LABELS = 10**6


def check_labels(head: str, labels: tuple[str, ...], *, needed_by: tuple[str, ...], exclusive: bool) -> None:
    """A head for labels must have some, and no other head may. Two may have one name: ImageNet has two "crane"."""
    if head in needed_by and not labels:
        raise UserError(f"head = '{head}' needs 'labels', the names of what it tells apart; found none")
    if head not in needed_by and labels:
        raise UserError(f"head = '{head}' has no labels, found {len(labels)}; use head = '{needed_by[0]}'")
    if len(labels) > MOST_LABELS:
        raise UserError(f"'labels' has {len(labels):,} names; at most {MOST_LABELS:,} are allowed")
    if len(labels) == 1 and exclusive:
        raise UserError(f"with the one label {labels[0]!r} nothing is told apart: give two, or set exclusive = false")
