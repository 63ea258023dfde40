"""The trials of a server accept a different translation only if rounding may decide between the candidates."""

import math
from pathlib import Path

import pytest

from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translator import Translator
from real_server import make_folder
from serve_load import Watching


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> Translator:
    folder: Path = tmp_path_factory.mktemp("close") / "model"
    make_folder(folder)
    return Translator.load(folder, engine="torch")


def test_who_watches_changes_nothing(translator: Translator) -> None:
    requests, settings = [Request([5, 6, 7]), Request([9, 8])], SearchSettings(beam=2, max_len=8)
    watching = Watching(translator.engine)
    assert [[one.ids for one in best] for best in watching.search(requests, settings)] == [
        [one.ids for one in best] for best in translator.engine.search(requests, settings)
    ]
    assert 0.0 <= watching.narrowest < math.inf


def test_the_narrowest_choice_is_between_the_last_that_goes_on_and_the_first_that_does_not() -> None:
    watching = Watching.__new__(Watching)
    watching.narrowest = math.inf
    watching._look([-1.0, -1.0, -4.0, -4.5], beam=2)  # equals that both go on are no close call
    watching._look([-2.0, -3.0, -3.25], beam=2)
    watching._look([-1.0, -1.0], beam=2)  # nobody stays behind
    assert watching.narrowest == 0.25
