"""Progress: a bar in a terminal, lines elsewhere, nothing for short work."""

import io
import sys

import pytest

from heedful.cli.progress import ProgressReporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressReporter(unit="lines") as passing:
        passing.update("reading", 0, 0.0)
        assert terminal.getvalue() == ""
        passing.update("reading", 1_000, 0.5)
        passing.update("writing", 0, 0.0)
        passing.update("writing", 20, 1.0)
    assert "reading: 1,000 lines" in terminal.getvalue() and "writing: 20 lines" in terminal.getvalue()


def test_without_a_terminal_there_are_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for every, n_lines in ((1e9, 0), (0.0, 2)):
        monkeypatch.setattr("heedful.cli.progress.EVERY", every)
        with ProgressReporter() as passing:
            for done in (0, 10, 20):
                passing.update("reading", done, done / 20)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == n_lines
    assert lines[0].startswith("reading: 10 pairs, ") and ", 50%, " in lines[0]
