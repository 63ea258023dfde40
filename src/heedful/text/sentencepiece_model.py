"""Read and check a SentencePiece model file before SentencePiece loads it.

SentencePiece is written in C++, and some damaged or malicious models have made it crash the process (CVE-2026-1260;
google/sentencepiece#1263, a piece of 100 KB; #1269, a crafted table of normalisation). A crash cannot be caught.
Therefore `read_model` parses the file in Python, with limits, and `probe_in_subprocess` lets a child process load it.
"""

import math
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from heedful.errors import UserError
from heedful.text.tokenizer_config import N_BYTES, Kind

MAX_MODEL_BYTES = 32 * 2**20  # the largest public models (256,000 pieces) have about 5 MB
MAX_PIECES = 500_000
MAX_PIECE_BYTES = 7_999  # SentencePiece refuses 8,000
_MAX_SPEC_FIELDS = 100_000
_MAX_SETTINGS_BYTES = 100_000
_CHILD_SECONDS = 20

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # ModelProto.SentencePiece.Type

_KIND_NUMBERS: dict[int, Kind] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}  # TrainerSpec.ModelType
# ModelProto reserves the numbers from 200 on for extensions: other readers skip a field that they do not know.
_SETTINGS_FIELD = 2000
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types


@dataclass
class SentencePieceInfo:
    """The content of a model file. The defaults are those of SentencePiece's format."""

    kind: Kind = "unigram"
    suffix: bool = False
    byte_fallback: bool = False
    dummy_prefix: bool = True  # a space is added before (with `suffix`: after) each text
    own_rules: bool = True  # the model itself normalises text: it removes spaces or has a table of replacements
    pieces: list[str] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    settings: bytes | None = None  # heedful's own settings, see `with_settings`


class _Field(NamedTuple):
    number: int
    wire: int
    value: int  # the value of a varint; for other wire types the byte where the content starts
    stop: int


def read_model_file(path: Path) -> bytes:
    """Read the bytes of a .model or .spm file, if it is not larger than such files are."""
    check_file_size(path, MAX_MODEL_BYTES)
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def check_file_size(path: Path, max_bytes: int) -> None:
    """Raise a UserError for a tokenizer file that does not exist or is too large, before it is read into memory."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    size = path.stat().st_size
    if size > max_bytes:
        raise UserError(f"{path}: {size:,} bytes; a tokenizer's file has at most {max_bytes:,}")


def read_model(model: bytes, *, where: str) -> SentencePieceInfo:
    """Return the content of a SentencePiece model; a UserError names the byte where it is damaged."""
    if len(model) > MAX_MODEL_BYTES:
        raise UserError(f"{where}: {len(model):,} bytes; a SentencePiece model has at most {MAX_MODEL_BYTES:,}")
    try:
        return _read_model(model)
    except ValueError as error:
        raise UserError(
            f"{where}: not a usable SentencePiece model: {error}. The file is damaged or of another kind; download it "
            "again"
        ) from None


def with_settings(model: bytes, settings: bytes) -> bytes:
    """Return the model with heedful's settings appended. If a model has several settings, the last ones count."""
    return model + _to_varint(_SETTINGS_FIELD << 3 | _LENGTH) + _to_varint(len(settings)) + settings


def byte_of(piece: str) -> int:
    """Return the byte that a piece like <0xE2> stands for."""
    match = _BYTE_PIECE.fullmatch(piece)
    if not match:
        raise ValueError(f"the byte piece {piece!r} is not written like <0xE2>")
    return int(match[1], 16)


def _read_model(model: bytes) -> SentencePieceInfo:
    info = SentencePieceInfo()
    rules = {"charsmap": False, "removes_spaces": True, "escapes": True}
    for part in _fields(model, 0, len(model), limit=MAX_PIECES + 100):
        if part.wire != _LENGTH:
            continue
        if part.number == 1:
            _read_piece(model, part, info)
        elif part.number == 2:
            _read_trainer_spec(model, part, info)
        elif part.number == 3:
            _read_normalizer_spec(model, part, info, rules)
        elif part.number == _SETTINGS_FIELD:
            info.settings = model[part.value : min(part.stop, part.value + _MAX_SETTINGS_BYTES)]
    if not rules["escapes"]:
        raise ValueError("it does not write spaces as U+2581 (escape_whitespaces is off), which is not supported")
    info.own_rules = rules["charsmap"] or rules["removes_spaces"]
    _check_vocabulary(info)
    return info


