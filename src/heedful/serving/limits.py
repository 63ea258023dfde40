"""The limits of the server: sizes and times of requests, and a token bucket per client for the rate of texts."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields

from heedful.errors import UserError
from heedful.serving.errors import ApiError


@dataclass(frozen=True)
class Limits:
    """Limits of one request, one client and the queue. `heedful serve --set texts=32` changes a limit."""

    body_bytes: int = 1 << 20
    header_bytes: int = 16 << 10
    header_fields: int = 100
    texts: int = 64  # of one request
    characters: int = 5_000  # of one text
    beam: int = 8
    max_len: int = 512  # the most tokens that a client may ask for
    alternatives: int = 7  # in addition to the best translation, so fewer than the beam
    queue_requests: int = 128  # accepted and not yet answered
    # Both count a character of Chinese or Japanese as four (`batching.size_of`): it gives about four times the tokens.
    queue_characters: int = 65_536  # a request that is alone may have more
    batch_characters: int = 16_384  # decoded together; a quarter of the queue
    requests_per_minute: int = 0  # per key or, without keys, per address; each text counts as one; 0: unlimited
    connections: int = 900
    receive_seconds: float = 8.0  # from the first byte of a request (or the connection) to its last byte
    idle_seconds: float = 5.0  # how long a connection stays open after a response
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
            raise UserError(f"alternatives = {self.alternatives}: must be less than beam = {self.beam}")


MOST_CLIENTS = 10_000


class RateLimiter:
    """A token bucket per client. The buckets of the least recent clients are discarded, so memory is bounded."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client -> (texts left, time)

    def spend(self, client: str, n_texts: int) -> None:
        """Take `n_texts` from the client's bucket; raise a 429 if it has too few."""
        if self.per_minute == 0:
            return
        now = self._clock()
        left, before = self._left.pop(client, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - before) * self.per_minute / 60.0)
        cost = min(n_texts, self.per_minute)  # a request that is larger than the bucket needs a full bucket
        is_enough = left >= cost
        self._left[client] = (left - cost if is_enough else left, now)
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        if not is_enough:
            seconds = int((cost - left) * 60.0 / self.per_minute) + 1
            raise ApiError(429, f"Slowdown: {self.per_minute} per 1 minute", retry_after=seconds)
