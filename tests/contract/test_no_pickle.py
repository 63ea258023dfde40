"""No file and no request can make heedful run code: nothing in the package unpickles, evaluates or executes.

`torch.load(weights_only=True)` is not allowed either: it was broken twice (CVE-2025-32434, CVE-2026-24747).
"""

import ast
from collections.abc import Iterator

import pytest

from heedful_sources import Source, sources

MODULES = {
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "jsonpickle",
    "marshal",
    "pickle",
    "shelve",
    "torch.distributed.checkpoint",  # plain pickle inside (RELIABILITY: torch 2.13 FileSystemReader)
    "torch.hub",
}
BUILTINS = {"eval", "exec", "compile", "__import__"}
FUNCTIONS = {"torch.load", "torch.save", "torch.hub.load", "torch.jit.load", "torch.package.PackageImporter"}
METHODS = {"read_pickle", "to_pickle", "load_state_dict_from_url", "unsafe_load", "full_load"}


def unsafe(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        for name in _names(node):
            if any(name == module or name.startswith(f"{module}.") for module in MODULES) or name in FUNCTIONS:
                yield f"{source.name}, line {getattr(node, 'lineno', '?')}: {name}"
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            yield f"{source.place(node)}: {node.func.id}"
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield f"{source.place(node)}: {node.func.attr}"
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and not _is_false(keyword.value):
                yield f"{source.place(node)}: allow_pickle"


def _names(node: ast.AST) -> list[str]:
    """The dotted names that a node imports or mentions."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [ast.unparse(node)] if isinstance(node, ast.Attribute) else []


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
def test_nothing_runs_code_from_outside(source: Source) -> None:
    assert list(unsafe(source)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "def f():\n    from marshal import loads",
        "import torch\ntorch.load('x', weights_only=True)",
        "import torch\nread = torch.load",
        "from torch import load",
        "torch.save({}, 'x')",
        "from torch.distributed import checkpoint",
        "import torch.distributed.checkpoint as dcp",
        "eval('1')",
        "exec(text)",
        "__import__(name)",
        "np.load('x', allow_pickle=True)",
        "np.load('x', allow_pickle=flag)",
        "pandas.read_pickle('x')",
    ],
)
def test_the_test_sees_what_is_unsafe(text: str) -> None:
    assert list(unsafe(Source("heedful.made_up", is_package=False, text=text))) != []


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "re.compile('x')",
        "torch.compile(model)",
        "np.load('x', allow_pickle=False)",
        "from heedful.training import checkpoint",
        "from torch.utils.checkpoint import checkpoint",
    ],
)
def test_the_test_allows_what_is_safe(text: str) -> None:
    assert list(unsafe(Source("heedful.made_up", is_package=False, text=text))) == []
