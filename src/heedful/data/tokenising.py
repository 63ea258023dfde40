"""Texts into ids by all cores: chunks go to child processes (`data/child.py`) and come back in order."""

import contextlib
import itertools
import queue
import sys
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from heedful.data.child import Child
from heedful.data.chunks import Chunk, Encoded, SideFormat, encode_side, pack_texts, unpack_encoded
from heedful.text.sentence_piece import SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizer


def encode_chunks(
    chunks: Iterable[Chunk],
    tokenizers: Sequence[Tokenizer],
    forms: Sequence[SideFormat],
    *,
    files: Path,
    n_workers: int,
) -> Generator[tuple[Encoded, ...], None, None]:
    """Each chunk encoded, in order, with at most two chunks for each worker in memory.

    Workers load their tokenizers from `files`, an existing folder. With fewer than two workers, or only one chunk, no
    process is started.
    """
    remaining = iter(chunks)
    first = list(itertools.islice(remaining, max(1, n_workers)))
    chunks = itertools.chain(first, remaining)
    n_workers = min(n_workers, len(first))  # a process takes longer to start than to encode a chunk
    one_file_each = all(isinstance(tokenizer, SentencePieceTokenizer) for tokenizer in tokenizers)
    if n_workers < 2 or not sys.executable or not one_file_each:  # foreign ones use all cores by themselves
        for chunk in chunks:
            yield tuple(map(encode_side, chunk, tokenizers, forms))
        return
    paths = _save(tokenizers, files)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(paths, forms)) for _ in range(n_workers)]
        yield from _in_order(chunks, workers)


def _in_order(chunks: Iterable[Chunk], workers: Sequence["Worker"]) -> Generator[tuple[Encoded, ...], None, None]:
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def encode(chunk: Chunk) -> tuple[Encoded, ...]:
        worker = idle.get()
        try:
            return worker.encode(chunk)
        finally:
            idle.put(worker)

    pending: deque[Future[tuple[Encoded, ...]]] = deque()
    with ThreadPoolExecutor(len(workers)) as pool:  # each thread waits on the pipes of one worker
        try:
            for chunk in chunks:
                pending.append(pool.submit(encode, chunk))
                if len(pending) == 2 * len(workers):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _save(tokenizers: Sequence[Tokenizer], folder: Path) -> list[Path]:
    """A file for each side; a joint tokenizer is written once, so that a worker loads it once."""
    paths = {id(tokenizer): folder / f"tokenizer-{number}" for number, tokenizer in enumerate(tokenizers)}
    for tokenizer in tokenizers:
        tokenizer.save(paths[id(tokenizer)])
    return [paths[id(tokenizer)] for tokenizer in tokenizers]


class Worker:
    """A child process that encodes one chunk after the other."""

    def __init__(self, paths: Sequence[Path], forms: Sequence[SideFormat]) -> None:
        self._forms = forms
        arguments: list[str] = []
        for path, form in zip(paths, forms, strict=True):
            arguments += [str(path), form.dtype, "text" if form.keep_text else "ids"]
        self.child = Child("heedful.data.tokenising_worker", arguments, name="a tokenising process")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close()

    def encode(self, chunk: Chunk) -> tuple[Encoded, ...]:
        is_error, blobs = self.child.ask(pack_texts(chunk))
        if is_error:
            raise RuntimeError(f"a tokenising process failed:\n{blobs[0].decode()}")
        return unpack_encoded(blobs, self._forms)
