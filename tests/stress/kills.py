"""`make kill-test`: a run that is killed with -9 at random moments ends like one that was never killed.

    python tests/stress/kills.py [--kills 100] [--in-save 20] [--steps 200] [--seed 0]

Each start is a fork of this process, which is quick. After every kill, all checkpoints must be readable and none may be
lost; every run that reaches its end must have the same weights, optimiser state, generators and scores, bit for bit. A
kill counts as inside a save if it leaves an unfinished folder. The exit code is 1 after any failure, or if fewer kills
than --in-save were inside a save.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from heedful import train
from heedful.atomic_io import ASIDE
from heedful.training.checkpoint import Checkpoint, list_checkpoints, load_checkpoint
from small_run import OVERRIDES, write_corpus

SETTINGS = [
    *OVERRIDES, "run.save_every=2", "run.validate_every=50", "run.keep_last=3", "data.workers=0",
]  # fmt: skip


def sitting(run: Path, corpus: tuple[Path, Path], n_steps: int) -> int:
    """Start or resume the run in a child process and return the process id."""
    child = os.fork()
    if child == 0:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        try:
            train(
                folder=run,
                source=corpus[0],
                target=corpus[1],
                overrides=[*SETTINGS, f"run.steps={n_steps}"],
                resume=run.exists(),
            )
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def finished(child: int, until: float) -> bool:
    """Return whether the child ended successfully before the time; otherwise kill it."""
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            assert code == 0, f"a sitting ended with exit code {code}"
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def unreadable(run: Path) -> list[str]:
    problems = []
    for folder in list_checkpoints(run / "checkpoints"):
        try:
            load_checkpoint(folder)
        except Exception as error:
            problems.append(f"{folder.name}: {error}")
    return problems


def differences(a: Checkpoint, b: Checkpoint) -> list[str]:
    found = [] if a.state.scores == b.state.scores and a.state.loader == b.state.loader else ["state"]
    for kind in ("model", "optimiser", "generators", "ema"):
        ours, theirs = getattr(a, kind), getattr(b, kind)
        found += [f"{kind}: {name}" for name in theirs if name not in ours or not torch.equal(ours[name], theirs[name])]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--in-save", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200, help="steps of each run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    torch.set_num_threads(1)
    base = Path(tempfile.mkdtemp(prefix="heedful-kills-"))
    corpus = write_corpus(base / "corpus")

    started = time.monotonic()
    assert finished(sitting(base / "quiet", corpus, options.steps), until=started + 600), "the quiet run did not end"
    whole = time.monotonic() - started
    expected = load_checkpoint(list_checkpoints(base / "quiet" / "checkpoints")[-1])
    print(f"the quiet run: {expected.state.step} steps in {whole:.1f} s", flush=True)

    kills = in_save = runs = 0
    while kills < options.kills:
        run, most = base / f"run-{runs}", 0

        def wait() -> float:
            """Return the seconds until the next kill; after the last kill the run goes on to its end."""
            return draw.uniform(0.02, 0.6) * whole if kills < options.kills else 600.0  # noqa: B023

        while not finished(sitting(run, corpus, options.steps), until=time.monotonic() + wait()):
            assert kills < options.kills, "the last sitting did not end"
            kills += 1
            in_save += any(run.rglob(f"{ASIDE}*"))
            problems = unreadable(run)
            saved = len(list_checkpoints(run / "checkpoints"))
            most = max(most, saved)
            if problems or saved < min(3, most):
                print(f"after kill {kills}: {problems or f'only {saved} checkpoints are left of {most}'}")
                return 1
        last = load_checkpoint(list_checkpoints(run / "checkpoints")[-1])
        if different := differences(last, expected):
            print(f"run {runs} ended differently: {different[:5]}")
            return 1
        runs += 1
        print(f"{kills} kills, {in_save} of them inside a save; {runs} runs ended bit for bit alike", flush=True)
        shutil.rmtree(run)
    seconds = time.monotonic() - started
    print(f"{kills} kills, {in_save} inside a save, 0 unreadable checkpoints, {runs} identical ends, {seconds:.0f} s")
    shutil.rmtree(base, ignore_errors=True)
    if in_save < options.in_save:
        print(f"only {in_save} kills fell into a save; wanted: {options.in_save}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
