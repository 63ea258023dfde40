"""The Python in the documents runs.

The blocks of a document run one after the other in one program, as a reader would type them, in a folder that has the
files of SAMPLES and nothing else. A block that cannot run here has `<!-- not run: why -->` on the line above it.
"""

import gzip
import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [path for path in [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))] if path.exists()]

ENGLISH = "A dog runs.\nTwo girls read a book.\nThe old man sleeps.\nA cat sits on the street.\n"
GERMAN = "Ein Hund rennt.\nZwei Mädchen lesen ein Buch.\nDer alte Mann schläft.\nEine Katze sitzt auf der Straße.\n"
PAIRS = list(zip(ENGLISH.splitlines(), GERMAN.splitlines(), strict=True))
# The files that documents may use, each also as .gz and .xz.
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


def program_of(document: str) -> str:
    """The Python blocks, each at the line where it stands in the document, so that errors name the right line."""
    lines: list[str] = []
    runs, before = False, ""
    for line in document.splitlines():
        if re.fullmatch(r"\s*```\s*", line):
            runs = False
        lines.append(line if runs else "")
        if re.fullmatch(r"\s*```\s*python\s*", line):
            runs = not before.startswith("<!-- not run:")
        before = line
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(PROJECT).as_posix())
def test_the_python_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    program = program_of(document.read_text(encoding="utf-8"))
    if not program.strip():
        pytest.skip("no Python in it")
    (tmp_path / document.with_suffix(".py").name).write_text(program, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    write_samples(tmp_path / "folder")
    done = subprocess.run(
        [sys.executable, tmp_path / document.with_suffix(".py").name],
        cwd=tmp_path / "folder",
        env={**os.environ, "PYTHONSAFEPATH": "1"},  # or `statistics.py`, of statistics.md, would hide Python's own
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_blocks_stay_at_their_lines() -> None:
    document = "# Title\n\n```python\na = 1\n```\n\n```\nnot python\n```\n\n```python\nb = a\n\nc = b\n```\nend\n"
    assert program_of(document) == "\n\n\na = 1\n\n\n\n\n\n\n\nb = a\n\nc = b\n\n\n"


def test_other_languages_and_marked_blocks_are_left_out() -> None:
    document = "```sh\nrm x\n```\n<!-- not run: takes an hour -->\n```python\nwait()\n```\n```python\nx = 1\n```\n"
    assert program_of(document).split() == ["x", "=", "1"]
