"""A corpus tokenised once, into files of which only the part that is needed is read.

    source.ids or source.text, source.offsets     the same for target     manifest.json

A key binds them to the corpus, the tokenizers and the options.
Without a valid manifest there is no shard: whatever else lies in the folder is the rest of a build that was stopped,
and is built again. Text is kept instead of ids for runs that sample their segmentation.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from heedful.data.batching import IntArray
from heedful.data.building import HasTexts, Progress, build
from heedful.data.manifest import (
    FORMAT,
    NAME,
    Manifest,
    SideRecord,
    check_file,
    file_names,
    read_manifest,
    write_manifest,
)
from heedful.data.streams import Stream
from heedful.errors import UserError
from heedful.processor import n_cores
from heedful.text.tokenizer import Tokenizer, Tokenizers

if sys.platform != "win32":
    import fcntl


ONE_IN_TEN = 1.2816  # standard deviations above the mean


class Side:
    """One side of a prepared corpus; texts are called by their numbers."""

    def __init__(self, folder: Path, name: str, record: SideRecord, *, keep_text: bool) -> None:
        values, offsets, *lengths = (folder / file for file in file_names(name, keep_text=keep_text))
        self.stream = Stream(values, offsets, dtype=np.dtype(record.dtype))
        self._lengths = lengths
        self._record = record

    @property
    def lengths(self) -> IntArray:
        """The number of ids of each text, without marks and without sampling; a new array, ids are not touched."""
        if self._lengths:
            return np.fromfile(self._lengths[0], "<u4")
        return self.stream.sizes

    @property
    def planned_lengths(self) -> IntArray:
        """The number of ids to plan with: of ids the lengths, of text what nine sampled texts of ten keep within."""
        lengths = self.lengths
        if not self._lengths:
            return lengths
        # Planned once for each different length, not for each text: there may be a hundred million of them.
        different = np.arange(int(lengths.max(initial=0)) + 1)
        expected = different * self._record.growth + ONE_IN_TEN * self._record.spread * np.sqrt(different)
        planned: IntArray = np.ceil(expected).astype(np.uint32)[lengths]
        return planned

    def ids(self, numbers: IntArray) -> list[IntArray]:
        assert not self._lengths, "these shards keep text"
        return self.stream.take(numbers)

    def texts(self, numbers: IntArray) -> list[str]:
        assert self._lengths, "these shards keep ids"
        return [values.tobytes().decode() for values in self.stream.take(numbers)]


class Shards:
    """A prepared corpus. `target` is None for plain text, where each example is a document."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        sides = {name: Side(folder, name, side, keep_text=manifest.keep_text) for name, side in manifest.sides.items()}
        self.source = sides["source"]
        self.target = sides.get("target")

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> "Shards":
        """The shards of a folder; with `verify`, every byte is compared with the manifest's SHA-256."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        for name, record in manifest.files.items():
            check_file(folder / name, record, verify=verify)
        return cls(folder, manifest)

    def __len__(self) -> int:
        return self.manifest.examples

    @property
    def key(self) -> str:
        """The hash of corpus, tokenizers and options."""
        return self.manifest.key

    @property
    def keep_text(self) -> bool:
        return self.manifest.keep_text


def prepare(
    examples: Iterable[HasTexts],
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
        manifest = build(examples, sides, folder, key=key, keep_text=keep_text, n_workers=workers, progress=progress)
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
