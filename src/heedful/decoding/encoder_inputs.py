"""The inputs of encoders: texts with special tokens in batches of similar length, masked texts, and images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.data.images import Picture, normalised, read_image
from heedful.errors import UserError
from heedful.models.bert import BertConfig
from heedful.models.vit import Vit
from heedful.text import HFTokenizer, SentencePieceTokenizer, Tokenizer

MASK = "[MASK]"  # what a user writes for a masked word, whatever the mask token of the tokenizer is
BATCH_TOKENS = 4096
_STAND_INS = "\ue000\ue001\uf8fe\uf8ff"  # of Unicode's private use area: no vocabulary has them


@dataclass(frozen=True)
class Row:
    """One input of an encoder."""

    ids: list[int]  # with special tokens
    n_cut: int = 0  # tokens that were cut off
    second: int | None = None  # the position of the second text of a pair


@dataclass
class Tally:
    """The number of texts that were cut to the model's length."""

    n_cut: int = 0
    limit: int = 0

    def warnings(self) -> list[str]:
        """Return a warning if texts were cut."""
        if not self.n_cut:
            return []
        lines = "1 line was" if self.n_cut == 1 else f"{self.n_cut:,} lines were"
        return [f"{lines} cut to the {self.limit:,} tokens that the model takes"]


def make_row(ids: list[int], config: BertConfig) -> Row:
    """Make the input of one text: bos ids eos, cut to the model's length."""
    room = max(config.max_len - 2, 0)
    return Row([config.special_ids.bos_id, *ids[:room], config.special_ids.eos_id], n_cut=max(0, len(ids) - room))


def make_pair(first: list[int], second: list[int], config: BertConfig) -> Row:
    """Make the input of two texts: bos first eos second eos. If they are too long, the longer one is cut first."""
    n_cut = max(0, len(first) + len(second) - max(config.max_len - 3, 0))
    lengths = [len(first), len(second)]
    for _ in range(n_cut):
        lengths[lengths[0] <= lengths[1]] -= 1
    start, end = config.special_ids.bos_id, config.special_ids.eos_id
    before = [start, *first[: lengths[0]], end]
    return Row([*before, *second[: lengths[1]], end], n_cut=n_cut, second=len(before))


def segments_of(rows: Sequence[Row], width: int, *, n_segments: int) -> Tensor | None:
    """Return the segment ids, (B, S): 1 for the second text of a pair. None without pairs, or segments in the model."""
    if n_segments < 2 or all(row.second is None for row in rows):
        return None
    begins = torch.tensor([width if row.second is None else row.second for row in rows])
    ends = torch.tensor([len(row.ids) for row in rows])
    positions = torch.arange(width)
    return ((positions >= begins[:, None]) & (positions < ends[:, None])).long()


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """Return the ids of each word by itself, at least one: a tagger predicts a word's label from its first token."""
    return [ids or [tokenizer.special_ids.unk_id] for ids in tokenizer.encode_batch(words)]


def batches(
    rows: Sequence[Row], *, pad_id: int, batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield (indices of the rows, ids (B, S), mask (B, S)), the longest rows first, so that memory does not grow."""
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
    """Return the ids of a text in which [MASK], or the tokenizer's own mask token, stands for masked words."""
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
    """Encode with a stand-in character for each mask, so that the words around it get the tokens of the whole text.

    A character that is in no piece is encoded as bytes; these are replaced by the mask, and the space that would
    belong to the masked word is removed.
    """
    stand_in = next((character for character in _STAND_INS if character not in text), None)
    if stand_in is None:
        raise UserError("the text has all of U+E000, U+E001, U+F8FE and U+F8FF; remove one of them")
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
    """Read images and make the input of a ViT: resized and normalised, (B, C, H, W)."""
    config = model.config
    pixels = [
        torch.from_numpy(read_image(file, n_channels=config.n_channels, size=config.image_size, resize=config.resize))
        for file in files
    ]
    tensor = normalised(torch.stack(pixels), config.mean, config.std)
    weight = model.patches.projection.weight
    return tensor.to(weight.device, weight.dtype)
