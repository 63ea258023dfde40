"""A converted model in memory: opened for much work, for one sentence, or for both, each when it is first needed.

Much work is done fastest by one thread for each of several batches. One sentence in float32 is done faster by several
threads together (on two cores 1.8 x). In int8 they would wait for each other longer than they compute; there it is one
thread that does the sentences that come alone: its caches are warm, which makes it a few per cent faster than the first
thread that is free.

The CTranslate2 engine: the field's own fast kernels, for models that map onto them exactly. Imports no torch.

What it adds to `translate_batch`: identical requests are searched once; all requests are on their way before the first
is waited for, the longest first; threads and batches are those that were fastest here (`ct2_speed`, `ct2_copies`).
Nothing here imports NumPy: that would take longer than to translate a sentence.
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

LARGE = 100_000_000  # bytes of weights: of such a model there is one copy at a time, in a server too


class Copy(NamedTuple):
    translator: Any
    inter: int  # batches at a time


class ModelReplicas:
    """Several threads may ask at once. Who works with a copy holds it: it may be dropped here meanwhile."""

    def __init__(self, folder: Path, *, compute: str, device: str, speed: Speed) -> None:
        self._folder, self._compute, self._device, self._speed = folder, compute, device, speed
        self._bulk: Copy | None = None
        self._low_latency: Copy | None = None
        self._loading = threading.Lock()
        self._is_large = (folder / WEIGHTS).stat().st_size > LARGE
        self._small_call, self._together = self._for_small_calls()
        if self._small_call == 0:
            self.choose(1)  # there is only one way: whatever is wrong is told now

    def choose(self, n_requests: int) -> Copy:
        """The copy for a call with so many requests."""
        with self._loading:
            if n_requests <= self._small_call and not (self._bulk and self._is_large) and self._is_free():
                self._low_latency = self._low_latency or self._load(1, self._together)
                return self._low_latency
            if self._is_large:
                self._low_latency = None
            self._bulk = self._bulk or self._load(self._speed.inter, self._speed.intra)
            return self._bulk

    def change(self, speed: Speed) -> None:
        """Share the threads in another way from now on."""
        with self._loading:
            self._speed, self._bulk, self._low_latency = speed, None, None
            self._small_call, self._together = self._for_small_calls()

    def _for_small_calls(self) -> tuple[int, int]:
        """How many requests of a call are few, and the threads that then work together."""
        if self._speed.inter == 1 or self._device != "cpu":
            return 0, 1
        if self._compute != "float32":
            return 1, 1
        together = threads_for_one(self._folder, self._speed.inter * self._speed.intra)
        return together - 1, together

    def _is_free(self) -> bool:
        """Who would wait for a single thread goes to those for much work; all threads together are worth a wait."""
        return self._low_latency is None or self._together > 1 or self._low_latency.translator.num_active_batches == 0

    def _load(self, inter: int, intra: int) -> Copy:
        translator = library().Translator(
            str(self._folder),
            **placed(self._device),
            compute_type=self._compute,
            inter_threads=inter,
            intra_threads=intra,
        )
        return Copy(translator, inter)


Compute = Literal["float32", "int8"]

# With exactly 0, CTranslate2 stops as soon as the best candidate ends, whatever the patience. length^1e-30 is 1.
NO_LENGTH_PENALTY = 1e-30
WORTH_MEASURING = 500  # requests of one call; for fewer, one thread for each of as many batches as cores will do
WORTH_HALVES = 4  # batches; of fewer, the last ones are no small part
FEW_WORDS = 256  # source tokens of a batch with a shortlist: each word adds its candidates for all rows of all beams


class CTranslate2Engine:
    """Searches with a converted model. `scores=False` lets greedy search leave out the softmax; scores are then NaN."""

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
        self._copies = ModelReplicas(converted.folder, compute=compute, device=device, speed=self.speed)
        self._sources = [source_token(number) for number in range(self.info.source_vocab_size)]
        self._targets = [target_token(number) for number in range(self.info.target_vocab_size)]
        self._end = self._sources[self.info.end_id]

    def why_not(self, requests: Sequence[Request], settings: SearchSettings) -> str | None:
        reason = why_not_settings(self._whole(settings), self.info)
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
        settings = self._whole(settings)
        # In a batch, the attention of a beam is wrong (see `_batch`): it is asked for afterwards, unless it ranks.
        later = settings.attention and settings.beam > 1 and settings.coverage_penalty == 0
        found = self._search(requests, replace(settings, attention=False) if later else settings)
        return self._look_again(requests, found) if later else found

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        yield self.search([request], settings)[0][0].ids

    def _require_shortlist(self) -> None:
        from heedful.interop.ctranslate2.shortlist import has_shortlist

        if not has_shortlist(self.converted):
            raise UserError(
                "shortlist = true: this model has none yet. Learn it once, from text of the kind that you translate: "
                f"heedful shortlist {self.converted.model} TEXT"
            )

    def _search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        """Requests with one limit go in one call; the calls are all made before any result is taken."""
        if len(requests) >= WORTH_MEASURING:
            self._settle()
        groups: dict[tuple[int, bool], list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault((self._limit(request, settings), len(request.prefix) > 0), []).append(number)
        copy = self._copies.choose(len(requests))
        kind, size = self._batch(requests, settings, copy.inter)
        results: list[list[Hypothesis]] = [[] for _ in requests]
        waiting = []
        for (limit, _), group in sorted(groups.items(), reverse=True):
            group.sort(key=lambda number: -len(requests[number]))
            for numbers, size_here in _full_then_half(group, requests, size):
                chosen = [requests[number] for number in numbers]
                batch = {"max_batch_size": size_here, "batch_type": kind}
                waiting.append((numbers, chosen, self._submit(chosen, limit, settings, batch, copy)))
        for numbers, chosen, futures in waiting:
            found = [self._hypotheses(future.result(), settings) for future in futures]
            if self._must_score_again(chosen, settings):
                found = self._score_again(chosen, found, settings, copy)
            for number, hypotheses in zip(numbers, found, strict=True):
                results[number] = hypotheses
        return results

    def _submit(
        self, requests: Sequence[Request], limit: int, settings: SearchSettings, batch: dict[str, Any], copy: Copy
    ) -> list[Any]:
        prefixes = [self._target(request.prefix) for request in requests]
        futures: list[Any] = copy.translator.translate_batch(
            [self._source(request) for request in requests],
            target_prefix=prefixes if any(prefixes) else None,
            **batch,
            asynchronous=True,
            max_input_length=0,  # else it would cut the source at 1,024 tokens
            max_decoding_length=limit,
            min_decoding_length=min(settings.min_len, limit),
            use_vmap=settings.shortlist,
            return_end_token=True,
            return_scores=self.scores or settings.beam > 1,
            return_attention=self._looks(settings),
            **_options(settings),
        )
        return futures

    def _hypotheses(self, result: Any, settings: SearchSettings) -> list[Hypothesis]:
        scores = result.scores or [math.nan] * len(result.hypotheses)
        looked = result.attention if self._looks(settings) else [None] * len(result.hypotheses)
        end = target_token(self.info.end_id)
        return [_hypothesis(*parts, settings, end) for parts in zip(result.hypotheses, scores, looked, strict=True)]

    def _must_score_again(self, requests: Sequence[Request], settings: SearchSettings) -> bool:
        """CTranslate2 counts a prefix as certain, and spreads the probability of what is ruled out over the rest."""
        is_narrowed = is_filtered(settings) or settings.shortlist
        return self.scores and (is_narrowed or any(request.prefix for request in requests))

    def _score_again(
        self, requests: Sequence[Request], found: list[list[Hypothesis]], settings: SearchSettings, copy: Copy
    ) -> list[list[Hypothesis]]:
        """The same hypotheses with the sums of the model's own log-probabilities."""
        pairs = [(request, each) for request, several in zip(requests, found, strict=True) for each in several]
        scored = copy.translator.score_batch(
            [self._source(request) for request, _ in pairs],
            [self._target(each.ids) for _, each in pairs],
            max_batch_size=self.speed.batch,
            batch_type="tokens",
            max_input_length=0,
        )
        sums = (
            sum(result.log_probs if each.complete else result.log_probs[:-1])  # the last is the end mark's
            for (_, each), result in zip(pairs, scored, strict=True)
        )
        scored_again = [[_with_score(each, next(sums), settings) for each in several] for several in found]
        return [sorted(several, key=lambda each: -each.normalized_score) for several in scored_again]

    def _look_again(self, requests: Sequence[Request], found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The same hypotheses with where their tokens looked: all are forced once more, in full batches."""
        looked = [[replace(each, attention=[]) for each in several] for several in found]
        groups: dict[int, list[tuple[int, int]]] = {}  # of like lengths: the shorter ones go on to the group's limit
        for i, several in enumerate(found):
            for j, each in enumerate(several):
                if each.ids:
                    groups.setdefault(len(each.ids).bit_length(), []).append((i, j))
        copy = self._copies.choose(sum(map(len, groups.values())))
        waiting = []
        for places in groups.values():
            futures = copy.translator.translate_batch(
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

    def _settle(self) -> None:
        """Measure, if that was never done on this machine, and go on in the fastest way."""
        with self._measuring:
            if self._must_measure:
                self.speed = speed_for(self.converted.folder, self.compute, self.device)
                self._must_measure = False
                self._copies.change(self.speed)

    def _batch(self, requests: Sequence[Request], settings: SearchSettings, inter: int) -> tuple[str, int]:
        """What is counted in a batch, and how many of them it has."""
        if self._looks(settings) and settings.beam > 1:
            # In a batch, CTranslate2 4.8.4 gives a beam's first step the attention of another sentence.
            return "examples", 1
        best = self.speed.batch if settings.beam == 1 else self.speed.beam_batch
        if settings.shortlist and settings.beam > 1:
            best = min(best, FEW_WORDS)
        if inter > 1:
            best = max(1, min(best, -(-sum(map(len, requests)) // inter)))  # leave no worker idle
        return "tokens", best

    def _whole(self, settings: SearchSettings) -> SearchSettings:
        """With the ids that this model must never write."""
        if not self.info.forbidden:
            return settings
        return replace(settings, forbidden=tuple(sorted({*settings.forbidden, *self.info.forbidden})))

    def _limit(self, request: Request, settings: SearchSettings) -> int:
        limit = settings.limit(len(request))
        return limit if self.info.n_positions is None else min(limit, self.info.n_positions)

    def _looks(self, settings: SearchSettings) -> bool:
        return settings.attention or settings.coverage_penalty > 0

    def _source(self, request: Request) -> list[str]:
        return [*(self._sources[number] for number in request.source), self._end]

    def _target(self, ids: Sequence[int]) -> list[str]:
        return [self._targets[number] for number in ids]


def _full_then_half(numbers: list[int], requests: Sequence[Request], size: int) -> list[tuple[list[int], int]]:
    """The shortest requests, a quarter of the work, in batches of half the size: else all but one of the workers would
    wait for the last full one. `numbers` are those of the requests, the longest first."""
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
    """The search in CTranslate2's words. Alone, one hypothesis is ranked here: its score then comes as the bare sum."""
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
    tokens: list[str], found: float, attention: list[list[float]] | None, settings: SearchSettings, end: str
) -> Hypothesis:
    """`found` is CTranslate2's score: of a beam sum / length^alpha + coverage, else the sum."""
    complete = tokens[-1] == end
    ids = [int(token) for token in (tokens[:-1] if complete else tokens)]
    covered = _coverage(attention, settings)
    score = (found - covered) * length_norm(len(tokens), settings) if settings.beam > 1 else found
    rows = attention[: len(ids)] if attention is not None and settings.attention else None
    return Hypothesis(ids, score, score / length_norm(len(tokens), settings) + covered, complete, rows)


def _with_score(hypothesis: Hypothesis, score: float, settings: SearchSettings) -> Hypothesis:
    length = len(hypothesis.ids) + hypothesis.complete
    covered = hypothesis.normalized_score - hypothesis.score / length_norm(length, settings)
    normalized_score = score / length_norm(length, settings) + covered
    return Hypothesis(hypothesis.ids, score, normalized_score, hypothesis.complete, hypothesis.attention)


def _coverage(attention: list[list[float]] | None, settings: SearchSettings) -> float:
    """GNMT's penalty for source tokens that were hardly looked at."""
    if attention is None or settings.coverage_penalty == 0:
        return 0.0
    sums = (sum(column) for column in zip(*attention, strict=True))
    return settings.coverage_penalty * sum(math.log(min(max(each, 1e-9), 1.0)) for each in sums)
