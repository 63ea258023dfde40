"""Process a corpus larger than memory, from text to batches: the rate and the memory of each stage.

    python benchmarks/speed/shards.py --sentences train.en train.de --gigabytes 5 --folder /a/folder/with/room
    python benchmarks/speed/shards.py --gigabytes 0.05  # a short test that it runs

A line of the corpus consists of one or two of the given sentences (without --sentences: of random words), so the
corpus can have any size. The corpus and its shards, about half as large again, are deleted at the end. Memory is the
highest sum over this process and its children, read ten times per second: RSS counts a shared page in every process
that uses it, PSS counts it once.
"""

import argparse
import gzip
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from heedful.cli.system_info import processor
from heedful.data import Corpus, Shards, open_corpus, prepare
from heedful.devices import n_cores
from heedful.text import SPECIAL_IDS, TokenizerConfig, Tokenizers, learn_tokenizers

Sides = tuple[list[str], list[str]]


class Memory(threading.Thread):
    """The highest memory of this process and its children while the context is open."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.rss = self.pss = 0
        self._finished = threading.Event()

    def run(self) -> None:
        while True:
            sizes = [self._read(pid) for pid in self._processes()]
            self.rss = max(self.rss, sum(rss for rss, _ in sizes))
            self.pss = max(self.pss, sum(pss for _, pss in sizes))
            if self._finished.wait(0.1):
                return

    def __enter__(self) -> "Memory":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        self.join()

    def _processes(self) -> list[int]:
        lists = Path("/proc/self/task").glob("*/children")
        return [os.getpid(), *(int(child) for path in lists for child in path.read_text().split())]

    def _read(self, pid: int) -> tuple[int, int]:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        except (FileNotFoundError, ProcessLookupError):  # the process has just ended
            return 0, 0
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return kilobytes.get("Rss", 0) * 1024, kilobytes.get("Pss", 0) * 1024


def stage(name: str, n_bytes: int, work: Callable[[], int]) -> None:
    """Run `work`, which returns its number of pairs, and print a row of the table."""
    start = time.monotonic()
    with Memory() as memory:
        n_pairs = work()
    seconds = time.monotonic() - start
    print(
        f"| {name} | {seconds:,.1f} | {n_pairs / seconds:,.0f} | {n_bytes / seconds / 1e6:,.1f} "
        f"| {memory.rss / 1e6:,.0f} | {memory.pss / 1e6:,.0f} |",
        flush=True,
    )


def write_corpus(sentences: Sides, paths: tuple[Path, Path], n_bytes: int) -> int:
    """Write pairs of one or two random sentences until the files have `n_bytes`; return the number of pairs."""
    rng = random.Random(0)
    n_written = n_pairs = 0
    with paths[0].open("wb") as source, paths[1].open("wb") as target:
        while n_written < n_bytes:
            choices = [rng.choices(range(len(sentences[0])), k=rng.randint(1, 2)) for _ in range(10_000)]
            for file, side in zip((source, target), sentences, strict=True):
                lines = (" ".join(side[i] for i in indices) + "\n" for indices in choices)
                n_written += file.write("".join(lines).encode())
            n_pairs += len(choices)
    return n_pairs


def read_sentences(path: Path) -> list[str]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode().removesuffix("\n").split("\n")


def random_sentences(n: int) -> Sides:
    """Return sentences of random words whose frequencies follow Zipf's law."""
    rng = random.Random(1)
    sides: Sides = ([], [])
    for side in sides:
        words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 10))) for _ in range(20_000)]
        weights = [1 / rank for rank in range(1, len(words) + 1)]
        side += [" ".join(rng.choices(words, weights, k=rng.randint(4, 20))) for _ in range(n)]
    return sides


def read_batches(shards: Shards, n_batches: int) -> int:
    from heedful.data import PairDataset
    from heedful.data.loader import Loader  # imported here because it imports torch, which earlier stages do not need

    loader = Loader(PairDataset(shards, special_ids=SPECIAL_IDS), batch_tokens=25_000, seed=1, n_workers=1)
    return sum(len(next(loader)) for _ in range(n_batches))


def measure(folder: Path, sentences: Sides, options: argparse.Namespace) -> None:
    paths = folder / "corpus.source", folder / "corpus.target"
    corpus_bytes = int(options.gigabytes * 1e9)
    tokenizers: list[Tokenizers] = []
    prepared: list[Shards] = []

    def train_tokenizers() -> int:
        config = TokenizerConfig(vocab_size=8000)
        tokenizers.append(learn_tokenizers(*sentences, config))
        return len(sentences[0])

    def build() -> int:
        corpus: Corpus = open_corpus(paths)
        fingerprint = corpus.fingerprint()
        workers = options.workers or n_cores()
        prepared[:] = [prepare(corpus, tokenizers[0], folder / "shards", fingerprint=fingerprint, n_workers=workers)]
        return len(prepared[0])

    print("| stage | seconds | pairs/s | MB of text/s | RSS, MB | PSS, MB |\n|---|---|---|---|---|---|")
    stage("learn a vocabulary of 8,000", 0, train_tokenizers)
    stage("write the corpus", corpus_bytes, lambda: write_corpus(sentences, paths, corpus_bytes))
    n_bytes = sum(path.stat().st_size for path in paths)
    sentences[0].clear()  # otherwise they count as memory of the later stages
    sentences[1].clear()
    stage("prepare", n_bytes, build)
    stage("prepare again, with everything in place", n_bytes, build)
    stage(f"plan an epoch and read {options.batches:,} batches", 0, lambda: read_batches(prepared[0], options.batches))
    files = sum(path.stat().st_size for path in (folder / "shards").iterdir())
    tokens = sum(side.tokens for side in prepared[0].manifest.sides.values())
    print(
        f"\n{n_bytes / 1e9:.2f} GB of text, {len(prepared[0]):,} pairs, {tokens:,} tokens; shards {files / 1e9:.2f} GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", nargs=2, type=Path, help="two aligned files (.gz allowed)")
    parser.add_argument("--gigabytes", type=float, default=5.0, help="size of the text, both sides together")
    parser.add_argument("--folder", type=Path, help="working folder (default: the system's temporary folder)")
    parser.add_argument("--workers", type=int, help="tokenizing processes (default: one per core)")
    parser.add_argument("--batches", type=int, default=1000, help="batches of 25,000 target tokens to read at the end")
    options = parser.parse_args()
    if options.sentences:
        sentences = read_sentences(options.sentences[0]), read_sentences(options.sentences[1])
    else:
        sentences = random_sentences(20_000)
    print(f"{processor()}, {n_cores()} cores, {options.workers or n_cores()} workers\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(Path(folder), sentences, options)


if __name__ == "__main__":
    main()
