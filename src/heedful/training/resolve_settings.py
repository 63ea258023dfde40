"""What a new run is made of: family, task, recipe and settings, from what was given and what it starts from."""

import json
from collections.abc import Container, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from heedful.config import config_from_dict, config_to_dict, read_toml, with_overrides
from heedful.data.corpus import format_of
from heedful.errors import UserError, invalid_choice
from heedful.models.model_io import FAMILIES, LoadedModel, load_model
from heedful.text import SentencePieceTokenizer, Tokenizer, TokenizerConfig, Tokenizers
from heedful.text.tokenizer_config import SAMPLING_KINDS
from heedful.training.run_config import Content, Files, RunRecord, flat
from heedful.training.settings import DataSettings, Settings, find_recipe, read_settings
from heedful.training.tasks.registry import TASKS, WRITTEN, choose_task, metric_of, task_of

# Of a model to start from: what the new run decides anew, by its data or its settings.
NOT_TAKEN = frozenset(
    {"source_vocab_size", "target_vocab_size", "labels", "exclusive", "head", "dropout"}
    | {"attention_dropout", "image_size", "prefixes", "pooler"}
)
# What is taken, and may be chosen anew by who types it: it says how a model learns, not what it is.
MAY_BE_TYPED = frozenset({"activation_dropout", "classifier_dropout", "ponder_weight"})
# setting -> its value where it does nothing, and the tasks that can use it
ONLY_FOR: dict[str, tuple[object, tuple[str, ...]]] = {
    "loss.r_drop": (0.0, ("translation", "denoising", "spans")),
    "objective.kind": ("teacher_forcing", ("translation", "denoising", "spans")),
    "objective.token_cutoff": (0.0, ("translation", "denoising", "spans")),
    "tokenizer.sample_alpha": (0.0, ("translation",)),
    "data.informal_share": (0.0, ("translation",)),
    "data.columns": ([], ("translation", "classification", "tagging")),
}
_TEXTS = ("next_token", "masked_tokens", "denoising", "spans")
_PICTURES = ("image_classification", "masked_patches", "shuffled_patches")
_LABELS = ("classification", "tagging", "image_classification", "shuffled_patches")
_READING = tuple(task for task in TASKS if task not in _PICTURES)
# The same for what only counts if it was typed: a recipe may say it for a task before or after this one.
TYPED_ONLY_FOR: dict[str, tuple[object, tuple[str, ...]]] = {
    **{f"tokenizer.{name}": (usual, _READING) for name, usual in config_to_dict(TokenizerConfig()).items()},
    "tokenizer.joint": (True, ("translation",)),
    "tokenizer.sample_alpha": ONLY_FOR["tokenizer.sample_alpha"],
    "data.languages": ([], ("translation",)),
    "data.max_doubtful": (0.05, ("translation",)),
    "data.on_bad_line": ("error", _READING),
    "data.flip": (False, _PICTURES),
    "data.shift": (0, _PICTURES),
    "data.image_size": (None, _PICTURES),
    "data.label": (None, _PICTURES),
    "data.documents": ("paragraphs", _TEXTS),
    "data.hold_out_share": (0.1, _TEXTS),
    "data.rows": ("packed", ("next_token",)),
    "data.isolate_documents": (True, ("next_token",)),
    "data.long": ("leave_out", ("translation",)),
    "noise.rate": (None, ("masked_tokens", "denoising", "spans", "masked_patches")),
    "noise.mean_span": (3.0, ("denoising", "spans")),
    "noise.whole_words": (False, ("masked_tokens",)),
    "loss.label_smoothing": (0.0, ("translation", "next_token", "denoising", "spans", *_LABELS)),
}
# setting -> the setting that it belongs to, the values with which anybody looks at it, and the tasks that it is for;
# what was typed beside another value does nothing, whatever it is.
BELONGS_TO: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "data.hold_out_share": ("data.documents", ("file",), _TEXTS),
    "data.hold_out": ("data.documents", ("lines", "paragraphs"), _TEXTS),
    "data.isolate_documents": ("data.rows", ("packed",), ("next_token",)),
    "schedule.final_lr": ("schedule.kind", ("cosine", "linear"), tuple(TASKS)),
    "optimiser.momentum": ("optimiser.kind", ("muon",), tuple(TASKS)),
    **{
        f"objective.{name}": ("objective.kind", ("scheduled_sampling", "random_replacement"), tuple(TASKS))
        for name in ("rate", "decay", "decay_steps")
    },
}


