"""A corpus larger than memory, from text to batches: the rate of each stage, and the most memory it took.

    python benchmarks/speed/shards.py --sentences train.en train.de --gigabytes 5 --folder /a/folder/with/room
    python benchmarks/speed/shards.py --gigabytes 0.05                       # some seconds: does it run?

A line of the corpus is one or two of the given sentences (without `--sentences`: of invented words), so that it can
have any size. It and its shards, about half as large again, are deleted at the end. Memory is the largest sum over
this process and its children, ten times a second: RSS counts a shared page in every process that has it, PSS once.
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
from heedful.data.binarize import prepare
from heedful.data.corpus import Corpus, open_corpus
from heedful.data.shards import Shards
from heedful.devices import n_cores
from heedful.text import SPECIAL, TokenizerConfig, Tokenizers, learn_tokenizers

Sides = tuple[list[str], list[str]]


class Memory(threading.Thread):
    """The most memory while the `with` lasts."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.rss = self.pss = 0
        self._over = threading.Event()

    def run(self) -> None:
        while True:
            found = [self._read(pid) for pid in self._processes()]
            self.rss = max(self.rss, sum(rss for rss, _ in found))
            self.pss = max(self.pss, sum(pss for _, pss in found))
            if self._over.wait(0.1):
                return

    def __enter__(self) -> "Memory":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def _processes(self) -> list[int]:
        lists = Path("/proc/self/task").glob("*/children")
        return [os.getpid(), *(int(child) for path in lists for child in path.read_text().split())]

    def _read(self, pid: int) -> tuple[int, int]:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            return 0, 0
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return kilobytes.get("Rss", 0) * 1024, kilobytes.get("Pss", 0) * 1024


def stage(name: str, n_bytes: int, work: Callable[[], int]) -> None:
    """Do the work, which answers how many pairs it did, and print its row."""
    began = time.monotonic()
    with Memory() as memory:
        n_pairs = work()
    seconds = time.monotonic() - began
    print(
        f"| {name} | {seconds:,.1f} | {n_pairs / seconds:,.0f} | {n_bytes / seconds / 1e6:,.1f} "
        f"| {memory.rss / 1e6:,.0f} | {memory.pss / 1e6:,.0f} |",
        flush=True,
    )


def write_corpus(sentences: Sides, paths: tuple[Path, Path], n_bytes: int) -> int:
    chance = random.Random(0)
    written = n_pairs = 0
    with paths[0].open("wb") as source, paths[1].open("wb") as target:
        while written < n_bytes:
            chosen = [chance.choices(range(len(sentences[0])), k=chance.randint(1, 2)) for _ in range(10_000)]
            for file, side in zip((source, target), sentences, strict=True):
                lines = (" ".join(side[i] for i in numbers) + "\n" for numbers in chosen)
                written += file.write("".join(lines).encode())
            n_pairs += len(chosen)
    return n_pairs


def read_sentences(path: Path) -> list[str]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode().removesuffix("\n").split("\n")


def invented_sentences(n: int) -> Sides:
    """Words of any letters, some far more frequent than others, as in every language."""
    chance = random.Random(1)
    sides: Sides = ([], [])
    for side in sides:
        words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 10))) for _ in range(20_000)]
        weights = [1 / rank for rank in range(1, len(words) + 1)]
        side += [" ".join(chance.choices(words, weights, k=chance.randint(4, 20))) for _ in range(n)]
    return sides


def read_batches(shards: Shards, n_batches: int) -> int:
    from heedful.data.datasets import PairDataset
    from heedful.data.loader import Loader  # here, since it imports torch, which the stages before do without

    loader = Loader(PairDataset(shards, special=SPECIAL), batch_tokens=25_000, seed=1, n_workers=1)
    return sum(len(next(loader)) for _ in range(n_batches))


def measure(folder: Path, sentences: Sides, options: argparse.Namespace) -> None:
    paths = folder / "corpus.source", folder / "corpus.target"
    wanted = int(options.gigabytes * 1e9)
    tokenizers: list[Tokenizers] = []
    prepared: list[Shards] = []

    def learn() -> int:
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
    stage("learn a vocabulary of 8,000", 0, learn)
    stage("write the corpus", wanted, lambda: write_corpus(sentences, paths, wanted))
    n_bytes = sum(path.stat().st_size for path in paths)
    sentences[0].clear()  # they would count as memory of the stages below
    sentences[1].clear()
    stage("prepare", n_bytes, build)
    stage("prepare again: all is there", n_bytes, build)
    stage(f"plan an epoch and read {options.batches:,} batches", 0, lambda: read_batches(prepared[0], options.batches))
    files = sum(path.stat().st_size for path in (folder / "shards").iterdir())
    tokens = sum(side.tokens for side in prepared[0].manifest.sides.values())
    print(
        f"\n{n_bytes / 1e9:.2f} GB of text, {len(prepared[0]):,} pairs, {tokens:,} tokens; shards {files / 1e9:.2f} GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", nargs=2, type=Path, help="two aligned files, perhaps .gz")
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of text, both sides together")
    parser.add_argument("--folder", type=Path, help="where to work; by default the system's place for such files")
    parser.add_argument("--workers", type=int, help="tokenising processes; by default one for each core")
    parser.add_argument("--batches", type=int, default=1000, help="of 25,000 target tokens, read at the end")
    options = parser.parse_args()
    if options.sentences:
        sentences = read_sentences(options.sentences[0]), read_sentences(options.sentences[1])
    else:
        sentences = invented_sentences(20_000)
    print(f"{processor()}, {n_cores()} cores, {options.workers or n_cores()} workers\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(Path(folder), sentences, options)


if __name__ == "__main__":
    main()
