"""settings.toml of a run folder: everything that made the run, defaults resolved.

Which two languages a run translates between: as the settings say, or as the names of its files do.

The card of the model then says it, and a server needs not be told (`heedful serve -m runs/en-de`).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import tomli_w

from heedful.atomic_io import sync
from heedful.config import config_from_dict, config_to_dict, read_toml, with_overrides
from heedful.data.corpus import NAMES_LANGUAGES, Corpus, format_of, open_corpus, read_labelled, read_text
from heedful.data.lines import is_pipe, plain_name
from heedful.errors import UserError
from heedful.models.model_io import find_model_folder
from heedful.training.pictures import open_training
from heedful.training.settings import DataSettings, Settings

NAME = "settings.toml"

# What may differ when a run goes on: how long, how often, how fast. Everything else would be another run.
MAY_CHANGE = frozenset(
    f"run.{name}"
    for name in (
        "steps", "minutes", "patience", "validate_every", "save_every", "log_every", "keep_last", "keep_best",
        "average", "micro_batches", "device", "threads", "precision", "parallel", "compile",
    )
) | {"data.workers", "data.languages"}  # fmt: skip

# Names that settings had before: only run folders of earlier versions still have them.
RENAMED = {
    "data.apart": "data.isolate_documents",
    "data.as_typed": "data.informal_share",
    "objective.hidden": "objective.token_cutoff",
    "run.sentences": "run.validation_sentences",
    "run.shard": "run.parallel",
    "run.accumulate": "run.micro_batches",
    "files.start_from": "files.init_from",
}

Paths = str | Path | Sequence[str | Path]
T = TypeVar("T")
AS_USUAL = DataSettings()
Content = Literal["pairs", "text", "labels", "tags", "images"]  # what the files of a run hold


@dataclass(frozen=True)
class Files:
    """Where the data came from, and the SHA-256 of each corpus, by which it is known again."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    init_from: str = ""
    fingerprints: tuple[str, ...] = ()
    content: Content = "pairs"

    @classmethod
    def of(
        cls,
        source: Paths,
        target: Paths,
        valid_source: str | Path | None,
        valid_target: str | Path | None,
        init_from: str | Path | None,
        content: Content = "pairs",
    ) -> "Files":
        sources, targets = _as_tuple(source), _as_tuple(target)
        if targets and len(sources) != len(targets):
            raise UserError(
                f"{len(sources)} source files but {len(targets)} target files: give as many of each, in order"
            )
        valid = tuple(str(path) for path in (valid_source, valid_target) if path is not None)
        if valid_target is not None and valid_source is None:
            raise UserError("--valid-target needs --valid-source")
        start = "" if init_from is None else str(find_model_folder(init_from))
        return cls(sources, targets, valid, start, content=content)

    def pairs(self) -> list[tuple[str, ...]]:
        """Each source with its target; a source without one is a file of pairs."""
        return list(zip(self.source, self.target, strict=True)) if self.target else [(path,) for path in self.source]

    def corpora(self, data: DataSettings = AS_USUAL) -> list[Corpus]:
        """What to learn from, read as the settings say."""
        return [OPENERS[self.content](_without_pipes(pair), data) for pair in self.pairs()]

    def valid_corpus(self, data: DataSettings = AS_USUAL) -> Corpus | None:
        if not self.valid:
            return None
        return OPENERS[self.content](_without_pipes(self.valid), replace(data, on_bad_line="skip"))

    def fingerprints_now(self, settings: Settings) -> list[str]:
        """The SHA-256 of each corpus as it lies there; of pictures, as they are read with these settings."""
        if self.content == "images":
            return [open_training(path, settings).fingerprint for path in self.source]
        return [corpus.fingerprint() for corpus in self.corpora(settings.data)]


def _without_pipes(paths: tuple[str, ...]) -> tuple[str, ...]:
    """The same; a pipe would be empty when it is read for the second time."""
    for path in paths:
        if is_pipe(Path(path)):
            raise UserError(
                f"{path}: a pipe or a device, which can be read only once, and training reads its data several times: "
                "to check it, to learn a tokenizer, to prepare it. Write it to a file first, and give that"
            )
    return paths


