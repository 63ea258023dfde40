"""settings.toml of a run folder: the files and settings of the run with all defaults, and what a resume may change.

Also the languages of a run. The model card names them, so that `heedful serve -m runs/en-de` needs no language options.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import tomli_w

from heedful.atomic_io import atomic_file
from heedful.config import config_from_dict, config_to_dict, read_toml
from heedful.data.corpus import NAMES_LANGUAGES, Corpus, format_of, open_corpus, read_labelled, read_text
from heedful.data.images import open_training_images
from heedful.data.lines import is_pipe, plain_name
from heedful.errors import UserError
from heedful.models.model_io import find_model_folder
from heedful.training.settings import DataSettings, Settings, flat, merged, read_overrides

NAME = "settings.toml"

# Settings that a resume may change: how long, how often, how fast. Any other change would make it another run.
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
    "tokenizer.symbols": "tokenizer.special_tokens",
    "tokenizer.normal_form": "tokenizer.unicode_form",
    "run.sentences": "run.validation_sentences",
    "run.shard": "run.parallel",
    "run.accumulate": "run.micro_batches",
    "files.start_from": "files.init_from",
}

Paths = str | Path | Sequence[str | Path]
T = TypeVar("T")
DEFAULT = DataSettings()
Content = Literal["pairs", "text", "labels", "tags", "images"]  # what the files of a run hold


@dataclass(frozen=True)
class Files:
    """The files that a run learns from, and the SHA-256 of each corpus."""

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
                f"{len(sources)} source files but {len(targets)} target files: give one target file for each source "
                "file, in the same order"
            )
        valid = tuple(str(path) for path in (valid_source, valid_target) if path is not None)
        if valid_target is not None and valid_source is None:
            raise UserError("--valid-target needs --valid-source")
        start = "" if init_from is None else str(find_model_folder(init_from))
        return cls(sources, targets, valid, start, content=content)

    def pairs(self) -> list[tuple[str, ...]]:
        """Return each source with its target; a source without a target is a file of pairs, or of another kind."""
        return list(zip(self.source, self.target, strict=True)) if self.target else [(path,) for path in self.source]

    def corpora(self, data: DataSettings = DEFAULT) -> list[Corpus]:
        """Open the training corpora with the columns, languages and checks of the settings."""
        return [OPENERS[self.content](_without_pipes(pair), data) for pair in self.pairs()]

    def valid_corpus(self, data: DataSettings = DEFAULT) -> Corpus | None:
        """Open the validation corpus, if one is given; lines that cannot be read are left out."""
        if not self.valid:
            return None
        return OPENERS[self.content](_without_pipes(self.valid), replace(data, on_bad_line="skip"))

    def fingerprints_now(self, settings: Settings) -> list[str]:
        """Return the SHA-256 of each corpus as it is now; of images, as they are read with these settings."""
        if self.content == "images":
            return [open_training_images(path, **settings.image_options).fingerprint for path in self.source]
        return [corpus.fingerprint() for corpus in self.corpora(settings.data)]


def _without_pipes(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths; raise a UserError for a pipe, which would be empty when it is read again."""
    for path in paths:
        if is_pipe(Path(path)):
            raise UserError(
                f"{path}: a pipe or a device, which can be read only once, and training reads its data several times: "
                "to check it, to learn a tokenizer, to prepare it. Write it to a file first, and give that file"
            )
    return paths


def _open_pairs(paths: tuple[str, ...], data: DataSettings) -> Corpus:
    names_its_languages = format_of(Path(paths[0])) in NAMES_LANGUAGES  # for others, only the card uses them
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
    "tags": _open_text,  # the columns are read later
}


@dataclass(frozen=True)
class RunRecord:
    """What settings.toml holds."""

    files: Files
    settings: Settings
    recipe: str = ""

    def with_overrides(self, overrides: Iterable[str]) -> "RunRecord":
        """Return the record with "key=value" changes."""
        values = merged(config_to_dict(self.settings), read_overrides(overrides))
        return RunRecord(self.files, config_from_dict(Settings, values, where="--set"), self.recipe)


def write_record(folder: Path, record: RunRecord) -> RunRecord:
    """Write the record of a run that is to be prepared, and return it with the fingerprints of its corpora.

    If an earlier start was stopped while it prepared the data, the corpora must not have changed since.
    """
    now = record.files.fingerprints_now(record.settings)
    for pair, fingerprint, known in zip(record.files.pairs(), now, record.files.fingerprints, strict=False):
        if fingerprint != known:
            raise UserError(
                f"{' + '.join(pair)}: has changed since this run began (its SHA-256 differs), before it was prepared. "
                f"Restore the file, or begin a new run in another folder than {folder}"
            )
    record = replace(record, files=replace(record.files, fingerprints=tuple(now)))
    update_record(folder, record)
    return record


def update_record(folder: Path, record: RunRecord) -> None:
    """Write settings.toml, whole or not at all."""
    values = {"recipe": record.recipe, "files": config_to_dict(record.files), **config_to_dict(record.settings)}
    with atomic_file(folder / NAME, durable=True) as file:
        file.write(tomli_w.dumps(values).encode())


