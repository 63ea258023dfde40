"""Around every request: bounds on its head, headers of its answer, and errors that say nothing of the inside."""

import logging
import time
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serving.errors import ApiError, where
from heedful.serving.request_parsing import JSON
from heedful.serving.service import ClientDisconnected, Service

log = logging.getLogger("heedful.serving")

# The page loads nothing from elsewhere and is shown in no frame. Inline styles may be set by scripts, never by markup.
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
    # As LibreTranslate does: pages of other sites may translate. No cookie is ever set, so nothing of a user is shared.
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Content-Type, Authorization",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class RequestMiddleware:
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
                raise Crowded
            await self.app(scope, receive, send)
        except ClientDisconnected:
            self.metrics.gone += 1
        except ApiError as refusal:
            answer = JSON({"error": refusal.words}, status_code=refusal.status, headers=refusal.headers)
            await answer(scope, receive, send)
        except Exception as error:
            log.error("%s", where(error))
            if started():
                raise  # the answer is half sent: the connection must break, or it would pass for whole
            await JSON({"error": "Cannot translate text"}, status_code=500)(scope, receive, send)

    def _check_head(self, scope: Scope) -> None:
        head = scope["headers"]
        size = sum(len(name) + len(value) + 4 for name, value in head) + len(scope.get("raw_path") or b"")
        if len(head) > self.limits.header_fields or size > self.limits.header_bytes:
            raise ApiError(431, "Invalid request: too many or too large headers")
        if len(scope["query_string"]) > self.limits.body_bytes:
            raise ApiError(414, "Invalid request: the address is too long")


class Crowded(ApiError):
    """More connections than may be open: this one is closed."""

    def __init__(self) -> None:
        super().__init__(429, "Slowdown: the server has too many connections", retry_after=1)

    @property
    def headers(self) -> dict[str, str]:
        return super().headers | {"Connection": "close"}
