"""Watch a training program from outside: the time of each step, its memory, and the CPU that other processes use.

Linux only: everything is read from /proc. The program runs in its own session, so its workers are counted with it.
"""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

INTERVAL = 0.5  # seconds between two readings of memory
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):
    """The program ended, or was ended, before its window was complete; the message names the reason."""


@dataclass(frozen=True)
class Window:
    """The measured time: it begins with the first step after `warm_up` seconds of training and lasts `seconds`."""

    warm_up: float
    seconds: float
    timeout: float = 600.0  # seconds without a step after which the program is ended


@dataclass(frozen=True)
class Watched:
    """What was measured of a program."""

    tokens_per_second: float  # target tokens without padding
    tokens_per_step: float
    steps: int  # in the window
    seconds: float  # of the window
    first_step: float  # seconds from the start of the program
    peak_memory: int  # bytes of PSS, summed over the program's processes, from start to end
    training_memory: int  # bytes of PSS, the highest within the window
    others: float  # cores used by other processes, or taken away by the host


@dataclass
class Steps:
    """The steps of a program, with their times; a separate thread reads its output, so that times are exact."""

    pattern: re.Pattern[str]  # matches a step; the group is its number of target tokens
    start: float
    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    last_lines: list[str] = field(default_factory=list)

    def read(self, process: "subprocess.Popen[str]", log: Path) -> None:
        assert process.stdout is not None
        with log.open("w") as file:
            for line in process.stdout:
                now = time.monotonic() - self.start
                if match := self.pattern.search(line):
                    self.tokens.append(int(match[1]))  # before the time: the other thread counts times
                    self.times.append(now)
                file.write(line)
                self.last_lines = [*self.last_lines, line.strip()][-50:]

    def span(self, window: Window) -> tuple[int, int] | None:
        """Return the indices of the window's first and latest step; None during the warm-up."""
        begin = next((i for i, t in enumerate(self.times) if t >= self.times[0] + window.warm_up), None)
        return None if begin is None else (begin, len(self.times) - 1)


class Memory:
    """The highest PSS of a session. PSS is slow to read, so it is read only when RSS reaches a new maximum."""

    def __init__(self) -> None:
        self._rss = 0
        self.peak = 0

    def update(self, session: int) -> None:
        rss = sum(int(stat[21]) * PAGE for stat in processes(session).values())
        if rss > 1.005 * self._rss:
            self._rss = rss
            self.peak = max(self.peak, sum(_pss(pid) for pid in processes(session)))


def watch(
    command: Sequence[str], *, environment: Mapping[str, str], folder: Path, steps: str, window: Window, log: Path
) -> Watched:
    """Run a program in `folder` until its window is complete, then end it; `steps` matches the lines of its steps."""
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    recorded = Steps(re.compile(steps), start)
    reader = threading.Thread(target=recorded.read, args=(process, log), daemon=True)
    reader.start()
    try:
        return _follow(process, recorded, window)
    finally:
        end(process)
        reader.join(timeout=10)


def _follow(process: "subprocess.Popen[str]", steps: Steps, window: Window) -> Watched:
    total, training = Memory(), Memory()
    cpu_before: tuple[float, float] | None = None
    while True:
        time.sleep(INTERVAL)
        total.update(process.pid)
        span = steps.span(window)
        if span is not None:
            training.update(process.pid)
            if cpu_before is None:
                cpu_before = time.monotonic(), cpu_of_others(process.pid)
            first, last = span
            seconds = steps.times[last] - steps.times[first]
            if last > first and seconds >= window.seconds:
                break
        if process.poll() is not None:
            raise Failed(f"ended with exit code {process.returncode}: {_reason(steps.last_lines)}")
        if time.monotonic() - steps.start - (steps.times[-1] if steps.times else 0.0) > window.timeout:
            raise Failed(f"no step in {window.timeout:g} seconds: {_reason(steps.last_lines)}")
    tokens = sum(steps.tokens[first + 1 : last + 1])
    since, others = cpu_before
    return Watched(
        tokens_per_second=tokens / seconds,
        tokens_per_step=tokens / (last - first),
        steps=last - first,
        seconds=seconds,
        first_step=steps.times[0],
        peak_memory=max(total.peak, training.peak),
        training_memory=training.peak,
        others=max(0.0, cpu_of_others(process.pid) - others) / max(INTERVAL, time.monotonic() - since),
    )


def end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """End all processes of the session; workers would outlive a killed parent."""
    for pid in processes(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _reason(lines: Sequence[str]) -> str:
    """Return the last line that names an error, or the last line."""
    lines = [line for line in lines if line]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|UserError)\b", line)]
    return (errors or lines or ["it printed nothing"])[-1][:300]


def processes(session: int) -> dict[int, list[str]]:
    """Return the processes of a session: pid -> the fields of its `stat` file after the name, from the state on."""
    return {pid: stat for pid, stat in _all_processes() if int(stat[3]) == session}


def _all_processes() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses and may contain parentheses and spaces.
            yield int(path.parent.name), path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # the process has just ended
            continue


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # the process has just ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def cpu_of_others(session: int) -> float:
    """Return the CPU seconds so far of all processes but this one and the session, and those the host took away."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, _cpu_line()[1:9])
    total = (user + nice + system + irq + softirq + steal) / TICKS
    # Fields 11 to 14: the time of the process, and that of its ended children.
    own = sum(sum(map(int, stat[11:15])) for stat in processes(session).values()) / TICKS
    return total - own - time.process_time()


def _cpu_line() -> list[str]:
    return Path("/proc/stat").read_text().splitlines()[0].split()


def busy_cores(seconds: float) -> float:
    """Return how many cores are busy, measured for some seconds."""
    start, before = time.monotonic(), cpu_of_others(os.getpid())
    time.sleep(seconds)
    return max(0.0, cpu_of_others(os.getpid()) - before) / (time.monotonic() - start)
