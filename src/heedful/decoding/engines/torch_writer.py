"""The torch engine of decoder-only models: the reference, for every setting, on every device."""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence

import torch

from heedful.decoding.engines.writer import Shape
from heedful.decoding.search.board import Board, Entry, Ints
from heedful.decoding.search.loop import choose_advance, require_something, run_batch, search
from heedful.decoding.search.prediction import Prediction
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.gpt import GptStep
from heedful.models.gpt import Gpt

MANY = 64  # prompts for which several lanes pay: each reads all weights for itself


class TorchWriter:
    """Goes on from prompts with a model that is in memory; reads its weights, never changes them."""

    name = "torch"

    def __init__(self, model: Gpt, *, batch_rows: int = 64, lanes: int | None = None) -> None:
        self.model = model
        self.shape = Shape(model.config.vocab_size, model.config.max_len, model.config.marks)
        self.batch_rows = batch_rows
        self.lanes = lanes  # batches at a time; None: for many prompts one for each thread that torch may use
        self.step = GptStep(model)

    def in_torch(self) -> Gpt:
        return self.model

    def search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        self.shape.check(requests, settings)
        threads = torch.get_num_threads()
        lanes = self.lanes or (threads if self.step.device.type == "cpu" and len(requests) >= MANY else 1)
        found = search(self.step, requests, settings, n_rows=self.batch_rows, lanes=lanes)
        if lanes > 1:
            torch.set_num_threads(threads)  # lanes set it for their own threads, and so for threads to come
        return found

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        self.shape.check([request], settings)
        entry = Entry(0, request, settings.limit(len(request)))
        results: list[list[Hypothesis]] = [[]]
        advance, written, n_said = choose_advance(settings), deque[int](), 0

        def watch(board: Board, prediction: Prediction) -> Ints | None:
            parents = advance(board, prediction)
            if board.width == 1 and not board.finished[0]:
                written.append(int(board.tokens[0, 0]))
            return parents

        for _ in _in_inference(run_batch(self.step, [entry], deque(), settings, watch, results)):
            if new := list(itertools.islice(written, n_said, None)):
                n_said += len(new)
                yield new
        require_something(results[0], entry)
        if new := results[0][0].ids[n_said:]:
            yield new


def _in_inference(steps: Iterator[None]) -> Iterator[None]:
    """The same steps; what the caller does between them is not under inference mode."""
    done = object()
    while True:
        with torch.inference_mode():
            if next(steps, done) is done:
                return
        yield
