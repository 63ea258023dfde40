"""`heedful translate`: lines in, lines out, as many as came in."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from heedful.cli.device_option import take_devices
from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.line_filter import BadLines, Format, LineFilter, Writer
from heedful.cli.output import open_output, refuse_overwriting
from heedful.config import config_from_dict, with_overrides
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.segmentation import Long
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.text_constraints import TextConstraints
    from heedful.decoding.translation import Translation
    from heedful.decoding.worker_pool import BatchExecutor, LoadSpec


def translate(
    file: Path = STANDARD_INPUT,
    *,
    model: Annotated[list[Path] | None, Parameter(name=["--model", "-m"], negative=())] = None,
    to: str | None = None,
    output: Path | None = None,
    beam: int = 5,
    n_best: int = 1,
    engine: Literal["auto", "torch", "ctranslate2"] = "auto",
    compute: Literal["float32", "int8"] = "float32",
    format: Format = "text",
    long: Long = "split",
    on_bad_line: BadLines = "error",
    workers: int | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
) -> None:
    """Translate a file, or standard input, line by line.

    One line in, one line out, whatever the line: empty ones stay empty, long ones are split into sentences and
    joined again. A line that is typed, or comes through a pipe, is answered at once.

    Parameters
    ----------
    file
        The text to translate; - is standard input.
    model
        The folder of a run or a model, by default one that comes with heedful; -m A -m B translate as an ensemble.
    to
        The language to translate into; of the models that come with heedful it chooses one, by default fr from English.
    output
        Write to this file; until it is complete it is called OUTPUT.part.
    beam
        How many hypotheses the search follows; 1 is greedy search, the fastest.
    n_best
        How many translations of each line; as text "line ||| translation ||| score", lines counted from 0.
    engine
        What computes: torch can run every model, ctranslate2 is faster; auto takes it where it can.
    compute
        Numbers to compute with; int8 is faster and a little less exact.
    format
        Lines of text, or of JSON: text, score, tokens, alignment.
    long
        Lines that are longer than the model takes: split them, truncate them, extract what matters, error, or whole.
    on_bad_line
        A line that is not UTF-8: stop with an error, keep it as it is, or skip it, which leaves an empty line.
    workers
        How many processes share the work, each with the model in memory; by default one for each device.
    set
        Any setting of the search, the text's language, where it computes: --set max_len=100 language=de device=cuda:0
    """
    refuse_overwriting(output, file)
    how = _settings(beam, n_best, format, on_bad_line, set or [])
    opening = _opening(_chosen(model or [], to), engine, compute, long, how)
    with TextInput(file) as source, _place(opening, how, workers) as place, open_output(output) as out:
        work = LineFilter(source, place, Writer(out, format, n_best=how.settings.n_best), on_bad_line=on_bad_line)
        work.run(hidden=output is None and sys.stdout.isatty())
    for words in work.warnings():
        print(f"heedful: {words}", file=sys.stderr)


class _How(NamedTuple):
    settings: SearchSettings
    wording: "TextConstraints"
    language: str | None
    devices: list[str]
    scores: bool  # without them, greedy search is faster


def _settings(beam: int, n_best: int, format: Format, on_bad_line: BadLines, changes: list[str]) -> _How:
    from heedful.decoding.text_constraints import pop_text_constraints

    if on_bad_line == "keep" and format == "jsonl":
        raise UserError("--on-bad-line keep: JSON cannot hold what is not UTF-8; use --on-bad-line skip")
    values = with_overrides({"beam": beam, "n_best": n_best, "attention": format == "jsonl"}, changes)
    devices, language = take_devices(values), values.pop("language", None)
    if language is not None and not isinstance(language, str):
        raise UserError(f"--set language={language}: expected the code of a language, such as de")
    wording, rest = pop_text_constraints(values)
    settings = config_from_dict(SearchSettings, rest, where="translate")
    return _How(settings, wording, language, devices, scores=format == "jsonl" or settings.n_best > 1)


def _chosen(models: list[Path], to: str | None) -> list[Path]:
    """The models that are named, or one that comes with heedful."""
    from heedful.models.model_info import builtin_model, find_model_folder

    if not models:
        return [builtin_model(to)]
    if to is not None:
        from heedful.serving.languages import base, canonical
        from heedful.serving.model_registry import languages_of_card

        for model in models:
            languages = languages_of_card(find_model_folder(model))
            if languages is not None and canonical(to) not in (languages[1], base(languages[1])):
                raise UserError(f"--to {to}: the model in {model} translates from {languages[0]} to {languages[1]}")
    return models


def _opening(models: list[Path], engine: str, compute: str, long: Long, how: _How) -> "LoadSpec":
    from heedful.decoding.worker_pool import LoadSpec

    path, *more = map(str, models)
    return LoadSpec(path, engine, compute, how.devices[0], long, None, how.language, how.scores, others=tuple(more))


@contextlib.contextmanager
def _place(opening: "LoadSpec", how: _How, n_workers: int | None) -> "Iterator[BatchExecutor[list[Translation]]]":
    """Where the work is done: here, or in other processes, and then this one need not load the model."""
    from heedful.decoding.translator import Translator
    from heedful.decoding.worker_pool import Workers
    from heedful.models.model_info import find_model_folder

    n_workers = len(how.devices) if n_workers is None else n_workers
    if n_workers == len(how.devices) == 1:
        yield Translator.open(opening).inline_executor(how.settings, how.wording)
        return
    for path in (opening.path, *opening.others):
        find_model_folder(path)  # said once, not by each of the processes
    with Workers(opening, how.settings, n_workers, how.wording, devices=how.devices) as workers:
        yield workers
