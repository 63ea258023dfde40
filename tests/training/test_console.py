import io
import re
from typing import Any

import pytest
from rich.console import Console

import run_events
from heedful.training import Event
from heedful.training.console import LiveView, LossCurve, PlainView, make_view
from run_events import as_event


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Stream(io.TextIOWrapper):
    """A text stream in memory with a given answer to isatty and a given encoding."""

    def __init__(self, *, encoding: str = "utf-8", terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)  # only what was flushed


def printed(*events: Event) -> str:
    stream = Stream()
    view = PlainView(stream, clock=Clock())
    for event in events:
        view(event)
    return stream.text


def test_steps_are_printed_every_half_minute_and_all_else_at_once() -> None:
    stream, clock = Stream(), Clock()
    view = PlainView(stream, clock=clock)
    for second in range(0, 100, 5):
        clock.now = 100.0 + second
        view(as_event("step", **run_events.step(second)))
        view(as_event("saved", **run_events.saved(second)))
    lines = stream.text.splitlines()
    assert [int(line.split()[1]) for line in lines if line.startswith("step")] == [0, 30, 60, 90]
    assert len([line for line in lines if line.startswith("saved")]) == 20


def test_a_step_line_has_loss_speed_rate_and_time() -> None:
    line = printed(as_event("step", **run_events.step()))
    assert line.count("\n") == 1 and "\r" not in line and "\x1b" not in line
    for words in (
        "1,250 of 10,000 (12.5 %)",
        "loss 4.312",
        "3,140 tokens/s",
        "lr 0.000313",
        "gradient 0.84",
        "epoch 2",
        "50 m 12 s",
        "5 h 51 m left",
    ):
        assert words in line


def test_progress_follows_the_time_limit() -> None:
    event = as_event("step", **run_events.step(10, seconds=540.0, seconds_left=60.0))
    assert "10 of 10,000 (90.0 %)" in printed(event)
    assert "━" * 27 in shown([event])
    assert "(0.1 %)" in printed(as_event("step", **run_events.step(10, seconds_left=None)))
    assert "(0.0 %)" in printed(as_event("step", **run_events.step(0, seconds=0.0, seconds_left=0.0)))


def test_numbers_that_are_not_known_leave_a_dash() -> None:
    unknown = run_events.step(loss=float("nan"), seconds_left=None, tokens_per_second=None, grad_norm=float("inf"))
    line = printed(as_event("step", **unknown))
    assert "loss – · – tokens/s" in line and "gradient –" in line and "– left" in line


def test_a_validation_shows_scores_samples_and_what_changed() -> None:
    text = printed(as_event("validation", **run_events.validation()))
    assert "step 2,000 · loss 3.100 · perplexity 22.2 · BLEU 12.31 · chrF 38.20" in text
    assert "the best BLEU so far · patience left: 5 of 5" in text
    assert "Ein {Mann→Hund} läuft." in text and "A dog runs." in text and "Ein Hund rennt." in text


@pytest.mark.parametrize(
    ("metric", "best_score", "words"),
    [("bleu", 14.2, "BLEU 14.20"), ("chrf", 40.25, "chrF 40.25"), ("loss", -2.9, "loss 2.900")],
)
def test_the_best_so_far_is_said_in_the_words_of_the_metric(metric: str, best_score: float, words: str) -> None:
    start = as_event("start", **run_events.start(settings={"run": {"metric": metric}}))
    later = run_events.validation(best=False, best_score=best_score, best_step=1000, validations_since_best=2)
    text = printed(start, as_event("validation", **later))
    assert f"the best is {words} at step 1,000 · patience left: 3 of 5" in text
    assert "patience" not in printed(start, as_event("validation", **{**later, "patience": None}))


def test_a_plan_says_that_patience_may_end_the_run_earlier() -> None:
    text = printed(as_event("plan", **run_events.plan(patience=10, validate_every=500)))
    assert "at most 1 h 53 m to 2 h 16 m; ends earlier after 10 validations (every 500 steps) without a better" in text
    assert "ends earlier" not in printed(as_event("plan", **run_events.plan(patience=None, validate_every=500)))


def test_a_run_on_images_counts_images() -> None:
    start = as_event("start", **run_events.start(counted="images"))
    text = printed(start, as_event("plan", **run_events.plan()), as_event("step", **run_events.step()))
    assert "3,830 images" in text and "3,140 images/s" in text and "tokens" not in text


