"""The tokenizer of Marian's public models (OPUS-MT): SentencePiece cuts, and a list of its own numbers the pieces.

Its ids are not SentencePiece's: `vocab.json` has them, for pieces of both languages at once, and what it lacks is
unknown. A target language is asked for by a first word like >>fr<<. The ids are those of `transformers` without
sacremoses, which would change the punctuation first.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import sentencepiece

from heedful.errors import UserError
from heedful.text.normalize import Normalizer
from heedful.text.sentencepiece_model import read_model
from heedful.text.special_ids import SpecialIds
from heedful.text.tokenizer import UNKNOWN_SIGN

UNKNOWN, END, PAD = "<unk>", "</s>", "<pad>"
MAX_IDS = 2**20
_REPAIR = Normalizer(form="none")
_LANGUAGE = re.compile(r"(?s)>>.*?<<")
_MARK = "▁"


class MarianTokenizer:
    """One side of a Marian model: a SentencePiece model, and the id of each piece."""

    def __init__(self, model: bytes, ids: Mapping[str, int], *, where: str = "tokenizer") -> None:
        self._kind = read_model(model, where=where).kind
        self.model = model
        self.ids = dict(ids)
        self._where = where
        _check_ids(self.ids, where=where)
        self._pieces = {number: piece for piece, number in self.ids.items()}
        self._vocab_size = max(self._pieces) + 1
        self.special_ids = SpecialIds(
            pad_id=self.ids.get(PAD, self.ids[END]),
            unk_id=self.ids[UNKNOWN],
            bos_id=self.ids.get(PAD, self.ids[END]),  # Marian begins to write after the padding
            eos_id=self.ids[END],
        )
        special = sorted(
            (re.escape(piece) for piece in (UNKNOWN, END, PAD) if piece in self.ids), key=len, reverse=True
        )
        self._special_pieces = re.compile(f"({'|'.join(special)})")
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{where}: SentencePiece cannot load this model: {error}") from None

    def __reduce__(self) -> tuple[type["MarianTokenizer"], tuple[bytes, dict[str, int]]]:
        return MarianTokenizer, (self.model, self.ids)

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def can_sample(self) -> bool:
        return False

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.model + json.dumps(self.ids, sort_keys=True).encode()).hexdigest()

    def normalize(self, text: str) -> str:
        return _REPAIR(text)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._id_of(piece) for piece in self._cut(self.normalize(text))] for text in texts]

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        raise UserError(f"{self._where}: Marian's tokenizer cannot sample: set tokenizer.sample_alpha = 0")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        if not skip_special_tokens:
            return "".join(self.pieces(ids)).replace(_MARK, " ").removeprefix(" ")
        ends = {self.special_ids.pad_id, self.special_ids.eos_id}
        pieces = [
            UNKNOWN_SIGN if n == self.special_ids.unk_id else piece for n, piece in self._known(ids) if n not in ends
        ]
        return "".join(pieces).replace(_MARK, " ").removeprefix(" ")

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [piece for _, piece in self._known(list(ids))]

    def id_of(self, piece: str) -> int:
        if piece not in self.ids:
            raise UserError(f"the tokenizer has no piece {piece!r}")
        return self.ids[piece]

    def count_unknown(self, text: str) -> int:
        return self.encode(text).count(self.special_ids.unk_id)

    def save(self, path: str | Path) -> None:
        """The SentencePiece model; the ids are another file's."""
        Path(path).write_bytes(self.model)

    def _cut(self, text: str) -> list[str]:
        """Special pieces that are written out in a text count as such; the rest goes to SentencePiece, part by part."""
        pieces: list[str] = []
        for number, part in enumerate(self._special_pieces.split(text)):
            if number % 2:
                pieces.append(part)
            elif part:
                language = _LANGUAGE.match(part)
                if language:
                    pieces.append(language[0])
                    part = part[language.end() :]
                pieces += self._processor.encode(part, out_type=str)
        return pieces

    def _id_of(self, piece: str) -> int:
        return self.ids.get(piece, self.special_ids.unk_id)

    def _known(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        for number in ids:
            if not 0 <= number < self._vocab_size:
                raise UserError(
                    f"id {int(number)} is not in the vocabulary, which has 0 to {self._vocab_size - 1}: "
                    "the ids were made with another tokenizer"
                )
        return [(number, self._pieces.get(number, "")) for number in ids]


def _check_ids(ids: Mapping[str, object], *, where: str) -> None:
    for piece, number in ids.items():
        if type(number) is not int or not 0 <= number < MAX_IDS:
            raise UserError(f"{where}: the piece {piece!r} has the id {number!r}; allowed are 0 to {MAX_IDS - 1:,}")
    if len(set(ids.values())) < len(ids):
        raise UserError(f"{where}: two pieces have one id")
    for piece in (UNKNOWN, END):
        if piece not in ids:
            raise UserError(f"{where}: has no piece {piece!r}, without which a Marian model cannot be run")
