"""Token classification: an encoder learns a tag for each word, such as names or parts of speech."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path

import numpy as np
from torch import Tensor

from heedful.atomic_io import write_json
from heedful.config import read_json
from heedful.data.collate import IGNORE_INDEX, N_SPECIAL, LabelBatch
from heedful.data.conll import Sentence, read_tagged, spans_of
from heedful.data.corpus import Corpus
from heedful.data.datasets import TaggingDataset
from heedful.data.seeding import IntArray
from heedful.data.splits import LARGEST_SHARE, hash_sample, nothing_left, require_hold_out
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.models.bert import Bert, BertConfig
from heedful.text import MASK_PIECE, Tokenizer, Tokenizers, load_tokenizers
from heedful.training.data_preparation import report_skipped, text_tokenizer, write_jsonl
from heedful.training.events import Notify
from heedful.training.settings import DataSettings, Settings
from heedful.training.tasks.base import (
    TEXT_SETTINGS,
    Preparation,
    PreparedTask,
    Task,
    TaskDescription,
    build,
    refuse_weights,
)
from heedful.training.tasks.labels import accuracy, label_ids, label_loss, label_names
from heedful.training.validation import N_SAMPLES, Validation, ValidationSample, Validator, plan_validation

FACTS = "tags.json"


@dataclass(frozen=True)
class TaggedTexts:
    """Sentences with tags, prepared."""

    tokenizers: Tokenizers
    names: tuple[str, ...]
    train: list[Sentence]
    valid: list[Sentence]
    sizes: tuple[int, ...]  # of the corpora, without held-out sentences


def prepare_tagged(preparation: Preparation) -> None:
    """Prepare sentences with tags in the run folder."""
    refuse_weights(preparation)
    data, notify = preparation.settings.data, preparation.notify
    corpora, valid_corpus = preparation.files.corpora(data), preparation.files.valid_corpus(data)
    columns = (data.columns[0], data.columns[1]) if data.columns else (1, -1)
    parts = [list(read_tagged(corpus, columns)) for corpus in corpora]
    sentences = list(chain.from_iterable(parts))
    if not sentences:
        raise UserError(
            f"{preparation.files.source[0]}: no word where data.columns = {list(columns)} looks for it: unless it "
            "holds the word or its tag, the first column must hold the number of each word, as in CoNLL-U"
        )
    if valid_corpus is not None:
        valid = _read_valid_corpus(valid_corpus, columns)
    else:
        parts, valid = _hold_out(parts, data)
    for corpus in (*corpora, *([valid_corpus] if valid_corpus else [])):
        report_skipped(corpus, notify)
    training = list(chain.from_iterable(parts))
    if not training:
        raise nothing_left(len(sentences), "sentences", give="--valid")
    if not valid:
        raise UserError(f"{len(sentences):,} sentences are too few to hold some out: give --valid, or more data")
    # A rare tag may occur only in sentences that were held out of the training files: the model must know it, too.
    names = label_names(tag for sentence in (training if valid_corpus else sentences) for tag in sentence.tags)
    if valid_corpus is not None:
        for sentence in valid:
            where = f"{valid_corpus.paths[0]}:{sentence.line}, in the sentence that begins there"
            label_ids(sentence.tags, names, where=where)
    tokenizer = text_tokenizer(
        preparation.folder / "tokenizers",
        (" ".join(sentence.words) for sentence in training),
        preparation.settings,
        init_from=preparation.tokenizers,
        notify=notify,
        symbols=[MASK_PIECE],
    )
    folder = preparation.folder / "data"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FACTS, {"sizes": list(map(len, parts))}, durable=True)
    for name, part in (("train", training), ("valid", valid)):
        write_jsonl(folder / f"{name}.jsonl", ([sentence.words, sentence.tags] for sentence in part))
    held = "given" if valid_corpus is not None else "held out"
    notify(f"training on {len(training):,} sentences, {len(names):,} tags; validating on {len(valid):,}, {held}")
    longest = data.max_len - N_SPECIAL
    from heedful.decoding.encoder_inputs import encode_words

    lengths = [sum(map(len, encode_words(tokenizer, sentence.words))) for sentence in (*training, *valid)]
    if n_cut := sum(length > longest for length in lengths):
        notify(f"{n_cut:,} sentences have more than {longest} tokens (data.max_len): the words beyond are not read")


def _read_valid_corpus(corpus: Corpus, columns: tuple[int, int]) -> list[Sentence]:
    if valid := list(read_tagged(corpus, columns)):
        return valid
    raise UserError(
        f"{corpus.paths[0]}: no sentence to validate with, where data.columns = {list(columns)} looks for words. "
        "Give another file, or leave out --valid: then some of the training sentences are held out"
    )


def _hold_out(parts: list[list[Sentence]], data: DataSettings) -> tuple[list[list[Sentence]], list[Sentence]]:
    """Split the sentences of each corpus by the hash of their words: training parts, and all held-out sentences."""
    require_hold_out(data.hold_out, give="--valid")
    share = data.hold_out / max(1, sum(map(len, parts)))
    is_held_out = hash_sample(min(share, LARGEST_SHARE))
    held_out = [[is_held_out(" ".join(sentence.words)) for sentence in part] for part in parts]
    rows = [list(zip(part, flags, strict=True)) for part, flags in zip(parts, held_out, strict=True)]
    training = [[sentence for sentence, is_out in part if not is_out] for part in rows]
    return training, [sentence for part in rows for sentence, is_out in part if is_out]


def reopen_tagged(folder: Path, settings: Settings) -> TaggedTexts:
    """Read what `prepare_tagged` wrote."""
    train, valid = (_read(folder / "data" / f"{name}.jsonl") for name in ("train", "valid"))
    names = label_names(tag for sentence in (*train, *valid) for tag in sentence.tags)
    sizes = tuple(read_json(folder / "data" / FACTS)["sizes"])
    return TaggedTexts(load_tokenizers(folder / "tokenizers", probe=False), names, train, valid, sizes)


def assemble(prepared: TaggedTexts, settings: Settings) -> PreparedTask:
    """Put together the parts that a trainer needs."""
    if settings.run.metric == "f1" and not _has_spans(prepared.valid):
        raise UserError(
            "run.metric = 'f1' scores spans, tags like B-PER and I-PER, and the validation data has none: "
            "use accuracy or loss"
        )
    tokenizer = prepared.tokenizers.source
    config: BertConfig = settings.model_config(
        vocab_size=tokenizer.vocab_size,
        special_ids=tokenizer.special_ids,
        head="tag",
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
        make_validator=lambda notify: TagValidator(dataset(prepared.valid), prepared, settings, notify),
        description=TaskDescription(
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
    """Return the ids of all words, and labels: a word's tag at its first piece, IGNORE_INDEX at its others."""
    tag_ids = label_ids(sentence.tags, names, where="a sentence")
    ids: list[int] = []
    labels: list[int] = []
    from heedful.decoding.encoder_inputs import encode_words

    for pieces, tag_id in zip(encode_words(tokenizer, sentence.words), tag_ids, strict=True):
        ids += pieces
        labels += [tag_id, *[IGNORE_INDEX] * (len(pieces) - 1)]
    return np.array(ids[:longest], np.int64), np.array(labels[:longest], np.int64)


