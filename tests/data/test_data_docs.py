"""The examples of docs/data.md run."""

import gzip
import json
import lzma
import re
from pathlib import Path

import pytest

from prepared_corpus import make_examples

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def write_corpora(folder: Path) -> None:
    """Write the files that the page names."""
    examples = make_examples(300)
    sides = {"en": [e.source for e in examples], "de": [e.target for e in examples]}
    for language, lines in sides.items():
        text = "".join(f"{line}\n" for line in lines).encode()
        (folder / f"train.{language}").write_bytes(text)
        (folder / f"train.{language}.gz").write_bytes(gzip.compress(text))
    rows = [{"translation": {"en": e.source, "de": e.target}} for e in examples[:3]]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "wiki.txt.xz").write_bytes(lzma.compress(b"A text.\n\nAnother.\n"))
    (folder / "reviews.tsv").write_text("good film\tpositive\n")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpora(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 8
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)  # in the order of the page: later examples use names of earlier ones
