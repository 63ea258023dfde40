"""Tokenizers of Hugging Face's, behind heedful's `Tokenizer` protocol, and the check of a tokenizer.json.

A `tokenizer.json` describes such a tokenizer completely; `special_tokens_map.json` lists its special
tokens. `heedful convert` writes both files (`interop.huggingface.tokenizer_import`). The package `tokenizers` runs the
tokenizer; `transformers` is not needed.

A bad file makes `tokenizers` (written in Rust) raise an error, seldom crash, but it may use all memory or never finish.
Therefore `check_tokenizer_json` accepts only known parts within fixed limits, and a child process tries the tokenizer
before this process loads it.
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

# The roles that a piece can have as a special token, by Hugging Face's names.
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

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
    # Adds special tokens on request. heedful adds them itself; the part is kept for other readers of the file.
    "post_processor": frozenset({"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"}),
}  # fmt: skip


_REPAIR = Normalizer(form="none")  # repairs lone surrogates only: the tokenizer normalises the text itself


class HFTokenizer:
    """A tokenizer.json with its special tokens.

    `roles` maps the names that Hugging Face gives special tokens to pieces: {"cls_token": "[CLS]", …}.

    As in `transformers`, a special token that is written out in a text, like [MASK], becomes its special id. With
    `split_special_tokens` it is split like any other text.
    """

    def __init__(
        self,
        content: str,
        roles: Mapping[str, str],
        split_special_tokens: bool = False,
        *,
        where: str = "tokenizer.json",
    ) -> None:
        self.content = content
        self.roles = dict(roles)
        self.split_special_tokens = split_special_tokens
        self._where = where
        self._backend = _load_backend(content, where=where)
        self._backend.encode_special_tokens = split_special_tokens
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        self._vocab_size = max(vocabulary.values(), default=-1) + 1
        start_ids = [vocabulary.get(self.roles.get(role, "")) for role in ("cls_token", "bos_token")]
        first_id = next(iter(self._backend.encode("a").ids), None)  # with the special tokens that the file adds
        opens = first_id is not None and first_id in start_ids
        self.special_ids = _special_ids(self.roles, vocabulary, opens=opens, where=where)

    def __reduce__(self) -> tuple[type["HFTokenizer"], tuple[str, dict[str, str], bool]]:
        # Another process builds the backend and the vocabulary again.
        return HFTokenizer, (self.content, self.roles, self.split_special_tokens)

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
        split = "\nsplits special pieces" if self.split_special_tokens else ""
        return hashlib.sha256(f"{self.content}\n{sorted(self.roles.items())}{split}".encode()).hexdigest()

    def normalize(self, text: str) -> str:
        """Return the text with lone surrogates repaired.

        Normalisation by the tokenizer itself, such as BERT's lower case, only shows in decoded texts.
        """
        return _REPAIR(text)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        repaired = [self.normalize(text) for text in texts]
        return [encoding.ids for encoding in self._backend.encode_batch_fast(repaired, add_special_tokens=False)]

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        raise UserError(f"{self._where}: a tokenizer of Hugging Face's cannot sample: set tokenizer.sample_alpha = 0")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        self._check_ids(ids)
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        ids = list(ids)
        self._check_ids(ids)
        return [str(self._backend.id_to_token(id) or "") for id in ids]

    def id_of(self, piece: str) -> int:
        id: int | None = self._backend.token_to_id(piece)
        if id is None:
            raise UserError(f"the tokenizer has no piece {piece!r}")
        return id

    def count_unknown(self, text: str) -> int:
        """Count the unknown ids of a text; 0 if the tokenizer has no unknown token."""
        return self.encode(text).count(self.special_ids.unk_id) if "unk_token" in self.roles else 0

    def save(self, path: str | Path) -> None:
        """Write the tokenizer.json. `write_hf_tokenizer` also writes which tokens are special (BOS, EOS …)."""
        Path(path).write_text(self.content, encoding="utf-8")

    def describe(self) -> str:
        """Return one line for people: the kind and the number of pieces."""
        return f"{json.loads(self.content)['model']['type']}, {self.vocab_size:,} pieces"

    def _check_ids(self, ids: Sequence[int]) -> None:
        bad = next((id for id in ids if not 0 <= id < self._vocab_size), None)
        if bad is not None:
            raise UserError(
                f"id {int(bad)} is not in the vocabulary, which has 0 to {self._vocab_size - 1}: "
                "the ids were made with another tokenizer"
            )


def load_hf_tokenizer(
    content: str, roles: Mapping[str, str], *, split_special_tokens: bool, where: str, probe: bool = True
) -> HFTokenizer:
    """Build a tokenizer from a tokenizer.json, after the check of its content.

    `probe`: let a child process try the tokenizer first (see the module's docstring).
    """
    checked = check_tokenizer_json(content, where=where)
    if probe:
        probe_tokenizer_json(checked, where=where)
    return HFTokenizer(checked, roles, split_special_tokens, where=where)


def read_roles(values: Mapping[str, object], *, where: str) -> dict[str, str]:
    """Return the special tokens of a special_tokens_map.json by their role; a token may be written as an object."""
    roles = {}
    for role in ROLES:
        value = values.get(role)
        if isinstance(value, dict):
            value = value.get("content")
        if value is None:
            continue
        if not isinstance(value, str) or not 0 < len(value) <= 1000:
            raise UserError(f"{where}: '{role}' must be a piece of the vocabulary, found {value!r}")
        roles[role] = value
    return roles


def check_tokenizer_json(content: str, *, where: str) -> str:
    """Return a tokenizer.json without padding and truncation (heedful does both itself), or raise a UserError.

    Known keys and types of parts are allowed, and nothing that makes a text grow without bound.
    """
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
        raise ValueError("an object has the same key twice")
    return values


def _check_values(values: Any) -> None:
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise ValueError("the key 'model' is missing")
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
        for id, (piece, score) in enumerate(vocabulary):
            _check_piece(piece, id)
            if type(score) not in (int, float) or not -1e9 < score < 1e9:
                raise ValueError(f"piece {id} has the score {score!r}")
        return
    for piece, id in vocabulary.items():
        _check_piece(piece, id)
    if len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError("two pieces have the same id")


def _kind_of(model: dict[str, Any]) -> str:
    """Guess the type of a model, for old files that do not have it."""
    if "merges" in model:
        return "BPE"
    if isinstance(model["vocab"], list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _check_piece(piece: object, id: object) -> None:
    if not isinstance(piece, str) or len(piece) > MAX_PIECE:
        raise ValueError(f"a piece must be a text of at most {MAX_PIECE:,} characters, found {str(piece)[:40]!r}")
    if type(id) is not int or not 0 <= id < MAX_ID:
        raise ValueError(f"the piece {piece[:40]!r} has the id {id!r}; allowed: 0 to {MAX_ID - 1:,}")


def _check_part(name: str, part: Mapping[str, Any]) -> None:
    """Reject long replacements and empty patterns, which make a text grow without bound."""
    pattern = part.get("pattern")
    texts = [part.get("content"), part.get("prepend"), *(pattern.values() if isinstance(pattern, dict) else ())]
    for text in texts:
        if isinstance(text, str) and len(text) > 2000:
            raise ValueError(f"'{name}' has a text of {len(text):,} characters")
    if isinstance(pattern, dict) and "" in pattern.values():
        raise ValueError(f"'{name}' searches for nothing")


def _parts(part: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a part and, if it is a sequence, the parts inside it."""
    if part is None:
        return
    if not isinstance(part, dict) or depth > 5:
        raise ValueError("a part is no object, or is nested too deep")
    yield part
    inner: list[Any] = next(
        (part[key] for key in ("normalizers", "pretokenizers", "decoders", "processors") if key in part), []
    )
    for child in inner:
        yield from _parts(child, depth + 1)


# The program of the child process. It does not import heedful, because that would take longer than the whole check.
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


def probe_tokenizer_json(content: str, *, where: str) -> None:
    """Load and use the tokenizer in a child process; raise a UserError if the child fails or takes too long."""
    _require_tokenizers()  # an error of this process names the missing extra, one of the child does not
    # -P: the working directory is not on the child's path, so that no file lying there is imported.
    command = [sys.executable, "-P", "-c", _CHILD]
    try:
        child = subprocess.run(
            command, input=content.encode(), capture_output=True, timeout=_CHILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{where}: the tokenizer was not ready after {_CHILD_SECONDS} s; download the file again"
        ) from None
    if child.returncode:
        errors = child.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = errors[-1][-300:] if errors else f"exit code {child.returncode}"
        raise UserError(f"{where}: this tokenizer cannot be used: {reason}. Download the file again from its source")


def _special_ids(roles: Mapping[str, str], vocabulary: Mapping[str, int], *, opens: bool, where: str) -> SpecialIds:
    """Return the ids of the special tokens.

    A missing role takes an id that does little harm, as in Hugging Face's examples: the end id stands for padding, and
    the padding id for the start and the unknown token.
    """
    for role, piece in roles.items():
        if piece not in vocabulary:
            raise UserError(f"{where}: the vocabulary has no piece {piece!r}, which its settings name as '{role}'")
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


def _load_backend(content: str, *, where: str) -> "Backend":
    _require_tokenizers()
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_str(content)
    except Exception as error:  # `tokenizers` raises plain Exceptions
        raise UserError(f"{where}: not a usable tokenizer: {str(error)[:300]}") from None
    backend.no_padding()
    backend.no_truncation()
    return backend


def _require_tokenizers() -> None:
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise MissingExtra("The tokenizer of a converted model", "tokenizers") from None
