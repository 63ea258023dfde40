"""The decoder's step, laid out for speed: the same numbers as the model's own, with less work around them.

- Queries, keys and values of a layer come from one product.
- Keys and values are kept as (columns, rows, heads, K): a step writes one column, a reordering copies only what is
  used, and columns that no row needs any more fall off the front for nothing.
- Rows may be of different ages: row r began in column starts[r], and its position is counted from there. So a finished
  sentence's place can be taken by a new one while the others go on.
- The hypotheses of a beam read one copy of their sentence's memory, as that many queries to it.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.collate import pad_sources
from heedful.decoding.search.step import rows_of
from heedful.decoding.steps.packed_linear import Function, Linear, fused, quick_feed_forward
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.nn.attention import MultiHeadAttention, attention_weights, share_heads
from heedful.nn.layers import DecoderLayer
from heedful.nn.masks import as_additive
from heedful.nn.positions import Sinusoidal, sinusoidal_code

BLOCK = 32  # columns taken at a time


def supports_fast_step(config: Seq2SeqConfig) -> bool:
    """Whether this step computes that model: full attention, and norms that look at one token."""
    return config.pattern.kind == "full" and config.norm != "batch" and not config.special_ids.source_bos


class FastSeq2SeqState:
    """The keys and values of a batch of `n` sentences, `width` rows for each."""

    def __init__(self, memory: list[tuple[Tensor, Tensor]], real: Tensor, width: int, *, watched: bool) -> None:
        self.memory = memory  # for each layer, (n, H, S, K) twice
        self.real = real  # (n, S): which keys of the memory are tokens
        self.width = width
        self.watched = watched
        self.attention: Tensor | None = None
        self.query: Tensor | None = None  # of the last layer's cross-attention, if watched
        self.past: list[tuple[Tensor, Tensor]] = []  # for each layer, (columns, N, H, K) twice
        self._spare: list[tuple[Tensor, Tensor]] = []  # the past before it was last reordered: room to write in
        self.starts = torch.zeros(len(real) * width, dtype=torch.int64, device=real.device)  # (N,)
        self.length = 0  # columns written
        self.first = 0  # the first column that some row still needs
        self._refresh()

    def reorder(self, rows: Tensor) -> None:
        self._take_past(rows)  # starts belong to the sentence, and rows stay in theirs

    def keep(self, sentences: Tensor) -> None:
        rows = rows_of(sentences, self.width)
        self._take_past(rows)
        self.starts = self.starts[rows]
        self.memory = [(k[sentences], v[sentences]) for k, v in self.memory]
        self.real = self.real[sentences]
        self._refresh()

    def put(self, places: Tensor, memory: list[tuple[Tensor, Tensor]], real: Tensor) -> None:
        """New sentences in old places; they begin with the next column."""
        wider = real.size(1) - self.real.size(1)
        if wider > 0:
            self.memory = [(_padded(k, wider), _padded(v, wider)) for k, v in self.memory]
            self.real = F.pad(self.real, (0, wider))
        width = real.size(1)
        for (k, v), (new_k, new_v) in zip(self.memory, memory, strict=True):
            k[places, :, :width], v[places, :, :width] = new_k, new_v
        self.real[places] = F.pad(real, (0, self.real.size(1) - width))
        self.starts[rows_of(places, self.width)] = self.length
        self._refresh()

    def make_room(self) -> None:
        """Before a step: a column for it."""
        if self.past and self.length == len(self.past[0][0]):
            self._take_past(None)

    def column(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the newest column of a layer, (N, H, K) twice; all columns that are needed, as (N, H, C, K)."""
        if len(self.past) <= layer:
            self.past.append((k.new_empty(BLOCK, *k.shape), v.new_empty(BLOCK, *v.shape)))
        keys, values = self.past[layer]
        keys[self.length], values[self.length] = k, v
        needed = slice(self.first, self.length + 1)
        return keys[needed].permute(1, 2, 0, 3), values[needed].permute(1, 2, 0, 3)

    def past_mask(self) -> Tensor | None:
        """(N, 1, 1, C): which columns each row has written itself; None if all have all."""
        if not self._mixed:
            return None
        columns = torch.arange(self.first, self.length + 1, device=self.starts.device)
        return (columns >= self.starts[:, None])[:, None, None]

    def _refresh(self) -> None:
        """What follows from starts and real, and is the same for many steps."""
        first = int(self.starts.min()) if len(self.starts) else 0
        self._mixed = bool((self.starts != first).any())
        self.first = first
        self.memory_mask = None if bool(self.real.all()) else self.real[:, None, None]
        longest = int(self.real.sum(dim=1).max()) if len(self.real) else 0
        if longest <= 0.75 * self.real.size(1):  # the longest sentences are gone
            self.real = self.real[:, :longest].clone()
            self.memory = [(k[:, :, :longest].contiguous(), v[:, :, :longest].contiguous()) for k, v in self.memory]
            self.memory_mask = None if bool(self.real.all()) else self.real[:, None, None]

    def _take_past(self, rows: Tensor | None) -> None:
        """The given rows of the columns in use, with room for more; what fell off the front stays behind."""
        used = slice(self.first, self.length)
        spare: Sequence[tuple[Tensor | None, Tensor | None]] = self._spare or [(None, None)] * len(self.past)
        self.past, self._spare = (
            [
                (_taken(k[used], rows, old_k), _taken(v[used], rows, old_v))
                for (k, v), (old_k, old_v) in zip(self.past, spare, strict=True)
            ],
            self.past,
        )
        self.starts = self.starts - self.first
        self.length -= self.first
        self.first = 0


