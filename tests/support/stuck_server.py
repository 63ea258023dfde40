"""`heedful` with an engine that never finishes a long text, and with looks that never end."""

import sys
import time
from collections.abc import Sequence

import echo_engine
from heedful.cli.main import main
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.serving.routes.look import LookRoutes

LONG = 20  # tokens


class StuckEngine(echo_engine.EchoEngine):
    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        if any(len(request) > LONG for request in requests):
            time.sleep(600)
        return super().search(requests, settings)


if __name__ == "__main__":
    echo_engine.install(engine=StuckEngine())
    LookRoutes._model = lambda looking, pair: None  # type: ignore[assignment,method-assign,return-value]
    LookRoutes._trace = lambda looking, asked, look_model: time.sleep(600)  # type: ignore[assignment,method-assign]
    main(sys.argv[1:])
