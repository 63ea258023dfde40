"""docs/nn.md names every part. (That its examples run is tested with all documents.)"""

import ast
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PARTS = sorted(path for path in (PROJECT / "src/heedful/nn").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.stem)
def test_every_file_and_every_class_is_named(path: Path) -> None:
    document = (PROJECT / "docs/nn.md").read_text(encoding="utf-8")
    classes = [node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    internal = {"Attend", "Rule", "KeyValueStore", "LayerCache", "Dropout"}  # protocols, and parts of parts
    names = [path.stem, *(name for name in classes if not name.startswith("_") and name not in internal)]
    assert [name for name in names if f"`{name}" not in document] == []
