"""What a step needs of a model that reads one text and writes another, whatever its family."""

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from heedful.models.model_info import ENCODER_DECODERS, wrong_family
from heedful.models.model_io import LoadedModel
from heedful.nn.kv_cache import Cache
from heedful.nn.stacks import Memory
from heedful.text.special_ids import SpecialIds


class Settings(Protocol):
    @property
    def special_ids(self) -> SpecialIds: ...

    @property
    def max_len(self) -> int:
        """The most tokens that either side was made for, marks counted."""


class EncoderDecoder(Protocol):
    """What every encoder-decoder has: it reads once, and then writes with what it keeps of the past."""

    @property
    def config(self) -> Settings: ...

    @property
    def max_length(self) -> int | None:
        """The most tokens that it can write, if there is a limit."""

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory: ...

    def decode(self, target: Tensor, memory: Memory, *, cache: Cache | None = None) -> Tensor: ...

    def hidden_states(self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None) -> Tensor: ...

    @property
    def head(self) -> Callable[[Tensor], Tensor]:
        """From `hidden_states` to logits."""

    def make_cache(self) -> Cache: ...


def encoder_decoder(loaded: LoadedModel) -> EncoderDecoder:
    """The model of a folder, if it reads one text and writes another; else a UserError that says what runs it."""
    if loaded.family not in ENCODER_DECODERS:
        raise wrong_family(loaded.folder or "this model", loaded.family, *ENCODER_DECODERS)
    return cast(EncoderDecoder, loaded.model)


def device_of(model: EncoderDecoder) -> torch.device:
    return next(module_of(model).parameters()).device


def module_of(model: EncoderDecoder) -> nn.Module:
    assert isinstance(model, nn.Module)
    return model
