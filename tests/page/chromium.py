"""A real browser for the page's tests, watched: what it complains about and what it asks for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

try:
    import playwright.sync_api as playwright
except ImportError:
    playwright = None

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@dataclass
class Watched:
    """A page, and what happened on it."""

    page: "playwright.Page"
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path, **state: object) -> "playwright.Page":
        self.page.goto(f"{path.as_uri()}#{'&'.join(f'{name}={value}' for name, value in state.items())}")
        self.page.wait_for_selector("main")
        return self.page


@contextmanager
def chromium() -> Iterator["playwright.Browser"]:
    if playwright is None:
        pytest.skip("playwright is not installed (pip install heedful[dev])")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def watched(
    browser: "playwright.Browser", *, width: int = 1100, height: int = 1100, **wishes: str
) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB", **wishes)
    context.set_default_timeout(8_000)
    seen = Watched(context.new_page())
    seen.page.on(
        "console", lambda said: seen.complaints.append(said.text) if said.type in ("error", "warning") else None
    )
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("request", lambda asked: seen.requests.append(asked.url))
    yield seen
    context.close()
    assert not seen.complaints, seen.complaints
