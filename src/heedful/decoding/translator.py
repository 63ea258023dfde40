"""Translate texts: the class that programs use.

    translator = Translator.load("runs/en-de")
    translator.translate("A dog runs.")             # str -> str; list -> list, in order
    translator.search(texts, beam=5, n_best=3)      # Translation objects, with scores and tokens
    for text in translator.stream(lines): ...       # any number of texts, in bounded memory

A Translator does not change after it was loaded, so several threads may use it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args, overload

from heedful.decoding.decoding_stats import TRANSLATIONS, DecodingStats
from heedful.decoding.engines.auto import open_engine, open_tokenizers
from heedful.decoding.engines.base import Engine
from heedful.decoding.input_text import BLOCK_TEXTS, BadText, in_blocks
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings, search_settings
from heedful.decoding.segmentation import Long, SegmentedText, Segmenter
from heedful.decoding.text_constraints import NO_CONSTRAINTS, TextConstraints, TokenConstraints, pop_text_constraints
from heedful.decoding.translation import BlockResult, Translation, combine_segments, stats_of
from heedful.decoding.worker_pool import BatchExecutor, InlineExecutor, LoadSpec, Workers, in_order
from heedful.errors import UserError, invalid_choice, warn
from heedful.models.model_info import (
    ENCODER_DECODERS,
    SourceLimit,
    builtin_model,
    find_model_folder,
    read_source_limit,
    require_family,
    source_language,
)
from heedful.text import Tokenizer, Tokenizers
from heedful.text.tokenizer import decode_generated

if TYPE_CHECKING:
    from heedful.models.encoder_decoder import EncoderDecoder

CACHED_NUMBERS = 1_000_000  # ids and attention weights that a cache holds: some 10,000 sentences, some 10 MB

Key = tuple[tuple[int, ...], tuple[int, ...], tuple[int, int] | None]  # source, prefix, sample key
Search = Callable[[Sequence[Request]], list[list[Hypothesis]]]


class Translator:
    """A model that is ready to translate texts of any length.

    >>> translator = Translator.load("en-fr")  # built in; a run or a model folder: Translator.load("runs/en-de")
    >>> translator
    Translator('en-fr', engine='auto')
    >>> translator.translate(["Thank you.", ""], beam=1)
    ['Merci.', '']
    """

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        *,
        reach: SourceLimit,
        long: Long = "split",
        limit: int | None = None,
        language: str = "en",
        prefix: str = "",
        load_spec: LoadSpec | None = None,
    ) -> None:
        if long not in get_args(Long):
            raise invalid_choice("long", long, get_args(Long))
        self.engine = engine
        self.tokenizers = tokenizers
        self.load_spec = load_spec  # None: the model is not from a folder
        self.output_noun = TRANSLATIONS  # how warnings name what the model writes
        self.segmenter = Segmenter(tokenizers.source, reach, long=long, limit=limit, language=language, prefix=prefix)

    def __repr__(self) -> str:
        model = "a model in memory" if self.load_spec is None else repr(self.load_spec.path)
        return f"Translator({model}, engine={self.engine.name!r})"

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path] | None = None,
        *,
        engine: str = "auto",
        compute: str = "float32",
        device: str = "cpu",
        long: Long = "split",
        limit: int | None = None,
        language: str | None = None,
        prefix: str = "",
    ) -> "Translator":
        """Load the model of a run or a model folder; without a path, the built-in model from English to French.

        Several paths of models with the same vocabulary make an ensemble. `long` says how to treat a line of more than
        `limit` source tokens (by default as many as the model takes): "split" it into sentences, "extract" the most
        important ones, "truncate" it, raise an "error", or translate it "whole". `language` is that of the
        abbreviations that end no sentence, by default the source language of the model's card, or English. `prefix`
        stands before each text, as T5 is told its task. The other options are those of `open_engine`.
        """
        paths = [builtin_model()] if path is None else [path] if isinstance(path, str | Path) else list(path)
        if not paths:
            raise UserError("Translator.load: the list of models is empty; name a run or a model folder")
        first, *others = map(str, paths)
        return cls.open(
            LoadSpec(first, engine, compute, device, long, limit, language, prefix=prefix, others=tuple(others))
        )

    @classmethod
    def open(cls, spec: LoadSpec, *, threads: int | None = None) -> "Translator":
        """Load a model as `load` does, from one value; `threads` is that of `open_engine`."""
        folder = find_model_folder(spec.path)
        require_family(folder, *ENCODER_DECODERS)
        others = [find_model_folder(other) for other in spec.others]
        reach = _shortest([read_source_limit(each) for each in (folder, *others)])
        engine = open_engine(
            folder,
            others=others,
            engine=spec.engine,
            compute=spec.compute,
            device=spec.device,
            threads=threads,
            scores=spec.scores,
        )
        tokenizers = open_tokenizers(folder, engine)
        if tokenizers is None:
            raise UserError(f"{folder}: has no tokenizers, so it can translate ids only, not text")
        return cls(
            engine,
            tokenizers,
            reach=reach,
            long=spec.long,
            limit=spec.limit,
            language=spec.language or source_language(folder) or "en",
            prefix=spec.prefix,
            load_spec=spec,
        )

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...

    @overload
    def translate(self, texts: Iterable[str], **options: Any) -> list[str]: ...

    def translate(self, texts: str | Iterable[str], **options: Any) -> str | list[str]:
        """Return the best translation of a text, or of each text.

        Options are the fields of SearchSettings, and three that are given as text instead of ids: `target_prefix` (the
        beginning of the translation, or a list with one for each text), `required` and `forbidden` (lists of words).
        """
        best = [translations[0].text for translations in self._blocks(texts, options)]
        return best[0] if isinstance(texts, str) else best

    @overload
    def search(self, texts: str, **options: Any) -> list[Translation]: ...

    @overload
    def search(self, texts: Iterable[str], **options: Any) -> list[list[Translation]]: ...

    def search(self, texts: str | Iterable[str], **options: Any) -> list[Translation] | list[list[Translation]]:
        """Return the `n_best` translations of a text, or of each text, best first; options as in `translate`."""
        results = list(self._blocks(texts, options))
        return results[0] if isinstance(texts, str) else results

    def stream(
        self,
        texts: Iterable[str],
        *,
        block: int = BLOCK_TEXTS,
        workers: int | None = None,
        devices: Sequence[str] = (),
        **options: Any,
    ) -> Iterator[str]:
        """Yield the best translation of each text, in order; `block` texts are read and translated at a time.

        `workers` processes share the work; by default there is one for each of the `devices`, or none. Other options
        as in `translate`.
        """
        search_settings(pop_text_constraints(options)[1])  # raise errors now, not when the first result is requested
        n_workers = max(1, len(devices)) if workers is None else workers
        if block < 1:
            raise UserError(f"block = {block}: must be at least 1")
        if n_workers < 1:
            raise UserError(f"workers = {workers}: must be at least 1")
        if (n_workers > 1 or devices) and self.load_spec is None:
            raise UserError("workers: this Translator was not loaded from a folder, so no other process can load it")
        results = self._blocks(texts, options, block=block, n_workers=n_workers, devices=devices)
        return (translations[0].text for translations in results)

    def translate_block(
        self,
        texts: Sequence[str],
        settings: SearchSettings,
        *,
        start: int = 0,
        constraints: TextConstraints = NO_CONSTRAINTS,
        cache: "TranslationCache | None" = None,
        should_stop: Callable[[int], bool] | None = None,
        on_partial: Mapping[int, Callable[[str], None]] = MappingProxyType({}),
    ) -> BlockResult[list[Translation]]:
        """Translate one block of texts; `start` is the index of its first text among all, `cache` has earlier results.

        `should_stop` is called with the index of a text in the block: if it is true, the search for that text ends, and
        it gets no translation. `on_partial` has, by index, a function that is called with the translation of that text
        so far. With the torch engine, both are called after every step of the search. With CTranslate2 a search cannot
        be stopped, and partial translations are those of the first segments of a longer text.
        """
        try:
            plans, stats = self.segmenter.segment(texts)
        except BadText as error:
            raise BadText(start + error.number, error.what) from None
        token_constraints = TokenConstraints(constraints, self.tokenizers.target)
        is_sampled = settings.sampling is not None
        requests = [
            token_constraints.requests(plan, number, is_sampled=is_sampled) for number, plan in enumerate(plans, start)
        ]
        block = _BlockSearch(plans, requests, self.tokenizers.target, should_stop, on_partial)
        results = block.search(self.engine, settings, TranslationCache() if cache is None else cache)
        translations = [
            combine_segments(plan, hypotheses, self.tokenizers, n_best=settings.n_best) if all(hypotheses) else []
            for plan, hypotheses in zip(plans, results, strict=True)
        ]
        return BlockResult(translations, stats + stats_of(translations, results, self.segmenter.reach, start=start))

    def inline_executor(
        self, settings: SearchSettings, constraints: TextConstraints = NO_CONSTRAINTS
    ) -> InlineExecutor[list[Translation]]:
        """Return an executor that translates blocks in this process, each repeated text once."""
        cache = TranslationCache()
        return InlineExecutor(
            lambda texts, start: self.translate_block(
                texts, settings, start=start, constraints=constraints, cache=cache
            )
        )

    def _blocks(
        self,
        texts: str | Iterable[str],
        options: dict[str, Any],
        *,
        block: int = BLOCK_TEXTS,
        n_workers: int = 1,
        devices: Sequence[str] = (),
    ) -> Iterator[list[Translation]]:
        if not isinstance(texts, Iterable):
            raise UserError(f"translate: expected a text or an iterable of texts, found {texts!r}")
        constraints, search_options = pop_text_constraints(options)
        settings = search_settings(search_options)
        blocks = in_blocks([texts] if isinstance(texts, str) else texts, n_texts=block)
        stats = DecodingStats()
        with contextlib.ExitStack() as stack:
            executor: BatchExecutor[list[Translation]] = self.inline_executor(settings, constraints)
            if n_workers > 1 or devices:
                assert self.load_spec is not None
                executor = stack.enter_context(
                    Workers(self.load_spec, settings, n_workers, constraints, devices=devices)
                )
            for result in in_order(blocks, executor):
                stats += result.stats
                yield from result.outputs
        for words in stats.warnings(written=self.output_noun):
            warn(words)


def _shortest(limits: Sequence[SourceLimit]) -> SourceLimit:
    """Return the strictest of several models' limits, which holds if they translate together."""
    max_len = min(each.max_len for each in limits)
    return SourceLimit(max_len, is_hard=any(each.is_hard for each in limits if each.max_len == max_len))