def _read_piece(model: bytes, part: _Field, info: SentencePieceInfo) -> None:
    number = len(info.pieces)
    text, kind, score = b"", NORMAL, 0.0
    for inner in _fields(model, part.value, part.stop, limit=_MAX_SPEC_FIELDS):
        if inner.number == 1 and inner.wire == _LENGTH:
            text = model[inner.value : inner.stop]
        elif inner.number == 2 and inner.wire == _FIXED32:
            score = struct.unpack_from("<f", model, inner.value)[0]
        elif inner.number == 3 and inner.wire == _VARINT:
            kind = inner.value
    place = f"piece {number} (byte {part.value:,})"
    if not 0 < len(text) <= MAX_PIECE_BYTES:
        raise ValueError(f"{place} has {len(text):,} bytes; 1 to {MAX_PIECE_BYTES:,} are allowed")
    if b"\0" in text:
        raise ValueError(f"{place} contains a NUL character")
    if not math.isfinite(score):
        raise ValueError(f"{place} has the score {score}")
    if not NORMAL <= kind <= BYTE:
        raise ValueError(f"{place} has the unknown type {kind}")
    try:
        info.pieces.append(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{place} is not UTF-8: {text[:20]!r}") from None
    info.types.append(kind)
    info.scores.append(score)


def _read_trainer_spec(model: bytes, part: _Field, info: SentencePieceInfo) -> None:
    for inner in _fields(model, part.value, part.stop, limit=_MAX_SPEC_FIELDS):
        if inner.wire != _VARINT:
            continue
        if inner.number == 3:
            if inner.value not in _KIND_NUMBERS:
                raise ValueError(f"unknown kind of model: {inner.value}")
            info.kind = _KIND_NUMBERS[inner.value]
        elif inner.number == 24:
            info.suffix = bool(inner.value)
        elif inner.number == 35:
            info.byte_fallback = bool(inner.value)


def _read_normalizer_spec(model: bytes, part: _Field, info: SentencePieceInfo, rules: dict[str, bool]) -> None:
    for inner in _fields(model, part.value, part.stop, limit=_MAX_SPEC_FIELDS):
        if inner.number == 2 and inner.wire == _LENGTH:
            rules["charsmap"] = inner.stop > inner.value
        elif inner.wire != _VARINT:
            continue
        elif inner.number == 3:
            info.dummy_prefix = bool(inner.value)
        elif inner.number == 4:
            rules["removes_spaces"] = bool(inner.value)
        elif inner.number == 5:
            rules["escapes"] = bool(inner.value)


def _check_vocabulary(info: SentencePieceInfo) -> None:
    if not info.pieces:
        raise ValueError("it has no pieces")
    if len(info.pieces) > MAX_PIECES:
        raise ValueError(f"it has {len(info.pieces):,} pieces; at most {MAX_PIECES:,} are allowed")
    if len(set(info.pieces)) != len(info.pieces):
        twice = next(piece for n, piece in enumerate(info.pieces) if piece in info.pieces[:n])
        raise ValueError(f"it has the piece {twice!r} twice")
    if info.types.count(UNKNOWN) != 1:
        raise ValueError(f"it has {info.types.count(UNKNOWN)} unknown pieces; exactly one is needed")
    n_bytes = sum(byte_of(piece) >= 0 for piece, kind in zip(info.pieces, info.types, strict=True) if kind == BYTE)
    if info.byte_fallback and n_bytes != N_BYTES:
        raise ValueError(f"it has byte fallback but only {n_bytes} of the 256 byte pieces")


def _fields(data: bytes, start: int, stop: int, *, limit: int) -> Iterator[_Field]:
    """Yield the fields of one protobuf message, which is at `data[start:stop]`."""
    at = start
    for _ in range(limit):
        if at >= stop:
            return
        tag, at = _varint(data, at, stop)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at, stop)
            yield _Field(number, wire, value, at)
            continue
        if wire == _LENGTH:
            size, at = _varint(data, at, stop)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at:,}")
        if at + size > stop:
            raise ValueError(f"a field of {size:,} bytes at byte {at:,}, where only {stop - at:,} are left")
        yield _Field(number, wire, at, at + size)
        at += size
    if at < stop:
        raise ValueError(f"more than {limit:,} fields in one message")


def _varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Return the number that starts at byte `at`, and the index of the byte after it."""
    value = shift = 0
    while at < stop and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"a number without an end at byte {at:,}")


def _to_varint(value: int) -> bytes:
    digits = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


# The program of the child process. It imports nothing of heedful, which would take longer than the whole check.
_CHILD = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
except (ImportError, ValueError, OSError):
    pass
import sentencepiece
processor = sentencepiece.SentencePieceProcessor()
try:
    processor.LoadFromSerializedProto(sys.stdin.buffer.read())
    every = "".join(chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000)
    for text in ("", " ", "a b  c", "x" * 20000, every):
        processor.normalize(text)
        processor.decode(processor.encode(text))
    if sys.argv[1] == "sample":
        processor.encode(["a b c x"] * 5, enable_sampling=True, nbest_size=-1, alpha=0.5, num_threads=1)
except Exception as error:
    sys.exit(str(error))
"""


def probe_in_subprocess(model: bytes, info: SentencePieceInfo, *, where: str) -> None:
    """Load and use the model in a child process; raise a UserError if the child fails, crashes or takes too long."""
    mode = "sample" if info.kind in ("bpe", "unigram") else "plain"
    # -P: the working directory is not on the child's path, so that no file lying there is imported.
    command = [sys.executable, "-P", "-c", _CHILD, mode]
    try:
        child = subprocess.run(command, input=model, capture_output=True, timeout=_CHILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"{where}: SentencePiece did not finish loading this model in {_CHILD_SECONDS} s") from None
    if child.returncode == 0:
        return
    if child.returncode < 0:
        reason = f"it crashes SentencePiece (signal {-child.returncode}, {signal.strsignal(-child.returncode)})"
    else:
        reason = child.stderr.decode("utf-8", "replace").strip()[-300:] or f"exit code {child.returncode}"
    raise UserError(f"{where}: this SentencePiece model cannot be used: {reason}. Download the file again")
