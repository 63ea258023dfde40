"""The torch engine: the reference, for every variant of the model, on every device.

The torch engine of decoder-only models: the reference, for every setting, on every device.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from heedful.decoding.engines.base import DecoderOnlyInfo
from heedful.decoding.search.beam_search import BeamEvent, BeamLog, extend_beam
from heedful.decoding.search.continuous_batching import require_something, run_batch, search, strategy_for
from heedful.decoding.search.hypotheses import ActiveRequest, Ints, LiveHypotheses, NextTokenScores
from heedful.decoding.search.request import Hypothesis, Request, check_ids
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.search.step import S, Step
from heedful.decoding.steps.ensemble import EnsembleStep
from heedful.decoding.steps.fast_decoder_only import FastDecoderOnlyStep
from heedful.decoding.steps.fast_seq2seq import FastSeq2SeqStep, supports_fast_step
from heedful.decoding.steps.reference import Seq2SeqStep
from heedful.errors import UserError
from heedful.models.encoder_decoder import EncoderDecoder
from heedful.models.gpt import Gpt
from heedful.models.seq2seq import Seq2Seq

MANY = 16  # requests for which several lanes pay
WIDE_ENOUGH = 8  # rows for a search with required words: some must be free to go another way


class TorchEngine:
    """Searches with a model that is in memory; reads its weights, never changes them. `others` write with it."""

    name = "torch"

    def __init__(
        self,
        model: EncoderDecoder,
        *,
        others: Sequence[EncoderDecoder] = (),
        batch_rows: int = 64,
        lanes: int | None = None,
        no_shortlist: str | None = None,
    ) -> None:
        self.model = model
        self.others = others
        self.batch_rows = batch_rows
        self.lanes = lanes  # batches at a time; None: one for each thread that torch may use
        # What to do about it, in the words of who knows why torch was chosen; None: the user did.
        self.no_shortlist = no_shortlist or "only CTranslate2 has it; use --engine auto or ctranslate2"
        self.step: FastSeq2SeqStep | Seq2SeqStep | EnsembleStep = _step(model)
        if others:
            if any(_vocab_sizes(other) != _vocab_sizes(model) for other in others):
                raise UserError("these models cannot translate together: their vocabularies have different sizes")
            self.step = EnsembleStep([self.step, *map(_step, others)])

    def search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        if settings.shortlist:
            raise UserError(f"shortlist = true: {self.no_shortlist}")
        self._check(requests, settings)
        step: Step = self.step  # type: ignore[type-arg]
        if any(request.required for request in requests):
            settings = replace(settings, beam=max(settings.beam, WIDE_ENOUGH))
        threads = torch.get_num_threads()
        lanes = self.lanes or (threads if step.device.type == "cpu" and len(requests) >= MANY else 1)
        found = search(step, requests, settings, n_rows=self.rows_for(settings), lanes=lanes)
        if lanes > 1:
            torch.set_num_threads(threads)  # lanes set it for their own threads, and so for threads to come
        return with_attention(step, requests, found, self.batch_rows) if settings.attention else found

    def _check(self, requests: Sequence[Request], settings: SearchSettings) -> None:
        if settings.sampling is not None and any(request.required for request in requests):
            raise UserError("required: words can be required of a beam only, not of draws; leave out sampling")
        source, target = _vocab_sizes(self.model)
        check_ids(requests, settings, source_vocab_size=source, target_vocab_size=target)

    def rows_for(self, settings: SearchSettings) -> int:
        """A beam needs twice the rows until the products are as efficient as they get: less of its step is products."""
        return self.batch_rows if settings.beam == 1 else 2 * self.batch_rows

    def search_watched(self, request: Request, settings: SearchSettings) -> tuple[list[Hypothesis], list[BeamEvent]]:
        """One request by beam search, and the diary of the beam."""
        self._check([request], settings)
        log = BeamLog()
        step: Step = self.step  # type: ignore[type-arg]
        found = search(
            step,
            [request],
            settings,
            n_rows=settings.beam,
            advance=lambda board, prediction: extend_beam(board, prediction, watch=log.watch),
        )
        return found[0], log.events


def _step(model: EncoderDecoder) -> FastSeq2SeqStep | Seq2SeqStep:
    """The fastest that computes this model."""
    return (
        FastSeq2SeqStep(model)
        if isinstance(model, Seq2Seq) and supports_fast_step(model.config)
        else Seq2SeqStep(model)
    )


def _vocab_sizes(model: EncoderDecoder) -> tuple[int, int]:
    """Of source and target: some families have one vocabulary, some two."""
    config: Any = model.config
    one = getattr(config, "vocab_size", None)
    return one or config.source_vocab_size, one or config.target_vocab_size


@torch.inference_mode()
def with_attention(
    step: Step[S], requests: Sequence[Request], found: list[list[Hypothesis]], n_rows: int
) -> list[list[Hypothesis]]:
    """The same hypotheses with where each of their tokens looked: they are fed to the model once more."""
    flat = [(i, j) for i, row in enumerate(found) for j in range(len(row))]
    flat.sort(key=lambda at: len(requests[at[0]]))
    looked = [list(row) for row in found]
    for start in range(0, len(flat), n_rows):
        part = flat[start : start + n_rows]
        ids = [found[i][j].ids for i, j in part]
        state = step.begin([requests[i].source for i, _ in part], 1, attention=True)
        rows: list[list[list[float]]] = [[] for _ in part]
        opening = [step.special_ids.start_id, *step.special_ids.with_source_bos([])][: 1 + step.special_ids.n_forced]
        for position in range(max(map(len, ids), default=0) + step.special_ids.n_forced):
            fed = [([*opening, *row] + [step.special_ids.pad_id] * position)[position] for row in ids]
            step(torch.tensor(fed, device=step.device), state)
            assert state.attention is not None
            for row, weights, (i, _) in zip(rows, state.attention.tolist(), part, strict=True):
                row.append(weights[: len(requests[i])])
        for (i, j), row, written in zip(part, rows, ids, strict=True):
            attention = row[step.special_ids.n_forced :][: len(written)]
            looked[i][j] = replace(found[i][j], attention=attention)
    return looked


MANY_PROMPTS = 64  # prompts for which several lanes pay: each reads all weights for itself


class TorchWriter:
    """Goes on from prompts with a model that is in memory; reads its weights, never changes them."""

    name = "torch"

    def __init__(self, model: Gpt, *, batch_rows: int = 64, lanes: int | None = None) -> None:
        self.model = model
        self.shape = DecoderOnlyInfo(model.config.vocab_size, model.config.max_len, model.config.special_ids)
        self.batch_rows = batch_rows
        self.lanes = lanes  # batches at a time; None: for many prompts one for each thread that torch may use
        self.step = FastDecoderOnlyStep(model)

    def in_torch(self) -> Gpt:
        return self.model

    def search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        self.shape.check(requests, settings)
        threads = torch.get_num_threads()
        lanes = self.lanes or (threads if self.step.device.type == "cpu" and len(requests) >= MANY_PROMPTS else 1)
        found = search(self.step, requests, settings, n_rows=self.batch_rows, lanes=lanes)
        if lanes > 1:
            torch.set_num_threads(threads)  # lanes set it for their own threads, and so for threads to come
        return found

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        self.shape.check([request], settings)
        entry = ActiveRequest(0, request, settings.limit(len(request)))
        results: list[list[Hypothesis]] = [[]]
        advance, written, n_said = strategy_for(settings), deque[int](), 0

        def watch(board: LiveHypotheses, prediction: NextTokenScores) -> Ints | None:
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
