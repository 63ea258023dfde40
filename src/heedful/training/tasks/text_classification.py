"""Which label a text has: sentiment, topic, kind of question."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from heedful.config import read_json
from heedful.data.batch_sampler import plan_batches
from heedful.data.binarize import prepare
from heedful.data.collate import N_SPECIAL, LabelBatch, collate_labels
from heedful.data.corpus import Example
from heedful.data.datasets import ClassificationDataset, DocumentChunks
from heedful.data.seeding import IntArray
from heedful.data.shards import Shards
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import Model
from heedful.text import MASK_PIECE, Tokenizers, load_tokenizers
from heedful.training.data_preparation import TrainingPart, choose_held_out, read_valid, say_left_out
from heedful.training.settings import Settings
from heedful.training.tasks.base import Preparation, PreparedTask, Say, Task, TaskDescription, build
from heedful.training.tasks.labels import accuracy, label_loss, macro_f1, names_of, numbers_of
from heedful.training.tasks.stages import one_tokenizer, write_json
from heedful.training.tasks.translation import fingerprint_of
from heedful.training.validation import Validation, ValidationSample, check_plan, evaluation_mode, mean_loss

LABELS = "labels.json"
N_SAMPLES = 3


@dataclass(frozen=True)
class LabelledTexts:
    tokenizers: Tokenizers
    names: tuple[str, ...]
    train: list[Shards]
    labels: IntArray  # of all training texts, corpus after corpus
    valid: list[Example]


def prepare_labelled(given: Preparation) -> None:
    corpora, valid = given.files.corpora(given.settings.data), given.files.valid_corpus(given.settings.data)
    n_texts = sum(1 for corpus in corpora for _ in corpus)
    for corpus in corpora:
        say_left_out(corpus, given.say)
    kept_back = choose_held_out(given.folder, corpora, valid, n_texts, given.settings, say=given.say, unit="texts")
    parts = [TrainingPart(corpus, kept_back.contains) for corpus in corpora]
    labels = [[example.target for example in part] for part in parts]
    held_out = [example.target for example in kept_back.examples]
    # A rare label may stand only in what was held out of the files: it is one of theirs all the same.
    found = Counter(label for part in (*labels, held_out if valid is None else []) for label in part)
    names = names_of(found)
    if valid is not None:
        for example in kept_back.examples:
            numbers_of([example.target], names, where=valid.place(example))
    write_json(
        given.folder / "data" / LABELS,
        {"names": names, "labels": [numbers_of(part, names, where="training") for part in labels]},
    )
    texts = (example.source for part in parts for example in part)
    tokenizer = one_tokenizer(given, texts, symbols=[MASK_PIECE]).source
    shards = [
        prepare(
            part,
            tokenizer,
            given.folder / "data" / f"train-{number}",
            fingerprint=f"{part.corpus.fingerprint()}-{kept_back.fingerprint}",
        )
        for number, part in enumerate(parts)
    ]
    longest = given.settings.data.max_len - N_SPECIAL
    n_cut = sum(int((one.source.lengths > longest).sum()) for one in shards)
    given.say(f"training on {sum(map(len, shards)):,} texts with {len(names):,} labels: {_listed(names)}")
    if alone := [name for name in names if found[name] == 1]:
        given.say(f"labels with one example alone: {_listed([repr(name) for name in alone])}. A heading, or misspelt?")
    if n_cut:
        given.say(f"{n_cut:,} texts have more than {longest} tokens (data.max_len), and only their beginning is read")


def reopen_labelled(folder: Path, settings: Settings) -> LabelledTexts:
    data = folder / "data"
    stored = read_json(data / LABELS)
    train = [Shards.open(path) for path in sorted(data.glob("train-*"), key=lambda path: int(path.name[6:]))]
    labels = np.array([number for part in stored["labels"] for number in part], np.int64)
    tokenizers = load_tokenizers(folder / "tokenizers", probe=False)
    return LabelledTexts(tokenizers, tuple(stored["names"]), train, labels, read_valid(folder))


def lesson(prepared: LabelledTexts, settings: Settings) -> PreparedTask:
    tokenizer = prepared.tokenizers.source
    config: BertConfig = settings.model_config(
        vocab_size=tokenizer.vocab_size, special_ids=tokenizer.special_ids, head="classify", labels=list(prepared.names)
    )
    special_ids = config.special_ids
    stretches = partial(DocumentChunks, max_len=settings.data.max_len - N_SPECIAL, truncate=True)
    return PreparedTask(
        tokenizers=prepared.tokenizers,
        make_dataset=lambda pin: ClassificationDataset(
            stretches(prepared.train), prepared.labels, special_ids=special_ids, pin_memory=pin
        ),
        make_model=partial(build, config, settings),
        objective=lambda model, batch, step: text_label_loss(
            model, batch, label_smoothing=settings.loss.label_smoothing
        ),
        make_validator=lambda say: LabelValidator(prepared, settings, config, say),
        about=TaskDescription(
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
    logits = model.head(model.states(batch.ids, batch.mask))  # (B, L)
    return label_loss(logits, batch.labels, label_smoothing=label_smoothing)


class LabelValidator:
    def __init__(self, prepared: LabelledTexts, settings: Settings, config: BertConfig, say: Say) -> None:
        self.names, self.examples = prepared.names, prepared.valid
        self.batches = _batches(prepared, settings, config, say)

    def __call__(self, model: Model) -> Validation:
        assert isinstance(model, Bert)
        said: dict[int, int] = {}
        wanted: dict[int, int] = {}

        def loss_of(batch: LabelBatch) -> Tensor:
            logits = model.head(model.states(batch.ids, batch.mask))  # (B, L)
            numbers = batch.indices.tolist()
            said.update(zip(numbers, logits.argmax(dim=-1).tolist(), strict=True))
            wanted.update(zip(numbers, batch.labels.tolist(), strict=True))
            return label_loss(logits, batch.labels)

        with evaluation_mode(model) as device:
            loss = mean_loss(self.batches, loss_of, device)
        score = accuracy(sum(said[i] == wanted[i] for i in wanted), len(wanted))
        f1 = macro_f1([said[i] for i in wanted], list(wanted.values()), len(self.names))
        return Validation(
            loss=loss,
            metrics={"accuracy": score.value, "f1": f1},
            scores=(score,),
            n_scored=len(wanted),
            samples=tuple(
                ValidationSample(self.examples[i].source, self.examples[i].target, self.names[said[i]])
                for i in sorted(said)[:N_SAMPLES]
            ),
        )


def _batches(prepared: LabelledTexts, settings: Settings, config: BertConfig, say: Say) -> Sequence[LabelBatch]:
    data = settings.data
    longest = data.max_len - N_SPECIAL
    encoded = prepared.tokenizers.source.encode_batch([example.source for example in prepared.valid])
    texts = [np.array(ids[:longest], np.int64) for ids in encoded]
    labels = np.array(numbers_of([e.target for e in prepared.valid], prepared.names, where="validation"), np.int64)
    lengths = np.array([len(ids) + N_SPECIAL for ids in texts])
    plan = plan_batches(lengths, np.ones_like(lengths), batch_tokens=data.batch_tokens, seed=0, epoch=0)
    check_plan(plan, len(texts), "texts", max_len=data.max_len, batch_tokens=data.batch_tokens, say=say)
    return [
        collate_labels([texts[i] for i in numbers], labels[numbers], numbers, special_ids=config.special_ids)
        for numbers in plan
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 10 else f"{', '.join(names[:10])}, …"


CLASSIFICATION: Task[LabelledTexts] = Task(
    families=("bert",),
    content="labels",
    metrics=("accuracy", "f1", "loss"),
    recipe=lambda family, files, data: "bert-classify",
    prepare=prepare_labelled,
    reopen=reopen_labelled,
    lesson=lesson,
)
