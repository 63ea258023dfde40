"""The fast decoding step of an encoder-decoder: the same numbers as the model's own, with less work around them.

- Queries, keys and values of a layer come from one matrix product.
- The past of each row is in a `KVCache`: rows of different ages share a batch.
- The hypotheses of a beam read one copy of the keys and values of their source, as several queries to it.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.collate import pad_sources
from heedful.decoding.search.step import rows_of
from heedful.decoding.steps.packed_linear import Function, PackedLinear, fused, packed_feed_forward
from heedful.decoding.steps.row_cache import KVCache
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.nn.attention import MultiHeadAttention, attention_weights, share_heads
from heedful.nn.layers import DecoderLayer
from heedful.nn.masks import as_additive
from heedful.nn.positions import Sinusoidal, sinusoidal_code

Memory = list[tuple[Tensor, Tensor]]  # for each layer the keys and values of the sources, (B, H, S, K) each


def supports_fast_step(config: Seq2SeqConfig) -> bool:
    """Whether this step computes a model: it needs full attention, and norms of single tokens."""
    return config.pattern.kind == "full" and config.norm != "batch" and not config.special_ids.source_bos


class FastSeq2SeqState:
    """The memory of B slots, and the cache of their rows, `width` for each slot."""

    def __init__(self, memory: Memory, real: Tensor, width: int, *, keeps_attention: bool) -> None:
        self.memory = memory
        self.real = real  # (B, S): which keys of the memory are tokens, and no padding
        self.width = width
        self.keeps_attention = keeps_attention
        self.attention: Tensor | None = None
        self.query: Tensor | None = None  # of the last layer's cross-attention, if attention is kept
        self.cache = KVCache(len(real) * width, real.device)
        self._refresh()

    def reorder(self, rows: Tensor) -> None:
        self.cache.reorder(rows)

    def keep(self, slots: Tensor) -> None:
        self.cache.select_rows(rows_of(slots, self.width))
        self.memory = [(k[slots], v[slots]) for k, v in self.memory]
        self.real = self.real[slots]
        self._refresh()

    def replace(self, slots: Tensor, memory: Memory, real: Tensor) -> None:
        """Put new sources into slots. Their target tokens are stored from the next free column of the cache on."""
        wider = real.size(1) - self.real.size(1)
        if wider > 0:
            self.memory = [(_padded(k, wider), _padded(v, wider)) for k, v in self.memory]
            self.real = F.pad(self.real, (0, wider))
        width = real.size(1)
        for (k, v), (new_k, new_v) in zip(self.memory, memory, strict=True):
            k[slots, :, :width], v[slots, :, :width] = new_k, new_v
        self.real[slots] = F.pad(real, (0, self.real.size(1) - width))
        self.cache.restart(rows_of(slots, self.width))
        self._refresh()

    def _refresh(self) -> None:
        """Compute the mask of the memory, and drop padding that no source needs any more."""
        longest = int(self.real.sum(dim=1).max()) if len(self.real) else 0
        if longest <= 0.75 * self.real.size(1):
            self.real = self.real[:, :longest].clone()
            self.memory = [(k[:, :, :longest].contiguous(), v[:, :, :longest].contiguous()) for k, v in self.memory]
        self.memory_mask = None if bool(self.real.all()) else self.real[:, None, None]


class FastSeq2SeqStep:
    """The step of an encoder-decoder for which `supports_fast_step` is true."""

    refills = True

    def __init__(self, model: Seq2Seq) -> None:
        if not supports_fast_step(model.config):
            raise ValueError("the fast step does not support this model's attention or norm; use steps.reference")
        self.model = model
        self.device = next(model.parameters()).device
        self.max_len = model.max_length
        self.special_ids = model.config.special_ids
        self.table, self.scale = model.target_embedding.table.weight, model.target_embedding.scale
        self.positions = model.target_positions
        self.codes = self.table.new_empty(0)  # sinusoidal codes of the positions needed so far
        self.bias = model.decoder.bias
        self.layers = [FastDecoderLayer(layer, model.config.residual) for layer in model.decoder.layers]  # type: ignore[arg-type]
        self.final_norm = model.decoder.final_norm
        self.head = PackedLinear(model.head.linear.weight, model.head.linear.bias)

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> FastSeq2SeqState:
        memory, real = self._read(sources)
        return FastSeq2SeqState(memory, real, width, keeps_attention=attention)

    def replace(self, state: FastSeq2SeqState, slots: Tensor, sources: Sequence[Sequence[int]]) -> None:
        state.replace(slots, *self._read(sources))

    def __call__(self, tokens: Tensor, state: FastSeq2SeqState) -> Tensor:
        cache = state.cache
        cache.make_room()
        positions = cache.positions  # (N,)
        if self.max_len is not None:  # slots that are done may go beyond it: their results are not used
            positions = positions.clamp(max=self.max_len - 1)
        x = self._add_positions(F.embedding(tokens, self.table) * self.scale, positions, cache.longest + 1)
        mask, bias = cache.mask(), None
        if self.bias is not None:
            columns = torch.arange(cache.first, cache.length + 1, device=tokens.device)
            bias = self.bias(positions[:, None], columns - cache.starts[:, None]).to(x.dtype)  # (N, H, 1, C)
        if bias is not None and mask is not None:
            bias, mask = bias + as_additive(mask, bias.dtype), None
        for number, layer in enumerate(self.layers):
            x = layer(x, state, number, positions, mask if bias is None else bias)
        if state.keeps_attention:
            state.attention = self.layers[-1].cross_attention_of(state, len(self.layers) - 1)
        cache.length += 1
        return self.head(x if self.final_norm is None else self.final_norm(x))

    def _add_positions(self, x: Tensor, positions: Tensor, n_positions: int) -> Tensor:
        """Add the positions to embeddings (N, D). Sinusoidal codes are looked up instead of computed."""
        if not isinstance(self.positions, Sinusoidal):
            with_positions: Tensor = self.positions(x[:, None], positions[:, None])[:, 0]
            return with_positions
        codes = self.codes  # shared by all lanes: another lane may replace it by a shorter table at any time
        if len(codes) < n_positions:
            every = torch.arange(2 * n_positions, device=x.device)
            self.codes = codes = sinusoidal_code(every, x.size(1), layout=self.positions.layout).to(x.dtype)
        return x + codes[positions]

    def _read(self, sources: Sequence[Sequence[int]]) -> tuple[Memory, Tensor]:
        source, mask = (x.to(self.device) for x in pad_sources(sources, special_ids=self.special_ids))
        states = self.model.encode(source, mask).states
        memory = [layer.project(states[number if len(states) > 1 else 0]) for number, layer in enumerate(self.layers)]
        return memory, mask


class FastDecoderLayer:
    """One decoder layer for the newest tokens, (N, D) -> (N, D)."""

    def __init__(self, layer: DecoderLayer, residual: str) -> None:
        own, cross = layer.attention, layer.cross_attention
        self.own, self.cross = own, cross
        self.to_qkv = fused(own.to_q, own.to_k, own.to_v)
        self.to_memory = fused(cross.to_k, cross.to_v)
        self.to_query, self.own_out, self.cross_out = fused(cross.to_q), fused(own.to_out), fused(cross.to_out)
        self.feed_forward = packed_feed_forward(layer.feed_forward)
        parts = (layer.attention_residual, layer.cross_attention_residual, layer.feed_forward_residual)
        self.norms: list[Function] = [part.get_submodule("norm") for part in parts]
        self.residual = residual

    def __call__(
        self, x: Tensor, state: FastSeq2SeqState, number: int, positions: Tensor, mask: Tensor | None
    ) -> Tensor:
        x = self._with_residual(x, 0, lambda y: self._attend_to_past(y, state, number, positions, mask))
        x = self._with_residual(x, 1, lambda y: self._attend_to_memory(y, state, number))
        return self._with_residual(x, 2, self.feed_forward)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the keys and values of sources, (B, S, D) -> (B, H, S, K) each."""
        heads = self.to_memory(memory.flatten(0, 1)).view(*memory.shape[:2], -1, self.cross.d_head).transpose(1, 2)
        k, v = (share_heads(part, self.cross.n_heads).contiguous() for part in heads.chunk(2, dim=1))
        return k, v

    def cross_attention_of(self, state: FastSeq2SeqState, number: int) -> Tensor:
        """Return the cross-attention of the last step, averaged over heads: (N, S)."""
        assert state.query is not None
        weights = attention_weights(state.query, state.memory[number][0], state.memory_mask, scale=self.cross.scale)
        return weights.mean(dim=1).flatten(0, 1)  # (B, width, S)

    def _with_residual(self, x: Tensor, part: int, f: Function) -> Tensor:
        norm = self.norms[part]
        if self.residual == "post":
            return norm(x + f(x))
        return x + f(norm(x)) if self.residual == "pre" else norm(f(x))

    def _attend_to_past(
        self, x: Tensor, state: FastSeq2SeqState, number: int, positions: Tensor, mask: Tensor | None
    ) -> Tensor:
        own, n_kv_heads = self.own, self.own.n_kv_heads
        heads = self.to_qkv(x).view(len(x), -1, own.d_head)  # (N, H + 2 H', K): queries, keys, values
        if own.rotary is not None:
            n_rotated = own.n_heads + n_kv_heads
            rotated = own.rotary(heads[:, :n_rotated, None], positions[:, None])[:, :, 0]
            heads = torch.cat((rotated, heads[:, n_rotated:]), dim=1)
        past = state.cache.write(number, heads[:, own.n_heads :])  # (N, 2 H', C, K)
        q = heads[:, : own.n_heads, None]
        return self.own_out(_attend(own, q, past[:, :n_kv_heads], past[:, n_kv_heads:], mask))

    def _attend_to_memory(self, x: Tensor, state: FastSeq2SeqState, number: int) -> Tensor:
        cross = self.cross
        q = self.to_query(x).view(-1, state.width, cross.n_heads, cross.d_head).transpose(1, 2)  # (B, H, width, K)
        if state.keeps_attention:
            state.query = q
        return self.cross_out(_attend(cross, q, *state.memory[number], state.memory_mask))


def _attend(attention: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """(…, H, rows, K) -> (N, H x K)."""
    k, v = share_heads(k, attention.n_heads), share_heads(v, attention.n_heads)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=attention.scale)
    return mixed.transpose(1, 2).reshape(-1, attention.n_heads * attention.d_head)


def _padded(x: Tensor, n: int) -> Tensor:
    return F.pad(x, (0, 0, 0, n))
