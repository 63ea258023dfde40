"""A run that is small enough for tests and uses everything that could break a resume."""

import random
from collections.abc import Callable
from pathlib import Path

from heedful.training import Checkpoint, Files, RunRecord, Settings, Trainer, read_settings
from heedful.training.data_preparation import PreparedData
from heedful.training.distributed import World
from heedful.training.signals import StopRequests

WORDS = [
    "the", "a", "dog", "cat", "man", "woman", "boy", "girl", "runs", "walks", "sees",
    "eats", "big", "small", "red", "old", "in", "on", "park", "house", "street", "ball",
]  # fmt: skip

# Dropout on, two parts to each step, two loader workers, sampled segmentations, a running average.
OVERRIDES = [
    "data.batch_tokens=160", "data.workers=2", "data.hold_out=12", "tokenizer.vocab_size=340",
    "tokenizer.sample_alpha=0.1", "model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.n_layers=1",
    "model.dropout=0.1", "schedule.warmup_steps=10", "run.steps=60", "run.micro_batches=2", "run.ema=0.9",
    "run.validate_every=20", "run.save_every=7", "run.log_every=10", "run.validation_sentences=4", "run.keep_last=2",
    "run.average=2", "run.threads=1", "run.device=cpu",
]  # fmt: skip


def settings(*overrides: str) -> Settings:
    return read_settings(None, [*OVERRIDES, *overrides])


def write_corpus(folder: Path, n_pairs: int = 150, seed: int = 0) -> tuple[Path, Path]:
    """Write pairs that can be learned: the target is the reversed source in capitals."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    sources = [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(n_pairs)]
    targets = [" ".join(reversed(source.upper().split())) for source in sources]
    source, target = folder / "train.en", folder / "train.xx"
    source.write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    target.write_text("".join(f"{line}\n" for line in targets), encoding="utf-8")
    return source, target


def silent(kind: str, **values: object) -> None:
    """Ignore an event."""


def open_small(
    folder: Path,
    prepared: PreparedData,
    chosen: Settings,
    *,
    world: World,
    checkpoint: Checkpoint | None = None,
    emit: Callable[..., None] = silent,
) -> Trainer:
    return Trainer(
        folder,
        RunRecord(Files(), chosen),
        world,
        prepared,
        emit=emit,
        checkpoint=checkpoint,
        requests=StopRequests(),
    )
