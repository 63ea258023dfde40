"""The settings of a new run: `recipe < model to start from < --set`, merged as nested dicts and checked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from heedful.config import config_from_dict, config_to_dict, read_toml
from heedful.data.corpus import format_of
from heedful.errors import UserError, invalid_choice
from heedful.models.model_io import FAMILIES, load_model
from heedful.text import SentencePieceTokenizer, Tokenizer, TokenizerConfig, Tokenizers
from heedful.text.tokenizer_config import SAMPLING_KINDS
from heedful.training.run_config import Files, RunRecord
from heedful.training.settings import (
    DataSettings,
    Settings,
    Values,
    find_recipe,
    flat,
    merged,
    read_overrides,
)
from heedful.training.tasks.registry import TASKS, TEXT_METRICS, choose_task, metric_of, task_of, tasks_that_use

# Fields of a model to start from that are not taken over: the new run's data or settings determine them.
NOT_TAKEN = frozenset(
    {"source_vocab_size", "target_vocab_size", "labels", "multi_label", "head", "dropout"}
    | {"attention_dropout", "image_size", "prefixes", "pooler"}
)
# Fields that are taken over but may be changed with --set: they concern training, not the shape of the weights.
MAY_BE_SET = frozenset({"activation_dropout", "classifier_dropout", "ponder_weight"})
# Settings that raise a UserError for other tasks even if only the recipe sets them. All others may be in a recipe that
# serves two tasks, pre-training and what starts from it; these change the result, and would be believed to help.
REFUSED_IN_RECIPES = frozenset(
    {"loss.r_drop", "objective.kind", "objective.token_cutoff", "tokenizer.sample_alpha"}
) | {
    "data.informal_share",
    "data.columns",
}
# setting -> the setting that it depends on, and the values with which it has an effect
NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "data.hold_out_share": ("data.documents", ("file",)),
    "data.hold_out": ("data.documents", ("lines", "paragraphs")),
    "data.isolate_documents": ("data.rows", ("packed",)),
    "schedule.final_lr": ("schedule.kind", ("cosine", "linear")),
    "optimiser.momentum": ("optimiser.kind", ("muon",)),
    "objective.rate": ("objective.kind", ("scheduled_sampling", "random_replacement")),
    "objective.decay": ("objective.kind", ("scheduled_sampling", "random_replacement")),
    "objective.decay_steps": ("objective.kind", ("scheduled_sampling", "random_replacement")),
}


def resolve_settings(files: Files, family: str | None, recipe: str | Path | None, overrides: list[str]) -> RunRecord:
    """Return the record of a new run, with every default resolved.

    recipe: a built-in name or a file; None: chosen by the task, and for pairs by the size of the data.
    overrides: "key=value" strings, as --set takes them.
    """
    typed = read_overrides(overrides)
    if family is not None:
        typed["family"] = family
    preset = {} if recipe is None else read_toml(find_recipe(recipe))
    _check_tables(typed, "--set")
    _check_tables(preset, str(recipe))
    if "vocab_size" in merged(preset, typed).get("model", {}):
        raise UserError("'model.vocab_size' comes from the tokenizer; set tokenizer.vocab_size instead")
    start = _read_start(files, merged(preset, typed), typed)
    known = merged(preset, start.values, typed)
    family = str(known.get("family", "seq2seq"))
    task = choose_task(family, str(known.get("task", "")), files.content)
    keep_max_len = recipe is not None or "max_len" in typed.get("data", {})
    if recipe is None:
        data = config_from_dict(DataSettings, known.get("data", {}), where="--set", table="data")
        recipe = TASKS[task].recipe(family, files, data)
        preset = read_toml(find_recipe(recipe))
    task_values: Values = {"family": family, "task": task}
    layers = Layers(str(recipe), start.without_shape(preset), merged(start.values, task_values), typed)
    settings = _fit_to_start(files, layers.validate(), keep_max_len=keep_max_len)
    refuse_unused(settings, flat(typed))
    _refuse_columns(files, settings, flat(typed))
    _check_weights(files, settings)
    return RunRecord(files, with_metric(settings), str(recipe))


# --- layers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layers:
    """The layers of a run's settings, each above the one before."""

    recipe: str
    preset: Values
    start: Values  # of a model to start from; always family and task
    typed: Values

    def validate(self) -> Settings:
        """Merge the layers and validate the result; an error names the layer that caused it."""
        try:
            return config_from_dict(Settings, merged(self.preset, self.start, self.typed), where="--set")
        except UserError as error:
            raise UserError(self._with_cause(str(error).removeprefix("--set: "))) from None

    def _with_cause(self, message: str) -> str:
        preset_family, family = self.preset.get("family", "seq2seq"), self.start["family"]
        if preset_family != family:
            return (
                f"--recipe {self.recipe} is for the family '{preset_family}', and this run trains a '{family}': leave "
                f"--recipe out, and a recipe for '{family}' is chosen\n{self.recipe}: {message}"
            )
        try:  # if it is valid without what was typed, that is to blame
            config_from_dict(Settings, merged(self.preset, self.start), where="")
        except UserError:
            return f"{self.recipe}: {message}"
        return f"--set: {message}"


