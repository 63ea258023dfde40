"""Import some modules and print their side effects as JSON.

Run by test_imports.py in a process of its own.
"""

import importlib
import json
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable

# Python's own importing reads these; everything else that is opened is a side effect.
CODE = (".py", ".pyc", ".so", ".pyd")
FORBIDDEN = ("open", "os.", "socket.", "subprocess.", "shutil.", "tempfile.", "urllib.", "glob.", "pathlib.", "signal.")
# Looking for the file of a module: FileFinder lists its folder once.
LOOKING = ("os.listdir", "os.scandir", "os.stat")


def watched_state() -> dict[str, str]:
    """Return the global state that a module could change, as strings to compare."""
    state: dict[str, Callable[[], object]] = {
        "environment": lambda: sorted(os.environ._data.items()),  # not through the recorder below
        "working folder": os.getcwd,
        "logging": lambda: [
            (name, logger.level, logger.handlers)
            for name, logger in [("root", logging.root), *logging.root.manager.loggerDict.items()]
            if isinstance(logger, logging.Logger) and (logger.level or logger.handlers)
        ],
        "warnings": lambda: warnings.filters,
        "random state": lambda: hash(random.getstate()),
        "signals": lambda: [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "recursion limit": sys.getrecursionlimit,
        "hooks of sys": lambda: (sys.excepthook, sys.displayhook, sys.stdout, sys.stderr, sys.path),
        "threads": lambda: [thread.name for thread in threading.enumerate()],
    }
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        state["numpy random state"] = lambda: hash(
            str(numpy.random.get_state()[1:3]) + str(numpy.random.get_state()[1].sum())
        )
        state["numpy errors"] = numpy.geterr
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        state["torch default dtype"] = torch.get_default_dtype
        state["torch default device"] = torch.get_default_device
        state["torch threads"] = torch.get_num_threads
        state["torch random state"] = lambda: hash(bytes(torch.get_rng_state().numpy()))
        state["torch gradients"] = torch.is_grad_enabled
        state["torch matmul precision"] = torch.get_float32_matmul_precision
        state["torch determinism"] = torch.are_deterministic_algorithms_enabled
        state["torch print options"] = lambda: vars(torch._tensor_str.PRINT_OPTS)
    return {name: repr(look()) for name, look in state.items()}


def main() -> None:
    order = json.loads(sys.argv[1])
    sys.path[:0] = [order["path"]] if order["path"] else []
    for name in order["first"]:
        importlib.import_module(name)
    effects: list[str] = []
    watching = False

    def listen(event: str, arguments: tuple[object, ...]) -> None:
        if not watching or not event.startswith(FORBIDDEN):
            return
        if event == "open" and str(arguments[0]).endswith(CODE) and arguments[1] in ("r", "rb", None):
            return
        if event in LOOKING and _is_looking_for_a_module():
            return
        effects.append(f"{event} {arguments}")

    def read(environment: "os._Environ[str]", key: str) -> str:
        if watching:
            effects.append(f"reads the environment: {key}")
        return str(original(environment, key))

    original = os._Environ.__getitem__
    os._Environ.__getitem__ = read  # type: ignore[method-assign]
    sys.addaudithook(listen)
    before = watched_state()
    watching = True
    for name in order["modules"]:
        importlib.import_module(name)
    watching = False
    after = watched_state()
    effects += [f"{name}: {before[name]} became {after[name]}" for name in before if before[name] != after[name]]
    print(json.dumps(effects))


def _is_looking_for_a_module() -> bool:
    """Return whether Python's import system made the call, and not the code of a module."""
    frame = sys._getframe(2)
    return frame.f_code.co_filename.startswith("<frozen importlib")


if __name__ == "__main__":
    main()
