"""Look at a language model while it goes on from a prompt: who attends to whom, what it says, and from which layer on.

seen = look_at_text("runs/book", "Once upon a")
seen.steps[-1].top              # the likeliest tokens of the last step
seen.lens[2].steps              # what it would have said after two layers
seen.weights                    # (layers, H, T, T)
seen.save("page.html")

All of it is of one pass over the prompt and what the model wrote after it, always the likeliest token.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.generator import Continuation, Generator
from heedful.errors import UserError
from heedful.insight.attention_maps import AttentionMaps, TokenAttention, attention_maps
from heedful.insight.attention_plot import draw_attention
from heedful.insight.inputs import ModelFacts, model_facts
from heedful.insight.logit_lens import DecoderLayerLens, logits_by_layer
from heedful.insight.look import OwnTranslation, TargetText
from heedful.insight.look_file import Arrays, LookFile, attention_arrays, trace_values
from heedful.insight.positions import Positions, position_facts
from heedful.insight.predictions import OutputStep, lens_steps, output_steps
from heedful.insight.trace import trace
from heedful.insight.walk import Walk, walk_through
from heedful.insight.word_spans import word_spans
from heedful.nn.recording import structural_copy
from heedful.text import Tokenizer
from heedful.text.tokenizer import generated_pieces

LONGEST = 256  # tokens; attention is quadratic, and a picture must stay readable
NEW = 24  # tokens that the model adds


@dataclass(frozen=True)
class TextLook(LookFile):
    """Everything about one text of a language model: row t is the token that it read, step t what it predicted next."""

    model: ModelFacts
    prompt: str
    target: TargetText  # the whole text: `inputs` are what was read, `tokens` what came after each
    continuation: OwnTranslation  # what the model wrote
    attention: AttentionMaps
    steps: tuple[OutputStep, ...]  # (T,): the token that came next, its probability and its rivals
    positions: Positions
    lens: tuple[DecoderLayerLens, ...]  # before the first layer, and after each: what it would say there
    walk: Walk
    tensors: dict[str, Tensor] = field(repr=False)  # all named tensors of the pass (Trace.tensors)

    @property
    def text(self) -> str:
        """What the model wrote after the prompt."""
        return self.continuation.text

    @property
    def complete(self) -> bool:
        """The model ended the text."""
        return self.continuation.complete

    @property
    def n_prompt(self) -> int:
        """Tokens of the prompt, its start mark counted."""
        return self.target.n_forced + 1

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.target.inputs

    @property
    def ids(self) -> tuple[int, ...]:
        return self.target.input_ids

    @property
    def weights(self) -> Tensor:
        """(layers, H, T, T), float32; each row sums to one."""
        return torch.from_numpy(self.attention.weights.values)

    def to_values(self) -> dict[str, object]:
        """The object of the trace file: that of a decoder without an encoder."""
        return trace_values(
            {
                "model": self.model,
                "target": self.target,
                "translation": self.continuation,
                "attention": {"decoder": self.attention},
                "steps": self.steps,
                "positions": self.positions,
                "lens": {"decoder": self.lens, "encoder": None},
                "walk": self.walk,
            }
        )

    def save(self, path: str | Path, *, layer: int | None = None, head: int | None = None) -> Path:
        """Write a page (.html), the trace file (.json), all arrays (.npz) or a picture (.svg, .png, .pdf).

        A picture shows one `layer` and `head`, counted from 1; by default the last layer and the mean of its heads.
        """
        return self._save(Path(path), layer=layer, head=head, kind="decoder")

    def maps(self) -> TokenAttention:
        """For the pictures that attention of texts has."""
        return TokenAttention(self.tokens, self.tokens, self.weights)

    def _draw(self, file: BinaryIO, format: str, *, layer: int | None, head: int | None, kind: str) -> None:
        draw_attention(self.maps(), file, format, layer=layer, head=head, kind=kind)

    def _arrays(self) -> Arrays:
        return {
            "target_ids": np.array(self.target.ids),
            "target_input_ids": np.array(self.ids),
            **attention_arrays({"decoder": self.attention}),
        }


@torch.inference_mode()
def look_at_text(model: Generator | str | Path, prompt: str, *, max_len: int = NEW) -> TextLook:
    """Let the model go on from a prompt by at most `max_len` tokens, and keep all that happens."""
    generator = model if isinstance(model, Generator) else Generator.load(model, engine="torch")
    name = "model" if isinstance(model, Generator) else Path(model).resolve().name
    tokenizer, gpt = generator.tokenizer, generator.model
    given = generator.prompt_ids(prompt)
    longest = min(LONGEST, gpt.config.max_len)
    if len(given) + max_len > longest:
        room = longest - max_len
        raise UserError(f"look: the prompt has {len(given)} tokens, and look shows {room} at most: give one sentence")
    [[best]] = generator.search_ids([given], max_len=max_len)
    whole = [*given, *best.ids, *([gpt.config.special_ids.eos_id] if best.complete else [])]
    read, came = whole[:-1], whole[1:]
    with trace(structural_copy(gpt).eval()) as t:
        logits = t.model(torch.tensor([read], device=next(gpt.parameters()).device))[0]
    text = Continuation(tokenizer, given).whole(best.ids)
    return TextLook(
        model=model_facts(t, name),
        prompt=prompt,
        target=_target(prompt + text, tokenizer, read, came, n_forced=len(given) - 1),
        continuation=OwnTranslation(text, best.score, best.normalized_score, best.complete),
        attention=attention_maps(t)["decoder"],
        steps=output_steps(logits, came, tokenizer),
        positions=position_facts(gpt, len(read)),
        lens=tuple(
            DecoderLayerLens(number, lens_steps(said, came, tokenizer))
            for number, said in enumerate(logits_by_layer(t))
        ),
        walk=walk_through(t),
        tensors=t.tensors(),
    )


def _target(text: str, tokenizer: Tokenizer, read: list[int], came: list[int], *, n_forced: int) -> TargetText:
    inputs, tokens = tuple(generated_pieces(tokenizer, read)), tuple(generated_pieces(tokenizer, came))
    return TargetText(
        text=text,
        kind="prefix",
        tokens=tokens,
        ids=tuple(came),
        words=tuple(word_spans(tokens)),
        inputs=inputs,
        input_ids=tuple(read),
        input_words=tuple(word_spans(inputs)),
        n_forced=n_forced,
    )
