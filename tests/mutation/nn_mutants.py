"""Bugs to plant in the parts of the Transformer."""

from mutant_kind import Mutant

ATTENTION = ("nn/test_attention.py", "models/test_torch_parity.py")
PATTERNS = ("nn/test_sparse_attention.py",)
POSITIONS = ("nn/test_positions.py",)
WHOLE = ("models/test_seq2seq_properties.py", "models/test_torch_parity.py", "models/test_seq2seq.py")

IN_ATTENTION = [
    Mutant(
        "scores are not divided by sqrt(K)",
        "nn/attention.py",
        "scores = q @ k.transpose(-2, -1) * scale  # (B, H, T, S)",
        "scores = q @ k.transpose(-2, -1)  # (B, H, T, S)",
        ATTENTION,
    ),
    Mutant(
        "scores are divided by K instead of its root",
        "nn/attention.py",
        "scale = q.size(-1) ** -0.5 if scale is None else scale",
        "scale = q.size(-1) ** -1.0 if scale is None else scale",
        ATTENTION,
    ),
    Mutant(
        "the fused kernel ignores the scale argument",
        "nn/cpu.py",
        "scale=scale, dropout_p=dropout",
        "dropout_p=dropout",
        ATTENTION,
    ),
    Mutant(
        "the mask is inverted in the formula",
        "nn/attention.py",
        "scores.masked_fill(~mask & has_key, -torch.inf)",
        "scores.masked_fill(mask & has_key, -torch.inf)",
        ATTENTION,
    ),
    Mutant(
        "masked scores become zero instead of minus infinity",
        "nn/attention.py",
        "scores.masked_fill(~mask & has_key, -torch.inf)",
        "scores.masked_fill(~mask & has_key, 0.0)",
        ATTENTION,
    ),
    Mutant(
        "a query whose keys are all masked is NaN",
        "nn/attention.py",
        "scores.masked_fill(~mask & has_key, -torch.inf)",
        "scores.masked_fill(~mask, -torch.inf)",
        ATTENTION,
    ),
    Mutant(
        "a query whose keys are all masked attends to all of them",
        "nn/attention.py",
        "return weights * has_key",
        "return weights",
        ATTENTION,
    ),
    Mutant(
        "the fused kernel ignores the mask if there is a bias",
        "nn/attention.py",
        "mask = bias if mask is None else bias + as_additive(mask, bias.dtype)",
        "mask = bias",
        ATTENTION,
    ),
    Mutant(
        "shared key heads are interleaved over the query heads",
        "nn/attention.py",
        "x.repeat_interleave(groups, dim=1)",
        "x.repeat(1, groups, 1, 1)",
        ATTENTION,
    ),
    Mutant(
        "the features of the heads are interleaved when they are merged",
        "nn/attention.py",
        "mixed.transpose(1, 2).flatten(2)",
        "mixed.permute(0, 2, 3, 1).flatten(2)",
        ATTENTION,
    ),
    Mutant(
        "attention weights are dropped outside training",
        "nn/attention.py",
        "dropout=self.dropout if self.training else 0.0",
        "dropout=self.dropout",
        ATTENTION,
    ),
    Mutant(
        "additive attention without its tanh",
        "nn/attention.py",
        "torch.tanh(q[:, :, :, None, :] + k[:, :, None, :, :])",
        "(q[:, :, :, None, :] + k[:, :, None, :, :])",
        ATTENTION,
    ),
    Mutant(
        "rotary positions apply to the queries only",
        "nn/attention.py",
        "k = self.rotary(k, positions)",
        "k = self.rotary(k, torch.zeros_like(positions))",
        ("nn/test_stacks.py",),
    ),
    Mutant(
        "cross-attention adds the memory's keys to its cache at each step",
        "nn/attention.py",
        "if cache is not None and memory is not None and cache.length > 0:",
        "if cache is not None and memory is not None and cache.length < 0:",
        ("nn/test_kv_cache.py",),
    ),
]

