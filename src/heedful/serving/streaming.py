"""One batch of texts, of different clients, through one model: what an offline Translator answers, with two additions.

A search leaves out, at its next step, those texts that nobody waits for any longer; and it tells, step by step, what it
has written so far. Both need a step that can be looked into: the torch engine. CTranslate2 finishes what it has begun,
and tells of a text of several pieces which of them are found.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from heedful.decoding.engines.base import Engine
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.segmentation import SegmentedText
from heedful.decoding.translation import Translation, put_together
from heedful.decoding.translator import Translator
from heedful.text.tokenizer import decode_generated

if TYPE_CHECKING:
    from heedful.decoding.engines.torch_engine import TorchEngine
    from heedful.decoding.search.hypotheses import LiveHypotheses
    from heedful.text.tokenizer import Tokenizer

Key = tuple[int, ...]  # the ids of a piece: what stands there twice is searched for once
Wanted = Callable[[int], bool]  # the number of a text -> whether anybody still waits for it
Listener = Callable[[str], None]  # gets the translation of a text as far as it is written


def translate_texts(
    translator: Translator,
    texts: Sequence[str],
    settings: SearchSettings,
    *,
    wanted: Wanted = lambda number: True,
    listeners: Mapping[int, Listener] = MappingProxyType({}),
) -> list[list[Translation]]:
    """The n best of each text, in their order; a text that is no longer wanted comes back without any.

    `listeners` has, by number of text, who is told what is written so far.
    """
    plans, _ = translator.planner.plan(texts)
    pieces = Pieces(plans, listeners, translator.tokenizers.target)
    found: dict[Key, list[Hypothesis]] = {}
    for turn in pieces.in_turns():
        keys = [key for key in turn if pieces.is_wanted(key, wanted)]
        hypotheses = _search(
            translator.engine,
            [Request(key) for key in keys],
            settings,
            lambda place, keys=keys: pieces.is_wanted(keys[place], wanted),  # type: ignore[misc]
            (lambda place, ids, keys=keys: pieces.tell(keys[place], ids)) if listeners else None,  # type: ignore[misc]
        )
        found |= dict(zip(keys, hypotheses, strict=True))
        pieces.tell_found(found)
    translations: list[list[Translation]] = []
    for number, plan in enumerate(plans):
        parts = [found.get(tuple(piece.ids), []) for piece in plan.pieces]
        if not wanted(number) or not all(parts):
            translations.append([])
        else:
            translations.append(put_together(plan, parts, translator.tokenizers, n_best=settings.n_best))
    return translations


class Pieces:
    """What is searched for: the pieces of all texts, each once, and whose they are.

    A text of several pieces that somebody listens to is searched for in turns of one piece, two, four and so on: its
    beginning can be told early, by every engine, and yet there are few searches.
    """

    def __init__(
        self, plans: Sequence[SegmentedText], listeners: Mapping[int, Listener], tokenizer: "Tokenizer"
    ) -> None:
        self._plans, self._listeners, self._tokenizer = plans, listeners, tokenizer
        self._owners: dict[Key, list[tuple[int, int]]] = {}  # number of a text, and of a piece of it
        for number, plan in enumerate(plans):
            for place, piece in enumerate(plan.pieces):
                self._owners.setdefault(tuple(piece.ids), []).append((number, place))
        self._found: dict[int, list[str]] = {number: [] for number in listeners}  # up to the first that is not

    def in_turns(self) -> list[list[Key]]:
        turns: dict[int, list[Key]] = {}
        for key, owners in self._owners.items():
            turn = min((place + 1).bit_length() if number in self._listeners else 1 for number, place in owners)
            turns.setdefault(turn, []).append(key)
        return [keys for _, keys in sorted(turns.items())]

    def is_wanted(self, key: Key, wanted: Wanted) -> bool:
        return any(wanted(number) for number, _ in self._owners[key])

    def tell(self, key: Key, ids: list[int]) -> None:
        """Of a piece so much is written. Those behind it wait: nothing is put into the middle of what was told."""
        for number, place in self._owners[key]:
            if number in self._listeners and place == len(self._found[number]):
                self._tell(number, [*self._found[number], decode_generated(self._tokenizer, ids)])

    def tell_found(self, found: Mapping[Key, Sequence[Hypothesis]]) -> None:
        """After a turn. Of a text that is all found nothing is told: its translation follows."""
        for number, texts in self._found.items():
            pieces, n_before = self._plans[number].pieces, len(texts)
            while len(texts) < len(pieces) and (best := found.get(tuple(pieces[len(texts)].ids))):
                texts.append(decode_generated(self._tokenizer, best[0].ids))
            if n_before < len(texts) < len(pieces):
                self._tell(number, texts)

    def _tell(self, number: int, texts: Sequence[str]) -> None:
        plan, n = self._plans[number], len(texts)
        self._listeners[number](SegmentedText(plan.pieces[:n], [*plan.gaps[:n], ""]).join(texts))


def _search(
    engine: Engine,
    requests: Sequence[Request],
    settings: SearchSettings,
    is_wanted: Callable[[int], bool],
    tell: Callable[[int, list[int]], None] | None,
) -> list[list[Hypothesis]]:
    if not requests:
        return []
    if engine.name == "torch":
        return _search_watched(engine, requests, settings, is_wanted, tell)  # type: ignore[arg-type]
    return engine.search(requests, settings)


def _search_watched(
    engine: "TorchEngine",
    requests: Sequence[Request],
    settings: SearchSettings,
    is_wanted: Callable[[int], bool],
    tell: Callable[[int, list[int]], None] | None,
) -> list[list[Hypothesis]]:
    """The engine's own search in this thread alone, looked into after each step."""
    import numpy as np

    from heedful.decoding.engines.torch_engine import with_attention
    from heedful.decoding.search.continuous_batching import search, strategy_for
    from heedful.decoding.search.hypotheses import Ints, NextTokenScores
    from heedful.decoding.search.step import Step

    advance = strategy_for(settings)

    def watched(board: "LiveHypotheses", prediction: NextTokenScores) -> Ints | None:
        parents = advance(board, prediction)
        for place in np.flatnonzero(~board.over).tolist():
            number = board.entries[place].number
            if not is_wanted(number):
                board.over[place] = True
            elif tell is not None:
                tell(number, board.row(place, int(board.scores[place].argmax())))
        return parents

    step: Step = engine.step  # type: ignore[type-arg]
    found = search(step, requests, settings, n_rows=engine.rows_for(settings), advance=watched)
    if not settings.attention:
        return found
    wanted = [hypotheses if is_wanted(number) else [] for number, hypotheses in enumerate(found)]
    return with_attention(step, requests, wanted, engine.batch_rows)
