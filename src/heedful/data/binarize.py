"""Tokenise a corpus into shards (`heedful.data.shards`) with all cores, in memory that does not grow with the corpus.

`prepare` is the function to call. The corpus is cut into chunks of texts; child processes encode the chunks; the
encoded chunks come back in order and are appended to the files. Run as `python -m heedful.data.binarize`, this module
is the child process: it reads chunks from standard input and writes encoded chunks to standard output.
"""

import contextlib
import hashlib
import itertools
import json
import os
import queue
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import numpy as np

from heedful.data.seeding import IntArray
from heedful.data.shards import (
    FORMAT,
    NAME,
    FileWriter,
    Manifest,
    RaggedArray,
    Shards,
    SideRecord,
    file_names,
    read_manifest,
    write_manifest,
)
from heedful.devices import n_cores
from heedful.errors import UserError
from heedful.text import SentencePieceTokenizer, Tokenizer, Tokenizers, load_tokenizer
from heedful.worker import Worker, read_message, write_message

if sys.platform != "win32":
    import fcntl

# A chunk is large beside the cost of a message and small beside the memory; each worker has at most two.
CHUNK_CHARACTERS = 1_000_000
CHUNK_EXAMPLES = 20_000
WORKER_BATCH = 60  # texts for one call of a worker's tokenizer: few enough that the tokenizer starts no threads
N_SAMPLED = 2_000  # texts whose sampled lengths are measured

Progress = Callable[[int, float], None]  # (number of examples so far, examples per second)
Chunk = tuple[Sequence[str], ...]  # the source texts, and the target texts unless the corpus is plain text


class TextPair(Protocol):
    """The two attributes of an `Example` that are read."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...


# Prepare: the door


def prepare(
    examples: Iterable[TextPair],
    tokenizers: Tokenizers | Tokenizer,
    folder: str | Path,
    *,
    fingerprint: str,
    keep_text: bool = False,
    n_workers: int | None = None,
    progress: Progress | None = None,
) -> Shards:
    """Tokenise a corpus into `folder`, or open the shards there if they were made from equal inputs.

    `fingerprint` is the hash of the corpus (`Corpus.fingerprint()`). One tokenizer instead of two means plain text,
    without a target. `keep_text` stores text instead of ids, for runs that sample the segmentation. The examples are
    read once, and never all held in memory. `n_workers` is the number of tokenising processes, by default the number of
    cores.

    A second process that prepares the same folder waits, then opens what the first has written. Under torchrun, let one
    rank prepare, and let the others call `Shards.open` after a barrier.
    """
    folder = Path(folder)
    sides = _sides(tokenizers)
    if keep_text and not any(tokenizer.can_sample for tokenizer in sides.values()):
        raise UserError(
            "keep_text is for tokenizers that sample, and none of these does: "
            "set tokenizer.sample_alpha (0.1 is usual), or keep ids"
        )
    key = _key(fingerprint, sides, keep_text=keep_text)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        shards = _open_if_equal(folder, key)
        if shards is not None:
            return shards
        _clear(folder)
        workers = n_cores() if n_workers is None else n_workers
        manifest = binarize(examples, sides, folder, key=key, keep_text=keep_text, n_workers=workers, progress=progress)
        write_manifest(folder, manifest)
    return Shards.open(folder)


def _sides(tokenizers: Tokenizers | Tokenizer) -> dict[str, Tokenizer]:
    if isinstance(tokenizers, Tokenizers):
        return {"source": tokenizers.source, "target": tokenizers.target}
    return {"source": tokenizers}


def _key(fingerprint: str, sides: Mapping[str, Tokenizer], *, keep_text: bool) -> str:
    parts = {
        "format": FORMAT,
        "corpus": fingerprint,
        "tokenizers": {name: tokenizer.fingerprint for name, tokenizer in sides.items()},
        "keep_text": keep_text,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _open_if_equal(folder: Path, key: str) -> Shards | None:
    """Open the shards in the folder if they have this key and every byte is as it was written."""
    try:
        if read_manifest(folder).key != key:
            return None
        return Shards.open(folder, verify=True)
    except UserError:
        return None


def _clear(folder: Path) -> None:
    """Delete older shards, the manifest first. Files are deleted instead of overwritten, because another run may have
    mapped them into its memory: it keeps the deleted files until it ends."""
    names = [
        name for side in ("source", "target") for keep in (True, False) for name in file_names(side, keep_text=keep)
    ]
    for name in (NAME, *names):
        (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process builds in this folder. The system releases the lock when its holder ends."""
    with (folder / "lock").open("a") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


