"""Compare how soon optimisers reach a validation loss: the same model, data and minutes, one run after the other.

    python benchmarks/speed/optimisers.py --data multi30k [--recipe tiny] [--minutes 8] [--threads 1] [--folder runs]
        [--try adamw=0.002 adamw=0.004 muon=0.002 muon=0.004]

DATA holds train.en, train.de, val.en and val.de. The minutes are those of training steps, without validation.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

Curve = list[tuple[float, float]]  # (seconds of training, validation loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpus")
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--minutes", type=float, default=8.0, help="minutes of training per run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("runs/optimisers"), help="folder for the runs")
    parser.add_argument("--try", nargs="+", dest="tries", metavar="KIND=RATE", default=["adamw=0.002", "muon=0.002"])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings, for all runs")
    parser.add_argument("--json", type=Path, help="write all curves to this file")
    options = parser.parse_args()
    curves = {name: train(name, options) for name in options.tries}
    print(table(curves))
    if options.json:
        options.json.write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")


def train(name: str, options: argparse.Namespace) -> Curve:
    """Train one run with `heedful train`, unless it exists, and return its learning curve."""
    kind, rate = name.split("=")
    run, data = options.folder / f"{kind}-{rate}", options.data
    if not (run / "average").exists():
        files = {"source": "train.en", "target": "train.de", "valid-source": "val.en", "valid-target": "val.de"}
        file_args = [arg for option, file in files.items() for arg in (f"--{option}", str(data / file))]
        settings = [
            f"optimiser.kind={kind}", f"optimiser.lr={rate}", f"run.minutes={options.minutes}",
            f"run.threads={options.threads}", "run.metric=loss", "run.validation_sentences=0", "run.validate_every=100",
            "run.save_every=100000", "run.average=1", *options.set,
        ]  # fmt: skip
        command = [sys.executable, "-m", "heedful", "train", str(run), *file_args, "--recipe", options.recipe]
        subprocess.run([*command, "--set", *settings], check=True)
    return read_curve(run / "log.jsonl")


def read_curve(log: Path) -> Curve:
    events: list[dict[str, Any]] = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    seconds = {event["step"]: event["seconds"] for event in events if event["event"] == "step"}
    return [(seconds[e["step"]], e["loss"]) for e in events if e["event"] == "validation" and e["step"] in seconds]


def table(curves: dict[str, Curve]) -> str:
    """Return a table of the minutes until each run reaches a loss, and of the lowest loss of each run."""
    ends = {name: min(loss for _, loss in curve) for name, curve in curves.items()}
    highest = min(curve[0][1] for curve in curves.values())
    goals = [goal / 4 for goal in range(40) if min(ends.values()) <= goal / 4 <= highest][::-1]
    head = ["optimiser, peak learning rate", *(f"to {goal:.2f}" for goal in goals), "best loss"]
    rows = [
        [name.replace("=", ", "), *(time_to(goal, curve) for goal in goals), f"{ends[name]:.3f}"]
        for name, curve in curves.items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---:"] * len(head), *rows])


def time_to(goal: float, curve: Curve) -> str:
    times = [seconds for seconds, loss in curve if loss <= goal]
    return f"{times[0] / 60:.1f} min" if times else "never"


if __name__ == "__main__":
    main()
