"""`heedful doctor`: facts about the machine, limits of control groups, warnings about a disturbed measurement."""

import dataclasses
import io
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from heedful.cli import doctor as doctor_module
from heedful.cli import system_info
from heedful.cli.doctor import DoctorReport, MachineSpeed, Rate, doctor, examine, lines, measure, rate
from heedful.cli.system_info import (
    Device,
    Extra,
    Machine,
    Torch,
    describe_machine,
    describe_torch,
    extras,
    memory,
    processor,
    usable_cores,
)

GB = 10**9


def a_machine(**changes: object) -> Machine:
    machine = Machine(
        heedful="0.1.0",
        python="3.11.7",
        system="Linux 6.1 x86_64",
        processor="A Processor",
        cores=4,
        usable_cores=4.0,
        load=0.1,
        memory_total_bytes=16 * GB,
        memory_free_bytes=8 * GB,
        folder="/somewhere",
        disk_free_bytes=50 * GB,
        locale="C.UTF-8",
        output_encoding="utf-8",
    )
    return dataclasses.replace(machine, **changes)  # type: ignore[arg-type]


def a_torch(**changes: object) -> Torch:
    facts = Torch(version="2.13.0", threads=4, blas="mkl", onednn=True, instructions="AVX2", devices=())
    return dataclasses.replace(facts, **changes)  # type: ignore[arg-type]


def a_speed(threads: int, *, fp32: float, bf16: float = 1000.0, spread: float = 0.0) -> MachineSpeed:
    return MachineSpeed(
        threads=threads,
        fp32_gflop_per_s=Rate(fp32, spread),
        bf16_gflop_per_s=Rate(bf16, 0.0),
        memory_gb_per_s=Rate(20.0, 0.0),
    )


QUIET = [a_speed(1, fp32=100.0), a_speed(4, fp32=380.0)]


def examined(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, *, result: Torch | None = None, speed: list[MachineSpeed] = QUIET
) -> DoctorReport:
    monkeypatch.setattr(doctor_module, "describe_torch", lambda: result or a_torch())
    monkeypatch.setattr(doctor_module, "measure", lambda **_: speed)
    return examine(machine)


def test_a_quiet_machine_gives_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    report = examined(monkeypatch, a_machine())
    assert (report.warnings, report.advice) == ([], [])


