import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import run_events
from heedful.errors import UserError
from heedful.training.events import KINDS, Event, RunLog, read_log


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")


def strict(text: bytes) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_an_event_is_one_line_with_its_kind_and_time(tmp_path: Path) -> None:
    heard: list[Event] = []
    with RunLog(tmp_path / "log.jsonl", [heard.append], clock=lambda: 1234.5678) as log:
        log.emit("note", text="recipe: tiny")
        log.emit("step", **run_events.step())
    first, second, end = lines_of(tmp_path / "log.jsonl")
    assert strict(first) == {"event": "note", "time": 1234.568, "text": "recipe: tiny"}
    assert strict(second) == {"event": "step", "time": 1234.568, **run_events.step()}
    assert end == b""
    assert heard == [strict(first), strict(second)] == read_log(tmp_path / "log.jsonl")


def test_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    heard: list[Event] = []
    with RunLog(tmp_path / "log.jsonl", [heard.append]) as log:
        log.emit("step", **run_events.step(loss=float("nan"), grad_norm=float("inf")))
        log.emit("start", version="0.1.0", settings={"a": [float("-inf"), (1.0, Path("x/y"))]})
    step, start, _ = (strict(line) if line else None for line in lines_of(tmp_path / "log.jsonl"))
    assert step["loss"] is None and step["grad_norm"] is None
    assert start["settings"] == {"a": [None, [1.0, "x/y"]]}
    assert heard == [step, start]


@pytest.mark.parametrize(
    "text", ["two\nlines\r\n", "\u2028\u2029\u0085\x0b\x0c\x1c", "一个女人 🙂", '"\\', "\x00\x1b[31m"]
)
def test_whatever_a_text_holds_the_event_stays_one_line(tmp_path: Path, text: str) -> None:
    with RunLog(tmp_path / "log.jsonl") as log:
        log.emit("note", text=text)
    content = (tmp_path / "log.jsonl").read_bytes().decode()
    assert len(content.splitlines()) == 1
    assert json.loads(content)["text"] == text


def test_a_lone_surrogate_does_not_break_the_log(tmp_path: Path) -> None:
    with RunLog(tmp_path / "log.jsonl") as log:
        log.emit("note", text="a file named \udcff")
    assert read_log(tmp_path / "log.jsonl")[0]["text"] == "a file named ?"  # type: ignore[typeddict-item]


