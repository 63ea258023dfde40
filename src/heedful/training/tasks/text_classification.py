"""Text classification: an encoder learns the label of a text, such as sentiment, topic or kind of question."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from heedful.config import read_json
from heedful.data.binarize import prepare
from heedful.data.collate import N_SPECIAL, LabelBatch, collate_labels
from heedful.data.corpus import Example
from heedful.data.datasets import ClassificationDataset, DocumentChunks
from heedful.data.seeding import IntArray
from heedful.data.shards import Shards
from heedful.models.bert import Bert, BertConfig
from heedful.text import MASK_PIECE, Tokenizers, load_tokenizers
from heedful.training.data_preparation import (
    TrainingPart,
    choose_held_out,
    open_shards,
    read_valid,
    report_skipped,
    text_tokenizer,
    write_jsonl,
)
from heedful.training.events import Notify
from heedful.training.settings import Settings
from heedful.training.tasks.base import TEXT_SETTINGS, Preparation, PreparedTask, Task, TaskDescription, build
from heedful.training.tasks.labels import accuracy, label_ids, label_loss, label_names, macro_f1
from heedful.training.tasks.translation import fingerprint_of
from heedful.training.validation import N_SAMPLES, Validation, ValidationSample, Validator, plan_validation

LABELS = "labels.json"


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with labels, prepared."""

    tokenizers: Tokenizers
    names: tuple[str, ...]
    train: list[Shards]
    labels: IntArray  # of all training texts, corpus after corpus
    valid: list[Example]


def prepare_labelled(preparation: Preparation) -> None:
    """Prepare texts with labels in the run folder."""
    folder, settings, notify = preparation.folder, preparation.settings, preparation.notify
    corpora, valid = preparation.files.corpora(settings.data), preparation.files.valid_corpus(settings.data)
    n_texts = sum(1 for corpus in corpora for _ in corpus)
    for corpus in corpora:
        report_skipped(corpus, notify)
    held_out = choose_held_out(folder, corpora, valid, n_texts, settings, notify=notify, unit="texts")
    parts = [TrainingPart(corpus, held_out.contains) for corpus in corpora]
    labels = [[example.target for example in part] for part in parts]
    # A rare label may occur only in texts that were held out of the training files: the model must know it, too.
    held_out_labels = [example.target for example in held_out.examples] if valid is None else []
    counts = Counter(label for part in (*labels, held_out_labels) for label in part)
    names = label_names(counts)
    if valid is not None:
        for example in held_out.examples:
            label_ids([example.target], names, where=valid.place(example))
    ids = [label_ids(part, names, where="training") for part in labels]
    write_jsonl(folder / "data" / LABELS, [{"names": names, "labels": ids}])
    tokenizer = text_tokenizer(
        folder / "tokenizers",
        (example.source for part in parts for example in part),
        settings,
        init_from=preparation.tokenizers,
        notify=notify,
        symbols=[MASK_PIECE],
    )
    shards = [
        prepare(
            part,
            tokenizer,
            folder / "data" / f"train-{number}",
            fingerprint=f"{part.corpus.fingerprint()}-{held_out.fingerprint}",
        )
        for number, part in enumerate(parts)
    ]
    longest = settings.data.max_len - N_SPECIAL
    n_cut = sum(int((shard.source.lengths > longest).sum()) for shard in shards)
    notify(f"training on {sum(map(len, shards)):,} texts with {len(names):,} labels: {_listed(names)}")
    if rare := [name for name in names if counts[name] == 1]:
        notify(f"labels with a single example: {_listed([repr(name) for name in rare])}. A heading, or misspelt?")
    if n_cut:
        notify(f"{n_cut:,} texts have more than {longest} tokens (data.max_len), and only their beginning is read")


def reopen_labelled(folder: Path, settings: Settings) -> LabelledTexts:
    """Read what `prepare_labelled` wrote."""
    stored = read_json(folder / "data" / LABELS)
    labels = np.array([number for part in stored["labels"] for number in part], np.int64)
    tokenizers = load_tokenizers(folder / "tokenizers", probe=False)
    return LabelledTexts(tokenizers, tuple(stored["names"]), open_shards(folder), labels, read_valid(folder))


