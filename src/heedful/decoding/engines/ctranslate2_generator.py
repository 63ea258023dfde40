"""The CTranslate2 engine of decoder-only models. Imports no torch.

CTranslate2 reads the prompts of a batch at once up to the length of the shortest, and the rest token by token. So
prompts are sorted by length, and a batch holds prompts of similar length.
"""

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from heedful.decoding.engines.base import DecoderOnlyInfo
from heedful.decoding.engines.ctranslate2_engine import NO_LENGTH_PENALTY, Compute
from heedful.decoding.engines.ctranslate2_support import why_not_prompt
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings, length_norm
from heedful.devices import n_cores
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import Converted
from heedful.interop.ctranslate2.library import library, placed, target_token, threads_for_one

if TYPE_CHECKING:
    from heedful.models.gpt import Gpt

BATCH_ROWS = 32  # hypotheses of one batch
SPREAD = 16  # tokens by which prompts of one batch may differ in length


class CTranslate2Generator:
    """Continues prompts with a converted model."""

    name = "ctranslate2"

    def __init__(
        self,
        converted: Converted,
        info: DecoderOnlyInfo,
        *,
        compute: Compute = "float32",
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        self.converted = converted
        self.info = info
        self.compute = compute
        self.device = device
        self.threads = threads or (n_cores() if device == "cpu" else 1)
        self._names = [target_token(number) for number in range(info.vocab_size)]
        self._opened: dict[tuple[int, int], Any] = {}
        self._opening = threading.Lock()

    @property
    def torch_model(self) -> "Gpt":
        raise UserError("engine = 'ctranslate2': there is no model in torch; load it with engine = 'torch'")

    def why_not(self, requests: Sequence[Request], settings: SearchSettings) -> str | None:
        reasons = (why_not_prompt(request, settings, self.info) for request in requests)
        return next((reason for reason in reasons if reason is not None), None)

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        self._check(requests, settings)
        inter = 1 if len(requests) == 1 else self.threads
        generator = self._generator(inter)
        results: list[list[Hypothesis]] = [[] for _ in requests]
        rows = max(1, min(BATCH_ROWS // settings.beam, -(-len(requests) // inter)))
        waiting = [
            (numbers, self._submit(generator, [requests[number] for number in numbers], settings))
            for numbers in _batches(requests, settings, rows)
        ]
        for numbers, futures in waiting:
            for number, future in zip(numbers, futures, strict=True):
                results[number] = self._hypotheses(future.result(), settings)
        return results

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        if settings.beam > 1:
            yield self.search([request], settings)[0][0].ids
            return
        self._check([request], settings)
        written: queue.SimpleQueue[int] = queue.SimpleQueue()
        is_closed = threading.Event()

        def on_token(result: Any) -> bool:  # whether to stop
            written.put(result.token_id)
            return is_closed.is_set()

        [future] = self._submit(self._generator(1), [request], settings, callback=on_token)
        try:
            yield from _tokens_of(written, future, self.info.ends)
        finally:
            is_closed.set()

    def _check(self, requests: Sequence[Request], settings: SearchSettings) -> None:
        self.info.check(requests, settings)
        reason = self.why_not(requests, settings)
        if reason is not None:
            raise UserError(f"CTranslate2 cannot do this: {reason}. Use engine = 'torch'")

    def _submit(self, generator: Any, requests: Sequence[Request], settings: SearchSettings, **more: Any) -> list[Any]:
        """Submit one batch, whose requests all have the same length limit."""
        futures: list[Any] = generator.generate_batch(
            [[self._names[number] for number in request.source] for request in requests],
            asynchronous=True,
            max_length=settings.limit(len(requests[0])),
            include_prompt_in_result=False,
            end_token=self.info.ends,
            return_end_token=True,
            return_scores=True,
            **_options(settings),
            **more,
        )
        return futures

    def _hypotheses(self, result: Any, settings: SearchSettings) -> list[Hypothesis]:
        """Make hypotheses; CTranslate2's score of a beam is sum / length^alpha, of greedy search the sum."""
        hypotheses = []
        for ids, ct2_score in zip(result.sequences_ids, result.scores, strict=True):
            norm = length_norm(len(ids), settings)
            score = ct2_score * norm if settings.beam > 1 else ct2_score
            complete = ids[-1] in self.info.ends
            hypotheses.append(Hypothesis(ids[:-1] if complete else ids, score, score / norm, complete))
        return hypotheses

    def _generator(self, inter: int) -> Any:
        """Open the model for so many batches at a time. A single batch gets all threads; in int8, one is faster."""
        is_divided = self.compute == "float32" and self.threads > inter
        intra = threads_for_one(self.converted.folder, self.threads // inter) if is_divided else 1
        if intra == 1:
            inter = self.threads  # several calls with a single prompt may come at the same time
        with self._opening:
            if (inter, intra) not in self._opened:
                self._opened[inter, intra] = library().Generator(
                    str(self.converted.folder),
                    **placed(self.device),
                    compute_type=self.compute,
                    inter_threads=inter,
                    intra_threads=intra,
                )
            return self._opened[inter, intra]


def _batches(requests: Sequence[Request], settings: SearchSettings, rows: int) -> list[list[int]]:
    """Divide requests into batches of one limit and similar lengths, the longest first; return their indices.

    The prompts of a beam's batch have exactly the same length: after a prompt that it reads token by token, CTranslate2
    lets only the first row of a beam end at once. The same holds for prompts beside one of a single token, since the
    other prompts' tokens would count as generated.
    """
    batches: list[list[int]] = []
    before, longest = None, 0  # the limit of the last batch, and how long its prompts may be
    for number in sorted(range(len(requests)), key=lambda number: len(requests[number])):
        limit, length = settings.limit(len(requests[number])), len(requests[number].source)
        if limit != before or length > longest or len(batches[-1]) == rows:
            batches.append([])
            before, longest = limit, length + (SPREAD if settings.beam == 1 and length > 1 else 0)
        batches[-1].append(number)
    return batches[::-1]


def _tokens_of(written: "queue.SimpleQueue[int]", future: Any, ends: Sequence[int]) -> Iterator[list[int]]:
    """Yield tokens until the future is done, and raise its error, if there is one."""
    while True:
        is_done = future.done()  # before reading the queue, so that nothing is left in it
        try:
            token = written.get(timeout=0 if is_done else 0.1)
        except queue.Empty:
            if is_done:
                future.result()
                return
            continue
        if token not in ends:
            yield [token]


def _options(settings: SearchSettings) -> dict[str, Any]:
    if settings.beam == 1:
        return {"length_penalty": 0.0}
    enough = max(settings.n_best, round(settings.beam * settings.patience))
    return {
        "beam_size": settings.beam,
        "num_hypotheses": settings.n_best,
        "patience": enough / settings.beam,
        "length_penalty": settings.length_penalty or NO_LENGTH_PENALTY,
    }
