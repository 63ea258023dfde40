"""Translate in several processes, each with its own model and one thread. This module is both parent and child.

The parent sends blocks of texts to child processes (`python -m heedful.decoding.worker_pool`) and gets their
translations back, as JSON in the messages of `heedful.worker`. A child ends when its standard input is closed, even in
the middle of a block, so that it never outlives its parent.

`BatchExecutor` is what callers see: `Workers` here, or an `InlineExecutor` that runs the model in this process.
"""

import contextlib
import dataclasses
import json
import os
import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, Generic, Protocol, TypeVar

from heedful.config import config_from_dict, config_to_dict
from heedful.decoding.decoding_stats import DecodingStats
from heedful.decoding.input_text import BadText
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.segmentation import Long
from heedful.decoding.text_constraints import NO_CONSTRAINTS, TextConstraints
from heedful.decoding.translation import BlockResult, Translation
from heedful.devices import device_name
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import cache_for_children
from heedful.models.model_info import find_model_folder
from heedful.worker import Worker, read_message, write_message

MOST_WORKERS = 1024


@dataclass(frozen=True)
class LoadSpec:
    """The arguments that a Translator was loaded with, so that another process can load the same."""

    path: str
    engine: str = "auto"
    compute: str = "float32"
    device: str = "cpu"
    long: Long = "split"
    limit: int | None = None
    language: str | None = None  # for the abbreviations; None: the source language of the model's card
    scores: bool = True
    prefix: str = ""
    others: tuple[str, ...] = ()  # further models of an ensemble


Output = TypeVar("Output")
Translations = BlockResult[list[Translation]]


class BatchExecutor(Protocol[Output]):
    """Runs a model on blocks of texts: in this process (`InlineExecutor`) or in several (`Workers`)."""

    width: int  # how many blocks to submit before the first result is awaited

    def submit(self, texts: Sequence[str], start: int) -> "Future[BlockResult[Output]]":
        """Start a block; `start` is the index of its first text among all texts."""


class InlineExecutor(Generic[Output]):
    """Runs each block in this process, during `submit`.

    As with another process, an error is raised by the future's `result`, not by `submit`.
    """

    width = 1

    def __init__(self, run_block: Callable[[Sequence[str], int], BlockResult[Output]]) -> None:
        self._run_block = run_block

    def submit(self, texts: Sequence[str], start: int) -> "Future[BlockResult[Output]]":
        future: Future[BlockResult[Output]] = Future()
        try:
            future.set_result(self._run_block(texts, start))
        except Exception as error:
            future.set_exception(error)
        return future


def in_order(blocks: Iterable[Sequence[str]], executor: BatchExecutor[Output]) -> Iterator[BlockResult[Output]]:
    """Yield the results of the blocks in their order, with at most `width` blocks in memory."""
    pending: deque[Future[BlockResult[Output]]] = deque()
    start = 0
    for block in blocks:
        pending.append(executor.submit(block, start))
        start += len(block)
        if len(pending) >= executor.width:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


class Workers:
    """Child processes that translate blocks. Use it as a context, and call `submit` from one thread only.

    Process i computes on devices[i % len(devices)]; without `devices`, all use the device of the load spec.
    """

    def __init__(
        self,
        load_spec: LoadSpec,
        settings: SearchSettings,
        n_workers: int,
        constraints: TextConstraints = NO_CONSTRAINTS,
        *,
        devices: Sequence[str] = (),
    ) -> None:
        first_messages = _first_messages(load_spec, settings, constraints, n_workers, devices)
        self.width = 2 * n_workers  # one block to work on, and one to continue with
        with contextlib.ExitStack() as stack:
            self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
            self._pool = ThreadPoolExecutor(n_workers)  # each thread waits for the pipes of one process
            stack.callback(self._pool.shutdown, cancel_futures=True)
            is_torch = load_spec.engine == "torch" or len(load_spec.others) > 0
            cache = {} if is_torch else stack.enter_context(cache_for_children(find_model_folder(load_spec.path)))
            names = [f"translating process {number + 1} of {n_workers}" for number in range(n_workers)]
            started = [stack.enter_context(_Worker(name, cache)) for name in names]
            for worker, message in zip(started, first_messages, strict=True):  # after all have started, in parallel
                worker.load(message)
                self._idle.put(worker)
            self._stack = stack.pop_all()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()  # kills the processes first, so that no thread waits for them any longer

    def submit(self, texts: Sequence[str], start: int) -> "Future[Translations]":
        return self._pool.submit(self._translate, list(texts), start)

    def _translate(self, texts: Sequence[str], start: int) -> Translations:
        worker = self._idle.get()
        try:
            return worker.translate(texts, start)
        finally:
            self._idle.put(worker)


