"""The child process of `workers`: blocks of texts on standard input, their translations on standard output.

It ends when its standard input is closed, in the middle of a block too, so it never outlives who started it.
"""

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any

from heedful.config import config_from_dict
from heedful.decoding.input_text import BadText
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.text_constraints import TextConstraints
from heedful.decoding.translator import TranslationCache, Translator
from heedful.decoding.worker_pool import LoadSpec, answer_to_values
from heedful.errors import UserError
from heedful.worker import read_message, write_message


def main() -> None:
    """The first message is a JSON object of `opening`, `settings` and `wording`, the others are blocks."""
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not land between the messages
    came: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, came), daemon=True).start()
    try:
        answer = _open(came.get())
    except Exception as error:
        refusal = _values(error)
        while True:  # whoever asks must hear it, however late; and Python aborts where it ends while a thread reads
            came.get()
            _write(messages, refusal, is_error=True)
    while True:
        block = came.get()
        try:
            values = answer(block)
        except Exception as error:
            _write(messages, _values(error), is_error=True)
        else:
            _write(messages, values)


def _open(how: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What answers a block."""
    settings = config_from_dict(SearchSettings, how["settings"], where="settings")
    wording = config_from_dict(TextConstraints, how["wording"], where="wording")
    translator = Translator.open(config_from_dict(LoadSpec, how["opening"], where="opening"), threads=1)
    repeats = TranslationCache()

    def answer(block: dict[str, Any]) -> dict[str, Any]:
        found = translator.translate_block(
            block["texts"], settings, start=block["start"], wording=wording, repeats=repeats
        )
        return answer_to_values(found)

    return answer


def _read(pipe: IO[bytes], came: "queue.SimpleQueue[dict[str, Any]]") -> None:
    try:
        while True:
            _, blobs = read_message(pipe)
            came.put(json.loads(blobs[0]))
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
    main()
