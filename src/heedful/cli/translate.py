"""`heedful translate`: translate a file or standard input, one line in, one line out."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.line_filter import BadLines, Format, LineFilter, TranslationWriter, refuse_keep_in_json
from heedful.cli.options import (
    DATA,
    MODEL,
    OUTPUT,
    RUN,
    Compute,
    Device,
    Engine,
    OutputFile,
    Overrides,
    refuse_option_keys,
    resolve_devices,
)
from heedful.cli.output import open_output, refuse_overwriting
from heedful.config import config_from_dict, with_overrides
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.segmentation import Long
from heedful.errors import UserError
from heedful.models.model_info import builtin_model, find_model_folder

if TYPE_CHECKING:
    from heedful.decoding.text_constraints import TextConstraints
    from heedful.decoding.translation import Translation
    from heedful.decoding.worker_pool import BatchExecutor, LoadSpec

_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*")


def translate(
    file: Annotated[Path, Parameter(group=DATA)] = STANDARD_INPUT,
    *,
    source_language: Annotated[str | None, Parameter(name="--from", group=DATA)] = None,
    target_language: Annotated[str | None, Parameter(name="--to", group=DATA)] = None,
    language: Annotated[str | None, Parameter(group=DATA)] = None,
    long: Annotated[Long, Parameter(group=DATA)] = "split",
    on_bad_line: Annotated[BadLines, Parameter(group=DATA)] = "error",
    model: Annotated[list[Path] | None, Parameter(name=["--model", "-m"], group=MODEL)] = None,
    engine: Engine = "auto",
    compute: Compute = "float32",
    beam: Annotated[int, Parameter(group=RUN)] = 5,
    device: Device = "auto",
    workers: Annotated[int | None, Parameter(group=RUN)] = None,
    set: Overrides = None,
    output: OutputFile = None,
    n_best: Annotated[int, Parameter(group=OUTPUT)] = 1,
    format: Annotated[Format, Parameter(group=OUTPUT)] = "text",
) -> None:
    """Translate a file or standard input, line by line.

    One line in, one line out: empty lines stay empty, long lines are split into
    sentences and joined again. A line that is typed or piped is translated at
    once. Without -m, a small model for everyday sentences is used that comes
    with heedful, between English and French.

    Parameters
    ----------
    file
        The text to translate; - is standard input.
    source_language
        The language to translate from, such as en; chooses the built-in model, or is compared with the card of -m.
    target_language
        The language to translate into, such as fr; chooses the built-in model, or is compared with the card of -m.
    language
        The language whose rules split long lines into sentences; by default --from, or the source language of the card.
    long
        Lines beyond the model's limit: split, truncate, extract the main sentences, error, or whole (no limit).
    on_bad_line
        A line that is not UTF-8: stop with an error, keep it unchanged, or skip it, which leaves an empty line.
    model
        A run, a model folder or a built-in model (en-fr, fr-en); -m A -m B translate as an ensemble.
    beam
        Hypotheses that the search keeps; 1 is greedy search, the fastest.
    workers
        Processes that share the work, each with the model in memory; by default one for each device.
    set
        Any other setting of the search: --set max_len=100 length_penalty=0.8
    n_best
        Translations of each line; as text "line ||| translation ||| score", lines counted from 0.
    format
        Lines of text, or of JSON: text, score, tokens, alignment.
    """
    refuse_overwriting(output, file)
    refuse_keep_in_json(on_bad_line, format)
    settings, constraints = _search_settings(beam, n_best, format, set or [])
    devices = resolve_devices(device)
    path, *others = map(str, _models(model or [], source_language, target_language))
    from heedful.decoding.worker_pool import LoadSpec

    spec = LoadSpec(
        path,
        others=tuple(others),
        engine=engine,
        compute=compute,
        device=devices[0],
        long=long,
        language=_language(language, source_language),
        scores=format == "jsonl" or settings.n_best > 1,  # greedy search is faster without scores
    )
    with (
        TextInput(file, command="translate") as source,
        _executor(spec, settings, constraints, workers, devices) as executor,
        open_output(output) as out,
    ):
        writer = TranslationWriter(out, format, n_best=settings.n_best)
        lines = LineFilter(source, executor, writer, on_bad_line=on_bad_line)
        lines.run(hidden=output is None and sys.stdout.isatty())
    lines.print_warnings()


def _search_settings(
    beam: int, n_best: int, format: Format, overrides: list[str]
) -> "tuple[SearchSettings, TextConstraints]":
    from heedful.decoding.text_constraints import pop_text_constraints

    values = with_overrides({"beam": beam, "n_best": n_best, "attention": format == "jsonl"}, overrides)
    refuse_option_keys(values, "device", "language")
    constraints, rest = pop_text_constraints(values)
    return config_from_dict(SearchSettings, rest, where="translate"), constraints


def _language(language: str | None, source_language: str | None) -> str | None:
    """Return the code of the language of the text, without script or region; None leaves it to the model's card."""
    if language is not None and _CODE.fullmatch(language) is None:
        raise UserError(f"--language {language}: expected the code of a language, such as de")
    code = language or source_language
    return None if code is None else code.replace("_", "-").split("-")[0].lower()


def _models(models: list[Path], source_language: str | None, target_language: str | None) -> list[Path]:
    """Return the models of -m after a comparison of their languages, or the built-in model for the languages."""
    if not models:
        return [builtin_model(target_language, source=source_language)]
    if source_language is None and target_language is None:
        return models
    from heedful.serving.languages import base, canonical
    from heedful.serving.model_registry import languages_of_card

    for model in models:
        languages = languages_of_card(find_model_folder(model))
        for option, code, number in (("--from", source_language, 0), ("--to", target_language, 1)):
            if code is None or languages is None:
                continue
            if canonical(code) not in (languages[number], base(languages[number])):
                raise UserError(
                    f"{option} {code}: the model in {model} translates from {languages[0]} to {languages[1]}"
                )
    return models


@contextlib.contextmanager
def _executor(
    spec: "LoadSpec",
    settings: SearchSettings,
    constraints: "TextConstraints",
    n_workers: int | None,
    devices: list[str],
) -> "Iterator[BatchExecutor[list[Translation]]]":
    """Load the model into this process, or start other processes, and then this one does not load it."""
    from heedful.decoding.translator import Translator
    from heedful.decoding.worker_pool import Workers

    n_workers = len(devices) if n_workers is None else n_workers
    if n_workers == len(devices) == 1:
        yield Translator.open(spec).inline_executor(settings, constraints)
        return
    for path in (spec.path, *spec.others):
        find_model_folder(path)  # report a wrong path once, not in each process
    with Workers(spec, settings, n_workers, constraints, devices=devices) as workers:
        yield workers
