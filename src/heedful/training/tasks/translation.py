"""From one text to another: translation, summaries, commands into actions; whatever comes in pairs."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config import read_json
from heedful.data.batch_sampler import plan_batches
from heedful.data.collate import Batch, collate_pairs
from heedful.data.corpus import Example
from heedful.data.datasets import PairDataset
from heedful.decoding.translator import translate_greedily
from heedful.errors import UserError
from heedful.evaluation.metrics import bleu, chrf, tokenize_for
from heedful.models.model_io import FAMILIES, Model
from heedful.text import Tokenizers
from heedful.text.special_ids import SpecialIds
from heedful.training.data_preparation import Extractor, Prepared, Reduced, extractor_of, prepare_data, reopen_data
from heedful.training.objectives import EncoderDecoder, make_objective, pair_loss
from heedful.training.run_config import Files, RunRecord, sentence_language
from heedful.training.settings import DataSettings, Settings, choose_recipe
from heedful.training.tasks.base import Preparation, PreparedTask, Say, Task, TaskDescription, build
from heedful.training.tasks.stages import write_json
from heedful.training.validation import (
    Validation,
    ValidationSample,
    check_plan,
    evaluation_mode,
    mean_loss,
    perplexity_of,
)

LANGUAGE = "language.json"


def prepare(given: Preparation) -> None:
    corpora = given.files.corpora(given.settings.data)
    language = sentence_language(RunRecord(given.files, given.settings))
    if given.settings.data.long == "extract":
        write_json(given.folder / "data" / LANGUAGE, {"source": language})
    prepare_data(
        given.folder,
        corpora,
        given.files.valid_corpus(given.settings.data),
        given.settings,
        tokenizers=given.tokenizers,
        say=given.say,
        make_extractor=partial(make_extractor, given.settings, language),
    )


def make_extractor(settings: Settings, language: str, tokenizers: Tokenizers) -> Extractor | None:
    """What reduces long sources, if the run wants that: in training, in validation, and as summaries are made later."""
    n_special = config_for(tokenizers, settings).special_ids.n_source_prefix
    return extractor_of(settings, tokenizers.source, language=language, n_special=n_special)


def lesson(prepared: Prepared, settings: Settings) -> PreparedTask:
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
        make_validator=lambda say: PairsValidator(
            prepared.valid if extract is None else list(Reduced(prepared.valid, extract)),
            prepared.tokenizers,
            batch_tokens=settings.data.batch_tokens,
            max_len=settings.data.max_len,
            last_position=settings.last_position,
            sentences=settings.run.validation_sentences,
            special_ids=special_ids,
            say=say,
        ),
        about=about_pairs(prepared, summaries=extract is not None),
    )


def about_pairs(prepared: Prepared, *, summaries: bool) -> TaskDescription:
    """Who extracts before they write, make summaries: of a translation nothing may be missing."""
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
    """The config of an encoder-decoder: one that keeps its sides apart has two vocabularies, even if they are one."""
    source, target = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    special_ids = tokenizers.target.special_ids
    if "source_vocab_size" in {field.name for field in fields(FAMILIES[settings.family][0])}:
        return settings.model_config(source_vocab_size=source, target_vocab_size=target, special_ids=special_ids)
    if not tokenizers.joint:
        raise UserError(f"the family '{settings.family}' has one vocabulary for both sides: set tokenizer.joint = true")
    return settings.model_config(vocab_size=source, special_ids=special_ids)


class PairsValidator:
    """The validation pairs, tokenised and cut into batches once."""

    def __init__(
        self,
        examples: Sequence[Example],
        tokenizers: Tokenizers,
        *,
        batch_tokens: int,
        max_len: int,
        last_position: int | None,
        sentences: int,
        special_ids: SpecialIds,
        say: Say,
    ) -> None:
        self.tokenizers = tokenizers
        self.batches = _batches(
            examples, tokenizers, batch_tokens=batch_tokens, max_len=max_len, special_ids=special_ids, say=say
        )
        examples = _spread(examples, sentences)
        self.chosen = list(examples[:sentences])
        if last_position is not None and sentences:
            readable = partial(_readable, tokenizers=tokenizers, last_position=last_position, special_ids=special_ids)
            self.chosen = _first_readable(examples, sentences, readable, last_position=last_position, say=say)
        self.tokenize = tokenize_for([example.target for example in self.chosen])

    def __call__(self, model: Model) -> Validation:
        assert isinstance(model, EncoderDecoder)
        with evaluation_mode(model):
            loss = self._loss(model)
            said = translate_greedily(model, self.tokenizers, [example.source for example in self.chosen])
        wanted = [example.target for example in self.chosen]
        metrics = {"perplexity": perplexity_of(loss)}
        scores = (bleu(said, [wanted], tokenize=self.tokenize), chrf(said, [wanted])) if said else ()
        if said:
            right = sum(a == self.tokenizers.target.normalize(b) for a, b in zip(said, wanted, strict=True))
            metrics |= {"exact": 100.0 * right / len(said)}
            metrics |= {name: score.value for name, score in zip(("bleu", "chrf"), scores, strict=True)}
        return Validation(
            loss=loss,
            metrics=metrics,
            scores=scores,
            n_scored=len(said),
            how="greedy",
            samples=tuple(
                ValidationSample(e.source, e.target, text) for e, text in zip(self.chosen[:3], said, strict=False)
            ),
        )

    def _loss(self, model: EncoderDecoder) -> float:
        device = next(model.parameters()).device
        return mean_loss(self.batches, partial(pair_loss, model), device)


def _batches(
    examples: Sequence[Example],
    tokenizers: Tokenizers,
    *,
    batch_tokens: int,
    max_len: int,
    special_ids: SpecialIds,
    say: Say,
) -> list[Batch]:
    sources, targets = (
        [np.array(special_ids.with_source_bos(ids)) for ids in tokenizer.encode_batch(texts)]
        for tokenizer, texts in (
            (tokenizers.source, [example.source for example in examples]),
            (tokenizers.target, [example.target for example in examples]),
        )
    )
    lengths = [np.array([len(ids) + 1 for ids in side]) for side in (sources, targets)]
    plan = plan_batches(*lengths, batch_tokens=batch_tokens, max_len=max_len, seed=0, epoch=0)
    check_plan(plan, len(examples), "pairs", max_len=max_len, batch_tokens=batch_tokens, say=say)
    return [
        collate_pairs([sources[i] for i in numbers], [targets[i] for i in numbers], numbers, special_ids=special_ids)
        for numbers in plan
    ]


def _spread(examples: Sequence[Example], n_first: int) -> list[Example]:
    """So many from all over the examples, then the rest: held-out pairs stand corpus after corpus, subject after
    subject, and the first alone would speak for all.
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
    say: Say,
) -> list[Example]:
    """So many of those that end before the model's positions do; later ones stand in for what cannot be translated."""
    found = readable(examples[:n_wanted])
    if n_longer := len(examples[:n_wanted]) - len(found):
        be = "is" if n_longer == 1 else "are"
        say(
            f"{n_longer:,} of the {len(examples[:n_wanted]):,} sources that validation translates {be} longer than the "
            f"{last_position} positions of this model: its scores are of others"
        )
        found += readable(examples[n_wanted:])[:n_longer]
    if not found:
        raise UserError(
            f"all {len(examples):,} sources for validation are longer than the {last_position} positions of this "
            "model, so there is nothing to translate: raise data.max_len, give shorter ones, or set "
            "run.validation_sentences = 0 and run.metric = 'loss'"
        )
    return found


