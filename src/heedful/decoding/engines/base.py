"""What every engine does: requests in, hypotheses out.

What goes on from prompts, whatever computes it: requests in, hypotheses out, at once or as they are written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from heedful.config import config_from_dict, read_json
from heedful.decoding.search.request import Hypothesis, Request, check_ids
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError
from heedful.models.model_info import CONFIG
from heedful.text.special_ids import SpecialIds

if TYPE_CHECKING:
    from heedful.models.gpt import Gpt


class Engine(Protocol):
    """Searches for the best translations. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """What a user calls it."""

    def search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        """The n best of each request, best first, in the order of the requests."""


@dataclass(frozen=True)
class DecoderOnlyInfo:
    """What must be known of a decoder-only model to put prompts before it."""

    vocab_size: int
    window: int  # the tokens that it reads at once
    special_ids: SpecialIds

    @property
    def ends(self) -> list[int]:
        """The ids that end a text; a model may have an end outside of its vocabulary, and then never ends."""
        return [
            number for number in (self.special_ids.eos_id, *self.special_ids.extra_eos_ids) if number < self.vocab_size
        ]

    def check(self, requests: Sequence[Request], settings: SearchSettings) -> None:
        """Refuse ids that the model does not have."""
        check_ids(requests, settings, source_vocab_size=self.vocab_size, target_vocab_size=self.vocab_size)


@runtime_checkable
class Writer(Protocol):
    """Goes on from prompts. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """What a user calls it."""

    @property
    def shape(self) -> DecoderOnlyInfo:
        """Of its model."""

    def in_torch(self) -> "Gpt":
        """Its model in torch."""

    def search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        """The n best of each request, best first, in the order of the requests."""

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        """The ids of the best, a few at a time, as they are written; those of a beam when it is decided."""


def read_shape(folder: Path) -> DecoderOnlyInfo:
    """Of the model in a folder, from its settings alone: no torch is imported."""
    values = read_json(folder / CONFIG)
    for name in ("vocab_size", "max_len"):
        if type(values.get(name)) is not int or values[name] < 1:
            raise UserError(f"{folder / CONFIG}: '{name}' must be a whole number above 0, found {values.get(name)!r}")
    special_ids = config_from_dict(SpecialIds, values.get("special_ids", {}), where=str(folder / CONFIG))
    return DecoderOnlyInfo(values["vocab_size"], values["max_len"], special_ids)
