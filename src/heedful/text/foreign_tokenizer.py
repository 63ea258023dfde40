"""Tokenizers of public checkpoints, behind heedful's protocol: the same ids as Hugging Face's `transformers` gives.

A `tokenizer.json` says all that such a tokenizer does; other files (`vocab.txt`, `merges.txt`, SentencePiece models)
are written as one first (`foreign_build.py`). Which of its pieces begin, end, pad and hide stands in
`special_tokens_map.json`. Needs the package `tokenizers` alone, never `transformers`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import MissingExtra, UserError
from heedful.text.foreign_safe import check_content, try_content_in_child
from heedful.text.normalise import Normaliser
from heedful.text.tokenizer import SpecialTokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_REPAIR = Normaliser(form="none")  # lone surrogates alone: what else is done to a text, the tokenizer does itself


class ForeignTokenizer:
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
        self.special = _special(self.roles, vocabulary, opens=first is not None and first in starts, where=where)

    def __reduce__(self) -> tuple[type["ForeignTokenizer"], tuple[str, dict[str, str], bool]]:
        # to another process; the rest is made from it again
        return ForeignTokenizer, (self.content, self.roles, self.splits_special)

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

    def decode(self, ids: Sequence[int]) -> str:
        self._check(ids)
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def decode_marked(self, ids: Sequence[int]) -> str:
        self._check(ids)
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

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
        return self.encode(text).count(self.special.unk) if "unk_token" in self.roles else 0

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
    content: str, roles: Mapping[str, str], *, splits_special: bool, where: str, trusted: bool = False
) -> ForeignTokenizer:
    """The tokenizer, once it was looked at and, unless `trusted`, tried in a child process."""
    checked = check_content(content, where=where)
    if not trusted:
        _import_tokenizers()  # said here rather than by the child
        try_content_in_child(checked, where=where)
    return ForeignTokenizer(checked, roles, splits_special, where=where)


def _special(roles: Mapping[str, str], vocabulary: Mapping[str, int], *, opens: bool, where: str) -> SpecialTokens:
    """Ids for the parts. What a tokenizer has no piece for stands where it does least harm, as in Hugging Face's own
    examples: padding is the end, a start that nobody writes is padding.
    """
    for role, piece in roles.items():
        if piece not in vocabulary:
            raise UserError(f"{where}: has no piece {piece!r}, which is said to be its {role}")
    ids = {role: vocabulary[piece] for role, piece in roles.items()}
    end = ids.get("sep_token", ids.get("eos_token", ids.get("pad_token", 0)))
    pad = ids.get("pad_token", end)
    return SpecialTokens(
        pad=pad,
        unk=ids.get("unk_token", pad),
        start=ids.get("cls_token", ids.get("bos_token", pad)),
        end=end,
        mask=ids.get("mask_token"),
        opens=opens,
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
