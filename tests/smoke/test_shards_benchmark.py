"""The benchmark of prepared shards runs, prints its table and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "speed" / "shards.py"


def test_a_tiny_corpus_goes_through_all_stages(tmp_path):
    options = ["--gigabytes", "0.002", "--batches", "3", "--workers", "1", "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, PROGRAM, *options], capture_output=True, text=True, check=True, timeout=120)
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 7
    for row in rows[2:]:
        rss, pss = (int(cell.replace(",", "")) for cell in row[5:7])
        assert 0 < pss <= rss
    assert "pairs" in done.stdout.splitlines()[-1]
    assert not list(tmp_path.iterdir())