def _check_tables(values: Mapping[str, Any], where: str) -> None:
    """Reject a single value in the place of a whole table."""
    for name, table in config_to_dict(Settings()).items():
        if isinstance(table, dict) and not isinstance(value := values.get(name, {}), dict):
            raise UserError(f"{where}: '{name}' must be a table, set key by key ({name}.key=value), found {value!r}")


# --- a model to start from --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """The settings that a model to start from determines."""

    values: Values
    shape: frozenset[str] = frozenset()  # fields of [model] that recipes cannot set then

    def without_shape(self, preset: Values) -> Values:
        """Return a recipe without the fields that the model to start from determines, set there or not."""
        model = preset.get("model", {})
        kept = {name: value for name, value in model.items() if name not in self.shape}
        return {**preset, "model": kept} if "model" in preset else preset


def _read_start(files: Files, chosen: Mapping[str, Any], typed: Mapping[str, Any]) -> Start:
    """Read what a model to start from determines; raise a UserError if --set asks for something else.

    chosen: recipe and --set together; typed: --set alone.
    """
    folder = files.init_from
    if not folder:
        return Start({})
    loaded = load_model(folder)
    if loaded.tokenizers is None and files.content != "images" and loaded.family != "vit":
        # With a new vocabulary all embeddings would be new, and little of what was learned could be used.
        raise UserError(
            f"{folder}: has no tokenizer, so the words behind its ids are unknown, and it cannot be trained further. "
            "Put the tokenizer's files into the folder that it was converted from, and convert it again"
        )
    family = typed.get("family", loaded.family)
    if family != loaded.family:
        raise UserError(
            f"{folder}: is a model of the family '{loaded.family}', and --family {family} was asked for: the family of "
            "a model cannot change. Leave --family out"
        )
    config = config_to_dict(loaded.model.config)
    shape = frozenset(field.name for field in fields(FAMILIES[family][0])) - NOT_TAKEN
    _refuse_other_shape(config, shape, typed.get("model", {}))
    values: Values = {"family": family, "model": {k: v for k, v in config.items() if k not in NOT_TAKEN}}
    if (size := config.get("image_size")) is not None:
        if (asked := typed.get("data", {}).get("image_size", size)) != size:
            raise UserError(
                f"{folder}: takes images of {size} x {size} pixels, and data.image_size = {asked} was asked for: leave "
                "it out, and image files are resized for the model"
            )
        values["data"] = {"image_size": size}
    if loaded.tokenizers is not None:
        values["tokenizer"] = _tokenizer_values(folder, loaded.tokenizers, chosen, typed.get("tokenizer", {}))
    return Start(values, shape - MAY_BE_SET)


def _refuse_other_shape(config: Mapping[str, Any], shape: frozenset[str], typed: Mapping[str, Any]) -> None:
    """Raise a UserError if --set gives the model another shape than the weights have."""
    own = flat(config)
    for key, value in flat(typed).items():
        name = key.partition(".")[0]
        if name in shape - MAY_BE_SET and own.get(key) != value:
            raise UserError(
                f"'model.{key}' is {own.get(key, 'not set')} in the model to start from, and cannot become {value!r}: "
                "leave it out, or train a model of that shape from the beginning"
            )


def _tokenizer_values(
    folder: str, tokenizers: Tokenizers, chosen: Mapping[str, Any], typed: Mapping[str, Any]
) -> Values:
    """Return the [tokenizer] of a model to start from; raise a UserError if --set asks for another one.

    The pieces stay, because the model has an embedding for each; only how they are sampled may change.
    """
    alpha = chosen.get("tokenizer", {}).get("sample_alpha", 0.0)
    sides = (tokenizers.source, tokenizers.target)
    if isinstance(alpha, (int, float)) and alpha > 0.0 and not all(map(_can_sample, sides)):
        raise UserError(
            f"{folder}: its tokenizers cannot sample, only heedful's bpe and unigram can, and tokenizer.sample_alpha = "
            f"{alpha} was asked for: --set tokenizer.sample_alpha=0"
        )
    names = {field.name for field in fields(TokenizerConfig)} - {"sample_alpha"}
    chosen_here = {name: value for name, value in typed.items() if name in names}  # unknown names raise an error later
    own = _config_of(tokenizers)
    if own is None:
        for name, value in chosen_here.items():
            raise UserError(
                f"{folder}: has a tokenizer of another make, which stays as it is, and 'tokenizer.{name}' = {value!r} "
                "was asked for: leave it out"
            )
        return {}
    for name, value in chosen_here.items():
        if own[name] != value:
            raise UserError(
                f"'tokenizer.{name}' is {own[name]} in the model to start from, and cannot become {value!r}, because "
                "the model has embeddings for its own pieces: leave it out, or train a model from the beginning"
            )
    return {name: value for name, value in own.items() if name in names}