IN_MASKS = [
    Mutant("a causal mask shows the next token", "nn/masks.py", "[None, :] <= query", "[None, :] <= query + 1", WHOLE),
    Mutant("a causal mask hides a token from itself", "nn/masks.py", "[None, :] <= query", "[None, :] < query", WHOLE),
    Mutant(
        "with a cache, the causal mask aligns queries with the first keys",
        "nn/masks.py",
        "query = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]",
        "query = torch.arange(n_queries, device=device)[:, None]",
        ("nn/test_masks.py",),
    ),
    Mutant(
        "a packed document attends to the documents before it",
        "nn/masks.py",
        "documents[:, None, :, None] == documents[:, None, None, :]",
        "documents[:, None, :, None] >= documents[:, None, None, :]",
        ("nn/test_stacks.py",),
    ),
    Mutant(
        "combined masks allow what any of them allows",
        "nn/masks.py",
        "combined = combined & mask",
        "combined = combined | mask",
        ("nn/test_masks.py",),
    ),
]

IN_PATTERNS = [
    Mutant(
        "local attention misses the farthest neighbour",
        "nn/sparse_attention.py",
        "(query - key).abs() <= self.span",
        "(query - key).abs() < self.span",
        PATTERNS,
    ),
    Mutant(
        "windows of attention begin one position early",
        "nn/sparse_attention.py",
        "query // self.span == key // self.span",
        "(query + 1) // self.span == (key + 1) // self.span",
        PATTERNS,
    ),
    Mutant(
        "strided attention reads two positions of each stride",
        "nn/sparse_attention.py",
        "(query - key) % self.span == 0",
        "(query - key) % self.span <= 1",
        PATTERNS,
    ),
    Mutant(
        "the gaps of dilated attention do not widen",
        "nn/sparse_attention.py",
        "back = [-(1 << i) for i in range(",
        "back = [-(i + 1) for i in range(",
        PATTERNS,
    ),
    Mutant(
        "a global key inside the own block counts twice",
        "nn/sparse_attention.py",
        "(near >= n_global) & (near < length)",
        "(near >= 0) & (near < length)",
        PATTERNS,
    ),
    Mutant(
        "keys before the beginning of the sequence count as the first key",
        "nn/sparse_attention.py",
        "(near >= n_global) & (near < length)",
        "near < length",
        PATTERNS,
    ),
    Mutant(
        "attention in blocks reads padding",
        "nn/sparse_attention.py",
        "may = may & real[:, key][:, :, None, :]  # (B, n, width, M)",
        "pass",
        PATTERNS,
    ),
    Mutant(
        "a causal pattern attends to the future",
        "nn/sparse_attention.py",
        "return allowed & (key <= query) if pattern.causal else allowed",
        "return allowed",
        ("models/test_seq2seq_properties.py",),
    ),
    Mutant(
        "top-k attention keeps one key too many",
        "nn/sparse_attention.py",
        ".topk(min(self.span, k.size(2)), dim=-1)",
        ".topk(min(self.span + 1, k.size(2)), dim=-1)",
        PATTERNS,
    ),
    Mutant(
        "top-k attention keeps the lowest scores",
        "nn/sparse_attention.py",
        ".topk(min(self.span, k.size(2)), dim=-1)",
        ".topk(min(self.span, k.size(2)), dim=-1, largest=False)",
        PATTERNS,
    ),
    Mutant(
        "gathered values come from the query's position, not the key's",
        "nn/sparse_attention.py",
        "mixed[:, :, here].addcmul_(weights[:, :, here, i, None], v[:, :, there])",
        "mixed[:, :, here].addcmul_(weights[:, :, here, i, None], v[:, :, here])",
        PATTERNS,
    ),
]

IN_POSITIONS = [
    Mutant(
        "sinusoidal positions have wrong frequencies",
        "nn/positions.py",
        "torch.arange(n, dtype=torch.float64) / n)",
        "torch.arange(n, dtype=torch.float64) / (n + 1))",
        POSITIONS,
    ),
    Mutant(
        "sine and cosine are swapped",
        "nn/positions.py",
        "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)",
        "torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)",
        POSITIONS,
    ),
    Mutant(
        "rotary pairs are halves instead of interleaved",
        "nn/positions.py",
        "first, second = x[..., 0::2], x[..., 1::2]",
        "first, second = x.chunk(2, dim=-1)",
        POSITIONS,
    ),
    Mutant(
        "rotary positions rotate backwards",
        "nn/positions.py",
        "torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)",
        "torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1)",
        POSITIONS,
    ),
    Mutant(
        "relative buckets are off by one",
        "nn/positions.py",
        "torch.where(distance < n_exact, distance, far)",
        "torch.where(distance <= n_exact, distance, far + 1).clamp(max=n_buckets - 1)",
        POSITIONS,
    ),
    Mutant(
        "relative buckets of past and future are exchanged",
        "nn/positions.py",
        "bucket = (distance > 0) * n_buckets",
        "bucket = (distance < 0) * n_buckets",
        POSITIONS,
    ),
    Mutant("ALiBi rewards distance", "nn/positions.py", "return -slopes[", "return slopes[", POSITIONS),
    Mutant(
        "ALiBi's extra slopes between powers of two are wrong",
        "nn/positions.py",
        "for i in range(0, 2 * (n_heads - power), 2)]",
        "for i in range(n_heads - power)]",
        POSITIONS,
    ),
]