def tag_loss(model: Bert, batch: LabelBatch, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy, summed over all words in a batch."""
    logits = model.head(model.hidden_states(batch.ids, batch.mask))  # (B, S, L)
    return label_loss(logits, batch.labels, label_smoothing=label_smoothing)


class TagValidator(Validator[LabelBatch]):
    """Loss and accuracy by words; if tags are like B-PER and I-PER, also the F1 of whole spans."""

    def __init__(self, dataset: TaggingDataset, prepared: TaggedTexts, settings: Settings, notify: Notify) -> None:
        lengths = dataset.source_lengths, dataset.target_lengths
        plan = plan_validation(*lengths, settings.data, "sentences", notify)
        super().__init__([dataset.batch(indices, np.arange(len(indices)), seed=0) for indices in plan])
        self.names, self.sentences = prepared.names, prepared.valid

    def score_batch(self, model: Bert, batch: LabelBatch) -> tuple[Tensor, dict[int, list[str]]]:
        logits = model.head(model.hidden_states(batch.ids, batch.mask))  # (B, S, L)
        predicted, is_word = logits.argmax(dim=-1), batch.labels != IGNORE_INDEX  # (B, S)
        rows = zip(batch.indices.tolist(), predicted, is_word, strict=True)
        tags = {index: [self.names[tag] for tag in row[words].tolist()] for index, row, words in rows}
        return label_loss(logits, batch.labels), tags

    def summarize(self, model: Bert, loss: float, outputs: list[dict[int, list[str]]]) -> Validation:
        predicted = {index: tags for part in outputs for index, tags in part.items()}
        pairs = [(predicted[i], list(self.sentences[i].tags[: len(predicted[i])])) for i in sorted(predicted)]
        n_right = sum(a == b for tags, reference in pairs for a, b in zip(tags, reference, strict=True))
        score = accuracy(n_right, sum(len(reference) for _, reference in pairs))
        f1 = Score("F1", span_f1(pairs), "")
        has_spans = _has_spans(self.sentences)
        return Validation(
            loss=loss,
            metrics={"accuracy": score.value, **({"f1": f1.value} if has_spans else {})},
            scores=(score, f1) if has_spans else (score,),
            n_scored=len(pairs),
            samples=tuple(
                ValidationSample(
                    " ".join(self.sentences[index].words),
                    " ".join(self.sentences[index].tags),
                    " ".join(predicted[index]),
                )
                for index in sorted(predicted)[:N_SAMPLES]
            ),
        )


def span_f1(pairs: Sequence[tuple[list[str], list[str]]]) -> float:
    """Return the F1 of spans over all (predicted, reference) tags, in per cent: begin, end and type must be right.

    >>> span_f1([(["B-PER", "I-PER", "O"], ["B-PER", "I-PER", "O"])])
    100.0
    """
    n_predicted, n_reference, n_both = 0, 0, 0
    for predicted, reference in pairs:
        a, b = spans_of(predicted), spans_of(reference)
        n_predicted, n_reference, n_both = n_predicted + len(a), n_reference + len(b), n_both + len(a & b)
    return 200.0 * n_both / max(1, n_predicted + n_reference)


def _has_spans(sentences: Sequence[Sentence]) -> bool:
    return any(spans_of(sentence.tags) for sentence in sentences)


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
    settings_used=TEXT_SETTINGS | {"data.columns", "loss.label_smoothing"},
    recipe=lambda family, files, data: "bert-tag",
    prepare=prepare_tagged,
    reopen=reopen_tagged,
    assemble=assemble,
    counted="words",
)
