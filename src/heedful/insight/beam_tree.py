"""The beam search of one sentence as a tree: hypotheses, pruned branches and their greedy continuations."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.decoding.search.callback import BeamEvent, BeamTrace, SearchCallback
from heedful.decoding.search.continuous_batching import search
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.reference import Seq2SeqState
from heedful.models.encoder_decoder import EncoderDecoder
from heedful.nn.stacks import Memory
from heedful.text import Tokenizer
from heedful.text.special_ids import SpecialIds
from heedful.text.tokenizer import decode_generated, generated_pieces


@dataclass(frozen=True)
class Continuation:
    """The sentence that greedy search decodes after the ids of a pruned branch."""

    text: str
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class BeamNode:
    """One candidate of one step: a BeamEvent with the text of its token."""

    node: int
    parent: int
    step: int
    token: str
    id: int
    score: float
    normalized_score: float
    fate: str
    continuation: Continuation | None = None


@dataclass(frozen=True)
class Found:
    """One hypothesis of the beam and its nodes in the tree."""

    text: str
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    score: float
    normalized_score: float
    complete: bool
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Beam:
    width: int
    length_penalty: float
    limit: int
    n_opening: int  # number of forced tokens at the start, which are no part of a prefix
    events: tuple[BeamNode, ...]
    hypotheses: tuple[Found, ...]


class MemoryStep:
    """A decoding step of an encoder-decoder that reads a given memory instead of encoding the source.

    All requests share a memory of one sentence; of a memory of several sentences, each request reads its own.
    """

    refills = False

    def __init__(self, model: EncoderDecoder, memory: Memory) -> None:
        self.model = model
        self.memory = memory
        self.device = memory.states[0].device
        self.max_len = model.max_length
        self.special_ids = model.config.special_ids

    def begin(self, sources: Sequence[Sequence[int]], width: int, *, attention: bool = False) -> Seq2SeqState:
        if attention:
            raise NotImplementedError("a given memory is searched without penalties on attention")
        n_sentences = self.memory.states[0].size(0)
        assert n_sentences in (1, len(sources)), "one memory for all requests, or one for each"
        rows = torch.arange(len(sources), device=self.device).clamp(max=n_sentences - 1)
        return Seq2SeqState(self.model, self.memory.rows(rows), width, None)

    def replace(self, state: Seq2SeqState, places: Tensor, sources: Sequence[Sequence[int]]) -> None:
        raise NotImplementedError("all rows are of one age")

    def __call__(self, tokens: Tensor, state: Seq2SeqState) -> Tensor:
        return state.model.decode(tokens[:, None], state.memory, cache=state.cache)[:, -1]


def search_watched(
    step: MemoryStep, request: Request, settings: SearchSettings, tokenizer: Tokenizer, *, branches: int = 0
) -> tuple[list[Hypothesis], Beam]:
    """Run a beam search and record it: return the hypotheses, best first, and the tree of all candidates.

    The `branches` best pruned candidates are continued greedily to their end.
    """
    log = BeamTrace()
    callback = SearchCallback(on_candidates=log.add)
    [hypotheses] = search(step, [request], settings, n_rows=settings.beam, callback=callback)
    paths = _paths(log.events)
    beam = Beam(
        width=settings.beam,
        length_penalty=settings.length_penalty,
        limit=settings.limit(len(request)),
        n_opening=step.special_ids.n_forced,
        events=_nodes(log.events, _follow(step, request, settings, log.events, paths, tokenizer, branches), tokenizer),
        hypotheses=tuple(
            _found(hypothesis, log.events, paths, tokenizer, step.special_ids) for hypothesis in hypotheses
        ),
    )
    return hypotheses, beam


def as_written(ids: Sequence[int], special_ids: SpecialIds, *, complete: bool) -> tuple[int, ...]:
    """Return the ids of a whole target: the forced start tokens, `ids`, and the end token if the text is complete."""
    opening = special_ids.with_source_bos([])[: special_ids.n_forced]
    return (*opening, *ids, special_ids.eos_id) if complete else (*opening, *ids)


def write_greedily(step: MemoryStep, source: Sequence[int], *, max_len: int) -> list[list[int]]:
    """Decode each sentence of the memory greedily. Requests of equal length keep their order."""
    n_sentences = step.memory.states[0].size(0)
    results = search(step, [Request(source)] * n_sentences, SearchSettings(beam=1, max_len=max_len), n_rows=n_sentences)
    return [hypotheses[0].ids for hypotheses in results]


def _paths(events: Sequence[BeamEvent]) -> dict[int, tuple[int, ...]]:
    """Map each node to the nodes from the start to it, itself included."""
    paths: dict[int, tuple[int, ...]] = {0: ()}
    for event in events:
        paths[event.node] = (*paths[event.parent], event.node)
    return paths


def _follow(
    step: MemoryStep,
    request: Request,
    settings: SearchSettings,
    events: Sequence[BeamEvent],
    paths: dict[int, tuple[int, ...]],
    tokenizer: Tokenizer,
    branches: int,
) -> dict[int, Continuation]:
    cut = [event for event in events if event.fate == "pruned" and event.token != step.special_ids.eos_id][:branches]
    if not cut:
        return {}
    written = {event.node: event.token for event in events}
    opening = step.special_ids.n_forced  # given, not asked for
    prefixes = [[written[node] for node in paths[event.node][opening:]] for event in cut]
    greedy = SearchSettings(beam=1, max_len=settings.limit(len(request)))
    found = search(step, [Request(request.source, prefix) for prefix in prefixes], greedy)
    return {
        event.node: Continuation(
            text=decode_generated(tokenizer, best[0].ids),
            tokens=tuple(generated_pieces(tokenizer, best[0].ids)),
            ids=tuple(best[0].ids),
            score=best[0].score,
        )
        for event, best in zip(cut, found, strict=True)
    }


def _nodes(
    events: Sequence[BeamEvent], continuations: dict[int, Continuation], tokenizer: Tokenizer
) -> tuple[BeamNode, ...]:
    tokens = generated_pieces(tokenizer, [event.token for event in events])
    return tuple(
        BeamNode(
            node=event.node,
            parent=event.parent,
            step=event.step,
            token=token,
            id=event.token,
            score=event.score,
            normalized_score=event.normalized_score,
            fate=event.fate,
            continuation=continuations.get(event.node),
        )
        for event, token in zip(events, tokens, strict=True)
    )


def _found(
    hypothesis: Hypothesis,
    events: Sequence[BeamEvent],
    paths: dict[int, tuple[int, ...]],
    tokenizer: Tokenizer,
    special_ids: SpecialIds,
) -> Found:
    token_of = {event.node: event.token for event in events}
    written = as_written(hypothesis.ids, special_ids, complete=hypothesis.complete)
    (nodes,) = (
        paths[event.node]
        for event in events
        if event.fate == "finished" and tuple(token_of[node] for node in paths[event.node]) == written
    )
    return Found(
        text=decode_generated(tokenizer, hypothesis.ids),
        tokens=tuple(generated_pieces(tokenizer, hypothesis.ids)),
        ids=tuple(hypothesis.ids),
        score=hypothesis.score,
        normalized_score=hypothesis.normalized_score,
        complete=hypothesis.complete,
        nodes=nodes,
    )
