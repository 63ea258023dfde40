"""benchmarks/generate.py runs, and both programs write the same."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "generate.py"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs heedful[hf]")
def test_both_programs_are_measured_and_agree() -> None:
    command = [sys.executable, str(BENCHMARK), "--quick", "--threads", "1", "--batches", "1", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and "parameters" not in line]
    assert len(rows) == 6
    assert all(row.endswith(("| 1 of 1 |", "| 3 of 3 |")) for row in rows), done.stdout
