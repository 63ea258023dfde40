"""Metrics in Prometheus' text format. Labels are routes, statuses and language pairs, no addresses, keys or texts."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, dict[str, str], float]  # suffix of the name, labels, value
Family = tuple[str, str, str, Iterable[Sample]]  # name, type, help, samples


class Metrics:
    """Counters of requests, for the event loop only."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # (route, status)
        self.texts = 0
        self.characters = 0
        self.gone = 0  # clients that disconnected before the response
        self._seconds: dict[str, list[int]] = {}  # route -> number of requests in each bucket
        self._total_seconds: dict[str, float] = {}

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self.requests[route, status] += 1
        counts = self._seconds.setdefault(route, [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, seconds)] += 1
        self._total_seconds[route] = self._total_seconds.get(route, 0.0) + seconds

    def text(self, more: Iterable[Family]) -> str:
        """Render these metrics and `more` families."""
        own: list[Family] = [
            ("requests_total", "counter", "Requests that were answered.", self._requests()),
            ("texts_total", "counter", "Texts that were translated.", [("", {}, self.texts)]),
            ("characters_total", "counter", "Characters of those texts.", [("", {}, self.characters)]),
            ("gone_total", "counter", "Clients that disconnected before the response.", [("", {}, self.gone)]),
            ("request_seconds", "histogram", "From the request to the end of the response.", self._histogram()),
        ]
        return "".join(f"{line}\n" for family in [*own, *more] for line in _lines(*family))

    def _requests(self) -> list[Sample]:
        return [("", {"route": r, "status": str(s)}, n) for (r, s), n in sorted(self.requests.items())]

    def _histogram(self) -> Iterator[Sample]:
        for route, counts in sorted(self._seconds.items()):
            total = 0
            for bound, n in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
                total += n
                yield "_bucket", {"route": route, "le": bound}, total
            yield "_sum", {"route": route}, self._total_seconds[route]
            yield "_count", {"route": route}, total


def _lines(name: str, kind: str, description: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP heedful_{name} {description}"
    yield f"# TYPE heedful_{name} {kind}"
    for suffix, labels, value in samples:
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        yield f"heedful_{name}{suffix}{f'{{{inside}}}' if inside else ''} {value!r}"
