"""Training: from files to a run folder with trained models.

The function `train` is `heedful.train`; here are the parts around it.

>>> from heedful.training import read_settings
>>> read_settings("tiny").model["d_model"]
128
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.training.checkpoint import Checkpoint, load_checkpoint, newest_checkpoint
    from heedful.training.console import make_view
    from heedful.training.events import LOG, Event, Listener, RunLog, read_log
    from heedful.training.run_config import Files, RunRecord, read_record
    from heedful.training.settings import Settings, read_settings
    from heedful.training.settings_reference import SettingRow, model_setting_rows, setting_rows
    from heedful.training.tensorboard import TensorBoardLog
    from heedful.training.train import Run
    from heedful.training.trainer import Trainer

# name -> module; loaded when it is first used, since torch takes seconds to import
_MODULES = {
    "Checkpoint": "checkpoint",
    "Event": "events",
    "Files": "run_config",
    "LOG": "events",
    "Listener": "events",
    "Run": "train",
    "RunLog": "events",
    "RunRecord": "run_config",
    "SettingRow": "settings_reference",
    "Settings": "settings",
    "TensorBoardLog": "tensorboard",
    "Trainer": "trainer",
    "load_checkpoint": "checkpoint",
    "make_view": "console",
    "model_setting_rows": "settings_reference",
    "newest_checkpoint": "checkpoint",
    "read_log": "events",
    "read_record": "run_config",
    "read_settings": "settings",
    "setting_rows": "settings_reference",
}

__all__ = [
    "LOG",
    "Checkpoint",
    "Event",
    "Files",
    "Listener",
    "Run",
    "RunLog",
    "RunRecord",
    "SettingRow",
    "Settings",
    "TensorBoardLog",
    "Trainer",
    "load_checkpoint",
    "make_view",
    "model_setting_rows",
    "newest_checkpoint",
    "read_log",
    "read_record",
    "read_settings",
    "setting_rows",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"heedful.training.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