IN_LAYERS = [
    Mutant(
        "BatchNorm counts padding",
        "nn/norms.py",
        "x.flatten(0, 1) if real is None else x[real]",
        "x.flatten(0, 1)",
        ("nn/test_norms.py",),
    ),
    Mutant(
        "BatchNorm's running variance is the biased one",
        "nn/norms.py",
        "unbiased = var * n / max(n - 1, 1)",
        "unbiased = var",
        ("nn/test_norms.py",),
    ),
    Mutant(
        "post-norm without the residual connection",
        "nn/layers.py",
        "self.norm(x + self.dropout(f(x)), real)",
        "self.norm(self.dropout(f(x)), real)",
        ("nn/test_layers.py",),
    ),
    Mutant(
        "pre-norm adds the normalized input instead of the input",
        "nn/layers.py",
        "return x + added",
        "return self.norm(x, real) + added",
        ("nn/test_layers.py",),
    ),
    Mutant(
        "cross-attention reads the padding of the source",
        "nn/layers.py",
        "mask=memory_mask, cache=projected",
        "mask=None, cache=projected",
        WHOLE,
    ),
    Mutant(
        "a gated feed-forward network has no activation on its gate",
        "nn/feedforward.py",
        "self.activation(self.gate(x)) * self.inner(x)",
        "self.gate(x) * self.inner(x)",
        ("nn/test_layers.py",),
    ),
    Mutant(
        "embeddings are not multiplied by sqrt(d_model)",
        "nn/embeddings.py",
        "self.table(ids) * self.scale",
        "self.table(ids)",
        ("nn/test_embeddings.py",),
    ),
    Mutant(
        "tied weights are copied instead of shared",
        "nn/heads.py",
        "    linear.weight = table.weight",
        "    linear.weight = nn.Parameter(table.weight.detach().clone())",
        ("nn/test_embeddings.py", "models/test_seq2seq.py"),
    ),
    Mutant(
        "T5's queries are initialised with the scale of its keys",
        "nn/init.py",
        "std=(module.to_q.in_features * module.d_head) ** -0.5",
        "std=module.to_q.in_features**-0.5",
        ("nn/test_init.py",),
    ),
    Mutant(
        "decoder layers read the layer of the encoder below the right one",
        "nn/stacks.py",
        "-(-(i + 1) * n_encoder_layers // n_decoder_layers) - 1 for i",
        "max(0, -(-i * n_encoder_layers // n_decoder_layers) - 1) for i",
        ("nn/test_stacks.py",),
    ),
    Mutant(
        "the relative bias of a cached step belongs to the first positions",
        "nn/stacks.py",
        "torch.arange(cache.length + x.size(1), device=x.device)",
        "torch.arange(x.size(1), device=x.device)",
        WHOLE,
    ),
    Mutant(
        "the KV cache reorders keys without values",
        "nn/kv_cache.py",
        "self._keys, self._values = self._keys[rows], self._values[rows]",
        "self._keys, self._values = self._keys[rows], self._values[rows.sort().values]",
        ("nn/test_kv_cache.py",),
    ),
    Mutant(
        "the KV cache loses a column when it grows",
        "nn/kv_cache.py",
        "larger[:, :, :length] = x[:, :, :length]",
        "larger[:, :, : length - 1] = x[:, :, : length - 1]",
        ("nn/test_kv_cache.py",),
    ),
]

IN_NN = [*IN_ATTENTION, *IN_MASKS, *IN_PATTERNS, *IN_POSITIONS, *IN_LAYERS]
