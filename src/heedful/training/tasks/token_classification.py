"""Which label each word has: names, parts of speech."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path

import numpy as np
from torch import Tensor

from heedful.atomic_io import sync
from heedful.config import read_json
from heedful.data.batch_sampler import plan_batches
from heedful.data.collate import IGNORE_INDEX, N_SPECIAL, LabelBatch
from heedful.data.conll import Sentence, read_tagged, spans_of
from heedful.data.datasets import TaggingDataset
from heedful.data.seeding import IntArray
from heedful.data.splits import LARGEST_SHARE, hash_sample, nothing_left, require_hold_out
from heedful.decoding.encoder_inputs import encode_words
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import Model
from heedful.text import MASK_PIECE, Tokenizer, Tokenizers, load_tokenizers
from heedful.training.data_preparation import say_left_out
from heedful.training.settings import Settings
from heedful.training.tasks.base import Preparation, PreparedTask, Say, Task, TaskDescription, build
from heedful.training.tasks.labels import accuracy, label_loss, names_of, numbers_of
from heedful.training.tasks.stages import one_tokenizer, refuse_weights, write_json
from heedful.training.validation import Validation, ValidationSample, check_plan, evaluation_mode, mean_loss

FACTS = "tags.json"
N_SAMPLES = 3


@dataclass(frozen=True)
class TaggedTexts:
    tokenizers: Tokenizers
    names: tuple[str, ...]
    train: list[Sentence]
    valid: list[Sentence]
    sizes: tuple[int, ...]  # of the corpora, without what was held out


def prepare_tagged(given: Preparation) -> None:
    refuse_weights(given)
    data = given.settings.data
    corpora = given.files.corpora(data)
    word, tag = data.columns or (1, -1)
    parts = [list(read_tagged(one, (word, tag))) for one in corpora]
    sentences = list(chain.from_iterable(parts))
    if not sentences:
        raise UserError(
            f"{given.files.source[0]}: no word where data.columns = {[word, tag]} looks for it: unless it holds "
            "the word or its tag, the first column must hold the number of each word, as in CoNLL-U"
        )
    corpus = given.files.valid_corpus(data)
    if corpus is not None:
        valid = list(read_tagged(corpus, (word, tag)))
        if not valid:
            raise UserError(
                f"{corpus.paths[0]}: no sentence to validate with, where data.columns = {[word, tag]} looks for words. "
                "Give another file, or leave out --valid: then some of the training sentences are held out"
            )
    else:
        require_hold_out(data.hold_out, give="--valid")
        is_held_out = hash_sample(min(data.hold_out / max(1, len(sentences)), LARGEST_SHARE))
        parts = [[s for s in part if not is_held_out(" ".join(s.words))] for part in parts]
        valid = [s for s in sentences if is_held_out(" ".join(s.words))]
    for one in (*corpora, *([corpus] if corpus else [])):
        say_left_out(one, given.say)
    training = list(chain.from_iterable(parts))
    if not training:
        raise nothing_left(len(sentences), "sentences", give="--valid")
    if not valid:
        raise UserError(f"{len(sentences):,} sentences are too few to hold some out: give --valid, or more data")
    # A rare tag may stand only in what was held out of the files: it is one of theirs all the same.
    names = names_of(tag for sentence in (training if corpus else sentences) for tag in sentence.tags)
    if corpus is not None:
        for sentence in valid:
            begins = f"{corpus.paths[0]}:{sentence.line}, in the sentence that begins there"
            numbers_of(sentence.tags, names, where=begins)
    tokenizer = one_tokenizer(given, (" ".join(sentence.words) for sentence in training), symbols=[MASK_PIECE]).source
    write_json(given.folder / "data" / FACTS, {"sizes": list(map(len, parts))})
    for name, part in (("train", training), ("valid", valid)):
        _write(given.folder / "data" / f"{name}.jsonl", part)
    held = "given" if corpus is not None else "held out"
    given.say(f"training on {len(training):,} sentences, {len(names):,} tags; validating on {len(valid):,}, {held}")
    longest = data.max_len - N_SPECIAL
    lengths = [sum(map(len, encode_words(tokenizer, sentence.words))) for sentence in (*training, *valid)]
    if n_cut := sum(length > longest for length in lengths):
        given.say(f"{n_cut:,} sentences have more than {longest} tokens (data.max_len): the words beyond are not read")


def reopen_tagged(folder: Path, settings: Settings) -> TaggedTexts:
    train, valid = (_read(folder / "data" / f"{name}.jsonl") for name in ("train", "valid"))
    names = names_of(tag for sentence in (*train, *valid) for tag in sentence.tags)
    facts = folder / "data" / FACTS  # which runs of older versions do not have
    sizes = tuple(read_json(facts)["sizes"]) if facts.exists() else (len(train),)
    return TaggedTexts(load_tokenizers(folder / "tokenizers", probe=False), names, train, valid, sizes)


def lesson(prepared: TaggedTexts, settings: Settings) -> PreparedTask:
    if settings.run.metric == "f1" and not _has_stretches(prepared.valid):
        raise UserError(
            "run.metric = 'f1' is of stretches, in tags like B-PER and I-PER, and the validation data has none: "
            "use accuracy or loss"
        )
    tokenizer = prepared.tokenizers.source
    config: BertConfig = settings.model_config(
        vocab_size=tokenizer.vocab_size,
        special_ids=tokenizer.special_ids,
        head="label_tokens",
        labels=list(prepared.names),
    )

    def dataset(sentences: Sequence[Sentence], pin_memory: bool = False) -> TaggingDataset:
        longest = settings.data.max_len - N_SPECIAL
        encoded = [encode(sentence, tokenizer, prepared.names, longest) for sentence in sentences]
        ids, labels = [a for a, _ in encoded], [b for _, b in encoded]
        key = f"{_sha256(sentences)} up to {longest}"
        return TaggingDataset(ids, labels, key=key, special_ids=config.special_ids, pin_memory=pin_memory)

    return PreparedTask(
        tokenizers=prepared.tokenizers,
        make_dataset=lambda pin: dataset(prepared.train, pin),
        make_model=partial(build, config, settings),
        objective=lambda model, batch, step: tag_loss(model, batch, label_smoothing=settings.loss.label_smoothing),
        make_validator=lambda say: TagValidator(dataset(prepared.valid), prepared, settings, say),
        about=TaskDescription(
            what="tagger of words",
            output="tags",
            tag="token-classification",
            unit="sentences",
            train=prepared.sizes,
            valid=len(prepared.valid),
            valid_sha256=_sha256(prepared.valid),
            command="heedful classify INPUT -m {run}",
        ),
    )


def encode(sentence: Sentence, tokenizer: Tokenizer, names: Sequence[str], longest: int) -> tuple[IntArray, IntArray]:
    """The ids of all words, and the number of each word's tag at its first piece, NONE at its others."""
    numbers = numbers_of(sentence.tags, names, where="a sentence")
    ids: list[int] = []
    labels: list[int] = []
    for pieces, number in zip(encode_words(tokenizer, sentence.words), numbers, strict=True):
        ids += pieces
        labels += [number, *[IGNORE_INDEX] * (len(pieces) - 1)]
    return np.array(ids[:longest], np.int64), np.array(labels[:longest], np.int64)


