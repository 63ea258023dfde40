"""Texts into ids by all cores: chunks go to child processes through pipes and come back in order.

The children are plain programs, neither forks nor `multiprocessing`: a script needs no `__main__` guard, nothing is
pickled, and no child outlives its parent. However the parent ends, its pipes close, and that ends the child.
"""

import contextlib
import itertools
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from heedful.data.chunks import (
    Chunk,
    Encoded,
    SideFormat,
    encode_side,
    pack_texts,
    read_message,
    unpack_encoded,
    write_message,
)
from heedful.errors import UserError
from heedful.text.sentence_piece import SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizer


def n_cores() -> int:
    """The cores that this process may use: fewer than the machine has, in a container or under `taskset`."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
        root = str(Path(__file__).parents[2])  # so that the child finds this very heedful
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "heedful.data.tokenising_worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))},
            # Ctrl-C goes to the parent alone, which then closes the pipes.
            process_group=0 if os.name == "posix" else None,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # it holds nothing that is worth a farewell
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()

    def encode(self, chunk: Chunk) -> tuple[Encoded, ...]:
        to_child, from_child = self._process.stdin, self._process.stdout
        assert to_child is not None and from_child is not None
        try:
            write_message(to_child, pack_texts(chunk))
            error, blobs = read_message(from_child)
        except (EOFError, BrokenPipeError):
            raise UserError(
                f"a tokenising process ended with code {self._process.wait()} (-9 often means that memory ran out): "
                "run again with fewer workers"
            ) from None
        if error:
            raise RuntimeError(f"a tokenising process failed:\n{blobs[0].decode()}")
        return unpack_encoded(blobs, self._forms)
