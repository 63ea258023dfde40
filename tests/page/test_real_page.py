"""The page of `heedful serve` with a real model: it shows what the model computes offline."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from browser_page import Watched, drawn, expect, playwright
from heedful.decoding.translator import Translator
from heedful.insight.inputs import LookModel, open_look_model
from heedful.insight.look import Look, look
from real_server import make_folder, real_server

TEXT = "A dog sleeps in the snow."
TEXTS = (
    TEXT,
    "A dog runs.",
    "Two dogs sleep.",
    "The animal was too tired.",
    "A big man eats bread.",
    "Bread in the snow.",
)


@dataclass(frozen=True)
class Served:
    """A server, and a second copy of its model."""

    address: str
    translator: Translator
    look_model: LookModel


@pytest.fixture(scope="module")
def server(browser: "playwright.Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = make_folder(tmp_path_factory.mktemp("real") / "model")
    with real_server(folder, "--engine", "torch") as running:
        yield Served(f"{running.url}/", Translator.load(folder, engine="torch"), open_look_model(folder))


@pytest.fixture(scope="module")
def offline(server: Served) -> Look:
    return look(server.look_model, TEXT, beam=5)


def opened(tab: Watched, server: Served, **state: object):
    more = "".join(f"&{name}={value}" for name, value in state.items())
    tab.page.goto(f"{server.address}#page=look&from=en&to=de&q={TEXT.replace(' ', '+')}{more}")
    tab.page.wait_for_selector(".sentence")
    return drawn(tab.page)


def test_a_text_is_translated_and_looked_into(tab: Watched, server: Served, offline: Look) -> None:
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", TEXT)
    expect(page, "output").to_have_text(server.translator.translate(TEXT, beam=5))
    expect(page, ".alternatives li").not_to_have_count(0)
    page.click(".pane-foot .primary")
    expect(page, ".sentence .source").to_contain_text(TEXT)
    expect(page, ".sentence .target").to_contain_text(offline.target.text)
    assert tab.hosts == {server.address.split("/")[2]}


def test_look_searches_like_the_translation_beside_it(tab: Watched, server: Served, tmp_path: Path) -> None:
    """The page requests two alternatives, so the server searches with a beam wider than 1, and so must Look."""
    wide, narrow = ({text: server.translator.translate(text, beam=beam) for text in TEXTS} for beam in (3, 1))
    text = next(text for text in TEXTS if wide[text] != narrow[text])
    page = tab.page
    with real_server(make_folder(tmp_path / "model"), "--engine", "torch", "--beam", "1") as running:
        page.goto(f"{running.url}/")
        page.fill("textarea", text)
        expect(page, "output").to_have_text(wide[text])
        page.click(".pane-foot .primary")
        expect(page, ".sentence .target bdi").to_have_text(wide[text])
        expect(page, ".sentence").not_to_contain_text("differs from the one")
        page.click("#view-beam")
        expect(page, ".view .lead").to_contain_text("Beam of 3,")
        page.click("#view-output")
        page.fill("form.reference input", narrow[text])
        page.keyboard.press("Enter")
        expect(page, ".sentence .badge").to_have_count(1)
        expect(page, ".view").to_contain_text(f"The model's own translation: {wide[text]}")


def test_look_shows_each_line_as_it_was_translated(tab: Watched, server: Served) -> None:
    lines = ["A dog runs.", "Two dogs sleep. The animal was tired."]
    page = tab.page
    page.goto(server.address)
    page.fill("textarea", "\n".join(lines))
    expect(page, "output").to_have_text(server.translator.translate("\n".join(lines), beam=5))
    translated = page.inner_text("output").split("\n")
    page.click(".pane-foot .primary")
    for number, line in enumerate(lines):
        page.click(f"#piece-{number}")
        expect(page, ".sentence .source").to_have_text(line)
        expect(page, ".sentence .target bdi").to_have_text(translated[number])


def read_out(page) -> tuple[str, str, float]:
    """Return row, column and value of the text under the matrix."""
    text = drawn(page).inner_text(".matrix .readout")
    found = re.match(r"(\S+) → (\S+) (\d[\d.]*(?:e−\d+)?)", text)
    assert found, text
    return found[1], found[2], float(found[3].replace("−", "-"))


def names(tab: Look, kind: str, place: tuple[int, ...]) -> tuple[str, str]:
    """Return the tokens of a row and a column; a token may occur several times."""
    rows = tab.source.tokens if kind == "encoder" else tab.target.tokens
    columns = tab.target.inputs if kind == "decoder" else tab.source.tokens
    return rows[place[0]], columns[place[1]]


@pytest.mark.parametrize(("kind", "layer", "head"), [("cross", 0, 2), ("encoder", 1, 3), ("decoder", 1, 0)])
def test_a_cell_shows_the_number_of_the_model(
    tab: Watched, server: Served, offline: Look, kind: str, layer: int, head: int
) -> None:
    page = opened(tab, server)
    page.click(f"text={kind.capitalize()} >> nth=0")
    page.locator("fieldset", has_text="Layer").locator("label").nth(layer).click()
    page.click(f"[aria-label='head {head + 1}']")
    expect(page, "h3.title").to_contain_text(f"layer {layer + 1}, head {head + 1}")
    page.focus(".matrix-scroll")
    weights = offline.attention[kind].weights.values[layer, head]
    for key, place in (("ArrowDown", (0, 0)), ("ArrowDown", (1, 0)), ("End", (1, weights.shape[1] - 1))):
        page.keyboard.press(key)
        assert read_out(page) == (*names(offline, kind, place), pytest.approx(float(weights[place]), abs=6e-5))
    box = page.locator(".matrix-scroll").bounding_box()
    met = set()
    for right, down in ((0.2, 0.4), (0.25, 0.6), (0.35, 0.7), (0.3, 0.9)):  # where a decoder has written already
        page.mouse.move(box["x"] + right * box["width"], box["y"] + down * box["height"])
        row, column, value = read_out(page)
        places = [place for place in np.ndindex(weights.shape) if names(offline, kind, place) == (row, column)]
        assert any(value == pytest.approx(float(weights[place]), abs=6e-5) for place in places)
        assert page.inner_text(".tip strong") in page.inner_text(".matrix .readout")
        met.add((row, column, value))
    assert len(met) > 1 and any(value > 0 for _, _, value in met)


def test_a_branch_of_the_beam_is_forced(tab: Watched, server: Served, offline: Look) -> None:
    page = opened(tab, server, view="beam")
    node = page.locator(".node.pruned").first
    number = int(node.get_attribute("data-node"))
    events = {event.node: event for event in offline.beam.events}
    prefix: list[int] = []
    while number:
        prefix.insert(0, events[number].id)
        number = events[number].parent
    node.click()
    page.click("text=Force this branch")
    expect(page, ".sentence .badge").to_have_count(1)
    forced = look(server.look_model, TEXT, beam=5, prefix=prefix)
    expect(page, ".sentence .target bdi").to_have_text(forced.target.text)
    assert forced.target.text != offline.target.text


def test_a_head_is_ablated(tab: Watched, server: Served) -> None:
    page = opened(tab, server, view="layers")
    page.click("text=Ablate this head")
    page.click("text=Look again")
    expect(page, ".changed").to_contain_text("without Cross-attention, layer 1, head 1")
    changed = look(server.look_model, TEXT, beam=5, without_heads=[("cross", 0, 0)])
    expect(page, ".sentence .target bdi").to_have_text(changed.target.text)


def test_every_view_opens_in_both_languages(tab: Watched, server: Served) -> None:
    page = opened(tab, server)
    for lang in ("en", "zh-Hans"):
        expect(page, "html").to_have_attribute("lang", lang)
        for view in ("attention", "walk", "output", "beam", "positions", "layers", "examples"):
            page.click(f"#view-{view}")
            expect(page, f"#view-{view}").to_have_attribute("aria-current", "page")
            expect(page, "main .view > *").not_to_have_count(0)
        if lang == "en":
            page.click("#language")
    assert tab.hosts == {server.address.split("/")[2]}


def test_a_file_comes_back_line_by_line(tab: Watched, server: Served, tmp_path: Path) -> None:
    lines = ["A dog runs.", "", "Two dogs sleep.", "The animal was tired."]
    file = tmp_path / "text.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    page = tab.page
    page.goto(server.address)
    page.wait_for_selector("textarea")
    with page.expect_download() as download:
        page.set_input_files("input[type=file]", file)
    found = Path(download.value.path()).read_text(encoding="utf-8")
    assert found == "\n".join(server.translator.translate(line, beam=5) if line else "" for line in lines) + "\n"
