"""benchmarks/speed/generate.py runs, and all programs in float32 write the same."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "speed" / "generate.py"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs heedful[hf]")
def test_all_programs_are_measured_and_those_in_float32_agree() -> None:
    command = [sys.executable, str(BENCHMARK), "--quick", "--threads", "1", "--batches", "1", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and "parameters" not in line]
    assert len(rows) == 4 * 2 * 4  # shapes, batches, programs
    exact = [row for row in rows if "int8" not in row]
    assert all(row.endswith(("| 1 of 1 |", "| 3 of 3 |")) for row in exact), done.stdout
