"""Checks that all configs share: bounds of sizes, shares below one, text lengths, label lists."""

from heedful.errors import UserError

# Far above any real model: a damaged or hostile config.json is rejected at once instead of being built for hours.
LARGEST = {
    "vocab_size": 10**8,
    "source_vocab_size": 10**8,
    "target_vocab_size": 10**8,
    "d_model": 10**6,
    "d_head": 10**6,
    "d_ff": 10**7,
    "n_layers": 1_000,
    "n_decoder_layers": 1_000,
    "n_steps": 1_000,
    "n_decoder_steps": 1_000,
    "n_heads": 10**4,
    "n_kv_heads": 10**4,
    "max_len": 10**9,
    "n_segments": 10**4,
    "n_buckets": 10**6,
    "max_distance": 10**9,
    "image_size": 10**4,
    "patch_size": 10**4,
    "n_channels": 1_000,
}
MOST_LABELS = 10**6


def check_sizes(config: object, **largest: int) -> None:
    """Raise a UserError for sizes below 1 or above LARGEST; `largest` has other limits for some fields.

    Fields that the config does not have, or that are None, are not checked.
    """
    for name, most in (LARGEST | largest).items():
        value = getattr(config, name, None)
        if value is not None and not 1 <= value <= most:
            raise UserError(f"'{name}' must lie between 1 and {most:,}, found {value}")


def check_shares(config: object, *names: str) -> None:
    """Raise a UserError for a field, such as dropout, that does not lie in [0, 1). None is not checked."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0.0 <= value < 1.0:
            raise UserError(f"'{name}' must lie in [0, 1), found {value}")


def check_positions(length: int, max_len: int) -> None:
    """Raise a UserError for a text of `length` tokens for a model with `max_len` learned positions."""
    if length > max_len:
        raise UserError(
            f"the text has {length} tokens, but this model has learned only {max_len} positions; "
            "split the text, or train with a larger model.max_len"
        )


def check_labels(head: str, labels: tuple[str, ...], *, needed_by: tuple[str, ...], multi_label: bool) -> None:
    """Raise a UserError for a classifier without labels, and labels for any other head.

    Two labels may have the same name: ImageNet has two classes called "crane".
    """
    if head in needed_by and not labels:
        raise UserError(f"head = '{head}' needs 'labels', the names of its classes, and there are none")
    if head not in needed_by and labels:
        raise UserError(f"head = '{head}' has no labels, but 'labels' has {len(labels)}; use head = '{needed_by[0]}'")
    if len(labels) > MOST_LABELS:
        raise UserError(f"'labels' has {len(labels):,} names; at most {MOST_LABELS:,} are allowed")
    if len(labels) == 1 and not multi_label:
        raise UserError(f"one label ({labels[0]!r}) leaves nothing to choose: give two, or set multi_label = true")