def test_a_truncated_line_is_ended_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"event": "note", "time": 1, "text": "whole"}\n{"event": "no')
    with RunLog(path) as log:
        log.emit("note", text="first")
        log.emit("note", text="second")
    assert len(lines_of(path)) == 5
    assert [event["text"] for event in read_log(path) if event["event"] == "note"] == ["whole", "first", "second"]


def test_a_whole_log_is_continued_without_an_empty_line(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with RunLog(tmp_path / "log.jsonl") as log:
            log.emit("note", text=text)
    assert b"\n\n" not in (tmp_path / "log.jsonl").read_bytes()
    assert len(read_log(tmp_path / "log.jsonl")) == 2


def test_logged_events_survive_a_kill(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from heedful.training import RunLog
log = RunLog(Path(sys.argv[1]))
for number in range(10**9):
    log.emit("note", text=str(number))
    if number == 100:
        print("hundred", flush=True)
"""
    path = tmp_path / "log.jsonl"
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    notes = [event["text"] for event in read_log(path) if event["event"] == "note"]
    assert len(notes) > 100
    assert notes == [str(number) for number in range(len(notes))]
    assert len(lines_of(path)) - 1 in (len(notes), len(notes) + 1)  # nothing lost but at most one torn line


def test_a_listener_that_fails_is_reported_once_and_the_others_continue(tmp_path: Path) -> None:
    heard: list[Event] = []

    class Broken:
        calls = closed = 0

        def __call__(self, event: Event) -> None:
            self.calls += 1
            raise BrokenPipeError("the reader went away")

        def close(self) -> None:
            self.closed += 1

    broken = Broken()
    with RunLog(tmp_path / "log.jsonl", [broken, heard.append]) as log:
        log.emit("note", text="one")
        log.emit("note", text="two")
    assert broken.calls == 1 and broken.closed == 1
    assert [event["event"] for event in heard] == ["note", "warning", "note"]
    assert "Broken failed" in heard[1]["text"] and "the reader went away" in heard[1]["text"]  # type: ignore
    assert read_log(tmp_path / "log.jsonl") == heard


def test_training_continues_if_all_listeners_fail(tmp_path: Path) -> None:
    def one(event: Event) -> None:
        raise ValueError("one")

    def two(event: Event) -> None:
        raise ValueError("two")

    with RunLog(tmp_path / "log.jsonl", [one, two]) as log:
        log.emit("note", text="still here")
    assert [event["event"] for event in read_log(tmp_path / "log.jsonl")] == ["note", "warning", "warning"]


def test_an_interrupt_is_not_a_failure_of_the_listener(tmp_path: Path) -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), RunLog(tmp_path / "log.jsonl", [interrupted]) as log:
        log.emit("note", text="x")


def test_listeners_are_closed_even_when_one_cannot_be(tmp_path: Path) -> None:
    closed = []

    class View:
        def __init__(self, *, fails: bool) -> None:
            self.fails = fails

        def __call__(self, event: Event) -> None: ...

        def close(self) -> None:
            closed.append(self.fails)
            if self.fails:
                raise OSError("no terminal")

    with pytest.raises(RuntimeError), RunLog(tmp_path / "log.jsonl", [View(fails=True), View(fails=False)]):
        raise RuntimeError("training broke")
    assert closed == [True, False]
    assert "no terminal" in (tmp_path / "log.jsonl").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_reported_once_and_does_not_stop_the_training(tmp_path: Path) -> None:
    heard: list[Event] = []
    path = tmp_path / "log.jsonl"
    path.symlink_to("/dev/full")
    with RunLog(path, [heard.append]) as log:
        for number in range(3):
            log.emit("note", text=str(number))
    assert [event["event"] for event in heard] == ["note", "warning", "note", "note"]
    assert "log.jsonl" in heard[1]["text"] and "No space" in heard[1]["text"]  # type: ignore


def test_the_log_continues_when_the_disk_has_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    with RunLog(path) as log:
        whole = log._file

        class NearlyFull:
            """A file that accepts a few bytes and then no more."""

            def __init__(self) -> None:
                self.room = 20

            def write(self, data: bytes) -> int:
                assert whole is not None
                if not self.room:
                    raise OSError(28, "No space left on device")
                n_bytes = whole.write(data[: self.room])
                self.room = 0
                return n_bytes or 0

        monkeypatch.setattr(log, "_file", NearlyFull())
        log.emit("note", text="torn")
        monkeypatch.setattr(log, "_file", whole)
        log.emit("note", text="after")
    assert [event["text"] for event in read_log(path)] == ["after"]  # type: ignore[typeddict-item]


def test_without_a_path_nothing_is_logged(tmp_path: Path) -> None:
    heard: list[Event] = []
    with RunLog(None, [heard.append]) as log:
        log.emit("note", text="x")
    assert heard == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("gossip", {}),
        ("note", {}),
        ("note", {"text": "x", "loud": True}),
        ("step", {"step": 1}),
        ("validation", {**run_events.validation(), "rouge": 1.0}),
    ],
)
def test_an_event_with_wrong_fields_raises_an_assertion(tmp_path: Path, kind: str, values: dict[str, Any]) -> None:
    with RunLog(tmp_path / "log.jsonl") as log, pytest.raises(AssertionError, match=kind):
        log.emit(kind, **values)


def test_every_kind_says_its_name() -> None:
    for name, fields in KINDS.items():
        assert fields.__annotations__["event"].__args__ == (name,)
        assert {"event", "time"} <= fields.__required_keys__  # type: ignore[attr-defined]


def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"log\.jsonl: cannot be written"):
        RunLog(tmp_path / "file" / "log.jsonl")
    with pytest.raises(UserError, match=r"log\.jsonl: cannot be read"):
        read_log(tmp_path / "log.jsonl")


def test_the_clock_is_the_time_of_day_unless_told(tmp_path: Path) -> None:
    before = time.time()
    with RunLog(tmp_path / "log.jsonl") as log:
        log.emit("note", text="x")
    assert before - 1 <= read_log(tmp_path / "log.jsonl")[0]["time"] <= time.time() + 1
