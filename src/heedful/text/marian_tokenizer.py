"""The tokenizer of Marian's public models (OPUS-MT).

SentencePiece splits a text into pieces; `vocab.json`, not SentencePiece, numbers the pieces of both languages. A piece
that `vocab.json` lacks is unknown. A first word like >>fr<< chooses the target language of a multilingual model.

The ids equal those of `transformers` without the package sacremoses, which would normalise punctuation first.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from heedful.atomic_io import write_json
from heedful.config import read_json
from heedful.errors import UserError
from heedful.text.hf_tokenizer import MAX_JSON_BYTES
from heedful.text.normalize import Normalizer
from heedful.text.sentencepiece_model import check_file_size, probe_in_subprocess, read_model, read_model_file
from heedful.text.special_ids import SpecialIds
from heedful.text.tokenizer import UNKNOWN_SIGN, Tokenizers

SOURCE, TARGET = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"  # the second only if the sides have different ids

UNKNOWN, END, PAD = "<unk>", "</s>", "<pad>"
MAX_IDS = 2**20
_REPAIR = Normalizer(form="none")  # repairs lone surrogates only
_LANGUAGE = re.compile(r"(?s)>>.*?<<")
_SPACE = "▁"  # U+2581, SentencePiece's sign for a space


class MarianTokenizer:
    """The tokenizer of one side of a Marian model: a SentencePiece model and the id of each piece."""

    def __init__(self, model: bytes, ids: Mapping[str, int], *, where: str = "tokenizer") -> None:
        self._kind = read_model(model, where=where).kind
        self.model = model
        self.ids = dict(ids)
        self._where = where
        _check_vocabulary(self.ids, where=where)
        self._pieces = {id: piece for piece, id in self.ids.items()}
        self._vocab_size = max(self._pieces) + 1
        self.special_ids = SpecialIds(
            pad_id=self.ids.get(PAD, self.ids[END]),
            unk_id=self.ids[UNKNOWN],
            bos_id=self.ids.get(PAD, self.ids[END]),  # Marian's decoder begins with the padding id
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
        unknown = self.special_ids.unk_id
        return [[self.ids.get(piece, unknown) for piece in self._split(self.normalize(text))] for text in texts]

    def sample_batch(self, texts: Sequence[str], *, seed: int) -> list[list[int]]:
        raise UserError(f"{self._where}: Marian's tokenizer cannot sample: set tokenizer.sample_alpha = 0")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        pieces = self.pieces(ids)
        if skip_special_tokens:
            skipped = {self.special_ids.pad_id, self.special_ids.eos_id}
            unknown = self.special_ids.unk_id
            pieces = [
                UNKNOWN_SIGN if id == unknown else piece
                for id, piece in zip(ids, pieces, strict=True)
                if id not in skipped
            ]
        return "".join(pieces).replace(_SPACE, " ").removeprefix(" ")

    def decode_batch(self, batch: Iterable[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        ids = list(ids)
        bad = next((id for id in ids if not 0 <= id < self._vocab_size), None)
        if bad is not None:
            raise UserError(
                f"id {int(bad)} is not in the vocabulary, which has 0 to {self._vocab_size - 1}: "
                "the ids were made with another tokenizer"
            )
        return [self._pieces.get(id, "") for id in ids]

    def id_of(self, piece: str) -> int:
        if piece not in self.ids:
            raise UserError(f"the tokenizer has no piece {piece!r}")
        return self.ids[piece]

    def count_unknown(self, text: str) -> int:
        return self.encode(text).count(self.special_ids.unk_id)

    def save(self, path: str | Path) -> None:
        """Write the SentencePiece model; `write_marian` also writes the ids."""
        Path(path).write_bytes(self.model)

    def _split(self, text: str) -> list[str]:
        """Split a text into pieces: special tokens that it writes out stay whole, SentencePiece splits the rest."""
        pieces: list[str] = []
        for index, part in enumerate(self._special_pieces.split(text)):
            if index % 2:  # re.split puts what the group matched at odd indices
                pieces.append(part)
            elif part:
                language = _LANGUAGE.match(part)
                if language:
                    pieces.append(language[0])
                    part = part[language.end() :]
                pieces += self._processor.encode(part, out_type=str)
        return pieces


def read_marian(folder: Path, *, probe: bool = True) -> Tokenizers:
    """Read the tokenizers of a Marian folder, which have one list of ids for both sides or one for each.

    `probe`: let a child process load the SentencePiece models first (see `sentencepiece_model`).
    """
    ids = _read_vocabulary(folder / VOCABULARY)
    target_ids = _read_vocabulary(folder / TARGET_VOCABULARY) if (folder / TARGET_VOCABULARY).is_file() else ids
    models = [read_model_file(folder / name) for name in (SOURCE, TARGET)]
    for name, model in zip((SOURCE, TARGET), models, strict=True):
        info = read_model(model, where=str(folder / name))
        if probe:
            probe_in_subprocess(model, info, where=str(folder / name))
    return Tokenizers(
        source=MarianTokenizer(models[0], ids, where=str(folder / SOURCE)),
        target=MarianTokenizer(models[1], target_ids, where=str(folder / TARGET)),
    )


def write_marian(tokenizers: Tokenizers, folder: Path) -> list[Path]:
    """Write Marian's tokenizers into a folder and return the paths of the files."""
    source, target = tokenizers.source, tokenizers.target
    assert isinstance(source, MarianTokenizer) and isinstance(target, MarianTokenizer)
    source.save(folder / SOURCE)
    target.save(folder / TARGET)
    write_json(folder / VOCABULARY, source.ids)
    if source.ids == target.ids:
        return [folder / name for name in (SOURCE, TARGET, VOCABULARY)]
    write_json(folder / TARGET_VOCABULARY, target.ids)
    return [folder / name for name in (SOURCE, TARGET, VOCABULARY, TARGET_VOCABULARY)]


def _read_vocabulary(path: Path) -> dict[str, Any]:
    check_file_size(path, MAX_JSON_BYTES)
    return read_json(path)


def _check_vocabulary(ids: Mapping[str, object], *, where: str) -> None:
    for piece, id in ids.items():
        if type(id) is not int or not 0 <= id < MAX_IDS:
            raise UserError(f"{where}: the piece {piece!r} has the id {id!r}; allowed: 0 to {MAX_IDS - 1:,}")
    if len(set(ids.values())) < len(ids):
        raise UserError(f"{where}: two pieces have the same id")
    for piece in (UNKNOWN, END):
        if piece not in ids:
            raise UserError(f"{where}: has no piece {piece!r}, which every Marian model needs")
