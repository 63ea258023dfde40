"""The torch engine: every model and every setting, on every device. The other engines are tested against it."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from heedful.decoding.engines.base import DecoderOnlyInfo
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.continuous_batching import length_limit_of, require_something, run_batch, search
from heedful.decoding.search.hypotheses import ActiveRequest
from heedful.decoding.search.parallel_decoding import decode_in_parallel, why_not_parallel
from heedful.decoding.search.request import Hypothesis, Request, check_ids
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.search.step import S, Step
from heedful.decoding.steps.ensemble import EnsembleStep
from heedful.decoding.steps.fast_decoder_only import FastDecoderOnlyStep
from heedful.decoding.steps.fast_seq2seq import FastSeq2SeqStep, supports_fast_step
from heedful.decoding.steps.reference import ReferenceBlockStep, Seq2SeqStep
from heedful.errors import UserError
from heedful.models.encoder_decoder import EncoderDecoder
from heedful.models.gpt import Gpt
from heedful.models.seq2seq import Seq2Seq

MANY_SOURCES = 16  # requests from which on several lanes are faster than one
MANY_PROMPTS = 64  # the same of a decoder-only model, of which each lane reads all weights
WIDE_ENOUGH = 8  # smallest beam if words are required: some rows must stay free for other continuations


class TorchEngine:
    """Searches with an encoder-decoder or decoder-only model in memory; it reads the weights and never changes them.

    `others` are models with the same vocabulary that translate together with `model`, as an ensemble. `batch_rows` is
    the number of hypotheses in one batch, `lanes` the number of batches that are computed at a time, each in a thread
    of its own (by default as many as torch may use threads, if there are many requests).
    """

    name = "torch"

    def __init__(
        self,
        model: EncoderDecoder | Gpt,
        *,
        others: Sequence[EncoderDecoder] = (),
        batch_rows: int = 64,
        lanes: int | None = None,
        no_shortlist: str | None = None,
    ) -> None:
        self.model = model
        self.others = others
        self.batch_rows = batch_rows
        self.lanes = lanes
        # What to do instead, in the words of the caller that knows why torch was chosen; None: the user chose it.
        self.no_shortlist = no_shortlist or "only CTranslate2 has it; use --engine auto or ctranslate2"
        self.step: Step[Any] = _step(model)
        if others:
            if any(_vocab_sizes(other) != _vocab_sizes(model) for other in others):
                raise UserError("these models cannot translate together: their vocabularies have different sizes")
            self.step = EnsembleStep([self.step, *map(_step, others)])

    @property
    def info(self) -> DecoderOnlyInfo:
        """The facts of a decoder-only model."""
        config = self.torch_model.config
        return DecoderOnlyInfo(config.vocab_size, config.max_len, config.special_ids)

    @property
    def torch_model(self) -> Gpt:
        """The decoder-only model."""
        assert isinstance(self.model, Gpt), "only decoder-only models continue prompts"
        return self.model

    def why_not(self, requests: Sequence[Request], settings: SearchSettings) -> str | None:
        if settings.shortlist:
            return f"shortlist = true: {self.no_shortlist}"
        if settings.sampling is not None and any(request.required for request in requests):
            return "required: words can be required of a beam only, not of samples; leave out sampling"
        return self._why_not_parallel(requests, settings) if settings.parallel else None

    def _why_not_parallel(self, requests: Sequence[Request], settings: SearchSettings) -> str | None:
        if self.others or not isinstance(self.model, Seq2Seq):
            return "parallel = true: parallel decoding is for a single model of the family seq2seq; leave it out"
        reasons = (why_not_parallel(request, settings) for request in (None, *requests))
        return next((reason for reason in reasons if reason is not None), None)

    def _seq2seq(self) -> Seq2Seq:
        assert isinstance(self.model, Seq2Seq)
        return self.model

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        settings = self._checked(requests, settings)
        if settings.parallel:
            block_step = ReferenceBlockStep(self._seq2seq())
            return [[decode_in_parallel(block_step, request, settings).hypothesis] for request in requests]
        threads, lanes = torch.get_num_threads(), self._n_lanes(len(requests))
        results = search(self.step, requests, settings, n_rows=self._n_rows(settings), lanes=lanes, callback=callback)
        if lanes > 1:
            torch.set_num_threads(threads)  # lanes set it for their own threads, and so for all later threads
        return with_attention(self.step, requests, results, self.batch_rows) if settings.attention else results

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        settings = self._checked([request], settings)
        if settings.parallel:
            yield self.search([request], settings)[0][0].ids
            return
        active = ActiveRequest(0, request, length_limit_of(self.step, request, settings))
        results: list[list[Hypothesis]] = [[]]
        written: list[int] = []
        callback = SearchCallback(on_step=lambda _, ids: written.append(ids[-1]) if ids else None)
        is_known_early = settings.n_best == 1 if settings.sampling is not None else settings.beam == 1
        n_yielded = 0
        for _ in _in_inference(
            run_batch(self.step, [active], deque(), settings, results, callback if is_known_early else None)
        ):
            if new := written[n_yielded:]:
                n_yielded += len(new)
                yield new
        require_something(results[0], active)
        if new := results[0][0].ids[n_yielded:]:
            yield new

    def _checked(self, requests: Sequence[Request], settings: SearchSettings) -> SearchSettings:
        """The settings to search with, or a UserError."""
        reason = self.why_not(requests, settings)
        if reason is not None:
            raise UserError(reason)
        source, target = _vocab_sizes(self.model)
        check_ids(requests, settings, source_vocab_size=source, target_vocab_size=target)
        if any(request.required for request in requests):
            return replace(settings, beam=max(settings.beam, WIDE_ENOUGH))
        return settings

    def _n_lanes(self, n_requests: int) -> int:
        many = MANY_PROMPTS if isinstance(self.model, Gpt) else MANY_SOURCES
        is_divided = self.step.device.type == "cpu" and n_requests >= many
        return self.lanes or (torch.get_num_threads() if is_divided else 1)

    def _n_rows(self, settings: SearchSettings) -> int:
        """Rows of a batch: twice as many for the beam of an encoder-decoder.

        A smaller part of its step are matrix products, so these need more rows until they are as efficient as they get.
        """
        return self.batch_rows if settings.beam == 1 or isinstance(self.model, Gpt) else 2 * self.batch_rows


def _step(model: EncoderDecoder | Gpt) -> Step[Any]:
    """The fastest step that computes this model."""
    if isinstance(model, Gpt):
        return FastDecoderOnlyStep(model)
    if isinstance(model, Seq2Seq) and supports_fast_step(model.config):
        return FastSeq2SeqStep(model)
    return Seq2SeqStep(model)


def _vocab_sizes(model: EncoderDecoder | Gpt) -> tuple[int, int]:
    """The sizes of the source and target vocabularies; many families have one vocabulary for both."""
    config: Any = model.config
    size = getattr(config, "vocab_size", None)
    return size or config.source_vocab_size, size or config.target_vocab_size


@torch.inference_mode()
def with_attention(
    step: Step[S], requests: Sequence[Request], results: list[list[Hypothesis]], n_rows: int
) -> list[list[Hypothesis]]:
    """Add its cross-attention to each hypothesis: all are fed to the model once more, `n_rows` at a time."""
    flat = [(i, j) for i, row in enumerate(results) for j in range(len(row))]
    flat.sort(key=lambda at: len(requests[at[0]]))
    with_rows = [list(row) for row in results]
    for start in range(0, len(flat), n_rows):
        part = flat[start : start + n_rows]
        ids = [results[i][j].ids for i, j in part]
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
            with_rows[i][j] = replace(results[i][j], attention=attention)
    return with_rows


def _in_inference(steps: Iterator[None]) -> Iterator[None]:
    """Run each step in inference mode, but not what the caller does between two steps."""
    done = object()
    while True:
        with torch.inference_mode():
            if next(steps, done) is done:
                return
        yield