class FastSeq2SeqStep:
    """The step of an encoder-decoder with full attention."""

    refills = True

    def __init__(self, model: Seq2Seq) -> None:
        if not supports_fast_step(model.config):
            raise ValueError("this model's attention or norm needs the reference step")
        self.model = model
        self.device = next(model.parameters()).device
        self.max_len = model.max_length
        self.special_ids = model.config.special_ids
        self.table, self.scale = model.target_embedding.table.weight, model.target_embedding.scale
        self.positions = model.target_positions
        self.codes = self.table.new_empty(0)  # of sinusoidal positions, as many as were needed so far
        self.bias = model.decoder.bias
        self.layers = [FastDecoderLayer(layer, model.config.residual) for layer in model.decoder.layers]  # type: ignore[arg-type]
        self.final_norm = model.decoder.final_norm
        self.head = Linear(model.head.linear.weight, model.head.linear.bias)

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> FastSeq2SeqState:
        memory, real = self._read(sources)
        return FastSeq2SeqState(memory, real, width, watched=attention)

    def replace(self, state: FastSeq2SeqState, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        state.put(places, *self._read(sources))

    def __call__(self, tokens: Tensor, state: FastSeq2SeqState) -> Tensor:
        state.make_room()
        positions = state.length - state.starts  # (N,)
        if self.max_len is not None:  # of a sentence that is over and still there, nobody reads what follows
            positions = positions.clamp(max=self.max_len - 1)
        x = self._placed(F.embedding(tokens, self.table) * self.scale, positions, state.length - state.first + 1)
        mask, bias = state.past_mask(), None
        if self.bias is not None:
            columns = torch.arange(state.first, state.length + 1, device=tokens.device)
            bias = self.bias(positions[:, None], columns - state.starts[:, None]).to(x.dtype)  # (N, H, 1, C)
        if bias is not None and mask is not None:
            bias, mask = bias + as_additive(mask, bias.dtype), None
        for number, layer in enumerate(self.layers):
            x = layer(x, state, number, positions, mask if bias is None else bias)
        if state.watched:
            state.attention = self.layers[-1].looked_at(state, len(self.layers) - 1)
        state.length += 1
        return self.head(x if self.final_norm is None else self.final_norm(x))

    def _placed(self, x: Tensor, positions: Tensor, n_positions: int) -> Tensor:
        """The embeddings (N, D) with their positions; sines and cosines are looked up, not computed again."""
        if not isinstance(self.positions, Sinusoidal):
            placed: Tensor = self.positions(x[:, None], positions[:, None])[:, 0]
            return placed
        codes = self.codes  # lanes share it: another may put a shorter one there at any time
        if len(codes) < n_positions:
            every = torch.arange(2 * n_positions, device=x.device)
            self.codes = codes = sinusoidal_code(every, x.size(1), layout=self.positions.layout).to(x.dtype)
        return x + codes[positions]

    def _read(self, sources: Sequence[Sequence[int]]) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        source, mask = (x.to(self.device) for x in pad_sources(sources, special_ids=self.special_ids))
        states = self.model.encode(source, mask).states
        return [
            layer.remember(states[number if len(states) > 1 else 0]) for number, layer in enumerate(self.layers)
        ], mask


class FastDecoderLayer:
    """One decoder layer on the newest tokens, (N, D) -> (N, D)."""

    def __init__(self, layer: DecoderLayer, residual: str) -> None:
        own, cross = layer.attention, layer.cross_attention
        self.own, self.cross = own, cross
        self.to_qkv = fused(own.to_q, own.to_k, own.to_v)
        self.to_memory = fused(cross.to_k, cross.to_v)
        self.to_query, self.own_out, self.cross_out = fused(cross.to_q), fused(own.to_out), fused(cross.to_out)
        self.feed_forward = quick_feed_forward(layer.feed_forward)
        parts = (layer.attention_residual, layer.cross_attention_residual, layer.feed_forward_residual)
        self.norms: list[Function] = [part.get_submodule("norm") for part in parts]
        self.residual = residual

    def __call__(
        self, x: Tensor, state: FastSeq2SeqState, number: int, positions: Tensor, mask: Tensor | None
    ) -> Tensor:
        x = self._around(x, 0, lambda y: self._look_back(y, state, number, positions, mask))
        x = self._around(x, 1, lambda y: self._look_across(y, state, number))
        return self._around(x, 2, self.feed_forward)

    def remember(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(n, S, D) -> keys and values (n, H, S, K), once for a sentence."""
        heads = self.to_memory(memory.flatten(0, 1)).view(*memory.shape[:2], -1, self.cross.d_head).transpose(1, 2)
        k, v = (share_heads(part, self.cross.n_heads).contiguous() for part in heads.chunk(2, dim=1))
        return k, v

    def looked_at(self, state: FastSeq2SeqState, number: int) -> Tensor:
        """The cross-attention of the step just taken, heads averaged: (N, S)."""
        assert state.query is not None
        weights = attention_weights(state.query, state.memory[number][0], state.memory_mask, scale=self.cross.scale)
        return weights.mean(dim=1).flatten(0, 1)  # (n, width, S)

    def _around(self, x: Tensor, part: int, f: Function) -> Tensor:
        norm = self.norms[part]
        if self.residual == "post":
            return norm(x + f(x))
        return x + f(norm(x)) if self.residual == "pre" else norm(f(x))

    def _look_back(
        self, x: Tensor, state: FastSeq2SeqState, number: int, positions: Tensor, mask: Tensor | None
    ) -> Tensor:
        own = self.own
        heads = self.to_qkv(x).view(len(x), -1, own.d_head)  # (N, H + 2 H', K)
        q, k, v = torch.split(heads, [own.n_heads, own.n_kv_heads, own.n_kv_heads], dim=1)
        if own.rotary is not None:
            q, k = (own.rotary(part[:, :, None], positions[:, None])[:, :, 0] for part in (q, k))
        keys, values = state.column(number, k, v)
        return self.own_out(_attend(own, q[:, :, None], keys, values, mask))

    def _look_across(self, x: Tensor, state: FastSeq2SeqState, number: int) -> Tensor:
        cross = self.cross
        q = self.to_query(x).view(-1, state.width, cross.n_heads, cross.d_head).transpose(1, 2)  # (n, H, width, K)
        if state.watched:
            state.query = q
        return self.cross_out(_attend(cross, q, *state.memory[number], state.memory_mask))


def _attend(attention: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """(…, H, rows, K) -> (N, H x K)."""
    k, v = share_heads(k, attention.n_heads), share_heads(v, attention.n_heads)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=attention.scale)
    return mixed.transpose(1, 2).reshape(-1, attention.n_heads * attention.d_head)


def _taken(columns: Tensor, rows: Tensor | None, spare: Tensor | None) -> Tensor:
    """Rows of the columns, and room for half as many columns again; in the spare's memory, if it is large enough."""
    n_rows = columns.size(1) if rows is None else len(rows)
    if spare is None or spare.size(1) != n_rows or len(spare) <= len(columns):
        n_blocks = -(-(len(columns) + len(columns) // 2 + 1) // BLOCK)
        spare = columns.new_empty(n_blocks * BLOCK, n_rows, *columns.shape[2:])
    if rows is None:
        spare[: len(columns)] = columns
    else:
        torch.index_select(columns, 1, rows, out=spare[: len(columns)])
    return spare


def _padded(x: Tensor, n: int) -> Tensor:
    return F.pad(x, (0, 0, 0, n))
