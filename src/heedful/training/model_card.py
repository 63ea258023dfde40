"""The model card: README.md of a model folder, written from the facts of the run.

It is Markdown with the YAML header that model hubs read. Unknown facts are left out: a card never guesses a licence or
a language.
"""

import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from heedful import __version__
from heedful.config import config_to_dict
from heedful.evaluation.metrics import Score
from heedful.formatting import count, duration
from heedful.models.model_info import ENCODER_DECODERS
from heedful.models.model_io import Model
from heedful.training.checkpoint import TrainerState
from heedful.training.run_config import RunRecord, languages_of
from heedful.training.tasks.base import PreparedTask
from heedful.training.validation import Validation

# setting -> its name on the card; the other settings are in settings.toml
CARD_SETTINGS = {
    "model.d_model": "model width",
    "model.d_ff": "feed-forward width",
    "model.n_heads": "heads",
    "model.dropout": "dropout",
    "model.residual": "position of the norm",
    "model.positions": "positions",
    "objective.kind": "objective",
    "objective.token_cutoff": "token cutoff",
    "loss.label_smoothing": "label smoothing",
    "loss.r_drop": "R-Drop weight",
    "data.batch_tokens": "target tokens of a step",
    "optimiser.kind": "optimiser",
    "optimiser.lr": "highest learning rate",
    "schedule.kind": "schedule",
    "schedule.warmup_steps": "warm-up steps",
    "run.seed": "seed",
    "run.precision": "precision",
}
HUB_METRICS = {"BLEU": "bleu", "chrF2": "chrf", "accuracy": "accuracy", "F1": "f1"}  # hubs' names


@dataclass(frozen=True)
class CorpusFacts:
    """One corpus: name, size and SHA-256."""

    name: str
    pairs: int
    sha256: str


@dataclass(frozen=True)
class ScoreFacts:
    """A score, and the corpus it was measured on."""

    corpus: str
    sentences: int
    score: Score
    search: str  # how the translations were found: "greedy", "beam of 5"


@dataclass(frozen=True)
class CostFacts:
    """What the training took, over all starts of the run."""

    steps: int
    tokens: int  # target tokens
    seconds: float
    machine: str


@dataclass(frozen=True)
class SizeFacts:
    """Sizes of the model; 0 for a size that the family does not have."""

    family: str
    parameters: int
    n_layers: int
    n_decoder_layers: int
    source_vocab_size: int
    target_vocab_size: int
    joint: bool  # one vocabulary for both sides
    tokenizer: str  # its kind
    max_len: int  # longest side in training, in tokens
    n_labels: int = 0


@dataclass(frozen=True)
class CardFacts:
    """All facts of a card."""

    name: str
    heedful: str  # version
    sizes: SizeFacts
    settings: Mapping[str, Any]  # as settings.toml has them: {"model": {"d_model": 256, …}, …}
    trained_on: tuple[CorpusFacts, ...]
    validated_on: tuple[CorpusFacts, ...]
    cost: CostFacts
    scores: tuple[ScoreFacts, ...] = ()
    weights: str = ""  # which weights: "the best of 12 validations, at step 9,000"
    languages: tuple[str, str] | None = None  # codes of source and target, if known
    usage: tuple[str, ...] = ()  # commands that work with the folder
    what: str = "translation model"
    output: str = "translations"  # of the model, in words
    tag: str = "translation"  # as model hubs call the task
    unit: str = "pairs"  # what the corpora are counted in


def model_card(facts: CardFacts) -> str:
    """Return the text of README.md."""
    sections = (
        _introduction(facts),
        _usage(facts),
        _data(facts),
        _scores(facts),
        _sizes(facts),
        _settings(facts),
        _limits(facts),
        _cost(facts),
    )
    body = "\n\n".join("\n".join(section) for section in map(list, sections) if section)
    return "\n".join(_head(facts)) + "\n\n" + body + "\n"


