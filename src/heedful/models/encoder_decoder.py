"""The interface that all encoder-decoders share, for decoding, evaluation and insight."""

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from heedful.models.configs import EncoderDecoderConfig
from heedful.models.model_info import ENCODER_DECODERS, wrong_family
from heedful.models.model_io import LoadedModel
from heedful.nn.kv_cache import Cache
from heedful.nn.stacks import Memory


class EncoderDecoder(Protocol):
    """An encoder-decoder of any family; see `heedful.models.seq2seq.Seq2Seq` for the methods."""

    @property
    def config(self) -> EncoderDecoderConfig: ...

    @property
    def max_length(self) -> int | None:
        """The longest text on either side; None: no limit."""

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Memory: ...

    def decode(self, target: Tensor, memory: Memory, *, cache: Cache | None = None) -> Tensor: ...

    def hidden_states(self, target: Tensor, memory: Memory, *, target_mask: Tensor | None = None) -> Tensor: ...

    @property
    def head(self) -> Callable[[Tensor], Tensor]:
        """The output layer: hidden states -> logits."""

    def make_cache(self) -> Cache: ...


def encoder_decoder(loaded: LoadedModel) -> EncoderDecoder:
    """Return the model if it is an encoder-decoder; otherwise raise a UserError that names the command that runs it."""
    if loaded.family not in ENCODER_DECODERS:
        raise wrong_family(loaded.folder or "this model", loaded.family, *ENCODER_DECODERS)
    return cast(EncoderDecoder, loaded.model)


def device_of(model: EncoderDecoder) -> torch.device:
    return next(module_of(model).parameters()).device


def module_of(model: EncoderDecoder) -> nn.Module:
    assert isinstance(model, nn.Module)
    return model
