"""The step of any encoder-decoder, through the model itself; the faster steps are tested against it."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from heedful.data.collate import pad_sources
from heedful.decoding.search.step import rows_of
from heedful.models.encoder_decoder import EncoderDecoder, device_of, module_of
from heedful.nn.kv_cache import Cache
from heedful.nn.recording import record_attention
from heedful.nn.stacks import Memory


class Seq2SeqState:
    """The memory of each slot and the model's own cache; `records` receives the weights of its last attention."""

    def __init__(self, model: EncoderDecoder, memory: Memory, width: int, records: list[Tensor] | None) -> None:
        self.model = model
        self.memory = memory
        self.records = records
        self.cache = model.make_cache()
        self.width = width
        self.attention: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        for layer in self.cache.layers:
            layer.past.reorder(rows)

    def keep(self, slots: Tensor) -> None:
        self.memory = self.memory.rows(slots)
        rows = rows_of(slots, self.width)
        for layer in self.cache.layers:
            layer.past.reorder(rows)
            layer.memory.reorder(slots)


class Seq2SeqStep:
    """The step of any encoder-decoder, through the model itself."""

    refills = False  # the model counts the positions of all rows from the same start

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model
        self.special_ids = model.config.special_ids
        self.device = device_of(model)
        self.max_len = model.max_length

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> Seq2SeqState:
        with_bos = [self.special_ids.with_source_bos(ids) for ids in sources]
        source, mask = (x.to(self.device) for x in pad_sources(with_bos, special_ids=self.special_ids))
        model, records = self.model, None
        if attention:
            twin, recorded = record_attention(module_of(model))
            model, records = cast(EncoderDecoder, twin), list(recorded.items())[-1][1]
            assert list(recorded)[-1].endswith("cross_attention"), "the last attention reads the memory"
        return Seq2SeqState(model, model.encode(source, mask), width, records)

    def replace(self, state: Seq2SeqState, slots: Tensor, sources: Sequence[Sequence[int]]) -> None:
        raise NotImplementedError("all rows of the reference step have the same age")

    def __call__(self, tokens: Tensor, state: Seq2SeqState) -> Tensor:
        logits = state.model.decode(tokens[:, None], state.memory, cache=state.cache)[:, -1]
        if state.records is not None:
            attention = state.records[-1].mean(dim=1).flatten(0, -2)  # (B, H, width, S) -> (N, S)
            state.attention = attention[:, self.special_ids.n_source_prefix :]
            state.records.clear()
        return logits


class ReferenceBlockStep:
    """Feeds several tokens at once to an encoder-decoder, for parallel decoding of one request at a time."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model
        self.special_ids = model.config.special_ids
        self.device = device_of(model)
        self.max_len = model.max_length
        self._memory: Memory | None = None
        self._cache: Cache | None = None

    def begin(self, source: Sequence[int]) -> None:
        ids = self.special_ids.with_source_bos(source)
        padded, mask = (x.to(self.device) for x in pad_sources([ids], special_ids=self.special_ids))
        self._memory, self._cache = self.model.encode(padded, mask), self.model.make_cache()

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        assert self._memory is not None, "begin with a source"
        target = torch.tensor([tokens], device=self.device)
        return self.model.decode(target, self._memory, cache=self._cache)[0]

    def truncate(self, length: int) -> None:
        assert self._cache is not None, "begin with a source"
        self._cache.cut(length)
