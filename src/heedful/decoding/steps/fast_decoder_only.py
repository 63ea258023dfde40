"""The fast decoding step of a decoder-only model: it reads prompts at once, then one token of each row in a step.

For the search, the prompt is the source, and what it generates continues it. All but the last token of a prompt are
read at once; the first step feeds that last token instead of a start token. The prompts of a batch end in the same
column of the `KVCache`; shorter ones begin later. When a text outgrows the model's window, its last half is read again,
from position 0.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.decoding.search.step import rows_of
from heedful.decoding.steps.packed_linear import PackedLinear, fused, norm_function, packed_feed_forward
from heedful.decoding.steps.row_cache import KVCache
from heedful.models.gpt import Gpt
from heedful.nn.layers import EncoderLayer
from heedful.nn.positions import Learned, Rotary

CosSin = tuple[Tensor, Tensor]  # cosines and sines of rotary positions, (N, 1, K/2) each


class FastDecoderOnlyState:
    """The cache of N rows, `width` for each prompt: a tensor of keys and values for each layer, and one of the ids."""

    attention: Tensor | None = None  # there is no source to attend to

    def __init__(self, n_prompts: int, width: int, device: torch.device) -> None:
        self.width = width
        self.cache = KVCache(n_prompts * width, device)
        self.last = torch.zeros(n_prompts * width, dtype=torch.int64, device=device)  # (N,): of each prompt
        self.begins = torch.zeros(n_prompts * width, dtype=torch.bool, device=device)  # (N,): `last` was not fed yet
        self.any_begins = False

    def reorder(self, rows: Tensor) -> None:
        self.cache.reorder(rows)

    def keep(self, slots: Tensor) -> None:
        rows = rows_of(slots, self.width)
        self.cache.select_rows(rows)
        self.last, self.begins = self.last[rows], self.begins[rows]

    def tokens_to_feed(self, tokens: Tensor) -> Tensor:
        """Return the tokens of the search, (N,), or the last token of a prompt that was only read so far."""
        if self.any_begins:
            tokens = torch.where(self.begins, self.last, tokens)
            self.begins, self.any_begins = torch.zeros_like(self.begins), False
        return tokens


class FastDecoderOnlyStep:
    """The step of a decoder-only model, with packed weights and one product for queries, keys and values."""

    refills = True
    max_len = None  # a text may outgrow the window

    def __init__(self, model: Gpt) -> None:
        config = model.config
        self.model = model
        self.special_ids = config.special_ids
        self.window = config.max_len
        self.device = next(model.parameters()).device
        self.table = model.embedding.table.weight.detach()
        learned = model.positions
        self.position_table = learned.table.weight.detach() if isinstance(learned, Learned) else None
        self.layers = [FastDecoderOnlyLayer(layer) for layer in model.layers]  # type: ignore[arg-type]
        self.rotary = self.layers[0].rotary
        self.cos_sin: CosSin | None = None  # of the positions needed so far, (T, K/2) each
        self.final_norm = norm_function(model.final_norm)
        self.head = PackedLinear(model.head.linear.weight, model.head.linear.bias)

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> FastDecoderOnlyState:
        state = FastDecoderOnlyState(len(sources), width, self.device)
        self.replace(state, torch.arange(len(sources), device=self.device), sources)
        return state

    def replace(self, state: FastDecoderOnlyState, slots: Tensor, sources: Sequence[Sequence[int]]) -> None:
        rows = rows_of(slots, state.width)
        prompts = [list(source)[-self.window :] for source in sources for _ in range(state.width)]
        self._read(state, rows, [prompt[:-1] for prompt in prompts])
        state.last[rows] = torch.tensor([prompt[-1] for prompt in prompts], device=self.device)
        state.begins[rows] = state.any_begins = True

    def __call__(self, tokens: Tensor, state: FastDecoderOnlyState) -> Tensor:
        """Feed the newest token of each row, (N,) -> logits (N, V)."""
        tokens, cache = state.tokens_to_feed(tokens), state.cache
        if cache.longest >= self.window:
            self._move_window(state)
        cache.make_room()
        positions = cache.positions  # (N,)
        x = F.embedding(tokens, self.table)
        if self.position_table is not None:
            x = x + F.embedding(positions, self.position_table)
        cos_sin = None if self.rotary is None else self._rotations(self.rotary, positions, cache.longest)
        mask = cache.mask()
        for number, layer in enumerate(self.layers):
            x = layer(x, cache, number, cos_sin, mask)
        cache.write(len(self.layers), tokens[:, None, None])
        cache.length += 1
        return self.head(self.final_norm(x))

    def _move_window(self, state: FastDecoderOnlyState) -> None:
        """Read the last half of each row that fills the window again."""
        cache = state.cache
        rows = torch.nonzero(cache.positions >= self.window).flatten()
        ids = cache.tensors[-1][cache.length - self.window // 2 : cache.length, rows, 0, 0].t()
        self._read(state, rows, ids.tolist())

    def _read(self, state: FastDecoderOnlyState, rows: Tensor, texts: Sequence[Sequence[int]]) -> None:
        """Feed whole texts to rows, one text for each, which forget their past."""
        lengths = torch.tensor([len(text) for text in texts], device=self.device)
        longest = int(lengths.max())
        ids = torch.full((len(texts), longest), self.special_ids.pad_id, dtype=torch.int64)
        for row, text in enumerate(texts):
            ids[row, longest - len(text) :] = torch.tensor(text, dtype=torch.int64)
        ids = ids.to(self.device)
        model_cache = self.model.make_cache()
        if longest:
            real = torch.arange(longest, device=self.device) >= longest - lengths[:, None]
            self.model.hidden_states(ids, real, cache=model_cache)
            pasts = [torch.cat(layer.past.read(), dim=1) for layer in model_cache.layers]  # (n, 2 H', T, K)
        else:
            config = self.model.config
            n_heads = 2 * (config.n_kv_heads or config.n_heads)
            pasts = [self.table.new_empty(len(texts), n_heads, 0, config.head_width)] * len(self.layers)
        state.cache.write_prompt(rows, [*pasts, ids[:, None, :, None]], lengths)

    def _rotations(self, rotary: Rotary, positions: Tensor, longest: int) -> CosSin:
        """Look up the cosines and sines of positions, instead of computing them."""
        cos_sin = self.cos_sin  # shared by all lanes: another lane may replace it by shorter tables at any time
        if cos_sin is None or len(cos_sin[0]) <= longest:
            every = torch.arange(2 * longest + 2, device=self.device)
            self.cos_sin = cos_sin = rotary.cos_sin(every, self.table.dtype)
        cos, sin = cos_sin
        return F.embedding(positions, cos)[:, None], F.embedding(positions, sin)[:, None]


class FastDecoderOnlyLayer:
    """One layer for the newest tokens, (N, D) -> (N, D)."""

    def __init__(self, layer: EncoderLayer) -> None:
        attention = layer.attention
        self.n_heads, self.n_kv_heads = attention.n_heads, attention.n_kv_heads
        self.d_head = attention.d_head
        self.scale = attention.scale
        self.rotary = attention.rotary
        self.to_qkv, self.to_out = fused(attention.to_q, attention.to_k, attention.to_v), fused(attention.to_out)
        self.feed_forward = packed_feed_forward(layer.feed_forward)
        self.attention_norm = norm_function(layer.attention_residual.get_submodule("norm"))
        self.feed_forward_norm = norm_function(layer.feed_forward_residual.get_submodule("norm"))

    def __call__(self, x: Tensor, cache: KVCache, number: int, cos_sin: CosSin | None, mask: Tensor | None) -> Tensor:
        x = x + self._attend_to_past(self.attention_norm(x), cache, number, cos_sin, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))

    def _attend_to_past(
        self, x: Tensor, cache: KVCache, number: int, cos_sin: CosSin | None, mask: Tensor | None
    ) -> Tensor:
        heads = self.to_qkv(x).view(len(x), -1, self.d_head)  # (N, H + 2 H', K): queries, keys, values
        n_heads, n_kv_heads = self.n_heads, self.n_kv_heads
        if self.rotary is not None and cos_sin is not None:
            rotated = self.rotary.rotate(heads.narrow(1, 0, n_heads + n_kv_heads), *cos_sin)
            heads = torch.cat((rotated, heads.narrow(1, n_heads + n_kv_heads, n_kv_heads)), dim=1)
        past = cache.write(number, heads.narrow(1, n_heads, 2 * n_kv_heads))
        keys, values = past.narrow(1, 0, n_kv_heads), past.narrow(1, n_kv_heads, n_kv_heads)  # (N, H', C, K)
        queries = heads.narrow(1, 0, n_heads)
        queries = queries.reshape(len(x), n_kv_heads, -1, self.d_head)  # the queries that share a key head
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=self.scale)
        return self.to_out(mixed.reshape(len(x), -1))  # (N, H', H / H', K) -> (N, D)