def _head(facts: CardFacts) -> Iterator[str]:
    """Yield the YAML header; strings are quoted as in JSON, since YAML reads a bare `no`, Norwegian, as false."""
    yield "---"
    if facts.languages is not None:
        yield "language:"
        yield from (f"- {json.dumps(code)}" for code in dict.fromkeys(facts.languages))
    yield "library_name: heedful"
    yield f"pipeline_tag: {facts.tag}"
    metrics = dict.fromkeys(HUB_METRICS[s.score.name] for s in facts.scores if s.score.name in HUB_METRICS)
    if metrics:
        yield "metrics:"
        yield from (f"- {name}" for name in metrics)
    yield "---"


def _introduction(facts: CardFacts) -> Iterator[str]:
    between = "" if facts.languages is None else f" from `{_code(facts.languages[0])}` to `{_code(facts.languages[1])}`"
    yield f"# {_line(facts.name)}"
    yield ""
    yield (
        f"{_article(facts.what)} {_line(facts.what)}{between}: a Transformer of the family "
        f"`{_code(facts.sizes.family)}` with {count(facts.sizes.parameters)} parameters, trained with heedful "
        f"{_line(facts.heedful)}."
    )
    if facts.weights:
        yield f"Its weights are {_line(facts.weights)}."


def _usage(facts: CardFacts) -> Iterator[str]:
    if facts.usage:
        yield from ("## How to use it", "", "```console", *(f"$ {_flat(command)}" for command in facts.usage), "```")


def _data(facts: CardFacts) -> Iterator[str]:
    yield from ("## Training data", "")
    yield from _table(
        ("", "corpus", facts.unit, "SHA-256"),
        [
            (role, _line(_without_folder(corpus.name)), count(corpus.pairs), f"`{_code(corpus.sha256)}`")
            for role, corpora in (("training", facts.trained_on), ("validation", facts.validated_on))
            for corpus in corpora
        ],
    )


def _scores(facts: CardFacts) -> Iterator[str]:
    yield from ("## Scores", "")
    if not facts.scores:
        yield "None were measured."
        return
    for row in facts.scores:  # no table: a signature has bars, which would end its cells
        unit = "sentences" if facts.unit == "pairs" else facts.unit
        how = f", {_line(row.search)}" if row.search else ""
        where = f"{_line(_without_folder(row.corpus))}, {count(row.sentences)} {unit}{how}"
        signature = f": `{_code(row.score.signature)}`" if row.score.signature else ""
        yield f"- {_line(row.score.name)} **{row.score.value:.2f}** on {where}{signature}"
    if any(row.score.signature for row in facts.scores):
        yield ""
        yield "By sacreBLEU. Scores can only be compared if signature and sentences are the same."


def _sizes(facts: CardFacts) -> Iterator[str]:
    sizes = facts.sizes
    yield from ("## Sizes", "")
    yield f"- parameters: {count(sizes.parameters)}"
    if sizes.n_decoder_layers:
        yield f"- layers: {sizes.n_layers} in the encoder, {sizes.n_decoder_layers} in the decoder"
    else:
        yield f"- layers: {sizes.n_layers}"
    if sizes.source_vocab_size:
        yield f"- vocabulary: {_vocabulary(sizes)} (`{_code(sizes.tokenizer)}`)"
    if sizes.n_labels:
        yield f"- labels: {count(sizes.n_labels)}"


def _vocabulary(sizes: SizeFacts) -> str:
    if not sizes.joint:
        return f"{count(sizes.source_vocab_size)} source pieces and {count(sizes.target_vocab_size)} target pieces"
    return f"{count(sizes.source_vocab_size)} pieces{' for both sides' if sizes.n_decoder_layers else ''}"


def _settings(facts: CardFacts) -> Iterator[str]:
    known = [(words, _look_up(facts.settings, name)) for name, words in CARD_SETTINGS.items()]
    rows = [(words, f"`{_code(str(value))}`") for words, value in known if value is not None]
    if rows:
        yield from ("## Settings", "", *_table(("setting", "value"), rows))


