"""`heedful summarize`: one text on each line in, one summary on each line out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.line_filter import BadLines, Format, LineFilter, Writer
from heedful.cli.output import open_output, refuse_overwriting
from heedful.config import config_from_dict, with_overrides
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.segmentation import SUMMARIES
from heedful.errors import UserError
from heedful.models.model_info import ANY_TASK, find_model_folder, read_prefixes

if TYPE_CHECKING:
    from heedful.decoding.worker_pool import LoadSpec


def summarize(
    file: Path = STANDARD_INPUT,
    *,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    output: Path | None = None,
    beam: int = 4,
    min_len: int = 0,
    max_len: int = 128,
    prefix: str | None = None,
    long: Literal["extract", "truncate", "error"] = "extract",
    format: Format = "text",
    on_bad_line: BadLines = "error",
    device: str = "cpu",
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
) -> None:
    """Summarise texts, one on each line, with a model that was trained to.

    Of a longer text than the model takes, it reads the most important sentences.

    Parameters
    ----------
    file
        The texts, each on a line of its own; - is standard input.
    model
        The folder of a run or of a model.
    output
        Write to this file; until it is complete it is called OUTPUT.part.
    beam
        How many hypotheses the search follows; 1 is greedy search, the fastest.
    min_len
        The fewest tokens of a summary.
    max_len
        The most tokens of a summary.
    prefix
        What the model reads before each text: T5 is told "summarize: ". By default what its settings say.
    long
        Texts that are longer than the model takes: extract what matters, truncate them, or stop with an error.
    format
        Lines of text, or of JSON: text, score, tokens, alignment.
    on_bad_line
        A line that is not UTF-8: stop with an error, keep it as it is, or skip it, which leaves an empty line.
    device
        Where to compute: cpu, cuda, cuda:N (the GPU of that number, from 0) or mps.
    set
        Change any setting of the search: --set length_penalty=2 no_repeat_ngram=3
    """
    from heedful.decoding.worker_pool import LoadSpec

    if model is None:
        raise UserError("which model? Name the folder of one that was trained to: heedful summarize -m runs/news")
    refuse_overwriting(output, file)
    if on_bad_line == "keep" and format == "jsonl":
        raise UserError("--on-bad-line keep: JSON cannot hold what is not UTF-8; use --on-bad-line skip")
    # Without repeats of three: a summary that says a thing twice is the commonest fault, and no good one does.
    values = {"beam": beam, "min_len": min_len, "max_len": max_len, "no_repeat_ngram": 3}
    settings = config_from_dict(SearchSettings, with_overrides(values, set or ()), where="summarize")
    prefix = _usual_prefix(model) if prefix is None else prefix
    opening = LoadSpec(str(model), device=device, long=long, prefix=prefix, scores=format == "jsonl")
    _work(opening, settings, file, output, format, on_bad_line)


def _work(
    opening: "LoadSpec",
    settings: SearchSettings,
    file: Path,
    output: Path | None,
    format: Format,
    on_bad_line: BadLines,
) -> None:
    from heedful.decoding.translator import Translator

    with TextInput(file) as source:
        place = Translator.open(opening).inline_executor(settings)
        with open_output(output) as out:
            writer = Writer(out, format, n_best=settings.n_best)
            work = LineFilter(
                source,
                place,
                writer,
                on_bad_line=on_bad_line,
                to="summarize",
                written=SUMMARIES._replace(option="--max-len"),
            )
            work.run(hidden=output is None and sys.stdout.isatty())
    for words in work.warnings():
        print(f"heedful: {words}", file=sys.stderr)


def _usual_prefix(model: Path) -> str:
    """What the model was told before each text when it learned to summarise."""
    known = read_prefixes(find_model_folder(model))
    return known.get("summarization", known.get(ANY_TASK, ""))
