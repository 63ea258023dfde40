"""API keys. Memory and key file hold only salted hashes, which are compared in constant time.

A line of the file is `sha256 SALT DIGEST NAME`. The hash is SHA-256 rather than scrypt, because every request is
checked and a slow hash would make the server easy to overload. It is safe for keys of random characters, hence the
minimum length.
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
    """The salted hash of one key."""

    salt: bytes
    digest: bytes
    name: str = ""

    def fits(self, key: bytes) -> bool:
        """Return whether a key has this hash."""
        return hmac.compare_digest(_digest(self.salt, key), self.digest)

    def line(self) -> str:
        """Return the line of the key file."""
        return f"{KIND} {self.salt.hex()} {self.digest.hex()} {self.name}".rstrip() + "\n"


class Keys:
    """The keys of the server. Without keys the server is open."""

    def __init__(self, hashes: Iterable[KeyHash] = ()) -> None:
        self._hashes = list(hashes)

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, key: str) -> str | None:
        """Return the number of a key as its identity, such as "key 0", or None. Every hash is compared, always."""
        content = key.encode("utf-8", "surrogatepass")[: LONGEST * 4 + 1]
        identity = None
        for index, hashed in enumerate(self._hashes):
            if hashed.fits(content):
                identity = f"key {index}"
        return identity


def hash_key(key: str, *, name: str = "") -> KeyHash:
    """Hash a key with a new salt; raise a UserError if it is too short or too long."""
    if not SHORTEST <= len(key) <= LONGEST:
        raise UserError(
            f"an API key must have {SHORTEST} to {LONGEST} characters, this key has {len(key)}; "
            "`heedful serve --new-key FILE` makes a key"
        )
    salt = secrets.token_bytes(16)
    return KeyHash(salt, _digest(salt, key.encode()), name)


def read_keys(path: Path) -> list[KeyHash]:
    """Read the hashes of a key file; skip empty lines and comments (#)."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    hashes = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:  # the message does not quote the line, which may be a key
            raise UserError(
                f"{path}: line {number}: not the hash of a key ('sha256 SALT DIGEST NAME'). "
                f"`heedful serve --new-key {path}` makes a key and adds its hash"
            )
        hashes.append(KeyHash(bytes.fromhex(match[1]), bytes.fromhex(match[2]), match[3] or ""))
    return hashes


def add_new_key(path: Path) -> str:
    """Create a random key, add its hash to the file and return the key, which is not stored."""
    gap = ""
    if path.exists():
        read_keys(path)  # raises if the file is not a key file
        gap = "" if path.read_bytes()[-1:] in (b"", b"\n") else "\n"  # the last line may lack its newline
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