def resolve_settings(files: Files, family: str | None, recipe: str | Path | None, overrides: list[str]) -> RunRecord:
    """The record of a run, with every default resolved."""
    loaded = load_model(files.init_from) if files.init_from else None
    start = _model_overrides(loaded, files.init_from, files.content) if loaded else []
    # In the order of their weight: what was typed, what the model to start from is, what the recipe says.
    typed = [*overrides, *([] if family is None else [f"family={family}"])]
    wanted = with_overrides({}, typed)
    written = read_toml(find_recipe(recipe)) if recipe is not None else {}
    _check_tables(wanted, "--set")
    _check_tables(written, str(recipe))
    asked = with_overrides(written, typed)
    if "vocab_size" in asked.get("model", {}):
        raise UserError("'model.vocab_size' comes from the tokenizer; set tokenizer.vocab_size instead")
    found = with_overrides(asked, [*start, *typed])
    chosen = str(found.get("family", "seq2seq"))
    if start and wanted.get("family", chosen) != (own := with_overrides({}, start)["family"]):
        raise UserError(
            f"{files.init_from}: is a model of the family '{own}', and --family {chosen} was asked for: "
            "a model can only go on as what it is"
        )
    task = choose_task(chosen, str(found.get("task", "")), files.content)
    settled = [*typed, f"family={chosen}", f"task={task}", *start]
    if loaded is not None and loaded.tokenizers is not None:
        tables = (values.get("tokenizer", {}) for values in (found, wanted))
        settled += _tokenizer_overrides(files.init_from, loaded.tokenizers, *tables)
    # A field of the start that is not set is set by no recipe either: unset is what it is.
    shape = _shape(chosen) - MAY_BE_TYPED if start else frozenset()
    if start:
        settled += _chosen_anew(chosen, with_overrides({}, start), wanted)
    if recipe is None:
        reading = config_from_dict(DataSettings, found.get("data", {}), where="--set", table="data")
        recipe = TASKS[task].recipe(chosen, files, reading)
        if files.init_from and "max_len" not in wanted.get("data", {}):  # nobody chose a length: the model's will do
            settled += _within_reach(read_settings(recipe, settled, without=shape))
    settings = read_settings(recipe, settled, without=shape)
    if files.init_from:
        _check_reach(files.init_from, settings)
        settings = read_settings(recipe, [*settled, *_longer(settings)], without=shape)
        _check_size(files.init_from, settings, wanted)
    refuse_unused(settings, flat(wanted))
    _refuse_columns(files, settings, flat(wanted))
    _check_weights(files, settings)
    return RunRecord(files, with_metric(settings), str(recipe))


def _check_tables(values: Mapping[str, Any], where: str) -> None:
    """Refuse one value in the place of a whole table, before anybody looks into it."""
    for name, table in config_to_dict(Settings()).items():
        if isinstance(table, dict) and not isinstance(found := values.get(name, {}), dict):
            raise UserError(f"{where}: '{name}' must be a table, set key by key ({name}.key=value), found {found!r}")


