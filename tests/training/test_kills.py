"""The short versions of `make kill-test`: a killed run resumes and ends bit for bit like one that was never killed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).parents[1] / "stress" / "kills.py"


def run_kills(*args: str) -> str:
    process = subprocess.run([sys.executable, str(KILLS), *args], capture_output=True, text=True, timeout=500)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def check_output(output: str, n_kills: int) -> None:
    summary = re.search(r"(\d+) kills, \d+ inside a save, 0 unreadable checkpoints, (\d+) identical ends", output)
    assert summary is not None and int(summary[1]) == n_kills and int(summary[2]) >= 1, output


def test_two_kills() -> None:
    check_output(run_kills("--kills", "2", "--in-save", "0", "--steps", "60"), 2)


@pytest.mark.long
def test_ten_kills() -> None:
    check_output(run_kills("--kills", "10", "--in-save", "1"), 10)
