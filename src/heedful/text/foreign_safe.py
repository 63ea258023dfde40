"""A tokenizer.json that came from somewhere: looked at before it is loaded, and tried in a child process.

`tokenizers` is Rust: a bad file ends in an error or a panic, seldom in a crash, but it may ask for all memory or never
come to an end. So the file is bounded and its parts are known ones; whatever else can happen, happens to the child.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from heedful.errors import UserError

MAX_JSON_BYTES = 64 * 2**20  # the largest public ones (262,000 pieces) have 33 MB
MAX_ID = 2**20  # far above any vocabulary
MAX_PIECE = 10_000  # characters
_CHILD_SECONDS = 30

KEYS = frozenset(
    {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
     "model"}
)  # fmt: skip
MODELS = frozenset({"BPE", "WordPiece", "Unigram", "WordLevel"})
PARTS = {
    "normalizer": frozenset(
        {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend", "Replace",
         "Sequence", "Strip", "StripAccents", "ByteLevel"}
    ),
    "pre_tokenizer": frozenset(
        {"BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Delimiter", "Digits", "FixedLength", "Metaspace",
         "Punctuation", "Sequence", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit"}
    ),
    "decoder": frozenset(
        {"BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Sequence", "Strip",
         "WordPiece"}
    ),
    # Adds marks when asked to; heedful adds them itself and keeps it for who reads the file elsewhere.
    "post_processor": frozenset({"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"}),
}  # fmt: skip


def check_content(content: str, *, where: str) -> str:
    """The same tokenizer without padding and truncation, which heedful does itself; or a UserError."""
    if len(content.encode("utf-8", "replace")) > MAX_JSON_BYTES:
        raise UserError(f"{where}: more than {MAX_JSON_BYTES:,} bytes; no tokenizer is that large")
    try:
        values = json.loads(content, object_pairs_hook=_unique)
        _check_values(values)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: not a usable tokenizer.json: {str(error)[:300]}") from None
    return json.dumps({**values, "truncation": None, "padding": None}, ensure_ascii=False, allow_nan=False)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return values


def _check_values(values: Any) -> None:
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise ValueError("it has no 'model'")
    if unknown := sorted(set(values) - KEYS):
        raise ValueError(f"unknown key {unknown[0]!r}")
    _check_model(values["model"])
    for name, allowed in PARTS.items():
        for part in _parts(values.get(name)):
            if part.get("type") not in allowed:
                raise ValueError(f"'{name}' has the unknown type {part.get('type')!r}")
            _check_part(name, part)
    added = values.get("added_tokens") or []
    if not isinstance(added, list):
        raise ValueError("'added_tokens' is not a list")
    for token in added:
        _check_piece(token["content"], token["id"])


def _check_model(model: dict[str, Any]) -> None:
    kind = model.setdefault("type", _kind_of(model))
    if kind not in MODELS:
        raise ValueError(f"the model has the unknown type {kind!r}; allowed: {', '.join(sorted(MODELS))}")
    if model.get("dropout"):
        raise ValueError("the model drops merges at random (dropout): one text would have many ids")
    vocabulary = model["vocab"]
    if kind == "Unigram":
        for number, (piece, score) in enumerate(vocabulary):
            _check_piece(piece, number)
            if type(score) not in (int, float) or not -1e9 < score < 1e9:
                raise ValueError(f"piece {number} has the score {score!r}")
        return
    for piece, number in vocabulary.items():
        _check_piece(piece, number)
    if len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError("two pieces have one id")


def _kind_of(model: dict[str, Any]) -> str:
    """Of a file from before models said it."""
    if "merges" in model:
        return "BPE"
    if isinstance(model["vocab"], list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _check_piece(piece: object, number: object) -> None:
    if not isinstance(piece, str) or len(piece) > MAX_PIECE:
        raise ValueError(f"a piece is no text of up to {MAX_PIECE:,} characters: {str(piece)[:40]!r}")
    if type(number) is not int or not 0 <= number < MAX_ID:
        raise ValueError(f"the piece {piece[:40]!r} has the id {number!r}; allowed are 0 to {MAX_ID - 1:,}")


def _check_part(name: str, part: Mapping[str, Any]) -> None:
    """What is put into a text, or searched there, is short: nothing can grow without bound."""
    pattern = part.get("pattern")
    texts = [part.get("content"), part.get("prepend"), *(pattern.values() if isinstance(pattern, dict) else ())]
    for text in texts:
        if isinstance(text, str) and len(text) > 2000:
            raise ValueError(f"'{name}' has a text of {len(text):,} characters")
    if isinstance(pattern, dict) and "" in pattern.values():
        raise ValueError(f"'{name}' searches for nothing")


def _parts(part: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """A part and, of a sequence, those inside."""
    if part is None:
        return
    if not isinstance(part, dict) or depth > 5:
        raise ValueError("a part is no object, or lies too deep")
    yield part
    inner: list[Any] = next(
        (part[key] for key in ("normalizers", "pretokenizers", "decoders", "processors") if key in part), []
    )
    for one in inner:
        yield from _parts(one, depth + 1)


# Run by the child alone. It sees nothing of heedful: importing it would cost more than the whole check.
_CHILD = """
import os, sys
os.environ["TOKENIZERS_PARALLELISM"] = "false"
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
except (ImportError, ValueError, OSError):
    pass
try:
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_str(sys.stdin.buffer.read().decode("utf-8"))
    for text in ("a", "a1 b!  c", "\u00e9\u65e5"):
        grown = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
        assert len(grown) <= 20 * len(text) + 100, "a text grows without bound"
    every = "".join(chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000)
    for text in ("", " ", "a b  c", "x" * 5000, " " * 5000, "a1!" * 2000, every):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert len(ids) <= 8 * len(text.encode()) + 8, "a short text becomes very many ids"
        tokenizer.decode(ids)
except BaseException as error:
    sys.exit(str(error)[:300] or type(error).__name__)
"""


def try_content_in_child(content: str, *, where: str) -> None:
    """Load and use the tokenizer in a child process; whatever kills the child becomes a UserError here."""
    # -P: the working directory is not on the child's path, so that no file lying there is imported.
    command = [sys.executable, "-P", "-c", _CHILD]
    try:
        child = subprocess.run(
            command, input=content.encode(), capture_output=True, timeout=_CHILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{where}: the tokenizer was not ready in {_CHILD_SECONDS} s; get it anew") from None
    if child.returncode:
        said = child.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = said[-1][-300:] if said else f"exit code {child.returncode}"
        raise UserError(f"{where}: this tokenizer cannot be used: {reason}. Get the file anew from its source")
