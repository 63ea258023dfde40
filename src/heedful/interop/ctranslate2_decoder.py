"""A decoder-only model as CTranslate2 describes one: GPT-2's shape and Llama's."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from heedful.interop.ctranslate2_outline import Outline
from heedful.interop.ctranslate2_parts import Floats, Parts


def decoder_only(outline: Outline, weights: Mapping[str, Floats]) -> Any:
    """CTranslate2's description, filled with the model's numbers."""
    from ctranslate2 import specs

    parts = Parts(outline, weights)
    decoder = specs.TransformerDecoderSpec(
        outline.n_layers,
        outline.n_heads,
        with_encoder_attention=False,
        num_heads_kv=outline.n_kv_heads or outline.n_heads,
        **parts.wiring(),
        **_rotary(outline),
    )
    decoder.embeddings.weight = weights["embedding.table.weight"]
    decoder.scale_embeddings = np.float32(outline.embedding_scale)
    if outline.positions == "learned":
        decoder.position_encodings.encodings = weights["positions.table.weight"]
    for number, layer in enumerate(decoder.layer):
        own = layer.self_attention
        parts.attention(own, f"layers.{number}.attention", scale=_score_scale(outline, parts.d_head, number))
        parts.feed_forward(layer.ffn, f"layers.{number}.feed_forward")
        if outline.positions == "none":
            own.relative_attention_bias, own.relative_attention_max_distance = parts.no_bias()
        if hasattr(own, "rotary_scaling_long_factor"):
            own.rotary_scaling_long_factor = own.rotary_scaling_short_factor = stretches(outline, parts.d_head)
    parts.norm(decoder.layer_norm, "final_norm")
    decoder.projection.weight = parts.first(
        "head.linear.weight", "embedding.table.weight"
    )  # tied, it is not in the file
    return specs.TransformerDecoderModelSpec(decoder)


def _rotary(outline: Outline) -> dict[str, Any]:
    """All of a head's numbers are turned, in halves."""
    from ctranslate2.specs.attention_spec import RotaryScalingType

    if outline.positions != "rotary":
        return {}
    rotary = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": outline.rotary.base}
    if outline.rotary.factor == 1.0:
        return rotary
    # Of its kinds of stretching this one has a factor for each wave, and so can say what all others say. (For that of
    # Llama 3, 4.8.4 has no room to say by how much.) Where both lengths are one, its scores are not scaled as well.
    lengths = {"original_max_position_embeddings": outline.max_len, "max_position_embeddings": outline.max_len}
    return {**rotary, **lengths, "rotary_scaling_type": RotaryScalingType.Su}


def stretches(outline: Outline, d_head: int) -> Floats:
    """How many times as long each wave becomes: `nn.positions.Stretch`."""
    waves, n = outline.rotary, d_head // 2
    kept = np.zeros(n)
    if waves.first_len is not None:
        rounds = waves.first_len * waves.base ** (-np.arange(n) / n) / (2 * np.pi)
        kept = np.clip((rounds - waves.low) / (waves.high - waves.low), 0, 1)
    return np.float32(1) / (kept + (1 - kept) / waves.factor).astype(np.float32)


def _score_scale(outline: Outline, d_head: int, number: int) -> float:
    """What q . k is multiplied by, as in `models.gpt`."""
    by_head = d_head**-0.5 if outline.scaled_by in ("head", "head_and_layer") else 1.0
    return by_head / (number + 1) if outline.scaled_by in ("layer", "head_and_layer") else by_head
