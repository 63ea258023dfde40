"""The parts of a Transformer: tensors in, tensors out. Imports nothing else of heedful.

One legend for all shapes in the package:

    B batch        S source length (keys)     T target length (queries)     D d_model
    H heads        K d_head                   F d_ff                        V vocabulary       N = B x beams

A mask is boolean and True means "may attend". Positions are whole numbers, (T,) or (B, T).

>>> import torch
>>> from heedful.nn import MultiHeadAttention, causal_mask
>>> attention = MultiHeadAttention(d_model=32, n_heads=4)
>>> attention(torch.randn(2, 7, 32), mask=causal_mask(7)).shape
torch.Size([2, 7, 32])
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.nn.adaptive_computation import ActOutput, Halting, Recurrence
    from heedful.nn.attention import (
        AdditiveAttend,
        Attend,
        MultiHeadAttention,
        attend,
        attend_causal,
        attend_fused,
        attention_weights,
    )
    from heedful.nn.cpu import Linear
    from heedful.nn.dropout import Dropout
    from heedful.nn.embeddings import ClassToken, MaskToken, PatchEmbedding, TokenEmbedding, from_patches, to_patches
    from heedful.nn.feedforward import FEED_FORWARDS, FeedForward, GatedFeedForward
    from heedful.nn.heads import ClassificationHead, MaskedHead, PatchHead, Pooler, TokenClassifier, VocabularyHead
    from heedful.nn.init import INITS
    from heedful.nn.kv_cache import Cache, KeyValueStore
    from heedful.nn.layers import RESIDUALS, DecoderLayer, EncoderLayer, NoResidual, PostNorm, PreNorm
    from heedful.nn.masks import causal_mask, combine, document_mask, padding_mask
    from heedful.nn.norms import NORMS, BatchNorm, LayerNorm, RMSNorm
    from heedful.nn.positions import Alibi, Learned, NoPositions, RelativeBias, RopeScaling, Rotary, Sinusoidal
    from heedful.nn.recording import record_attention
    from heedful.nn.sparse_attention import (
        PATTERNS,
        Dilated,
        Local,
        PatternAttention,
        Sparse,
        Strided,
        TopKAttention,
        Window,
        pattern_mask,
    )
    from heedful.nn.stacks import Decoder, Encoder, LastLayer, LearnedMix, MatchingLayer, Memory

__all__ = [
    "FEED_FORWARDS",
    "INITS",
    "NORMS",
    "PATTERNS",
    "RESIDUALS",
    "ActOutput",
    "AdditiveAttend",
    "Alibi",
    "Attend",
    "BatchNorm",
    "Cache",
    "ClassToken",
    "ClassificationHead",
    "Decoder",
    "DecoderLayer",
    "Dilated",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "GatedFeedForward",
    "Halting",
    "KeyValueStore",
    "LastLayer",
    "LayerNorm",
    "Learned",
    "LearnedMix",
    "Linear",
    "Local",
    "MaskToken",
    "MaskedHead",
    "MatchingLayer",
    "Memory",
    "MultiHeadAttention",
    "NoPositions",
    "NoResidual",
    "PatchEmbedding",
    "PatchHead",
    "PatternAttention",
    "Pooler",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "Recurrence",
    "RelativeBias",
    "RopeScaling",
    "Rotary",
    "Sinusoidal",
    "Sparse",
    "Strided",
    "TokenClassifier",
    "TokenEmbedding",
    "TopKAttention",
    "VocabularyHead",
    "Window",
    "attend",
    "attend_causal",
    "attend_fused",
    "attention_weights",
    "causal_mask",
    "combine",
    "document_mask",
    "from_patches",
    "padding_mask",
    "pattern_mask",
    "record_attention",
    "to_patches",
]

# file -> its public names, which are imported when they are first used
_FILES = {
    "adaptive_computation": ("ActOutput", "Halting", "Recurrence"),
    "attention": (
        "AdditiveAttend",
        "Attend",
        "MultiHeadAttention",
        "attend",
        "attend_causal",
        "attend_fused",
        "attention_weights",
    ),
    "cpu": ("Linear",),
    "dropout": ("Dropout",),
    "embeddings": ("ClassToken", "MaskToken", "PatchEmbedding", "TokenEmbedding", "from_patches", "to_patches"),
    "feedforward": ("FEED_FORWARDS", "FeedForward", "GatedFeedForward"),
    "heads": ("ClassificationHead", "MaskedHead", "PatchHead", "Pooler", "TokenClassifier", "VocabularyHead"),
    "init": ("INITS",),
    "kv_cache": ("Cache", "KeyValueStore"),
    "layers": ("RESIDUALS", "DecoderLayer", "EncoderLayer", "NoResidual", "PostNorm", "PreNorm"),
    "masks": ("causal_mask", "combine", "document_mask", "padding_mask"),
    "norms": ("NORMS", "BatchNorm", "LayerNorm", "RMSNorm"),
    "positions": ("Alibi", "Learned", "NoPositions", "RelativeBias", "RopeScaling", "Rotary", "Sinusoidal"),
    "recording": ("record_attention",),
    "sparse_attention": (
        "PATTERNS",
        "Dilated",
        "Local",
        "PatternAttention",
        "Sparse",
        "Strided",
        "TopKAttention",
        "Window",
        "pattern_mask",
    ),
    "stacks": ("Decoder", "Encoder", "LastLayer", "LearnedMix", "MatchingLayer", "Memory"),
}
_WHERE = {name: f"heedful.nn.{file}" for file, names in _FILES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'heedful.nn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
