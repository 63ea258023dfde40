"""Masked language modelling: an encoder predicts masked tokens from the text on both sides (BERT)."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from torch import Tensor

from heedful.data.collate import IGNORE_INDEX, N_SPECIAL, LabelBatch
from heedful.data.datasets import DocumentChunks, MlmDataset, MlmMasking
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.models.bert import Bert, BertConfig
from heedful.nn.heads import MaskedHead
from heedful.text import MASK_PIECE, Tokenizer
from heedful.training.events import Notify
from heedful.training.losses import linear_cross_entropy
from heedful.training.settings import Settings
from heedful.training.tasks.base import RUNNING_TEXT_SETTINGS, PreparedTask, Task, build
from heedful.training.tasks.labels import accuracy, label_loss
from heedful.training.tasks.text_data import Texts, describe_texts, mask_id_of, prepare_texts, reopen_texts, word_starts
from heedful.training.validation import (
    N_SAMPLES,
    Validation,
    ValidationSample,
    Validator,
    perplexity_of,
    plan_validation,
)

RATE = 0.15  # BERT's share of masked tokens


def assemble(texts: Texts, settings: Settings) -> PreparedTask:
    """Put together the parts that a trainer needs."""
    tokenizer = texts.tokenizer
    config: BertConfig = settings.model_config(
        vocab_size=tokenizer.vocab_size, special_ids=tokenizer.special_ids, head="masked"
    )
    longest = settings.data.max_len - N_SPECIAL
    masking = MlmMasking(
        special_ids=tokenizer.special_ids,
        mask_id=mask_id_of(tokenizer),
        vocab_size=tokenizer.vocab_size,  # without the spare rows of a model to start from
        rate=settings.noise.rate or RATE,
        starts=word_starts(tokenizer) if settings.noise.whole_words else None,
    )
    special_ids = config.special_ids

    def dataset(chunks: DocumentChunks, pin_memory: bool = False) -> MlmDataset:
        return MlmDataset(chunks, masking, special_ids=special_ids, pin_memory=pin_memory)

    return PreparedTask(
        tokenizers=texts.tokenizers,
        make_dataset=lambda pin: dataset(DocumentChunks(texts.train, max_len=longest), pin),
        make_model=partial(build, config, settings),
        objective=lambda model, batch, step: masked_token_loss(model, batch),
        make_validator=lambda notify: MaskedValidator(
            dataset(DocumentChunks([texts.valid], max_len=longest)), tokenizer, settings, notify
        ),
        description=describe_texts(
            texts,
            what="encoder of texts",
            output="words that it fills in",
            tag="fill-mask",
            command='heedful fill "A text with [MASK] in it" -m {run}',
        ),
    )


def masked_token_loss(model: Bert, batch: LabelBatch) -> Tensor:
    """Return the cross-entropy summed over the masked tokens; the output layer is applied to these alone."""
    states, targets = masked_states(model, batch)
    assert isinstance(model.head, MaskedHead)
    linear = model.head.linear
    return linear_cross_entropy(model.head.before(states), linear.weight, targets, bias=linear.bias)


def masked_states(model: Bert, batch: LabelBatch) -> tuple[Tensor, Tensor]:
    """Return the last hidden states of the masked tokens (M, D), and their ids before masking (M,)."""
    masked = batch.labels != IGNORE_INDEX
    return model.hidden_states(batch.ids, batch.mask)[masked], batch.labels[masked]


class MaskedValidator(Validator[LabelBatch]):
    """Loss and accuracy on the held-out text, with the same tokens masked every time."""

    def __init__(self, dataset: MlmDataset, tokenizer: Tokenizer, settings: Settings, notify: Notify) -> None:
        super().__init__(validation_batches(dataset, settings, notify))
        self.dataset, self.tokenizer = dataset, tokenizer

    def score_batch(self, model: Bert, batch: LabelBatch) -> tuple[Tensor, int]:
        states, targets = masked_states(model, batch)
        logits = model.head(states)  # (M, V)
        return label_loss(logits, targets), int((logits.argmax(dim=-1) == targets).sum())

    def summarize(self, model: Bert, loss: float, outputs: list[int]) -> Validation:
        score = accuracy(sum(outputs), sum(batch.n_target_tokens for batch in self.batches))
        device = next(model.parameters()).device
        return Validation(
            loss=loss,
            metrics={"perplexity": perplexity_of(loss), "accuracy": score.value},
            scores=(Score("loss per masked token", loss, ""), score),
            n_scored=len(self.dataset.texts),
            samples=tuple(self._fill(model, batch.to(device)) for batch in self.batches[:N_SAMPLES]),
        )

    def _fill(self, model: Bert, batch: LabelBatch) -> ValidationSample:
        """Show the first row of a batch: the masked text, the masked tokens, and the model's predictions."""
        row = LabelBatch(*(tensor[:1] for tensor in (batch.ids, batch.mask, batch.labels, batch.indices)))
        states, targets = masked_states(model, row)
        predicted = model.head(states).argmax(dim=-1)
        texts = (row.ids[row.mask].tolist(), targets.tolist(), predicted.tolist())
        return ValidationSample(*(" ".join(self.tokenizer.pieces(ids)) for ids in texts))


def validation_batches(dataset: MlmDataset, settings: Settings, notify: Notify) -> Sequence[LabelBatch]:
    """Cut the held-out text into batches; raise a UserError if nothing in it can be masked."""
    lengths = dataset.source_lengths, dataset.target_lengths
    plan = plan_validation(*lengths, settings.data, "stretches of text", notify)
    batches = [dataset.batch(indices, np.arange(len(indices)), seed=step) for step, indices in enumerate(plan)]
    if not any(batch.n_target_tokens for batch in batches):
        raise UserError(
            "nothing in the validation data can be masked: all of it is unknown to the tokenizer. Give --valid a text "
            "in the language of the training text"
        )
    return batches


MASKED_TOKENS: Task[Texts] = Task(
    families=("bert",),
    content="text",
    metrics=("loss", "accuracy", "perplexity"),
    settings_used=RUNNING_TEXT_SETTINGS | {"noise.rate", "noise.whole_words"},
    recipe=lambda family, files, data: "bert",
    prepare=partial(prepare_texts, symbols=[MASK_PIECE]),
    reopen=reopen_texts,
    assemble=assemble,
    counted="masked tokens",
)
