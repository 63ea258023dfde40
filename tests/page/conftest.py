"""The browser and the page file of the page tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser_page import Watched, chromium, playwright, watched
from example_trace import Values, make_trace
from heedful.insight.html_export import stand_alone_page


@pytest.fixture(scope="module")  # while it is open, Playwright's event loop is in the way of others
def browser() -> Iterator["playwright.Browser"]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def data() -> Values:
    return make_trace()


@pytest.fixture(scope="session")
def page_file(data: Values, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(stand_alone_page(data), encoding="utf-8")
    return path


@pytest.fixture
def tab(browser: "playwright.Browser") -> Iterator[Watched]:
    with watched(browser) as page:
        yield page
