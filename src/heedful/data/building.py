"""Building shards: examples in chunks, chunks through the workers, encoded chunks into files. Memory stays flat."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from heedful.data.chunks import Chunk, Encoded, SideFormat
from heedful.data.manifest import FORMAT, Manifest, SideRecord, file_names
from heedful.data.streams import FileWriter, Stream
from heedful.data.tokenising import encode_chunks
from heedful.text.tokenizer import SPECIAL, Tokenizer

Progress = Callable[[int, float], None]  # examples so far, examples in a second

# A chunk is large beside the cost of a message and small beside the memory, two for each worker.
CHUNK_CHARACTERS = 1_000_000
CHUNK_EXAMPLES = 20_000
SAMPLES_FOR_GROWTH = 2_000


class HasTexts(Protocol):
    """What is needed of an `Example`."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...


def build(
    examples: Iterable[HasTexts],
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


def _chunks(examples: Iterable[HasTexts], n_sides: int) -> Iterator[Chunk]:
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

    def write(self, encoded: Encoded) -> None:
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
        stream = Stream(self.files[0].path, self.files[1].path, dtype=np.dtype("|u1"))
        numbers = np.unique(np.linspace(0, max(0, len(stream) - 1), SAMPLES_FOR_GROWTH, dtype=np.int64))[: len(stream)]
        texts = [values.tobytes().decode() for values in stream.take(numbers)]
        plain = np.array([max(1, len(ids)) for ids in tokenizer.encode_batch(texts)])
        if not tokenizer.can_sample or not len(plain):
            return 1.0, 0.0
        sampled = np.array([len(ids) for ids in tokenizer.sample_batch(texts, seed=0)])
        growth = max(1.0, float(sampled.sum() / plain.sum()))
        return growth, float(np.std((sampled - growth * plain) / np.sqrt(plain)))
