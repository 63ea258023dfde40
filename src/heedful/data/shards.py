"""One side of a corpus on disk: all its values in one file, where each text begins in another.

Numbers are little-endian on every machine. Files are written once, from front to back, and hashed on the way.

The manifest of prepared shards: what was made, from what, and the hash of every file. It is written last.

A corpus tokenised once, into files of which only the part that is needed is read.

    source.ids or source.text, source.offsets     the same for target     manifest.json

A key binds them to the corpus, the tokenizers and the options.
Without a valid manifest there is no shard: whatever else lies in the folder is the rest of a build that was stopped,
and is built again. Text is kept instead of ids for runs that sample their segmentation.
"""

import hashlib
import json
import mmap
import os
import shutil
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from heedful.atomic_io import is_full
from heedful.config import Values, config_from_dict, config_to_dict, read_json
from heedful.data.seeding import IntArray
from heedful.errors import UserError

# A larger file is read piece by piece instead of being mapped. Texts are read in random order, and around each place
# that is touched the system maps much more, up to 2 MB on Linux 6.18 (measured): soon all of it counts as memory of
# this process. From a cold disk, too, a map fetches many times what is asked for.
MAPPED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class FileChecksum:
    """What a file must be, to be believed."""

    bytes: int
    sha256: str


class FileWriter:
    """Writes and hashes one file; it is on the disk, not only in a cache, when the `with` is left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_bytes = 0
        self._hash = hashlib.sha256()
        self._file: BufferedWriter = path.open("wb")

    def __enter__(self) -> "FileWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        except OSError as problem:
            raise explain_full_disk(problem, self.path) from None
        finally:
            self._file.close()

    def write(self, values: npt.NDArray[np.generic]) -> None:
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        self._hash.update(data)
        try:
            self._file.write(data)
        except OSError as problem:
            raise explain_full_disk(problem, self.path) from None
        self.n_bytes += values.nbytes

    @property
    def record(self) -> FileChecksum:
        return FileChecksum(bytes=self.n_bytes, sha256=self._hash.hexdigest())


def explain_full_disk(problem: OSError, path: Path) -> OSError | UserError:
    """A full disk or quota as the user's to solve; any other failure as it is."""
    if not is_full(problem):
        return problem
    free = shutil.disk_usage(path.parent).free
    return UserError(
        f"{path}: cannot write ({problem.strerror}); {free:,} bytes are free there. "
        "Make room or choose another folder, then run the same command again."
    )


class ArrayFile:
    """A file of numbers, any part of which can be read, from any thread. Memory-mapped up to MAPPED_BYTES."""

    def __init__(self, path: Path, dtype: "np.dtype[np.integer]") -> None:
        self.dtype = dtype
        self._file = path.open("rb", buffering=0)
        n_bytes = os.fstat(self._file.fileno()).st_size
        self._length = n_bytes // dtype.itemsize
        self._mapped: IntArray | None = np.zeros(0, dtype)  # there is no such thing as an empty mapping
        if n_bytes > MAPPED_BYTES and hasattr(os, "pread"):
            self._mapped = None
        elif n_bytes:
            self._mapped = np.frombuffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ), dtype)

    def __len__(self) -> int:
        return self._length

    def read(self, begin: int, end: int) -> IntArray:
        """The numbers from `begin` up to, not including, `end`."""
        if self._mapped is not None:
            return self._mapped[begin:end]
        size = self.dtype.itemsize
        data = os.pread(self._file.fileno(), (end - begin) * size, begin * size)
        if len(data) < (end - begin) * size:
            raise UserError(f"{self._file.name}: was cut short while it was in use. Prepare the corpus again.")
        return np.frombuffer(data, self.dtype)


