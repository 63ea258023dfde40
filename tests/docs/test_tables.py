"""The tables in docs/ list the settings, options, classes and files that the code has, with their defaults."""

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.cli.main import make_app
from heedful.insight.look import look
from heedful.models.bert import BertConfig
from heedful.models.gpt import GptConfig
from heedful.models.model_io import CARD, CONFIG, WEIGHTS
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from heedful.models.vit import VitConfig
from look_models import look_model
from recipe_sizes import RECIPES, recipe_sizes

PROJECT = Path(__file__).parents[2]
NN_FILES = sorted(path for path in (PROJECT / "src/heedful/nn").glob("*.py") if path.stem != "__init__")
CONFIGS = {"models": Seq2SeqConfig, "models/gpt": GptConfig, "models/bert": BertConfig, "models/vit": VitConfig}


def read_page(name: str) -> str:
    return (PROJECT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def table_rows(page: str) -> dict[str, list[str]]:
    """Map the first cell of each table row to its other cells."""
    cells = (re.split(r" *(?<!\\)\| *", line.strip("| \n")) for line in page.splitlines() if line.startswith("|"))
    return {row[0]: row[1:] for row in cells}


@pytest.mark.parametrize("page", CONFIGS)
def test_every_setting_of_a_model_has_a_row_with_its_default_and_its_choices(page: str) -> None:
    rows = table_rows(read_page(page))
    for field in dataclasses.fields(CONFIGS[page]):
        default, description = rows[f"`{field.name}`"]
        if isinstance(field.default, str):
            assert default == f'`"{field.default}"`', field.name
        elif isinstance(field.default, int | float | tuple):
            assert default == str(field.default), field.name
        for choice in getattr(field.type, "__args__", ()):
            assert not isinstance(choice, str) or f'"{choice}"' in f"{default} {description}", (field.name, choice)
        assert description


def test_the_row_of_the_attention_pattern_has_its_choices_and_defaults() -> None:
    default, description = table_rows(read_page("models"))["`pattern`"]
    pattern = PatternConfig()
    assert default == f'`"{pattern.kind}"`'
    assert f"`span` ({pattern.span})" in description
    assert f"`n_global` ({pattern.n_global})" in description
    kind: Any = dataclasses.fields(PatternConfig)[0].type
    assert [choice for choice in kind.__args__ if f'"{choice}"' not in f"{default} {description}"] == []


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_a_row_with_its_sizes_and_numbers_of_parameters(name: str) -> None:
    sizes = recipe_sizes(name)
    with torch.device("meta"):
        model = Seq2Seq(Seq2SeqConfig(source_vocab_size=37_000, target_vocab_size=37_000, **sizes))
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    n_in_layers = n_parameters - model.source_embedding.table.weight.numel()
    cells = [str(sizes[size]) for size in ("d_model", "d_ff", "n_heads", "n_layers", "dropout", "residual")]
    assert table_rows(read_page("models"))[f"`{name}`"] == [*cells, f"{n_parameters:,}", f"{n_in_layers:,}"]


def test_every_file_of_a_model_folder_is_named() -> None:
    files = (CONFIG, WEIGHTS, CARD, "joint.spm", "source.spm", "target.spm", "manifest.json")
    assert [name for name in files if name not in read_page("models")] == []


@pytest.mark.parametrize("path", NN_FILES, ids=lambda path: path.stem)
def test_every_file_and_class_of_nn_is_named(path: Path) -> None:
    classes = [node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    internal = {"Attend", "Rule", "KeyValueStore", "LayerCache", "Dropout"}  # protocols, and parts of parts
    names = [path.stem, *(name for name in classes if not name.startswith("_") and name not in internal)]
    assert [name for name in names if f"`{name}" not in read_page("nn")] == []


@pytest.mark.parametrize("command", ["fill", "classify", "embed"])
def test_every_option_of_an_encoder_command_has_a_row(command: str) -> None:
    section = read_page("encode").split(f"\n## {command}\n")[1].split("\n## ")[0]
    for option in command_options(command):
        names = "|".join([*option.names, option.names[0].strip("-").upper()])
        assert re.search(rf"^\| `({names})\b", section, flags=re.MULTILINE), option.names


def test_every_option_of_look_has_a_row() -> None:
    page = read_page("look")
    for option in command_options("look"):
        assert any(f"`{name}" in page for name in option.names) or option.name == "--sentence", option.name


def command_options(command: str) -> Any:
    app = make_app()
    return app[command].assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)


def test_every_key_of_a_trace_file_is_described() -> None:
    page = read_page("look")
    description = page[page.index("## The trace file") :]

    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*(keys(item) for name, item in value.items() if name != "config"))
        return set().union(*(keys(item) for item in value)) if isinstance(value, list) else set()

    values = look(look_model(), "A dog runs.", beam=2, branches=1, masked_words=[0]).to_values()
    missing = [key for key in sorted(keys(values)) if not re.search(rf"(?<!\w){re.escape(key)}(?!\w)", description)]
    assert missing == []