def key_of(request: Request) -> Key:
    """Return what distinguishes the requests of one call; everything else is the same for all of its texts."""
    return tuple(request.source), tuple(request.prefix), request.sample_key


class TranslationCache:
    """Results of earlier blocks with the same settings, so that a repeated line is not searched for again.

    It holds at most about `size` numbers, and drops what was not needed for longest.
    """

    def __init__(self, size: int = CACHED_NUMBERS) -> None:
        self._size = size
        self._kept: dict[Key, tuple[list[Hypothesis], int]] = {}  # with its size; the most recently used is last
        self._used = 0

    def find(self, requests: Sequence[Request], search: Search) -> list[list[Hypothesis]]:
        """Return the results of all requests, in order; `search` is called once, for the distinct ones not in it."""
        keys = list(map(key_of, requests))
        results = {key: self._kept[key][0] for key in keys if key in self._kept}
        unknown = {key: request for key, request in zip(keys, requests, strict=True) if key not in results}
        if unknown:
            results |= zip(unknown, search(list(unknown.values())), strict=True)
        for key in dict.fromkeys(keys):
            self._keep(key, results[key])
        return [results[key] for key in keys]

    def _keep(self, key: Key, hypotheses: list[Hypothesis]) -> None:
        _, size = self._kept.pop(key, ([], 0))
        self._used -= size
        if not hypotheses:  # the search was stopped
            return
        size = len(key[0]) + sum(map(_size, hypotheses))
        self._kept[key] = (hypotheses, size)
        self._used += size
        while self._used > self._size:
            oldest = next(iter(self._kept))
            self._used -= self._kept.pop(oldest)[1]


