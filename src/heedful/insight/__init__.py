"""Look inside a model: attention, predictions, beam search, logit lens, ablations, and the intermediate vectors.

    from heedful.insight import look_at_decoder, look_at_encoder, open_look_model

    model = open_look_model("runs/en-de")              # load once, then look at many sentences
    heedful.look(model, "A dog runs.").save("page.html")
    look_at_encoder("runs/bert", "A [MASK] runs.")     # a BERT or a ViT
    look_at_decoder("runs/book", "Once upon a")        # a GPT

`heedful.look` is the function of the module `look`, and `trace` records the tensors of any forward pass
(`from heedful.insight.trace import trace`). docs/look.md describes the trace file. The names below are imported when
they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.insight.ablation import Head, without_heads
    from heedful.insight.attention_maps import TokenAttention, cross_attention
    from heedful.insight.inputs import LookModel, open_look_model
    from heedful.insight.look import Look
    from heedful.insight.look_decoder import DecoderLook, look_at_decoder
    from heedful.insight.look_encoder import EncoderLook, look_at_encoder
    from heedful.insight.trace import Trace

__all__ = [
    "DecoderLook",
    "EncoderLook",
    "Head",
    "Look",
    "LookModel",
    "TokenAttention",
    "Trace",
    "cross_attention",
    "look_at_decoder",
    "look_at_encoder",
    "open_look_model",
    "without_heads",
]

_MODULES = {
    "DecoderLook": "look_decoder",
    "EncoderLook": "look_encoder",
    "Head": "ablation",
    "Look": "look",
    "LookModel": "inputs",
    "TokenAttention": "attention_maps",
    "Trace": "trace",
    "cross_attention": "attention_maps",
    "look_at_decoder": "look_decoder",
    "look_at_encoder": "look_encoder",
    "open_look_model": "inputs",
    "without_heads": "ablation",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
