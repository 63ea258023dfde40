"""How many batches at once, how many threads for each, how large a batch: measured once on this machine, and kept.

It matters five-fold: on two cores, int8 with two batches at a time is five times as fast as one batch on two threads.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ctranslate2

from heedful.config import from_values, read_json, to_values
from heedful.errors import UserError
from heedful.interop.ctranslate2 import source_token
from heedful.interop.ctranslate2_cache import FACTS, user_cache
from heedful.text import SPECIAL

LENGTH = 16  # tokens of each sentence that is measured, and of its translation
BATCHES = (16, 32, 64)


@dataclass(frozen=True)
class Speed:
    inter: int = 1  # batches at a time
    intra: int = 1  # threads for each
    batch: int = 32  # sentences

    def __post_init__(self) -> None:
        for name in ("inter", "intra", "batch"):
            if not 1 <= getattr(self, name) <= 100_000:
                raise UserError(f"'{name}' must lie between 1 and 100,000, found {getattr(self, name)}")


def speed_for(folder: Path, compute: str) -> Speed:
    """The fastest settings for a converted model; measured, which takes seconds, if they are not known yet."""
    known = known_speed(folder, compute)
    if known is not None:
        return known
    speed = _measured(folder, compute)
    for path in _places(folder, compute):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f"{path.name}-{os.getpid()}")
            aside.write_text(json.dumps(to_values(speed)) + "\n", encoding="utf-8")
            aside.replace(path)
            break
        except OSError:  # read-only: the next place, or measured again next time
            continue
    return speed


def known_speed(folder: Path, compute: str) -> Speed | None:
    """What was measured on as many cores; None if nothing was, or its file is damaged."""
    for path in _places(folder, compute):
        with contextlib.suppress(UserError):
            return from_values(Speed, read_json(path), where=str(path))
    return None


def _places(folder: Path, compute: str) -> list[Path]:
    name = f"speed-{compute}-{cores()}.json"
    return [folder / name, user_cache() / f"{folder.name.lstrip('.')}-{name}"]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _measured(folder: Path, compute: str) -> Speed:
    """In a child: this process may have loaded torch, whose OpenMP runtime gets in the way."""
    command = [sys.executable, "-P", "-m", "heedful.decoding.ct2_speed", str(folder), compute]
    child = subprocess.run(command, capture_output=True, check=False)
    if child.returncode != 0:
        raise RuntimeError(f"measuring {folder} ended with {child.returncode}: {child.stderr.decode()[-2000:]}")
    return from_values(Speed, json.loads(child.stdout), where="measured speed")


def measure(folder: Path, compute: str) -> Speed:
    """Try the ways to share the cores, then sizes of batches with the best of them."""
    n = cores()
    ways = sorted({(max(1, n // intra), intra) for intra in (1, 2, 4, n) if intra <= n}, reverse=True)
    sources = _sources(read_json(folder / FACTS)["source_vocab_size"], n_sentences=2 * max(BATCHES) * n)
    trials = {Speed(*way): _Trial(folder, compute, Speed(*way)) for way in ways}
    # A bad way can be twenty times slower: the long trial is for those that came near in a short one.
    short = {speed: trial.seconds(sources[: 8 * n]) for speed, trial in trials.items()}
    near = [speed for speed, seconds in short.items() if seconds < 1.5 * min(short.values())]
    way = near[0] if len(near) == 1 else min(near, key=lambda speed: trials[speed].seconds(sources))
    return min((replace(way, batch=size) for size in BATCHES), key=lambda speed: trials[way].seconds(sources, speed))


class _Trial:
    """A model opened in one way."""

    def __init__(self, folder: Path, compute: str, speed: Speed) -> None:
        self.speed = speed
        self.translator: Any = ctranslate2.Translator(
            str(folder), compute_type=compute, inter_threads=speed.inter, intra_threads=speed.intra
        )

    def seconds(self, sources: list[list[str]], speed: Speed | None = None) -> float:
        """The better of two runs in which every sentence has the same length, whatever the model would say."""
        batch = min((speed or self.speed).batch, -(-len(sources) // self.speed.inter))
        times = []
        for _ in range(2):
            start = time.perf_counter()
            self.translator.translate_batch(
                sources,
                max_batch_size=batch,
                beam_size=1,
                min_decoding_length=LENGTH,
                max_decoding_length=LENGTH,
            )
            times.append(time.perf_counter() - start)
        return min(times)


def _sources(vocab_size: int, *, n_sentences: int) -> list[list[str]]:
    choose = random.Random(0)
    first = min(SPECIAL.end + 1, vocab_size - 1)
    return [[source_token(choose.randrange(first, vocab_size)) for _ in range(LENGTH)] for _ in range(n_sentences)]


if __name__ == "__main__":
    print(json.dumps(to_values(measure(Path(sys.argv[1]), sys.argv[2]))))
