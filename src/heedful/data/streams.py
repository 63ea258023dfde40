"""One side of a corpus on disk: all its values in one file, where each text begins in another.

Numbers are little-endian on every machine. Files are written once, from front to back, and hashed on the way.
"""

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
from heedful.files import is_full

# A larger file is read piece by piece instead of being mapped. Texts are read in random order, and around each place
# that is touched the system maps much more, up to 2 MB on Linux 6.18 (measured): soon all of it counts as memory of
# this process. From a cold disk, too, a map fetches many times what is asked for.
MAPPED_BYTES = 64 * 2**20


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
    if not is_full(problem):
        return problem
    free = shutil.disk_usage(path.parent).free
    return UserError(
        f"{path}: cannot write ({problem.strerror}); {free:,} bytes are free there. "
        "Make room or choose another folder, then run the same command again."
    )


class NumberFile:
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


class Stream:
    """The texts of one side: text i is what `values` has from offset i up to offset i + 1."""

    def __init__(self, values: Path, offsets: Path, *, dtype: "np.dtype[np.integer]") -> None:
        self.values = NumberFile(values, dtype)
        self.offsets = NumberFile(offsets, np.dtype("<i8"))

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