def test_every_kind_of_event_is_told() -> None:
    assert "3,830 target tokens" in (plan := printed(as_event("plan", **run_events.plan())))
    assert "at most 1 h 53 m to 2 h 16 m" in plan and "1.2 GB of memory · 114 MB of disk" in plan
    assert "114 MB in 0.9 s · run/checkpoints/step-002000" in printed(as_event("saved", **run_events.saved()))
    stopped = printed(as_event("stop", **run_events.stop()))
    assert "all 10,000 steps are done" in stopped and "2 h 00 m of training · 41,000,000 target tokens\n" in stopped
    held = printed(as_event("stop", **run_events.stop(peak_memory_bytes=834_000_000)))
    assert "41,000,000 target tokens · 834 MB of memory at most\n" in held
    assert printed(as_event("warning", text="the disk is full")) == "warning      the disk is full\n"
    done = printed(as_event("done", folders={"best": "run/best", "average": "run/average"}))
    assert "run/best" in done
    assert done.count("heedful translate -m run INPUT --output OUTPUT\n") == 1
    assert "heedful      0.1.0, torch 2.13" in printed(
        as_event("start", **run_events.start(versions={"torch": "2.13"}))
    )
    assert "recipe: tiny" in printed(as_event("note", text="recipe: tiny"))


def test_no_text_of_the_corpus_can_move_the_cursor() -> None:
    sample = {"source": "\x1b[2J", "reference": "a\nb", "hypothesis": "\x1b]0;title\x07", "before": "\r"}
    event = as_event("validation", **run_events.validation(samples=[sample]))
    assert "\x1b" not in printed(event) and len(printed(event).splitlines()) == 5
    assert "\x1b[2J" not in drawn([event]) and "\x07" not in drawn([event])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_a_terminal_cannot_show_are_escaped(encoding: str) -> None:
    stream = Stream(encoding=encoding, terminal=True)
    view = make_view(stream)
    assert isinstance(view, PlainView)
    view(as_event("note", text="一个女人"))
    assert "\\u4e00" in stream.text


def test_the_live_view_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(make_view(Stream(terminal=True)), LiveView)
    assert isinstance(make_view(Stream(terminal=False)), PlainView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_view(Stream(terminal=True)), PlainView)


def live_view(width: int = 80, **options: Any) -> tuple[LiveView, Console]:
    console = Console(file=Stream(), force_terminal=True, width=width, height=50, color_system="standard")
    return LiveView(console, clock=Clock(), **options), console


def drawn(events: list[Event], width: int = 80) -> str:
    """Return everything that the live view writes to the terminal."""
    view, console = live_view(width)
    for event in events:
        view(event)
    view.close()
    assert isinstance(console.file, Stream)
    return console.file.text


EVENTS = [
    as_event("start", **run_events.start()),
    as_event("step", **run_events.step(1000, loss=6.0)),
    as_event("validation", **run_events.validation(1000)),
    as_event("saved", **run_events.saved(1000)),
    as_event("step", **run_events.step()),
]


def shown(events: list[Event], width: int = 80) -> str:
    """Return the panel after these events, without colours."""
    view, console = live_view(width)
    for event in events:
        view._remember(event)
    with console.capture() as captured:
        console.print(view.panel())
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get())


def test_the_panel_shows_the_state_of_the_run() -> None:
    text = shown(EVENTS)
    for words in (
        "1,250 of 10,000 · 12.5 %",
        "4.312  █▁",
        "3,140 tokens/s · lr 0.000313",
        "50 m 12 s · 5 h 51 m left",
        "BLEU 12.31",
        "patience left: 5 of 5",
        "step 1,000 · 114 MB",
        "A dog runs.",
        "Ein Mann→Hund läuft.",
    ):
        assert words in text


@pytest.mark.parametrize("width", [20, 45, 60, 80, 200])
def test_the_panel_never_fills_the_line(width: int) -> None:
    long = {"source": "女" * 300, "reference": "x " * 300, "hypothesis": "y" * 300, "before": None}
    event = as_event("validation", **run_events.validation(samples=[long]))
    lines = shown([*EVENTS, event], width).splitlines()
    assert len(lines) == 11
    assert max(Console().render_str(line, markup=False).cell_len for line in lines) <= min(79, width - 1)


def test_lines_are_printed_above_the_panel_and_the_panel_again_at_the_end() -> None:
    text = drawn([*EVENTS, as_event("warning", text="the disk is nearly full"), as_event("stop", **run_events.stop())])
    assert "the disk is nearly full" in text and "all 10,000 steps are done" in text
    assert text.rindex("tokens/s") < text.rindex("all 10,000 steps are done")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden, and given back


def test_the_terminal_is_restored_when_training_fails() -> None:
    view, console = live_view()
    for event in EVENTS:
        view(event)
    view.close()
    view.close()
    assert isinstance(console.file, Stream)
    assert console.file.text.endswith("\x1b[?25h")


def test_a_resumed_run_shows_its_whole_curve() -> None:
    past = [as_event("step", **run_events.step(n, loss=9.0 - n / 10)) for n in range(10)]
    view, _ = live_view(past=past)
    view._remember(as_event("step", **run_events.step(10, loss=2.0)))
    assert len(view._curve.points) == 11


def test_a_loss_curve_is_bounded_and_keeps_the_mean() -> None:
    curve = LossCurve(capacity=8)
    for value in range(1024):
        curve.add(float(value))
    assert 4 <= len(curve.points) <= 8
    assert curve.points == sorted(curve.points)
    assert sum(curve.points) / len(curve.points) == pytest.approx(1023 / 2, abs=150)