def _first_messages(
    load_spec: LoadSpec, settings: SearchSettings, constraints: TextConstraints, n_workers: int, devices: Sequence[str]
) -> list[str]:
    """Return what each process gets first: how to load the model, and how to translate."""
    if not 1 <= n_workers <= MOST_WORKERS:
        raise UserError(f"workers = {n_workers}: must lie between 1 and {MOST_WORKERS:,}")
    names = [device_name(name) for name in devices or [load_spec.device]]
    if n_workers < len(names):
        raise UserError(
            f"workers = {n_workers} for {len(names)} devices, {', '.join(names)}: each device needs a process of its "
            "own; use more workers or fewer devices"
        )
    specs = [dataclasses.replace(load_spec, device=names[number % len(names)]) for number in range(n_workers)]
    shared = {"settings": config_to_dict(settings), "constraints": config_to_dict(constraints)}
    return [json.dumps({"load_spec": config_to_dict(spec), **shared}) for spec in specs]


class _Worker:
    """One child process, seen from the parent."""

    def __init__(self, name: str, variables: Mapping[str, str]) -> None:
        self._child = Worker(
            "heedful.decoding.worker_pool", [], name=name, variables={"OMP_NUM_THREADS": "1", **variables}
        )

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def load(self, message: str) -> None:
        """Send the first message. Its length has no bound, unlike an argument (128 KiB on Linux)."""
        self._child.send([message.encode()])

    def translate(self, texts: Sequence[str], start: int) -> Translations:
        is_error, blobs = self._child.request([json.dumps({"texts": texts, "start": start}).encode()])
        values = json.loads(blobs[0])
        if is_error:
            raise error_from_dict(values, self._child.name)
        return result_from_dict(values)


def result_to_dict(result: Translations) -> dict[str, Any]:
    """Turn a result into JSON values."""
    return {
        "translations": [[dataclasses.asdict(translation) for translation in best] for best in result.outputs],
        "stats": dataclasses.asdict(result.stats),
    }


def result_from_dict(values: dict[str, Any]) -> Translations:
    """Make a result from its JSON values."""
    translations = [[_translation_from_dict(each) for each in best] for best in values["translations"]]
    return BlockResult(translations, DecodingStats(**values["stats"]))


def _translation_from_dict(values: dict[str, Any]) -> Translation:
    """Make a translation from its JSON values, in which tuples are lists."""
    for name in ("tokens", "source_tokens"):
        values[name] = tuple(values[name])
    for name in ("alignment", "attention"):
        if values[name] is not None:
            values[name] = tuple(tuple(row) for row in values[name])
    return Translation(**values)


def error_to_dict(error: Exception) -> dict[str, Any]:
    """Turn an error of the child into JSON values."""
    if isinstance(error, BadText):
        return {"kind": "text", "number": error.number, "what": error.what}
    if isinstance(error, UserError):
        return {"kind": "user", "what": str(error)}
    return {"kind": "bug", "what": "".join(traceback.format_exception(error))}


def error_from_dict(values: dict[str, Any], name: str) -> Exception:
    """Make the error of the child process `name` from its JSON values."""
    if values["kind"] == "text":
        return BadText(values["number"], values["what"])
    if values["kind"] == "user":
        return UserError(values["what"])
    return RuntimeError(f"{name} failed:\n{values['what']}")


def main() -> None:
    """Run a child process: the first message says how to load and translate, each further one is a block of texts."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not get between the messages
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_messages, args=(sys.stdin.buffer, messages), daemon=True).start()
    try:
        run_block = _load(messages.get())
    except Exception as error:
        refusal = error_to_dict(error)
        while True:  # answer every block: if the process ended here, the error would be lost
            messages.get()
            _reply(replies, refusal, is_error=True)
    while True:
        block = messages.get()
        try:
            values = run_block(block)
        except Exception as error:
            _reply(replies, error_to_dict(error), is_error=True)
        else:
            _reply(replies, values)


def _load(message: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Load the translator, and return the function that translates a block."""
    from heedful.decoding.translator import Translator  # which imports this module

    settings = config_from_dict(SearchSettings, message["settings"], where="settings")
    constraints = config_from_dict(TextConstraints, message["constraints"], where="constraints")
    load_spec = config_from_dict(LoadSpec, message["load_spec"], where="load_spec")
    executor = Translator.open(load_spec, threads=1).inline_executor(settings, constraints)
    return lambda block: result_to_dict(executor.submit(block["texts"], block["start"]).result())


def _read_messages(pipe: IO[bytes], messages: "queue.SimpleQueue[dict[str, Any]]") -> None:
    try:
        while True:
            _, blobs = read_message(pipe)
            messages.put(json.loads(blobs[0]))
    except EOFError:
        os._exit(0)  # without flushing a pipe that nobody reads


def _reply(pipe: IO[bytes], values: dict[str, Any], *, is_error: bool = False) -> None:
    try:
        write_message(pipe, [json.dumps(values).encode()], error=is_error)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
