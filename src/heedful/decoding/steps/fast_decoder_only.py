"""The step of a decoder-only model: read prompts, then feed one token to each row.

What a search calls the source is the prompt, and what it writes continues it. The prompt is read at once, up to its
last token, which the first step feeds in place of a start mark. Prompts of one batch end in the same column: shorter
ones begin later (`Columns`). Where a text outgrows the model's window, the last half of it is read again from
position 0.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.decoding.search.step import rows_of
from heedful.decoding.steps.packed_linear import Linear, fused, quick_feed_forward, quick_norm
from heedful.decoding.steps.row_cache import Columns
from heedful.models.gpt import Gpt
from heedful.nn.layers import EncoderLayer
from heedful.nn.positions import Learned, Rotary

Waves = tuple[Tensor, Tensor]  # cosine and sine of rotary positions, (N, 1, K/2) each


class FastDecoderOnlyState:
    """N rows, `width` for each prompt. For each layer a tensor keeps keys and values, (N, 2 H', columns, K), and a
    last one the ids themselves.
    """

    attention: Tensor | None = None  # there is no memory to look at

    def __init__(self, n_prompts: int, width: int, device: torch.device) -> None:
        self.width = width
        self.columns = Columns(n_prompts * width, device)
        self.last = torch.zeros(n_prompts * width, dtype=torch.int64, device=device)  # (N,): of each prompt
        self.begins = torch.zeros(n_prompts * width, dtype=torch.bool, device=device)  # (N,): `last` is still to be fed
        self.any_begins = False

    def reorder(self, rows: Tensor) -> None:
        self.columns.reorder(rows)

    def keep(self, sentences: Tensor) -> None:
        rows = rows_of(sentences, self.width)
        self.columns.take(rows)
        self.last, self.begins = self.last[rows], self.begins[rows]

    def newest(self, tokens: Tensor) -> Tensor:
        """What to feed: the tokens of the search, or a prompt's last where it has only been read so far."""
        if self.any_begins:
            tokens = torch.where(self.begins, self.last, tokens)
            self.begins, self.any_begins = torch.zeros_like(self.begins), False
        return tokens


class FastDecoderOnlyStep:
    """Laid out for speed: queries, keys and values from one product, weights packed, nothing copied but on demand."""

    refills = True
    max_len = None  # a text may grow beyond the window

    def __init__(self, model: Gpt) -> None:
        config = model.config
        self.model = model
        self.special_ids = config.special_ids
        self.window = config.max_len
        self.device = next(model.parameters()).device
        self.table = model.embedding.table.weight.detach()
        learned = model.positions
        self.places = learned.table.weight.detach() if isinstance(learned, Learned) else None
        self.layers = [FastDecoderOnlyLayer(layer) for layer in model.layers]  # type: ignore[arg-type]
        self.rotary = self.layers[0].rotary
        self.waves: Waves | None = None  # of all positions so far
        self.final_norm = quick_norm(model.final_norm)
        self.head = Linear(model.head.linear.weight, model.head.linear.bias)

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> FastDecoderOnlyState:
        state = FastDecoderOnlyState(len(sources), width, self.device)
        self.replace(state, torch.arange(len(sources), device=self.device), sources)
        return state

    def replace(self, state: FastDecoderOnlyState, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        rows = rows_of(places, state.width)
        prompts = [list(source)[-self.window :] for source in sources for _ in range(state.width)]
        self._read(state, rows, [prompt[:-1] for prompt in prompts])
        state.last[rows] = torch.tensor([prompt[-1] for prompt in prompts], device=self.device)
        state.begins[rows] = state.any_begins = True

    def __call__(self, tokens: Tensor, state: FastDecoderOnlyState) -> Tensor:
        """(N,) -> logits (N, V)."""
        tokens, columns = state.newest(tokens), state.columns
        if columns.length - columns.first >= self.window:
            self._move_window(state)
        columns.make_room()
        positions = columns.length - columns.starts  # (N,)
        x = F.embedding(tokens, self.table)
        if self.places is not None:
            x = x + F.embedding(positions, self.places)
        waves = None if self.rotary is None else self._turns(self.rotary, positions, columns.length - columns.first)
        mask = columns.mask()
        for number, layer in enumerate(self.layers):
            x = layer(x, columns, number, waves, mask)
        columns.write(len(self.layers), tokens[:, None, None])
        columns.length += 1
        return self.head(self.final_norm(x))

    def _move_window(self, state: FastDecoderOnlyState) -> None:
        """Rows that fill the window are read again, the last half of them."""
        columns = state.columns
        rows = torch.nonzero(columns.length - columns.starts >= self.window).flatten()
        ids = columns.tensors[-1][rows, 0, columns.length - self.window // 2 : columns.length, 0]
        self._read(state, rows, ids.tolist())

    def _read(self, state: FastDecoderOnlyState, rows: Tensor, texts: Sequence[Sequence[int]]) -> None:
        """Feed whole texts to rows that forget what they had; a row for each text."""
        lengths = torch.tensor([len(text) for text in texts], device=self.device)
        longest = int(lengths.max())
        ids = torch.full((len(texts), longest), self.special_ids.pad_id, dtype=torch.int64)
        for row, text in enumerate(texts):
            ids[row, longest - len(text) :] = torch.tensor(text, dtype=torch.int64)
        ids = ids.to(self.device)
        cache = self.model.make_cache()
        if longest:
            real = torch.arange(longest, device=self.device) >= longest - lengths[:, None]
            self.model.hidden_states(ids, real, cache=cache)
            pasts = [torch.cat(layer.past.read(), dim=1) for layer in cache.layers]
        else:
            config = self.model.config
            n_kept = 2 * (config.n_kv_heads or config.n_heads)
            pasts = [self.table.new_empty(len(texts), n_kept, 0, config.head_width)] * len(self.layers)
        state.columns.lay(rows, [*pasts, ids[:, None, :, None]], lengths)

    def _turns(self, rotary: Rotary, positions: Tensor, furthest: int) -> Waves:
        """Cosines and sines are looked up, not computed again."""
        waves = self.waves  # lanes share them: another may put shorter ones there at any time
        if waves is None or len(waves[0]) <= furthest:
            every = torch.arange(2 * furthest + 2, device=self.device)
            self.waves = waves = rotary.cos_sin(every, self.table.dtype)
        cos, sin = waves
        return F.embedding(positions, cos)[:, None], F.embedding(positions, sin)[:, None]


class FastDecoderOnlyLayer:
    """One layer on the newest tokens, (N, D) -> (N, D)."""

    def __init__(self, layer: EncoderLayer) -> None:
        attention = layer.attention
        self.n_heads, self.n_kv_heads = attention.n_heads, attention.n_kv_heads
        self.d_head = attention.d_head
        self.scale = attention.scale
        self.rotary = attention.rotary
        self.to_qkv, self.to_out = fused(attention.to_q, attention.to_k, attention.to_v), fused(attention.to_out)
        self.feed_forward = quick_feed_forward(layer.feed_forward)
        self.attention_norm = quick_norm(layer.attention_residual.get_submodule("norm"))
        self.feed_forward_norm = quick_norm(layer.feed_forward_residual.get_submodule("norm"))

    def __call__(self, x: Tensor, columns: Columns, number: int, waves: Waves | None, mask: Tensor | None) -> Tensor:
        x = x + self._look_back(self.attention_norm(x), columns, number, waves, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))

    def _look_back(self, x: Tensor, columns: Columns, number: int, waves: Waves | None, mask: Tensor | None) -> Tensor:
        heads = self.to_qkv(x).view(len(x), -1, self.d_head)  # (N, H + 2 H', K): queries, keys, values
        n_heads, n_kv_heads = self.n_heads, self.n_kv_heads
        if self.rotary is not None and waves is not None:
            turned = self.rotary.rotate(heads.narrow(1, 0, n_heads + n_kv_heads), *waves)
            heads = torch.cat((turned, heads.narrow(1, n_heads + n_kv_heads, n_kv_heads)), dim=1)
        past = columns.write(number, heads.narrow(1, n_heads, 2 * n_kv_heads))
        keys, values = past.narrow(1, 0, n_kv_heads), past.narrow(1, n_kv_heads, n_kv_heads)  # (N, H', C, K)
        queries = heads.narrow(1, 0, n_heads)
        queries = queries.reshape(len(x), n_kv_heads, -1, self.d_head)  # those of one key head are queries to it
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=self.scale)
        return self.to_out(mixed.reshape(len(x), -1))  # (N, H', H / H', K) -> (N, D)