def _open_pairs(paths: tuple[str, ...], data: DataSettings) -> Corpus:
    names_its_languages = format_of(Path(paths[0])) in NAMES_LANGUAGES  # elsewhere they are for the card alone
    return open_corpus(
        paths,
        languages=_two(data.languages) if names_its_languages and data.languages else None,
        columns=_two(data.columns or (1, 2)),
        on_bad_line=data.on_bad_line,
    )


def _open_text(paths: tuple[str, ...], data: DataSettings) -> Corpus:
    return read_text(paths[0], keep_empty=True, on_bad_line=data.on_bad_line)


def _open_labelled(paths: tuple[str, ...], data: DataSettings) -> Corpus:
    return read_labelled(paths[0], columns=_two(data.columns or (1, 2)), on_bad_line=data.on_bad_line)


def _two(values: tuple[T, ...]) -> tuple[T, T]:
    return values[0], values[1]


OPENERS: dict[str, Callable[[tuple[str, ...], DataSettings], Corpus]] = {
    "pairs": _open_pairs,
    "text": _open_text,
    "labels": _open_labelled,
    "tags": _open_text,  # whose columns are read later
}


@dataclass(frozen=True)
class RunRecord:
    files: Files
    settings: Settings
    recipe: str = ""

    def with_overrides(self, overrides: Iterable[str]) -> "RunRecord":
        values = with_overrides(config_to_dict(self.settings), overrides)
        return RunRecord(self.files, config_from_dict(Settings, values, where="--set"), self.recipe)


def write_record(folder: Path, record: RunRecord) -> None:
    """Before anything is prepared; where an earlier start was stopped while it did, its corpora must still be there."""
    now = record.files.fingerprints_now(record.settings)
    for pair, found, known in zip(record.files.pairs(), now, record.files.fingerprints, strict=False):
        if found != known:
            raise UserError(
                f"{' + '.join(pair)}: has changed since this run began (its SHA-256 differs), before it was prepared. "
                f"Put back what was there, or begin a new run in another folder than {folder}"
            )
    files = config_to_dict(record.files) | {"fingerprints": now}
    values = {"recipe": record.recipe, "files": files, **config_to_dict(record.settings)}
    _write(folder, values)


def update_record(folder: Path, record: RunRecord) -> None:
    """Keep what was changed for going on; where the data came from stays as it was."""
    _write(folder, {"recipe": record.recipe, "files": config_to_dict(record.files), **config_to_dict(record.settings)})


def _write(folder: Path, values: dict[str, Any]) -> None:
    aside = folder / f"{NAME}.writing"
    aside.write_text(tomli_w.dumps(values), encoding="utf-8")
    sync(aside)
    aside.rename(folder / NAME)
    sync(folder)


def read_record(folder: Path) -> RunRecord:
    """Read settings.toml of a run folder; refuse one that was written with names that settings no longer have."""
    values = read_toml(folder / NAME)
    renamed = [f"'{old}' is now '{new}'" for old, new in RENAMED.items() if old in flat(values)]
    if renamed:
        raise UserError(
            f"{folder / NAME}: this run was begun by an earlier version of heedful, whose settings had other names "
            f"({', '.join(renamed[:2])}, …). Resume it with that version, or begin a new run in another folder, with "
            f"--init-from {folder} to keep the weights"
        )
    recipe, files = values.pop("recipe", ""), values.pop("files", {})
    where = str(folder / NAME)
    return RunRecord(
        config_from_dict(Files, files, where=where, table="files"),
        config_from_dict(Settings, values, where=where),
        str(recipe),
    )


