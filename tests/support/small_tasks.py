"""Data and settings for a run of each task, small enough for tests."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from small_run import WORDS

HOLD_OUT = "data.hold_out=12"
VOCABULARY = "tokenizer.vocab_size=420"
# Dropout on, two parts to each step, two loader workers, a running average: whatever could break a resume.
COMMON = [
    "data.workers=2", HOLD_OUT, VOCABULARY, "run.steps=12", "run.micro_batches=2", "run.ema=0.9",
    "run.validate_every=6", "run.save_every=3", "run.log_every=4", "run.validation_sentences=4", "run.average=2",
    "run.threads=1",
    "run.device=cpu", "run.keep_last=9", "schedule.kind=constant", "schedule.warmup_steps=2", "optimiser.lr=0.01",
    "optimiser.weight_decay=0.0", "model.dropout=0.1", "model.d_model=16", "model.d_ff=32", "model.n_heads=2",
    "loss.label_smoothing=0.0",
]  # fmt: skip
ONE_LAYER = ["model.n_layers=1"]


@dataclass(frozen=True)
class Case:
    """A task with its kind of files, its family and its settings."""

    kind: str  # as `train` calls the files
    family: str
    settings: list[str] = field(default_factory=list)

    def files(self, folder: Path) -> dict[str, object]:
        if self.kind == "source":
            source, target = write_pairs(folder)
            return {"source": source, "target": target}
        return {self.kind: WRITERS[self.kind](folder)}

    @property
    def overrides(self) -> list[str]:
        unused = [HOLD_OUT] if "data.documents=file" in self.settings else []  # a share is held out, not a number
        unused += [VOCABULARY] if self.kind == "images" else []
        return [*(one for one in COMMON if one not in unused), *self.settings]


TEXT = ["data.batch_tokens=256", "data.max_len=32", *ONE_LAYER]
CASES = {
    "next_token": Case("text", "gpt", TEXT),
    "next_token windows": Case(
        "text", "gpt", [*TEXT, "data.rows=random", "data.documents=file", "tokenizer.kind=char"]
    ),
    "masked_tokens": Case("text", "bert", [*TEXT, "noise.whole_words=true", "data.documents=lines"]),
    "classification": Case("labels", "bert", ["data.batch_tokens=16", "data.max_len=32", *ONE_LAYER]),
    "tagging": Case("tags", "bert", TEXT),
    "spans": Case("text", "t5", [*TEXT, "model.d_head=8"]),
    "denoising": Case("text", "bart", TEXT),
    "image_classification": Case(
        "images", "vit", ["data.batch_tokens=16", "data.shift=1", "data.flip=true", *ONE_LAYER]
    ),
    "masked_patches": Case("images", "vit", ["task=masked_patches", "data.batch_tokens=64", *ONE_LAYER]),
    "shuffled_patches": Case("images", "vit", ["task=shuffled_patches", "data.batch_tokens=64", *ONE_LAYER]),
    "translation t5": Case("source", "t5", ["data.batch_tokens=160", *ONE_LAYER, "model.d_head=8"]),
    "translation bart": Case("source", "bart", ["data.batch_tokens=160", *ONE_LAYER]),
    "translation universal": Case("source", "universal", ["data.batch_tokens=160", "model.n_steps=2"]),
}


def write_pairs(folder: Path) -> tuple[Path, Path]:
    from small_run import write_corpus

    return write_corpus(folder, n_pairs=120)


def sentences(n: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) + "." for _ in range(n)]


def write_text(folder: Path) -> Path:
    """Write paragraphs of one to four sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    draw, path = random.Random(1), folder / "book.txt"
    lines = "".join(f"{line}\n" + ("\n" if draw.random() < 0.4 else "") for line in sentences(300))
    path.write_text(lines, encoding="utf-8")
    return path


def write_labels(folder: Path) -> Path:
    """Write texts whose label depends on their first word."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "labels.tsv"
    texts = sentences(150, seed=2)
    path.write_text("".join(f"{text}\t{'early' if text[0] < 'm' else 'late'}\n" for text in texts), encoding="utf-8")
    return path


def write_tags(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tags.conll"
    people = ("man", "woman", "boy", "girl")
    with path.open("w", encoding="utf-8") as file:
        for text in sentences(150, seed=3):
            for word in text.strip(".").split():
                file.write(f"{word} x {'B-PER' if word in people else 'O'}\n")
            file.write("\n")
    return path


def write_images(folder: Path) -> Path:
    """Write images of 8 x 8 pixels that are bright above or bright below."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pictures.npz"
    draw = np.random.default_rng(0)
    targets = np.arange(160) % 2
    pixels = draw.integers(0, 60, size=(160, 8, 8), dtype=np.uint8)
    for number, target in enumerate(targets):
        pixels[number, 4 * target : 4 * target + 4] += 150
    np.savez(path, x=pixels, y=targets)
    return path


WRITERS = {"text": write_text, "labels": write_labels, "tags": write_tags, "images": write_images}
