"""Bulk translation by several processes, each with the model and one thread: blocks of texts go out and come back.

Like those that tokenise, the processes are plain programs (`worker.py`).
"""

import contextlib
import dataclasses
import json
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from heedful.config import config_to_dict
from heedful.decoding.input_text import BadText
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.segmentation import DecodingStats, Long
from heedful.decoding.text_constraints import NO_CONSTRAINTS, TextConstraints
from heedful.decoding.translation import BlockResult, Translation
from heedful.devices import device_name
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import cache_for_children
from heedful.models.model_info import find_model_folder
from heedful.worker import Worker

MOST_WORKERS = 1024


@dataclass(frozen=True)
class LoadSpec:
    """How a Translator was loaded: what another process needs to load the same."""

    path: str
    engine: str = "auto"
    compute: str = "float32"
    device: str = "cpu"
    long: Long = "split"
    limit: int | None = None
    language: str | None = None  # whose abbreviations are known; None: the source language of the model's card
    scores: bool = True
    prefix: str = ""
    others: tuple[str, ...] = ()  # models that translate with it, as an ensemble


Output = TypeVar("Output")
Translations = BlockResult[list[Translation]]


class BatchExecutor(Protocol[Output]):
    """Runs a model on blocks of texts: in this process (`InlineExecutor`) or in several (`Workers`)."""

    width: int  # how many blocks to submit before the first result is awaited

    def submit(self, texts: Sequence[str], start: int) -> "Future[BlockResult[Output]]":
        """Start a block; `start` is the number of its first text, counted from 0."""


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


class Workers:
    """Use as a context. `submit` may be called from one thread only. `devices`, if any, are taken in turn."""

    def __init__(
        self,
        opening: LoadSpec,
        settings: SearchSettings,
        n_workers: int,
        wording: TextConstraints = NO_CONSTRAINTS,
        *,
        devices: Sequence[str] = (),
    ) -> None:
        hows = _openings(opening, settings, wording, n_workers, devices)
        self.width = 2 * n_workers  # one to work on and one to go on with
        with contextlib.ExitStack() as stack:
            self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
            self._pool = ThreadPoolExecutor(n_workers)  # each thread waits on the pipes of one process
            stack.callback(self._pool.shutdown, cancel_futures=True)
            is_torch = opening.engine == "torch" or len(opening.others) > 0
            cache = {} if is_torch else stack.enter_context(cache_for_children(find_model_folder(opening.path)))
            names = [f"translating process {number + 1} of {n_workers}" for number in range(n_workers)]
            started = [stack.enter_context(_Worker(name, cache)) for name in names]
            for worker, how in zip(started, hows, strict=True):  # all have started: each may be waited for
                worker.open(how)
                self._idle.put(worker)
            self._stack = stack.pop_all()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()  # kills the processes first, so that no thread waits any longer

    def submit(self, texts: Sequence[str], start: int) -> "Future[Translations]":
        return self._pool.submit(self._translate, list(texts), start)

    def _translate(self, texts: Sequence[str], start: int) -> Translations:
        worker = self._idle.get()
        try:
            return worker.translate(texts, start)
        finally:
            self._idle.put(worker)


def _openings(
    opening: LoadSpec, settings: SearchSettings, wording: TextConstraints, n_workers: int, devices: Sequence[str]
) -> list[str]:
    """What each process is told."""
    if not 1 <= n_workers <= MOST_WORKERS:
        raise UserError(f"workers = {n_workers}: must lie between 1 and {MOST_WORKERS:,}")
    names = [device_name(name) for name in devices or [opening.device]]
    if n_workers < len(names):
        raise UserError(
            f"workers = {n_workers} for {len(names)} devices, {', '.join(names)}: each needs a process of its own, "
            "or it would have nothing to do; raise the one, or name fewer of the others"
        )
    openings = [dataclasses.replace(opening, device=names[number % len(names)]) for number in range(n_workers)]
    same = {"settings": config_to_dict(settings), "wording": config_to_dict(wording)}
    return [json.dumps({"opening": config_to_dict(each), **same}) for each in openings]


def in_order(blocks: Iterable[Sequence[str]], workers: BatchExecutor[Output]) -> Iterator[BlockResult[Output]]:
    """The answers to the blocks, in their order, with at most `width` blocks in memory."""
    pending: deque[Future[BlockResult[Output]]] = deque()
    start = 0
    for block in blocks:
        pending.append(workers.submit(block, start))
        start += len(block)
        if len(pending) >= workers.width:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


class _Worker:
    """One child process."""

    def __init__(self, name: str, variables: Mapping[str, str]) -> None:
        module = "heedful.decoding.translate_worker"
        self.child = Worker(module, [], name=name, variables={"OMP_NUM_THREADS": "1", **variables})

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close()

    def open(self, how: str) -> None:
        """By its pipe: an argument of a program has an end, at 128 KiB on Linux, and a prefix for each text goes on."""
        self.child.send([how.encode()])

    def translate(self, texts: Sequence[str], start: int) -> Translations:
        is_error, blobs = self.child.request([json.dumps({"texts": texts, "start": start}).encode()])
        values = json.loads(blobs[0])
        if is_error:
            raise _error(values, self.child.name)
        return answer_from_values(values)


def answer_to_values(answer: Translations) -> dict[str, Any]:
    return {
        "translations": [[dataclasses.asdict(one) for one in best] for best in answer.outputs],
        "tally": dataclasses.asdict(answer.tally),
    }


def answer_from_values(values: dict[str, Any]) -> Translations:
    return BlockResult(
        [[_translation(one) for one in best] for best in values["translations"]], DecodingStats(**values["tally"])
    )


def _translation(values: dict[str, Any]) -> Translation:
    """JSON knows lists only."""
    for name in ("tokens", "source_tokens"):
        values[name] = tuple(values[name])
    for name in ("alignment", "attention"):
        if values[name] is not None:
            values[name] = tuple(tuple(row) for row in values[name])
    return Translation(**values)


def _error(values: dict[str, Any], name: str) -> Exception:
    if values["kind"] == "text":
        return BadText(values["number"], values["what"])
    if values["kind"] == "user":
        return UserError(values["what"])
    return RuntimeError(f"{name} failed:\n{values['what']}")