def refuse_unused(settings: Settings, typed: Container[str]) -> None:
    """Refuse what only other tasks can use, or other values beside it: it would be believed to have helped."""
    values = flat(config_to_dict(settings))
    of_typed = {key: rule for key, rule in TYPED_ONLY_FOR.items() if key in typed}
    for key, (usual, tasks) in {**ONLY_FOR, **of_typed}.items():
        if values.get(key) != usual and settings.task not in tasks:
            raise UserError(
                f"'{key}' = {values[key]!r} is for {', '.join(tasks)}, and the task '{settings.task}' cannot use it: "
                "leave it out"
            )
    for key, (other, allowed, tasks) in BELONGS_TO.items():
        if key in typed and settings.task in tasks and values[other] not in allowed:
            raise UserError(
                f"'{key}' = {values[key]!r} is for {other} = {' or '.join(map(repr, allowed))}, and here it is "
                f"{values[other]!r}: leave it out, or change that"
            )


def _refuse_columns(files: Files, settings: Settings, typed: Container[str]) -> None:
    """Columns are chosen where there are some: two files side by side have none, and JSON has names instead."""
    if "data.columns" not in typed or not settings.data.columns or files.content not in ("pairs", "labels"):
        return
    alone = [*(files.source if not files.target else ()), *(files.valid if len(files.valid) == 1 else ())]
    with_columns = ("tsv",) if files.content == "pairs" else ("tsv", "text")
    if not any(format_of(Path(path)) in with_columns for path in alone):
        given = " + ".join((*files.source[:1], *files.target[:1]))
        raise UserError(
            f"'data.columns' = {list(settings.data.columns)} is for files of columns (.tsv), and {given} has none: "
            "leave it out"
        )


def _check_weights(files: Files, settings: Settings) -> None:
    """One for each corpus, and none of 0: some of that corpus would be held out and be in the vocabulary all the same.

    Only of a new run: one that began before this was refused goes on as it is.
    """
    weights = list(settings.data.weights)
    if not weights or files.content in ("tags", "images"):  # whose tasks refuse any
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
                "0: leave that corpus out, and its weight, or give it more"
            )


def with_metric(settings: Settings) -> Settings:
    """The same settings, their metric named, and refused if the task does not have it."""
    metrics = task_of(settings).metrics
    named = settings.run.metric
    if named not in ("auto", *metrics):
        raise invalid_choice(f"'run.metric' of the task '{settings.task}'", named, metrics)
    if named in WRITTEN and settings.run.validation_sentences == 0:
        raise UserError(
            f"run.metric = '{named}' is of sentences that the model writes, and run.validation_sentences is 0"
        )
    return replace(settings, run=replace(settings.run, metric=metric_of(settings)))


def _check_reach(start: str, settings: Settings) -> None:
    """A model that has learned so many positions can read no more of them."""
    if shorter := _within_reach(settings):
        raise UserError(
            f"{start}: has learned {settings.model['max_len']} positions, and data.max_len is {settings.data.max_len}: "
            f"--set {shorter[0]}"
        )


def _within_reach(settings: Settings) -> list[str]:
    """The change that makes texts as short as a model with learned positions needs them; none, if they are."""
    reach = settings.model.get("max_len")
    too_long = reach is not None and settings.last_position is not None and settings.data.max_len > reach
    return [f"data.max_len={reach}"] if too_long else []


def _longer(settings: Settings) -> list[str]:
    """A model without a last position learns from longer texts than its start did, and says so."""
    reach = settings.model.get("max_len")
    beyond = reach is not None and settings.last_position is None and settings.trained_len > reach
    return [f"model.max_len={settings.trained_len}"] if beyond else []


def _shape(family: str) -> frozenset[str]:
    """The fields of [model] that are those of the weights."""
    return frozenset(field.name for field in fields(FAMILIES[family][0])) - NOT_TAKEN


def _chosen_anew(family: str, start: Mapping[str, Any], typed: Mapping[str, Any]) -> list[str]:
    """What was typed of [model] and goes; a UserError for what does not: the shape is that of the weights."""
    known = _shape(family)
    own, chosen = flat(start["model"]), []
    for key, value in flat({"model": typed.get("model", {})}).items():
        name = key.removeprefix("model.")
        if name in MAY_BE_TYPED:
            chosen.append(f"{key}={json.dumps(value)}")
        elif name.partition(".")[0] in known and own.get(name) != value:
            raise UserError(
                f"'{key}' is {own.get(name, 'not set')} in the model to start from, and cannot become {value!r}: leave "
                "it out, or train a model of that shape from the beginning"
            )
    return chosen


