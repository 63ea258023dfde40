"""The page of a real model of every family: it opens from disk, shows the numbers of the trace and sends no request."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from browser_page import Watched, drawn, expect
from deterministic import fill
from encoder_models import bert_folder, own_tokenizers, picture, vit_folder
from heedful.cli.main import run
from heedful.insight.packed_arrays import unpack
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.text import TokenizerConfig, learn_tokenizers
from look_models import other_look_model, tokenizers

pytest.importorskip("PIL.Image", reason="Pillow is not installed: heedful[images]")

SENTENCE = "A dog runs."
# family -> the kinds of attention, and the views
WRITER = (("cross", "encoder", "decoder"), "attention walk output beam positions layers examples")
FAMILIES = {
    "bart": WRITER,
    "t5": WRITER,
    "universal": WRITER,
    "gpt": (("decoder",), "attention walk output positions layers examples"),
    "bert": (("encoder",), "attention walk output positions examples"),
    "vit": (("encoder",), "attention walk output positions examples"),
}


@dataclass(frozen=True)
class Page:
    file: Path
    trace: dict

    def weights(self, kind: str) -> np.ndarray:
        return unpack(self.trace["attention"][kind]["weights"])


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def made(family: str, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Write the page with the command, as a user does."""
    place = tmp_path_factory.mktemp(family)
    text_or_image = SENTENCE
    if family == "gpt":
        size = tokenizers().source.vocab_size
        config = GptConfig(vocab_size=size, d_model=16, n_layers=3, n_heads=4, d_ff=24, max_len=64)
        save_model(place / "model", fill(Gpt(config), dtype=torch.float32), tokenizers())
    elif family == "bert":
        text_or_image = "a [MASK] runs"
        bert_folder(place / "model", own_tokenizers())
    elif family == "vit":
        text_or_image = str(picture(place / "photo.png", size=30))
        vit_folder(place / "model")
    else:
        save_model(place / "model", other_look_model(family).model, tokenizers())
    for suffix in ("html", "json"):
        assert run(["look", text_or_image, "-m", str(place / "model"), "--output", str(place / f"page.{suffix}")]) == 0
    return Page(place / "page.html", json.loads((place / "page.json").read_text(encoding="utf-8")))


def shown_value(page) -> float:
    found = re.search(r"→ \S+ (\d[\d.]*(?:e−\d+)?)", drawn(page).inner_text(".matrix .readout"))
    assert found, page.inner_text(".matrix .readout")
    return float(found[1].replace("−", "-"))


def test_every_view_opens_in_both_languages(tab: Watched, made: Page, family: str) -> None:
    page = tab.open(made.file)
    _, views = FAMILIES[family]
    names = page.locator(".tabs button").evaluate_all("all => all.map(button => button.id)")
    found = [name.removeprefix("view-") for name in names]
    assert found == views.split()
    for _ in ("en", "zh"):
        for view in found:
            page.click(f"#view-{view}")
            expect(page, f"#view-{view}").to_have_attribute("aria-current", "page")
            expect(page, "main .view > *").not_to_have_count(0)
        page.click("#language")
    assert all(address.startswith(("file:", "data:")) for address in tab.requests), tab.requests


def test_layer_and_head_are_changed_and_the_numbers_are_those_of_the_trace(
    tab: Watched, made: Page, family: str
) -> None:
    page = tab.open(made.file, show="matrix")
    for kind in FAMILIES[family][0]:
        if len(FAMILIES[family][0]) > 1:
            page.locator("fieldset.choice").first.locator(f"input[value={kind}]").check(force=True)
        weights = made.weights(kind)
        for layer, head in ((0, 2), (weights.shape[0] - 1, 1)):
            page.locator("fieldset", has_text="Layer").locator("label").nth(layer).click()
            page.click(f"[aria-label='head {head + 1}']")
            expect(page, "h3.title").to_contain_text(f"layer {layer + 1}, head {head + 1}")
            page.focus(".matrix-scroll")
            page.keyboard.press("Home")
            page.keyboard.press("ArrowDown")
            page.keyboard.press("End")
            row = page.inner_text(".matrix .readout").split(" → ")[0]
            last = weights.shape[3] - 1
            value = shown_value(page)
            column = weights[layer, head, :, last]
            rows = [r for r, weight in enumerate(column) if math.isclose(weight, value, abs_tol=6e-5)]
            side = made.trace["source"] if kind == "encoder" else made.trace["target"]
            assert row in [side["tokens"][r] for r in rows]


def test_thumbnails_and_lines_of_every_head(tab: Watched, made: Page, family: str) -> None:
    kind = FAMILIES[family][0][0]
    n_layers, n_heads = made.weights(kind).shape[:2]
    page = tab.open(made.file, show="grid")
    expect(page, ".thumbnails button").to_have_count(n_layers * n_heads)
    page.locator(".thumbnails button").nth(n_heads - 1).click()
    expect(page, "h3.title").to_contain_text(f"layer 1, head {n_heads}")
    page.locator("input[value=lines]").check(force=True)
    expect(page, ".lines-figure").to_be_visible()
    expect(page, ".tokens.from li").to_have_count(made.weights(kind).shape[2])


