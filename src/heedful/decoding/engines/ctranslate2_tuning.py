"""The fastest threads and batch sizes of CTranslate2 on this machine: measured once, and stored.

They matter: on two cores, int8 with two batches at a time is five times as fast as with one batch on two threads.
`python -m heedful.decoding.engines.ctranslate2_tuning FOLDER COMPUTE [DEVICE]` measures, in a process without torch.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.config import config_from_dict, config_to_dict, read_json
from heedful.devices import n_cores
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import user_cache
from heedful.interop.ctranslate2.conversion import INFO
from heedful.interop.ctranslate2.library import library, placed, source_token
from heedful.text import SPECIAL_IDS

LENGTH = 12  # tokens of each sentence that is measured, and of its translation
BATCHES = (256, 512, 1024, 2048)  # source tokens
GPU_BATCHES = (512, 2048, 8192, 16_384)  # a GPU needs larger batches
BEAM = 5


@dataclass(frozen=True)
class Speed:
    """Threads and batch sizes."""

    inter: int = 1  # batches at a time
    intra: int = 1  # threads for each
    batch: int = 1024  # source tokens of a batch, with padding
    beam_batch: int = 512  # the same with a beam

    def __post_init__(self) -> None:
        for name in ("inter", "intra", "batch", "beam_batch"):
            if not 1 <= getattr(self, name) <= 1_000_000:
                raise UserError(f"'{name}' must lie between 1 and 1,000,000, found {getattr(self, name)}")


def speed_for(folder: Path, compute: str, device: str = "cpu") -> Speed:
    """Return the fastest settings for a converted model; if they are not known, measure for some seconds."""
    known = known_speed(folder, compute, device)
    if known is not None:
        return known
    speed = _measured(folder, compute, device)
    for path in _files(folder, compute, device):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f"{path.name}-{os.getpid()}")
            aside.write_text(json.dumps(config_to_dict(speed)) + "\n", encoding="utf-8")
            aside.replace(path)
            break
        except OSError:  # read-only: try the next file, or measure again next time
            continue
    return speed


def known_speed(folder: Path, compute: str, device: str = "cpu") -> Speed | None:
    """Return what was measured for this number of cores, or this GPU; None if there is no valid file."""
    for path in _files(folder, compute, device):
        with contextlib.suppress(UserError):
            return config_from_dict(Speed, read_json(path), where=str(path))
    return None


def _files(folder: Path, compute: str, device: str) -> list[Path]:
    name = f"speed-{compute}-{n_cores() if device == 'cpu' else device.replace(':', '-')}.json"
    return [folder / name, user_cache() / f"{folder.name.lstrip('.')}-{name}"]


def _measured(folder: Path, compute: str, device: str) -> Speed:
    """Measure in a child process: the OpenMP runtime of torch, if this process has loaded it, would slow it down."""
    command = [sys.executable, "-P", "-m", "heedful.decoding.engines.ctranslate2_tuning", str(folder), compute, device]
    child = subprocess.run(command, capture_output=True, check=False)
    if child.returncode != 0:
        raise RuntimeError(f"measuring {folder} ended with {child.returncode}: {child.stderr.decode()[-2000:]}")
    return config_from_dict(Speed, json.loads(child.stdout), where="measured speed")


def measure(folder: Path, compute: str, device: str = "cpu") -> Speed:
    """Try ways to divide the cores, then batch sizes. A GPU is not divided, and only wall-clock time counts.

    Other programs may be busy meanwhile. One batch for each core suffers least from them; it is replaced only by a way
    that is better both in wall-clock time and in CPU time. Batch sizes are compared by CPU time.
    """
    n, sizes = n_cores(), BATCHES if device == "cpu" else GPU_BATCHES
    sources = _sources(read_json(folder / INFO)["source_vocab_size"], n_sentences=max(sizes) // LENGTH)
    if device != "cpu":
        return Speed(1, 1, *_best_sizes(_Trial(folder, compute, 1, 1, device), sources, sizes))
    few = sources[::4]
    division, best = (n, 1), _Trial(folder, compute, n, 1).cost(few)
    for intra in sorted({2, 4, n} & set(range(2, n + 1))):
        cost = _Trial(folder, compute, n // intra, intra).cost(few)
        if cost.clock < 0.9 * best.clock and cost.threads < 0.9 * best.threads:
            division, best = (n // intra, intra), cost
    return Speed(*division, *_best_sizes(_Trial(folder, compute, 1, 1), sources, sizes))


@dataclass(frozen=True)
class Cost:
    """The cost of a run."""

    clock: float  # wall-clock seconds
    threads: float  # CPU seconds of all threads


class _Trial:
    """A model opened with some threads."""

    def __init__(self, folder: Path, compute: str, inter: int, intra: int, device: str = "cpu") -> None:
        self.inter, self.device = inter, device
        self.translator: Any = library().Translator(
            str(folder), **placed(device), compute_type=compute, inter_threads=inter, intra_threads=intra
        )

    def cost(self, sources: list[list[str]], *, batch: int = 512, beam: int = 1) -> Cost:
        """Measure a run, after a shorter one to warm up. All translations have the same forced length."""
        self._run(sources[::8], batch, beam)
        clock, threads = time.perf_counter(), time.process_time()
        self._run(sources, batch, beam)
        return Cost(time.perf_counter() - clock, time.process_time() - threads)

    def _run(self, sources: list[list[str]], batch: int, beam: int) -> None:
        self.translator.translate_batch(
            sources,
            max_batch_size=min(batch, -(-len(sources) * LENGTH // self.inter)),
            batch_type="tokens",
            beam_size=beam,
            min_decoding_length=LENGTH,
            max_decoding_length=LENGTH,
        )


def _best_sizes(trial: _Trial, sources: list[list[str]], sizes: Sequence[int]) -> tuple[int, int]:
    """Return the best batch size of greedy search, and of a beam."""
    costs = {size: trial.cost(sources, batch=size) for size in sizes}
    beam_costs = {size: trial.cost(sources[::2], batch=size, beam=BEAM) for size in sizes[:-1]}
    return _cheapest(costs, trial.device), _cheapest(beam_costs, trial.device)


def _cheapest(costs: dict[int, Cost], device: str) -> int:
    return min(costs, key=lambda size: costs[size].threads if device == "cpu" else costs[size].clock)


def _sources(vocab_size: int, *, n_sentences: int) -> list[list[str]]:
    choose = random.Random(0)
    first = min(SPECIAL_IDS.eos_id + 1, vocab_size - 1)
    return [[source_token(choose.randrange(first, vocab_size)) for _ in range(LENGTH)] for _ in range(n_sentences)]


if __name__ == "__main__":
    print(json.dumps(config_to_dict(measure(Path(sys.argv[1]), *sys.argv[2:]))))
