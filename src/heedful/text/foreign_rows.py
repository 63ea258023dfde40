"""Pieces of a tokenizer that the table of its model has no row for.

Some public checkpoints have them: bart-large-cnn was fine-tuned without the row of <mask>, which its tokenizer knows.
"""

import json
from collections.abc import Sequence
from typing import Any

from heedful.errors import UserError
from heedful.text.hf_tokenizer import HFTokenizer

SPARED = ("mask_token", "pad_token")  # the parts that a model which writes can do without


def within_rows(
    tokenizer: HFTokenizer, n_rows: int, *, spared: Sequence[str] = SPARED, where: str
) -> tuple[HFTokenizer, list[str]]:
    """The tokenizer without the added pieces that have no row, and these; refused if the model could need one of them.

    `spared`: the parts, in Hugging Face's words, whose pieces it can do without.
    """
    values = json.loads(tokenizer.content)
    beyond = {piece: number for piece, number in _ids(values).items() if number >= n_rows}
    if not beyond:
        return tokenizer, []
    added = {token["content"] for token in values["added_tokens"] or []}
    needed = {piece for role, piece in tokenizer.roles.items() if role not in spared}
    for piece, number in beyond.items():
        if piece not in added or piece in needed:
            raise UserError(
                f"{where}: the tokenizer's piece {piece!r} has the id {number:,}, and config.json has 'vocab_size' "
                f"{n_rows:,}: the model has no row for it. The tokenizer is another model's; copy that of this one"
            )
    roles = {role: piece for role, piece in tokenizer.roles.items() if piece not in beyond}
    content = json.dumps(_without(values, set(beyond)), ensure_ascii=False)
    return HFTokenizer(content, roles, tokenizer.splits_special), list(beyond)


def _ids(values: dict[str, Any]) -> dict[str, int]:
    """Every piece of a tokenizer.json and its id."""
    vocabulary = values["model"]["vocab"]
    if isinstance(vocabulary, list):  # Unigram: pairs of piece and score
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    return {**vocabulary, **{token["content"]: token["id"] for token in values["added_tokens"] or []}}


def _without(values: dict[str, Any], pieces: set[str]) -> dict[str, Any]:
    vocabulary = values["model"]["vocab"]
    if isinstance(vocabulary, list):
        kept: Any = [pair for pair in vocabulary if pair[0] not in pieces]
    else:
        kept = {piece: number for piece, number in vocabulary.items() if piece not in pieces}
    added = [token for token in values["added_tokens"] if token["content"] not in pieces]
    return {**values, "added_tokens": added, "model": {**values["model"], "vocab": kept}}
