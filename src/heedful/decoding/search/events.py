"""The diary of a beam search: which hypotheses lived, which died and why. The beam's tree is drawn from it."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from heedful.decoding.search.board import Board
from heedful.decoding.search.candidates import Candidates

Fate = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True)
class BeamEvent:
    """One candidate of one step: `parent` goes on with `token`."""

    node: int  # its number; the start is node 0
    parent: int
    step: int  # from 1
    token: int
    score: float  # sum of log-probabilities up to here
    rank: float  # the score after the penalties, as if it ended here
    fate: Fate  # kept: goes on; finished: ended, or reached the limit; pruned: others were better


@dataclass
class BeamLog:
    """Pass `log.watch` to a search of one sentence; `events` then tells what happened, in order."""

    events: list[BeamEvent] = field(default_factory=list)
    _rows: list[int] = field(default_factory=lambda: [0])  # the node that each row of the beam stands at

    def watch(self, board: Board, found: Candidates) -> None:
        assert len(board) == 1, "a diary is of one sentence"
        rows: list[int] = []
        step = int(board.lengths[0]) + 1
        last = step >= board.limits[0]
        for number in range(found.scores.shape[1]):
            score, token, row = (
                float(found.scores[0, number]),
                int(found.tokens[0, number]),
                int(found.parents[0, number]),
            )
            if not np.isfinite(score):
                continue
            fate: Fate = "pruned"
            if (token == board.marks.end_id or last) and number < board.width:
                fate = "finished"
            elif token != board.marks.end_id and not last and len(rows) < board.width:
                fate = "kept"
            node = len(self.events) + 1
            rank = board.rank(0, row, score, step)
            self.events.append(BeamEvent(node, self._rows[row], step, token, score, rank, fate))
            if fate == "kept":
                rows.append(node)
        self._rows = rows + [0] * (board.width - len(rows))
