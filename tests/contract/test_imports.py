"""Folders import leftwards only, and importing does nothing: no environment, no file, no global switch."""

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.cli.system_info import extras
from heedful_sources import FOLDERS, INSIDE, PROJECT, Source, sources

# What a search may import from heedful: no model and no tokenizer.
KNOWN_TO_SEARCHES = ("heedful.decoding.search", "heedful.text.special_ids", "heedful.config", "heedful.errors")
SOURCES = sources()


def imported(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    """Each import statement with the dotted name of what it imports, wherever in the file it stands."""
    package = source.name.split(".") if source.is_package else source.name.split(".")[:-1]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node, f"{module}.{alias.name}") for alias in node.names)


def wrong_imports(source: Source) -> Iterator[str]:
    for node, name in imported(source):
        package, _, inside = name.partition(".")
        if package == "heedful" and not _may_import(source.folder, inside.partition(".")[0]):
            yield f"{source.place(node)}: heedful.{source.folder} must not import {name}"
        elif not _may_import_inside(source, name.split(".")):
            yield f"{source.place(node)}: {source.name.rpartition('.')[0]} must not import {name}"


def _may_import_inside(source: Source, name: list[str]) -> bool:
    """Check the order of the folders inside a folder. The files beside these folders may import from all of them."""
    importer = source.name.split(".")
    row = INSIDE.get(source.folder)
    if row is None or len(importer) < 3 or name[:2] != importer[:2] or importer[2] not in row:
        return True
    return len(name) > 2 and name[2] in row and row.index(name[2]) <= row.index(importer[2])


def _may_import(importer: str, name: str) -> bool:
    if importer == "nn":  # knows nothing of heedful
        return name == "nn"
    if name == importer or name == "__version__":
        return True
    if name == "cli":
        return importer == "__main__"
    if importer in ("__init__", "__main__", "cli"):
        return True
    if name in FOLDERS:
        return importer in FOLDERS and FOLDERS.index(name) < FOLDERS.index(importer)
    return name in BESIDE_THE_FOLDERS  # and not a name that heedful/__init__.py takes from a folder to the right


BESIDE_THE_FOLDERS = {source.folder for source in SOURCES if source.name.count(".") == 1 and not source.is_package} - {
    "__main__"
}


PACKAGES = ("heedful", "heedful.decoding")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_folders_import_leftwards_only(source: Source) -> None:
    assert list(wrong_imports(source)) == []


def test_every_folder_stands_on_the_map() -> None:
    folders = {source.folder for source in SOURCES if source.name.count(".") >= 1} - BESIDE_THE_FOLDERS - {"__main__"}
    assert folders <= set(FOLDERS)


@pytest.mark.parametrize("folder", INSIDE)
def test_every_folder_inside_stands_in_its_row(folder: str) -> None:
    packages = {
        source.name.split(".")[2] for source in SOURCES if source.folder == folder and source.name.count(".") > 2
    }
    assert packages == set(INSIDE[folder])


@pytest.mark.parametrize(
    "source", [source for source in SOURCES if source.name.startswith("heedful.decoding.search.")], ids=lambda s: s.name
)
def test_searches_know_no_model(source: Source) -> None:
    own = [name for _, name in imported(source) if name.startswith("heedful.")]
    assert [name for name in own if not name.startswith(tuple(f"{known}." for known in KNOWN_TO_SEARCHES))] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("heedful.text.a", "from heedful.data import Batch"),
        ("heedful.text.a", "import heedful.data.collate"),
        ("heedful.text.a", "from heedful import data"),
        ("heedful.text.a", "from heedful import train"),
        ("heedful.text.a", "def f():\n    from heedful.models import load_model"),
        ("heedful.text.a", "from ..data import Batch"),
        ("heedful.data.a", "from heedful.nn import masks"),
        ("heedful.nn.a", "from heedful.errors import UserError"),
        ("heedful.nn.a", "from heedful.text import SPECIAL_IDS"),
        ("heedful.decoding.a", "from heedful.training.trainer import fit"),
        ("heedful.serving.a", "from heedful.cli.main import run"),
        ("heedful.errors", "from heedful.text import SPECIAL_IDS"),
        ("heedful", "from heedful.cli.main import main"),
        ("heedful.text.a", "if TYPE_CHECKING:\n    from heedful.data import Batch"),
        ("heedful.decoding.search.a", "from heedful.decoding.steps.fast_seq2seq import FastSeq2SeqStep"),
        ("heedful.decoding.engines.a", "from heedful.decoding import translator"),
        ("heedful.decoding.engines.a", "from heedful.decoding import Translator"),
        ("heedful.decoding.engines.a", "import heedful.decoding"),
        ("heedful.decoding.engines.a", "from ..translator import Translator"),
    ],
)
def test_the_test_sees_an_import_to_the_right(name: str, text: str) -> None:
    assert list(wrong_imports(Source(name, is_package=name in PACKAGES, text=text))) != []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("heedful.data.a", "from heedful.text import SPECIAL_IDS"),
        ("heedful.data.a", "from heedful.errors import UserError"),
        ("heedful.data.a", "from heedful import __version__, errors"),
        ("heedful.data.a", "from . import batch\nfrom .batch import Batch\nimport heedful.data.collate"),
        ("heedful.nn.a", "import torch\nfrom heedful.nn.masks import causal"),
        ("heedful.cli.a", "from heedful import train\nfrom heedful.training.trainer import fit"),
        ("heedful.__main__", "from heedful.cli.main import main"),
        ("heedful", "from heedful.training.trainer import fit"),
        ("heedful.decoding.steps.a", "from heedful.decoding.search.step import Step\nfrom .reference import a"),
        ("heedful.decoding.translator", "from heedful.decoding import engines\nfrom heedful.text import SPECIAL_IDS"),
        ("heedful.decoding.translator", "from heedful.decoding.search.step import Step"),
        ("heedful.decoding", "from heedful.decoding.hf_pipelines import pipeline"),
    ],
)
def test_the_test_allows_an_import_to_the_left(name: str, text: str) -> None:
    assert list(wrong_imports(Source(name, is_package=name in PACKAGES, text=text))) == []


