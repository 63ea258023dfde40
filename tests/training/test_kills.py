"""The short version of `make kill-test`."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_ten_kills() -> None:
    script = Path(__file__).parents[1] / "stress" / "kills.py"
    done = subprocess.run(
        [sys.executable, str(script), "--kills", "10", "--in-save", "1"], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 unreadable checkpoints" in done.stdout