# From examples to files


def binarize(
    examples: Iterable[TextPair],
    tokenizers: Mapping[str, Tokenizer],
    folder: Path,
    *,
    key: str,
    keep_text: bool,
    n_workers: int,
    progress: Progress | None,
) -> Manifest:
    """Write all files of the shards except the manifest, and return the manifest."""
    formats = {name: SideFormat(_dtype(tokenizer), keep_text) for name, tokenizer in tokenizers.items()}
    began, n_examples = time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory())
        writers = [stack.enter_context(SideWriter(folder, name, side_format)) for name, side_format in formats.items()]
        encoded = encode_chunks(
            _chunks(examples, len(formats)),
            list(tokenizers.values()),
            list(formats.values()),
            files=Path(temporary),
            n_workers=n_workers,
        )
        for chunk in stack.enter_context(contextlib.closing(encoded)):
            for writer, side in zip(writers, chunk, strict=True):
                writer.write(side)
            n_examples += len(chunk[0].sizes)
            if progress is not None:
                progress(n_examples, n_examples / max(1e-9, time.monotonic() - began))
    return Manifest(
        format=FORMAT,
        key=key,
        tokenizers=tuple(tokenizer.fingerprint for tokenizer in tokenizers.values()),
        examples=n_examples,
        keep_text=keep_text,
        sides={writer.name: writer.record(tokenizers[writer.name]) for writer in writers},
        files={file.path.name: file.checksum for writer in writers for file in writer.files},
    )


def _dtype(tokenizer: Tokenizer) -> str:
    return "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"


def _chunks(examples: Iterable[TextPair], n_sides: int) -> Iterator[Chunk]:
    sources: list[str] = []
    targets: list[str] = []
    n_characters = 0
    for example in examples:
        sources.append(example.source)
        targets.append(example.target)
        n_characters += len(example.source) + len(example.target)
        if n_characters >= CHUNK_CHARACTERS or len(sources) >= CHUNK_EXAMPLES:
            yield (sources, targets)[:n_sides]
            sources, targets, n_characters = [], [], 0
    if sources:
        yield (sources, targets)[:n_sides]


class SideWriter(contextlib.ExitStack):
    """Writes the files of one side."""

    def __init__(self, folder: Path, name: str, side_format: "SideFormat") -> None:
        super().__init__()
        self.name, self.folder, self.format = name, folder, side_format
        names = file_names(name, keep_text=side_format.keep_text)
        self.files = [self.enter_context(FileWriter(folder / file)) for file in names]
        self.files[1].write(np.zeros(1, "<i8"))  # the first text begins at 0, even if there is none
        self._end = 0
        self._tokens = 0

    def write(self, encoded: "EncodedChunk") -> None:
        """Append an encoded chunk to the files."""
        ends = self._end + np.cumsum(encoded.sizes, dtype="<i8")
        self._end = int(ends[-1])
        self._tokens += int(encoded.lengths.sum(dtype=np.int64))
        for file, values in zip(self.files, (encoded.values, ends, encoded.lengths), strict=False):
            file.write(values)

    def record(self, tokenizer: Tokenizer) -> SideRecord:
        """Describe the finished side for the manifest."""
        if not self.format.keep_text:
            return SideRecord(dtype=self.format.dtype, tokens=self._tokens)
        ratio, std = self._measure_sampling(tokenizer)
        return SideRecord(dtype="|u1", tokens=self._tokens, sampling_ratio=ratio, sampling_std=std)

    def _measure_sampling(self, tokenizer: Tokenizer) -> tuple[float, float]:
        """Measure how much longer texts become by sampling, on texts from all parts of the corpus.

        Batches are planned before the segmentation is sampled, so their lengths must be estimated.
        """
        stream = RaggedArray(self.files[0].path, self.files[1].path, dtype=np.dtype("|u1"))
        indices = np.unique(np.linspace(0, max(0, len(stream) - 1), N_SAMPLED, dtype=np.int64))[: len(stream)]
        texts = [values.tobytes().decode() for values in stream.take(indices)]
        plain = np.array([max(1, len(ids)) for ids in tokenizer.encode_batch(texts)])
        if not tokenizer.can_sample or not len(plain):
            return 1.0, 0.0
        sampled = np.array([len(ids) for ids in tokenizer.sample_batch(texts, seed=0)])
        ratio = max(1.0, float(sampled.sum() / plain.sum()))
        return ratio, float(np.std((sampled - ratio * plain) / np.sqrt(plain)))