def test_the_walk_shows_the_numbers_of_the_trace(tab: Watched, made: Page, family: str) -> None:
    page = tab.open(made.file, view="walk", layer=1, token=1)
    side = "decoder" if family == "gpt" else "encoder"
    q = made.trace["walk"][side]["layers"][1]["attention"]["q"]
    values = unpack(q["first"])[0, 1]
    strip = page.locator(".cards .vector", has_text="q").nth(0).locator(".number")
    titles = strip.evaluate_all("all => all.map(cell => cell.title)")
    found = [float(title.replace("−", "-")) for title in titles]
    assert found == pytest.approx(values.tolist(), abs=2e-6)


def test_the_answer_is_the_models_own(tab: Watched, made: Page, family: str) -> None:
    page = tab.open(made.file, view="output")
    if made.trace["steps"] is None:
        [answer] = made.trace["answer"]
        expect(page, ".bars li").to_have_count(len(answer["top"]))
        first = answer["top"][0]
        expect(page, ".bars li >> nth=0").to_contain_text(first["token"].strip())
        expect(page, ".bars li >> nth=0").to_contain_text(f"{100 * first['probability']:.1f} %")
        return
    expect(page, ".step").to_have_count(len(made.trace["steps"]))
    first = made.trace["steps"][0]
    for number, one in enumerate(first["top"]):
        expect(page, f"#step-0 .bars li >> nth={number}").to_contain_text(one["token"])
    expect(page, "#step-0 .badge").to_have_count(int(made.trace["target"]["n_forced"] > 0))


def test_attention_over_the_image(tab: Watched, made: Page, family: str) -> None:
    if family != "vit":
        pytest.skip("of images alone")
    page = tab.open(made.file)
    expect(page, ".photo.under img").to_be_visible()
    weights = made.weights("encoder")
    page.locator("fieldset", has_text="Layer").locator("label").nth(0).click()
    page.click("[aria-label='head 2']")
    expect(page, "[data-patch='4']").to_have_attribute("aria-label", re.compile(rf"^2,1: {weights[0, 1, 0, 4]:.4f}"))
    page.click("[data-patch='5']")  # now this one looks
    expect(page, "[data-patch='4']").to_have_attribute("aria-label", re.compile(rf"^2,1: {weights[0, 1, 5, 4]:.4f}"))
    page.hover("[data-patch='9']")
    expect(page, ".photo-figure .readout").to_contain_text(f"patch 2,2 → patch 3,3: {weights[0, 1, 5, 9]:.4f}")
    shades = page.locator(".patches button").evaluate_all("all => all.map(b => getComputedStyle(b).backgroundColor)")
    opaque = [float(re.search(r"([\d.]+)\)$", shade)[1]) for shade in shades]
    assert int(np.argmax(opaque)) == int(np.argmax(weights[0, 1, 5, 1:]))
    assert max(opaque) == pytest.approx(0.85, abs=0.01)
    page.click("#class-token")
    expect(page, "#class-token").to_have_attribute("aria-pressed", "true")


def test_the_steps_of_a_universal_transformer(tab: Watched, made: Page, family: str) -> None:
    if family != "universal":
        pytest.skip("of the Universal Transformer alone")
    page = tab.open(made.file, view="layers")
    expect(page, ".thinking").to_have_count(2)
    weights = unpack(made.trace["halting"]["encoder"])
    column = next(c for c in range(weights.shape[1]) if 0 < weights[0, c] < 1)
    page.locator(".thinking .matrix-scroll").first.focus()
    for key in ("ArrowDown", *["ArrowRight"] * column):
        page.keyboard.press(key)
    assert f"{weights[0, column]:.4f}" in drawn(page).locator(".thinking .readout").first.inner_text()


def test_a_line_break_of_a_character_model_is_visible(tab: Watched, tmp_path: Path) -> None:
    kind = TokenizerConfig(kind="char", vocab_size=60, byte_fallback=False, character_coverage=1.0)
    words = learn_tokenizers(["ab\nab"], ["ab\nab"], kind)
    config = GptConfig(vocab_size=words.source.vocab_size, d_model=16, n_layers=1, n_heads=2, d_ff=24, max_len=64)
    save_model(tmp_path / "model", fill(Gpt(config), dtype=torch.float32), words)
    assert run(["look", "a\nb", "-m", str(tmp_path / "model"), "--output", str(tmp_path / "page.html")]) == 0
    page = tab.open(tmp_path / "page.html", show="lines")
    shown = page.locator(".tokens.from li").all_inner_texts()
    assert [piece.strip() for piece in shown[:4]] == ["▁", "a", "⏎", "b"]
