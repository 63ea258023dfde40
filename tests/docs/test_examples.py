"""The Python examples in README.md and docs/ run.

The blocks of a page run one after the other in one program, as a reader would type them, in a folder with the files of
SAMPLES. A block that cannot run here has `<!-- not run: reason -->` on the line above it.
"""

import gzip
import json
import lzma
import re
from pathlib import Path

import pytest

from forked import run_file
from heedful.models.model_io import save_model
from look_models import look_model, tokenizers

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]

ENGLISH = "A dog runs.\nTwo girls read a book.\nThe old man sleeps.\nA cat sits on the street.\n"
GERMAN = "Ein Hund rennt.\nZwei Mädchen lesen ein Buch.\nDer alte Mann schläft.\nEine Katze sitzt auf der Straße.\n"
PAIRS = list(zip(ENGLISH.splitlines(), GERMAN.splitlines(), strict=True))
# The files that examples may read, each also as .gz and .xz.
SAMPLES = {
    **{f"{part}.en": ENGLISH for part in ("train", "valid", "test")},
    **{f"{part}.de": GERMAN for part in ("train", "valid", "test")},
    "train.tsv": "".join(f"{english}\t{german}\n" for english, german in PAIRS),
    "train.jsonl": "".join(
        json.dumps({"translation": {"en": english, "de": german}}) + "\n" for english, german in PAIRS
    ),
    "wiki.txt": ENGLISH,
    "reviews.tsv": "A good film.\tgood\nA bad film.\tbad\n",
}


def write_samples(folder: Path) -> None:
    for name, text in SAMPLES.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        (folder / f"{name}.xz").write_bytes(lzma.compress(text.encode()))


def python_blocks(page: str) -> str:
    """Return the Python blocks of a page at their own lines, so that an error names the right line."""
    lines: list[str] = []
    is_python, previous = False, ""
    for line in page.splitlines():
        if re.fullmatch(r"\s*```\s*", line):
            is_python = False
        lines.append(line if is_python else "")
        if re.fullmatch(r"\s*```\s*python\s*", line):
            is_python = not previous.startswith("<!-- not run:")
        previous = line
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(PROJECT).as_posix())
def test_the_python_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = python_blocks(page.read_text(encoding="utf-8"))
    if not program.strip():
        pytest.skip("the page has no Python")
    (tmp_path / page.with_suffix(".py").name).write_text(program, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    write_samples(tmp_path / "folder")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # otherwise a file made from statistics.md would hide Python's module
    run_file(tmp_path / page.with_suffix(".py").name, folder=tmp_path / "folder")


def test_the_examples_of_looks_run_with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_model(tmp_path / "runs/en-de", look_model().model, tokenizers())
    blocks = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "look.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    exec(compile("\n".join(blocks), "docs/look.md", "exec"), {})


def test_the_page_of_tokenizers_shows_the_output_of_its_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (PROJECT / "docs" / "text.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(python_blocks(page), "docs/text.md", "exec"), {})
    assert f"print(tokenizers.source.describe())  # {capsys.readouterr().out.strip()}\n" in page


def test_blocks_stay_at_their_lines() -> None:
    page = "# Title\n\n```python\na = 1\n```\n\n```\nnot python\n```\n\n```python\nb = a\n\nc = b\n```\nend\n"
    assert python_blocks(page) == "\n\n\na = 1\n\n\n\n\n\n\n\nb = a\n\nc = b\n\n\n"


def test_other_languages_and_blocks_marked_as_not_run_are_left_out() -> None:
    page = "```sh\nrm x\n```\n<!-- not run: takes an hour -->\n```python\nwait()\n```\n```python\nx = 1\n```\n"
    assert python_blocks(page).split() == ["x", "=", "1"]
