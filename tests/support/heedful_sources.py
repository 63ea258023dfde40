"""The source files of the package, parsed without importing them, for the contract tests."""

import ast
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]

# The map of docs/architecture.md, from left to right. What stands beside the folders (errors, config, …) comes first.
FOLDERS = (
    "text",
    "data",
    "nn",
    "models",
    "interop",
    "decoding",
    "evaluation",
    "training",
    "insight",
    "serving",
    "lab",
    "cli",
)
# The folders inside a folder of the map, in the same way; what it has no folder for is open to none of them.
INSIDE = {"decoding": ("search", "steps", "engines")}
PACKAGE = PROJECT / "src" / "heedful"


@dataclass(frozen=True)
class Source:
    name: str  # dotted, as it is imported: heedful.cli.main
    is_package: bool
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def folder(self) -> str:
        """Return the folder of the file, or for files at the top their name: errors, config, __init__."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else "__init__"

    def place(self, node: ast.stmt | ast.expr) -> str:
        return f"{self.name}, line {node.lineno}"


def sources() -> list[Source]:
    return [_source(path) for path in sorted(PACKAGE.rglob("*.py"))]


def _source(path: Path) -> Source:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Source(
        name=".".join(parts[:-1] if is_package else parts),
        is_package=is_package,
        text=path.read_text(encoding="utf-8"),
    )