# From a chunk of texts to an encoded chunk


@dataclass(frozen=True)
class SideFormat:
    """How one side is stored: as ids of type `dtype`, or as text."""

    dtype: str
    keep_text: bool


class EncodedChunk(NamedTuple):
    """The texts of one side of a chunk as the shards store them, one after the other."""

    values: IntArray  # ids, or UTF-8 bytes if text is kept
    sizes: IntArray  # the number of values of each text
    lengths: IntArray  # the number of ids of each text


def encode_side(
    texts: Sequence[str], tokenizer: Tokenizer, side_format: SideFormat, *, batch_size: int | None = None
) -> EncodedChunk:
    """Encode texts, passing `batch_size` of them to the tokenizer at a time (default: all)."""
    step = batch_size or max(1, len(texts))
    parts = (tokenizer.encode_batch(texts[begin : begin + step]) for begin in range(0, len(texts), step))
    ids = list(chain.from_iterable(parts))
    lengths = np.fromiter(map(len, ids), "<u4", len(ids))
    if side_format.keep_text:
        values, sizes = _join([tokenizer.normalize(text) for text in texts])
        return EncodedChunk(values, sizes, lengths)
    flat = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum(dtype=np.int64)))
    # Converting to the smaller type would silently wrap around an id that is too large.
    assert not flat.size or 0 <= flat.min() <= flat.max() < tokenizer.vocab_size, "an id outside the vocabulary"
    return EncodedChunk(flat.astype(side_format.dtype), lengths, lengths)


def _join(texts: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Concatenate texts as UTF-8: (bytes, number of bytes of each text)."""
    coded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(coded), np.uint8), np.fromiter(map(len, coded), "<u4", len(coded))


def _split(values: bytes, sizes: IntArray) -> list[str]:
    """Undo `_join`."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return [values[begin:end].decode() for begin, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]


def pack_texts(chunk: Chunk) -> list[bytes]:
    """Serialise a chunk for a message."""
    return [array.tobytes() for texts in chunk for array in _join(texts)]


def unpack_texts(blobs: Sequence[bytes]) -> Chunk:
    """Undo `pack_texts`."""
    sides = zip(blobs[::2], blobs[1::2], strict=True)
    return tuple(_split(values, np.frombuffer(sizes, "<u4")) for values, sizes in sides)


def pack_encoded(chunk: Sequence[EncodedChunk]) -> list[bytes]:
    """Serialise an encoded chunk for a message."""
    return [array.tobytes() for encoded in chunk for array in encoded]


def unpack_encoded(blobs: Sequence[bytes], formats: Sequence[SideFormat]) -> tuple[EncodedChunk, ...]:
    """Undo `pack_encoded`."""
    return tuple(
        EncodedChunk(
            np.frombuffer(values, np.uint8 if side_format.keep_text else side_format.dtype),
            np.frombuffer(sizes, "<u4"),
            np.frombuffer(lengths, "<u4"),
        )
        for side_format, values, sizes, lengths in zip(formats, blobs[::3], blobs[1::3], blobs[2::3], strict=True)
    )


# The processes that encode


def encode_chunks(
    chunks: Iterable[Chunk],
    tokenizers: Sequence[Tokenizer],
    formats: Sequence[SideFormat],
    *,
    files: Path,
    n_workers: int,
) -> Generator[tuple[EncodedChunk, ...], None, None]:
    """Encode chunks in child processes and yield them in order, with at most two chunks per worker in memory.

    Workers load the tokenizers from `files`, a folder that exists. With fewer than two workers, or only one chunk, this
    process encodes. It also encodes with tokenizers of Hugging Face, which use all cores by themselves.
    """
    remaining = iter(chunks)
    first = list(itertools.islice(remaining, max(1, n_workers)))
    chunks = itertools.chain(first, remaining)
    n_workers = min(n_workers, len(first))  # starting a process takes longer than encoding a chunk
    one_file_each = all(isinstance(tokenizer, SentencePieceTokenizer) for tokenizer in tokenizers)
    if n_workers < 2 or not sys.executable or not one_file_each:
        for chunk in chunks:
            yield tuple(map(encode_side, chunk, tokenizers, formats))
        return
    paths = _save(tokenizers, files)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(EncodingWorker(paths, formats)) for _ in range(n_workers)]
        yield from _in_order(chunks, workers)


