"""Parallel decoding: guess a block of tokens, check all of them in one step, keep those that were right.

Jacobi iteration (Santilli et al. 2023): the tokens of a block, each predicted from the guesses before it, become the
next guesses. A prediction whose whole past is right is the greedy token, so every round settles at least one token,
and the result is exactly the greedy one. Rounds are dearer than steps: it pays where a step costs the same for one
token as for eight, and where guesses are good.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.data.collate import pad_sources
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError
from heedful.models.seq2seq import Seq2Seq
from heedful.text.special_ids import SpecialIds


@dataclass(frozen=True)
class Looked:
    ids: list[int]
    rounds: int  # calls of the model; greedy search needs one for each token and one for the end mark


@torch.inference_mode()
def look_ahead(model: Seq2Seq, request: Request, *, block: int = 8, settings: SearchSettings | None = None) -> Looked:
    """The greedy translation of one request, `block` tokens guessed at a time.

    It begins with the prefix of the request, and what must not be written is not; other filters are refused.
    """
    settings = settings or SearchSettings(beam=1)
    _refuse_the_rest(request, settings)
    device, special_ids = next(model.parameters()).device, model.config.special_ids
    source, mask = (
        x.to(device) for x in pad_sources([special_ids.with_source_bos(request.source)], special_ids=special_ids)
    )
    memory, cache = model.encode(source, mask), model.make_cache()
    limit = settings.limit(len(request)) + special_ids.n_forced
    limit = min(limit, model.max_length or limit)
    ids = [*special_ids.with_source_bos(request.prefix)] if special_ids.n_forced else [*request.prefix]
    if special_ids.eos_id in ids:
        return Looked(ids[special_ids.n_forced : ids.index(special_ids.eos_id)], 0)
    unread, guesses, rounds = [special_ids.start_id, *ids], [special_ids.eos_id] * (block - 1), 0
    while len(ids) < limit:
        guesses = guesses[: limit - len(ids) - 1]
        fed = torch.tensor([[*unread, *guesses]], device=device)
        logits = model.decode(fed, memory, cache=cache)[0, len(unread) - 1 :]  # (1 + guesses, V)
        said = _likeliest(logits, len(ids), settings, special_ids)
        rounds += 1
        n_right = next((i for i, guess in enumerate(guesses) if guess != said[i]), len(guesses))
        settled = said[: n_right + 1]  # the first prediction after the last right guess is right as well
        if special_ids.eos_id in settled:
            return Looked([*ids, *settled[: settled.index(special_ids.eos_id)]][special_ids.n_forced :], rounds)
        ids += settled
        unread = ids[-1:]
        cache.cut(len(ids))  # forget the columns of wrong guesses
        guesses = [*said[n_right + 1 :], *[special_ids.eos_id] * block][: block - 1]
    return Looked(ids[special_ids.n_forced : limit], rounds)


def _likeliest(logits: Tensor, n_written: int, settings: SearchSettings, special_ids: SpecialIds) -> list[int]:
    """Of each row the likeliest token that may stand there; row 0 is that of token `n_written`. As in `filters`."""
    if special_ids.extra_eos_ids:
        logits[:, special_ids.eos_id] = logits[:, [special_ids.eos_id, *special_ids.extra_eos_ids]].amax(dim=1)
        logits[:, list(special_ids.extra_eos_ids)] = -torch.inf
    logits[:, [*settings.forbidden, *special_ids.forbidden_ids]] = -torch.inf
    early = max(0, settings.min_len + special_ids.n_forced - n_written)
    if special_ids.eos_id < logits.size(1):
        logits[:early, special_ids.eos_id] = -torch.inf
    likeliest: list[int] = logits.argmax(dim=-1).tolist()
    return likeliest


def _refuse_the_rest(request: Request, settings: SearchSettings) -> None:
    """What depends on all that is written before, or is no greedy search, cannot be guessed in blocks."""
    refused = {
        f"beam = {settings.beam}": settings.beam > 1,
        "sampling": settings.sampling is not None,
        "forbidden runs": len(request.forbidden) > 0,
        "repetition_penalty": settings.repetition_penalty != 1.0,
        "no_repeat_ngram": settings.no_repeat_ngram > 0,
        "attention": settings.attention,
        "shortlist": settings.shortlist,
        "required words": bool(request.required),
    }
    for name, is_asked in refused.items():
        if is_asked:
            raise UserError(f"look_ahead: cannot do {name}; it writes what greedy search writes (beam=1) without it")
