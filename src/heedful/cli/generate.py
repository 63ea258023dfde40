"""`heedful generate`: continue a prompt, printed token by token, or each line of standard input."""

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from cyclopts import Parameter

from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.line_filter import Format, LineFilter, json_line, one_line
from heedful.cli.options import (
    DATA,
    MODEL,
    OUTPUT,
    RUN,
    Compute,
    Device,
    OutputFile,
    Overrides,
    refuse_option_keys,
    resolve_device,
)
from heedful.cli.output import open_output, refuse_overwriting, warnings_as_messages
from heedful.config import with_overrides
from heedful.decoding.decoding_stats import DecodingStats
from heedful.decoding.search.settings import LARGEST_LEN, SearchSettings
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.generator import Generation, Generator
    from heedful.decoding.translation import BlockResult


def generate(
    prompt: Annotated[str, Parameter(group=DATA)] = "-",
    *,
    model: Annotated[Path, Parameter(name=["--model", "-m"], group=MODEL)],
    compute: Compute = "float32",
    max_tokens: Annotated[int, Parameter(group=RUN)] = 100,
    beam: Annotated[int, Parameter(group=RUN)] = 1,
    temperature: Annotated[float | None, Parameter(group=RUN)] = None,
    top_k: Annotated[int | None, Parameter(group=RUN)] = None,
    top_p: Annotated[float | None, Parameter(group=RUN)] = None,
    seed: Annotated[int | None, Parameter(group=RUN)] = None,
    device: Device = "auto",
    set: Overrides = None,
    output: OutputFile = None,
    n_best: Annotated[int, Parameter(group=OUTPUT)] = 1,
    format: Annotated[Format, Parameter(group=OUTPUT)] = "text",
) -> None:
    """Continue a text, or each line of standard input.

    Without --temperature, --top-k, --top-p and --seed the most probable token is
    taken at each step; with one of them, tokens are sampled (in float32 only).

    Parameters
    ----------
    prompt
        The text to continue; - reads prompts from standard input, one a line, and writes one line for each.
    model
        The folder of a run or of a model of the family gpt.
    max_tokens
        The largest number of tokens to add; the text ends earlier where the model ends it.
    beam
        Hypotheses that the search keeps; 1 is greedy search. A beam does not sample.
    temperature
        Sample with this temperature; below 1, probable tokens become still more probable.
    top_k
        Sample from the k most probable tokens.
    top_p
        Sample from the most probable tokens that together have this probability.
    seed
        Seed of the random numbers.
    set
        Any other setting of the search: --set repetition_penalty=1.2 no_repeat_ngram=3 sampling.min_p=0.05
    n_best
        Texts for each prompt; as text "line ||| text ||| score", lines counted from 0.
    format
        Text, or one JSON object for each prompt: prompt, text, score, tokens, complete.
    """
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    settings = _search_settings({"max_len": max_tokens, "beam": beam, "n_best": n_best}, sampling, set or [])
    name = resolve_device(device)
    from heedful.decoding.generator import Generator

    with warnings_as_messages():
        if prompt == "-":
            refuse_overwriting(output, STANDARD_INPUT)
            with TextInput(STANDARD_INPUT) as source:
                generator = Generator.load(model, compute=compute, device=name)
                _continue_lines(generator, source, output, format, settings)
        else:
            with open_output(output) as out:
                generator = Generator.load(model, compute=compute, device=name)
                _continue_prompt(generator, prompt, out, format, settings)


def _search_settings(values: dict[str, Any], sampling: dict[str, Any], overrides: Sequence[str]) -> SearchSettings:
    """Return the settings of the search; it samples if any sampling option has a value."""
    from heedful.decoding.generator import generation_settings

    sampling = {name: value for name, value in sampling.items() if value is not None}
    merged = with_overrides({**values, **({"sampling": sampling} if sampling else {})}, overrides)
    refuse_option_keys(merged, "device")
    if merged["max_len"] == values["max_len"]:  # the value of --max-tokens, not of --set max_len=…
        _check_max_tokens(values["max_len"], merged.get("min_len", 0))
    settings = generation_settings(merged)
    if settings.sampling is not None and settings.beam > 1:
        raise UserError(
            f"--beam {settings.beam}: a beam search does not sample; leave out --beam, or the options that sample "
            "(--temperature, --top-k, --top-p, --seed). Several samples: --n-best"
        )
    return settings


