"""`heedful classify`: label lines, the words of lines, or images."""

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
from heedful.cli.options import DATA, MODEL, OUTPUT, Device, OutputFile, resolve_device
from heedful.cli.output import open_output, print_message, refuse_overwriting
from heedful.decoding.decoding_stats import DecodingStats
from heedful.decoding.input_text import BadText
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.classifier import Classifier, Labelled, LabelledWord
    from heedful.decoding.translation import BlockResult


def classify(
    file: Annotated[Path, Parameter(group=DATA)] = STANDARD_INPUT,
    *,
    on_bad_line: Annotated[Literal["error", "skip"], Parameter(group=DATA)] = "error",
    model: Annotated[Path, Parameter(name=["--model", "-m"], group=MODEL)],
    device: Device = "auto",
    output: OutputFile = None,
    top_k: Annotated[int, Parameter(group=OUTPUT)] = 1,
    format: Annotated[Format, Parameter(group=OUTPUT)] = "text",
) -> None:
    """Label each line, or each image, with the classes of a model.

    One line in, one line out: the label, a tab, its probability. A model of
    images (vit) reads lines with the names of image files, or FILE is an image
    itself. A model that labels words writes word/LABEL for each word of a line;
    words end at spaces.

    Parameters
    ----------
    file
        The lines to label, or one image; - is standard input.
    on_bad_line
        A line that is not UTF-8: stop with an error, or skip it, which leaves an empty line.
    model
        The folder of a run or of a model with labels, of the family bert or vit.
    top_k
        Number of labels for each line, the most probable first.
    format
        Lines of text, or of JSON: label, score, and in "labels" the --top-k most probable ones.
    """
    if top_k < 1:
        raise UserError(f"--top-k {top_k}: must be at least 1")
    refuse_overwriting(output, file)
    from heedful.decoding.classifier import Classifier
    from heedful.decoding.worker_pool import InlineExecutor

    classifier = Classifier.load(model, device=resolve_device(device))
    if is_image(file, supported=classifier.takes_images):
        with open_output(output) as out:
            LabelWriter(out, format, top_k).write(0, classifier.classify([file])[0])
        return
    executor = InlineExecutor(functools.partial(_classify_block, classifier))
    with TextInput(file, command=f"classify -m {model}") as source, open_output(output) as out:
        writer = LabelWriter(out, format, top_k)
        lines = LineFilter(source, executor, writer, on_bad_line=on_bad_line, can_keep=False, verb="classify")
        lines.run(hidden=output is None and sys.stdout.isatty())
    for text in [*classifier.truncation.warnings(), *lines.warnings()]:
        print_message(text)


def is_image(file: Path, *, supported: bool) -> bool:
    """Return whether FILE is an image, by its suffix; `supported` says whether the model reads images."""
    from heedful.data.images import SUFFIXES, UNREAD

    if supported and file.is_dir():
        raise UserError(
            f"{file}: a folder; name one image, or pipe the names of several: ls {shlex.quote(str(file))}/* | heedful …"
        )
    has_suffix = file.suffix.lower() in (*SUFFIXES, *UNREAD)
    if has_suffix and not supported:
        raise UserError(f"{file}: an image, and this model reads text")
    return has_suffix


def _classify_block(classifier: "Classifier", texts: Sequence[str], start: int) -> "BlockResult[Any]":
    """Label each text; an error names the first text that causes it, by its number."""
    from heedful.decoding.translation import BlockResult

    label = classifier.label_words if classifier.labels_words else classifier.classify
    try:
        return BlockResult(label(texts), DecodingStats())
    except UserError:
        for number, text in enumerate(texts, start=start):
            try:
                label([text])
            except UserError as error:
                raise BadText(number, str(error)) from None
        raise


class LabelWriter:
    """Writes labels as lines of text or of JSON."""

    def __init__(self, out: BinaryIO, format: Format, top_k: int) -> None:
        self._out, self._format, self._top_k = out, format, top_k

    def write(self, number: int, labels: "Sequence[Labelled] | Sequence[LabelledWord]") -> None:
        to_line = _to_json if self._format == "jsonl" else _to_text
        self._write_line(to_line(labels, self._top_k))

    def write_bad(self, number: int, content: bytes, problem: str) -> None:
        self._write_line(json.dumps({"label": None, "error": problem}) if self._format == "jsonl" else "")

    def flush(self) -> None:
        self._out.flush()

    def _write_line(self, text: str) -> None:
        self._out.write(text.encode("utf-8", "replace") + b"\n")


def _to_text(labels: "Sequence[Labelled] | Sequence[LabelledWord]", top_k: int) -> str:
    from heedful.decoding.classifier import Labelled

    if labels and all(isinstance(each, Labelled) for each in labels):
        return "\t".join(f"{one_line(each.label)}\t{each.score:.4f}" for each in labels[:top_k])
    return " ".join(f"{each.word}/{each.label}" for each in labels if not isinstance(each, Labelled))


def _to_json(labels: "Sequence[Labelled] | Sequence[LabelledWord]", top_k: int) -> str:
    from heedful.decoding.classifier import Labelled

    if labels and isinstance(labels[0], Labelled):
        best = [vars(each) for each in labels[:top_k]]
        return json.dumps({**best[0], "labels": best}, ensure_ascii=False)
    words = [
        {"word": each.word, "label": each.label, "score": each.score}
        for each in labels
        if not isinstance(each, Labelled)
    ]
    return json.dumps({"words": words}, ensure_ascii=False)
