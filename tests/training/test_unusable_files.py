"""Files that are unusable as a whole are refused when a run begins, whatever data.on_bad_line says of single lines."""

import gzip
from pathlib import Path

import pytest
from small_run import OVERRIDES, write_corpus

from heedful.errors import UserError
from heedful.training.run import train

CONTENTS = {
    "empty": (lambda content: b"", "no line in it"),
    "utf-16": (lambda content: content.decode().encode("utf-16"), "UTF-16 text, not UTF-8"),
    "misnamed": (gzip.compress, "gzip data, by its first bytes"),
}


@pytest.mark.parametrize("policy", ["skip", "error"])
@pytest.mark.parametrize("what", CONTENTS)
def test_a_whole_file_cannot_be_left_out(what: str, policy: str, tmp_path: Path) -> None:
    source, target = write_corpus(tmp_path)
    change, words = CONTENTS[what]
    for path in (source, target) if what == "empty" else (source,):
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=words) as refused:
        train(
            folder=tmp_path / "run",
            source=source,
            target=target,
            family="t5",
            overrides=[*OVERRIDES, f"data.on_bad_line={policy}"],
        )
    assert source.name in str(refused.value) and "on_bad_line" not in str(refused.value)