def _check_size(start: str, settings: Settings, typed: Mapping[str, Any]) -> None:
    """A model has a position for each patch of its own size of pictures."""
    own, wanted = settings.data.image_size, typed.get("data", {}).get("image_size")
    if wanted not in (None, own):
        raise UserError(
            f"{start}: takes pictures of {own} x {own} pixels, and data.image_size = {wanted} was asked for: leave it "
            "out, and image files are brought to the size of the model"
        )


def _tokenizer_overrides(
    start: str, tokenizers: Tokenizers, wanted: Mapping[str, Any], typed: Mapping[str, Any]
) -> list[str]:
    """The tokenizer's settings that a start brings with it; a UserError for what was typed and is not so.

    Its pieces stay as they are, since its embeddings are of them: only how they are drawn is for this run to say.
    """
    alpha = wanted.get("sample_alpha", 0.0)
    sides = (tokenizers.source, tokenizers.target)
    if isinstance(alpha, (int, float)) and alpha > 0.0 and not all(map(_could_sample, sides)):
        raise UserError(
            f"{start}: its tokenizers cannot sample, only heedful's bpe and unigram can, and tokenizer.sample_alpha = "
            f"{alpha} was asked for: --set tokenizer.sample_alpha=0"
        )
    known = {field.name for field in fields(TokenizerConfig)} - {"sample_alpha"}
    given = {name: value for name, value in typed.items() if name in known}  # the rest is refused as unknown later
    own = _settings_of(tokenizers)
    if own is None:
        for name, value in given.items():
            raise UserError(
                f"{start}: has a tokenizer of another make, which goes on as it is, and 'tokenizer.{name}' = {value!r} "
                "was asked for: leave it out"
            )
        return []
    for name, value in given.items():
        if own[name] != value:
            raise UserError(
                f"'tokenizer.{name}' is {own[name]} in the model to start from, and cannot become {value!r}, because "
                "its embeddings are of its own pieces: leave it out, or train a model from the beginning"
            )
    return [f"tokenizer.{name}={json.dumps(own[name], ensure_ascii=False)}" for name in own if name in known]


def _settings_of(tokenizers: Tokenizers) -> dict[str, Any] | None:
    """What a recipe would have to say to get such tokenizers; None where no recipe could."""
    source, target = tokenizers.source, tokenizers.target
    if not isinstance(source, SentencePieceTokenizer) or not isinstance(target, SentencePieceTokenizer):
        return None
    own, others = (config_to_dict(replace(one.config, joint=tokenizers.joint)) for one in (source, target))
    return own if own == others else None


def _could_sample(tokenizer: Tokenizer) -> bool:
    return isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.kind in SAMPLING_KINDS


def _model_overrides(loaded: LoadedModel, folder: str, content: Content) -> list[str]:
    """The settings that a model to start from brings with it: its shape is given, only dropout may be chosen anew."""
    if loaded.tokenizers is None and content != "images" and loaded.family != "vit":
        # With a vocabulary of its own, all embeddings would be new: little of what was learned could be used.
        raise UserError(
            f"{folder}: has no tokenizer, so nobody knows which words its ids stand for, and it cannot go on. "
            "Put the tokenizer's files into the folder that it was converted from, and convert it again"
        )
    values = flat(config_to_dict(loaded.model.config))
    shape = [f"model.{key}={json.dumps(value)}" for key, value in values.items() if key.split(".")[0] not in NOT_TAKEN]
    size = [f"data.image_size={values['image_size']}"] if "image_size" in values else []
    return [f"family={loaded.family}", *shape, *size]