def refuse_differences(
    folder: Path, saved: RunRecord, wanted: RunRecord, files: Files, recipe: str | Path | None = None
) -> None:
    """A run goes on as what it is: another corpus, vocabulary or model is another run."""
    before, after = flat(config_to_dict(saved.settings)), flat(config_to_dict(wanted.settings))
    may_change = MAY_CHANGE - {"data.languages"} if _read_by_language(saved) else MAY_CHANGE
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key) and key not in may_change:
            raise UserError(
                f"{folder}: '{key}' was {before.get(key)!r} when this run began, and cannot become {after.get(key)!r}. "
                "Resume without that change, or begin a new run (with --init-from to keep the weights)"
            )
    if files.source:
        if files.content != saved.files.content:
            raise UserError(f"{folder}: began with {saved.files.content}, and now {files.content} are given")
        now = files.fingerprints_now(saved.settings)
        for pair, given, known in zip(files.pairs(), now, saved.files.fingerprints, strict=False):
            if given != known:
                name = " + ".join(Path(part).name for part in pair)
                raise UserError(
                    f"{folder}: {name} is not the corpus that this run began with (its SHA-256 differs). Resume "
                    "without --source and --target, or begin a new run (with --init-from to keep the weights)"
                )
        if len(files.source) != len(saved.files.source):
            raise UserError(
                f"{folder}: began with {len(saved.files.source)} corpora, and now {len(files.source)} are given"
            )
    refuse_other_names(folder, saved, files, recipe)


def _read_by_language(record: RunRecord) -> bool:
    """Whether the languages have chosen what was learned, or how it was cut; elsewhere they are for the card alone."""
    files, data = record.files, record.settings.data
    chosen = files.content == "pairs" and any(format_of(Path(path)) in NAMES_LANGUAGES for path in files.source)
    return chosen or data.long == "extract"


def refuse_other_names(folder: Path, saved: RunRecord, files: Files, recipe: str | Path | None) -> None:
    """Recipe, start and validation are read once, when a run begins: another one would be believed to matter."""
    names = {
        "--recipe": (saved.recipe, "" if recipe is None else str(recipe)),
        "--init-from": (saved.files.init_from, files.init_from),
        "--valid": (" + ".join(saved.files.valid), " + ".join(files.valid)),
    }
    for option, (before, now) in names.items():
        if now and now != before:
            began = f"{option} {before}" if before else f"no {option}"
            raise UserError(
                f"{folder}: began with {began}, and now it is {now}. Resume without {option} (what may change goes by "
                "--set), or begin a new run"
            )


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return result


def _as_tuple(paths: Paths) -> tuple[str, ...]:
    return (str(paths),) if isinstance(paths, (str, Path)) else tuple(str(path) for path in paths)


# Two letters, and a script or a region where there is one. Three letters would take `.txt` for a language.
_CODE = r"[a-z]{2}(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))?"
_SIDE = re.compile(rf"\.({_CODE})$")
_BOTH = re.compile(rf"\b({_CODE})-({_CODE})(?=\.[a-z]+$)")

Languages = tuple[str, str]


def languages_of(record: RunRecord) -> Languages | None:
    """Source and target; None where nothing says it."""
    given = record.settings.data.languages
    return (given[0], given[1]) if given else guessed(record.files.pairs())


def sentence_language(record: RunRecord) -> str:
    """By which sources are split into sentences: what `heedful summarize` will read on the card; else English."""
    languages = languages_of(record)
    return languages[0].split("-")[0].lower() if languages else "en"


def guessed(corpora: list[tuple[str, ...]]) -> Languages | None:
    """From `train.en` and `train.de`, or `train.en-de.tsv`; None unless all corpora say the same two."""
    found = {_guess(tuple(plain_name(Path(path)) for path in corpus)) for corpus in corpora}
    return found.pop() if len(found) == 1 else None


def _guess(names: tuple[str, ...]) -> Languages | None:
    if len(names) == 1:
        both = _BOTH.search(names[0])
        codes = list(both.groups()) if both else []
    else:
        codes = [found[1] for name in names if (found := _SIDE.search(name))]
    if len(codes) != 2 or codes[0] == codes[1]:
        return None
    return codes[0].replace("_", "-"), codes[1].replace("_", "-")


def say_languages(record: RunRecord) -> str:
    """What a run says of it before it begins."""
    languages = languages_of(record)
    if languages is None:
        return (
            "the names of the files do not say which languages they are in, so the card of the model will not either: "
            '--set data.languages=["en","de"] says it'
        )
    by = "" if record.settings.data.languages else ", by the names of the files (--set data.languages=… decides)"
    return f"from {languages[0]} to {languages[1]}{by}"