# The packages whose public names are imported when they are first used
LAZY = [source.name for source in SOURCES if source.is_package and "def __getattr__(" in source.text]


@pytest.mark.parametrize("package", LAZY)
def test_public_names_are_there_and_listed(package: str) -> None:
    module = importlib.import_module(package)
    assert {"heedful", "heedful.data", "heedful.nn", "heedful.models", "heedful.decoding"} <= set(LAZY)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(module.__all__) <= set(dir(module))  # for tab completion
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'absent'"):
        module.absent  # noqa: B018


def imported_when_loaded(tree: ast.AST) -> Iterator[str]:
    """The names of modules that are imported as soon as a module is: not those inside its functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imported_when_loaded(node)


def side_effects(modules: list[str], *, first: list[str], path: str = "") -> list[str]:
    """What importing `modules` does beside defining names, once the foreign modules `first` are imported."""
    watcher = PROJECT / "tests" / "support" / "watch_imports.py"
    command = [sys.executable, "-B", str(watcher), json.dumps({"first": first, "modules": modules, "path": path})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [str(effect) for effect in json.loads(done.stdout)]


def test_importing_does_nothing() -> None:
    modules = [source.name for source in SOURCES if source.name != "heedful.__main__"]
    foreign = {name for source in SOURCES for name in imported_when_loaded(source.tree)}
    foreign = {name for name in foreign if name.split(".")[0] not in ("heedful", "_typeshed", "__future__")}
    assert side_effects(modules, first=sorted(foreign | {"torch", "numpy"})) == []


def test_no_module_needs_an_optional_part() -> None:
    optional = {package.replace("-", "_") for extra in extras() for package in [*extra.installed, *extra.missing]}
    modules = [source.name for source in SOURCES if source.name != "heedful.__main__"]
    program = f"import importlib, sys\nfor name in {optional}: sys.modules[name] = None\n"
    program += f"for name in {modules}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert "pyarrow" in optional
    assert done.returncode == 0, done.stderr


EFFECTS = {
    "import os; home = os.environ.get('HOME')": "reads the environment: HOME",
    "user = os.getenv('USER')": "reads the environment: USER",
    "os.environ['HEEDFUL'] = '1'": "os.putenv",
    "open(__file__ + '.txt', 'w').close()": "made_up.py.txt",
    "text = open('/etc/hostname').read()": "/etc/hostname",
    "import pathlib; files = list(pathlib.Path('.').iterdir())": "os.listdir",
    "import subprocess; subprocess.run(['true'])": "subprocess.Popen",
    "import socket; socket.socket().close()": "socket.__new__",
    "import torch; torch.set_default_dtype(torch.float64)": "torch default dtype",
    "torch.set_num_threads(5)": "torch threads",
    "torch.manual_seed(3)": "torch random state",
    "torch.set_grad_enabled(False)": "torch gradients",
    "torch.set_float32_matmul_precision('medium')": "torch matmul precision",
    "torch.use_deterministic_algorithms(True)": "torch determinism",
    "import random; random.random()": "random state",
    "import numpy; numpy.random.rand()": "numpy random state",
    "import logging; logging.getLogger('heedful').addHandler(logging.NullHandler())": "logging",
    "import warnings; warnings.simplefilter('ignore')": "warnings",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)": "signals",
    "import sys; sys.setrecursionlimit(12345)": "recursion limit",
    "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()": "threads",
}


def test_the_test_sees_what_an_import_does(tmp_path: Path) -> None:
    text = "\n".join(EFFECTS)
    (tmp_path / "made_up.py").write_text(text)
    seen = side_effects(["made_up"], first=list(imported_when_loaded(ast.parse(text))), path=str(tmp_path))
    assert [effect for effect in EFFECTS.values() if not any(effect in words for words in seen)] == []


def test_the_test_allows_what_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "made_up.py").write_text("import logging\nlog = logging.getLogger(__name__)\nx = {'a': 1}\n")
    assert side_effects(["made_up"], first=["logging"], path=str(tmp_path)) == []
