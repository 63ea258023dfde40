"""Ids that no vocabulary has are refused before a search: each engine would take them for something else."""

from collections.abc import Iterable, Sequence

from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError


def check_ids(
    requests: Sequence[Request], settings: SearchSettings, *, source_vocab_size: int, target_vocab_size: int
) -> None:
    """Every id that a caller gave must be one of the model's."""
    _check("forbidden", settings.forbidden, target_vocab_size)
    if len(set(settings.forbidden)) == target_vocab_size:
        raise UserError("'forbidden': leaves nothing to write: these are all ids of the model; forbid fewer")
    for request in requests:
        _check("source", request.source, source_vocab_size)
        _check("prefix", request.prefix, target_vocab_size)
        for name, runs in (("required", request.required), ("forbidden", request.forbidden)):
            for run in runs:
                _check(name, run, target_vocab_size)


def _check(name: str, ids: Iterable[int], vocab_size: int) -> None:
    ids = list(ids)
    if ids and (min(ids) < 0 or max(ids) >= vocab_size):
        wrong = next(number for number in ids if not 0 <= number < vocab_size)
        raise UserError(f"'{name}': ids of this model lie between 0 and {vocab_size - 1:,}, found {wrong}")


def check_room(request: Request, limit: int) -> None:
    """What must be written must fit into what may be."""
    needed = sum(map(len, request.required))
    if needed > limit:
        raise UserError(f"'required': {needed:,} tokens must be written, and at most {limit:,} may be; raise max_len")


def nothing_found(request: Request, limit: int) -> UserError:
    """The error for a search that ended without any text, or with one that must not be."""
    if request.required:
        return UserError(
            f"'required': no text of at most {limit:,} tokens was found that has all of {list(request.required)}; "
            "raise max_len or beam, or require less"
        )
    return UserError(
        "nothing is left to write: 'forbidden', 'no_repeat_ngram' and 'min_len' together rule out every token; "
        "relax one of them"
    )
