"""The page as one file: the modules run in order, the trace is inside, and nothing is loaded."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from heedful.insight.html_export import PAGE, PageError, bundle, stand_alone_page

INDEX = """<!doctype html>
<html lang="en"><head>
<meta charset="utf-8">
<link rel="icon" href="icon.svg">
<link rel="modulepreload" href="parts/sums.js">
<link rel="stylesheet" href="page.css">
<script type="application/json" id="heedful-trace"></script>
<script type="module" src="main.js"></script>
</head><body></body></html>
"""
MODULES = {
    "main.js": """import start, { add as plus,
  TWO } from "./parts/sums.js";
import * as sums from './parts/sums.js';
import { late } from "./parts/late.js";
import "./parts/late.js";
const said = [start(), plus(TWO, 3), sums.add(1, 1), sums.default === start, late(), sums.counted];
console.log(JSON.stringify(said));
""",
    "parts/sums.js": """// import("nothing")
import { base } from "../base.js";
const hidden = 7;
export const TWO = base + 1;
export function add(a, b) { return a + b; }
export async function wait() { await null; }
export class Box {}
export default function start() { return hidden; }
const inner = 9;
export { inner as counted };
""",
    "parts/late.js": """import { base } from "../base.js";
const hidden = 8;
export function late() { return base + hidden; }
""",
    "base.js": "export const base = 1;\nexport default { a: 1 };\n",
}
NODE = shutil.which("node")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "index.html").write_text(INDEX)
    (tmp_path / "page.css").write_text("body { color: red; background: url(data:image/png;base64,AA==); }")
    (tmp_path / "icon.svg").write_text("<svg/>")
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imported_modules_run_first_and_once(folder: Path) -> None:
    script = bundle(folder, "main.js")
    names = re.findall(r"^// ([\w/]+\.js)$", script, flags=re.MULTILINE)
    assert names == ["base.js", "parts/sums.js", "parts/late.js", "main.js"]
    assert not re.search(r"^\s*(?:import|export)\b", script, flags=re.MULTILINE)


@pytest.mark.skipif(NODE is None, reason="no node here to run the script")
def test_the_bundled_script_behaves_like_the_modules(folder: Path) -> None:
    script = folder / "bundled.mjs"
    script.write_text(bundle(folder, "main.js"))
    (folder / "package.json").write_text('{"type": "module"}')
    answers = [
        subprocess.run([str(NODE), str(path)], capture_output=True, text=True, check=True).stdout
        for path in (script, folder / "main.js")
    ]
    assert answers[0] == answers[1]
    assert json.loads(answers[0]) == [7, 5, 2, True, 9, 9]


def test_the_page_contains_everything_and_loads_nothing(folder: Path) -> None:
    data: dict[str, object] = {"text": "</script><b>&é一\u2028", "n": 1.5}
    html = stand_alone_page(data, folder=folder)
    assert re.search(r'(?:src|href)="(?!data:)', html) is None and "modulepreload" not in html
    assert "color: red" in html and "data:image/svg+xml;base64," in html
    assert "default-src 'none'" in html
    found = re.search(r'<script type="application/json" id="heedful-trace">(.*?)</script>', html, flags=re.DOTALL)
    assert found is not None and json.loads(found[1]) == data
    assert html.count("</script>") == 2


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("base.js", "export let base = 1;\n", "base.js:1"),
        ("base.js", 'const base = 1;\nexport * from "./parts/late.js";\n', "base.js:2"),
        ("base.js", 'export const base = 1;\nconst x = import("./x.js");\n', "dynamic import"),
        ("base.js", "export const base = import.meta.url;\n", "import.meta"),
        ("base.js", 'export const base = await fetch("x");\n', "await"),
        ("base.js", 'import { late } from "./parts/late.js";\nexport const base = 1;\n', "imports itself"),
        ("base.js", 'export const base = "</script>";\n', "end the script"),
        ("parts/late.js", 'import { x } from "../../outside.js";\n', "outside the page"),
        ("page.css", "@import 'x.css';", "would load"),
        ("page.css", "body { background: url(picture.png); }", "would load"),
        ("index.html", INDEX.replace("<body>", '<body><img src="x.png">'), "would load"),
        ("index.html", INDEX.replace('id="heedful-trace"', 'id="trace"'), "heedful-trace"),
        ("index.html", INDEX.replace("</head>", '<script type="module" src="base.js"></script></head>'), "found 2"),
    ],
)
def test_unsupported_syntax_is_an_error(folder: Path, name: str, text: str, words: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(PageError, match=re.escape(words)):
        stand_alone_page({}, folder=folder)


def test_the_files_of_the_page_can_be_bundled() -> None:
    if not (PAGE / "index.html").exists():
        pytest.skip("the page is not there yet")
    html = stand_alone_page({"format": "heedful-trace"})
    assert re.search(r"https?://(?!www\.w3\.org/)", html) is None  # names of SVG and XHTML are no addresses
