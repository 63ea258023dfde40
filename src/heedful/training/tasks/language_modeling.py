"""What comes next: language models, which read a text and foretell each token from those before it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from heedful.data.collate import LmBatch, TensorBatch
from heedful.data.datasets import PackedLmDataset, RandomWindowDataset, sequential_windows
from heedful.data.loader import Dataset
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import Model
from heedful.text import SpecialIds, Tokenizer
from heedful.training.auxiliary_losses import auxiliary_heads, with_auxiliary_heads
from heedful.training.losses import linear_cross_entropy
from heedful.training.settings import Settings
from heedful.training.tasks.base import PreparedTask, Task, build
from heedful.training.tasks.text_data import Texts, about_texts, n_tokens, pieces_of, prepare_texts, reopen_texts
from heedful.training.validation import Validation, ValidationSample, evaluation_mode, mean_loss, perplexity_of

N_SAMPLES, PROMPT, CONTINUATION = 3, 16, 48  # shown when a run validates, in tokens


def lesson(texts: Texts, settings: Settings) -> PreparedTask:
    config = settings.model_config(
        vocab_size=texts.tokenizer.vocab_size, special_ids=special_ids_for(texts.tokenizer, settings)
    )
    isolate_documents = settings.data.isolate_documents and settings.data.rows == "packed"
    return PreparedTask(
        tokenizers=texts.tokenizers,
        make_dataset=lambda pin: make_dataset(texts, settings, config.special_ids, pin_memory=pin),
        make_model=partial(_make_model, config, settings),
        objective=lambda model, batch, step: next_token_loss(
            model,
            batch,
            isolate_documents=isolate_documents,
            label_smoothing=settings.loss.label_smoothing,
            done=step / settings.run.steps,
        ),
        make_validator=lambda say: TextValidator(
            texts, settings, config.special_ids, isolate_documents=isolate_documents
        ),
        about=about_texts(
            texts,
            what="language model",
            output="texts that it writes",
            tag="text-generation",
            command='heedful generate "How it begins" -m {run}',
        ),
    )


def _make_model(config: GptConfig, settings: Settings) -> Gpt:
    model = build(config, settings)
    assert isinstance(model, Gpt)
    return with_auxiliary_heads(model, settings.auxiliary) if settings.auxiliary.any else model


def special_ids_for(tokenizer: Tokenizer, settings: Settings) -> SpecialIds:
    """Return the tokenizer's special ids; in a text without documents, generation begins after a line break."""
    if settings.data.rows != "random":
        return tokenizer.special_ids
    pieces = pieces_of(tokenizer)
    line_break = next((pieces.index(piece) for piece in ("\n", "<0x0A>", "Ċ") if piece in pieces), None)
    return tokenizer.special_ids if line_break is None else replace(tokenizer.special_ids, bos_id=line_break)


def make_dataset(
    texts: Texts, settings: Settings, special_ids: SpecialIds, *, pin_memory: bool
) -> Dataset[TensorBatch]:
    if settings.data.rows == "random":
        return RandomWindowDataset(texts.train, length=settings.data.max_len, pin_memory=pin_memory)
    return PackedLmDataset(texts.train, row_len=settings.data.max_len, pin_memory=pin_memory, special_ids=special_ids)


def next_token_loss(
    model: Gpt, batch: LmBatch, *, isolate_documents: bool, label_smoothing: float = 0.0, done: float | None = None
) -> Tensor:
    """Summed over the tokens of a batch; `isolate_documents` keeps the documents of a row from seeing each other.

    `done`, the share of training that is over, asks for the losses of auxiliary heads as well, if the model has any.
    """
    several = isolate_documents and bool((batch.documents != batch.documents[:, :1])[batch.target_mask].any())
    heads = None if done is None else auxiliary_heads(model)
    layers: list[Tensor] | None = None if heads is None else []
    states = model.states(batch.target_in, documents=batch.documents if several else None, layers=layers)
    linear = model.head.linear
    loss = linear_cross_entropy(
        states[batch.target_mask],
        linear.weight,
        batch.target_out[batch.target_mask],
        bias=linear.bias,
        label_smoothing=label_smoothing,
    )
    if heads is None or layers is None or done is None:
        return loss
    return loss + heads.loss(model, layers, batch, isolate_documents=isolate_documents, done=done)


