"""The step of any encoder-decoder, through the model itself: what every faster step is held equal to."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from heedful.data.collate import pad_sources
from heedful.decoding.search.step import rows_of
from heedful.models.encoder_decoder import EncoderDecoder, device_of, module_of
from heedful.nn.recording import record_attention
from heedful.nn.stacks import Memory


class Seq2SeqState:
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

    def keep(self, sentences: Tensor) -> None:
        self.memory = self.memory.rows(sentences)
        rows = rows_of(sentences, self.width)
        for layer in self.cache.layers:
            layer.past.reorder(rows)
            layer.memory.reorder(sentences)


class Seq2SeqStep:
    """The step of any encoder-decoder, through the model itself: the reference, for every variant."""

    refills = False  # the model's positions and patterns count from one common start

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model
        self.special_ids = model.config.special_ids
        self.device = device_of(model)
        self.max_len = model.max_length

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> Seq2SeqState:
        opened = [self.special_ids.with_source_bos(ids) for ids in sources]
        source, mask = (x.to(self.device) for x in pad_sources(opened, special_ids=self.special_ids))
        model, records = self.model, None
        if attention:
            twin, recorded = record_attention(module_of(model))
            model, records = cast(EncoderDecoder, twin), list(recorded.items())[-1][1]
            assert list(recorded)[-1].endswith("cross_attention"), "the last attention reads the memory"
        return Seq2SeqState(model, model.encode(source, mask), width, records)

    def replace(self, state: Seq2SeqState, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        raise NotImplementedError("all rows of the reference step are of one age")

    def __call__(self, tokens: Tensor, state: Seq2SeqState) -> Tensor:
        logits = state.model.decode(tokens[:, None], state.memory, cache=state.cache)[:, -1]
        if state.records is not None:
            looked = state.records[-1].mean(dim=1).flatten(0, -2)  # (n, H, width, S) -> (N, S)
            state.attention = looked[:, self.special_ids.n_source_prefix :]
            state.records.clear()
        return logits
