"""What every engine does: requests in, hypotheses out."""

from collections.abc import Sequence
from typing import Protocol

from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings


class Engine(Protocol):
    """Searches for the best translations. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """What a user calls it."""

    def search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        """The n best of each request, best first, in the order of the requests."""