def _in_order(
    chunks: Iterable[Chunk], workers: Sequence["EncodingWorker"]
) -> Generator[tuple[EncodedChunk, ...], None, None]:
    """Give each chunk to the next idle worker, and yield the answers in the order of the chunks."""
    idle: queue.SimpleQueue[EncodingWorker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def encode(chunk: Chunk) -> tuple[EncodedChunk, ...]:
        worker = idle.get()
        try:
            return worker.encode(chunk)
        finally:
            idle.put(worker)

    pending: deque[Future[tuple[EncodedChunk, ...]]] = deque()
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
    """Write a file for each side; a joint tokenizer is written once, so that a worker loads it once."""
    paths = {id(tokenizer): folder / f"tokenizer-{number}" for number, tokenizer in enumerate(tokenizers)}
    for tokenizer in tokenizers:
        tokenizer.save(paths[id(tokenizer)])
    return [paths[id(tokenizer)] for tokenizer in tokenizers]


class EncodingWorker:
    """A child process that encodes one chunk after the other."""

    def __init__(self, paths: Sequence[Path], formats: Sequence[SideFormat]) -> None:
        self._formats = formats
        arguments: list[str] = []
        for path, side_format in zip(paths, formats, strict=True):
            arguments += [str(path), side_format.dtype, "text" if side_format.keep_text else "ids"]
        self.child = Worker("heedful.data.binarize", arguments, name="a tokenising process")

    def __enter__(self) -> "EncodingWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close()

    def encode(self, chunk: Chunk) -> tuple[EncodedChunk, ...]:
        """Have the child process encode a chunk; RuntimeError with its traceback if that fails."""
        is_error, blobs = self.child.request(pack_texts(chunk))
        if is_error:
            raise RuntimeError(f"a tokenising process failed:\n{blobs[0].decode()}")
        return unpack_encoded(blobs, self._formats)


def main(arguments: Sequence[str]) -> None:
    """Run the child process, until a pipe is closed: so it never outlives the process that started it.

    `arguments` are three for each side: the tokenizer's file, the type of the ids, and "text" to keep text or "ids".
    """
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not end up among the messages
    paths, dtypes, kinds = arguments[::3], arguments[1::3], arguments[2::3]
    loaded = {path: load_tokenizer(path, probe=False) for path in set(paths)}
    tokenizers = [loaded[path] for path in paths]
    formats = [SideFormat(dtype, kind == "text") for dtype, kind in zip(dtypes, kinds, strict=True)]
    try:
        while True:
            _, blobs = read_message(sys.stdin.buffer)
            _answer(blobs, tokenizers, formats, messages)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # a normal exit would flush into the closed pipe


def _answer(
    blobs: Sequence[bytes], tokenizers: Sequence[Tokenizer], formats: Sequence[SideFormat], messages: IO[bytes]
) -> None:
    try:
        sides = zip(unpack_texts(blobs), tokenizers, formats, strict=True)
        answer = pack_encoded([encode_side(*side, batch_size=WORKER_BATCH) for side in sides])
    except Exception:
        write_message(messages, [traceback.format_exc().encode()], error=True)
    else:
        write_message(messages, answer)


if __name__ == "__main__":
    main(sys.argv[1:])
