"""`heedful summarize`: one text on each line in, one summary on each line out."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.line_filter import BadLines, Format, LineFilter, TranslationWriter, refuse_keep_in_json
from heedful.cli.options import DATA, MODEL, OUTPUT, RUN, Device, OutputFile, Overrides, resolve_device
from heedful.cli.output import open_output, refuse_overwriting
from heedful.config import config_from_dict, with_overrides
from heedful.decoding.decoding_stats import SUMMARIES
from heedful.decoding.search.settings import SearchSettings
from heedful.models.model_info import ANY_TASK, find_model_folder, read_prefixes


def summarize(
    file: Annotated[Path, Parameter(group=DATA)] = STANDARD_INPUT,
    *,
    language: Annotated[str | None, Parameter(group=DATA)] = None,
    long: Annotated[Literal["extract", "truncate", "error"], Parameter(group=DATA)] = "extract",
    on_bad_line: Annotated[BadLines, Parameter(group=DATA)] = "error",
    model: Annotated[Path, Parameter(name=["--model", "-m"], group=MODEL)],
    prefix: Annotated[str | None, Parameter(group=MODEL)] = None,
    beam: Annotated[int, Parameter(group=RUN)] = 4,
    min_len: Annotated[int, Parameter(group=RUN)] = 0,
    max_len: Annotated[int, Parameter(group=RUN)] = 128,
    device: Device = "auto",
    set: Overrides = None,
    output: OutputFile = None,
    format: Annotated[Format, Parameter(group=OUTPUT)] = "text",
) -> None:
    """Summarize texts, one on each line, with a model trained for that.

    If a text is longer than the model's limit, the model reads its most
    important sentences.

    Parameters
    ----------
    file
        The texts, each on a line of its own; - is standard input.
    language
        The language whose rules split texts into sentences; by default the one of the model's card.
    long
        Texts beyond the model's limit: extract the main sentences, truncate, or stop with an error.
    on_bad_line
        A line that is not UTF-8: stop with an error, keep it unchanged, or skip it, which leaves an empty line.
    model
        The folder of a run or of a model.
    prefix
        Text to put before each input, such as T5's "summarize: "; by default the prefix of the model's config.
    beam
        Hypotheses that the search keeps; 1 is greedy search, the fastest.
    min_len
        The smallest number of tokens in a summary.
    max_len
        The largest number of tokens in a summary.
    set
        Any other setting of the search: --set length_penalty=2 no_repeat_ngram=3
    format
        Lines of text, or of JSON: text, score, tokens, alignment.
    """
    refuse_overwriting(output, file)
    refuse_keep_in_json(on_bad_line, format)
    # A repeated trigram is the most frequent fault of a summary.
    defaults = {"beam": beam, "min_len": min_len, "max_len": max_len, "no_repeat_ngram": 3}
    settings = config_from_dict(SearchSettings, with_overrides(defaults, set or ()), where="summarize")
    from heedful.decoding.translator import Translator
    from heedful.decoding.worker_pool import LoadSpec

    spec = LoadSpec(
        str(model),
        device=resolve_device(device),
        long=long,
        language=language,
        prefix=_default_prefix(model) if prefix is None else prefix,
        scores=format == "jsonl",
    )
    with TextInput(file, command=f"summarize -m {model}") as source:
        executor = Translator.open(spec).inline_executor(settings)
        with open_output(output) as out:
            lines = LineFilter(
                source,
                executor,
                TranslationWriter(out, format, n_best=settings.n_best),
                on_bad_line=on_bad_line,
                verb="summarize",
                written=SUMMARIES._replace(option="--max-len"),
            )
            lines.run(hidden=output is None and sys.stdout.isatty())
    lines.print_warnings()


def _default_prefix(model: Path) -> str:
    """Return the prefix with which the model learned to summarize, from its config."""
    prefixes = read_prefixes(find_model_folder(model))
    return prefixes.get("summarization", prefixes.get(ANY_TASK, ""))
