"""Format numbers, durations, sizes, changes of text and curves for people to read."""

import difflib
import itertools
import math
import re
import unicodedata
from typing import NamedTuple

NOTHING = "–"

# Chinese and Japanese have no spaces between words: each character counts as a word.
_IDEOGRAPH = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"\s*(?:[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}]+)")
_TURNS_TEXT = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # bidirectional overrides


def count(number: float | None) -> str:
    return NOTHING if number is None or not math.isfinite(number) else f"{number:,.0f}"


def number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}"


def share(part: float) -> str:
    return f"{100 * part:.1f} %"


def size(n_bytes: float | None) -> str:
    if n_bytes is None:
        return NOTHING
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            scaled = n_bytes / factor
            return f"{scaled:.1f} {unit}" if scaled < 10 else f"{scaled:,.0f} {unit}"
    return f"{n_bytes:.0f} bytes"


def duration(seconds: float | None) -> str:
    """Format a duration with at most two units: 0.8 s, 48 s, 12 m 05 s, 1 h 04 m, 2 d 03 h."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if 0.05 <= seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def too_long(n_left_out: int, n_all: int, unit: str, max_len: int, *, what: str) -> str:
    """Return the warning that some examples fit into no batch and are left out of `what`, such as "training"."""
    be = "is" if n_left_out == 1 else "are"
    return (
        f"{n_left_out:,} of {n_all:,} {unit} {be} too long for data.max_len = {max_len}, or for data.batch_tokens, and "
        f"{be} left out of {what}"
    )


def escape_control_chars(text: str) -> str:
    """Put a text on one line and escape characters that move the cursor or change the direction of text."""
    text = " ".join(re.split(r"[\t\r\n\x0b\x0c\x85\u2028\u2029]+", text))
    if text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in ("Cc", "Cs") or c in _TURNS_TEXT else c for c in text)


def _escaped(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"


class DiffSpan(NamedTuple):
    """Words that are equal (old == new), inserted (no old), deleted (no new) or replaced, and the space before them."""

    space: str
    old: str
    new: str


def word_diff(before: str | None, after: str) -> list[DiffSpan]:
    """Compare two texts word by word; without `before`, all words are equal."""
    old, new = _WORD.findall(after if before is None else before), _WORD.findall(after)
    matcher = difflib.SequenceMatcher(None, [w.strip() for w in old], [w.strip() for w in new], autojunk=False)
    pieces = []
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        deleted, inserted = "".join(old[i:i_end]), "".join(new[j:j_end])
        space = _leading_space(inserted or deleted)
        if kind == "delete" and i == 0 and i_end < len(old):  # the first words are deleted, with the space after them
            deleted += _leading_space(old[i_end])
        pieces.append(DiffSpan(space, inserted.lstrip() if kind == "equal" else deleted.lstrip(), inserted.lstrip()))
    return pieces


def _leading_space(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def sparkline(values: list[float], width: int) -> str:
    """Draw a curve with block characters in one line; values that share a column are averaged.

    >>> sparkline([1.0, 2.0, 4.0], width=3)
    '▁▃█'
    """
    if not values:
        return ""
    n_columns = min(width, len(values))
    edges = [round(i * len(values) / n_columns) for i in range(n_columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    if high == low:
        return BARS[0] * n_columns
    return "".join(BARS[min(7, int(8 * (mean - low) / (high - low)))] for mean in means)


BARS = "▁▂▃▄▅▆▇█"
