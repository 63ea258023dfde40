"""Translation over HTTP: the server of `heedful serve`.

    from heedful.serving import Detector, Pairs, Service, make_app, open_pair

    app = make_app(Service(Pairs([open_pair("runs/en-de")]), Detector()))    # an ASGI application

A request passes middleware, a route (routes/), request_parsing, service and batching. The names below are imported when
they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.serving.app import make_app
    from heedful.serving.auth import Keys
    from heedful.serving.languages import Detector
    from heedful.serving.limits import Limits
    from heedful.serving.model_registry import Pair, Pairs, open_pair
    from heedful.serving.service import Service

__all__ = ["Detector", "Keys", "Limits", "Pair", "Pairs", "Service", "make_app", "open_pair"]

_MODULES = {
    "Detector": "languages",
    "Keys": "auth",
    "Limits": "limits",
    "Pair": "model_registry",
    "Pairs": "model_registry",
    "Service": "service",
    "make_app": "app",
    "open_pair": "model_registry",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
