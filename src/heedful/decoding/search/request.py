"""What goes into a search and what comes out of it: ids, whatever finds them. Imports no torch.

Ids that no vocabulary has are refused before a search: each engine would take them for something else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError


@dataclass(frozen=True)
class Request:
    """One sentence to translate."""

    source: Sequence[int]  # ids without marks; the engine adds the end mark
    prefix: Sequence[int] = ()  # the translation begins with these ids
    required: Sequence[Sequence[int]] = ()  # each of these runs of ids must be in it somewhere
    forbidden: Sequence[Sequence[int]] = ()  # none of these runs of ids may be in it
    continues: bool = False  # the source is a prompt, and what is written goes on from it
    place: tuple[int, int] | None = None  # which text, and which piece of it: draws depend on it; None: by the call

    def __len__(self) -> int:
        return len(self.source) + 1


@dataclass(frozen=True)
class Hypothesis:
    """One translation, as ids without marks."""

    ids: list[int]
    score: float  # sum of the natural log-probabilities of its tokens and, if it is complete, of its end mark
    normalized_score: float  # what the search ranked it by: the score after the penalties
    complete: bool = True  # it ended by itself, not at the limit of its length
    attention: list[list[float]] | None = None  # one row for each id: how much it looked at each source id and the end


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
