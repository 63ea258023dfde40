"""Hidden words: an encoder that reads to both sides learns what is missing (BERT)."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from torch import Tensor

from heedful.data.batch_sampler import plan_batches
from heedful.data.collate import IGNORE_INDEX, N_SPECIAL, LabelBatch
from heedful.data.datasets import DocumentChunks, MlmDataset, MlmMasking
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import Model
from heedful.nn.heads import MaskedHead
from heedful.text import MASK_PIECE, Tokenizer
from heedful.training.losses import linear_cross_entropy
from heedful.training.settings import Settings
from heedful.training.tasks.base import PreparedTask, Say, Task, build
from heedful.training.tasks.labels import accuracy, label_loss
from heedful.training.tasks.text_data import Texts, about_texts, mask_id_of, prepare_texts, reopen_texts, word_starts
from heedful.training.validation import (
    Validation,
    ValidationSample,
    check_plan,
    evaluation_mode,
    mean_loss,
    perplexity_of,
)

RATE = 0.15  # of BERT
N_SAMPLES = 3


def lesson(texts: Texts, settings: Settings) -> PreparedTask:
    tokenizer = texts.tokenizer
    config: BertConfig = settings.model_config(
        vocab_size=tokenizer.vocab_size, special_ids=tokenizer.special_ids, head="masked"
    )
    longest = settings.data.max_len - N_SPECIAL
    masking = MlmMasking(
        special_ids=tokenizer.special_ids,
        mask_id=mask_id_of(tokenizer),
        vocab_size=tokenizer.vocab_size,  # spare rows of a model to start from are no words
        rate=settings.noise.rate or RATE,
        starts=word_starts(tokenizer) if settings.noise.whole_words else None,
    )
    special_ids = config.special_ids

    def dataset(texts: DocumentChunks, pin_memory: bool = False) -> MlmDataset:
        return MlmDataset(texts, masking, special_ids=special_ids, pin_memory=pin_memory)

    return PreparedTask(
        tokenizers=texts.tokenizers,
        make_dataset=lambda pin: dataset(DocumentChunks(texts.train, max_len=longest), pin),
        make_model=partial(build, config, settings),
        objective=lambda model, batch, step: masked_token_loss(model, batch),
        make_validator=lambda say: MaskedValidator(
            dataset(DocumentChunks([texts.valid], max_len=longest)), tokenizer, settings, say
        ),
        about=about_texts(
            texts,
            what="encoder of texts",
            output="words that it fills in",
            tag="fill-mask",
            command='heedful fill "A text with [MASK] in it" -m {run}',
        ),
    )


def masked_token_loss(model: Bert, batch: LabelBatch) -> Tensor:
    """Summed over the hidden tokens; the head sees these alone."""
    states, wanted = hidden_states(model, batch)
    assert isinstance(model.head, MaskedHead)
    linear = model.head.linear
    return linear_cross_entropy(model.head.before(states), linear.weight, wanted, bias=linear.bias)


def hidden_states(model: Bert, batch: LabelBatch) -> tuple[Tensor, Tensor]:
    """The last vectors where something was hidden (M, D), and what (M,)."""
    asked = batch.labels != IGNORE_INDEX
    return model.states(batch.ids, batch.mask)[asked], batch.labels[asked]


class MaskedValidator:
    """The held-out text with the same places hidden every time."""

    def __init__(self, dataset: MlmDataset, tokenizer: Tokenizer, settings: Settings, say: Say) -> None:
        self.dataset, self.tokenizer = dataset, tokenizer
        self.batches = fixed_batches(dataset, settings, say)

    def __call__(self, model: Model) -> Validation:
        assert isinstance(model, Bert)
        right = n_asked = 0

        def loss_of(batch: LabelBatch) -> Tensor:
            nonlocal right, n_asked
            states, wanted = hidden_states(model, batch)
            logits = model.head(states)  # (M, V)
            right += int((logits.argmax(dim=-1) == wanted).sum())
            n_asked += len(wanted)
            return label_loss(logits, wanted)

        with evaluation_mode(model) as device:
            loss = mean_loss(self.batches, loss_of, device)
            samples = tuple(self._fill(model, batch.to(device)) for batch in self.batches[:N_SAMPLES])
        score = accuracy(right, n_asked)
        return Validation(
            loss=loss,
            metrics={"perplexity": perplexity_of(loss), "accuracy": score.value},
            scores=(Score("loss per hidden token", loss, ""), score),
            n_scored=len(self.dataset.texts),
            samples=samples,
        )

    def _fill(self, model: Bert, batch: LabelBatch) -> ValidationSample:
        """The first row: what was hidden, and what the model puts there."""
        one = LabelBatch(*(tensor[:1] for tensor in (batch.ids, batch.mask, batch.labels, batch.indices)))
        states, wanted = hidden_states(model, one)
        pieces = self.tokenizer.pieces
        said = model.head(states).argmax(dim=-1)
        shown = pieces(one.ids[one.mask].tolist())
        return ValidationSample(" ".join(shown), " ".join(pieces(wanted.tolist())), " ".join(pieces(said.tolist())))


def fixed_batches(dataset: MlmDataset, settings: Settings, say: Say) -> Sequence[LabelBatch]:
    data = settings.data
    plan = plan_batches(dataset.source_lengths, dataset.target_lengths, batch_tokens=data.batch_tokens, seed=0, epoch=0)
    check_plan(
        plan, len(dataset.texts), "stretches of text", max_len=data.max_len, batch_tokens=data.batch_tokens, say=say
    )
    batches = [dataset.batch(numbers, np.arange(len(numbers)), seed=step) for step, numbers in enumerate(plan)]
    if not any(batch.n_target_tokens for batch in batches):
        raise UserError(
            "nothing in the validation data can be hidden: all of it is unknown to the tokenizer. Give --valid a text "
            "in the language of the training text"
        )
    return batches


MASKED_TOKENS: Task[Texts] = Task(
    families=("bert",),
    content="text",
    metrics=("loss", "accuracy", "perplexity"),
    recipe=lambda family, files, data: "bert",
    prepare=lambda given: prepare_texts(given, symbols=[MASK_PIECE]),
    reopen=reopen_texts,
    lesson=lesson,
)
