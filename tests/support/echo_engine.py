"""An engine that returns its input, so that a test knows every translation; and its tokenizers.

As a program it is `heedful` with this engine: python echo_engine.py translate -m FOLDER
"""

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from heedful.cli.main import main
from heedful.config import config_to_dict
from heedful.decoding import translator
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.models.configs import Seq2SeqConfig
from heedful.models.model_info import FORMAT
from heedful.text import TokenizerConfig, Tokenizers, learn_tokenizers

LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ .,;:!?"


@functools.cache
def tokenizers() -> Tokenizers:
    """Return tokenizers with a token for each Latin letter, and one for each byte of other characters."""
    config = TokenizerConfig(kind="char", vocab_size=400, unicode_form="none")
    return learn_tokenizers([LETTERS], [LETTERS], config)


class EchoEngine:
    """An echo: candidate k lacks the last k tokens and has the score -k; token i attends to source token i."""

    name = "echo"

    def __init__(self, change: Callable[[list[int]], list[int]] = list) -> None:
        self.change = change
        self.asked: list[Request] = []

    def why_not(self, requests: Sequence[Request], settings: SearchSettings) -> str | None:
        return None

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        yield self.search([request], settings)[0][0].ids

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        self.asked += requests
        assert all(request.source for request in requests), "there is nothing to translate in that"
        return [[self._candidate(request, k, settings) for k in range(settings.n_best)] for request in requests]

    def _candidate(self, request: Request, k: int, settings: SearchSettings) -> Hypothesis:
        ids = self.change(list(request.source))
        ids = ids[: len(ids) - k]
        rows = [[float(i == j) for j in range(len(request))] for i in range(len(ids))]
        return Hypothesis(
            ids, score=-float(k), normalized_score=-float(k), attention=rows if settings.attention else None
        )


class SlowEngine(EchoEngine):
    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        time.sleep(0.2)
        return super().search(requests, settings)


def model_folder(folder: Path, *, max_len: int = 64, positions: str = "sinusoidal") -> Path:
    """Write a model folder with a config and without weights, which the echo does not need."""
    folder.mkdir(parents=True, exist_ok=True)
    config = Seq2SeqConfig(10, 10, max_len=max_len, positions=positions)  # type: ignore[arg-type]
    values = {"format": FORMAT, "family": "seq2seq", **config_to_dict(config)}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def install(set_attribute: Callable[[object, str, object], None] = setattr, engine: EchoEngine | None = None) -> None:
    """Make Translator.load return an echo."""
    echo = engine or EchoEngine()
    set_attribute(translator, "open_engine", lambda path, **_: echo)
    set_attribute(translator, "open_tokenizers", lambda path, engine: tokenizers())


if __name__ == "__main__":
    install(engine=SlowEngine() if "--slow" in sys.argv else None)
    main([argument for argument in sys.argv[1:] if argument != "--slow"])
