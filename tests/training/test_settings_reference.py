"""The reference of settings covers every setting, with a description and with what a run accepts."""

import dataclasses
import types
import typing

import pytest

import heedful.training
from heedful.errors import UserError
from heedful.training import SettingRow, Settings, model_setting_rows, read_settings, setting_rows
from heedful.training.run_config import flat
from heedful.training.tasks.registry import TASKS

ROWS = {row.name: row for row in setting_rows()}


def test_every_setting_has_one_row_and_a_description() -> None:
    tables = {n: kind for n, kind in typing.get_type_hints(Settings).items() if dataclasses.is_dataclass(kind)}
    names = {f"{table}.{field.name}" for table, kind in tables.items() for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    assert set(ROWS) == names | {"family", "task"}
    assert len(ROWS) == len(setting_rows())
    undescribed = [name for name, row in ROWS.items() if not row.text and not name.startswith("tokenizer.")]
    assert undescribed == []


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.default], ids=lambda row: row.name)
def test_a_printed_default_can_be_typed(row: SettingRow) -> None:
    assert read_settings(None, [f"{row.name}={row.default}"]) == Settings()


@pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if row.range.startswith("at least")], ids=lambda r: r.name
)
def test_a_printed_range_is_the_range(row: SettingRow) -> None:
    least = int(row.range.removeprefix("at least "))
    accepted = read_settings(None, [f"{row.name}={least}"])
    assert flat(dataclasses.asdict(accepted))[row.name] == least
    with pytest.raises(UserError, match=rf"'{row.name.split('.')[1]}' must be {row.range}, found {least - 1}"):
        read_settings(None, [f"{row.name}={least - 1}"])


def test_every_setting_that_a_task_declares_exists() -> None:
    assert {name for task in TASKS.values() for name in task.settings_used} <= set(ROWS)


def test_settings_of_models_name_the_families_that_have_them() -> None:
    [row] = [row for row in model_setting_rows() if row.name == "model.n_buckets"]
    assert row == SettingRow("model.n_buckets", "integer", "32", row.range, ("t5",), row.text)


def test_every_exported_name_is_there() -> None:
    exported = {name: getattr(heedful.training, name) for name in heedful.training.__all__}
    modules = [name for name, value in exported.items() if isinstance(value, types.ModuleType)]
    assert modules == [], "a module of that name hides the export"
    assert dir(heedful.training) == sorted(exported)
