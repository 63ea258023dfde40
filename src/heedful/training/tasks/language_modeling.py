"""Language modelling: a decoder predicts each token of a running text from the tokens before it."""

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
from heedful.text import SpecialIds, Tokenizer
from heedful.training.auxiliary_losses import auxiliary_heads, with_auxiliary_heads
from heedful.training.losses import linear_cross_entropy
from heedful.training.settings import Settings
from heedful.training.tasks.base import RUNNING_TEXT_SETTINGS, PreparedTask, Task, build
from heedful.training.tasks.text_data import Texts, describe_texts, n_tokens, pieces_of, prepare_texts, reopen_texts
from heedful.training.validation import N_SAMPLES, Validation, ValidationSample, Validator, perplexity_of

PROMPT, CONTINUATION = 16, 48  # tokens of the samples that a validation shows


def assemble(texts: Texts, settings: Settings) -> PreparedTask:
    """Put together the parts that a trainer needs."""
    special_ids = special_ids_for(texts.tokenizer, settings)
    config = settings.model_config(vocab_size=texts.tokenizer.vocab_size, special_ids=special_ids)
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
        make_validator=lambda notify: TextValidator(
            texts, settings, config.special_ids, isolate_documents=isolate_documents
        ),
        description=describe_texts(
            texts,
            what="language model",
            output="texts that it writes",
            tag="text-generation",
            command='heedful generate "The beginning of a text" -m {run}',
        ),
    )


def _make_model(config: GptConfig, settings: Settings) -> Gpt:
    model = build(config, settings)
    assert isinstance(model, Gpt)
    return with_auxiliary_heads(model, settings.auxiliary) if settings.auxiliary.any else model


def special_ids_for(tokenizer: Tokenizer, settings: Settings) -> SpecialIds:
    """Return the tokenizer's special ids; random windows have no start token, so there the line break starts a text."""
    if settings.data.rows != "random":
        return tokenizer.special_ids
    pieces = pieces_of(tokenizer)
    line_break = next((pieces.index(piece) for piece in ("\n", "<0x0A>", "Ċ") if piece in pieces), None)
    return tokenizer.special_ids if line_break is None else replace(tokenizer.special_ids, bos_id=line_break)


def make_dataset(
    texts: Texts, settings: Settings, special_ids: SpecialIds, *, pin_memory: bool
) -> Dataset[TensorBatch]:
    """Make the training data: windows from anywhere in the text, or documents packed into rows."""
    if settings.data.rows == "random":
        return RandomWindowDataset(texts.train, length=settings.data.max_len, pin_memory=pin_memory)
    return PackedLmDataset(texts.train, row_len=settings.data.max_len, pin_memory=pin_memory, special_ids=special_ids)


def next_token_loss(
    model: Gpt, batch: LmBatch, *, isolate_documents: bool, label_smoothing: float = 0.0, done: float | None = None
) -> Tensor:
    """Return the cross-entropy, summed over the tokens of a batch.

    isolate_documents: mask the attention between the documents of a row.
    done: the share of training that is over; if given, the losses of auxiliary heads are added.
    """
    several = isolate_documents and bool((batch.documents != batch.documents[:, :1])[batch.target_mask].any())
    heads = None if done is None else auxiliary_heads(model)
    layers: list[Tensor] | None = None if heads is None else []
    states = model.hidden_states(batch.target_in, documents=batch.documents if several else None, layers=layers)
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


class TextValidator(Validator[LmBatch]):
    """Loss, perplexity and bits per character of the held-out text; greedy continuations of a few beginnings."""

    def __init__(self, texts: Texts, settings: Settings, special_ids: SpecialIds, *, isolate_documents: bool) -> None:
        super().__init__(validation_batches(texts, settings, special_ids))
        self.texts, self.isolate_documents = texts, isolate_documents
        self.prompts = [batch.target_in[0, : batch.n_target_tokens] for batch in self.batches[:N_SAMPLES]]

    def score_batch(self, model: Gpt, batch: LmBatch) -> tuple[Tensor, None]:
        return next_token_loss(model, batch, isolate_documents=self.isolate_documents), None

    def summarize(self, model: Gpt, loss: float, outputs: list[None]) -> Validation:
        n_targets = sum(batch.n_target_tokens for batch in self.batches)
        bits = loss * n_targets / math.log(2) / max(1, self.texts.n_valid_characters)
        device = next(model.parameters()).device
        return Validation(
            loss=loss,
            metrics={"perplexity": perplexity_of(loss), "bits": bits},
            scores=(Score("loss per token", loss, ""), Score("bits per character", bits, "")),
            n_scored=len(self.texts.valid),
            samples=tuple(self._continue(model, ids.to(device)) for ids in self.prompts),
        )

    def _continue(self, model: Gpt, ids: Tensor) -> ValidationSample:
        """Show the greedy continuation of a beginning, and the true continuation."""
        n_prompt = max(1, min(PROMPT, len(ids) // 2, model.config.max_len // 2))
        n_new = max(0, min(CONTINUATION, model.config.max_len - n_prompt))
        prompt, reference = ids[:n_prompt], ids[n_prompt : n_prompt + n_new]
        texts = (prompt.tolist(), reference.tolist(), greedy_continuation(model, prompt, n_new))
        return ValidationSample(*map(self.texts.tokenizer.decode, texts))


def greedy_continuation(model: Gpt, prompt: Tensor, n_new: int) -> list[int]:
    """Return up to `n_new` tokens, each the most probable one, up to the end token; prompt (T,)."""
    cache, ids, new = model.make_cache(), prompt[None], []
    for _ in range(n_new):
        best = int(model.head(model.hidden_states(ids, cache=cache)[:, -1]).argmax())
        if best == model.config.special_ids.eos_id:
            break
        new.append(best)
        ids = torch.tensor([[best]], device=prompt.device)
    return new


def validation_batches(texts: Texts, settings: Settings, special_ids: SpecialIds) -> Sequence[LmBatch]:
    """Cut the held-out text into batches that predict every token once."""
    length, n_ids = settings.data.max_len, n_tokens(texts.valid)
    n_rows = max(1, settings.data.batch_tokens // length)
    needed = 2 if settings.data.rows == "random" else 1  # without a start token, the first token is not predicted
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
    settings_used=RUNNING_TEXT_SETTINGS
    | {"data.rows", "data.isolate_documents", "loss.label_smoothing"}
    | {"auxiliary.layers", "auxiliary.ahead", "auxiliary.ahead_weight"},
    recipe=lambda family, files, data: "gpt",
    prepare=prepare_texts,
    reopen=reopen_texts,
    assemble=assemble,
    counted="tokens",
)
