"""One batch of texts, of different clients, through one model: what an offline Translator answers, with two additions.

A search leaves out, at its next step, those texts that nobody waits for any longer; and it tells, step by step, what it
has written so far. Both need a step that can be looked into: the torch engine. CTranslate2 finishes what it has begun.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from heedful.decoding.engines.engine import Engine
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.writing.translation import Translation, put_together
from heedful.decoding.writing.translator import Translator

if TYPE_CHECKING:
    from heedful.decoding.engines.torch_engine import TorchEngine
    from heedful.decoding.search.board import Board

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
    owners: dict[tuple[int, ...], list[int]] = {}  # what stands there twice is searched for once
    for number, plan in enumerate(plans):
        for piece in plan.pieces:
            owners.setdefault(tuple(piece.ids), []).append(number)
    keys = list(owners)

    def is_wanted(place: int) -> bool:
        return any(wanted(number) for number in owners[keys[place]])

    def told(place: int, ids: list[int]) -> None:
        for number in owners[keys[place]]:
            if number in listeners and len(plans[number].pieces) == 1:
                listeners[number](plans[number].join([translator.tokenizers.target.decode(ids)]))

    requests = [Request(key) for key in keys]
    tell = told if listeners else None
    found = dict(zip(keys, _search(translator.engine, requests, settings, is_wanted, tell), strict=True))
    translations: list[list[Translation]] = []
    for number, plan in enumerate(plans):
        hypotheses = [found[tuple(piece.ids)] for piece in plan.pieces]
        if not wanted(number) or not all(hypotheses):
            translations.append([])
        else:
            translations.append(put_together(plan, hypotheses, translator.tokenizers, n_best=settings.n_best))
    return translations


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
    from heedful.decoding.search.board import Ints
    from heedful.decoding.search.loop import choose_advance, search
    from heedful.decoding.search.prediction import Prediction
    from heedful.decoding.search.step import Step

    advance = choose_advance(settings)

    def watched(board: "Board", prediction: Prediction) -> Ints | None:
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
