"""Documents of running text, and those that are held out."""

import itertools
import json
from pathlib import Path

import pytest

from heedful.data import Example, join_lines, read_text
from heedful.data.splits import every_document, split_documents
from heedful.errors import UserError

TEXTS = ["one dog\n\ntwo dogs", "a cat", "the end"]


def write_records(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


@pytest.mark.parametrize("unit", ["lines", "paragraphs"])
def test_each_record_is_a_document(unit, tmp_path: Path) -> None:
    """No blank lines separate the records of JSONL: joined as lines, they would be one document."""
    corpus = read_text(write_records(tmp_path / "a.jsonl", TEXTS), keep_empty=True)
    assert [document.source for document in every_document(corpus, unit)] == TEXTS


def test_too_few_paragraphs_are_refused_with_the_advice_to_use_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {number}\n" for number in range(200)), encoding="utf-8")
    corpus = read_text(path, keep_empty=True)
    with pytest.raises(UserError, match=r"1 document is too few .* --set data\.documents=lines"):
        split_documents([corpus], "paragraphs", hold_out=10, share=0.1)
    training, held_out, _ = split_documents([corpus], "lines", hold_out=10, share=0.1)
    assert len(list(training[0])) + len(list(held_out[0])) == 200


def test_blank_lines_separate_documents():
    lines = [Example(text) for text in ["", "a", "b", " ", "", "c", "", "d", "e"]]
    assert [document.source for document in join_lines(lines)] == ["a\nb", "c", "d\ne"]
    long = [Example("word " * 10) for _ in range(10)]
    assert [len(document.source) for document in join_lines(long, max_characters=120)] == [101] * 5
    endless = (Example("line") for _ in itertools.count())
    assert next(join_lines(endless, max_characters=50)).source.startswith("line\nline")
