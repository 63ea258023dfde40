"""From one text to another: translation, summaries, commands into actions; whatever comes in aligned pairs."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from heedful.atomic_io import write_json
from heedful.config import read_json
from heedful.data.collate import Batch, collate_pairs
from heedful.data.corpus import Example
from heedful.data.datasets import PairDataset
from heedful.errors import UserError
from heedful.evaluation.metrics import Score, bleu, chrf, default_tokenizer
from heedful.models.model_io import FAMILIES
from heedful.text import SpecialIds, Tokenizers
from heedful.training.data_preparation import Extractor, PreparedData, Reduced, extractor_of, prepare_data, reopen_data
from heedful.training.events import Notify
from heedful.training.objectives import EncoderDecoder, make_objective, pair_loss
from heedful.training.run_config import Files, sentence_language
from heedful.training.settings import DataSettings, Settings, choose_recipe
from heedful.training.tasks.base import (
    ENCODER_DECODER_SETTINGS,
    TEXT_SETTINGS,
    Preparation,
    PreparedTask,
    Task,
    TaskDescription,
    build,
)
from heedful.training.validation import (
    N_SAMPLES,
    Validation,
    ValidationSample,
    Validator,
    perplexity_of,
    plan_validation,
)

LANGUAGE = "language.json"


def prepare(preparation: Preparation) -> None:
    """Prepare aligned pairs in the run folder."""
    files, settings = preparation.files, preparation.settings
    corpora = files.corpora(settings.data)
    language = sentence_language(files, settings)
    if settings.data.long == "extract":
        (preparation.folder / "data").mkdir(parents=True, exist_ok=True)
        write_json(preparation.folder / "data" / LANGUAGE, {"source": language}, durable=True)
    prepare_data(
        preparation.folder,
        corpora,
        files.valid_corpus(settings.data),
        settings,
        tokenizers=preparation.tokenizers,
        notify=preparation.notify,
        make_extractor=partial(make_extractor, settings, language),
    )


def reopen(folder: Path, settings: Settings) -> PreparedData:
    """Read what `prepare` wrote."""
    path = folder / "data" / LANGUAGE
    language = read_json(path)["source"] if path.exists() else sentence_language(Files(), settings)
    return replace(reopen_data(folder), language=language)


def make_extractor(settings: Settings, language: str, tokenizers: Tokenizers) -> Extractor | None:
    """Make what reduces long sources, in training, in validation and later in `heedful summarize`."""
    n_special = config_for(tokenizers, settings).special_ids.n_source_prefix
    return extractor_of(settings, tokenizers.source, language=language, n_special=n_special)


def assemble(prepared: PreparedData, settings: Settings) -> PreparedTask:
    """Put together the parts that a trainer needs."""
    config = config_for(prepared.tokenizers, settings)
    special_ids = config.special_ids
    extract = make_extractor(settings, prepared.language, prepared.tokenizers)
    return PreparedTask(
        tokenizers=prepared.tokenizers,
        make_dataset=lambda pin: PairDataset(
            prepared.train,
            tokenizers=prepared.tokenizers,
            pin_memory=pin,
            special_ids=special_ids,
        ),
        make_model=partial(build, config, settings),
        objective=make_objective(
            settings.objective,
            label_smoothing=settings.loss.label_smoothing,
            r_drop=settings.loss.r_drop,
            family=settings.family,
        ),
        make_validator=lambda notify: PairsValidator(
            prepared.valid if extract is None else list(Reduced(prepared.valid, extract)),
            prepared.tokenizers,
            data=settings.data,
            last_position=settings.last_position,
            n_sentences=settings.run.validation_sentences,
            special_ids=special_ids,
            notify=notify,
        ),
        description=describe_pairs(prepared, summaries=extract is not None),
    )


def describe_pairs(prepared: PreparedData, *, summaries: bool) -> TaskDescription:
    """Describe the task: a model that is trained on extracts writes summaries, any other one translates."""
    return TaskDescription(
        what="summarisation model" if summaries else "translation model",
        output="summaries" if summaries else "translations",
        tag="summarization" if summaries else "translation",
        unit="pairs",
        train=tuple(map(len, prepared.train)),
        valid=len(prepared.valid),
        valid_sha256=fingerprint_of(prepared.valid),
        command=f"heedful {'summarize' if summaries else 'translate'} -m {{run}} INPUT --output OUTPUT",
    )


def config_for(tokenizers: Tokenizers, settings: Settings) -> Any:
    """Return the config of an encoder-decoder. Its family has one vocabulary for both sides, or one for each."""
    source, target = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    special_ids = tokenizers.target.special_ids
    special_ids = tokenizers.target.special_ids
    if "source_vocab_size" in {field.name for field in fields(FAMILIES[settings.family][0])}:
        return settings.model_config(source_vocab_size=source, target_vocab_size=target, special_ids=special_ids)
    if not tokenizers.joint:
        raise UserError(f"the family '{settings.family}' has one vocabulary for both sides: set tokenizer.joint = true")
    return settings.model_config(vocab_size=source, special_ids=special_ids)


class PairsValidator(Validator[Batch]):
    """Mean loss over all validation pairs; BLEU, chrF and exact matches of greedy translations of some sources."""

    def __init__(
        self,
        examples: Sequence[Example],
        tokenizers: Tokenizers,
        *,
        data: DataSettings,
        last_position: int | None,
        n_sentences: int,
        special_ids: SpecialIds,
        notify: Notify,
    ) -> None:
        super().__init__(_batches(examples, tokenizers, data=data, special_ids=special_ids, notify=notify))
        self.tokenizers = tokenizers
        examples = _spread(examples, n_sentences)
        self.chosen = list(examples[:n_sentences])
        if last_position is not None and n_sentences:
            readable = partial(_readable, tokenizers=tokenizers, last_position=last_position, special_ids=special_ids)
            self.chosen = _first_readable(examples, n_sentences, readable, last_position=last_position, notify=notify)
        self.tokenize = default_tokenizer([example.target for example in self.chosen])

    def score_batch(self, model: EncoderDecoder, batch: Batch) -> tuple[Tensor, None]:
        return pair_loss(model, batch), None

    def summarize(self, model: EncoderDecoder, loss: float, outputs: list[None]) -> Validation:
        from heedful.decoding.translator import translate_greedily

        hypotheses = translate_greedily(model, self.tokenizers, [example.source for example in self.chosen])
        references = [example.target for example in self.chosen]
        metrics = {"perplexity": perplexity_of(loss)}
        scores: tuple[Score, ...] = ()
        if hypotheses:
            scores = (bleu(hypotheses, [references], tokenize=self.tokenize), chrf(hypotheses, [references]))
            normalize = self.tokenizers.target.normalize
            n_exact = sum(a == normalize(b) for a, b in zip(hypotheses, references, strict=True))
            metrics |= {"exact": 100.0 * n_exact / len(hypotheses)}
            metrics |= {name: score.value for name, score in zip(("bleu", "chrf"), scores, strict=True)}
        return Validation(
            loss=loss,
            metrics=metrics,
            scores=scores,
            n_scored=len(hypotheses),
            how="greedy",
            samples=tuple(
                ValidationSample(example.source, example.target, hypothesis)
                for example, hypothesis in zip(self.chosen[:N_SAMPLES], hypotheses, strict=False)
            ),
        )


def _batches(
    examples: Sequence[Example], tokenizers: Tokenizers, *, data: DataSettings, special_ids: SpecialIds, notify: Notify
) -> list[Batch]:
    """Tokenise the validation pairs and collate them, examples of like lengths together."""
    sources, targets = (
        [np.array(special_ids.with_source_bos(ids)) for ids in tokenizer.encode_batch(texts)]
        for tokenizer, texts in (
            (tokenizers.source, [example.source for example in examples]),
            (tokenizers.target, [example.target for example in examples]),
        )
    )
    source_lengths, target_lengths = (np.array([len(ids) + 1 for ids in side]) for side in (sources, targets))
    plan = plan_validation(source_lengths, target_lengths, data, "pairs", notify, max_len=data.max_len)
    return [
        collate_pairs([sources[i] for i in indices], [targets[i] for i in indices], indices, special_ids=special_ids)
        for indices in plan
    ]


def _spread(examples: Sequence[Example], n_first: int) -> list[Example]:
    """Reorder examples: `n_first` evenly spaced ones, then the rest.

    Held-out pairs are in the order of corpora and topics, so the first ones alone would not represent them.
    """
    n_first = min(n_first, len(examples))
    chosen = [number * len(examples) // n_first for number in range(n_first)]
    rest = sorted(set(range(len(examples))) - set(chosen))
    return [examples[number] for number in (*chosen, *rest)]


def _first_readable(
    examples: Sequence[Example],
    n_wanted: int,
    readable: Callable[[Sequence[Example]], list[Example]],
    *,
    last_position: int,
    notify: Notify,
) -> list[Example]:
    """Return the first `n_wanted` examples; examples longer than the model's positions are replaced by later ones."""
    chosen = readable(examples[:n_wanted])
    n_first = len(examples[:n_wanted])
    if n_longer := n_first - len(chosen):
        be = "is" if n_longer == 1 else "are"
        notify(
            f"{n_longer:,} of the {n_first:,} sources that validation translates {be} longer than the "
            f"{last_position} positions of this model and {be} replaced by shorter ones"
        )
        chosen += readable(examples[n_wanted:])[:n_longer]
    if not chosen:
        raise UserError(
            f"all {len(examples):,} sources for validation are longer than the {last_position} positions of this "
            "model, so there is nothing to translate: raise data.max_len, give shorter ones, or set "
            "run.validation_sentences = 0 and run.metric = 'loss'"
        )
    return chosen


