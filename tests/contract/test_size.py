"""A file tells one story in 400 lines, a function fits a screen, a config fits in a head."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from heedful_sources import Source, sources

LINES_OF_A_MODULE = 400
LINES_OF_A_FUNCTION = 60
FIELDS_OF_A_DATACLASS = 20

SOURCES = sources()
PROJECT = Path(__file__).parents[2]


def too_large(source: Source) -> Iterator[str]:
    n_lines = source.text.count("\n")
    if n_lines > LINES_OF_A_MODULE:
        yield f"{source.name} has {n_lines} lines, allowed are {LINES_OF_A_MODULE}"
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            n_lines = node.end_lineno - node.lineno + 1
            if n_lines > LINES_OF_A_FUNCTION:
                yield f"{source.place(node)}: {node.name} has {n_lines} lines, allowed are {LINES_OF_A_FUNCTION}"
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(mark) for mark in node.decorator_list):
            # A table in a config is counted by itself.
            fields = [ast.unparse(line.annotation) for line in node.body if isinstance(line, ast.AnnAssign)]
            n_fields = sum(not annotation.endswith("Config") for annotation in fields)
            if n_fields > FIELDS_OF_A_DATACLASS:
                yield f"{source.place(node)}: {node.name} has {n_fields} fields, allowed are {FIELDS_OF_A_DATACLASS}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_nothing_is_too_large(source: Source) -> None:
    assert list(too_large(source)) == []


def test_all_files_are_looked_at() -> None:
    assert {"heedful", "heedful.errors", "heedful.cli", "heedful.cli.main"} <= {source.name for source in SOURCES}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n" * 401, "401 lines"),
        ("def long():\n" + "    x = 1\n" * 60, "long has 61 lines"),
        ("class A:\n    async def long(self):\n" + "        x = 1\n" * 60, "long has 61 lines"),
        ("def outer():\n    def long():\n" + "        x = 1\n" * 60, "long has 61 lines"),
        ("@dataclass(frozen=True)\nclass God:\n" + "".join(f"    a{i}: int\n" for i in range(21)), "God has 21 fields"),
        ("@dataclasses.dataclass\nclass God:\n" + "".join(f"    a{i}: int = 0\n" for i in range(21)), "God has 21"),
    ],
)
def test_the_test_sees_what_is_too_large(text: str, complaint: str) -> None:
    assert complaint in "".join(too_large(Source("heedful.made_up", is_package=False, text=text)))


def test_the_test_allows_what_is_just_large_enough() -> None:
    function = "def long():\n" + "    x = 1\n" * 59
    config = "@dataclass\nclass C:\n" + "".join(f"    a{i}: int\n" for i in range(20))
    text = function + config
    text += "x = 1\n" * (400 - text.count("\n"))
    assert list(too_large(Source("heedful.made_up", is_package=False, text=text))) == []


def test_every_test_file_has_a_name_of_its_own():
    """Without packages, pytest imports test files by their base name: two of one name, and one is never run."""
    names = Counter(path.name for path in (PROJECT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
