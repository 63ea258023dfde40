"""The protocol of an engine: requests in, hypotheses out. Imports no torch.

`TorchEngine` runs every model. `CTranslate2Engine` (encoder-decoder models) and `CTranslate2Generator` (decoder-only
models) are faster, for models and settings with which CTranslate2 computes the same results. `AutoEngine` uses
CTranslate2 where it can, and torch for the rest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request, check_ids
from heedful.decoding.search.settings import SearchSettings
from heedful.models.configs import GptConfig, read_config
from heedful.models.model_info import wrong_family
from heedful.text.special_ids import SpecialIds

if TYPE_CHECKING:
    from heedful.models.gpt import Gpt


@runtime_checkable
class Engine(Protocol):
    """Searches for the best texts with one model, or with an ensemble. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """As in `open_engine(…, engine=name)`."""

    def why_not(self, requests: Sequence[Request], settings: SearchSettings) -> str | None:
        """Why this engine cannot run these requests with the torch engine's results; None if it can.

        Without requests, the answer is for the settings alone.
        """

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        """Find the n best hypotheses of each request, best first, in the order of the requests."""

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        """Yield the ids of the best hypothesis, a few at a time, as they are found.

        What cannot be known early comes in one piece: the result of a beam, for example.
        """


@dataclass(frozen=True)
class DecoderOnlyInfo:
    """The facts of a decoder-only model that prompts are checked with."""

    vocab_size: int
    window: int  # the most tokens that the model reads at once
    special_ids: SpecialIds

    @property
    def ends(self) -> list[int]:
        """The ids that end a text. A model whose end id is outside of its vocabulary never ends a text."""
        return [id for id in (self.special_ids.eos_id, *self.special_ids.extra_eos_ids) if id < self.vocab_size]

    def check(self, requests: Sequence[Request], settings: SearchSettings) -> None:
        """Refuse ids that the model does not have."""
        check_ids(requests, settings, source_vocab_size=self.vocab_size, target_vocab_size=self.vocab_size)


class DecoderOnlyEngine(Engine, Protocol):
    """An engine that continues prompts: the source of a request is the prompt."""

    @property
    def info(self) -> DecoderOnlyInfo:
        """The facts of the model."""

    @property
    def torch_model(self) -> "Gpt":
        """The model in torch. An engine without one raises a UserError."""


def read_decoder_only_info(folder: Path) -> DecoderOnlyInfo:
    """Read the facts of a decoder-only model from its config.json."""
    family, config = read_config(folder)
    if not isinstance(config, GptConfig):
        raise wrong_family(folder, family, "gpt")
    return DecoderOnlyInfo(config.vocab_size, config.max_len, config.special_ids)
