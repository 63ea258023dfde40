"""settings.toml of a run folder: everything that made the run, defaults resolved."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tomli_w

from heedful.config import from_values, read_toml, to_values, with_overrides
from heedful.data.corpus import Corpus, OnBadLine, open_corpus, read_labelled, read_text
from heedful.errors import UserError
from heedful.files import sync
from heedful.models.folder import find_model_folder
from heedful.training.pictures import open_training
from heedful.training.settings import Settings

NAME = "settings.toml"

# What may differ when a run goes on: how long, how often, how fast. Everything else would be another run.
MAY_CHANGE = frozenset(
    f"run.{name}"
    for name in (
        "steps", "minutes", "patience", "validate_every", "save_every", "log_every", "keep_last", "keep_best",
        "average", "accumulate", "device", "threads", "precision", "shard", "compile",
    )
) | {"data.workers", "data.languages"}  # fmt: skip

Paths = str | Path | Sequence[str | Path]
Content = Literal["pairs", "text", "labels", "tags", "images"]  # what the files of a run hold


@dataclass(frozen=True)
class Files:
    """Where the data came from, and the SHA-256 of each corpus, by which it is known again."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    start_from: str = ""
    fingerprints: tuple[str, ...] = ()
    content: Content = "pairs"

    @classmethod
    def of(
        cls,
        source: Paths,
        target: Paths,
        valid_source: str | Path | None,
        valid_target: str | Path | None,
        start_from: str | Path | None,
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
        start = "" if start_from is None else str(find_model_folder(start_from))
        return cls(sources, targets, valid, start, content=content)

    def pairs(self) -> list[tuple[str, ...]]:
        """Each source with its target; a source without one is a file of pairs."""
        return list(zip(self.source, self.target, strict=True)) if self.target else [(path,) for path in self.source]

    def corpora(self, on_bad_line: OnBadLine = "error") -> list[Corpus]:
        return [OPENERS[self.content](pair, on_bad_line) for pair in self.pairs()]

    def valid_corpus(self) -> Corpus | None:
        return OPENERS[self.content](self.valid, "skip") if self.valid else None

    def fingerprints_now(self, settings: Settings) -> list[str]:
        """The SHA-256 of each corpus as it lies there; of pictures, as they are read with these settings."""
        if self.content == "images":
            return [open_training(path, settings).fingerprint for path in self.source]
        return [corpus.fingerprint() for corpus in self.corpora()]


OPENERS: dict[str, Callable[[tuple[str, ...], OnBadLine], Corpus]] = {
    "pairs": lambda paths, on_bad_line: open_corpus(paths, on_bad_line=on_bad_line),
    "text": lambda paths, on_bad_line: read_text(paths[0], keep_empty=True, on_bad_line=on_bad_line),
    "labels": lambda paths, on_bad_line: read_labelled(paths[0], on_bad_line=on_bad_line),
    "tags": lambda paths, on_bad_line: read_text(paths[0], keep_empty=True, on_bad_line=on_bad_line),
}


@dataclass(frozen=True)
class RunRecord:
    files: Files
    settings: Settings
    recipe: str = ""

    def with_overrides(self, overrides: Iterable[str]) -> "RunRecord":
        values = with_overrides(to_values(self.settings), overrides)
        return RunRecord(self.files, from_values(Settings, values, where="--set"), self.recipe)


def write_record(folder: Path, record: RunRecord) -> None:
    files = to_values(record.files) | {"fingerprints": record.files.fingerprints_now(record.settings)}
    values = {"recipe": record.recipe, "files": files, **to_values(record.settings)}
    _write(folder, values)


def update_record(folder: Path, record: RunRecord) -> None:
    """Keep what was changed for going on; where the data came from stays as it was."""
    _write(folder, {"recipe": record.recipe, "files": to_values(record.files), **to_values(record.settings)})


def _write(folder: Path, values: dict[str, Any]) -> None:
    aside = folder / f"{NAME}.writing"
    aside.write_text(tomli_w.dumps(values), encoding="utf-8")
    sync(aside)
    aside.rename(folder / NAME)
    sync(folder)


def read_record(folder: Path) -> RunRecord:
    values = read_toml(folder / NAME)
    recipe, files = values.pop("recipe", ""), values.pop("files", {})
    where = str(folder / NAME)
    return RunRecord(
        from_values(Files, files, where=where, table="files"), from_values(Settings, values, where=where), str(recipe)
    )


def refuse_differences(
    folder: Path, saved: RunRecord, wanted: RunRecord, files: Files, recipe: str | Path | None = None
) -> None:
    """A run goes on as what it is: another corpus, vocabulary or model is another run."""
    before, after = flat(to_values(saved.settings)), flat(to_values(wanted.settings))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key) and key not in MAY_CHANGE:
            raise UserError(
                f"{folder}: '{key}' was {before.get(key)!r} when this run began, and cannot become {after.get(key)!r}. "
                "Resume without that change, or begin a new run (with --from to keep the weights)"
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
                    "without --source and --target, or begin a new run (with --from to keep the weights)"
                )
        if len(files.source) != len(saved.files.source):
            raise UserError(
                f"{folder}: began with {len(saved.files.source)} corpora, and now {len(files.source)} are given"
            )
    refuse_other_names(folder, saved, files, recipe)


def refuse_other_names(folder: Path, saved: RunRecord, files: Files, recipe: str | Path | None) -> None:
    """Recipe, start and validation are read once, when a run begins: another one would be believed to matter."""
    names = {
        "--recipe": (saved.recipe, "" if recipe is None else str(recipe)),
        "--from": (saved.files.start_from, files.start_from),
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
