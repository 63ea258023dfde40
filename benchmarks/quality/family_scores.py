"""How good the answers of benchmarks/quality/family.py are, and its table."""

from collections.abc import Mapping, Sequence


def exactly_right(said: Sequence[str], wanted: Sequence[str]) -> float:
    return 100.0 * sum(a == b for a, b in zip(said, wanted, strict=True)) / len(wanted)


def rouge_l(said: Sequence[str], wanted: Sequence[str]) -> float:
    """The mean F1 of the longest common subsequence of words, lower-cased (Lin 2004)."""
    pairs = zip(said, wanted, strict=True)
    return 100.0 * sum(_lcs_f1(a.lower().split(), b.lower().split()) for a, b in pairs) / len(said)


def _lcs_f1(a: list[str], b: list[str]) -> float:
    lengths = [0] * (len(b) + 1)  # of the words of a so far with the first words of b
    for word in a:
        diagonal = 0
        for place, other in enumerate(b, 1):
            longest = diagonal + 1 if word == other else max(lengths[place], lengths[place - 1])
            diagonal, lengths[place] = lengths[place], longest
    return 2 * lengths[-1] / max(1, len(a) + len(b))


def table(rows: Sequence[Mapping[str, object]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    shown = [[_show(row.get(name, "")) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [names, ["---"] * len(names), *shown])


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