def _limits(facts: CardFacts) -> Iterator[str]:
    yield from ("## Limits", "")
    yield (
        f"- The model was trained on the data above only: for other subjects, styles or sources expect worse "
        f"{facts.output} than the scores suggest, including fluent ones that are wrong."
    )
    if facts.sizes.max_len:
        texts = "sentences" if facts.unit == "pairs" else "texts"
        yield f"- It was trained on {texts} of up to {count(facts.sizes.max_len)} tokens; longer input should be split."
    yield (
        f"- Bias, offensive content and errors of the training data may come back in {facts.output}. The model was not "
        "examined for bias, and there is no warranty. Let a person check important results."
    )


def _cost(facts: CardFacts) -> Iterator[str]:
    cost = facts.cost
    yield from ("## Training cost", "")
    yield f"- {count(cost.steps)} steps, {count(cost.tokens)} target tokens, {duration(cost.seconds)}"
    yield f"- on: {_line(cost.machine)}"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        cells = (re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in row)  # a bar would end the cell, also in code
        yield f"| {' | '.join(cells)} |"


def _look_up(settings: Mapping[str, Any], name: str) -> object | None:
    table, key = name.split(".")
    value: object | None = settings.get(table, {}).get(key)
    return value


def _article(noun: str) -> str:
    return "An" if noun[:1] in "aeiou" else "A"


def _without_folder(name: str) -> str:
    """Remove the folders from a file name: they belong to the machine that trained the model."""
    return " + ".join(PurePath(part).name for part in name.split(" + "))


def _flat(text: str) -> str:
    return " ".join(text.split())


def _line(text: str) -> str:
    """Escape a text for Markdown, on one line."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#~" else c for c in _flat(text))


def _code(text: str) -> str:
    """Prepare a text to be put between backticks."""
    return _flat(text).replace("`", "'")


def describe_model(
    record: RunRecord, task: PreparedTask, model: Model, state: TrainerState, result: Validation, *, weights: str
) -> str:
    """Return the card of one model folder; `weights` describes its weights."""
    files, description = record.files, task.description
    names = [" + ".join(Path(part).name for part in pair) for pair in files.pairs()]
    again = ", a part also in informal spelling" if record.settings.data.informal_share else ""
    trained_on = tuple(
        CorpusFacts(f"{name}{again}", size, fingerprint)
        for name, size, fingerprint in zip(names, description.train, files.fingerprints, strict=False)
    )
    valid = " + ".join(Path(part).name for part in files.valid) or "held out of the training files"
    return model_card(
        CardFacts(
            name=" and ".join(names) or f"a {description.what}",
            heedful=__version__,
            sizes=sizes_of(record, task, model),
            settings=config_to_dict(record.settings),
            trained_on=trained_on,
            validated_on=(CorpusFacts(valid, description.valid, description.valid_sha256),),
            cost=CostFacts(state.step, state.tokens, state.seconds, f"{platform.machine()}, {platform.system()}"),
            scores=tuple(ScoreFacts(valid, result.n_scored, score, result.how) for score in result.scores),
            weights=weights,
            languages=languages_of(record.files, record.settings) if files.content == "pairs" else None,
            what=description.what,
            output=description.output,
            tag=description.tag,
            unit=description.unit,
        )
    )


def sizes_of(record: RunRecord, task: PreparedTask, model: Model) -> SizeFacts:
    """Return the sizes of a model: an encoder-only model has one stack, a model of images no vocabulary."""
    settings, config, tokenizers = record.settings, model.config, task.tokenizers
    n_layers = getattr(config, "n_layers", 1)  # a universal Transformer applies one layer repeatedly
    has_decoder = settings.family in ENCODER_DECODERS
    return SizeFacts(
        family=settings.family,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        n_layers=n_layers,
        n_decoder_layers=(getattr(config, "n_decoder_layers", None) or n_layers) if has_decoder else 0,
        source_vocab_size=0 if tokenizers is None else tokenizers.source.vocab_size,
        target_vocab_size=0 if tokenizers is None else tokenizers.target.vocab_size,
        joint=tokenizers is None or tokenizers.joint,
        # The tokenizer's own kind: with --init-from it may differ from the settings.
        tokenizer="" if tokenizers is None else tokenizers.target.kind,
        max_len=0 if tokenizers is None else settings.data.max_len,
        n_labels=len(getattr(config, "labels", ())),
    )
