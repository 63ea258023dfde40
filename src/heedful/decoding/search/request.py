"""The input and output of a search, as token ids, and checks of them. Imports no torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError


@dataclass(frozen=True)
class Request:
    """One text to search a continuation or translation of.

    >>> Request([17, 9], prefix=[5], required=[[8, 4]], forbidden=[[6]])
    Request(source=[17, 9], prefix=[5], required=[[8, 4]], forbidden=[[6]], continues=False, sample_key=None)
    """

    source: Sequence[int]  # ids without special tokens; the engine adds the end of the text
    prefix: Sequence[int] = ()  # the target begins with these ids
    required: Sequence[Sequence[int]] = ()  # each of these sequences of ids occurs somewhere in the target
    forbidden: Sequence[Sequence[int]] = ()  # none of these sequences of ids occurs in the target
    continues: bool = False  # the source is a prompt, and the target continues it
    sample_key: tuple[int, int] | None = None  # (text, segment): what sampling depends on; None: the index in the call

    def __len__(self) -> int:
        return len(self.source) + 1  # with the end of the text


@dataclass(frozen=True)
class Hypothesis:
    """One result of a search."""

    ids: list[int]  # without special tokens
    score: float  # sum of the natural log-probabilities of its tokens and, if it is complete, of the end of the text
    normalized_score: float  # the score after the penalties; results are sorted by it
    complete: bool = True  # whether the text ended before the length limit
    attention: list[list[float]] | None = None  # for each id, its attention to each source id and the end of the source


def check_ids(
    requests: Sequence[Request], settings: SearchSettings, *, source_vocab_size: int, target_vocab_size: int
) -> None:
    """Refuse ids that the model's vocabularies do not have: engines would take them for other ids."""
    _check("forbidden", settings.forbidden, target_vocab_size)
    if len(set(settings.forbidden)) == target_vocab_size:
        raise UserError("'forbidden': leaves nothing to write: these are all ids of the model; forbid fewer")
    for request in requests:
        _check("source", request.source, source_vocab_size)
        _check("prefix", request.prefix, target_vocab_size)
        for name, sequences in (("required", request.required), ("forbidden", request.forbidden)):
            for ids in sequences:
                _check(name, ids, target_vocab_size)


def _check(name: str, ids: Iterable[int], vocab_size: int) -> None:
    ids = list(ids)
    if ids and (min(ids) < 0 or max(ids) >= vocab_size):
        wrong = next(id for id in ids if not 0 <= id < vocab_size)
        raise UserError(f"'{name}': ids of this model lie between 0 and {vocab_size - 1:,}, found {wrong}")


def check_room(request: Request, limit: int) -> None:
    """Refuse required tokens that do not fit into the length limit."""
    needed = sum(map(len, request.required))
    if needed > limit:
        raise UserError(f"'required': {needed:,} tokens must be written, and at most {limit:,} may be; raise max_len")


def nothing_found(request: Request, limit: int) -> UserError:
    """Make the error for a search whose constraints ruled out every text."""
    if request.required:
        return UserError(
            f"'required': no text of at most {limit:,} tokens was found that has all of {list(request.required)}; "
            "raise max_len or beam, or require less"
        )
    return UserError(
        "nothing is left to write: 'forbidden', 'no_repeat_ngram' and 'min_len' together rule out every token; "
        "relax one of them"
    )
