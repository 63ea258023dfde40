"""A tokenised corpus on disk ("shards"): its file format, its manifest, and random access to its texts.

    source.ids or source.text, source.offsets; the same for target; shards.json

The values of all texts of a side lie in one file, one text after the other; a second file has the offset at which each
text begins. Numbers are little-endian on every machine. A run that samples its segmentation keeps text instead of ids.

`shards.json`, the manifest, has the key of the shards (a hash of the corpus, the tokenizers and the options) and the
SHA-256 of each file. It is written last, so a folder without a valid manifest is an unfinished build.
`heedful.data.binarize` writes shards, this module reads them.
"""

import hashlib
import json
import mmap
import os
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from heedful.atomic_io import explain_full_disk, sha256, write_json
from heedful.config import Values, config_from_dict, config_to_dict, read_json
from heedful.data.seeding import IntArray
from heedful.errors import UserError

FORMAT = 2  # raise it when the files change their meaning: older shards are then built again
NAME = "shards.json"
# Larger files are read piece by piece instead of being mapped. Texts are read in random order, and the system maps up
# to 2 MB around each place that is read (measured on Linux 6.18), so that soon the whole file counts as memory of this
# process; and from a cold disk a mapped file reads many times the bytes that are needed.
MAPPED_BYTES = 64 * 2**20
P90_Z = 1.2816  # the 90th percentile of a normal distribution, in standard deviations above the mean


@dataclass(frozen=True)
class FileChecksum:
    """The size and the SHA-256 that a file had when it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class SideRecord:
    """The entry of one side of the corpus in the manifest."""

    dtype: str  # of the values: "<u2" or "<u4" for ids, "|u1" for text
    tokens: int
    sampling_ratio: float = (
        1.0  # a text of n ids has sampling_ratio x n ids on average when its segmentation is sampled,
    )
    sampling_std: float = 0.0  # with a standard deviation of sampling_std x sqrt(n)


@dataclass(frozen=True)
class Manifest:
    """The contents of `shards.json`."""

    format: int
    key: str  # the hash of corpus, tokenizers and options
    tokenizers: tuple[str, ...]  # fingerprints, source first
    examples: int
    keep_text: bool
    sides: dict[str, SideRecord]  # "source", and "target" unless the corpus is plain text
    files: dict[str, FileChecksum]


def file_names(side: str, *, keep_text: bool) -> tuple[str, ...]:
    """List the files of a side: values, offsets and, where text is kept, the number of ids of each text."""
    if keep_text:
        return f"{side}.text", f"{side}.offsets", f"{side}.lengths"
    return f"{side}.ids", f"{side}.offsets"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `shards.json`, after all files that it names are on the disk."""
    values = config_to_dict(manifest)
    try:
        write_json(folder / NAME, {"sha256": _digest(values)} | values, durable=True)
    except OSError as error:
        raise explain_full_disk(error, folder / NAME) from None


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of finished shards; UserError if it is missing, damaged or of another format."""
    path = folder / NAME
    values = read_json(path)
    if values.pop("sha256", None) != _digest(values):
        raise UserError(f"{path}: damaged, or edited by hand. Prepare the corpus again.")
    if values.get("format") != FORMAT:
        raise UserError(
            f"{path}: has format {values.get('format')}; this version of heedful reads format {FORMAT}. "
            "Prepare the corpus again."
        )
    manifest = config_from_dict(Manifest, values, where=str(path))
    expected = {name for side in manifest.sides for name in file_names(side, keep_text=manifest.keep_text)}
    if set(manifest.files) != expected or "source" not in manifest.sides:
        raise UserError(f"{path}: names the files {sorted(manifest.files)}, expected {sorted(expected)}")
    return manifest


def check_file(path: Path, checksum: FileChecksum, *, verify: bool) -> None:
    """Raise a UserError unless the file has the recorded size and, with `verify`, the recorded SHA-256."""
    size = path.stat().st_size if path.is_file() else None
    if size != checksum.bytes:
        state = "is missing" if size is None else f"has {size:,} bytes"
        raise UserError(f"{path}: {state}, expected {checksum.bytes:,} bytes. Prepare the corpus again.")
    if verify and sha256(path) != checksum.sha256:
        raise UserError(f"{path}: its bytes changed since it was written (SHA-256). Prepare the corpus again.")


def _digest(values: Values) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class FileWriter:
    """Writes and hashes one file of shards; its bytes are on the disk when the `with` block is left."""

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
        """Append the bytes of an array."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        self._hash.update(data)
        try:
            self._file.write(data)
        except OSError as problem:
            raise explain_full_disk(problem, self.path) from None
        self.n_bytes += values.nbytes

    @property
    def checksum(self) -> FileChecksum:
        return FileChecksum(bytes=self.n_bytes, sha256=self._hash.hexdigest())


