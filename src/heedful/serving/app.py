"""The ASGI application: all routes and their handlers."""

import contextlib
from collections.abc import AsyncIterator, Mapping

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from heedful.serving.errors import ApiError
from heedful.serving.metrics import CONTENT_TYPE
from heedful.serving.middleware import RequestMiddleware
from heedful.serving.openapi import Manual, make_spec
from heedful.serving.request_parsing import JSON, authenticate
from heedful.serving.routes.compat import CompatApis
from heedful.serving.routes.libretranslate import LibreTranslate
from heedful.serving.routes.look import LookRoutes
from heedful.serving.routes.native import NativeApi
from heedful.serving.routes.static import File, Page
from heedful.serving.service import Service


def make_app(service: Service, *, page: Mapping[str, File] | None = None) -> Starlette:
    """Build the application of a service. No route takes a file path, loads a model or fetches anything."""
    libre, native, looking = LibreTranslate(service), NativeApi(service), LookRoutes(service)
    files, info = Page(page or {}), InfoRoutes(service)

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            looking.close()
            await service.close()

    return Starlette(
        routes=[
            Route("/translate", libre.translate, methods=["POST"]),
            Route("/detect", libre.detect, methods=["POST"]),
            Route("/languages", libre.languages),
            Route("/health", libre.health),
            Route("/frontend/settings", libre.settings),
            Route("/translate_file", libre.translate_file, methods=["POST"]),
            Route("/suggest", libre.suggest, methods=["POST"]),
            Route("/spec", info.spec),
            Route("/docs", info.manual.page),
            Route("/docs.css", info.manual.style),
            Route("/ready", info.ready),
            Route("/metrics", info.metrics),
            Route("/api/v1/translate", native.translate, methods=["POST"]),
            Route("/api/v1/translate/stream", native.stream, methods=["POST"]),
            Route("/api/v1/look", looking.look, methods=["POST"]),
            *CompatApis(service).routes(),
            *files.routes(),  # last, because Starlette tries routes in order and there are many files
        ],
        middleware=[Middleware(RequestMiddleware, service=service)],
        lifespan=running,
    )


class InfoRoutes:
    """Routes about the server itself: API description, manual, readiness and metrics."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._spec = make_spec(service.limits, service.pairs.codes)
        first = next(iter(service.pairs))
        self.manual = Manual(self._spec, source=first.source, target=first.target)

    async def spec(self, request: Request) -> Response:
        return JSON(self._spec)

    async def ready(self, request: Request) -> Response:
        state = self.service.state
        if state == "ready":
            return JSON({"status": state})
        return JSON({"status": state}, status_code=503, headers={"Retry-After": "1"})

    async def metrics(self, request: Request) -> Response:
        """Return Prometheus metrics. If the server has keys, answer 401 without one, as LibreTranslate does."""
        try:
            authenticate(request, {}, self.service)
        except ApiError:
            return PlainTextResponse("Unauthorized", status_code=401, headers={"WWW-Authenticate": "Bearer"})
        text = self.service.metrics.text(self.service.numbers())
        return PlainTextResponse(text, headers={"Content-Type": CONTENT_TYPE})
