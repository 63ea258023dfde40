"""What a client is told instead of an answer: one sentence, never anything of the inside; and what the log is told."""

import traceback


class ApiError(Exception):
    """An error with its HTTP status; `retry_after` in whole seconds, for what may work later."""

    def __init__(self, status: int, words: str, *, retry_after: int | None = None) -> None:
        super().__init__(words)
        self.status, self.words, self.retry_after = status, words, retry_after

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def busy(retry_after: int) -> ApiError:
    """429 and not 503: clients of LibreTranslate know it, and come back."""
    return ApiError(429, "Slowdown: the server is busy", retry_after=retry_after)


def stopping() -> ApiError:
    return ApiError(503, "The server is stopping", retry_after=5)


def late(retry_after: int) -> ApiError:
    return ApiError(503, "The translation took too long", retry_after=retry_after)


def quoted(given: object, *, most: int = 40) -> str:
    """What a client sent, to be said back to it: short, on one line."""
    words = "".join(character if character.isprintable() else " " for character in str(given)[: most + 1])
    return words if len(words) <= most else words[:most] + "…"


def where(error: BaseException) -> str:
    """What failed and where, without the error's own words: they may quote what a client sent."""
    lines = []
    cause: BaseException | None = error
    while cause is not None:
        lines += [f"{type(cause).__name__} at", *traceback.format_tb(cause.__traceback__)]
        cause = cause.__cause__
    return "\n".join(line.rstrip() for line in lines)
