"""A tokenizer.json that came from somewhere: looked at before it is loaded, and tried in a child process.

`tokenizers` is Rust: a bad file ends in an error or a panic, seldom in a crash, but it may ask for all memory or never
come to an end. So the file is bounded and its parts are known ones; whatever else can happen, happens to the child.

Tokenizers of public checkpoints, behind heedful's protocol: the same ids as Hugging Face's `transformers` gives.

A `tokenizer.json` says all that such a tokenizer does; other files (`vocab.txt`, `merges.txt`, SentencePiece models)
are written as one first (`foreign_build.py`). Which of its pieces begin, end, pad and hide stands in
`special_tokens_map.json`. Needs the package `tokenizers` alone, never `transformers`.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import MissingExtra, UserError
from heedful.text.normalize import Normalizer
from heedful.text.special_ids import SpecialIds

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

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


_REPAIR = Normalizer(form="none")  # lone surrogates alone: what else is done to a text, the tokenizer does itself


class HFTokenizer:
    """One tokenizer.json. As in `transformers`, a special piece that is written out in a text, like [MASK], is found,
    unless the tokenizer `splits_special` ones like any other text (`split_special_tokens`).

    `roles` says which pieces are special and what for, in Hugging Face's words: {"cls_token": "[CLS]", …}.
    """

    def __init__(
        self, content: str, roles: Mapping[str, str], splits_special: bool = False, *, where: str = "tokenizer.json"
    ) -> None:
        self.content = content
        self.roles = dict(roles)
        self.splits_special = splits_special
        self._where = where
        self._backend = _load(content, where=where)
        self._backend.encode_special_tokens = splits_special
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        self._vocab_size = max(vocabulary.values(), default=-1) + 1
        starts = [vocabulary.get(self.roles.get(role, "")) for role in ("cls_token", "bos_token")]
        first = next(iter(self._backend.encode("a").ids), None)  # with the marks that its file asks for
        self.special_ids = _special(self.roles, vocabulary, opens=first is not None and first in starts, where=where)

    def __reduce__(self) -> tuple[type["HFTokenizer"], tuple[str, dict[str, str], bool]]:
        # to another process; the rest is made from it again
        return HFTokenizer, (self.content, self.roles, self.splits_special)

    @property
    def kind(self) -> str:
        return str(json.loads(self.content)["model"]["type"]).lower()

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def can_sample(self) -> bool:
        return False

    @property
    def fingerprint(self) -> str:
        split = "\nsplits special pieces" if self.splits_special else ""
        return hashlib.sha256(f"{self.content}\n{sorted(self.roles.items())}{split}".encode()).hexdigest()

    def normalize(self, text: str) -> str:
        """The text itself: what the tokenizer does to it (BERT's lower case) shows in what is decoded."""
        return _REPAIR(text)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        normal = [self.normalize(text) for text in texts]
        return [found.ids for found in self._backend.encode_batch_fast(normal, add_special_tokens=False)]

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        raise UserError(f"{self._where}: a foreign tokenizer cannot sample: set tokenizer.sample_alpha = 0")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        self._check(ids)
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        given = list(ids)
        self._check(given)
        return [str(self._backend.id_to_token(number) or "") for number in given]

    def id_of(self, piece: str) -> int:
        number: int | None = self._backend.token_to_id(piece)
        if number is None:
            raise UserError(f"the tokenizer has no piece {piece!r}")
        return number

    def count_unknown(self, text: str) -> int:
        """0 where the tokenizer has no piece for the unknown."""
        return self.encode(text).count(self.special_ids.unk_id) if "unk_token" in self.roles else 0

    def save(self, path: str | Path) -> None:
        """The tokenizer.json; its `roles` are another file's."""
        Path(path).write_text(self.content, encoding="utf-8")

    def describe(self) -> str:
        """One line for a person."""
        return f"{json.loads(self.content)['model']['type']}, {self.vocab_size:,} pieces"

    def _check(self, ids: Sequence[int]) -> None:
        bad = next((number for number in ids if not 0 <= number < self._vocab_size), None)
        if bad is not None:
            raise UserError(
                f"id {int(bad)} is not in the vocabulary, which has 0 to {self._vocab_size - 1}: "
                "the ids were made with another tokenizer"
            )


def open_foreign(
    content: str, roles: Mapping[str, str], *, splits_special: bool, where: str, probe: bool = True
) -> HFTokenizer:
    """The tokenizer, once it was looked at and, unless `trusted`, tried in a child process."""
    checked = check_content(content, where=where)
    if probe:
        _import_tokenizers()  # said here rather than by the child
        try_content_in_child(checked, where=where)
    return HFTokenizer(checked, roles, splits_special, where=where)


def _special(roles: Mapping[str, str], vocabulary: Mapping[str, int], *, opens: bool, where: str) -> SpecialIds:
    """Ids for the parts. What a tokenizer has no piece for stands where it does least harm, as in Hugging Face's own
    examples: padding is the end, a start that nobody writes is padding.
    """
    for role, piece in roles.items():
        if piece not in vocabulary:
            raise UserError(f"{where}: has no piece {piece!r}, which is said to be its {role}")
    ids = {role: vocabulary[piece] for role, piece in roles.items()}
    end = ids.get("sep_token", ids.get("eos_token", ids.get("pad_token", 0)))
    pad = ids.get("pad_token", end)
    return SpecialIds(
        pad_id=pad,
        unk_id=ids.get("unk_token", pad),
        bos_id=ids.get("cls_token", ids.get("bos_token", pad)),
        eos_id=end,
        mask_id=ids.get("mask_token"),
        adds_bos=opens,
    )


def _load(content: str, *, where: str) -> "Backend":
    _import_tokenizers()
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_str(content)
    except Exception as error:  # `tokenizers` raises plain Exceptions
        raise UserError(f"{where}: not a usable tokenizer: {str(error)[:300]}") from None
    backend.no_padding()
    backend.no_truncation()
    return backend


def _import_tokenizers() -> None:
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise MissingExtra("the tokenizer of a converted model", "hf") from None
