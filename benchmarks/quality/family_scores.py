"""Score the outputs of benchmarks/quality/family.py and print its table."""

from collections.abc import Mapping, Sequence


def exactly_right(outputs: Sequence[str], targets: Sequence[str]) -> float:
    """Return the percentage of outputs that equal their targets."""
    return 100.0 * sum(a == b for a, b in zip(outputs, targets, strict=True)) / len(targets)


def rouge_l(outputs: Sequence[str], targets: Sequence[str]) -> float:
    """Return ROUGE-L: the mean F1 of the longest common subsequence of lower-cased words, in percent (Lin 2004)."""
    pairs = zip(outputs, targets, strict=True)
    return 100.0 * sum(_lcs_f1(a.lower().split(), b.lower().split()) for a, b in pairs) / len(outputs)


def _lcs_f1(a: list[str], b: list[str]) -> float:
    lengths = [0] * (len(b) + 1)  # of the common subsequence of a's words so far and b's first words
    for word in a:
        diagonal = 0
        for i, other in enumerate(b, 1):
            longest = diagonal + 1 if word == other else max(lengths[i], lengths[i - 1])
            diagonal, lengths[i] = lengths[i], longest
    return 2 * lengths[-1] / max(1, len(a) + len(b))


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return a Markdown table with a column for every key."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name, "")) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [names, ["---"] * len(names), *cells])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
