"""Inputs of encoders: texts with special tokens, in batches of similar length, and images as pixel tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.data.images import Picture, normalised, read_image
from heedful.errors import UserError
from heedful.models.bert import BertConfig
from heedful.models.vit import Vit
from heedful.text import HFTokenizer, SentencePieceTokenizer, Tokenizer

MASK = "[MASK]"  # what a user writes for a masked word, whatever the tokenizer's mask token is
BATCH_TOKENS = 4096
_PLACEHOLDERS = "\ue000\ue001\uf8fe\uf8ff"  # private-use characters, which no vocabulary contains


@dataclass(frozen=True)
class Row:
    """One row of a batch: a text, or a pair of texts, as ids."""

    ids: list[int]  # with special tokens
    n_cut: int = 0  # tokens that were cut off, because the model takes no more
    second: int | None = None  # position of the first token of the second text of a pair


@dataclass
class Truncation:
    """Counts the texts that were cut to the model's maximum length."""

    n_cut: int = 0  # texts
    limit: int = 0  # tokens that the model takes

    def warnings(self) -> list[str]:
        """Return a warning with the number of texts that were cut, or none."""
        if not self.n_cut:
            return []
        lines = "1 line was" if self.n_cut == 1 else f"{self.n_cut:,} lines were"
        return [f"{lines} cut to the {self.limit:,} tokens that the model takes"]


def make_row(ids: list[int], config: BertConfig) -> Row:
    """Put the special tokens around a text and cut it to the positions that the model has."""
    room = max(config.max_len - 2, 0)
    return Row([config.special_ids.bos_id, *ids[:room], config.special_ids.eos_id], n_cut=max(0, len(ids) - room))


def make_pair(first: list[int], second: list[int], config: BertConfig) -> Row:
    """Join two texts with a separator; if they are too long, tokens are cut from the longer text first."""
    n_cut = max(0, len(first) + len(second) - max(config.max_len - 3, 0))
    lengths = [len(first), len(second)]
    for _ in range(n_cut):
        lengths[lengths[0] <= lengths[1]] -= 1
    start, end = config.special_ids.bos_id, config.special_ids.eos_id
    before = [start, *first[: lengths[0]], end]
    return Row([*before, *second[: lengths[1]], end], n_cut=n_cut, second=len(before))


def segments_of(rows: Sequence[Row], width: int, *, n_segments: int) -> Tensor | None:
    """Return the segment ids (B, S): 1 for the second text of a pair, else 0.

    The result is None if no row is a pair, or if the model has no segment embeddings.
    """
    if n_segments < 2 or all(row.second is None for row in rows):
        return None
    begins = torch.tensor([width if row.second is None else row.second for row in rows])
    ends = torch.tensor([len(row.ids) for row in rows])
    positions = torch.arange(width)
    return ((positions >= begins[:, None]) & (positions < ends[:, None])).long()


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """Return the ids of each word, encoded separately; a word without pieces becomes the unknown token.

    Every word needs a token, because a token classifier labels a word at its first token.
    """
    return [ids or [tokenizer.special_ids.unk_id] for ids in tokenizer.encode_batch(words)]


def batches(
    rows: Sequence[Row], *, pad_id: int, batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield batches of rows of similar length: (indices of the rows, ids (B, S), mask (B, S)).

    The longest rows come first, so that a lack of memory shows at once.
    """
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index].ids))
    while order:
        width = len(rows[order[0]].ids)
        chosen, order = order[: max(1, batch_tokens // width)], order[max(1, batch_tokens // width) :]
        ids = torch.full((len(chosen), width), pad_id)
        for batch_row, index in enumerate(chosen):
            ids[batch_row, : len(rows[index].ids)] = torch.tensor(rows[index].ids)
        lengths = torch.tensor([len(rows[index].ids) for index in chosen])
        yield chosen, ids, torch.arange(width) < lengths[:, None]


def masked_ids(tokenizer: Tokenizer, text: str, *, mask_id: int) -> list[int]:
    """Encode a text with masked words, which are written as [MASK] or as the tokenizer's mask token."""
    mask_piece = tokenizer.pieces([mask_id])[0]
    text = text.replace(mask_piece, MASK) if mask_piece else text
    if isinstance(tokenizer, HFTokenizer):
        return tokenizer.encode(text.replace(MASK, mask_piece))
    if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.kind != "word" and tokenizer.info.byte_fallback:
        return _encode_with_placeholder(tokenizer, text, mask_id)
    ids: list[int] = []
    for index, part in enumerate(text.split(MASK)):
        ids += [mask_id] * (index > 0) + tokenizer.encode(part.strip(" "))
    return ids


def _encode_with_placeholder(tokenizer: SentencePieceTokenizer, text: str, mask_id: int) -> list[int]:
    """Encode the text with a placeholder character for each mask, then replace the placeholder's byte pieces.

    Encoding the whole text splits the words around a mask as they would be split beside a word. The mask replaces the
    separate space piece of the placeholder too, because the piece of a word includes its space.
    """
    placeholder = next((character for character in _PLACEHOLDERS if character not in text), None)
    if placeholder is None:
        codes = ", ".join(f"U+{ord(character):04X}" for character in _PLACEHOLDERS)
        raise UserError(f"the text contains all of the private-use characters {codes}; remove one, to mask words")
    byte_ids = tokenizer.encode(placeholder)
    byte_ids = [id for id, piece in zip(byte_ids, tokenizer.pieces(byte_ids), strict=True) if piece != "▁"]
    ids = tokenizer.encode(text.replace(MASK, placeholder))
    space = next((id for id, piece in zip(ids, tokenizer.pieces(ids), strict=True) if piece == "▁"), None)
    space_before = tokenizer.kind != "char" and not tokenizer.info.suffix
    space_after = tokenizer.kind != "char" and tokenizer.info.suffix
    result: list[int] = []
    position = 0
    while position < len(ids):
        if ids[position : position + len(byte_ids)] != byte_ids:
            result.append(ids[position])
            position += 1
            continue
        if space_before and result and result[-1] == space:
            result.pop()
        result.append(mask_id)
        position += len(byte_ids)
        if space_after and position < len(ids) and ids[position] == space:
            position += 1
    return result


IMAGES_AT_ONCE = 32


def image_tensor(model: Vit, files: Sequence[Picture]) -> Tensor:
    """Read images, resize and normalise them: (B, C, H, W), on the device of the model."""
    config = model.config
    pixels = [
        torch.from_numpy(read_image(file, n_channels=config.n_channels, size=config.image_size, resize=config.resize))
        for file in files
    ]
    tensor = normalised(torch.stack(pixels), config.mean, config.std)
    weight = model.patches.projection.weight
    return tensor.to(weight.device, weight.dtype)
