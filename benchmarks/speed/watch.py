"""A program that trains, seen from outside: when each step came, how much memory it took, who else used the processor.

Linux only: everything is read from /proc. The program starts a session of its own, so that its workers are known too.
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

EVERY = 0.5  # seconds between two looks at memory
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):
    """The program ended, or was ended, before there was anything to measure; the message says why."""


@dataclass(frozen=True)
class Window:
    """What is measured: from the first step that comes `warm_up` seconds after the very first, for `seconds`."""

    warm_up: float
    seconds: float
    patience: float = 600.0  # without a step for so long, the program is given up


@dataclass(frozen=True)
class Watched:
    tokens_per_second: float  # target tokens without padding
    tokens_per_step: float
    steps: int  # in the window
    seconds: float  # of the window
    first_step: float  # seconds from the start of the program
    peak_memory: int  # bytes, PSS summed over the processes of the program, from start to end
    training_memory: int  # the same, within the window
    others: float  # cores that were busy with something else, or that the host took away


@dataclass
class Steps:
    """The lines of a program, each step with its time; filled by a thread of its own, so that no time is late."""

    pattern: re.Pattern[str]  # its group is the number of target tokens
    began: float
    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    last_lines: list[str] = field(default_factory=list)

    def read(self, process: "subprocess.Popen[str]", log: Path) -> None:
        assert process.stdout is not None
        with log.open("w") as file:
            for line in process.stdout:
                now = time.monotonic() - self.began
                if found := self.pattern.search(line):
                    self.tokens.append(int(found[1]))  # first, since the other thread looks at the times
                    self.times.append(now)
                file.write(line)
                self.last_lines = [*self.last_lines, line.strip()][-50:]

    def span(self, window: Window) -> tuple[int, int] | None:
        """The steps (first, last) between whose ends the window lies, as far as it has come; None: still warming up."""
        begin = next((i for i, t in enumerate(self.times) if t >= self.times[0] + window.warm_up), None)
        return None if begin is None else (begin, len(self.times) - 1)


class Memory:
    """The highest PSS. RSS is cheap to read and PSS is not: it is read only when RSS was never higher."""

    def __init__(self) -> None:
        self._rss = 0
        self.peak = 0

    def look(self, session: int) -> None:
        rss = sum(int(stat[21]) * PAGE for stat in processes(session).values())
        if rss > 1.005 * self._rss:
            self._rss = rss
            self.peak = max(self.peak, sum(_pss(pid) for pid in processes(session)))


def watch(
    command: Sequence[str], *, environment: Mapping[str, str], folder: Path, steps: str, window: Window, log: Path
) -> Watched:
    """Run a program in `folder` until its window is complete, then end it. `steps` finds its steps in its output."""
    began = time.monotonic()
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
    seen = Steps(re.compile(steps), began)
    reader = threading.Thread(target=seen.read, args=(process, log), daemon=True)
    reader.start()
    try:
        return _follow(process, seen, window)
    finally:
        end(process)
        reader.join(timeout=10)


def _follow(process: "subprocess.Popen[str]", seen: Steps, window: Window) -> Watched:
    whole, training = Memory(), Memory()
    cpu_before: tuple[float, float] | None = None
    while True:
        time.sleep(EVERY)
        whole.look(process.pid)
        span = seen.span(window)
        if span is not None:
            training.look(process.pid)
            if cpu_before is None:
                cpu_before = time.monotonic(), cpu_of_others(process.pid)
            first, last = span
            seconds = seen.times[last] - seen.times[first]
            if last > first and seconds >= window.seconds:
                break
        if process.poll() is not None:
            raise Failed(f"ended with exit code {process.returncode}: {_reason(seen.last_lines)}")
        if time.monotonic() - seen.began - (seen.times[-1] if seen.times else 0.0) > window.patience:
            raise Failed(f"no step in {window.patience:g} seconds: {_reason(seen.last_lines)}")
    tokens = sum(seen.tokens[first + 1 : last + 1])
    since, others = cpu_before
    return Watched(
        tokens_per_second=tokens / seconds,
        tokens_per_step=tokens / (last - first),
        steps=last - first,
        seconds=seconds,
        first_step=seen.times[0],
        peak_memory=max(whole.peak, training.peak),
        training_memory=training.peak,
        others=max(0.0, cpu_of_others(process.pid) - others) / max(EVERY, time.monotonic() - since),
    )


def end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """End the whole session: nothing of it is wanted any more, and workers outlive a killed parent."""
    for pid in processes(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _reason(lines: Sequence[str]) -> str:
    """The last line that names an error, or simply the last."""
    lines = [line for line in lines if line]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|UserError)\b", line)]
    return (errors or lines or ["it said nothing"])[-1][:300]


def processes(session: int) -> dict[int, list[str]]:
    """The processes of a session: pid -> the fields of its `stat` after the name, the state being number 0."""
    return {pid: stat for pid, stat in _all_processes() if int(stat[3]) == session}


def _all_processes() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name stands in brackets and may itself hold brackets and spaces.
            yield int(path.parent.name), path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has just ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def cpu_of_others(session: int) -> float:
    """Seconds of processor time so far, of all but this process and the session; what the host took counts as well."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, _cpu_line()[1:9])
    everything = (user + nice + system + irq + softirq + steal) / TICKS
    # Fields 11 to 14: its own time, and that of its children which have ended.
    own = sum(sum(map(int, stat[11:15])) for stat in processes(session).values()) / TICKS
    return everything - own - time.process_time()


def _cpu_line() -> list[str]:
    return Path("/proc/stat").read_text().splitlines()[0].split()


def busy_cores(seconds: float) -> float:
    """How many cores are busy now with anything at all."""
    began, before = time.monotonic(), cpu_of_others(os.getpid())
    time.sleep(seconds)
    return max(0.0, cpu_of_others(os.getpid()) - before) / (time.monotonic() - began)
