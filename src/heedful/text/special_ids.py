"""The special ids of a tokenizer or a model: those that stand for no text."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from heedful.errors import UserError


@dataclass(frozen=True)
class SpecialIds:
    """Which ids are special, and where a model has them. The defaults are those of heedful's own tokenizers.

    An encoder-decoder reads the source `ids eos` (BART: `bos ids eos`) and the target `start ids` (BART: `start bos
    ids`), and predicts `ids eos`. A decoder-only model reads `bos ids`, an encoder `bos ids eos`.

    >>> bart = SpecialIds(pad_id=1, bos_id=0, eos_id=2, decoder_start_id=2, source_bos=True, force_bos=True)
    >>> bart.with_source_bos([7, 8])
    [0, 7, 8]
    >>> bart.start_id, bart.n_forced
    (2, 1)
    """

    pad_id: int = 0
    unk_id: int = 1  # stands for text that the vocabulary has no other id for
    bos_id: int = 2  # begins a text: <s>, [CLS]
    eos_id: int = 3  # ends a text: </s>, [SEP]
    mask_id: int | None = None  # hides a token: [MASK], <mask>
    decoder_start_id: int | None = None  # the first input of a decoder; None: bos_id
    source_bos: bool = False  # bos_id stands before each source as well
    force_bos: bool = False  # bos_id is the first token of each target, forced instead of predicted
    adds_bos: bool | None = None  # whether bos_id stands before a prompt; None: if it is not also eos_id (as GPT-2's)
    extra_eos_ids: tuple[int, ...] = ()  # end a text too: Llama 3 has one id for the end of a text, one for a turn's
    forbidden_ids: tuple[int, ...] = ()  # must never be generated, such as the padding of Marian's models

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple) and min(value, default=0) < 0:
                raise UserError(f"'{field.name}' must hold ids of at least 0, found {min(value)}")
            if isinstance(value, int) and value < 0:
                raise UserError(f"'{field.name}' must be at least 0, found {value}")

    @property
    def all_ids(self) -> tuple[int, ...]:
        """Every id that stands for no text, each once."""
        single = (self.pad_id, self.unk_id, self.bos_id, self.eos_id, self.mask_id, self.decoder_start_id)
        return tuple(dict.fromkeys(id for id in (*single, *self.extra_eos_ids) if id is not None))

    @property
    def start_id(self) -> int:
        """The first input of the decoder."""
        return self.bos_id if self.decoder_start_id is None else self.decoder_start_id

    @property
    def n_forced(self) -> int:
        """The number of forced tokens at the beginning of a target, before the first that a search chooses."""
        return int(self.force_bos)

    @property
    def n_source_prefix(self) -> int:
        """The number of special tokens before the ids of a source."""
        return int(self.source_bos)

    def with_source_bos(self, ids: Sequence[int]) -> Sequence[int]:
        """Put BOS before the ids of a source, or of a target to train on, if this model has it there."""
        return [self.bos_id, *ids] if self.source_bos else ids

    def with_bos(self, ids: list[int]) -> list[int]:
        """Put BOS before the prompt of a decoder-only model, if this model has it there, or if the prompt is empty."""
        adds_bos = self.bos_id != self.eos_id if self.adds_bos is None else self.adds_bos
        return [self.bos_id, *ids] if adds_bos or not ids else ids

    def check(self, vocab_size: int) -> None:
        """Raise a UserError for ids that are not in the vocabulary."""
        largest = max(*self.all_ids, *self.forbidden_ids)
        if largest >= vocab_size:
            raise UserError(
                f"'special_ids' has the id {largest}, but the last id of the vocabulary is {vocab_size - 1}"
            )


SPECIAL_IDS = SpecialIds()  # of the tokenizers that heedful trains
