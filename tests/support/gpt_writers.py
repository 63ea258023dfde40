"""Small decoder-only models with clear predictions, and their engines, converted in this process."""

from pathlib import Path

import torch

from deterministic import fill, whole_numbers
from heedful.decoding.engines.base import DecoderOnlyInfo
from heedful.decoding.engines.ctranslate2_generator import CTranslate2Generator
from heedful.decoding.search.request import Hypothesis, Request
from heedful.interop.ctranslate2.cache import Converted
from heedful.interop.ctranslate2.convert_process import conversion_info
from heedful.interop.ctranslate2.spec import ct2_model, write_model
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import LoadedModel

SIZES = {"vocab_size": 60, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "max_len": 64}
LLAMA = {
    "positions": "rotary", "norm": "rms", "norm_eps": 1e-6, "activation": "swiglu", "attention_bias": False,
    "feed_forward_bias": False, "n_kv_heads": 2, "tied": False,
}  # fmt: skip
SHAPES = {"gpt2": {}, "llama": LLAMA}


def make_gpt(**changes) -> Gpt:
    """Return a model with large weights, so that its texts vary and rounding does not decide a search."""
    model = fill(Gpt(GptConfig(**{**SIZES, **changes})), dtype=torch.float32)
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.to_q.weight.mul_(4.0)
            layer.attention.to_out.weight.mul_(4.0)
            layer.feed_forward.outer.weight.mul_(8.0)
        model.final_norm.weight.mul_(3.0)
    return model


def convert_here(model: Gpt, folder: Path) -> Converted:
    folder.mkdir(parents=True)
    config, weights = ct2_model(LoadedModel("gpt", model, None))
    write_model(config, weights, folder)
    return Converted(folder, folder, conversion_info(config, "", folder))


def make_writer(model: Gpt, folder: Path, **options) -> CTranslate2Generator:
    config = model.config
    shape = DecoderOnlyInfo(config.vocab_size, config.max_len, config.special_ids)
    return CTranslate2Generator(convert_here(model, folder), shape, **{"threads": 1, **options})


def some_prompts(n: int, *, longest: int = 19, below: int = 60) -> list[Request]:
    lengths = whole_numbers(n, below=longest + 1, first=1, name="lengths").tolist()
    return [
        Request(whole_numbers(length, below=below, first=4, name=f"prompt {number}").tolist(), continues=True)
        for number, length in enumerate(lengths)
    ]


@torch.inference_mode()
def tie(model: Gpt, request: Request, a: Hypothesis, b: Hypothesis) -> float:
    """Return the difference of log-probabilities where two hypotheses first differ; 0 if they are equal."""
    ends = [[*each.ids, model.config.special_ids.eos_id] if each.complete else each.ids for each in (a, b)]
    for place, (left, right) in enumerate(zip(*ends, strict=False)):
        if left != right:
            row = model(torch.tensor([[*request.source, *ends[0][:place]]]))[0, -1].log_softmax(dim=-1)
            return abs(float(row[left] - row[right]))
    return 0.0 if len(ends[0]) == len(ends[1]) else float("inf")
