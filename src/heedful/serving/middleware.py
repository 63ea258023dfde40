"""Middleware around every request: limits of its headers, response headers, errors without internals, metrics, log."""

import logging
import time
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serving.errors import ApiError, locate
from heedful.serving.request_parsing import JSON
from heedful.serving.service import ClientDisconnected, Service

log = logging.getLogger("heedful.serving")

# The page loads nothing from other servers and cannot be framed. Scripts may set styles, markup may not.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # As LibreTranslate does, allow pages of other sites to translate. The server sets no cookies.
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Content-Type, Authorization",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class RequestMiddleware:
    """Checks, answers, counts and logs every HTTP request.

    Starlette's own exception handlers run inside the middleware stack and re-raise unknown errors with their message,
    which may quote a client's text; errors of this middleware's own checks would not reach them.
    """

    def __init__(self, app: ASGIApp, *, service: Service) -> None:
        self.app, self.service = app, service
        self.limits, self.metrics = service.limits, service.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        try:
            await self._answer(scope, receive, sending, started=lambda: status != 0)
        finally:
            seconds = time.monotonic() - started
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.count(route, status, seconds)
            log.info(
                "%s %s %d %.3f s", scope["method"][:10] if scope["method"].isalpha() else "?", route, status, seconds
            )

    async def _answer(self, scope: Scope, receive: Receive, send: Send, *, started: Callable[[], bool]) -> None:
        try:
            if scope["method"] == "OPTIONS":
                await Response(status_code=204)(scope, receive, send)
                return
            self._check_head(scope)
            if self.service.n_connections() > self.limits.connections:
                raise TooManyConnections
            await self.app(scope, receive, send)
        except ClientDisconnected:
            self.metrics.gone += 1
        except ApiError as error:
            answer = JSON({"error": error.message}, status_code=error.status, headers=error.headers)
            await answer(scope, receive, send)
        except Exception as error:
            log.error("%s", locate(error))
            if started():
                raise  # part of the response is sent: break the connection, or the client would take it as complete
            await JSON({"error": "Cannot translate text"}, status_code=500)(scope, receive, send)

    def _check_head(self, scope: Scope) -> None:
        head = scope["headers"]
        size = sum(len(name) + len(value) + 4 for name, value in head) + len(scope.get("raw_path") or b"")
        if len(head) > self.limits.header_fields or size > self.limits.header_bytes:
            raise ApiError(431, "Invalid request: too many or too large headers")
        if len(scope["query_string"]) > self.limits.body_bytes:
            raise ApiError(414, "Invalid request: the address is too long")


class TooManyConnections(ApiError):
    """The error of a connection beyond the limit; the connection is closed."""

    def __init__(self) -> None:
        super().__init__(429, "Slowdown: the server has too many connections", retry_after=1)

    @property
    def headers(self) -> dict[str, str]:
        return super().headers | {"Connection": "close"}
