"""Errors that a client receives: one sentence without internals; and the location of an error for the log."""

import traceback


class ApiError(Exception):
    """An error with an HTTP status and a message; `retry_after` in whole seconds if a later request may succeed."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The response headers."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def busy(retry_after: int) -> ApiError:
    """Build the error of a full queue: 429, because clients of LibreTranslate retry after it."""
    return ApiError(429, "Slowdown: the server is busy", retry_after=retry_after)


def stopping() -> ApiError:
    """Build the error of a server that is shutting down."""
    return ApiError(503, "The server is stopping", retry_after=5)


def timed_out(retry_after: int) -> ApiError:
    """Build the error of a request that was not answered within the time limit."""
    return ApiError(503, "The translation took too long", retry_after=retry_after)


def quoted(value: object, *, most: int = 40) -> str:
    """Shorten a client's value to one printable line, to quote it in an error."""
    text = "".join(character if character.isprintable() else " " for character in str(value)[: most + 1])
    return text if len(text) <= most else text[:most] + "…"


def locate(error: BaseException) -> str:
    """Describe the type and traceback of an error for the log, without its message: it may quote a client."""
    lines = []
    cause: BaseException | None = error
    while cause is not None:
        lines += [f"{type(cause).__name__} at", *traceback.format_tb(cause.__traceback__)]
        cause = cause.__cause__
    return "\n".join(line.rstrip() for line in lines)