class RaggedArray:
    """The texts of one side: text i is what `values` has from offset i up to offset i + 1."""

    def __init__(self, values: Path, offsets: Path, *, dtype: "np.dtype[np.integer]") -> None:
        self.values = ArrayFile(values, dtype)
        self.offsets = ArrayFile(offsets, np.dtype("<i8"))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """How many values each text has, without touching the values."""
        sizes = np.empty(len(self), np.uint32)
        step = 1 << 20  # in parts, so that no array of eight bytes for each text is made
        for begin in range(0, len(self), step):
            end = min(begin + step, len(self))
            sizes[begin:end] = np.diff(self.offsets.read(begin, end + 1))
        return sizes

    def bounds(self, number: int) -> tuple[int, int]:
        """Where the values of a text begin and end."""
        begin, end = self.offsets.read(number, number + 2).tolist()
        return begin, end

    def take(self, numbers: IntArray) -> list[IntArray]:
        """The values of these texts, in this order."""
        return [self.values.read(*self.bounds(number)) for number in numbers.tolist()]


FORMAT = 1  # raise it when the files change their meaning: older shards are then built again
NAME = "manifest.json"


@dataclass(frozen=True)
class SideRecord:
    """What is known of one side."""

    dtype: str  # of the values: "<u2" or "<u4" for ids, "|u1" for text
    tokens: int
    unknown: int | None = None  # tokens outside the vocabulary; not counted where text is kept
    growth: float = 1.0  # sampling makes n ids growth x n on average,
    spread: float = 0.0  # with a standard deviation of spread x sqrt(n)


@dataclass(frozen=True)
class Manifest:
    format: int
    key: str  # the hash of corpus, tokenizers and options
    tokenizers: tuple[str, ...]  # fingerprints, source first
    examples: int
    keep_text: bool
    sides: dict[str, SideRecord]  # source, and target if there is one
    files: dict[str, FileChecksum]


def file_names(side: str, *, keep_text: bool) -> tuple[str, ...]:
    """The values, the offsets and, beside text, the numbers of ids."""
    if keep_text:
        return f"{side}.text", f"{side}.offsets", f"{side}.lengths"
    return f"{side}.ids", f"{side}.offsets"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Aside, synced, then renamed: a manifest that can be seen is whole, and so are the files that it names."""
    values = config_to_dict(manifest)
    text = json.dumps({"sha256": _digest(values)} | values, indent=2)
    aside = folder / f"{NAME}.tmp"
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise explain_full_disk(problem, aside) from None
    aside.replace(folder / NAME)
    sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of finished shards; UserError for anything else."""
    path = folder / NAME
    values = read_json(path)
    if values.pop("sha256", None) != _digest(values):
        raise UserError(f"{path}: damaged, or written by hand. Prepare the corpus again.")
    if values.get("format") != FORMAT:
        raise UserError(
            f"{path}: format {values.get('format')}, this heedful reads {FORMAT}. Prepare the corpus again."
        )
    manifest = config_from_dict(Manifest, values, where=str(path))
    expected = {name for side in manifest.sides for name in file_names(side, keep_text=manifest.keep_text)}
    if set(manifest.files) != expected or "source" not in manifest.sides:
        raise UserError(f"{path}: names the files {sorted(manifest.files)}, expected {sorted(expected)}")
    return manifest


def check_file(path: Path, record: FileChecksum, *, verify: bool) -> None:
    """The file is there with the size it had; with `verify`, with the very bytes."""
    size = path.stat().st_size if path.is_file() else None
    if size != record.bytes:
        found = "is missing" if size is None else f"has {size:,} bytes"
        raise UserError(f"{path}: {found}, expected {record.bytes:,} bytes. Prepare the corpus again.")
    if verify:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != record.sha256:
            raise UserError(f"{path}: its bytes changed since it was written (SHA-256). Prepare the corpus again.")


def sync_folder(folder: Path) -> None:
    """A rename or a new file is on the disk only when its folder is."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(values: Values) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


P90_Z = 1.2816  # standard deviations above the mean


class Side:
    """One side of a prepared corpus; texts are called by their numbers."""

    def __init__(self, folder: Path, name: str, record: SideRecord, *, keep_text: bool) -> None:
        values, offsets, *lengths = (folder / file for file in file_names(name, keep_text=keep_text))
        self.stream = RaggedArray(values, offsets, dtype=np.dtype(record.dtype))
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
        expected = different * self._record.growth + P90_Z * self._record.spread * np.sqrt(different)
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
