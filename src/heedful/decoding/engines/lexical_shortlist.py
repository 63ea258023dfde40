"""A shortlist from what a model itself says: which target tokens it ever writes for which source tokens.

Parallel text shows what people write. A model writes less: lists that are learned from its own translations are half as
long as those from references, miss fewer of its words, and need text in one language only.
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

BEAMS = (1, 5)  # both kinds of search must find their words in it
MOST_TEXTS = 50_000  # more hardly change it
LEAST_TEXTS = 1_000  # fewer would leave words out that the model knows
BLOCK = 1_000

Progress = Callable[[str, int, float], None]  # what, how many, share of the whole


@dataclass(frozen=True)
class Judged:
    """Texts that the list was not learned from, searched with and without it."""

    beam: int
    texts: int
    same: int  # translations that the list does not change
    speed: float  # × the speed without it


@dataclass(frozen=True)
class Learned:
    path: Path
    texts: int
    too_long: int  # texts that it did not learn from
    candidates: float  # for one source token, in the mean
    judged: list[Judged]


def learn_own_shortlist(
    path: str | Path,
    texts: Sequence[str],
    *,
    n_always: int = 200,
    n_candidates: int = 100,
    least_texts: int = LEAST_TEXTS,
    progress: Progress = lambda what, done, share: None,
) -> Learned:
    """Translate the texts, learn the model's shortlist from that, and see on some of them what it is worth.

    It is kept beside the model's conversion; searches use it with `SearchSettings(shortlist=True)`.
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
        raise UserError(f"{folder}: has no tokenizers, so there is no text for it to learn from")
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
    judged = _judge(CTranslate2Engine(converted, compute="int8"), held_out)
    return Learned(written, len(learned_from), too_long, mean, judged)


def _open(folder: Path) -> CTranslate2Engine:
    """Refuse a model that CTranslate2, which alone has shortlists, cannot search with."""
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
    """Those that a Translator would not split: what a model says of longer ones is not what it says of sentences."""
    settings = SearchSettings()
    return [one for one in requests if len(one) <= reach.max_len and engine.why_not([one], settings) is None]


def _require_texts(n_texts: int, least: int, too_long: int = 0) -> None:
    if n_texts >= least:
        return
    long = f". Another {too_long:,} are longer than the model takes at once: give sentences" if too_long else ""
    raise UserError(
        f"a shortlist needs at least {least:,} different lines of text, found {n_texts:,}: "
        f"it would leave out words that the model knows{long}"
    )


def _own_pairs(
    engine: CTranslate2Engine, requests: Sequence[Request], progress: Progress
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Each source with what the model says, in the order of the texts: learning may stop before the last."""
    for start in range(0, len(requests), BLOCK):
        block = requests[start : start + BLOCK]
        found = [engine.search(block, SearchSettings(beam=beam)) for beam in BEAMS]
        for request, *results in zip(block, *found, strict=True):
            for [best] in results:
                yield request.source, best.ids
        progress("translating", start + len(block), (start + len(block)) / len(requests))


def _judge(engine: CTranslate2Engine, requests: Sequence[Request]) -> list[Judged]:
    engine.scores = False
    judged = []
    for beam in BEAMS:
        found, seconds = {}, {}
        for shortlist in (False, True):
            settings = SearchSettings(beam=beam, shortlist=shortlist)
            engine.search(requests[:50], settings)  # warms up
            start = time.perf_counter()
            found[shortlist] = engine.search(requests, settings)
            seconds[shortlist] = time.perf_counter() - start
        pairs = zip(found[False], found[True], strict=True)
        same = sum(whole[0].ids == short[0].ids for whole, short in pairs)
        judged.append(Judged(beam, len(requests), same, seconds[False] / seconds[True]))
    return judged
