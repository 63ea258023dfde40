"""A real browser for the tests of the page, which records console messages and requests.

Tests wait for an event, never for a time to pass, because a busy machine is slow.
"""

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
PATIENCE = 30_000  # ms
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass
class Watched:
    """A page with its console messages and its requests."""

    page: "playwright.Page"
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path, **state: object) -> "playwright.Page":
        """Open a file in a state. Via about:blank: otherwise the browser would not load the same file again."""
        self.page.goto("about:blank")
        self.page.goto(f"{path.as_uri()}#{'&'.join(f'{name}={value}' for name, value in state.items())}")
        self.page.wait_for_selector("main .view > *")
        return drawn(self.page)

    @property
    def hosts(self) -> set[str]:
        return {address.split("/")[2] for address in self.requests}


def drawn(page: "playwright.Page") -> "playwright.Page":
    """Wait until the page has painted all changes, which it does once per frame."""
    page.evaluate(TWO_FRAMES)
    return page


def expect(page: "playwright.Page", place: str) -> "playwright.LocatorAssertions":
    """Return assertions about an element, which wait until they hold."""
    return playwright.expect(page.locator(place))


@contextmanager
def chromium() -> Iterator["playwright.Browser"]:
    if playwright is None:
        pytest.skip("playwright is not installed (pip install heedful[dev])")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=FLAGS, timeout=4 * PATIENCE)
        yield browser
        browser.close()


@contextmanager
def watched(
    browser: "playwright.Browser", *, width: int = 1100, height: int = 1100, **options: str
) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB", **options)
    context.set_default_timeout(PATIENCE)
    tab = Watched(context.new_page())
    tab.page.on(
        "console", lambda message: tab.complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.page.on("request", lambda asked: tab.requests.append(asked.url) if asked.url != "about:blank" else None)
    yield tab
    context.close()
    assert not tab.complaints, tab.complaints
