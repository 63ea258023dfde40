"""The CTranslate2 engine of encoder-decoder models. Imports no torch, and no NumPy: that takes longer than a sentence.

Its results are those of the torch engine; `why_not` says what it cannot do. It submits all requests before it waits for
the first result, the longest first, with the threads and batch sizes that are fastest on this machine
(`ctranslate2_tuning`). `ModelReplicas` opens the converted model for bulk work, for single sentences, or for both.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.decoding.engines.ctranslate2_support import is_filtered, why_not_request, why_not_settings
from heedful.decoding.engines.ctranslate2_tuning import Speed, known_speed, speed_for
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request, check_ids
from heedful.decoding.search.settings import SearchSettings, length_norm
from heedful.devices import n_cores
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import Converted
from heedful.interop.ctranslate2.library import WEIGHTS, library, placed, source_token, target_token, threads_for_one

LARGE = 100_000_000  # bytes of weights from which on only one copy of a model is in memory at a time


class Replica(NamedTuple):
    """A model in CTranslate2, opened with a number of threads."""

    translator: Any
    inter: int  # batches at a time


class ModelReplicas:
    """Opens a converted model with the threads that are fastest for a call, when it is first needed.

    Bulk work is fastest with one thread for each of several batches. A single sentence in float32 is faster with all
    threads together (1.8 times on two cores). In int8 threads would wait for each other longer than they compute, so
    that single sentences get one thread of their own, whose caches are warm.

    Several threads may call it. A caller keeps the replica that it works with, which may be dropped here meanwhile.
    """

    def __init__(self, folder: Path, *, compute: str, device: str, speed: Speed) -> None:
        self._folder, self._compute, self._device, self._speed = folder, compute, device, speed
        self._bulk: Replica | None = None
        self._low_latency: Replica | None = None
        self._loading = threading.Lock()
        self._is_large = (folder / WEIGHTS).stat().st_size > LARGE
        self._small_call, self._together = self._for_small_calls()
        if self._small_call == 0:
            self.choose(1)  # there is one replica for all calls: raise its errors now

    def choose(self, n_requests: int) -> Replica:
        """Return the replica for a call with so many requests."""
        with self._loading:
            if n_requests <= self._small_call and not (self._bulk and self._is_large) and self._is_free():
                self._low_latency = self._low_latency or self._load(1, self._together)
                return self._low_latency
            if self._is_large:
                self._low_latency = None
            self._bulk = self._bulk or self._load(self._speed.inter, self._speed.intra)
            return self._bulk

    def change(self, speed: Speed) -> None:
        """Open replicas with other threads from now on."""
        with self._loading:
            self._speed, self._bulk, self._low_latency = speed, None, None
            self._small_call, self._together = self._for_small_calls()

    def _for_small_calls(self) -> tuple[int, int]:
        """Return the most requests of a small call, and the threads that work together on it."""
        if self._speed.inter == 1 or self._device != "cpu":
            return 0, 1
        if self._compute != "float32":
            return 1, 1
        together = threads_for_one(self._folder, self._speed.inter * self._speed.intra)
        return together - 1, together

    def _is_free(self) -> bool:
        """Whether a small call need not wait. It does wait for all threads together, which are worth it."""
        return self._low_latency is None or self._together > 1 or self._low_latency.translator.num_active_batches == 0

    def _load(self, inter: int, intra: int) -> Replica:
        translator = library().Translator(
            str(self._folder),
            **placed(self._device),
            compute_type=self._compute,
            inter_threads=inter,
            intra_threads=intra,
        )
        return Replica(translator, inter)


Compute = Literal["float32", "int8"]

# With exactly 0, CTranslate2 stops when the best candidate ends, whatever the patience is. length^1e-30 is 1.
NO_LENGTH_PENALTY = 1e-30
WORTH_MEASURING = 500  # requests of a call from which on measuring pays; for fewer, there is one batch for each core
WORTH_HALVES = 4  # batches from which on the last ones are made smaller
SHORTLIST_BATCH = 256  # source tokens of a beam's batch with a shortlist: each word adds candidates for all rows


class CTranslate2Engine:
    """Searches with a converted model. With `scores=False`, greedy search computes no softmax; scores are then NaN."""

    name = "ctranslate2"

    def __init__(
        self,
        converted: Converted,
        *,
        compute: Compute = "float32",
        device: str = "cpu",
        speed: Speed | None = None,
        scores: bool = True,
    ) -> None:
        self.converted = converted
        self.info = converted.info
        self.compute = compute
        self.device = device
        known = speed or known_speed(converted.folder, compute, device)
        self.speed = known or Speed(inter=n_cores() if device == "cpu" else 1)
        self._must_measure = known is None
        self._measuring = threading.Lock()
        self.scores = scores
        self._replicas = ModelReplicas(converted.folder, compute=compute, device=device, speed=self.speed)
        self._sources = [source_token(number) for number in range(self.info.source_vocab_size)]
        self._targets = [target_token(number) for number in range(self.info.target_vocab_size)]
        self._end = self._sources[self.info.end_id]

    def why_not(self, requests: Sequence[Request], settings: SearchSettings) -> str | None:
        reason = why_not_settings(self._with_forbidden(settings), self.info)
        if reason is not None:
            return reason
        reasons = (why_not_request(request, settings, self.info) for request in requests)
        return next((reason for reason in reasons if reason is not None), None)

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        reason = self.why_not(requests, settings)
        if reason is not None:
            raise UserError(f"CTranslate2 cannot do this: {reason}. Use --engine torch")
        sizes = self.info
        check_ids(
            requests,
            settings,
            source_vocab_size=sizes.source_vocab_size,
            target_vocab_size=sizes.target_vocab_size,
        )
        if settings.shortlist:
            self._require_shortlist()
        settings = self._with_forbidden(settings)
        # In a batch, the attention of a beam is wrong (see `_batch`): it is computed afterwards, unless scores need it.
        is_later = settings.attention and settings.beam > 1 and settings.coverage_penalty == 0
        results = self._search(requests, replace(settings, attention=False) if is_later else settings)
        return self._add_attention(requests, results) if is_later else results

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        yield self.search([request], settings)[0][0].ids

    def _require_shortlist(self) -> None:
        from heedful.interop.ctranslate2.shortlist import has_shortlist

        if not has_shortlist(self.converted):
            raise UserError(
                "shortlist = true: this model has no shortlist yet. Learn one from text like yours: "
                f"heedful shortlist {self.converted.model} TEXT"
            )

    def _search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        """Submit requests with the same limit together, and all of them before waiting for any result."""
        if len(requests) >= WORTH_MEASURING:
            self._tune()
        groups: dict[tuple[int, bool], list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault((self._limit(request, settings), len(request.prefix) > 0), []).append(number)
        replica = self._replicas.choose(len(requests))
        kind, size = self._batch(requests, settings, replica.inter)
        results: list[list[Hypothesis]] = [[] for _ in requests]
        waiting = []
        for (limit, _), group in sorted(groups.items(), reverse=True):
            group.sort(key=lambda number: -len(requests[number]))
            for numbers, size_here in _full_then_half(group, requests, size):
                chosen = [requests[number] for number in numbers]
                batch = {"max_batch_size": size_here, "batch_type": kind}
                waiting.append((numbers, chosen, self._submit(chosen, limit, settings, batch, replica)))
        for numbers, chosen, futures in waiting:
            hypotheses = [self._hypotheses(future.result(), settings) for future in futures]
            if self._must_rescore(chosen, settings):
                hypotheses = self._rescore(chosen, hypotheses, settings, replica)
            for number, best in zip(numbers, hypotheses, strict=True):
                results[number] = best
        return results

    def _submit(
        self, requests: Sequence[Request], limit: int, settings: SearchSettings, batch: dict[str, Any], replica: Replica
    ) -> list[Any]:
        prefixes = [self._target(request.prefix) for request in requests]
        futures: list[Any] = replica.translator.translate_batch(
            [self._source(request) for request in requests],
            target_prefix=prefixes if any(prefixes) else None,
            **batch,
            asynchronous=True,
            max_input_length=0,  # by default it cuts sources at 1,024 tokens
            max_decoding_length=limit,
            min_decoding_length=min(settings.min_len, limit),
            use_vmap=settings.shortlist,
            return_end_token=True,
            return_scores=self.scores or settings.beam > 1,
            return_attention=self._needs_attention(settings),
            **_options(settings),
        )
        return futures

    def _hypotheses(self, result: Any, settings: SearchSettings) -> list[Hypothesis]:
        scores = result.scores or [math.nan] * len(result.hypotheses)
        attention = result.attention if self._needs_attention(settings) else [None] * len(result.hypotheses)
        end = target_token(self.info.end_id)
        return [_hypothesis(*parts, settings, end) for parts in zip(result.hypotheses, scores, attention, strict=True)]

    def _must_rescore(self, requests: Sequence[Request], settings: SearchSettings) -> bool:
        """Whether scores must be computed anew.

        CTranslate2 gives a prefix the probability 1, and that of banned tokens to the other tokens.
        """
        is_narrowed = is_filtered(settings) or settings.shortlist
        return self.scores and (is_narrowed or any(request.prefix for request in requests))

    def _rescore(
        self, requests: Sequence[Request], found: list[list[Hypothesis]], settings: SearchSettings, replica: Replica
    ) -> list[list[Hypothesis]]:
        """Replace the scores of hypotheses by the sums of the model's own log-probabilities."""
        pairs = [(request, each) for request, several in zip(requests, found, strict=True) for each in several]
        scored = replica.translator.score_batch(
            [self._source(request) for request, _ in pairs],
            [self._target(each.ids) for _, each in pairs],
            max_batch_size=self.speed.batch,
            batch_type="tokens",
            max_input_length=0,
        )
        sums = (
            sum(result.log_probs if each.complete else result.log_probs[:-1])  # the last is that of the end
            for (_, each), result in zip(pairs, scored, strict=True)
        )
        scored_again = [[_with_score(each, next(sums), settings) for each in several] for several in found]
        return [sorted(several, key=lambda each: -each.normalized_score) for several in scored_again]

    def _add_attention(self, requests: Sequence[Request], found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Add their attention to hypotheses: all are fed to the model once more, as prefixes, in full batches."""
        looked = [[replace(each, attention=[]) for each in several] for several in found]
        groups: dict[
            int, list[tuple[int, int]]
        ] = {}  # of similar lengths, since shorter ones continue to the limit of the group
        for i, several in enumerate(found):
            for j, each in enumerate(several):
                if each.ids:
                    groups.setdefault(len(each.ids).bit_length(), []).append((i, j))
        replica = self._replicas.choose(sum(map(len, groups.values())))
        waiting = []
        for places in groups.values():
            futures = replica.translator.translate_batch(
                [self._source(requests[i]) for i, _ in places],
                target_prefix=[self._target(found[i][j].ids) for i, j in places],
                max_batch_size=self.speed.batch,
                batch_type="tokens",
                asynchronous=True,
                max_input_length=0,
                max_decoding_length=max(len(found[i][j].ids) for i, j in places),
                beam_size=1,
                return_attention=True,
            )
            waiting.append((places, futures))
        for places, futures in waiting:
            for (i, j), future in zip(places, futures, strict=True):
                rows = future.result().attention[0][: len(found[i][j].ids)]
                looked[i][j] = replace(found[i][j], attention=rows)
        return looked

    def _tune(self) -> None:
        """Measure the fastest threads and batches, if that was never done on this machine, and use them."""
        with self._measuring:
            if self._must_measure:
                self.speed = speed_for(self.converted.folder, self.compute, self.device)
                self._must_measure = False
                self._replicas.change(self.speed)

    def _batch(self, requests: Sequence[Request], settings: SearchSettings, inter: int) -> tuple[str, int]:
        """Return the unit of the batch size ("tokens" or "examples"), and the batch size."""
        if self._needs_attention(settings) and settings.beam > 1:
            # In a batch, CTranslate2 4.8.4 gives a beam's first step the attention of another sentence.
            return "examples", 1
        best = self.speed.batch if settings.beam == 1 else self.speed.beam_batch
        if settings.shortlist and settings.beam > 1:
            best = min(best, SHORTLIST_BATCH)
        if inter > 1:
            best = max(1, min(best, -(-sum(map(len, requests)) // inter)))  # leave no thread idle
        return "tokens", best

    def _with_forbidden(self, settings: SearchSettings) -> SearchSettings:
        """Return the settings with the ids that this model must never generate."""
        if not self.info.forbidden:
            return settings
        return replace(settings, forbidden=tuple(sorted({*settings.forbidden, *self.info.forbidden})))

    def _limit(self, request: Request, settings: SearchSettings) -> int:
        limit = settings.limit(len(request))
        return limit if self.info.n_positions is None else min(limit, self.info.n_positions)

    def _needs_attention(self, settings: SearchSettings) -> bool:
        return settings.attention or settings.coverage_penalty > 0

    def _source(self, request: Request) -> list[str]:
        return [*(self._sources[number] for number in request.source), self._end]

    def _target(self, ids: Sequence[int]) -> list[str]:
        return [self._targets[number] for number in ids]


def _full_then_half(numbers: list[int], requests: Sequence[Request], size: int) -> list[tuple[list[int], int]]:
    """Divide requests, the longest first, into batches; the shortest quarter of the work gets half the batch size.

    Otherwise all threads but one would wait for the last full batch.
    """
    lengths = [len(requests[number]) for number in numbers]
    if sum(lengths) < WORTH_HALVES * size:
        return [(numbers, size)]
    rest, first = sum(lengths) / 4, len(numbers)
    while rest > 0:
        first -= 1
        rest -= lengths[first]
    parts = [(numbers[:first], size), (numbers[first:], max(1, size // 2))]
    return [(part, size) for part, size in parts if part]


def _options(settings: SearchSettings) -> dict[str, Any]:
    """Return the options of translate_batch. Greedy search gets no length penalty, so that its score is the sum."""
    options: dict[str, Any] = {
        "num_hypotheses": settings.n_best,
        "beam_size": settings.beam,
        "length_penalty": 0.0,
        "repetition_penalty": settings.repetition_penalty,
        "no_repeat_ngram_size": settings.no_repeat_ngram,
        "suppress_sequences": [[target_token(number)] for number in settings.forbidden] or None,
    }
    if settings.beam > 1:
        enough = max(settings.n_best, round(settings.beam * settings.patience))
        options["patience"] = enough / settings.beam
        options["length_penalty"] = settings.length_penalty or NO_LENGTH_PENALTY
        options["coverage_penalty"] = settings.coverage_penalty
    return options


def _hypothesis(
    tokens: list[str], ct2_score: float, attention: list[list[float]] | None, settings: SearchSettings, end: str
) -> Hypothesis:
    """Make a hypothesis; CTranslate2's score of a beam is sum / length^alpha + coverage, of greedy search the sum."""
    complete = tokens[-1] == end
    ids = [int(token) for token in (tokens[:-1] if complete else tokens)]
    covered = _coverage(attention, settings)
    score = (ct2_score - covered) * length_norm(len(tokens), settings) if settings.beam > 1 else ct2_score
    rows = attention[: len(ids)] if attention is not None and settings.attention else None
    return Hypothesis(ids, score, score / length_norm(len(tokens), settings) + covered, complete, rows)


def _with_score(hypothesis: Hypothesis, score: float, settings: SearchSettings) -> Hypothesis:
    length = len(hypothesis.ids) + hypothesis.complete
    covered = hypothesis.normalized_score - hypothesis.score / length_norm(length, settings)
    normalized_score = score / length_norm(length, settings) + covered
    return Hypothesis(hypothesis.ids, score, normalized_score, hypothesis.complete, hypothesis.attention)


def _coverage(attention: list[list[float]] | None, settings: SearchSettings) -> float:
    """Return GNMT's penalty for source tokens with little attention."""
    if attention is None or settings.coverage_penalty == 0:
        return 0.0
    sums = (sum(column) for column in zip(*attention, strict=True))
    return settings.coverage_penalty * sum(math.log(min(max(each, 1e-9), 1.0)) for each in sums)
