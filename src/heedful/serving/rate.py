"""How many texts a client may ask for in a minute: a bucket for each that fills again as time goes by."""

import time
from collections import OrderedDict
from collections.abc import Callable

from heedful.serving.refusals import Refusal

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
            raise Refusal(429, f"Slowdown: {self.per_minute} per 1 minute", retry_after=seconds)