def _check_max_tokens(max_tokens: int, min_len: object) -> None:
    """Report a wrong length under the name of the option, not of the setting that it becomes."""
    if not 1 <= max_tokens <= LARGEST_LEN:
        raise UserError(f"--max-tokens {max_tokens}: must lie between 1 and {LARGEST_LEN:,}")
    if isinstance(min_len, int) and max_tokens < min_len <= LARGEST_LEN:
        raise UserError(
            f"--max-tokens {max_tokens}: fewer than min_len = {min_len}; raise --max-tokens or lower min_len"
        )


def _continue_prompt(
    generator: "Generator", prompt: str, out: BinaryIO, format: Format, settings: SearchSettings
) -> None:
    """Continue one prompt; as text it is written while it is generated, with its line breaks."""
    if format == "jsonl" or settings.n_best > 1:
        GenerationWriter(out, format, n_best=settings.n_best).write(0, generator.generate_block([prompt], settings)[0])
        return
    pieces = generator.stream_with(prompt, settings)
    out.write(prompt.encode())
    for piece in pieces:
        out.write(piece.encode())
        out.flush()
    out.write(b"\n")


def _continue_lines(
    generator: "Generator", source: TextInput, output: Path | None, format: Format, settings: SearchSettings
) -> None:
    from heedful.decoding.worker_pool import InlineExecutor

    executor = InlineExecutor(functools.partial(_generate_block, generator, settings))
    with open_output(output) as out:
        writer = GenerationWriter(out, format, n_best=settings.n_best)
        lines = LineFilter(source, executor, writer, verb="continue")
        lines.run(hidden=output is None and sys.stdout.isatty())


def _generate_block(
    generator: "Generator", settings: SearchSettings, texts: Sequence[str], start: int
) -> "BlockResult[list[Generation]]":
    """Continue each text; an empty text stays empty and is not passed to the model."""
    from heedful.decoding.generator import Generation
    from heedful.decoding.translation import BlockResult

    prompts = {start + index: text for index, text in enumerate(texts) if text.strip()}
    generated = iter(generator.generate_block([*prompts.values()], settings, indices=[*prompts]))
    outputs = [
        next(generated) if text.strip() else [Generation(text, "", 0.0, (), True)] * settings.n_best for text in texts
    ]
    return BlockResult(outputs, DecodingStats())


class GenerationWriter:
    """Writes continued prompts as lines of text or of JSON."""

    def __init__(self, out: BinaryIO, format: Format, *, n_best: int) -> None:
        self._out, self._format, self._n_best = out, format, n_best

    def write(self, number: int, generations: "Sequence[Generation]") -> None:
        first = generations[0]
        if self._format == "jsonl":
            others = {"candidates": [_values(each) for each in generations]} if self._n_best > 1 else {}
            self._out.write(json_line({"prompt": first.prompt, **_values(first), **others}))
        elif self._n_best == 1:
            self._out.write(one_line(first.prompt + first.text).encode() + b"\n")
        else:
            for each in generations:
                self._out.write(f"{number} ||| {one_line(each.prompt + each.text)} ||| {each.score:.6f}\n".encode())

    def write_bad(self, number: int, content: bytes, problem: str) -> None:
        raise AssertionError("generate has no --on-bad-line: an unreadable line is an error")

    def flush(self) -> None:
        self._out.flush()


def _values(generation: "Generation") -> dict[str, Any]:
    return {
        "text": generation.text,
        "score": generation.score,
        "tokens": generation.tokens,
        "complete": generation.complete,
    }