def _readable(
    examples: Sequence[Example], *, tokenizers: Tokenizers, last_position: int, special_ids: SpecialIds
) -> list[Example]:
    sources = tokenizers.source.encode_batch([example.source for example in examples])
    lengths = [len(special_ids.with_source_bos(ids)) + 1 for ids in sources]
    return [example for example, n in zip(examples, lengths, strict=True) if n <= last_position]


def fingerprint_of(examples: Sequence[Example]) -> str:
    """SHA-256 of the pairs themselves, since held-out ones are no file."""
    return hashlib.sha256(json.dumps([[e.source, e.target] for e in examples]).encode()).hexdigest()


def recipe_for(family: str, files: Files, data: DataSettings) -> str:
    """The families beside seq2seq have one recipe each, for text and pairs alike."""
    if family != "seq2seq":
        return family
    return choose_recipe(sum(1 for corpus in files.corpora(data) for _ in corpus.records()))


def reopen(folder: Path, settings: Settings) -> Prepared:
    kept = folder / "data" / LANGUAGE
    # A run of an older version has none, and was split by the setting alone.
    language = read_json(kept)["source"] if kept.exists() else sentence_language(RunRecord(Files(), settings))
    return replace(reopen_data(folder), language=language)


TRANSLATION = Task(
    families=("seq2seq", "bart", "t5", "universal"),
    content="pairs",
    metrics=("bleu", "chrf", "exact", "loss"),
    recipe=recipe_for,
    prepare=prepare,
    reopen=reopen,
    lesson=lesson,
)