def assemble(prepared: LabelledTexts, settings: Settings) -> PreparedTask:
    """Put together the parts that a trainer needs."""
    tokenizer = prepared.tokenizers.source
    config: BertConfig = settings.model_config(
        vocab_size=tokenizer.vocab_size, special_ids=tokenizer.special_ids, head="classify", labels=list(prepared.names)
    )
    special_ids = config.special_ids
    chunks = partial(DocumentChunks, max_len=settings.data.max_len - N_SPECIAL, truncate=True)
    return PreparedTask(
        tokenizers=prepared.tokenizers,
        make_dataset=lambda pin: ClassificationDataset(
            chunks(prepared.train), prepared.labels, special_ids=special_ids, pin_memory=pin
        ),
        make_model=partial(build, config, settings),
        objective=lambda model, batch, step: text_label_loss(
            model, batch, label_smoothing=settings.loss.label_smoothing
        ),
        make_validator=lambda notify: LabelValidator(prepared, settings, config, notify),
        description=TaskDescription(
            what="classifier of texts",
            output="labels",
            tag="text-classification",
            unit="texts",
            train=tuple(map(len, prepared.train)),
            valid=len(prepared.valid),
            valid_sha256=fingerprint_of(prepared.valid),
            command="heedful classify INPUT -m {run}",
        ),
    )


def text_label_loss(model: Bert, batch: LabelBatch, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy summed over the texts of a batch."""
    logits = model.head(model.hidden_states(batch.ids, batch.mask))  # (B, L)
    return label_loss(logits, batch.labels, label_smoothing=label_smoothing)


class LabelValidator(Validator[LabelBatch]):
    """Loss, accuracy and macro F1 on the validation texts."""

    def __init__(self, prepared: LabelledTexts, settings: Settings, config: BertConfig, notify: Notify) -> None:
        super().__init__(_batches(prepared, settings, config, notify))
        self.names, self.examples = prepared.names, prepared.valid

    def score_batch(self, model: Bert, batch: LabelBatch) -> tuple[Tensor, tuple[list[int], list[int], list[int]]]:
        logits = model.head(model.hidden_states(batch.ids, batch.mask))  # (B, L)
        lists = (batch.indices.tolist(), logits.argmax(dim=-1).tolist(), batch.labels.tolist())
        return label_loss(logits, batch.labels), lists

    def summarize(self, model: Bert, loss: float, outputs: list[tuple[list[int], list[int], list[int]]]) -> Validation:
        rows = [row for lists in outputs for row in zip(*lists, strict=True)]  # (index, predicted, label)
        predicted, labels = [row[1] for row in rows], [row[2] for row in rows]
        score = accuracy(sum(a == b for a, b in zip(predicted, labels, strict=True)), len(rows))
        return Validation(
            loss=loss,
            metrics={"accuracy": score.value, "f1": macro_f1(predicted, labels, len(self.names))},
            scores=(score,),
            n_scored=len(rows),
            samples=tuple(
                ValidationSample(self.examples[index].source, self.examples[index].target, self.names[label])
                for index, label, _ in sorted(rows)[:N_SAMPLES]
            ),
        )


def _batches(prepared: LabelledTexts, settings: Settings, config: BertConfig, notify: Notify) -> Sequence[LabelBatch]:
    """Tokenise the validation texts, cut long ones, and collate texts of like lengths."""
    longest = settings.data.max_len - N_SPECIAL
    encoded = prepared.tokenizers.source.encode_batch([example.source for example in prepared.valid])
    texts = [np.array(ids[:longest], np.int64) for ids in encoded]
    labels = np.array(label_ids([e.target for e in prepared.valid], prepared.names, where="validation"), np.int64)
    lengths = np.array([len(ids) + N_SPECIAL for ids in texts])
    plan = plan_validation(lengths, np.ones_like(lengths), settings.data, "texts", notify)
    return [
        collate_labels([texts[i] for i in indices], labels[indices], indices, special_ids=config.special_ids)
        for indices in plan
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 10 else f"{', '.join(names[:10])}, …"


CLASSIFICATION: Task[LabelledTexts] = Task(
    families=("bert",),
    content="labels",
    metrics=("accuracy", "f1", "loss"),
    settings_used=TEXT_SETTINGS | {"data.columns", "loss.label_smoothing"},
    recipe=lambda family, files, data: "bert-classify",
    prepare=prepare_labelled,
    reopen=reopen_labelled,
    assemble=assemble,
    counted="texts",
)