class ArrayFile:
    """A file of numbers with random access from any thread; memory-mapped if it has at most MAPPED_BYTES."""

    def __init__(self, path: Path, dtype: "np.dtype[np.integer]") -> None:
        self.dtype = dtype
        self._file = path.open("rb", buffering=0)
        n_bytes = os.fstat(self._file.fileno()).st_size
        self._length = n_bytes // dtype.itemsize
        self._mapped: IntArray | None = np.zeros(0, dtype)  # an empty file cannot be mapped
        if n_bytes > MAPPED_BYTES and hasattr(os, "pread"):
            self._mapped = None
        elif n_bytes:
            self._mapped = np.frombuffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ), dtype)

    def __len__(self) -> int:
        return self._length

    def read(self, begin: int, end: int) -> IntArray:
        """Read the numbers from `begin` up to, not including, `end`."""
        if self._mapped is not None:
            return self._mapped[begin:end]
        size = self.dtype.itemsize
        data = os.pread(self._file.fileno(), (end - begin) * size, begin * size)
        if len(data) < (end - begin) * size:
            raise UserError(f"{self._file.name}: was cut short while it was in use. Prepare the corpus again.")
        return np.frombuffer(data, self.dtype)


class RaggedArray:
    """The texts of one side: text i is `values` from offset i up to offset i + 1."""

    def __init__(self, values: Path, offsets: Path, *, dtype: "np.dtype[np.integer]") -> None:
        self.values = ArrayFile(values, dtype)
        self.offsets = ArrayFile(offsets, np.dtype("<i8"))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """The number of values of each text, computed from the offsets alone."""
        sizes = np.empty(len(self), np.uint32)
        step = 1 << 20  # in parts, to avoid an array of eight bytes for each text
        for begin in range(0, len(self), step):
            end = min(begin + step, len(self))
            sizes[begin:end] = np.diff(self.offsets.read(begin, end + 1))
        return sizes

    def bounds(self, index: int) -> tuple[int, int]:
        """Return where the values of a text begin and end."""
        begin, end = self.offsets.read(index, index + 2).tolist()
        return begin, end

    def take(self, indices: IntArray) -> list[IntArray]:
        """Read the values of these texts, in this order."""
        return [self.values.read(*self.bounds(index)) for index in indices.tolist()]


class Side:
    """The source or the target side of a prepared corpus; its texts are numbered from 0."""

    def __init__(self, folder: Path, name: str, record: SideRecord, *, keep_text: bool) -> None:
        values, offsets, *lengths = (folder / file for file in file_names(name, keep_text=keep_text))
        self.stream = RaggedArray(values, offsets, dtype=np.dtype(record.dtype))
        self._lengths = lengths
        self._record = record

    @property
    def lengths(self) -> IntArray:
        """The number of ids of each text, without special tokens and without sampling, as a new array."""
        if self._lengths:
            return np.fromfile(self._lengths[0], "<u4")
        return self.stream.sizes

    @property
    def planned_lengths(self) -> IntArray:
        """The lengths to plan batches with: those of ids; of text, lengths that 90 % of the samples stay below."""
        lengths = self.lengths
        if not self._lengths:
            return lengths
        # Computed once for each distinct length, not for each text: there may be a hundred million texts.
        distinct = np.arange(int(lengths.max(initial=0)) + 1)
        expected = distinct * self._record.sampling_ratio + P90_Z * self._record.sampling_std * np.sqrt(distinct)
        planned: IntArray = np.ceil(expected).astype(np.uint32)[lengths]
        return planned

    def ids(self, indices: IntArray) -> list[IntArray]:
        """Read the ids of these texts."""
        assert not self._lengths, "these shards keep text"
        return self.stream.take(indices)

    def texts(self, indices: IntArray) -> list[str]:
        """Read these texts."""
        assert self._lengths, "these shards keep ids"
        return [values.tobytes().decode() for values in self.stream.take(indices)]


class Shards:
    """A prepared corpus. `target` is None for plain text, in which each example is a document."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        sides = {name: Side(folder, name, side, keep_text=manifest.keep_text) for name, side in manifest.sides.items()}
        self.source = sides["source"]
        self.target = sides.get("target")

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> "Shards":
        """Open the shards in a folder, after checking that each file has its size and, with `verify`, its SHA-256."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        for name, checksum in manifest.files.items():
            check_file(folder / name, checksum, verify=verify)
        return cls(folder, manifest)

    def __len__(self) -> int:
        return self.manifest.examples

    @property
    def key(self) -> str:
        """The hash of corpus, tokenizers and options."""
        return self.manifest.key

    @property
    def keep_text(self) -> bool:
        """Whether the shards have text instead of ids."""
        return self.manifest.keep_text