def _size(hypothesis: Hypothesis) -> int:
    rows = hypothesis.attention
    return len(hypothesis.ids) + (len(rows) * len(rows[0]) if rows else 0)


class _BlockSearch:
    """The search for the segments of a block of texts: identical segments once, with partial results on the way.

    The segments of a text in `on_partial` are searched in turns of one, two, four and so on: with every engine, its
    beginning is known early, and yet there are few searches.
    """

    def __init__(
        self,
        plans: Sequence[SegmentedText],
        requests: Sequence[Sequence[Request]],
        tokenizer: Tokenizer,
        should_stop: Callable[[int], bool] | None,
        on_partial: Mapping[int, Callable[[str], None]],
    ) -> None:
        self._plans, self._requests, self._tokenizer = plans, requests, tokenizer
        self._should_stop, self._on_partial = should_stop, on_partial
        self._owners: dict[Key, list[tuple[int, int]]] = {}  # (index of a text, index of its segment)
        for index, segments in enumerate(requests):
            for segment, request in enumerate(segments):
                self._owners.setdefault(key_of(request), []).append((index, segment))
        self._partial: dict[int, list[str]] = {index: [] for index in on_partial}  # known segments, up to a missing one

    def search(self, engine: Engine, settings: SearchSettings, cache: TranslationCache) -> list[list[list[Hypothesis]]]:
        """Return, for each segment of each text, the n best hypotheses; none for a text that was stopped."""
        results: dict[Key, list[Hypothesis]] = {}
        for turn in self._turns():
            requests = [request for request in turn if not self._is_stopped(request)]
            hypotheses = cache.find(requests, lambda distinct: self._search(engine, distinct, settings))
            results |= zip(map(key_of, requests), hypotheses, strict=True)
            self._report_segments(results)
        return [
            [[] if self._is_stopped_text(index) else results.get(key_of(request), []) for request in segments]
            for index, segments in enumerate(self._requests)
        ]

    def _turns(self) -> list[list[Request]]:
        """Return the distinct requests, in the order of the searches."""
        turns: dict[int, list[Request]] = {}
        for owners in self._owners.values():
            turn = min((segment + 1).bit_length() if index in self._on_partial else 1 for index, segment in owners)
            index, segment = owners[0]
            turns.setdefault(turn, []).append(self._requests[index][segment])
        return [requests for _, requests in sorted(turns.items())]

    def _search(self, engine: Engine, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        if self._should_stop is None and not self._on_partial:
            return engine.search(requests, settings)
        callback = SearchCallback(
            on_step=(lambda index, ids: self._report_step(requests[index], ids)) if self._on_partial else None,
            should_stop=lambda index: self._is_stopped(requests[index]),
        )
        return engine.search(requests, settings, callback=callback)

    def _is_stopped_text(self, index: int) -> bool:
        return self._should_stop is not None and self._should_stop(index)

    def _is_stopped(self, request: Request) -> bool:
        """Whether all texts with this segment are stopped."""
        return self._should_stop is not None and all(
            self._should_stop(index) for index, _ in self._owners[key_of(request)]
        )

    def _report_step(self, request: Request, ids: list[int]) -> None:
        """Report a segment that is being written, for texts whose segments before it are known."""
        for index, segment in self._owners[key_of(request)]:
            if index in self._on_partial and segment == len(self._partial[index]):
                self._report(index, [*self._partial[index], decode_generated(self._tokenizer, ids)])

    def _report_segments(self, results: Mapping[Key, Sequence[Hypothesis]]) -> None:
        """Report the segments that a turn found. A complete text is not reported: its translation follows."""
        for index, texts in self._partial.items():
            requests, n_before = self._requests[index], len(texts)
            while len(texts) < len(requests) and (best := results.get(key_of(requests[len(texts)]))):
                texts.append(decode_generated(self._tokenizer, best[0].ids))
            if n_before < len(texts) < len(requests):
                self._report(index, texts)

    def _report(self, index: int, texts: Sequence[str]) -> None:
        plan, n = self._plans[index], len(texts)
        self._on_partial[index](SegmentedText(plan.segments[:n], [*plan.gaps[:n], ""]).join(texts))


def translate_greedily(model: "EncoderDecoder", tokenizers: Tokenizers, texts: Sequence[str]) -> list[str]:
    """Translate texts by greedy search with a model in torch, as validation does."""
    from heedful.decoding.engines.torch_engine import TorchEngine  # imports torch, which a Translator may not need

    requests = [Request(ids) for ids in tokenizers.source.encode_batch(texts)]
    results = TorchEngine(model).search(requests, SearchSettings(beam=1))
    return tokenizers.target.decode_batch([best[0].ids for best in results])