def _readable(
    examples: Sequence[Example], *, tokenizers: Tokenizers, last_position: int, special_ids: SpecialIds
) -> list[Example]:
    """Return the examples whose source ends before the model's last position."""
    sources = tokenizers.source.encode_batch([example.source for example in examples])
    lengths = [len(special_ids.with_source_bos(ids)) + 1 for ids in sources]
    return [example for example, n in zip(examples, lengths, strict=True) if n <= last_position]


def fingerprint_of(examples: Sequence[Example]) -> str:
    """Return the SHA-256 of the pairs themselves, since held-out pairs are no file of the user."""
    return hashlib.sha256(json.dumps([[e.source, e.target] for e in examples]).encode()).hexdigest()


def recipe_for(family: str, files: Files, data: DataSettings) -> str:
    """Return the recipe by the number of pairs for seq2seq; other families have one recipe each."""
    if family != "seq2seq":
        return family
    return choose_recipe(sum(1 for corpus in files.corpora(data) for _ in corpus.records()))


TRANSLATION = Task(
    families=("seq2seq", "bart", "t5", "universal"),
    content="pairs",
    metrics=("bleu", "chrf", "exact", "loss"),
    settings_used=TEXT_SETTINGS
    | ENCODER_DECODER_SETTINGS
    | {"tokenizer.joint", "tokenizer.sample_alpha"}
    | {f"data.{name}" for name in ("columns", "informal_share", "languages", "long", "max_doubtful")},
    recipe=recipe_for,
    prepare=prepare,
    reopen=reopen,
    assemble=assemble,
)