def read_record(folder: Path) -> RunRecord:
    """Read settings.toml of a run folder; raise a UserError if an earlier version wrote it, with other names."""
    values = read_toml(folder / NAME)
    renamed = [f"'{old}' is now '{new}'" for old, new in RENAMED.items() if old in flat(values)]
    if renamed:
        raise UserError(
            f"{folder / NAME}: this run was begun by an earlier version of heedful, whose settings had other names "
            f"({', '.join(renamed[:2])}, …). Resume it with that version, or begin a new run in another folder"
        )
    recipe, files = values.pop("recipe", ""), values.pop("files", {})
    where = str(folder / NAME)
    return RunRecord(
        config_from_dict(Files, files, where=where, table="files"),
        config_from_dict(Settings, values, where=where),
        str(recipe),
    )


def refuse_differences(
    folder: Path, saved: RunRecord, resumed: RunRecord, files: Files, recipe: str | Path | None = None
) -> None:
    """Raise a UserError if a resume asks for another corpus, vocabulary or model than the run has."""
    before, after = flat(config_to_dict(saved.settings)), flat(config_to_dict(resumed.settings))
    may_change = MAY_CHANGE - {"data.languages"} if _read_by_language(saved) else MAY_CHANGE
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key) and key not in may_change:
            raise UserError(
                f"{folder}: '{key}' was {before.get(key)!r} when this run began, and cannot become {after.get(key)!r}. "
                "Resume without that change, or begin a new run (with --init-from to keep the weights)"
            )
    if files.source:
        if files.content != saved.files.content:
            raise UserError(
                f"{folder}: began with {saved.files.content}, and now {files.content} are given. Resume without files, "
                "or begin a new run in another folder"
            )
        now = files.fingerprints_now(saved.settings)
        for pair, fingerprint, known in zip(files.pairs(), now, saved.files.fingerprints, strict=False):
            if fingerprint != known:
                name = " + ".join(Path(part).name for part in pair)
                raise UserError(
                    f"{folder}: {name} is not the corpus that this run began with (its SHA-256 differs). Resume "
                    "without --source and --target, or begin a new run (with --init-from to keep the weights)"
                )
        if len(files.source) != len(saved.files.source):
            raise UserError(
                f"{folder}: began with {len(saved.files.source)} corpora, and now {len(files.source)} are given. "
                "Resume without files, or begin a new run in another folder"
            )
    refuse_other_names(folder, saved, files, recipe)


def _read_by_language(record: RunRecord) -> bool:
    """Return whether the languages chose the texts or how sources were split; otherwise only the card uses them."""
    files, data = record.files, record.settings.data
    chosen = files.content == "pairs" and any(format_of(Path(path)) in NAMES_LANGUAGES for path in files.source)
    return chosen or data.long == "extract"


def refuse_other_names(folder: Path, saved: RunRecord, files: Files, recipe: str | Path | None) -> None:
    """Raise a UserError for another recipe, start or validation file: they are read only when a run begins."""
    options = {
        "--recipe": (saved.recipe, "" if recipe is None else str(recipe)),
        "--init-from": (saved.files.init_from, files.init_from),
        "--valid": (" + ".join(saved.files.valid), " + ".join(files.valid)),
    }
    for option, (before, now) in options.items():
        if now and now != before:
            began = f"{option} {before}" if before else f"no {option}"
            raise UserError(
                f"{folder}: began with {began}, and now it is {now}. Resume without {option} (steps and the like are "
                "changed with --set), or begin a new run in another folder"
            )


def _as_tuple(paths: Paths) -> tuple[str, ...]:
    return (str(paths),) if isinstance(paths, (str, Path)) else tuple(str(path) for path in paths)


# A language code in a file name: two letters, perhaps a script or a region. Three letters could be a suffix.
_CODE = r"[a-z]{2}(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))?"
_SIDE = re.compile(rf"\.({_CODE})$")
_BOTH = re.compile(rf"\b({_CODE})-({_CODE})(?=\.[a-z]+$)")

Languages = tuple[str, str]


def languages_of(files: Files, settings: Settings) -> Languages | None:
    """Return the codes of source and target: data.languages, or the codes in the file names; None if unknown."""
    codes = settings.data.languages
    return (codes[0], codes[1]) if codes else languages_in_names(files.pairs())


def sentence_language(files: Files, settings: Settings) -> str:
    """Return the language whose rules split sources into sentences: that of the source, or English if unknown."""
    languages = languages_of(files, settings)
    return languages[0].split("-")[0].lower() if languages else "en"


def languages_in_names(corpora: list[tuple[str, ...]]) -> Languages | None:
    """Guess the languages from file names; None unless all corpora agree.

    >>> languages_in_names([("train.en", "train.de")])
    ('en', 'de')
    >>> languages_in_names([("news.en-zh_Hant.tsv",)])
    ('en', 'zh-Hant')
    """
    guesses = {_guess(tuple(plain_name(Path(path)) for path in corpus)) for corpus in corpora}
    return guesses.pop() if len(guesses) == 1 else None


def _guess(names: tuple[str, ...]) -> Languages | None:
    if len(names) == 1:
        both = _BOTH.search(names[0])
        codes = list(both.groups()) if both else []
    else:
        codes = [match[1] for name in names if (match := _SIDE.search(name))]
    if len(codes) != 2 or codes[0] == codes[1]:
        return None
    return codes[0].replace("_", "-"), codes[1].replace("_", "-")


def describe_languages(record: RunRecord) -> str:
    """Describe which languages a run translates between, and where that is known from."""
    languages = languages_of(record.files, record.settings)
    if languages is None:
        return (
            "the file names do not say which languages they are in, so the model card will not either: "
            "--set data.languages=en,de names them"
        )
    source = "" if record.settings.data.languages else ", by the file names (--set data.languages=… overrides them)"
    return f"from {languages[0]} to {languages[1]}{source}"
