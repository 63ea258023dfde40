"""constraints.txt has the versions that are tested: one for each package that heedful installs, and the one in use."""

import importlib.metadata
import tomllib
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from heedful_sources import PROJECT

# What pip brings along when torch is built for a GPU; its versions are torch's own choice.
OF_TORCH = ("nvidia-", "cuda-", "triton")


def pinned() -> dict[str, Version]:
    lines = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def needed(requirement: Requirement, seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """The packages that a requirement installs here, its own requirements among them."""
    name = canonicalize_name(requirement.name)
    if (name, frozenset(requirement.extras)) in seen:
        return
    seen.add((name, frozenset(requirement.extras)))
    yield name
    for line in importlib.metadata.requires(name) or []:
        inner = Requirement(line)
        if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
            yield from needed(inner, seen)


def test_every_package_has_its_tested_version() -> None:
    versions = pinned()
    names = {name for name in needed(Requirement("heedful[dev]"), set()) if not name.startswith(OF_TORCH)}
    assert {"torch", "pyarrow", "matplotlib", "mypy"} <= names
    assert names - {"heedful"} - versions.keys() == set()


def test_the_tested_versions_are_those_in_use() -> None:
    in_use = {
        canonicalize_name(package.metadata["Name"]): Version(Version(package.version).public)  # torch: without "+cpu"
        for package in importlib.metadata.distributions()
    }
    other = {name: in_use[name] for name, version in pinned().items() if in_use.get(name, version) != version}
    assert other == {}


def test_the_build_is_pinned_too() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    for line in project["build-system"]["requires"]:
        requirement = Requirement(line)
        assert pinned()[canonicalize_name(requirement.name)] in requirement.specifier
