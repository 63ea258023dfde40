"""The names of the weights are part of the file format: a renamed module would make every saved model unreadable.

When a change is meant, and old folders are converted, write the list anew:  python tests/contract/test_keys.py
"""

from pathlib import Path

import torch

from heedful.models.gpt import Gpt, GptConfig
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig

STORED = Path(__file__).with_name("weight_keys.txt")


def tiny(**changes) -> Seq2Seq:
    sizes = {"d_model": 4, "n_layers": 1, "n_heads": 2, "d_ff": 6, "max_len": 5, "tied": "none"}
    with torch.device("meta"):
        return Seq2Seq(Seq2SeqConfig(7, 9, **{**sizes, **changes}))


def tiny_gpt(**changes) -> Gpt:
    sizes = {"d_model": 4, "n_layers": 1, "n_heads": 2, "d_ff": 6, "max_len": 5}
    with torch.device("meta"):
        return Gpt(GptConfig(9, **{**sizes, **changes}))


MODELS: dict[str, torch.nn.Module] = {
    "plain": tiny(),
    "pre, batch, learned, matching": tiny(residual="pre", norm="batch", positions="learned", join="matching"),
    "rms, relative, mix, additive, gated": tiny(
        norm="rms", positions="relative", join="mix", pattern=PatternConfig(kind="additive"), activation="swiglu"
    ),
    "gpt as GPT-2": tiny_gpt(),
    "gpt as Llama": tiny_gpt(
        positions="rotary", norm="rms", activation="swiglu", attention_bias=False, feed_forward_bias=False, tied=False
    ),
}


def names_and_shapes() -> str:
    lines = []
    for title, model in MODELS.items():
        lines.append(f"[{title}]")
        lines += [f"{name} {'x'.join(map(str, tensor.shape))}" for name, tensor in sorted(model.state_dict().items())]
    return "\n".join(lines) + "\n"


def test_names_and_shapes_of_the_weights_are_those_stored():
    assert names_and_shapes() == STORED.read_text(encoding="utf-8")


if __name__ == "__main__":
    STORED.write_text(names_and_shapes(), encoding="utf-8")
