"""Learning curves as a picture: BLEU on validation over minutes of training, a line for each run.

    python benchmarks/plots/curves.py NAME=RUN/log.jsonl … --output curves.svg [--title WORDS] [--metric bleu]

Runs are read from their logs; the clock is the run's own, training alone.
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
    parser.add_argument("runs", nargs="+", metavar="NAME=LOG")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--title", default="BLEU on validation, greedy search")
    parser.add_argument("--metric", default="bleu")
    options = parser.parse_args()
    named = (run.split("=", 1) for run in options.runs)
    curves = {name: curve_of(Path(log), options.metric) for name, log in named}
    options.output.write_text(picture(options.title, curves), encoding="utf-8")
    for name, curve in curves.items():
        print(f"{name}: {len(curve)} validations, {curve[-1][1]:.2f} after {curve[-1][0]:.1f} minutes")


def curve_of(log: Path, metric: str) -> Curve:
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    minutes = {event["step"]: event["seconds"] / 60 for event in events if event["event"] == "step"}
    judged = [event for event in events if event["event"] == "validation" and event["step"] in minutes]
    return [(minutes[event["step"]], float(event[metric])) for event in judged]


def picture(title: str, curves: dict[str, Curve]) -> str:
    """SVG text. The scores begin at zero; the names stand where their lines end, moved apart where they would meet."""
    longest = max(at for curve in curves.values() for at, _ in curve)
    best = max(score for curve in curves.values() for _, score in curve)
    across, up = steps(longest, 8), steps(best, 6)

    def x(minutes: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * minutes / max(longest, across[-1])

    def y(score: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * score / max(best, up[-1])

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' {FONT} font-size='12' "
        f"fill='{INK}'><title>{escape(title)}</title><rect width='{WIDTH}' height='{HEIGHT}' fill='{PAPER}'/>",
        f"<text x='{LEFT}' y='24' font-size='15'>{escape(title)}</text>",
    ]
    for score in up:
        parts.append(f"<path d='M{LEFT} {y(score):.1f}H{WIDTH - RIGHT}' stroke='{FAINT}'/>")
        parts.append(f"<text x='{LEFT - 8}' y='{y(score) + 4:.1f}' text-anchor='end'>{score:g}</text>")
    for minutes in across:
        parts.append(f"<text x='{x(minutes):.1f}' y='{HEIGHT - BOTTOM + 18}' text-anchor='middle'>{minutes:g}</text>")
    parts.append(f"<text x='{x(longest) / 2 + LEFT / 2:.0f}' y='{HEIGHT - 10}'>minutes of training</text>")
    ends = apart([y(curve[-1][1]) for curve in curves.values()])
    for (name, curve), end, colour in zip(curves.items(), ends, itertools.cycle(COLOURS), strict=False):
        points = " ".join(f"{x(minutes):.1f},{y(score):.1f}" for minutes, score in curve)
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2'/>")
        words = f"{escape(name)}  {curve[-1][1]:.1f}"
        parts.append(f"<text x='{x(curve[-1][0]) + 8:.1f}' y='{end + 4:.1f}' fill='{colour}'>{words}</text>")
    return "".join(parts) + "</svg>\n"


def steps(most: float, about: int) -> list[float]:
    """Round numbers from zero to beyond `most`, about so many."""
    raw = most / about
    power = 10.0 ** len(str(int(raw))) / 10 if raw >= 1 else 1.0
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= raw)
    return [number * step for number in range(int(most / step) + 2)]


def apart(heights: Sequence[float], room: float = 15.0) -> list[float]:
    """The same heights, moved down where one would be less than `room` below another."""
    result = list(heights)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    for above, below in itertools.pairwise(order):
        result[below] = max(result[below], result[above] + room)
    return result


if __name__ == "__main__":
    main()
