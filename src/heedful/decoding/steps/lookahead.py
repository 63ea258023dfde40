"""Parallel decoding: guess a block of tokens, check all of them in one step, keep those that were right.

Jacobi iteration (Santilli et al. 2023): the tokens of a block, each predicted from the guesses before it, become the
next guesses. A prediction whose whole past is right is the greedy token, so every round settles at least one token,
and the result is exactly the greedy one. Rounds are dearer than steps: it pays where a step costs the same for one
token as for eight, and where guesses are good.
"""

from dataclasses import dataclass

import torch

from heedful.data.batch import pad_sources
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.models.seq2seq import Seq2Seq


@dataclass(frozen=True)
class Looked:
    ids: list[int]
    rounds: int  # calls of the model; greedy search needs one for each token and one for the end mark


@torch.inference_mode()
def look_ahead(model: Seq2Seq, request: Request, *, block: int = 8, settings: SearchSettings | None = None) -> Looked:
    """The greedy translation of one request, `block` tokens guessed at a time."""
    device, marks = next(model.parameters()).device, model.config.marks
    source, mask = (x.to(device) for x in pad_sources([marks.opened(request.source)], special=marks.special))
    memory, cache = model.encode(source, mask), model.make_cache()
    limit = (settings or SearchSettings()).limit(len(request))
    limit = min(limit, model.longest or limit)
    ids: list[int] = []
    newest, guesses, rounds = marks.start_id, [marks.end_id] * (block - 1), 0
    while len(ids) < limit:
        guesses = guesses[: limit - len(ids) - 1]
        fed = torch.tensor([[newest, *guesses]], device=device)
        said: list[int] = model.decode(fed, memory, cache=cache)[0].argmax(dim=-1).tolist()
        rounds += 1
        n_right = next((i for i, guess in enumerate(guesses) if guess != said[i]), len(guesses))
        settled = said[: n_right + 1]  # the first prediction after the last right guess is right as well
        if marks.end_id in settled:
            return Looked(ids + settled[: settled.index(marks.end_id)], rounds)
        ids += settled
        newest = ids[-1]
        cache.cut(len(ids))  # forget the columns of wrong guesses
        guesses = [*said[n_right + 1 :], *[marks.end_id] * block][: block - 1]
    return Looked(ids[:limit], rounds)