class TextValidator:
    """The held-out text, every token of it foretold once; and how the model goes on from a few beginnings."""

    def __init__(self, texts: Texts, settings: Settings, special_ids: SpecialIds, *, isolate_documents: bool) -> None:
        self.texts, self.isolate_documents = texts, isolate_documents
        self.batches = validation_batches(texts, settings, special_ids)
        self.prompts = [batch.target_in[0, : batch.n_target_tokens] for batch in self.batches[:N_SAMPLES]]

    def __call__(self, model: Model) -> Validation:
        assert isinstance(model, Gpt)
        with evaluation_mode(model) as device:
            loss = mean_loss(
                self.batches, partial(next_token_loss, model, isolate_documents=self.isolate_documents), device
            )
            samples = tuple(self._continue(model, ids.to(device)) for ids in self.prompts)
        n_asked = sum(batch.n_target_tokens for batch in self.batches)
        bits = loss * n_asked / math.log(2) / max(1, self.texts.n_valid_characters)
        return Validation(
            loss=loss,
            metrics={"perplexity": perplexity_of(loss), "bits": bits},
            scores=(Score("loss per token", loss, ""), Score("bits per character", bits, "")),
            n_scored=len(self.texts.valid),
            samples=samples,
        )

    def _continue(self, model: Gpt, ids: Tensor) -> ValidationSample:
        """The likeliest continuation of a beginning, beside the true one."""
        n_prompt = max(1, min(PROMPT, len(ids) // 2, model.config.max_len // 2))
        n_new = max(0, min(CONTINUATION, model.config.max_len - n_prompt))
        prompt, true = ids[:n_prompt], ids[n_prompt : n_prompt + n_new]
        decode = self.texts.tokenizer.decode
        return ValidationSample(decode(prompt.tolist()), decode(true.tolist()), decode(go_on(model, prompt, n_new)))


def go_on(model: Gpt, prompt: Tensor, n_new: int) -> list[int]:
    """The likeliest token, again and again, up to the end mark."""
    cache, ids, new = model.make_cache(), prompt[None], []
    for _ in range(n_new):
        best = int(model.head(model.states(ids, cache=cache)[:, -1]).argmax())
        if best == model.config.special_ids.eos_id:
            break
        new.append(best)
        ids = torch.tensor([[best]], device=prompt.device)
    return new


def validation_batches(texts: Texts, settings: Settings, special_ids: SpecialIds) -> Sequence[LmBatch]:
    length, n_ids = settings.data.max_len, n_tokens(texts.valid)
    n_rows = max(1, settings.data.batch_tokens // length)
    needed = 2 if settings.data.rows == "random" else 1  # without marks, the first token is not foretold
    if n_ids < needed:
        tokens = "1 token for validation is" if n_ids == 1 else f"{n_ids} tokens for validation are"
        raise UserError(f"{tokens} too few, at least {needed} are needed: give --valid a longer text, or hold out more")
    if settings.data.rows == "random":
        return sequential_windows(texts.valid, length=min(length, n_ids - 1), n_rows=n_rows)
    rows = PackedLmDataset(texts.valid, row_len=length, special_ids=special_ids)
    groups = np.array_split(np.arange(sum(rows.sizes)), -(-sum(rows.sizes) // n_rows))
    return [rows.batch(group, np.arange(len(group)), seed=0) for group in groups]


NEXT_TOKEN: Task[Texts] = Task(
    families=("gpt",),
    content="text",
    metrics=("loss", "bits", "perplexity"),
    recipe=lambda family, files, data: "gpt",
    prepare=prepare_texts,
    reopen=reopen_texts,
    lesson=lesson,
)
