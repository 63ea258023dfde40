"""`heedful classify`: lines, or images, in; labels out, one line for each."""

import functools
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

from cyclopts import Parameter

from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.line_filter import Format, LineFilter, one_line
from heedful.cli.output import open_output, refuse_overwriting
from heedful.decoding.input_text import BadText
from heedful.decoding.segmentation import DecodingStats
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.classifier import Classifier, Labelled, LabelledWord
    from heedful.decoding.translation import BlockResult


def classify(
    file: Path = STANDARD_INPUT,
    *,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    output: Path | None = None,
    top_k: int = 1,
    format: Format = "text",
    on_bad_line: Literal["error", "skip"] = "error",
    device: str = "cpu",
) -> None:
    """Tell which label each line, or each image, has.

    One line in, one line out: the label and its probability, a tab between
    them. A model of images (vit) reads lines with the names of image files, or
    FILE is an image itself. A model that labels words answers with word/LABEL
    for each word of a line; words end at spaces.

    Parameters
    ----------
    file
        The lines to classify, or one image; - is standard input.
    model
        The folder of a run or of a model with labels, of the family bert or vit.
    output
        Write to this file; until it is complete it is called OUTPUT.part.
    top_k
        How many labels for each line, the likeliest first.
    format
        Lines of text, or of JSON: label, score, and under labels the --top-k likeliest with theirs.
    on_bad_line
        A line that is not UTF-8: stop with an error, or skip it, which leaves an empty line.
    device
        Where to compute: cpu, cuda, cuda:N (the GPU of that number, from 0) or mps.
    """
    if model is None:
        raise UserError("which model? Name the folder of a run or a model: heedful classify lines.txt -m runs/mood")
    if top_k < 1:
        raise UserError(f"--top-k {top_k}: must be at least 1")
    refuse_overwriting(output, file)
    from heedful.decoding.classifier import Classifier
    from heedful.decoding.worker_pool import InlineExecutor

    classifier = Classifier.load(model, device=device)
    if is_image(file, taken=classifier.takes_images):
        with open_output(output) as out:
            Writer(out, format, top_k).write(0, classifier.classify([file])[0])
        return
    executor = InlineExecutor(functools.partial(_classify_block, classifier))
    with TextInput(file) as source, open_output(output) as out:
        work = LineFilter(
            source, executor, Writer(out, format, top_k), on_bad_line=on_bad_line, can_keep=False, to="classify"
        )
        work.run(hidden=output is None and sys.stdout.isatty())
    for words in [*classifier.tally.warnings(), *work.warnings()]:
        print(f"heedful: {words}", file=sys.stderr)


def is_image(file: Path, *, taken: bool) -> bool:
    """Whether FILE is an image itself, and no list of names; `taken`: by the model."""
    from heedful.data.images import SUFFIXES, UNREAD

    if taken and file.is_dir():
        raise UserError(
            f"{file}: a folder; name one image, or give the names of several to standard input: "
            f"ls {shlex.quote(str(file))}/* | heedful …"
        )
    named_so = file.suffix.lower() in (*SUFFIXES, *UNREAD)
    if named_so and not taken:
        raise UserError(f"{file}: an image, and this model takes text")
    return named_so


def _classify_block(classifier: "Classifier", texts: Sequence[str], start: int) -> "BlockResult[Any]":
    """Label each text; an error names the first text that causes it, by its number."""
    from heedful.decoding.translation import BlockResult

    label = classifier.label_words if classifier.labels_tokens else classifier.classify
    try:
        return BlockResult(label(texts), DecodingStats())
    except UserError:
        for number, text in enumerate(texts, start=start):
            try:
                label([text])
            except UserError as error:
                raise BadText(number, str(error)) from None
        raise


class Writer:
    """Labels as lines of text or of JSON."""

    def __init__(self, out: BinaryIO, format: Format, top_k: int) -> None:
        self._out, self._format, self._top_k = out, format, top_k

    def write(self, number: int, found: "Sequence[Labelled] | Sequence[LabelledWord]") -> None:
        self._write_line(_as_json(found, self._top_k) if self._format == "jsonl" else _as_text(found, self._top_k))

    def write_bad(self, number: int, content: bytes, what: str) -> None:
        self._write_line(json.dumps({"label": None, "error": what}) if self._format == "jsonl" else "")

    def flush(self) -> None:
        self._out.flush()

    def _write_line(self, text: str) -> None:
        self._out.write(text.encode("utf-8", "replace") + b"\n")


def _as_text(found: "Sequence[Labelled] | Sequence[LabelledWord]", top_k: int) -> str:
    from heedful.decoding.classifier import Labelled

    if all(isinstance(one, Labelled) for one in found) and found:
        return "\t".join(f"{one_line(one.label)}\t{one.score:.4f}" for one in found[:top_k])
    return " ".join(f"{one.word}/{one.label}" for one in found if not isinstance(one, Labelled))


def _as_json(found: "Sequence[Labelled] | Sequence[LabelledWord]", top_k: int) -> str:
    from heedful.decoding.classifier import Labelled

    if found and isinstance(found[0], Labelled):
        labels = [vars(one) for one in found[:top_k]]
        return json.dumps({**labels[0], "labels": labels}, ensure_ascii=False)
    words = [
        {"word": one.word, "label": one.label, "score": one.score} for one in found if not isinstance(one, Labelled)
    ]
    return json.dumps({"words": words}, ensure_ascii=False)
