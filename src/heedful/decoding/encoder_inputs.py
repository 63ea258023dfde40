"""Texts as an encoder reads them: start, ids, end; batches of like length; the order of the texts kept.

Images as a ViT takes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.data.images import Picture, normalised, read_image
from heedful.errors import UserError
from heedful.models.bert import BertConfig
from heedful.models.vit import Vit
from heedful.text import HFTokenizer, SentencePieceTokenizer, Tokenizer

MASK = "[MASK]"  # what a user writes for a hidden word, whatever the tokenizer calls it
BATCH_TOKENS = 4096
_STAND_INS = "\ue000\ue001\uf8fe\uf8ff"  # of Unicode's private use: no vocabulary has them


@dataclass(frozen=True)
class Row:
    ids: list[int]  # with their marks
    n_cut: int = 0  # tokens beyond what the model takes
    second: int | None = None  # where the second text of a pair begins


@dataclass
class Tally:
    """What of the texts was not read."""

    n_cut: int = 0
    limit: int = 0

    def warnings(self) -> list[str]:
        if not self.n_cut:
            return []
        lines = "1 line was" if self.n_cut == 1 else f"{self.n_cut:,} lines were"
        return [f"{lines} cut to the {self.limit:,} tokens that the model takes"]


def make_row(ids: list[int], config: BertConfig) -> Row:
    """One text between its marks, cut to the positions that the model has."""
    room = max(config.max_len - 2, 0)
    return Row([config.special_ids.bos_id, *ids[:room], config.special_ids.eos_id], n_cut=max(0, len(ids) - room))


def make_pair(first: list[int], second: list[int], config: BertConfig) -> Row:
    """Two texts, a mark between them; where they are too long, the longer is cut first."""
    n_cut = max(0, len(first) + len(second) - max(config.max_len - 3, 0))
    lengths = [len(first), len(second)]
    for _ in range(n_cut):
        lengths[lengths[0] <= lengths[1]] -= 1
    start, end = config.special_ids.bos_id, config.special_ids.eos_id
    before = [start, *first[: lengths[0]], end]
    return Row([*before, *second[: lengths[1]], end], n_cut=n_cut, second=len(before))


def segments_of(rows: Sequence[Row], width: int, *, n_segments: int) -> Tensor | None:
    """1 where the second text of a pair stands, (B, S); None where no row is a pair, or the model knows no segments."""
    if n_segments < 2 or all(row.second is None for row in rows):
        return None
    begins = torch.tensor([width if row.second is None else row.second for row in rows])
    ends = torch.tensor([len(row.ids) for row in rows])
    places = torch.arange(width)
    return ((places >= begins[:, None]) & (places < ends[:, None])).long()


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The ids of each word by itself, never none: a model that labels words learns and answers at the first of each."""
    return [ids or [tokenizer.special_ids.unk_id] for ids in tokenizer.encode_batch(words)]


def batches(
    rows: Sequence[Row], *, pad_id: int, batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """(numbers of the rows, ids (B, S), mask (B, S)), the longest first, so that memory is known from the start."""
    order = sorted(range(len(rows)), key=lambda number: -len(rows[number].ids))
    while order:
        width = len(rows[order[0]].ids)
        chosen, order = order[: max(1, batch_tokens // width)], order[max(1, batch_tokens // width) :]
        ids = torch.full((len(chosen), width), pad_id)
        for place, number in enumerate(chosen):
            ids[place, : len(rows[number].ids)] = torch.tensor(rows[number].ids)
        lengths = torch.tensor([len(rows[number].ids) for number in chosen])
        yield chosen, ids, torch.arange(width) < lengths[:, None]


def masked_ids(tokenizer: Tokenizer, text: str, *, mask_id: int) -> list[int]:
    """The ids of a text in which [MASK], or the tokenizer's own word for it, stands for hidden words."""
    own = tokenizer.pieces([mask_id])[0]
    text = text.replace(own, MASK) if own else text
    if isinstance(tokenizer, HFTokenizer):
        return tokenizer.encode(text.replace(MASK, own))
    if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.kind != "word" and tokenizer.info.byte_fallback:
        return _around_stand_ins(tokenizer, text, mask_id)
    ids: list[int] = []
    for number, part in enumerate(text.split(MASK)):
        ids += [mask_id] * (number > 0) + tokenizer.encode(part.strip(" "))
    return ids


def _around_stand_ins(tokenizer: SentencePieceTokenizer, text: str, mask_id: int) -> list[int]:
    """A character that is in no piece is written in bytes: where those stand, the mask comes in, with the space that a
    hidden word would have. So the words around it are cut as in the whole text.
    """
    stand_in = next((character for character in _STAND_INS if character not in text), None)
    if stand_in is None:
        raise UserError("the text holds every character that could stand for a hidden word; take one of U+E000 out")
    spelled = tokenizer.encode(stand_in)
    spelled = [number for number, piece in zip(spelled, tokenizer.pieces(spelled), strict=True) if piece != "▁"]
    ids = tokenizer.encode(text.replace(MASK, stand_in))
    space = next((number for number, piece in zip(ids, tokenizer.pieces(ids), strict=True) if piece == "▁"), None)
    before, after = (not tokenizer.info.suffix, tokenizer.info.suffix) if tokenizer.kind != "char" else (False, False)
    result: list[int] = []
    at = 0
    while at < len(ids):
        if ids[at : at + len(spelled)] != spelled:
            result.append(ids[at])
            at += 1
            continue
        if before and result and result[-1] == space:
            result.pop()
        result.append(mask_id)
        at += len(spelled)
        if after and at < len(ids) and ids[at] == space:
            at += 1
    return result


IMAGES_AT_ONCE = 32


def image_tensor(model: Vit, files: Sequence[Picture]) -> Tensor:
    """Resized, normalised, (B, C, H, W)."""
    config = model.config
    pixels = [
        torch.from_numpy(read_image(file, n_channels=config.n_channels, size=config.image_size, resize=config.resize))
        for file in files
    ]
    tensor = normalised(torch.stack(pixels), config.mean, config.std)
    weight = model.patches.projection.weight
    return tensor.to(weight.device, weight.dtype)
