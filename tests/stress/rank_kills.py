"""Part of `make kill-test`: one of two ranks is killed repeatedly, and the run ends with equal weights.

    python tests/stress/rank_kills.py [--kills 20] [--seed 0]

The exit code is 1 unless the run recovers from every kill and its weights equal those of a quiet run bit for bit.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from small_run import OVERRIDES, write_corpus

# Long enough that the last kill still finds it at work.
SETTINGS = [*OVERRIDES, "run.steps=1000", "run.save_every=5", "run.validate_every=500", "data.workers=1"]


def start(run: Path, corpus: tuple[Path, Path], restarts: int) -> subprocess.Popen[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    train = ["-m", "heedful", "train", str(run), "--source", str(corpus[0]), "--target", str(corpus[1])]
    return subprocess.Popen(
        [*torchrun, f"--max-restarts={restarts}", *train, "--set", *SETTINGS],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def newest(run: Path) -> str:
    return max((path.name for path in (run / "checkpoints").glob("step-*")), default="")


def ranks_of(torchrun: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text()
    return sorted(int(child) for child in children.split())


def wait_for_progress(run: Path, process: subprocess.Popen[str], since: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while newest(run) <= since:
        assert process.poll() is None, f"the run ended with exit code {process.returncode} after {since or 'no step'}"
        assert time.monotonic() < end, f"no checkpoint after {since or 'the start'} in {seconds:.0f} s"
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    base = Path(tempfile.mkdtemp(prefix="heedful-rank-kills-"))
    corpus = write_corpus(base / "corpus")
    started = time.monotonic()

    quiet = start(base / "quiet", corpus, restarts=0)
    assert quiet.wait(timeout=900) == 0, "the quiet run failed"
    print(f"the quiet run of two ranks: {time.monotonic() - started:.0f} s", flush=True)

    run, since = base / "killed", ""
    killed = start(run, corpus, restarts=options.kills)
    for kill in range(1, options.kills + 1):
        wait_for_progress(run, killed, since)
        time.sleep(draw.uniform(0.0, 0.5))
        victim = draw.randrange(2)
        since = newest(run)
        os.kill(ranks_of(killed)[victim], signal.SIGKILL)
        print(f"kill {kill}: rank {victim} after {since}", flush=True)
    code = killed.wait(timeout=900)

    expected, found = (load_file(base / name / "last" / "model.safetensors") for name in ("quiet", "killed"))
    different = [name for name in expected if not torch.equal(expected[name], found[name])]
    seconds = time.monotonic() - started
    print(f"{options.kills} kills of a rank, exit code {code}, {len(different)} tensors differ, {seconds:.0f} s")
    shutil.rmtree(base, ignore_errors=True)
    return 1 if code or different else 0


if __name__ == "__main__":
    sys.exit(main())
