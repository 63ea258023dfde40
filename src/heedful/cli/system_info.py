"""Facts about this machine: cores, memory, disk, locale, torch and its devices, optional parts.

Each function asks the system when it is called; a value that the system does not provide is None.
"""

import importlib.metadata
import locale
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful import __version__
from heedful.devices import n_cores

ROOT = Path("/")


@dataclass(frozen=True)
class Machine:
    """The machine and the Python that heedful runs on."""

    heedful: str
    python: str
    system: str
    processor: str
    cores: int
    usable_cores: float  # within the limits of the process's affinity and of its control group
    load: float | None  # mean number of processes ready to run in the last minute
    memory_total_bytes: int | None  # within the limit of the control group
    memory_free_bytes: int | None
    folder: str
    disk_free_bytes: int
    locale: str
    output_encoding: str


@dataclass(frozen=True)
class Device:
    """A GPU that torch can use."""

    name: str
    model: str
    memory_total_bytes: int | None
    bf16: bool


@dataclass(frozen=True)
class Torch:
    """The installed torch and the devices that it can use."""

    version: str
    threads: int
    blas: str
    onednn: bool
    instructions: str  # the widest that its kernels use on this processor: AVX2, AVX512, …
    devices: tuple[Device, ...]
    bf16: bool = False  # whether the processor has instructions for bfloat16


@dataclass(frozen=True)
class Extra:
    """An optional part of heedful, which pip installs as heedful[name]."""

    name: str
    installed: dict[str, str]  # package -> version
    missing: tuple[str, ...]
    install: str


def describe_machine(folder: Path) -> Machine:
    """Describe this machine; the free disk space is that of `folder`."""
    total, free = memory()
    return Machine(
        heedful=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=processor(),
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        memory_total_bytes=total,
        memory_free_bytes=free,
        folder=str(folder.resolve()),
        disk_free_bytes=shutil.disk_usage(folder).free,
        locale=locale.setlocale(locale.LC_CTYPE),  # without a second argument it changes nothing
        output_encoding=sys.stdout.encoding,
    )


def processor(root: Path = ROOT) -> str:
    """Return the name of the processor."""
    for line in _lines(root / "proc/cpuinfo"):
        label, _, value = line.partition(":")
        if label.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def usable_cores(root: Path = ROOT) -> float:
    """Return the cores that this process may use; a control group may grant a fraction of one."""
    cores = float(n_cores())
    for group in _control_groups(root, "cpu"):
        quota, period, *_ = [*_words(group / "cpu.max"), "", ""]  # version 2: "150000 100000" or "max 100000"
        if not quota:  # version 1, where -1 means no limit
            quota, period = _word(group / "cpu.cfs_quota_us"), _word(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            cores = min(cores, int(quota) / int(period))
    return cores


def memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Return the total memory and the memory that a new program could use, in bytes, within our control group."""
    known = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in _lines(root / "proc/meminfo")}
    total, free = known.get("MemTotal"), known.get("MemAvailable")
    if total is None and hasattr(os, "sysconf"):  # macOS
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for group in _control_groups(root, "memory"):
        limit = _word(group / "memory.max") or _word(group / "memory.limit_in_bytes")
        used = _word(group / "memory.current") or _word(group / "memory.usage_in_bytes")
        if limit.isdigit() and used.isdigit() and total is not None and int(limit) < total:
            total = int(limit)
            free = min(free or total, max(0, total - int(used) + _cached_files(group)))
    return total, free


def _cached_files(group: Path) -> int:
    """Return the bytes of the group's file cache, which the system frees when programs need memory."""
    known = dict(line.split(maxsplit=1) for line in _lines(group / "memory.stat"))
    return int(known.get("inactive_file", 0))


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Iterate over the folders of this process's control groups and of their parents, whose limits hold as well."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        mount = root / "sys/fs/cgroup"
        if controllers:  # version 1 has a tree for each controller; version 2 has one tree, and this field is empty
            if controller not in controllers.split(","):
                continue
            mount /= controller
        group = mount / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(mount))


def _lines(path: Path) -> list[str]:
    """Return the lines of a system file, or an empty list if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _word(path: Path) -> str:
    return (_words(path) or [""])[0]


def describe_torch() -> Torch:
    """Describe the installed torch; raise ImportError or OSError if torch, or a library that it needs, is missing."""
    import torch

    from heedful.training.runtime import has_bfloat16_units

    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return Torch(
        version=torch.__version__,
        threads=torch.get_num_threads(),
        blas=blas.group(1) if blas else "unknown",
        onednn=torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        instructions=torch.backends.cpu.get_cpu_capability(),
        devices=tuple(_devices()),
        bf16=has_bfloat16_units(torch.device("cpu")),
    )


def _devices() -> Iterator[Device]:
    import torch

    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        with torch.cuda.device(i):
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        yield Device(name=f"cuda:{i}", model=properties.name, memory_total_bytes=properties.total_memory, bf16=bf16)
    if torch.backends.mps.is_available():
        yield Device(
            name="mps", model=processor(), memory_total_bytes=None, bf16=torch.backends.mps.is_macos_or_newer(14, 0)
        )


def extras() -> list[Extra]:
    """Return the optional parts that the installed package declares; an empty list if heedful is not installed."""
    try:
        package = importlib.metadata.distribution("heedful")
    except importlib.metadata.PackageNotFoundError:
        return []
    requirements = package.requires or []
    names = package.metadata.get_all("Provides-Extra") or []
    return [_extra(name, sorted(_packages_of(name, requirements))) for name in names]


def _extra(name: str, packages: list[str]) -> Extra:
    versions = {package: _version_of(package) for package in packages}
    return Extra(
        name=name,
        installed={package: version for package, version in versions.items() if version is not None},
        missing=tuple(package for package, version in versions.items() if version is None),
        install=f"pip install 'heedful[{name}]'",
    )


def _packages_of(extra: str, requirements: list[str]) -> set[str]:
    """Return the packages of `heedful[extra]`, from lines like `pyarrow>=20; extra == "parquet"`."""
    packages: set[str] = set()
    for requirement in requirements:
        needed, _, condition = requirement.partition(";")
        if not re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", condition):
            continue
        parts = re.match(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?", needed)
        assert parts is not None, f"not a requirement: {requirement}"
        if parts.group(1) == "heedful":  # an extra that combines others: heedful[parquet,plot]
            for other in (parts.group(2) or "").split(","):
                packages |= _packages_of(other.strip(), requirements)
        else:
            packages.add(parts.group(1))
    return packages


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
