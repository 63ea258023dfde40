"""API keys: only their salted hashes are kept, in memory and in the file; they are compared in constant time.

A line of the file: sha256 SALT DIGEST NAME. SHA-256 and not scrypt, since each request is checked: a slow hash would
let anybody keep the server busy. It suffices for keys that cannot be guessed, hence the shortest length.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import UserError

SHORTEST, LONGEST = 16, 256
KIND = "sha256"
_LINE = re.compile(r"sha256 ([0-9a-f]{32}) ([0-9a-f]{64})(?: ([\w.@+-]{1,64}))?", re.ASCII)


@dataclass(frozen=True)
class KeyHash:
    salt: bytes
    digest: bytes
    name: str = ""

    def fits(self, key: bytes) -> bool:
        return hmac.compare_digest(_digest(self.salt, key), self.digest)

    def line(self) -> str:
        return f"{KIND} {self.salt.hex()} {self.digest.hex()} {self.name}".rstrip() + "\n"


class Keys:
    """The keys that open the server; none at all: it is open."""

    def __init__(self, hashes: Iterable[KeyHash] = ()) -> None:
        self._hashes = list(hashes)

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, key: str) -> str | None:
        """What identifies the key without giving it away; None if it opens nothing. Each hash is tried, always."""
        given = key.encode("utf-8", "surrogatepass")[: LONGEST * 4 + 1]
        found = None
        for number, one in enumerate(self._hashes):
            if one.fits(given):
                found = f"key {number}"
        return found


def hash_key(key: str, *, name: str = "") -> KeyHash:
    if not SHORTEST <= len(key) <= LONGEST:
        raise UserError(
            f"an API key must have {SHORTEST} to {LONGEST} characters, this one has {len(key)}; "
            "`heedful serve --new-key FILE` makes one"
        )
    salt = secrets.token_bytes(16)
    return KeyHash(salt, _digest(salt, key.encode()), name)


def read_keys(path: Path) -> list[KeyHash]:
    """The hashes of a file; empty lines and comments (#) are left out."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    hashes = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:  # the line is not shown: it may be a key
            raise UserError(
                f"{path}: line {number}: not the hash of a key ('sha256 SALT DIGEST NAME'). "
                f"`heedful serve --new-key {path}` makes a key and adds its hash"
            )
        hashes.append(KeyHash(bytes.fromhex(match[1]), bytes.fromhex(match[2]), match[3] or ""))
    return hashes


def add_new_key(path: Path) -> str:
    """Make a key, add its hash to the file, and return the key, which is then nowhere else."""
    gap = ""
    if path.exists():
        read_keys(path)  # only to a file of keys
        gap = "" if path.read_bytes()[-1:] in (b"", b"\n") else "\n"  # editors may leave the last line without its end
    key = secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(gap + hash_key(key).line())
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
    return key


def _digest(salt: bytes, key: bytes) -> bytes:
    return hashlib.sha256(salt + key).digest()
