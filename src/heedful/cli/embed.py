"""`heedful embed`: lines, or images, in; vectors out, to .npy or JSONL."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

from cyclopts import Parameter

from heedful.cli.classify import is_image
from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.output import open_output, refuse_overwriting
from heedful.cli.progress import ProgressReporter
from heedful.data.formats import decode
from heedful.data.problems import BadData, Place, remedy_for
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.embedder import Embedder

HEADER = 128  # bytes of an .npy file before its numbers: room for any count of rows


def embed(
    file: Path = STANDARD_INPUT,
    *,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    output: Path,
    pool: Literal["mean", "class", "pooler", "tokens"] = "mean",
    device: str = "cpu",
) -> None:
    """Turn each line, or each image, into a vector.

    A .npy file gets one row of float32 for each line; a .jsonl file one object
    for each: vector, or, for each token, tokens and vectors. Any family will do:
    the states of an encoder (bert, vit), the memory of an encoder-decoder, the
    states of a gpt.

    Parameters
    ----------
    file
        The lines, or one image; - is standard input. A model of images reads names of image files.
    model
        The folder of a run or of a model.
    output
        Where the vectors go: a .npy or a .jsonl file.
    pool
        One vector: the mean of all tokens, that of the class token, what a pooler makes of it; or one for each token.
    device
        Where to compute: cpu, cuda, cuda:N (the GPU of that number, from 0) or mps.
    """
    if model is None:
        raise UserError("which model? Name the folder of a run or a model: heedful embed lines.txt -m runs/bert")
    if output.suffix not in (".npy", ".jsonl"):
        raise UserError(f"--output {output}: vectors are written to .npy or .jsonl files")
    if pool == "tokens" and output.suffix == ".npy":
        raise UserError("--pool tokens: lines have unlike numbers of tokens, and an .npy is one table; write a .jsonl")
    refuse_overwriting(output, file)
    from heedful.decoding.embedder import Embedder

    embedder = Embedder.load(model, device=device)
    if pool != "tokens":
        embedder.check(pool)
    with open_output(output) as out, ProgressReporter(unit="lines") as passing:
        write = _write_npy if output.suffix == ".npy" else _write_jsonl
        write(out, embedder, _blocks(file, embedder, passing), pool)
    for words in embedder.tally.warnings():
        print(f"heedful: {words}", file=sys.stderr)


def _blocks(file: Path, embedder: "Embedder", passing: ProgressReporter) -> Iterator[list[str]]:
    """The lines, some at a time, as text. Who asks for the next ones is done with those before."""
    if is_image(file, taken=embedder.takes_images):
        yield [str(file)]
        return
    with TextInput(file) as source:
        n_lines, n_bytes = 0, source.n_bytes
        passing.update("embedding", n_lines, 0.0)
        for lines in source.blocks(full=True):
            cells = [decode(line) for line in lines]
            for cell in cells:
                for problem in cell.problems:
                    if problem.kind in ("encoding", "binary", "too-long"):
                        place = Place(source.name, cell.line, cell.byte if problem.byte is None else problem.byte)
                        raise BadData(problem.kind, place, problem.value, remedy=remedy_for(problem.kind, source.name))
            yield [cell.text for cell in cells]
            n_lines += len(lines)
            at = lines[-1].byte + len(lines[-1].content) + 1
            passing.update("embedding", n_lines, min(1.0, at / n_bytes) if n_bytes else None)


def _write_npy(out: BinaryIO, embedder: "Embedder", blocks: Iterator[list[str]], pool: str) -> None:
    """Rows as they come; the count, which stands in the header, is written last."""
    assert pool in ("mean", "class", "pooler")
    n_rows = 0
    out.write(npy_header(0, embedder.width))
    for block in blocks:
        vectors = embedder.embed(block, pool=pool)  # type: ignore[arg-type]
        out.write(vectors.numpy().astype("<f4").tobytes())
        n_rows += len(block)
    out.seek(0)
    out.write(npy_header(n_rows, embedder.width))
    out.seek(0, 2)


def npy_header(n_rows: int, width: int) -> bytes:
    """NumPy's format, version 1.0, always of one length."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n_rows}, {width}), }}".encode()
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n"


def _write_jsonl(out: BinaryIO, embedder: "Embedder", blocks: Iterator[list[str]], pool: str) -> None:
    for block in blocks:
        if pool == "tokens":
            for tokens, vectors in embedder.embed_tokens(block):
                _write_line(out, {"tokens": tokens, "vectors": vectors.tolist()})
        else:
            for vector in embedder.embed(block, pool=pool).tolist():  # type: ignore[arg-type]
                _write_line(out, {"vector": vector})


def _write_line(out: BinaryIO, values: dict[str, object]) -> None:
    out.write(json.dumps(values, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
