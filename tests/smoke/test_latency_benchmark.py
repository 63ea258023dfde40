"""benchmarks/speed/latency.py runs."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "speed" / "latency.py"


def test_first_and_later_calls_are_measured(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--runs", "1", "--commands", "translate"]
    figures = tmp_path / "latency.json"
    done = subprocess.run([*command, "--json", str(figures)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, later = json.loads(figures.read_text())["cases"]
    assert [(case["command"], case["call"]) for case in (first, later)] == [
        ("translate", "first"),
        ("translate", "later"),
    ]
    assert all(len(case[key]) == 1 and case[key][0] > 0 for case in (first, later) for key in ("seconds", "processor"))
    assert "| `heedful translate` | first |" in done.stdout
