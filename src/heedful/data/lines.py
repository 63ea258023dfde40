"""Read lines as bytes: a line ends at LF only, a CR before it is removed, and its length is bounded.

`str.splitlines` and text mode also split at U+2028, U+0085, VT, FF or a lone CR. Standard corpora contain these
characters, and then the lines of one side no longer match those of the other (fairseq#3571,
huggingface/datasets#3729). Here line n of any file is the line that `sed -n np` prints.
"""

import bz2
import gzip
import io
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from heedful.data.problems import BadData, Location, Problem, excerpt
from heedful.errors import UserError, did_you_mean

MAX_LINE_BYTES = 16 << 20  # bounds the memory that a decompression bomb, one endless line, can take
BLOCK = 1 << 20

# suffix -> (name of the format, its first bytes)
COMPRESSIONS = {
    ".gz": ("gzip", b"\x1f\x8b"),
    ".xz": ("xz", b"\xfd7zXZ\x00"),
    ".bz2": ("bzip2", b"BZh"),
}
# First bytes that no text begins with -> (name of the format, remedy).
FOREIGN = {
    b"\x1f\x8b": ("gzip data", "Rename it so that it ends in .gz"),
    b"\xfd7zXZ\x00": ("xz data", "Rename it so that it ends in .xz"),
    b"BZh91AY&SY": ("bzip2 data", "Rename it so that it ends in .bz2"),
    b"PK\x03\x04": ("a zip archive", "Unpack it first: unzip FILE"),
    b"\x28\xb5\x2f\xfd": ("zstd data", "Unpack it first: zstd -d FILE"),
}
OPENERS: dict[str, Callable[[Path], object]] = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile, ".bz2": bz2.BZ2File}
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)
CRLF = (Problem("crlf"),)


class HasLines(Protocol):
    """Anything with `readline`."""

    def readline(self, size: int, /) -> bytes: ...


class ByteStream(HasLines, Protocol):
    """A binary file that is open for reading, or an object with its `readline` and `peek`."""

    def peek(self, size: int, /) -> bytes: ...


class Line(NamedTuple):
    """One line of a file, with the problems of its bytes."""

    number: int  # from 1
    byte: int  # where its content begins in the decompressed file
    content: bytes  # without the line end
    problems: tuple[Problem, ...] = ()


def plain_name(path: Path) -> str:
    """Return the file name without the suffix of a compression.

    >>> plain_name(Path("data/train.en.gz"))
    'train.en'
    """
    return path.stem if path.suffix in COMPRESSIONS else path.name


def is_pipe(path: Path) -> bool:
    """Return whether the file can be read only once, as in `heedful check <(zcat a.zst) <(zcat b.zst)`."""
    try:
        return not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode))
    except OSError:
        return False  # opening the file raises the error


