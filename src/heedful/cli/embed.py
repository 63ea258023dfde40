"""`heedful embed`: turn lines or images into vectors, in a .npy or a .jsonl file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

from cyclopts import Parameter

from heedful.cli.classify import is_image
from heedful.cli.input import STANDARD_INPUT, TextInput
from heedful.cli.line_filter import require_readable
from heedful.cli.options import DATA, MODEL, OUTPUT, Device, resolve_device
from heedful.cli.output import open_output, print_message, refuse_overwriting
from heedful.cli.progress import ProgressReporter
from heedful.data.formats import decode
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.embedder import Embedder

HEADER = 128  # bytes of a .npy file before its numbers, enough for any number of rows


def embed(
    file: Annotated[Path, Parameter(group=DATA)] = STANDARD_INPUT,
    *,
    model: Annotated[Path, Parameter(name=["--model", "-m"], group=MODEL)],
    pool: Annotated[Literal["mean", "class", "pooler", "tokens"], Parameter(group=MODEL)] = "mean",
    device: Device = "auto",
    output: Annotated[Path, Parameter(name=["--output", "-o"], group=OUTPUT)],
) -> None:
    """Turn each line, or each image, into a vector.

    A .npy file gets one row of float32 for each line; a .jsonl file one object
    for each: "vector", or "tokens" and "vectors" with --pool tokens. Every
    family can embed: encoders (bert, vit) and gpt by their last hidden states,
    encoder-decoders by the output of their encoder.

    Parameters
    ----------
    file
        The lines, or one image; - is standard input. A model of images reads names of image files.
    model
        The folder of a run or of a model.
    pool
        The mean of all tokens, the class token, the output of the pooler, or one vector for each token.
    output
        The file for the vectors: .npy or .jsonl.
    """
    if output.suffix not in (".npy", ".jsonl"):
        raise UserError(f"--output {output}: vectors are written to .npy or .jsonl files")
    if pool == "tokens" and output.suffix == ".npy":
        raise UserError(
            "--pool tokens: lines have different numbers of tokens, and a .npy file is one table; write a .jsonl file"
        )
    refuse_overwriting(output, file)
    from heedful.decoding.embedder import Embedder

    embedder = Embedder.load(model, device=resolve_device(device))
    if pool != "tokens":
        embedder.check(pool)
    with open_output(output) as out, ProgressReporter(unit="lines") as progress:
        write = _write_npy if output.suffix == ".npy" else _write_jsonl
        write(out, embedder, _blocks(file, embedder, progress), pool)
    for text in embedder.truncation.warnings():
        print_message(text)


def _blocks(file: Path, embedder: "Embedder", progress: ProgressReporter) -> Iterator[list[str]]:
    """Iterate over blocks of lines; when the next block is requested, the one before it counts as done."""
    if is_image(file, supported=embedder.takes_images):
        yield [str(file)]
        return
    with TextInput(file, command="embed") as source:
        n_lines, n_bytes = 0, source.n_bytes
        progress.update("embedding", n_lines, 0.0)
        for lines in source.blocks(full=True):
            cells = [decode(line) for line in lines]
            require_readable(source.name, cells)
            yield [cell.text for cell in cells]
            n_lines += len(lines)
            end = lines[-1].byte + len(lines[-1].content) + 1
            progress.update("embedding", n_lines, min(1.0, end / n_bytes) if n_bytes else None)


def _write_npy(out: BinaryIO, embedder: "Embedder", blocks: Iterator[list[str]], pool: str) -> None:
    """Write rows as they are computed; the header, which holds their number, is written again at the end."""
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
    """Return the header of a .npy file, version 1.0, always `HEADER` bytes long."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n_rows}, {width}), }}".encode()
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n"


def _write_jsonl(out: BinaryIO, embedder: "Embedder", blocks: Iterator[list[str]], pool: str) -> None:
    for block in blocks:
        if pool == "tokens":
            for tokens, vectors in embedder.embed_tokens(block):
                _write_object(out, {"tokens": tokens, "vectors": vectors.tolist()})
        else:
            for vector in embedder.embed(block, pool=pool).tolist():  # type: ignore[arg-type]
                _write_object(out, {"vector": vector})


def _write_object(out: BinaryIO, values: dict[str, object]) -> None:
    out.write(json.dumps(values, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
