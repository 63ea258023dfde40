"""What a user gets for a mistake: one paragraph with the value and the remedy, and never a traceback.

One row for each mistake. Folders have tests of their own for theirs; here stands what people meet at the door.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from heedful.cli.main import run


@dataclass(frozen=True)
class Mistake:
    typed: str  # after `heedful`, in a folder that holds `three.en`
    words: tuple[str, ...]  # all of them stand in the message
    exit_code: int = 1


MISTAKES = [
    Mistake("chekc", ("'chekc'", "did you mean 'check'?", "allowed: ", "doctor"), exit_code=2),
    Mistake("doctor --jsn", ("--jsn", "--json", "heedful doctor --help"), exit_code=2),
    Mistake("doctor now", ("now", "heedful doctor --help"), exit_code=2),
    Mistake("check absent.en absent.de", ("absent.en", "no such file")),
    Mistake("check --content poems three.en", ("poems", "pairs", "text", "labels"), exit_code=2),
    Mistake("check .", (".", "folder")),
    Mistake(
        "train run --family gtp --text three.en", ("family: unknown value 'gtp'; did you mean 'gpt'?", "allowed: ")
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.typed)
def test_a_mistake_is_explained(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "three.en").write_text("one\ntwo\nthree\n")
    monkeypatch.chdir(tmp_path)
    code = run(mistake.typed.split())
    message = capsys.readouterr().err
    assert code == mistake.exit_code, message
    assert message.startswith("heedful: ")
    assert "Traceback" not in message
    for word in mistake.words:
        assert word in message