def open_bytes(path: Path) -> io.BufferedReader:
    """Open a file for reading, decompressed by its suffix; UserError if it is no file or its suffix is wrong."""
    try:
        stream: io.BufferedReader = io.BufferedReader(io.FileIO(path), BLOCK)
        head = stream.peek(16)[:16]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file{_sibling(path)}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name the files in it, for example {path}/*") from None
    except PermissionError:
        raise UserError(f"{path}: this user may not read it. Allow it with: chmod u+r {path}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    if path.suffix not in COMPRESSIONS and not any(head.startswith(magic) for magic in FOREIGN):
        return stream
    stream.close()
    _refuse_misnamed(path, head)
    # Their own readline is written in Python; a BufferedReader around them reads lines in C.
    return io.BufferedReader(cast(io.RawIOBase, OPENERS[path.suffix](path)), BLOCK)


def read_lines(path: Path, *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Read the lines of a text file, without a byte order mark at its start."""
    with open_bytes(path) as stream:
        yield from lines_of(stream, str(path), max_bytes=max_bytes)


def lines_of(stream: ByteStream, name: str, *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Read the lines of an open stream as `read_lines` does; errors refer to it by `name`."""
    number = byte = 0  # of the last complete line
    try:
        head = stream.peek(4096)[:4096]
        _refuse_utf16(name, head)
        for line in split_lines(stream, bom=head.startswith(b"\xef\xbb\xbf"), max_bytes=max_bytes):
            number, byte = line.number, line.byte
            yield line
    except DAMAGE as error:
        raise _damaged(Location(name, number + 1, byte), error) from None


def count_lines(path: Path) -> int:
    """Count the lines that `read_lines` would yield, without decoding or splitting them."""
    name, n_lines, last = str(path), 0, b"\n"
    with open_bytes(path) as stream:
        try:
            _refuse_utf16(name, stream.peek(4096)[:4096])
            while block := stream.read(BLOCK):
                n_lines += block.count(b"\n")
                last = block[-1:]
        except DAMAGE as error:
            raise _damaged(Location(name, n_lines + 1), error) from None
    return n_lines + (last != b"\n")


def split_lines(stream: HasLines, *, bom: bool = False, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yield a line for each LF, and one more if bytes follow the last LF; with `bom`, skip a UTF-8 BOM."""
    limit = max_bytes + 2  # room for CR LF
    number = byte = 0
    while raw := stream.readline(limit):
        number += 1
        start = byte
        problems: tuple[Problem, ...] = ()
        if raw[-1:] == b"\n":
            content, size = raw[:-1], len(raw)
        elif len(raw) < limit:
            content, size, problems = raw, len(raw), (Problem("unterminated"),)
        else:
            content, size = raw, len(raw) + _pass_over(stream)
        if content[-1:] == b"\r" and raw[-1:] == b"\n":
            content, problems = content[:-1], CRLF
        if bom and number == 1:
            content, start, problems = content[3:], 3, (Problem("bom", byte=0), *problems)
        if len(content) > max_bytes:
            value = f"{size:,} bytes in one line, at most {max_bytes:,} are read; it begins with {_begin(content)}"
            content, problems = content[:200], (*problems, Problem("too-long", value))
        yield Line(number, start, content, problems)
        byte += size


def _pass_over(stream: HasLines) -> int:
    """Read to the end of a line without keeping it, and return its number of bytes."""
    size = 0
    while part := stream.readline(BLOCK):
        size += len(part)
        if part[-1:] == b"\n":
            break
    return size


def _refuse_misnamed(path: Path, head: bytes) -> None:
    """Raise BadData if the suffix and the first bytes disagree about whether the file is compressed."""
    if path.suffix in COMPRESSIONS:
        what, magic = COMPRESSIONS[path.suffix]
        if head and not head.startswith(magic):
            remedy = f"Remove {path.suffix} from its name, or compress it"
            raise BadData(
                "compressed",
                Location(str(path)),
                f"is named {path.suffix}, but contains no {what} data",
                remedy=f"{remedy}.",
            )
        return
    for magic, (what, remedy) in FOREIGN.items():
        if head.startswith(magic):
            raise BadData(
                "compressed", Location(str(path)), f"contains {what}, by its first bytes", remedy=f"{remedy}."
            )


def _refuse_utf16(name: str, head: bytes) -> None:
    """Raise BadData for UTF-16 and UTF-32: by a byte order mark, or by NULs in nearly every second byte."""
    marks = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = next((encoding for mark, encoding in marks.items() if head.startswith(mark)), "")
    how = "by its byte order mark"
    if not encoding and head.count(0) >= 8:
        evens, odds = head[::2], head[1::2]
        few, many = sorted([(evens.count(0), len(evens), "be"), (odds.count(0), len(odds), "le")])
        if many[0] >= 0.7 * many[1] and few[0] <= 0.1 * few[1]:
            encoding, how = f"utf-16{many[2]}", "every second byte is NUL"
    if encoding:
        remedy = f"Convert it with: iconv -f {encoding} -t utf-8 {name} > {name}.utf8"
        raise BadData("utf16", Location(name, 1, 0), f"is {encoding.upper()} text, not UTF-8 ({how})", remedy=remedy)


def _begin(content: bytes) -> str:
    return f"“{excerpt(content[:40].decode('utf-8', 'backslashreplace'), 40)}”"


def _damaged(place: Location, error: Exception) -> BadData:
    what = str(error) or type(error).__name__
    return BadData("damaged", place, f"the file is cut off or damaged there ({what})")


def _sibling(path: Path) -> str:
    folder = path.parent
    return did_you_mean(path.name, sorted(file.name for file in folder.iterdir())) if folder.is_dir() else ""
