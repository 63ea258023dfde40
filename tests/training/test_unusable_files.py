"""Files that are unusable as a whole are rejected when a run begins, whatever data.on_bad_line is."""

import gzip
import os
from pathlib import Path

import pytest

from heedful import train
from heedful.errors import UserError
from small_run import OVERRIDES, write_corpus

CONTENTS = {
    "empty": (lambda content: b"", "no line in it"),
    "utf-16": (lambda content: content.decode().encode("utf-16"), "UTF-16 text, not UTF-8"),
    "misnamed": (gzip.compress, "gzip data, by its first bytes"),
}


@pytest.mark.parametrize("policy", ["skip", "error"])
@pytest.mark.parametrize("what", CONTENTS)
def test_a_fatal_problem_of_a_file_is_never_skipped(what: str, policy: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("which", ["source", "target", "valid_source", "valid_target", "text", "valid"])
def test_a_pipe_can_be_read_only_once(which: str, tmp_path: Path) -> None:
    """`--source <(zcat a.gz)`: a second reading would find nothing, and the message would blame a download."""
    source, target = write_corpus(tmp_path)
    files = {"source": source, "target": target, "valid_source": source, "valid_target": target}
    if which in ("text", "valid"):
        files = {"text": source, "valid": source}
    reading, writing = os.pipe()
    os.write(writing, source.read_bytes())
    os.close(writing)
    files[which] = Path(f"/dev/fd/{reading}")
    with pytest.raises(UserError, match=rf"/dev/fd/{reading}: a pipe .*read only once.*Write it to a file first"):
        family = "gpt" if "text" in files else None
        few = [*OVERRIDES[:-7], "run.steps=1", "run.threads=1", "tokenizer.sample_alpha=0.0"]
        train(folder=tmp_path / "run", overrides=few, family=family, **files)  # type: ignore[arg-type]
    assert os.read(reading, 3) == source.read_bytes()[:3]
    os.close(reading)