DOUBTFUL = {
    "busy": (a_machine(load=2.5), {}, "other programs are running (load 2.5 on 4 cores)"),
    "full": (a_machine(disk_free_bytes=GB // 2), {}, "nearly full: 0.5 GB free in /somewhere"),
    "latin-1": (a_machine(output_encoding="latin-1"), {}, "written in latin-1"),
    "too many threads": (a_machine(usable_cores=1.5), {}, "4 threads, but only 2 cores may be used"),
    "stolen core": (
        a_machine(),
        {"speed": [a_speed(1, fp32=100.0), a_speed(4, fp32=40.0)]},
        "4 threads are hardly faster than one",
    ),
    "unsteady": (a_machine(), {"speed": [a_speed(1, fp32=100.0, spread=0.8)]}, "changed by 80%"),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_doubtful_facts_give_warnings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    machine, options, words = DOUBTFUL[name]
    warnings = examined(monkeypatch, machine, **options).warnings  # type: ignore[arg-type]
    assert len(warnings) == 1
    assert words in warnings[0]


def test_an_unknown_load_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examined(monkeypatch, a_machine(load=None, memory_free_bytes=None)).warnings == []


def test_bf16_is_advised_if_the_processor_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    report = examined(monkeypatch, a_machine(), result=a_torch(bf16=True), speed=[a_speed(1, fp32=100.0, bf16=250.0)])
    assert report.advice == ["the processor multiplies in bf16 (2.5 times as fast as in fp32): heedful trains with it"]


def test_without_bf16_units_bf16_is_mentioned_only_if_measured_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = examined(monkeypatch, a_machine(), speed=[a_speed(1, fp32=100.0, bf16=10.0)])
    fast = examined(monkeypatch, a_machine(), speed=[a_speed(1, fp32=100.0, bf16=101.0)])
    assert slow.advice == ["bf16 is slower than fp32 here (10.0 times): heedful trains in fp32"]
    assert fast.advice == []
    gpu = a_torch(devices=(Device(name="cuda:0", model="A GPU", memory_total_bytes=80 * GB, bf16=True),))
    assert examined(monkeypatch, a_machine(), result=gpu, speed=[a_speed(1, fp32=100.0, bf16=10.0)]).advice == []


@pytest.mark.parametrize("error", [ImportError("No module named 'torch'"), OSError("libgomp.so.1: cannot open")])
def test_a_torch_that_cannot_be_loaded_is_a_warning(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> Torch:
        raise error

    monkeypatch.setattr(doctor_module, "describe_torch", fail)
    report = examine(a_machine())
    assert (report.torch, report.speed) == (None, [])
    assert str(error) in report.warnings[0]
    assert str(error) in "".join(text for _, text in lines(report))


def test_the_report_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Device(name="cuda:0", model="A GPU", memory_total_bytes=80 * GB, bf16=True)
    mps = Device(name="mps", model="A Chip", memory_total_bytes=None, bf16=False)
    report = dataclasses.replace(
        examined(monkeypatch, a_machine(usable_cores=1.5, memory_free_bytes=None), result=a_torch(devices=(gpu, mps))),
        extras=[
            Extra("plot", installed={}, missing=("matplotlib",), install="pip install 'heedful[plot]'"),
            Extra("parquet", installed={"pyarrow": "26.0.1"}, missing=(), install="pip install 'heedful[parquet]'"),
        ],
    )
    texts = dict(lines(report))
    assert texts["processor"] == "A Processor, 1.5 of 4 cores usable"
    assert texts["memory"] == "an unknown amount free of 16.0 GB"
    assert texts["torch"] == "2.13.0, 4 threads, BLAS mkl, with oneDNN, AVX2"
    assert texts["  cuda:0"] == "A GPU, 80.0 GB, bf16"
    assert texts["  mps"] == "A Chip, no bf16"
    assert texts["  fp32 product"] == "100 GFLOP/s with 1 thread, 380 GFLOP/s with 4 threads"
    assert texts["  plot"] == "needs matplotlib: pip install 'heedful[plot]'"
    assert texts["  parquet"] == "pyarrow 26.0.1"


def test_json_is_the_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report = examined(monkeypatch, a_machine(load=9.0))
    monkeypatch.setattr(doctor_module, "examine", lambda _: report)
    doctor(json=True)
    values = json.loads(capsys.readouterr().out)
    assert values == json.loads(json.dumps(dataclasses.asdict(report)))
    assert values["machine"]["cores"] == 4
    assert values["speed"][1]["fp32_gflop_per_s"]["best"] == 380.0
    assert len(values["warnings"]) == 1


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_terminal_and_a_pipe_get_the_same_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = examined(monkeypatch, a_machine(load=9.0, folder="/a [bold]folder[/bold]"))
    monkeypatch.setattr(doctor_module, "examine", lambda _: report)
    doctor()
    plain = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    doctor()
    assert "\x1b" not in plain
    assert "\x1b" in terminal.getvalue()
    uncoloured = "".join(part.partition("m")[2] for part in f"m{terminal.getvalue()}".split("\x1b["))
    assert uncoloured.split() == plain.split()


def files(root: Path, **contents: str) -> Path:
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


CGROUP = "sys/fs/cgroup"
CORES = {
    "no control groups": ({}, 8),
    "version 2, no limit": ({"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "max 100000\n"}, 8),
    "version 2": ({"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "150000 100000\n"}, 1.5),
    "version 2, limit of a parent": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            f"{CGROUP}/a/b/cpu.max": "max 100000\n",
            f"{CGROUP}/a/cpu.max": "200000 100000\n",
        },
        2,
    ),
    "version 2, more than there is": ({"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "1600000 100000\n"}, 8),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/other\n3:cpu,cpuacct:/x\n",
            f"{CGROUP}/cpu/other/cpu.cfs_quota_us": "100000\n",
            f"{CGROUP}/cpu/other/cpu.cfs_period_us": "100000\n",
            f"{CGROUP}/cpu/x/cpu.cfs_quota_us": "300000\n",
            f"{CGROUP}/cpu/x/cpu.cfs_period_us": "100000\n",
            f"{CGROUP}/cpu/cpu.cfs_quota_us": "-1\n",
            f"{CGROUP}/cpu/cpu.cfs_period_us": "100000\n",
        },
        3,
    ),
}


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize("name", CORES)
def test_cores_that_may_be_used(tmp_path: Path, name: str) -> None:
    contents, cores = CORES[name]
    assert usable_cores(files(tmp_path, **contents)) == cores


MEMINFO = {"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\nHugePages_Total: 0\n"}
MEMORY = {
    "no limit": ({}, (1000, 600)),
    "no control limit": ({"proc/self/cgroup": "0::/\n", f"{CGROUP}/memory.max": "max\n"}, (1000, 600)),
    "version 2": (
        {
            "proc/self/cgroup": "0::/\n",
            f"{CGROUP}/memory.max": f"{500 * 1024}\n",
            f"{CGROUP}/memory.current": f"{400 * 1024}\n",
            f"{CGROUP}/memory.stat": f"anon 1\ninactive_file {50 * 1024}\n",
        },
        (500, 150),
    ),
    "version 1": (
        {
            "proc/self/cgroup": "5:memory:/x\n",
            f"{CGROUP}/memory/x/memory.limit_in_bytes": f"{500 * 1024}\n",
            f"{CGROUP}/memory/x/memory.usage_in_bytes": f"{100 * 1024}\n",
        },
        (500, 400),
    ),
    "a limit above what there is": (
        {
            "proc/self/cgroup": "0::/\n",
            f"{CGROUP}/memory.max": f"{5000 * 1024}\n",
            f"{CGROUP}/memory.current": "1\n",
        },
        (1000, 600),
    ),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_that_may_be_used(tmp_path: Path, name: str) -> None:
    contents, (total, free) = MEMORY[name]
    assert memory(files(tmp_path, **MEMINFO, **contents)) == (total * 1024, free * 1024)


def test_memory_if_the_system_reports_only_the_total(tmp_path: Path) -> None:
    total, free = memory(tmp_path)
    assert total is not None
    assert total > 0
    assert free is None


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    assert processor(files(tmp_path, **{"proc/cpuinfo": "processor : 0\nmodel name : A: B\n"})) == "A: B"
    assert processor(tmp_path / "nothing") != ""


def test_this_machine(tmp_path: Path) -> None:
    machine, result = describe_machine(tmp_path), describe_torch()
    assert 0 < machine.usable_cores <= machine.cores
    assert machine.folder == str(tmp_path.resolve())
    assert machine.disk_free_bytes > 0
    assert result.version == torch.__version__
    assert result.threads == torch.get_num_threads()
    assert result.blas != "unknown"


def test_extras_are_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = [
        "torch>=2",
        'pyarrow>=20; extra == "parquet"',
        'no-such-package>=1; python_version > "3" and extra == "plot"',
        'matplotlib[x]>=1; extra == "plot"',
        'heedful[parquet, plot]; extra == "dev"',
        'pytest>=9 ; extra == "dev"',
    ]
    metadata = "Metadata-Version: 2.4\nName: heedful\nVersion: 1\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requirements)
    metadata += "Provides-Extra: parquet\nProvides-Extra: plot\nProvides-Extra: dev\n"

    class Package(system_info.importlib.metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return metadata if filename == "METADATA" else None

        def locate_file(self, path: object) -> Path:
            return Path(str(path))

    monkeypatch.setattr(system_info.importlib.metadata, "distribution", lambda _: Package())
    monkeypatch.setattr(system_info, "_version_of", {"pyarrow": "26", "matplotlib": "3", "pytest": "9"}.get)
    parquet, plot, dev = extras()
    assert (parquet.name, parquet.installed, parquet.missing) == ("parquet", {"pyarrow": "26"}, ())
    assert (plot.installed, plot.missing) == ({"matplotlib": "3"}, ("no-such-package",))
    assert plot.install == "pip install 'heedful[plot]'"
    assert dev.installed == {"pyarrow": "26", "matplotlib": "3", "pytest": "9"}
    assert dev.missing == ("no-such-package",)


def test_the_extras_of_this_installation() -> None:
    names = [extra.name for extra in extras()]
    assert {"parquet", "plot", "dev"} <= set(names)
    assert all(extra.installed or extra.missing for extra in extras())


def test_extras_without_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise system_info.importlib.metadata.PackageNotFoundError("heedful")

    monkeypatch.setattr(system_info.importlib.metadata, "distribution", missing)
    assert extras() == []


class Clock:
    """A clock that advances by the given durations, one for each call of the work."""

    def __init__(self, durations: list[float]) -> None:
        self.now = 0.0
        self.durations = iter(durations)

    def work(self) -> None:
        self.now += next(self.durations)

    def __call__(self) -> float:
        return self.now


def test_a_rate_is_the_best_run_and_its_spread() -> None:
    clock = Clock([0.5, 2.0, 1.0, 3.0, 0.5])  # the first run is a warm-up; after the fourth the time is used up
    result = rate(clock.work, amount=10.0, seconds=5.0, clock=clock)
    assert result.best == 10.0
    assert result.spread == 1.0


def test_slow_work_is_run_three_times() -> None:
    clock = Clock([50.0, 50.0, 40.0, 20.0, 1.0])
    assert rate(clock.work, amount=100.0, seconds=1.0, clock=clock) == Rate(best=5.0, spread=1.0)


def test_measuring_leaves_torch_as_it_was() -> None:
    before = torch.get_num_threads()
    speeds = measure(threads=2, memory_free=64 * 10**6)
    assert torch.get_num_threads() == before
    assert [speed.threads for speed in speeds] == [1, 2]
    for speed in speeds:
        assert min(speed.fp32_gflop_per_s.best, speed.bf16_gflop_per_s.best, speed.memory_gb_per_s.best) > 0


def test_speed_is_measured_with_the_given_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "rate", lambda *_, **__: Rate(best=float(torch.get_num_threads()), spread=0.0))
    for threads, counts in {1: [1], 3: [1, 3]}.items():
        speeds = measure(threads=threads, memory_free=10**6)
        assert [speed.threads for speed in speeds] == [speed.fp32_gflop_per_s.best for speed in speeds] == counts
