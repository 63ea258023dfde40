"""Callbacks of a search: stop some of its requests, follow its hypotheses, or record a whole beam search.

    trace = BeamTrace()
    engine.search([request], settings, callback=SearchCallback(on_candidates=trace.add))
    trace.events                                    # every candidate of every step, and what became of it

Imports no torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Fate = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True)
class BeamCandidate:
    """One continuation that a step of beam search considers."""

    row: int  # the hypothesis of the beam that it continues
    token: int
    score: float  # sum of the log-probabilities up to and including the token
    normalized_score: float  # the score after the penalties, as if the text ended here
    fate: Fate  # kept: stays in the beam; finished: ended, or at the length limit; pruned: others were better


@dataclass(frozen=True)
class SearchCallback:
    """Functions that a search calls while it runs, each optional; `index` counts the requests of the call.

    The torch engine calls them after every step, in the thread that called `search`. CTranslate2 cannot be looked into:
    its engine calls none of them.
    """

    on_step: Callable[[int, list[int]], None] | None = None  # (index, ids of the best unfinished hypothesis)
    on_candidates: Callable[[int, list[BeamCandidate]], None] | None = (
        None  # (index, candidates, best first); beam only
    )
    should_stop: Callable[[int], bool] | None = None  # a request for which it is true ends without any hypothesis

    def for_requests(self, indices: Sequence[int]) -> "SearchCallback":
        """Make the callback of a search of some of the requests: its request i is request indices[i] of this one."""
        on_step, on_candidates, should_stop = self.on_step, self.on_candidates, self.should_stop
        return SearchCallback(
            on_step and (lambda i, ids: on_step(indices[i], ids)),
            on_candidates and (lambda i, candidates: on_candidates(indices[i], candidates)),
            should_stop and (lambda i: should_stop(indices[i])),
        )


@dataclass(frozen=True)
class BeamEvent:
    """One candidate of one step, as a node of the tree of all candidates."""

    node: int  # from 1; node 0 is the empty text
    parent: int
    step: int  # from 1
    token: int
    score: float
    normalized_score: float
    fate: Fate


@dataclass
class BeamTrace:
    """Records the beam search of a single request; `add` is the `on_candidates` of its callback."""

    events: list[BeamEvent] = field(default_factory=list)
    _n_steps: int = 0
    _nodes: list[int] = field(default_factory=lambda: [0])  # the node of each hypothesis in the beam

    def add(self, index: int, candidates: Sequence[BeamCandidate]) -> None:
        assert index == 0, "a BeamTrace records one request"
        self._n_steps += 1
        nodes: list[int] = []
        for one in candidates:
            node = len(self.events) + 1
            parent = self._nodes[one.row]
            self.events.append(
                BeamEvent(node, parent, self._n_steps, one.token, one.score, one.normalized_score, one.fate)
            )
            if one.fate == "kept":
                nodes.append(node)
        self._nodes = nodes
