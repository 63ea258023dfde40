"""One side of a corpus on disk: all its values in one file, where each text begins in another, both memory-mapped.

Numbers are little-endian on every machine. Files are written once, from front to back, and hashed on the way.
"""

import errno
import hashlib
import mmap
import os
import shutil
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from heedful.data.batching import IntArray
from heedful.errors import UserError

# After so many texts the pages read are given back; the system keeps them in its cache. Otherwise an epoch over a large
# corpus would end with the whole of it counted as the memory of this process.
READS_BETWEEN_RELEASES = 8_192


@dataclass(frozen=True)
class FileRecord:
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
    def record(self) -> FileRecord:
        return FileRecord(bytes=self.n_bytes, sha256=self._hash.hexdigest())


def explain_full_disk(problem: OSError, path: Path) -> OSError | UserError:
    """A full disk or quota as the user's to solve; any other failure as it is."""
    if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return problem
    free = shutil.disk_usage(path.parent).free
    return UserError(
        f"{path}: cannot write ({problem.strerror}); {free:,} bytes are free there. "
        "Make room or choose another folder, then run the same command again."
    )


def read_only_array(path: Path, dtype: "np.dtype[np.integer]") -> tuple[IntArray, mmap.mmap | None]:
    """The file as an array that is read from disk where it is touched."""
    if path.stat().st_size == 0:  # there is no such thing as an empty mapping
        return np.zeros(0, dtype), None
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype), mapped


class Stream:
    """The texts of one side: text i is `values[offsets[i] : offsets[i + 1]]`."""

    def __init__(self, values_path: Path, offsets_path: Path, *, dtype: "np.dtype[np.integer]") -> None:
        self.values, values_map = read_only_array(values_path, dtype)
        self.offsets, offsets_map = read_only_array(offsets_path, np.dtype("<i8"))
        self._maps = [mapped for mapped in (values_map, offsets_map) if mapped is not None]
        self._n_read = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """How many values each text has, without touching the values."""
        sizes = np.empty(len(self), np.uint32)
        step = 1 << 20  # in parts, so that no array of eight bytes for each text is made
        for begin in range(0, len(self), step):
            sizes[begin : begin + step] = np.diff(self.offsets[begin : begin + step + 1])
        self.release()
        return sizes

    def take(self, numbers: IntArray) -> list[IntArray]:
        """The values of these texts, in this order."""
        begins = self.offsets[numbers].tolist()
        ends = self.offsets[np.asarray(numbers, np.int64) + 1].tolist()
        return [self.read(begin, end) for begin, end in zip(begins, ends, strict=True)]

    def read(self, begin: int, end: int) -> IntArray:
        """Values by their places in the whole stream."""
        self._n_read += 1
        if self._n_read >= READS_BETWEEN_RELEASES:
            self._n_read = 0
            self.release()
        return self.values[begin:end]

    def release(self) -> None:
        """Give pages back; arrays stay valid and are read again where they are touched."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)
