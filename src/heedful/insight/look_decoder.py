"""Look inside a GPT while it continues a prompt.

    look = look_at_decoder("runs/book", "Once upon a")
    look.steps[-1].top          # the most likely tokens of the last step
    look.lens[2].steps          # the prediction after two layers
    look.weights                # (layers, H, T, T)
    look.save("page.html")

A look records one pass over the prompt and its greedy continuation.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.generator import ContinuationDecoder, Generator
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

LONGEST = 256  # tokens; attention maps grow quadratically
MAX_NEW_TOKENS = 24


@dataclass(frozen=True)
class DecoderLook(LookFile):
    """Everything about one text of a language model: row t is the token read at t, step t the prediction after it."""

    model: ModelFacts
    prompt: str
    target: TargetText  # the whole text: `inputs` are the tokens read, `tokens` the next token of each
    continuation: OwnTranslation  # the text that the model wrote after the prompt
    attention: AttentionMaps
    steps: tuple[OutputStep, ...]  # (T,): the next token, its probability and the alternatives
    positions: Positions
    lens: tuple[DecoderLayerLens, ...]  # the predictions before the first layer and after each layer
    walk: Walk
    tensors: dict[str, Tensor] = field(repr=False)  # every named tensor of the pass (Trace.tensors)

    @property
    def text(self) -> str:
        """The text that the model wrote after the prompt."""
        return self.continuation.text

    @property
    def complete(self) -> bool:
        """Whether the model ended the text."""
        return self.continuation.complete

    @property
    def n_prompt(self) -> int:
        """The number of tokens of the prompt, the start token included."""
        return self.target.n_forced + 1

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.target.inputs

    @property
    def ids(self) -> tuple[int, ...]:
        return self.target.input_ids

    @property
    def weights(self) -> Tensor:
        """The attention weights (layers, H, T, T), float32; each row sums to one."""
        return torch.from_numpy(self.attention.weights.values)

    def to_values(self) -> dict[str, object]:
        """Return the object of the trace file: a decoder without an encoder."""
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

        A picture shows one `layer` and `head`, counted from 1; the default is the last layer and the mean of its heads.
        """
        return self._save(Path(path), layer=layer, head=head, kind="decoder")

    def token_attention(self) -> TokenAttention:
        """Return the weights with their tokens, for a picture."""
        return TokenAttention(self.tokens, self.tokens, self.weights)

    def _draw(self, file: BinaryIO, format: str, *, layer: int | None, head: int | None, kind: str) -> None:
        draw_attention(self.token_attention(), file, format, layer=layer, head=head, kind=kind)

    def _arrays(self) -> Arrays:
        return {
            "target_ids": np.array(self.target.ids),
            "target_input_ids": np.array(self.ids),
            **attention_arrays({"decoder": self.attention}),
        }


@torch.inference_mode()
def look_at_decoder(model: Generator | str | Path, prompt: str, *, max_len: int = MAX_NEW_TOKENS) -> DecoderLook:
    """Continue a prompt greedily by at most `max_len` tokens, and record everything that happens inside the model."""
    generator = model if isinstance(model, Generator) else Generator.load(model, engine="torch")
    name = "model" if isinstance(model, Generator) else Path(model).resolve().name
    tokenizer, gpt = generator.tokenizer, generator.model
    prompt_ids = generator.prompt_ids(prompt)
    limit = min(LONGEST, gpt.config.max_len) - max_len
    if len(prompt_ids) > limit:
        raise UserError(
            f"look: the prompt has {len(prompt_ids)} tokens, and look shows {limit} at most: give one sentence"
        )
    [[best]] = generator.search_ids([prompt_ids], max_len=max_len)
    ids = [*prompt_ids, *best.ids, *([gpt.config.special_ids.eos_id] if best.complete else [])]
    input_ids, next_ids = ids[:-1], ids[1:]
    with trace(structural_copy(gpt).eval()) as t:
        logits = t.model(torch.tensor([input_ids], device=next(gpt.parameters()).device))[0]
    text = ContinuationDecoder(tokenizer, prompt_ids).decode(best.ids)
    return DecoderLook(
        model=model_facts(t, name),
        prompt=prompt,
        target=_target(prompt + text, tokenizer, input_ids, next_ids, n_forced=len(prompt_ids) - 1),
        continuation=OwnTranslation(text, best.score, best.normalized_score, best.complete),
        attention=attention_maps(t)["decoder"],
        steps=output_steps(logits, next_ids, tokenizer),
        positions=position_facts(gpt, len(input_ids)),
        lens=tuple(
            DecoderLayerLens(layer, lens_steps(layer_logits, next_ids, tokenizer))
            for layer, layer_logits in enumerate(logits_by_layer(t))
        ),
        walk=walk_through(t),
        tensors=t.tensors(),
    )


def _target(text: str, tokenizer: Tokenizer, input_ids: list[int], next_ids: list[int], *, n_forced: int) -> TargetText:
    inputs, tokens = tuple(generated_pieces(tokenizer, input_ids)), tuple(generated_pieces(tokenizer, next_ids))
    return TargetText(
        text=text,
        kind="prefix",
        tokens=tokens,
        ids=tuple(next_ids),
        words=tuple(word_spans(tokens)),
        inputs=inputs,
        input_ids=tuple(input_ids),
        input_words=tuple(word_spans(inputs)),
        n_forced=n_forced,
    )
