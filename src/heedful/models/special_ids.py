"""The ids that are not text. heedful's tokenizers all have the same; a converted public model keeps its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.errors import UserError
from heedful.text.tokenizer import SpecialTokens


@dataclass(frozen=True)
class SpecialIds:
    """Where the marks of an encoder-decoder stand: a source is (first) ids end, a target start (first) ids end."""

    pad_id: int = 0
    start_id: int = 2  # what the decoder reads before anything is written
    end_id: int = 3
    first_id: int | None = None  # stands before each source (BART's <s>); None: nothing does
    opens_target: bool = True  # it also opens what is written, given, not chosen
    forbidden: tuple[int, ...] = ()  # must never be written, such as the padding of Marian's models
    other_ends: tuple[int, ...] = ()  # end a text as well: Llama 3 has an end of a text and one of a turn

    def __post_init__(self) -> None:
        for name in ("pad_id", "start_id", "end_id", "first_id"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UserError(f"'{name}' must be at least 0, found {value}")
        for name in ("forbidden", "other_ends"):
            if min(getattr(self, name), default=0) < 0:
                raise UserError(f"'{name}' must hold ids of at least 0, found {min(getattr(self, name))}")

    @property
    def n_opening(self) -> int:
        """How many tokens of a target are given: they are written before the first that a search chooses."""
        return int(self.opens_target and self.first_id is not None)

    @property
    def n_before(self) -> int:
        """How many marks stand before the ids of a source."""
        return int(self.first_id is not None)

    @property
    def special(self) -> SpecialTokens:
        """The marks as batches are made with them."""
        return SpecialTokens(pad=self.pad_id, start=self.start_id, end=self.end_id)

    def opened(self, ids: Sequence[int]) -> Sequence[int]:
        """The ids of a source, or of a target to learn, with the mark that stands before them, if there is one."""
        return ids if self.first_id is None else [self.first_id, *ids]

    def begun(self, ids: list[int], *, opens: bool | None = None) -> list[int]:
        """The ids of a text that a decoder-only model reads, its start mark before them.

        `opens` is what the tokenizer of a public model says of it. Where start and end are one mark between texts, as
        GPT-2's, it stands for an empty text alone.
        """
        opens = self.start_id != self.end_id if opens is None else opens
        return [self.start_id, *ids] if opens or not ids else ids

    def check(self, vocab_size: int) -> None:
        """Refuse marks outside of a vocabulary. The usual ones may be: a model for four ids never meets them."""
        if self == SpecialIds():
            return
        largest = max(self.pad_id, self.start_id, self.end_id, self.first_id or 0, *self.forbidden, *self.other_ends)
        if largest >= vocab_size:
            raise UserError(f"'marks' names the id {largest}, and the vocabulary ends at {vocab_size - 1}")