def tag_loss(model: Bert, batch: LabelBatch, *, label_smoothing: float = 0.0) -> Tensor:
    logits = model.head(model.states(batch.ids, batch.mask))  # (B, S, L)
    return label_loss(logits, batch.labels, label_smoothing=label_smoothing)


class TagValidator:
    """Accuracy by words; where tags are like B-PER and I-PER, also the F1 of whole stretches."""

    def __init__(self, dataset: TaggingDataset, prepared: TaggedTexts, settings: Settings, say: Say) -> None:
        self.names, self.sentences = prepared.names, prepared.valid
        data, lengths = settings.data, (dataset.source_lengths, dataset.target_lengths)
        plan = plan_batches(*lengths, batch_tokens=data.batch_tokens, seed=0, epoch=0)
        check_plan(
            plan, len(self.sentences), "sentences", max_len=data.max_len, batch_tokens=data.batch_tokens, say=say
        )
        self.batches = [dataset.batch(numbers, np.arange(len(numbers)), seed=0) for numbers in plan]

    def __call__(self, model: Model) -> Validation:
        assert isinstance(model, Bert)
        said: dict[int, list[str]] = {}

        def loss_of(batch: LabelBatch) -> Tensor:
            logits = model.head(model.states(batch.ids, batch.mask))  # (B, S, L)
            best = logits.argmax(dim=-1)
            for row, number in enumerate(batch.indices.tolist()):
                tags = best[row][batch.labels[row] != IGNORE_INDEX]
                said[number] = [self.names[tag] for tag in tags.tolist()]
            return label_loss(logits, batch.labels)

        with evaluation_mode(model) as device:
            loss = mean_loss(self.batches, loss_of, device)
        pairs = [(said[number], list(self.sentences[number].tags[: len(said[number])])) for number in sorted(said)]
        right = sum(a == b for ours, true in pairs for a, b in zip(ours, true, strict=True))
        score = accuracy(right, sum(len(true) for _, true in pairs))
        f1 = Score("F1", span_f1(pairs), "")
        spans = _has_stretches(self.sentences)
        return Validation(
            loss=loss,
            metrics={"accuracy": score.value, **({"f1": f1.value} if spans else {})},
            scores=(score, f1) if spans else (score,),
            n_scored=len(pairs),
            samples=tuple(
                ValidationSample(
                    " ".join(self.sentences[number].words),
                    " ".join(self.sentences[number].tags),
                    " ".join(said[number]),
                )
                for number in sorted(said)[:N_SAMPLES]
            ),
        )


def span_f1(pairs: Sequence[tuple[list[str], list[str]]]) -> float:
    """Of whole stretches, over all sentences, in per cent: begin, end and name must be right."""
    found, true, both = 0, 0, 0
    for ours, theirs in pairs:
        a, b = spans_of(ours), spans_of(theirs)
        found, true, both = found + len(a), true + len(b), both + len(a & b)
    return 200.0 * both / max(1, found + true)


def _has_stretches(sentences: Sequence[Sentence]) -> bool:
    return any(spans_of(sentence.tags) for sentence in sentences)


def _write(path: Path, sentences: Sequence[Sentence]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".writing-{os.getpid()}")
    with aside.open("w", encoding="utf-8") as file:
        for sentence in sentences:
            file.write(json.dumps([sentence.words, sentence.tags], ensure_ascii=False) + "\n")
    sync(aside)
    aside.rename(path)


def _read(path: Path) -> list[Sentence]:
    with path.open(encoding="utf-8", newline="\n") as file:
        return [Sentence(tuple(words), tuple(tags)) for words, tags in map(json.loads, file)]


def _sha256(sentences: Sequence[Sentence]) -> str:
    parts = chain.from_iterable((*sentence.words, *sentence.tags, "") for sentence in sentences)
    return sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()


TAGGING: Task[TaggedTexts] = Task(
    families=("bert",),
    content="tags",
    metrics=("accuracy", "f1", "loss"),
    recipe=lambda family, files, data: "bert-tag",
    prepare=prepare_tagged,
    reopen=reopen_tagged,
    lesson=lesson,
)
