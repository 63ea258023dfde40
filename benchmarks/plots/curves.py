"""Draw learning curves: a validation score over the minutes of training, one line for each run.

    python benchmarks/plots/curves.py NAME=RUN/log.jsonl … --output curves.svg [--title TEXT] [--metric bleu]

A run is given by its log, or by the scores.json that benchmarks/quality/multi30k.py writes. The minutes are the time
spent in training steps.
"""

import argparse
import itertools
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from chart import COLOURS, FAINT, FONT, INK, PAPER

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 56, 150, 44, 48
Curve = list[tuple[float, float]]  # (minutes, score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=FILE", help="label and log.jsonl or scores.json of a run")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--title", default="BLEU on validation, greedy search")
    parser.add_argument("--metric", default="bleu")
    options = parser.parse_args()
    named_files = (run.split("=", 1) for run in options.runs)
    curves = {name: read_curve(Path(file), options.metric) for name, file in named_files}
    options.output.write_text(draw(options.title, curves), encoding="utf-8")
    for name, curve in curves.items():
        print(f"{name}: {len(curve)} validations, {curve[-1][1]:.2f} after {curve[-1][0]:.1f} minutes")


def read_curve(path: Path, metric: str) -> Curve:
    """Read the validation scores of a run from its log or from its scores.json."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        column = {"bleu": 1, "loss": 2}[metric]
        return [(point[0], point[column]) for point in json.loads(text)["curve"]]
    events = [json.loads(line) for line in text.splitlines()]
    minutes = {event["step"]: event["seconds"] / 60 for event in events if event["event"] == "step"}
    validations = [event for event in events if event["event"] == "validation" and event["step"] in minutes]
    return [(minutes[event["step"]], float(event[metric])) for event in validations]


def draw(title: str, curves: dict[str, Curve]) -> str:
    """Return the chart as SVG. The score axis begins at zero; each label stands where its line ends."""
    longest = max(minutes for curve in curves.values() for minutes, _ in curve)
    best = max(score for curve in curves.values() for _, score in curve)
    minute_ticks, score_ticks = ticks(longest, 8), ticks(best, 6)

    def x(minutes: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * minutes / max(longest, minute_ticks[-1])

    def y(score: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * score / max(best, score_ticks[-1])

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' {FONT} font-size='12' "
        f"fill='{INK}'><title>{escape(title)}</title><rect width='{WIDTH}' height='{HEIGHT}' fill='{PAPER}'/>",
        f"<text x='{LEFT}' y='24' font-size='15'>{escape(title)}</text>",
    ]
    for score in score_ticks:
        parts.append(f"<path d='M{LEFT} {y(score):.1f}H{WIDTH - RIGHT}' stroke='{FAINT}'/>")
        parts.append(f"<text x='{LEFT - 8}' y='{y(score) + 4:.1f}' text-anchor='end'>{score:g}</text>")
    for minutes in minute_ticks:
        parts.append(f"<text x='{x(minutes):.1f}' y='{HEIGHT - BOTTOM + 18}' text-anchor='middle'>{minutes:g}</text>")
    parts.append(f"<text x='{x(longest) / 2 + LEFT / 2:.0f}' y='{HEIGHT - 10}'>minutes of training</text>")
    label_heights = spread_out([y(curve[-1][1]) for curve in curves.values()])
    for (name, curve), height, colour in zip(curves.items(), label_heights, itertools.cycle(COLOURS), strict=False):
        points = " ".join(f"{x(minutes):.1f},{y(score):.1f}" for minutes, score in curve)
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2'/>")
        label = f"{escape(name)}  {curve[-1][1]:.1f}"
        parts.append(f"<text x='{x(curve[-1][0]) + 8:.1f}' y='{height + 4:.1f}' fill='{colour}'>{label}</text>")
    return "".join(parts) + "</svg>\n"


def ticks(largest: float, count: int) -> list[float]:
    """Return about `count` round numbers, from zero to beyond `largest`."""
    raw = largest / count
    power = 10.0 ** len(str(int(raw))) / 10 if raw >= 1 else 1.0
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= raw)
    return [number * step for number in range(int(largest / step) + 2)]


def spread_out(heights: Sequence[float], distance: float = 15.0) -> list[float]:
    """Move heights down until no two of them are closer than `distance`."""
    result = list(heights)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    for above, below in itertools.pairwise(order):
        result[below] = max(result[below], result[above] + distance)
    return result


if __name__ == "__main__":
    main()
