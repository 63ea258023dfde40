"""What was found for earlier blocks of one text: a line that comes again, however far below, is not searched for again.

Menus, subtitles and logs repeat themselves. Memory is bounded: what was not needed for longest is forgotten first.
"""

from collections.abc import Callable, Sequence

from heedful.decoding.search.request import Hypothesis, Request

MOST_NUMBERS = 1_000_000  # ids and attention weights that are kept: some ten thousands of sentences, some ten megabytes

Key = tuple[tuple[int, ...], tuple[int, ...]]  # of source and prefix: all else is the same for all lines of a text
Search = Callable[[Sequence[Request]], list[list[Hypothesis]]]


class Repeats:
    """For one search with one wording."""

    def __init__(self, most_numbers: int = MOST_NUMBERS) -> None:
        self._most = most_numbers
        self._kept: dict[Key, tuple[list[Hypothesis], int]] = {}  # the one that was needed last stands last
        self._numbers = 0

    def find(self, requests: Sequence[Request], search: Search) -> list[list[Hypothesis]]:
        """What is known, and what `search` finds for the rest, in the order of the requests."""
        keys = [(tuple(request.source), tuple(request.prefix)) for request in requests]
        found = {key: self._kept[key][0] for key in keys if key in self._kept}
        unknown = {key: request for key, request in zip(keys, requests, strict=True) if key not in found}
        if unknown:
            found |= zip(unknown, search(list(unknown.values())), strict=True)
        for key in dict.fromkeys(keys):
            self._keep(key, found[key])
        return [found[key] for key in keys]

    def _keep(self, key: Key, hypotheses: list[Hypothesis]) -> None:
        _, size = self._kept.pop(key, ([], 0))
        self._numbers -= size
        size = len(key[0]) + sum(map(_size, hypotheses))
        self._kept[key] = (hypotheses, size)
        self._numbers += size
        while self._numbers > self._most:
            oldest = next(iter(self._kept))
            self._numbers -= self._kept.pop(oldest)[1]


def _size(hypothesis: Hypothesis) -> int:
    rows = hypothesis.attention
    return len(hypothesis.ids) + (len(rows) * len(rows[0]) if rows else 0)
