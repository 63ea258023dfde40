"""`heedful generate`: a text that goes on from a prompt, as it is written; or line by line, as a filter."""

import functools
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

from cyclopts import Parameter

from heedful.cli.device_option import take_device
from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.line_filter import Format, LineFilter, one_line
from heedful.cli.output import open_output, refuse_overwriting
from heedful.config import with_overrides
from heedful.decoding.input_text import LINE_BREAK
from heedful.decoding.search.settings import LARGEST_LEN, SearchSettings
from heedful.decoding.segmentation import DecodingStats
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.generator import Generation, Generator
    from heedful.decoding.translation import BlockResult


WHICH_MODEL = (
    'which model? Name the folder of a run: heedful generate "Once upon a time" -m runs/book\n'
    "`heedful train runs/book --family gpt --text book.txt` makes one of your own text"
)


def generate(
    prompt: str = "-",
    *,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    output: Path | None = None,
    max_tokens: int = 100,
    beam: int = 1,
    n_best: int = 1,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    compute: Literal["float32", "int8"] = "float32",
    format: Format = "text",
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
) -> None:
    """Write what follows a prompt, or each line of standard input.

    Parameters
    ----------
    prompt
        What the text begins with; - takes each line of standard input as a prompt, and writes a line for each.
    model
        The folder of a run or of a model.
    output
        Write to this file; until it is complete it is called OUTPUT.part.
    max_tokens
        How many tokens to add at most; the text ends earlier where the model ends it.
    beam
        How many hypotheses the search follows; 1 takes the likeliest next token.
    n_best
        How many texts for each prompt; as text "line ||| text ||| score", lines counted from 0.
    temperature
        Draw tokens, as --top-k, --top-p and --seed do, too; below 1 likely ones become likelier still.
    top_k
        Draw only among so many likeliest tokens.
    top_p
        Draw only among the likeliest tokens that together have this probability.
    seed
        Where the drawing begins.
    compute
        Numbers to compute with; int8 is faster, a little less exact, and takes the likeliest token: it cannot draw.
    format
        Text, or one JSON object for each prompt: prompt, text, score, tokens, complete.
    set
        Change any setting of the search: --set repetition_penalty=1.2 no_repeat_ngram=3 sampling.min_p=0.05
        Or say where to compute: --set device=cuda:1
    """
    from heedful.decoding.generator import Generator

    if model is None:
        raise UserError(WHICH_MODEL)
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    settings, device = _settings({"max_len": max_tokens, "beam": beam, "n_best": n_best}, drawing, set or [])
    with _said_at_the_end():
        if prompt == "-":
            _filter(model, compute, device, output, format, settings)
        else:
            with open_output(output) as out:
                _one(Generator.load(model, compute=compute, device=device), prompt, out, format, settings)


def _settings(values: dict[str, Any], drawing: dict[str, Any], overrides: Sequence[str]) -> tuple[SearchSettings, str]:
    """Those of the search, and the device. Tokens are drawn if anything is said of how."""
    from heedful.decoding.generator import generation_settings

    given = {name: value for name, value in drawing.items() if value is not None}
    changed = with_overrides({**values, **({"sampling": given} if given else {})}, overrides)
    device = take_device(changed)
    if changed["max_len"] == values["max_len"]:  # that of --max-tokens, and no --set max_len=…
        _check_most(values["max_len"], changed.get("min_len", 0))
    settings = generation_settings(changed)
    if settings.sampling is not None and settings.beam > 1:
        raise UserError(
            f"--beam {settings.beam}: a beam is searched, not drawn; leave it out, or what draws (--temperature, "
            "--top-k, --top-p, --seed). Several draws: --n-best"
        )
    return settings, device


def _check_most(max_tokens: int, min_len: object) -> None:
    """What is wrong with the length is said of the option, not of the setting that it becomes."""
    if not 1 <= max_tokens <= LARGEST_LEN:
        raise UserError(f"--max-tokens {max_tokens}: must lie between 1 and {LARGEST_LEN:,}")
    if isinstance(min_len, int) and max_tokens < min_len <= LARGEST_LEN:
        raise UserError(f"--max-tokens {max_tokens}: fewer than min_len = {min_len}; raise the one or lower the other")


def _one(generator: "Generator", prompt: str, out: BinaryIO, format: Format, settings: SearchSettings) -> None:
    """One prompt: as text it appears while it is written, with its line breaks."""
    if format == "jsonl" or settings.n_best > 1:
        GenerationWriter(out, format, n_best=settings.n_best).write(0, generator.answer([prompt], settings)[0])
        return
    pieces = generator.stream_with(prompt, settings)
    out.write(prompt.encode())
    for piece in pieces:
        out.write(piece.encode())
        out.flush()
    out.write(b"\n")


def _filter(
    model: Path, compute: str, device: str, output: Path | None, format: Format, settings: SearchSettings
) -> None:
    from heedful.decoding.generator import Generator
    from heedful.decoding.worker_pool import InlineExecutor

    refuse_overwriting(output, STANDARD_INPUT)
    with TextInput(STANDARD_INPUT) as source:
        generator = Generator.load(model, compute=compute, device=device)
        executor = InlineExecutor(functools.partial(_generate_block, generator, settings))
        with open_output(output) as out:
            writer = GenerationWriter(out, format, n_best=settings.n_best)
            work = LineFilter(source, executor, writer, to="continue")
            work.run(hidden=output is None and sys.stdout.isatty())


def _generate_block(
    generator: "Generator", settings: SearchSettings, texts: Sequence[str], start: int
) -> "BlockResult[list[Generation]]":
    """Continue each text; an empty text stays empty and is not passed to the model."""
    from heedful.decoding.generator import Generation
    from heedful.decoding.translation import BlockResult

    prompts = {start + index: text for index, text in enumerate(texts) if text.strip()}
    generated = iter(generator.answer([*prompts.values()], settings, numbers=[*prompts]))
    outputs = [
        next(generated) if text.strip() else [Generation(text, "", 0.0, (), True)] * settings.n_best for text in texts
    ]
    return BlockResult(outputs, DecodingStats())


class GenerationWriter:
    """Texts as lines, or as lines of JSON."""

    def __init__(self, out: BinaryIO, format: Format, *, n_best: int) -> None:
        self._out, self._format, self._n_best = out, format, n_best

    def write(self, number: int, best: "Sequence[Generation]") -> None:
        if self._format == "jsonl":
            candidates = {"candidates": [_values(one) for one in best]} if self._n_best > 1 else {}
            text = json.dumps(
                {"prompt": best[0].prompt, **_values(best[0]), **candidates}, ensure_ascii=False, allow_nan=False
            )
            # Some readers take U+2028 for the end of a line, inside of a string too.
            self._line(LINE_BREAK.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
        elif self._n_best == 1:
            self._line(one_line(best[0].prompt + best[0].text))
        else:
            for one in best:
                self._line(f"{number} ||| {one_line(one.prompt + one.text)} ||| {one.score:.6f}")

    def write_bad(self, number: int, content: bytes, what: str) -> None:
        raise AssertionError("a line that cannot be read stops the work")

    def flush(self) -> None:
        self._out.flush()

    def _line(self, text: str) -> None:
        self._out.write(text.encode() + b"\n")


def _values(one: "Generation") -> dict[str, Any]:
    return {"text": one.text, "score": one.score, "tokens": one.tokens, "complete": one.complete}


@contextmanager
def _said_at_the_end() -> Iterator[None]:
    """Warnings, each once, in the words of a command."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for words in dict.fromkeys(str(one.message) for one in caught):
        print(f"heedful: {words}", file=sys.stderr)