def _config_of(tokenizers: Tokenizers) -> Values | None:
    """Return the [tokenizer] settings that would produce these tokenizers; None if no settings could."""
    source, target = tokenizers.source, tokenizers.target
    if not isinstance(source, SentencePieceTokenizer) or not isinstance(target, SentencePieceTokenizer):
        return None
    own, other = (config_to_dict(replace(side.config, joint=tokenizers.joint)) for side in (source, target))
    return own if own == other else None


def _can_sample(tokenizer: Tokenizer) -> bool:
    return isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.kind in SAMPLING_KINDS


def _fit_to_start(files: Files, settings: Settings, *, keep_max_len: bool) -> Settings:
    """Make data.max_len and model.max_len agree if the run starts from a model.

    A model with learned positions reads no more tokens than it has positions; other models can train on longer texts.
    keep_max_len: data.max_len was chosen by the user; if it is too large, raise a UserError instead of lowering it.
    """
    limit = settings.model.get("max_len")
    if not files.init_from or limit is None:
        return settings
    if settings.last_position is not None and settings.data.max_len > limit:
        if keep_max_len:
            raise UserError(
                f"{files.init_from}: has {limit} positions, and data.max_len is {settings.data.max_len}: "
                f"--set data.max_len={limit}"
            )
        return replace(settings, data=replace(settings.data, max_len=limit))
    if settings.last_position is None and settings.trained_len > limit:
        return replace(settings, model={**settings.model, "max_len": settings.trained_len})
    return settings


# --- checks against task and files ------------------------------------------------------------------------------------


def refuse_unused(settings: Settings, typed: Iterable[str]) -> None:
    """Raise a UserError for a setting that the task does not use, or that has no effect with the other settings.

    typed: the keys that were set with --set; of a recipe only REFUSED_IN_RECIPES are checked.
    """
    values, defaults, typed = flat(config_to_dict(settings)), flat(config_to_dict(Settings())), set(typed)
    defaults["loss.label_smoothing"] = 0.0  # the value with which it has no effect
    for key in sorted(REFUSED_IN_RECIPES | typed):
        tasks = tasks_that_use(key)
        if settings.task not in tasks and values.get(key) != defaults.get(key):
            raise UserError(
                f"'{key}' = {values[key]!r} is for {', '.join(tasks)}, and the task '{settings.task}' cannot use it: "
                "leave it out"
            )
    for key, (other, allowed) in NEEDS.items():
        if key in typed and settings.task in tasks_that_use(other) and values[other] not in allowed:
            raise UserError(
                f"'{key}' = {values[key]!r} is for {other} = {' or '.join(map(repr, allowed))}, and here it is "
                f"{values[other]!r}: leave it out, or change that"
            )


def _refuse_columns(files: Files, settings: Settings, typed: Mapping[str, Any]) -> None:
    """Raise a UserError if data.columns is set and no file has columns: JSON has names, and two files have none."""
    if "data.columns" not in typed or not settings.data.columns or files.content not in ("pairs", "labels"):
        return
    tables = [*(files.source if not files.target else ()), *(files.valid if len(files.valid) == 1 else ())]
    with_columns = ("tsv",) if files.content == "pairs" else ("tsv", "text")
    if not any(format_of(Path(path)) in with_columns for path in tables):
        names = " + ".join((*files.source[:1], *files.target[:1]))
        raise UserError(
            f"'data.columns' = {list(settings.data.columns)} is for files of columns (.tsv), and {names} has none: "
            "leave it out"
        )


def _check_weights(files: Files, settings: Settings) -> None:
    """Raise a UserError unless data.weights has one positive weight for each corpus.

    A corpus of weight 0 would still be held out from, and its words would be in the vocabulary.
    """
    weights = list(settings.data.weights)
    if not weights or files.content in ("tags", "images"):  # their tasks refuse any weights
        return
    corpora = files.pairs()
    if len(weights) != len(corpora):
        n_weights = "1 weight" if len(weights) == 1 else f"{len(weights)} weights"
        n_corpora = "1 corpus" if len(corpora) == 1 else f"{len(corpora)} corpora"
        raise UserError(f"data.weights = {weights}: {n_weights}, but {n_corpora}: give one for each, in their order")
    for weight, corpus in zip(weights, corpora, strict=True):
        if weight == 0.0:
            raise UserError(
                f"data.weights = {weights}: nothing would be learned from {' + '.join(corpus)}, which has the weight "
                "0: leave that corpus and its weight out, or raise the weight"
            )


def with_metric(settings: Settings) -> Settings:
    """Return settings with run.metric resolved; raise a UserError if the task does not have that metric."""
    metrics = task_of(settings).metrics
    metric = settings.run.metric
    if metric not in ("auto", *metrics):
        raise invalid_choice(f"'run.metric' of the task '{settings.task}'", metric, metrics)
    if metric in TEXT_METRICS and settings.run.validation_sentences == 0:
        raise UserError(f"run.metric = '{metric}' needs translations, and run.validation_sentences is 0: raise it")
    return replace(settings, run=replace(settings.run, metric=metric_of(settings)))
