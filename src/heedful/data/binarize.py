"""A chunk of a corpus on its way into a shard: encoded here, and packed into what a message carries.

Texts into ids by all cores: chunks go to child processes (`worker.py`) and come back in order.

Building shards: examples in chunks, chunks through the workers, encoded chunks into files. Memory stays flat.
"""

import contextlib
import hashlib
import itertools
import json
import queue
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

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
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.tokenizer import SPECIAL, Tokenizer, Tokenizers
from heedful.worker import Worker

if sys.platform != "win32":
    import fcntl


Chunk = tuple[Sequence[str], ...]  # the texts of the source, and of the target if there is one


@dataclass(frozen=True)
class SideFormat:
    """How one side is stored: ids of this type, or the text itself."""

    dtype: str
    keep_text: bool


class EncodedChunk(NamedTuple):
    """The texts of one side of a chunk as the shard stores them, one after the other."""

    values: IntArray  # ids, or UTF-8 bytes where the text is kept
    sizes: IntArray  # how many values each text has
    lengths: IntArray  # how many ids each text has


def encode_side(
    texts: Sequence[str], tokenizer: Tokenizer, form: SideFormat, *, at_once: int | None = None
) -> EncodedChunk:
    """`at_once` texts go to the tokenizer together, by default all: for many it may start threads of its own."""
    step = at_once or max(1, len(texts))
    parts = (tokenizer.encode_batch(texts[begin : begin + step]) for begin in range(0, len(texts), step))
    ids = list(chain.from_iterable(parts))
    lengths = np.fromiter(map(len, ids), "<u4", len(ids))
    if form.keep_text:
        values, sizes = _join([tokenizer.normalize(text) for text in texts])
        return EncodedChunk(values, sizes, lengths)
    flat = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum(dtype=np.int64)))
    # Narrowing would wrap around an id that is too large, and nobody would see it.
    assert not flat.size or 0 <= flat.min() <= flat.max() < tokenizer.vocab_size, "an id outside the vocabulary"
    return EncodedChunk(flat.astype(form.dtype), lengths, lengths)


def _join(texts: Sequence[str]) -> tuple[IntArray, IntArray]:
    coded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(coded), np.uint8), np.fromiter(map(len, coded), "<u4", len(coded))


def pack_texts(chunk: Chunk) -> list[bytes]:
    return [array.tobytes() for texts in chunk for array in _join(texts)]


def unpack_texts(blobs: Sequence[bytes]) -> Chunk:
    sides = zip(blobs[::2], blobs[1::2], strict=True)
    return tuple(_cut(values, np.frombuffer(sizes, "<u4")) for values, sizes in sides)


def _cut(values: bytes, sizes: IntArray) -> list[str]:
    ends = np.cumsum(sizes, dtype=np.int64)
    return [values[begin:end].decode() for begin, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]


def pack_encoded(chunk: Sequence[EncodedChunk]) -> list[bytes]:
    return [array.tobytes() for encoded in chunk for array in encoded]


def unpack_encoded(blobs: Sequence[bytes], forms: Sequence[SideFormat]) -> tuple[EncodedChunk, ...]:
    return tuple(
        EncodedChunk(
            np.frombuffer(values, np.uint8 if form.keep_text else form.dtype),
            np.frombuffer(sizes, "<u4"),
            np.frombuffer(lengths, "<u4"),
        )
        for form, values, sizes, lengths in zip(forms, blobs[::3], blobs[1::3], blobs[2::3], strict=True)
    )


def encode_chunks(
    chunks: Iterable[Chunk],
    tokenizers: Sequence[Tokenizer],
    forms: Sequence[SideFormat],
    *,
    files: Path,
    n_workers: int,
) -> Generator[tuple[EncodedChunk, ...], None, None]:
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
        workers = [stack.enter_context(EncodingWorker(paths, forms)) for _ in range(n_workers)]
        yield from _in_order(chunks, workers)


def _in_order(
    chunks: Iterable[Chunk], workers: Sequence["EncodingWorker"]
) -> Generator[tuple[EncodedChunk, ...], None, None]:
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
    """A file for each side; a joint tokenizer is written once, so that a worker loads it once."""
    paths = {id(tokenizer): folder / f"tokenizer-{number}" for number, tokenizer in enumerate(tokenizers)}
    for tokenizer in tokenizers:
        tokenizer.save(paths[id(tokenizer)])
    return [paths[id(tokenizer)] for tokenizer in tokenizers]


class EncodingWorker:
    """A child process that encodes one chunk after the other."""

    def __init__(self, paths: Sequence[Path], forms: Sequence[SideFormat]) -> None:
        self._forms = forms
        arguments: list[str] = []
        for path, form in zip(paths, forms, strict=True):
            arguments += [str(path), form.dtype, "text" if form.keep_text else "ids"]
        self.child = Worker("heedful.data.tokenising_worker", arguments, name="a tokenising process")

    def __enter__(self) -> "EncodingWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close()

    def encode(self, chunk: Chunk) -> tuple[EncodedChunk, ...]:
        is_error, blobs = self.child.ask(pack_texts(chunk))
        if is_error:
            raise RuntimeError(f"a tokenising process failed:\n{blobs[0].decode()}")
        return unpack_encoded(blobs, self._forms)


