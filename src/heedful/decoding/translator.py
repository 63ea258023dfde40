"""What was found for earlier blocks of one text: a line that comes again, however far below, is not searched for again.

Menus, subtitles and logs repeat themselves. Memory is bounded: what was not needed for longest is forgotten first.

Texts in, translations out: the one class that programs use.

    translator = Translator.load("runs/en-de")
    translator.translate("A dog runs.")             # str -> str; list -> list, order kept
    translator.search(texts, beam=5, n_best=3)      # Translation objects
    for text in translator.stream(lines): ...       # any number, in bounded memory

It holds nothing that changes, so several threads may use one at a time.

Texts in, texts out, greedily: what validation and the demo need.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args, overload

from heedful.decoding.engines.auto import open_engine, open_tokenizers
from heedful.decoding.engines.base import Engine
from heedful.decoding.input_text import BLOCK_TEXTS, BadText, in_blocks
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings, search_settings
from heedful.decoding.segmentation import TRANSLATIONS, DecodingStats, Long, SegmentedText, Segmenter
from heedful.decoding.text_constraints import NO_CONSTRAINTS, TextConstraints, TokenConstraints, pop_text_constraints
from heedful.decoding.translation import BlockResult, Translation, put_together, tally_of
from heedful.decoding.worker_pool import BatchExecutor, InlineExecutor, LoadSpec, Workers, in_order
from heedful.errors import UserError, invalid_choice, warn
from heedful.models.model_info import (
    ENCODER_DECODERS,
    SourceLimit,
    find_model_folder,
    read_source_limit,
    require_family,
    source_language,
)
from heedful.text import Tokenizer, Tokenizers
from heedful.text.tokenizer import decode_generated

if TYPE_CHECKING:
    from heedful.models.encoder_decoder import EncoderDecoder

MOST_NUMBERS = 1_000_000  # ids and attention weights that are kept: some ten thousands of sentences, some ten megabytes

Key = tuple[tuple[int, ...], tuple[int, ...], tuple[int, int] | None]  # source and prefix; if sampled, the sample key
Search = Callable[[Sequence[Request]], list[list[Hypothesis]]]


def key_of(request: Request) -> Key:
    """What tells the requests of one call apart: everything else is the same for all of its texts."""
    return tuple(request.source), tuple(request.prefix), request.sample_key


class TranslationCache:
    """For one search with one wording."""

    def __init__(self, most_numbers: int = MOST_NUMBERS) -> None:
        self._most = most_numbers
        self._kept: dict[Key, tuple[list[Hypothesis], int]] = {}  # the one that was needed last stands last
        self._numbers = 0

    def find(self, requests: Sequence[Request], search: Search) -> list[list[Hypothesis]]:
        """What is known, and what `search` finds for the rest, in the order of the requests."""
        keys = list(map(key_of, requests))
        found = {key: self._kept[key][0] for key in keys if key in self._kept}
        unknown = {key: request for key, request in zip(keys, requests, strict=True) if key not in found}
        if unknown:
            found |= zip(unknown, search(list(unknown.values())), strict=True)
        for key in dict.fromkeys(keys):
            self._keep(key, found[key])
        return [found[key] for key in keys]

    def _keep(self, key: Key, hypotheses: list[Hypothesis]) -> None:
        _, size = self._kept.pop(key, ([], 0))
        if not hypotheses:  # the search was stopped
            return
        self._numbers -= size
        size = len(key[0]) + sum(map(_size, hypotheses))
        self._kept[key] = (hypotheses, size)
        self._numbers += size
        while self._numbers > self._most:
            oldest = next(iter(self._kept))
            self._numbers -= self._kept.pop(oldest)[1]


def _size(hypothesis: Hypothesis) -> int:
    rows = hypothesis.attention
    return len(hypothesis.ids) + (len(rows) * len(rows[0]) if rows else 0)


class Translator:
    """A model, ready to translate."""

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
        opening: LoadSpec | None = None,
    ) -> None:
        if long not in get_args(Long):
            raise invalid_choice("long", long, get_args(Long))
        self.engine = engine
        self.tokenizers = tokenizers
        self.opening = opening
        self.written = TRANSLATIONS  # what warnings call that which is written
        self.planner = Segmenter(tokenizers.source, reach, long=long, limit=limit, language=language, prefix=prefix)

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        *,
        engine: str = "auto",
        compute: str = "float32",
        device: str = "cpu",
        long: Long = "split",
        limit: int | None = None,
        language: str | None = None,
        prefix: str = "",
    ) -> "Translator":
        """The model of a run or a model folder; several, if they have one vocabulary, translate together (an ensemble).

        `long` says what becomes of a line of more than `limit` source tokens, by default as many as the model takes;
        `language` whose abbreviations are known where a line is split into sentences, by default the source language of
        the model's card, else English; `prefix` goes to the model before each text, as T5 is told what to do. The rest
        is `open_engine`'s.
        """
        paths = [path] if isinstance(path, str | Path) else list(path)
        if not paths:
            raise UserError("Translator.load: the list of models is empty; name a run or a model folder")
        first, *others = paths
        more = tuple(map(str, others))
        return cls.open(
            LoadSpec(str(first), engine, compute, device, long, limit, language, prefix=prefix, others=more)
        )

    @classmethod
    def open(cls, opening: LoadSpec, *, threads: int | None = None) -> "Translator":
        """What `load` does, from one value; `threads` for the engine, by default its own choice."""
        folder = find_model_folder(opening.path)
        require_family(folder, *ENCODER_DECODERS)
        others = [find_model_folder(other) for other in opening.others]
        reach = _shortest([read_source_limit(each) for each in (folder, *others)])
        engine = open_engine(
            folder,
            others=others,
            engine=opening.engine,
            compute=opening.compute,
            device=opening.device,
            threads=threads,
            scores=opening.scores,
        )
        tokenizers = open_tokenizers(folder, engine)
        if tokenizers is None:
            raise UserError(f"{folder}: has no tokenizers, so it can translate ids only, not text")
        return cls(
            engine,
            tokenizers,
            reach=reach,
            long=opening.long,
            limit=opening.limit,
            language=opening.language or source_language(folder) or "en",
            prefix=opening.prefix,
            opening=opening,
        )

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...

    @overload
    def translate(self, texts: Iterable[str], **options: Any) -> list[str]: ...

    def translate(self, texts: str | Iterable[str], **options: Any) -> str | list[str]:
        """The best translation of each text, in their order; the options are the fields of SearchSettings, and texts:
        `target_prefix` (what all begin with, or a list with one for each), `required` and `forbidden` (lists of words).
        """
        found = list(self._blocks(texts, options))
        best = [one[0].text for one in found]
        return best[0] if isinstance(texts, str) else best

    @overload
    def search(self, texts: str, **options: Any) -> list[Translation]: ...

    @overload
    def search(self, texts: Iterable[str], **options: Any) -> list[list[Translation]]: ...

    def search(self, texts: str | Iterable[str], **options: Any) -> list[Translation] | list[list[Translation]]:
        """The `n_best` translations of each text, best first, with scores and tokens; options as in `translate`."""
        found = list(self._blocks(texts, options))
        return found[0] if isinstance(texts, str) else found

    def stream(
        self,
        texts: Iterable[str],
        *,
        block: int = BLOCK_TEXTS,
        workers: int | None = None,
        devices: Sequence[str] = (),
        **options: Any,
    ) -> Iterator[str]:
        """Translations one by one, in order; texts are read block by block, and `workers` processes share the work, by
        default one for each of the `devices`.
        """
        search_settings(pop_text_constraints(options)[1])  # what is wrong is said now
        n_workers = max(1, len(devices)) if workers is None else workers
        if block < 1:
            raise UserError(f"block = {block}: must be at least 1")
        if n_workers < 1:
            raise UserError(f"workers = {workers}: must be at least 1")
        if (n_workers > 1 or devices) and self.opening is None:
            raise UserError("workers: this Translator was not loaded from a folder, so no other process can load it")
        found = self._blocks(texts, options, block=block, n_workers=n_workers, devices=devices)
        return (best[0].text for best in found)

    def translate_block(
        self,
        texts: Sequence[str],
        settings: SearchSettings,
        *,
        start: int = 0,
        wording: TextConstraints = NO_CONSTRAINTS,
        repeats: TranslationCache | None = None,
        should_stop: Callable[[int], bool] | None = None,
        on_partial: Mapping[int, Callable[[str], None]] = MappingProxyType({}),
    ) -> BlockResult[list[Translation]]:
        """Translate one block of texts; `start` is the number of its first text, `repeats` holds earlier results.

        `should_stop` is asked with the index of a text in the block: if it is true, its search ends, and the text gets
        no translation. `on_partial` has, by index, a function that is called with the translation of that text so far.
        With the torch engine both are used after every step of the search; with CTranslate2 a search ends by itself,
        and a text of several segments is translated in several searches.
        """
        try:
            plans, tally = self.planner.plan(texts)
        except BadText as error:
            raise BadText(start + error.number, error.what) from None
        worded, drawn = TokenConstraints(wording, self.tokenizers.target), settings.sampling is not None
        requests = [worded.requests(plan, number, drawn=drawn) for number, plan in enumerate(plans, start)]
        block = _BlockSearch(plans, requests, self.tokenizers.target, should_stop, on_partial)
        found = block.search(self.engine, settings, repeats if repeats is not None else TranslationCache())
        translations = [
            put_together(plan, best, self.tokenizers, n_best=settings.n_best) if all(best) else []
            for plan, best in zip(plans, found, strict=True)
        ]
        return BlockResult(translations, tally + tally_of(translations, found, self.planner.reach, start=start))

    def inline_executor(
        self, settings: SearchSettings, wording: TextConstraints = NO_CONSTRAINTS
    ) -> InlineExecutor[list[Translation]]:
        """Return an executor that translates blocks in this process, each repeated text once."""
        repeats = TranslationCache()
        return InlineExecutor(
            lambda texts, start: self.translate_block(texts, settings, start=start, wording=wording, repeats=repeats)
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
        wording, rest = pop_text_constraints(options)
        settings = search_settings(rest)
        blocks = in_blocks([texts] if isinstance(texts, str) else texts, n_texts=block)
        tally = DecodingStats()
        with contextlib.ExitStack() as stack:
            where: BatchExecutor[list[Translation]] = self.inline_executor(settings, wording)
            if n_workers > 1 or devices:
                assert self.opening is not None
                where = stack.enter_context(Workers(self.opening, settings, n_workers, wording, devices=devices))
            for answer in in_order(blocks, where):
                tally += answer.tally
                yield from answer.outputs
        for words in tally.warnings(written=self.written):
            warn(words)


def _shortest(reaches: Sequence[SourceLimit]) -> SourceLimit:
    """How far models go together."""
    max_len = min(each.max_len for each in reaches)
    return SourceLimit(max_len, is_hard=any(each.is_hard for each in reaches if each.max_len == max_len))


class _BlockSearch:
    """The search for the segments of a block of texts: identical segments once, with partial results on the way.

    A text with several segments that has a function in `on_partial` is searched in turns of one segment, two, four and
    so on: its beginning is known early, with every engine, and yet there are few searches.
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
            for place, request in enumerate(segments):
                self._owners.setdefault(key_of(request), []).append((index, place))
        self._partial: dict[int, list[str]] = {index: [] for index in on_partial}  # segments up to the first missing

    def search(
        self, engine: Engine, settings: SearchSettings, repeats: TranslationCache
    ) -> list[list[list[Hypothesis]]]:
        """For each text, for each of its segments, the n best hypotheses; none for a text that was stopped."""
        found: dict[Key, list[Hypothesis]] = {}
        for turn in self._turns():
            requests = [request for request in turn if not self._is_stopped(request)]
            hypotheses = repeats.find(requests, lambda distinct: self._search(engine, distinct, settings))
            found |= zip(map(key_of, requests), hypotheses, strict=True)
            self._tell_found(found)
        return [
            [[] if self._is_stopped_text(index) else found.get(key_of(request), []) for request in segments]
            for index, segments in enumerate(self._requests)
        ]

    def _turns(self) -> list[list[Request]]:
        """The distinct requests, in the order of the searches."""
        turns: dict[int, list[Request]] = {}
        for owners in self._owners.values():
            index, place = owners[0]
            turn = min((place + 1).bit_length() if index in self._on_partial else 1 for index, place in owners)
            turns.setdefault(turn, []).append(self._requests[index][place])
        return [requests for _, requests in sorted(turns.items())]

    def _search(self, engine: Engine, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        if self._should_stop is None and not self._on_partial:
            return engine.search(requests, settings)
        callback = SearchCallback(
            on_step=(lambda index, ids: self._tell(requests[index], ids)) if self._on_partial else None,
            should_stop=lambda index: self._is_stopped(requests[index]),
        )
        return engine.search(requests, settings, callback=callback)

    def _is_stopped_text(self, index: int) -> bool:
        return self._should_stop is not None and self._should_stop(index)

    def _is_stopped(self, request: Request) -> bool:
        """Whether all texts that have this segment are stopped."""
        return self._should_stop is not None and all(
            self._should_stop(index) for index, _ in self._owners[key_of(request)]
        )

    def _tell(self, request: Request, ids: list[int]) -> None:
        """Pass on a segment that is being written, if all segments before it are known."""
        for index, place in self._owners[key_of(request)]:
            if index in self._on_partial and place == len(self._partial[index]):
                self._tell_texts(index, [*self._partial[index], decode_generated(self._tokenizer, ids)])

    def _tell_found(self, found: Mapping[Key, Sequence[Hypothesis]]) -> None:
        """After a turn, pass on what is new. Nothing is passed on of a complete text: its translation follows."""
        for index, texts in self._partial.items():
            requests, n_before = self._requests[index], len(texts)
            while len(texts) < len(requests) and (best := found.get(key_of(requests[len(texts)]))):
                texts.append(decode_generated(self._tokenizer, best[0].ids))
            if n_before < len(texts) < len(requests):
                self._tell_texts(index, texts)

    def _tell_texts(self, index: int, texts: Sequence[str]) -> None:
        plan, n = self._plans[index], len(texts)
        self._on_partial[index](SegmentedText(plan.pieces[:n], [*plan.gaps[:n], ""]).join(texts))


def translate_greedily(model: "EncoderDecoder", tokenizers: Tokenizers, texts: Sequence[str]) -> list[str]:
    """Greedy translations, in the order of the texts."""
    from heedful.decoding.engines.torch_engine import TorchEngine  # with torch, which a Translator may do without

    requests = [Request(ids) for ids in tokenizers.source.encode_batch(texts)]
    found = TorchEngine(model).search(requests, SearchSettings(beam=1))
    return tokenizers.target.decode_batch([best[0].ids for best in found])
