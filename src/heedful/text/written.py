"""What a model wrote. Public models round the size of their tables up, so it may be an id that no piece belongs to."""

from collections.abc import Sequence

from heedful.text.tokenizer import Tokenizer


def text_of(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The ids as text; those of spare rows are none, as in Hugging Face."""
    n = tokenizer.vocab_size
    return tokenizer.decode(ids if max(ids, default=0) < n else [id for id in ids if id < n])


def marked_text_of(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The same, special pieces written out."""
    return tokenizer.decode_marked([id for id in ids if id < tokenizer.vocab_size])


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """How each id is written; that of a spare row as its number."""
    n = tokenizer.vocab_size
    known = iter(tokenizer.pieces([id for id in ids if id < n]))
    return [next(known) if id < n else f"<{id}>" for id in ids]