Progress = Callable[[int, float], None]  # examples so far, examples in a second

# A chunk is large beside the cost of a message and small beside the memory, two for each worker.
CHUNK_CHARACTERS = 1_000_000
CHUNK_EXAMPLES = 20_000
SAMPLES_FOR_GROWTH = 2_000


class TextPair(Protocol):
    """What is needed of an `Example`."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...


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
    """Write all files but the manifest, which is returned."""
    forms = {name: SideFormat(_dtype(tokenizer), keep_text) for name, tokenizer in tokenizers.items()}
    began, n_examples = time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(tempfile.TemporaryDirectory())
        writers = [stack.enter_context(SideWriter(folder, name, form)) for name, form in forms.items()]
        encoded = encode_chunks(
            _chunks(examples, len(forms)),
            list(tokenizers.values()),
            list(forms.values()),
            files=Path(files),
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
        files={file.path.name: file.record for writer in writers for file in writer.files},
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
    """The files of one side while they are written."""

    def __init__(self, folder: Path, name: str, form: SideFormat) -> None:
        super().__init__()
        self.name, self.folder, self.form = name, folder, form
        names = file_names(name, keep_text=form.keep_text)
        self.files = [self.enter_context(FileWriter(folder / file)) for file in names]
        self.files[1].write(np.zeros(1, "<i8"))  # the first text begins at 0, also where there is none
        self._end = 0
        self._tokens = 0
        self._unknown = 0

    def write(self, encoded: EncodedChunk) -> None:
        ends = self._end + np.cumsum(encoded.sizes, dtype="<i8")
        self._end = int(ends[-1])
        self._tokens += int(encoded.lengths.sum(dtype=np.int64))
        if not self.form.keep_text:
            self._unknown += int(np.count_nonzero(encoded.values == SPECIAL.unk))
        for file, values in zip(self.files, (encoded.values, ends, encoded.lengths), strict=False):
            file.write(values)

    def record(self, tokenizer: Tokenizer) -> SideRecord:
        if not self.form.keep_text:
            return SideRecord(dtype=self.form.dtype, tokens=self._tokens, unknown=self._unknown)
        growth, spread = self._growth_and_spread(tokenizer)
        return SideRecord(dtype="|u1", tokens=self._tokens, growth=growth, spread=spread)

    def _growth_and_spread(self, tokenizer: Tokenizer) -> tuple[float, float]:
        """How much longer sampled texts are, measured on texts from everywhere: batches are planned before sampling."""
        stream = RaggedArray(self.files[0].path, self.files[1].path, dtype=np.dtype("|u1"))
        numbers = np.unique(np.linspace(0, max(0, len(stream) - 1), SAMPLES_FOR_GROWTH, dtype=np.int64))[: len(stream)]
        texts = [values.tobytes().decode() for values in stream.take(numbers)]
        plain = np.array([max(1, len(ids)) for ids in tokenizer.encode_batch(texts)])
        if not tokenizer.can_sample or not len(plain):
            return 1.0, 0.0
        sampled = np.array([len(ids) for ids in tokenizer.sample_batch(texts, seed=0)])
        growth = max(1.0, float(sampled.sum() / plain.sum()))
        return growth, float(np.std((sampled - growth * plain) / np.sqrt(plain)))


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
    """Tokenise a corpus into `folder`, or open what lies there if it was made from the same.

    `fingerprint` is the hash of the corpus (`Corpus.fingerprint()`). One tokenizer alone means plain text: no target.
    The examples are read once, front to back, and never all in memory; as many processes as there are cores tokenise
    them unless `n_workers` says otherwise. A second process that prepares the same folder waits, then opens what the
    first has made; under torchrun let one rank prepare all the same, and the others `Shards.open` after a barrier.
    """
    folder = Path(folder)
    sides = _sides(tokenizers)
    if keep_text and not any(tokenizer.can_sample for tokenizer in sides.values()):
        raise UserError(
            "text is kept in shards for tokenizers that sample, and none of these does: "
            "set tokenizer.sample_alpha (0.1 is usual), or keep ids"
        )
    key = _key(fingerprint, sides, keep_text=keep_text)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        found = _find(folder, key)
        if found is not None:
            return found
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


def _find(folder: Path, key: str) -> Shards | None:
    """What lies there, if it is whole, unharmed and made from the same."""
    try:
        if read_manifest(folder).key != key:
            return None
        return Shards.open(folder, verify=True)
    except UserError:
        return None


def _clear(folder: Path) -> None:
    """Take away what lies there, the manifest first. Files are never overwritten: another run may have them mapped,
    and keeps them as long as it does."""
    names = [
        name for side in ("source", "target") for keep in (True, False) for name in file_names(side, keep_text=keep)
    ]
    for name in (NAME, *names):
        (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One builder at a time. The system releases the lock when its holder ends, however it ends."""
    with (folder / "lock").open("a") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
