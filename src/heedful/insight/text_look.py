"""Look at a language model while it goes on from a prompt: who attends to whom, what it says, and from which layer on.

seen = look_at_text("runs/book", "Once upon a")
seen.steps[-1].top              # the likeliest tokens of the last step
seen.lens[2].steps              # what it would have said after two layers
seen.weights                    # (layers, H, T, T)
seen.save("attention.svg")

All of it is of one pass over the prompt and what the model wrote after it, always the likeliest token.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from heedful.config import to_values
from heedful.decoding.writing.generator import Continuation, Generator
from heedful.errors import UserError
from heedful.files import file_aside
from heedful.insight.attention import CrossAttention
from heedful.insight.encoder_look import check_encoder_suffix
from heedful.insight.lens import DecoderLayerLens
from heedful.insight.outputs import OutputStep, lens_steps, output_steps
from heedful.insight.packing import pack, to_plain
from heedful.insight.picture import attention_picture
from heedful.insight.plot import plot_attention
from heedful.insight.trace import Trace, trace
from heedful.models.gpt import Gpt
from heedful.nn.record import structural_copy

FORMAT, VERSION = "heedful-text-trace", 1
LONGEST = 256  # tokens; attention is quadratic, and a picture must stay readable
NEW = 24  # tokens that the model adds


@dataclass(frozen=True)
class TextLook:
    """What a language model did with one text: row t is the token that was read, step t what it foretold from it."""

    config: dict[str, object]
    prompt: str
    text: str  # what the model wrote after it
    n_prompt: int  # tokens of the prompt, its start mark counted
    complete: bool  # the model ended the text
    tokens: tuple[str, ...]  # (T,)
    ids: tuple[int, ...]
    steps: tuple[OutputStep, ...]  # (T,): the token that came next, its probability and its rivals
    lens: tuple[DecoderLayerLens, ...]  # before the first layer, and after each: what it would say there
    weights: Tensor = field(repr=False)  # (layers, H, T, T), float32; each row sums to one
    tensors: dict[str, Tensor] = field(repr=False)  # all named tensors of the pass, by module path

    def to_json(self) -> str:
        values = {
            "format": FORMAT,
            "version": VERSION,
            "family": "gpt",
            "config": self.config,
            "prompt": self.prompt,
            "text": self.text,
            "n_prompt": self.n_prompt,
            "complete": self.complete,
            "tokens": list(self.tokens),
            "ids": list(self.ids),
            "steps": to_plain(self.steps),
            "lens": to_plain(self.lens),
            "attention": pack(self.weights, "u16").to_json(),
        }
        return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def save(self, path: str | Path, *, layer: int | None = None, head: int | None = None) -> Path:
        """By its suffix: .json and .npz everything, .svg .png .pdf a picture; `layer` and `head` count from 1."""
        path = Path(path)
        check_encoder_suffix(path)
        how = {"layer": layer, "head": head}
        writers: dict[str, Callable[[BinaryIO], object]] = {
            ".json": lambda file: file.write(self.to_json().encode("utf-8", "replace") + b"\n"),
            ".npz": self._write_npz,
            ".svg": lambda file: file.write(
                attention_picture(self.maps(), kind="decoder", **how).encode("utf-8", "replace")
            ),
            ".png": lambda file: plot_attention(self.maps(), file, format="png", kind="decoder", **how),
            ".pdf": lambda file: plot_attention(self.maps(), file, format="pdf", kind="decoder", **how),
        }
        with file_aside(path) as file:
            writers[path.suffix.lower()](file)
        return path

    def maps(self) -> CrossAttention:
        """For the pictures that attention of texts has."""
        return CrossAttention(self.tokens, self.tokens, self.weights)

    def _write_npz(self, file: BinaryIO) -> None:
        arrays = {
            "trace": np.frombuffer(self.to_json().encode("utf-8", "replace"), np.uint8),
            "ids": np.array(self.ids),
            "attention": self.weights.numpy(),
            **{f"tensors/{name}": tensor.float().cpu().numpy() for name, tensor in self.tensors.items()},
        }
        np.savez_compressed(file, allow_pickle=False, **arrays)


@torch.inference_mode()
def look_at_text(model: Generator | str | Path, prompt: str, *, max_len: int = NEW) -> TextLook:
    """Let the model go on from a prompt by at most `max_len` tokens, and keep all that happens."""
    generator = model if isinstance(model, Generator) else Generator.load(model)
    tokenizer, gpt = generator.tokenizer, generator.model
    given = generator.prompt_ids(prompt)
    longest = min(LONGEST, gpt.config.max_len)
    if len(given) + max_len > longest:
        room = longest - max_len
        raise UserError(f"look: the prompt has {len(given)} tokens, and look shows {room} at most: give one sentence")
    [[best]] = generator.search_ids([given], max_len=max_len)
    whole = [*given, *best.ids, *([gpt.config.marks.end_id] if best.complete else [])]
    read, came = whole[:-1], whole[1:]
    with trace(structural_copy(gpt).eval()) as t:
        logits = t.model(torch.tensor([read], device=generator.step.device))[0]
    weights = [t[f"layers.{number}.attention.weights"][0] for number in range(gpt.config.n_layers)]
    return TextLook(
        config=to_values(gpt.config),
        prompt=prompt,
        text=Continuation(tokenizer, given).whole(best.ids),
        n_prompt=len(given),
        complete=best.complete,
        tokens=tuple(tokenizer.pieces(read)),
        ids=tuple(read),
        steps=output_steps(logits, came, tokenizer),
        lens=tuple(DecoderLayerLens(number, lens_steps(said, came, tokenizer)) for number, said in enumerate(_said(t))),
        weights=torch.stack(weights).float().cpu(),
        tensors={name: calls[-1] for name, calls in t.calls.items()},
    )


def _said(t: Trace[Gpt]) -> list[Tensor]:
    """The logits (T, V) if the model stopped before its first layer, or after each (nostalgebraist 2020)."""
    model = t.model
    states = [t["positions"], *(t[f"layers.{number}"] for number in range(len(model.layers)))]
    return [model.head(model.final_norm(one))[0] for one in states]
