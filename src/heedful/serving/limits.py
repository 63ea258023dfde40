"""Every bound of the server in one place. What is beyond is refused at once, and said.

How many texts a client may ask for in a minute: a bucket for each that fills again as time goes by.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields

from heedful.errors import UserError
from heedful.serving.errors import ApiError


@dataclass(frozen=True)
class Limits:
    """What one request, one client and the queue may hold. `heedful serve --set texts=32` changes one."""

    body_bytes: int = 1 << 20
    header_bytes: int = 16 << 10
    header_fields: int = 100
    texts: int = 64  # of one request
    characters: int = 5_000  # of one text
    beam: int = 8
    max_len: int = 512  # the most tokens that a client may ask for
    alternatives: int = 7  # beside the best: n_best is at most the beam
    queue_requests: int = 128  # accepted and not yet answered
    # Both count a character of Chinese or Japanese as four (`backlog.size_of`): about a quarter as many tokens.
    queue_characters: int = 65_536  # a request alone may have more
    batch_characters: int = 16_384  # that are decoded together; a quarter of the queue
    requests_per_minute: int = 0  # of one key or, without keys, one address; each text counts; 0: no such limit
    connections: int = 900
    receive_seconds: float = 8.0  # from the first byte of a request to its last; for the first, from the connection
    idle_seconds: float = 5.0  # a connection that asks nothing more, after an answer
    request_seconds: float = 30.0  # from acceptance to the answer
    drain_seconds: float = 30.0  # after SIGTERM

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in ("alternatives", "requests_per_minute") else 1
            if getattr(self, field.name) < least and field.type is int:
                raise UserError(f"'{field.name}' must be at least {least}, found {getattr(self, field.name)}")
            if field.type is float and not 0 < getattr(self, field.name) <= 86_400:
                raise UserError(f"'{field.name}' must lie between 0 and 86,400 s, found {getattr(self, field.name)}")
        if self.alternatives >= self.beam:
            raise UserError(f"alternatives = {self.alternatives}: with the best one, a beam of {self.beam} has fewer")


MOST_CLIENTS = 10_000


class Rate:
    """Forgets the clients that have asked nothing for longest, so that its memory is bounded."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client -> texts left, when

    def spend(self, client: str, n_texts: int) -> None:
        """Raises a Refusal if the client has asked for too much."""
        if self.per_minute == 0:
            return
        now = self._clock()
        left, before = self._left.pop(client, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - before) * self.per_minute / 60.0)
        cost = min(n_texts, self.per_minute)  # a large request waits for a full bucket, but not for ever
        is_enough = left >= cost
        self._left[client] = (left - cost if is_enough else left, now)
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        if not is_enough:
            seconds = int((cost - left) * 60.0 / self.per_minute) + 1
            raise ApiError(429, f"Slowdown: {self.per_minute} per 1 minute", retry_after=seconds)
