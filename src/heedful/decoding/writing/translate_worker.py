"""The child process of `workers`: blocks of texts on standard input, their translations on standard output.

It ends when its standard input is closed, in the middle of a block too, so it never outlives who started it.
"""

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import IO, Any

from heedful.config import from_values
from heedful.data.messages import read_message, write_message
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.writing.repeats import Repeats
from heedful.decoding.writing.texts import BadText
from heedful.decoding.writing.translator import Translator
from heedful.decoding.writing.wording import Wording
from heedful.decoding.writing.workers import Opening, answer_to_values
from heedful.errors import UserError


def main(arguments: Sequence[str]) -> None:
    """One argument: a JSON object of `opening`, `settings` and `wording`."""
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not land between the messages
    blocks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, blocks), daemon=True).start()
    how = json.loads(arguments[0])
    try:
        settings = from_values(SearchSettings, how["settings"], where="settings")
        wording = from_values(Wording, how["wording"], where="wording")
        translator = Translator.open(from_values(Opening, how["opening"], where="opening"), threads=1)
    except Exception as error:
        write_message(messages, [json.dumps(_values(error)).encode()], error=True)  # the answer to the first block
        return
    repeats = Repeats()
    while True:
        block = blocks.get()
        try:
            found = translator.answer(block["texts"], settings, start=block["start"], wording=wording, repeats=repeats)
            answer = answer_to_values(found)
        except Exception as error:
            _write(messages, _values(error), is_error=True)
        else:
            _write(messages, answer)


def _read(pipe: IO[bytes], blocks: "queue.SimpleQueue[dict[str, Any]]") -> None:
    try:
        while True:
            _, blobs = read_message(pipe)
            blocks.put(json.loads(blobs[0]))
    except EOFError:
        os._exit(0)  # without flushing a pipe that nobody reads


def _write(messages: IO[bytes], values: dict[str, Any], *, is_error: bool = False) -> None:
    try:
        write_message(messages, [json.dumps(values).encode()], error=is_error)
    except BrokenPipeError:
        os._exit(0)


def _values(error: Exception) -> dict[str, Any]:
    if isinstance(error, BadText):
        return {"kind": "text", "number": error.number, "what": error.what}
    if isinstance(error, UserError):
        return {"kind": "user", "what": str(error)}
    return {"kind": "bug", "what": "".join(traceback.format_exception(error))}


if __name__ == "__main__":
    main(sys.argv[1:])
