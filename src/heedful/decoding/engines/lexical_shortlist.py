"""Learn a lexical shortlist: which target tokens a model generates for which source tokens.

Parallel text shows what people write. A model generates less: lists from its own translations are half as long as those
from references, miss fewer of the model's words, and need text in the source language only.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.decoding.engines.auto import open_tokenizers
from heedful.decoding.engines.ctranslate2_engine import CTranslate2Engine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import convert
from heedful.interop.ctranslate2.model_config import why_not
from heedful.interop.ctranslate2.shortlist import learn_shortlist, write_shortlist
from heedful.models.configs import read_config
from heedful.models.model_info import (
    ENCODER_DECODERS,
    SourceLimit,
    find_model_folder,
    read_source_limit,
    require_family,
)

BEAMS = (1, 5)  # the list must have the words of greedy and of beam search
MOST_TEXTS = 50_000  # more texts hardly change the list
LEAST_TEXTS = 1_000  # with fewer, the list would lack words of the model
BLOCK = 1_000

Progress = Callable[[str, int, float], None]  # what is done, how many, fraction of the whole


@dataclass(frozen=True)
class ShortlistComparison:
    """A comparison of searches with and without the list, on texts that it was not learned from."""

    beam: int
    texts: int
    same: int  # equal translations
    speed: float  # with the list / without it


@dataclass(frozen=True)
class LearnedShortlist:
    """What was learned, and how good it is."""

    path: Path
    texts: int
    too_long: int  # texts that were not used
    candidates: float  # mean number for a source token
    comparisons: list[ShortlistComparison]


def learn_own_shortlist(
    path: str | Path,
    texts: Sequence[str],
    *,
    n_always: int = 200,
    n_candidates: int = 100,
    least_texts: int = LEAST_TEXTS,
    progress: Progress = lambda what, done, share: None,
) -> LearnedShortlist:
    """Translate texts, learn the model's shortlist from the translations, and compare searches with and without it.

    The list is stored with the model's conversion; `SearchSettings(shortlist=True)` uses it.
    """
    for name, number, least in (("candidates", n_candidates, 1), ("always", n_always, 0)):
        if number < least:
            raise UserError(f"{name} = {number}: must be at least {least}")
    distinct = list(dict.fromkeys(text for text in texts if text.strip()))[:MOST_TEXTS]
    _require_texts(len(distinct), least_texts)
    folder = find_model_folder(path)
    engine = _open(folder)
    converted, tokenizers = engine.converted, open_tokenizers(folder, engine)
    if tokenizers is None:
        raise UserError(f"{folder}: has no tokenizers, and a shortlist is learned from text")
    whole = [Request(ids) for ids in tokenizers.source.encode_batch(distinct)]
    requests = _within_reach(whole, engine, read_source_limit(folder))
    too_long = len(whole) - len(requests)
    _require_texts(len(requests), least_texts, too_long)
    held_out, learned_from = requests[::20], [request for i, request in enumerate(requests) if i % 20]
    pairs = list(_own_pairs(engine, learned_from, progress))
    shortlist = learn_shortlist(
        pairs,
        target_vocab_size=tokenizers.target.vocab_size,
        joint=tokenizers.joint,
        n_always=n_always,
        n_candidates=n_candidates,
    )
    written = write_shortlist(converted, shortlist)
    mean = sum(map(len, shortlist.candidates.values())) / max(1, len(shortlist.candidates))
    comparisons = _compare(CTranslate2Engine(converted, compute="int8"), held_out)
    return LearnedShortlist(written, len(learned_from), too_long, mean, comparisons)


def _open(folder: Path) -> CTranslate2Engine:
    """Open a model in CTranslate2, the only engine with shortlists, or refuse it."""
    require_family(folder, *ENCODER_DECODERS)
    reason = why_not(read_config(folder)[1])
    if reason is None:
        engine = CTranslate2Engine(convert(folder, kept=True), compute="int8", scores=False)
        reasons = (engine.why_not([], SearchSettings(beam=beam)) for beam in BEAMS)
        reason = next((why for why in reasons if why is not None), None)
        if reason is None:
            return engine
    raise UserError(f"{folder}: CTranslate2, which alone has shortlists, cannot translate with this model: {reason}")


def _within_reach(requests: Sequence[Request], engine: CTranslate2Engine, reach: SourceLimit) -> list[Request]:
    """Return the requests that a Translator would not split, since a model treats longer ones differently."""
    settings = SearchSettings()
    return [one for one in requests if len(one) <= reach.max_len and engine.why_not([one], settings) is None]


def _require_texts(n_texts: int, least: int, too_long: int = 0) -> None:
    if n_texts >= least:
        return
    long = f". Another {too_long:,} are longer than the model takes at once: give sentences" if too_long else ""
    raise UserError(
        f"a shortlist needs at least {least:,} different lines of text, found {n_texts:,}; "
        f"with fewer, words of the model would be missing{long}"
    )


def _own_pairs(
    engine: CTranslate2Engine, requests: Sequence[Request], progress: Progress
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield each source with each translation of the model, in order: learning may stop before the last."""
    for start in range(0, len(requests), BLOCK):
        block = requests[start : start + BLOCK]
        searches = [engine.search(block, SearchSettings(beam=beam)) for beam in BEAMS]
        for request, *results in zip(block, *searches, strict=True):
            for [best] in results:
                yield request.source, best.ids
        progress("translating", start + len(block), (start + len(block)) / len(requests))


def _compare(engine: CTranslate2Engine, requests: Sequence[Request]) -> list[ShortlistComparison]:
    engine.scores = False
    comparisons = []
    for beam in BEAMS:
        results, seconds = {}, {}
        for shortlist in (False, True):
            settings = SearchSettings(beam=beam, shortlist=shortlist)
            engine.search(requests[:50], settings)  # warm up
            start = time.perf_counter()
            results[shortlist] = engine.search(requests, settings)
            seconds[shortlist] = time.perf_counter() - start
        pairs = zip(results[False], results[True], strict=True)
        same = sum(whole[0].ids == short[0].ids for whole, short in pairs)
        comparisons.append(ShortlistComparison(beam, len(requests), same, seconds[False] / seconds[True]))
    return comparisons
