"""The child process of `tokenising`: chunks of text on standard input, encoded chunks on standard output.

It ends when either pipe is closed, so it never outlives the process that started it.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import IO

from heedful.data.binarize import SideFormat, encode_side, pack_encoded, unpack_texts
from heedful.text import Tokenizer, load_tokenizer
from heedful.worker import read_message, write_message

# Few enough that a tokenizer starts no threads: every core has its process already.
TEXTS_AT_ONCE = 60


def main(arguments: Sequence[str]) -> None:
    """For each side three arguments: the tokenizer's file, the type of ids, "text" to keep the text or "ids"."""
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not land between the messages
    paths, dtypes, kinds = arguments[::3], arguments[1::3], arguments[2::3]
    loaded = {path: load_tokenizer(path, probe=False) for path in set(paths)}
    tokenizers = [loaded[path] for path in paths]
    forms = [SideFormat(dtype, kind == "text") for dtype, kind in zip(dtypes, kinds, strict=True)]
    try:
        while True:
            _, blobs = read_message(sys.stdin.buffer)
            _answer(blobs, tokenizers, forms, messages)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # without flushing a pipe that nobody reads


def _answer(
    blobs: Sequence[bytes], tokenizers: Sequence[Tokenizer], forms: Sequence[SideFormat], messages: IO[bytes]
) -> None:
    try:
        sides = zip(unpack_texts(blobs), tokenizers, forms, strict=True)
        answer = pack_encoded([encode_side(*side, at_once=TEXTS_AT_ONCE) for side in sides])
    except Exception:
        write_message(messages, [traceback.format_exc().encode()], error=True)
    else:
        write_message(messages, answer)


if __name__ == "__main__":
    main(sys.argv[1:])
