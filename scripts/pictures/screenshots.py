"""Make the screenshots of the docs from the model that `heedful demo` leaves.

    python scripts/pictures/screenshots.py demo/en-fr/run

With --gpt, --bert and --vit (runs of benchmarks/recipes/shakespeare.toml, bert-pretrain.toml and vit-mnist.toml) it
makes those of the other families too; --image is the picture for the ViT. Needs heedful[dev] and Chromium. Each
screenshot shows one part of the page in few colours: small enough for the repository.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import playwright.sync_api as playwright
from PIL import Image

import heedful
from heedful.insight.look import Look
from heedful.insight.look_decoder import DecoderLook, look_at_decoder
from heedful.insight.look_encoder import EncoderLook, look_at_encoder

IMAGES_FOLDER = Path(__file__).parents[2] / "docs" / "images"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
COLOURS = 160  # of a screenshot's palette
TIRED = "The animal didn't cross the street because it was too tired."
WIDE = TIRED.replace("tired", "wide")
GUITAR = "A man is [MASK] a guitar on the street."
WAIT_FOR_PAINT = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True)
class Shot:
    """A screenshot: the state of the page, and the elements at which the clip begins and ends."""

    name: str
    state: dict[str, object]  # the fragment of the page's address
    first: str = "main"  # selector of the element at the top
    last: str = "main"  # selector of the element at the bottom
    width: int = 960
    height: int = 900
    keys: tuple[str, ...] = ()  # keys to press inside the matrix
    text: str = TIRED
    served: bool = False  # a page of `heedful serve`, not a file of `heedful look`
    model: str = "model"  # the option that names the model
    max_height: int = 900  # pixels
    context: dict[str, str] = field(default_factory=dict)  # options of the browser context


IT = {"kind": "encoder", "show": "lines", "row": 7, "words": 1}  # the row of "it"
ZH = {"lang": "zh"}
ROMEO_HEAD = {"show": "lines", "heads": 4}  # a head that attends to the letter before the last
WALK = {"view": "walk", "side": "encoder", "token": 10, "layer": 1}
TYPED = {"from": "en", "to": "fr", "q": TIRED}

SHOTS = [
    Shot("look-attention", {"words": 1}, ".sentence", ".matrix .readout", max_height=1100),
    Shot("look-lines", IT, ".controls", ".lines-figure"),
    Shot("look-grid", {"show": "grid", "sort": "alignment"}, ".controls", ".thumbnails"),
    Shot("look-walk", WALK),
    Shot("look-output", {"view": "output", "step": 14}, max_height=700),
    Shot("look-beam", {"view": "beam", "theme": "dark"}, last=".tree", width=1100),
    Shot("look-layers", {"view": "layers"}),
    Shot("look-causes", {"view": "layers"}, "section.causes", "section.causes .readout", max_height=1100),
    Shot("zh-attention", ZH | {"words": 1}, "h3.title", ".matrix .readout", max_height=1100),
    Shot("zh-tired", ZH | IT, "h3.title", ".lines-figure", 760),
    Shot("zh-wide", ZH | IT, "h3.title", ".lines-figure", 760, text=WIDE),
    Shot("zh-walk", ZH | WALK, max_height=1500),
    Shot("zh-beam", ZH | {"view": "beam"}, last=".tree", width=1100),
    Shot("zh-positions", ZH | {"view": "positions"}, max_height=400),
    Shot("look-gpt", ROMEO_HEAD, ".controls", ".lines-figure", text="ROMEO:\nBut soft", model="gpt", max_height=700),
    Shot("look-bert", {}, ".sentence", ".matrix .readout", text=GUITAR, model="bert", max_height=1100),
    Shot("look-vit", {"layer": 0, "heads": 1}, ".controls", "main", text="", model="vit", max_height=780),
    Shot("serve-page", TYPED, "body", "body", height=640, served=True, max_height=640),
    Shot("serve-phone", TYPED | ZH | {"theme": "dark"}, "body", "body", 390, 900, served=True, max_height=900),
]  # fmt: skip


@contextmanager
def server(model: Path) -> Iterator[str]:
    """Run `heedful serve` with the model and yield its address."""
    command = [sys.executable, "-m", "heedful", "serve", "-m", f"en-fr={model}", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        output = ""
        while not (match := re.search(r"listening at (http://\S+/) ", output)):
            line = process.stderr.readline()
            if not line:
                raise SystemExit(output)
            output += line
        yield match[1]
    finally:
        process.terminate()
        process.wait(60)


def take(browser: playwright.Browser, shot: Shot, address: str) -> bytes:
    """Open the page in the state of the shot and return the screenshot as PNG."""
    context = browser.new_context(viewport={"width": shot.width, "height": shot.height}, locale="en-GB", **shot.context)
    page = context.new_page()
    state = "&".join(f"{name}={str(value).replace(' ', '+')}" for name, value in shot.state.items())
    page.goto(f"{address}#{state}")
    if shot.served:
        playwright.expect(page.locator(".alternatives li").first).to_be_visible(timeout=60_000)
    else:
        page.wait_for_selector("main .view > *")
    if shot.keys:
        page.focus(".matrix-scroll")
        for key in shot.keys:
            page.keyboard.press(key)
    page.evaluate(WAIT_FOR_PAINT)
    boxes = [page.locator(selector).first.bounding_box() for selector in (shot.first, shot.last)]
    assert boxes[0] is not None and boxes[1] is not None
    top, bottom = max(0.0, boxes[0]["y"] - 8), boxes[1]["y"] + boxes[1]["height"] + 8
    clip = {"x": 0, "y": top, "width": shot.width, "height": min(shot.max_height, bottom - top)}
    data = page.screenshot(clip=clip, full_page=True)  # type: ignore[arg-type]
    context.close()
    return data


def look(kind: str, model: Path, text: str) -> Look | DecoderLook | EncoderLook:
    """Trace a model on a text; `kind` is the option that names the model."""
    if kind == "model":
        return heedful.look(model, text, branches=200)
    return look_at_decoder(model, text) if kind == "gpt" else look_at_encoder(model, text)


def write(path: Path, data: bytes) -> None:
    """Write a screenshot with a palette of few colours."""
    picture = Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="translation model, English to French")
    for name in ("gpt", "bert", "vit"):
        parser.add_argument(f"--{name}", type=Path, help=f"run of a {name} model")
    parser.add_argument("--image", type=Path, help="picture for the ViT")
    parser.add_argument("--only", nargs="+", default=[shot.name for shot in SHOTS], help="names of screenshots to make")
    parser.add_argument("--output", type=Path, default=IMAGES_FOLDER, help="folder for the screenshots")
    options = parser.parse_args()
    shots = [shot for shot in SHOTS if shot.name in options.only and getattr(options, shot.model) is not None]
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=FLAGS)
        pages = {}
        for kind, text in {(shot.model, shot.text) for shot in shots if not shot.served}:
            path = look(kind, getattr(options, kind), text or str(options.image)).save(
                Path(folder) / f"{len(pages)}.html"
            )
            pages[kind, text] = path.as_uri()
        for shot in (shot for shot in shots if not shot.served):
            write(options.output / f"{shot.name}.png", take(browser, shot, pages[shot.model, shot.text]))
        if any(shot.served for shot in shots):
            with server(options.model) as address:
                for shot in (shot for shot in shots if shot.served):
                    write(options.output / f"{shot.name}.png", take(browser, shot, address))
        browser.close()


if __name__ == "__main__":
    main()
