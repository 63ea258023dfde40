"""The tables of docs/models.md say what the code says."""

import dataclasses
import re
from pathlib import Path

import torch

from heedful.models.model_io import CARD, CONFIG, WEIGHTS
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from recipe_sizes import RECIPES, recipe_sizes

DOCUMENT = (Path(__file__).parents[2] / "docs/models.md").read_text(encoding="utf-8")
ROWS = {row[0]: row[1:] for row in (re.split(r" *\| *", line.strip("| \n")) for line in DOCUMENT.splitlines()) if row}


def test_every_setting_has_a_row_with_its_default():
    for field in dataclasses.fields(Seq2SeqConfig):
        default, words = ROWS[f"`{field.name}`"]
        if isinstance(field.default, str):
            assert default == f'`"{field.default}"`', field.name
        elif isinstance(field.default, int | float):
            assert default == str(field.default), field.name
        assert words


def test_every_name_that_a_setting_may_have_is_given():
    for field in [*dataclasses.fields(Seq2SeqConfig), dataclasses.fields(PatternConfig)[0]]:
        row = " ".join(ROWS["`pattern`" if field.name == "kind" else f"`{field.name}`"])
        for name in getattr(field.type, "__args__", ()):
            assert not isinstance(name, str) or f'"{name}"' in row, (field.name, name)


def test_the_defaults_of_the_pattern_are_given():
    pattern = PatternConfig()
    assert ROWS["`pattern`"][0] == f'`"{pattern.kind}"`'
    assert f"`span` ({pattern.span})" in ROWS["`pattern`"][1]
    assert f"`n_global` ({pattern.n_global})" in ROWS["`pattern`"][1]


def test_recipes_and_their_numbers_of_parameters():
    for name in RECIPES:
        preset = recipe_sizes(name)
        with torch.device("meta"):
            model = Seq2Seq(Seq2SeqConfig(source_vocab_size=37_000, target_vocab_size=37_000, **preset))
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        n_in_layers = n_parameters - model.source_embedding.table.weight.numel()
        sizes = [str(preset[size]) for size in ("d_model", "d_ff", "n_heads", "n_layers", "dropout", "residual")]
        assert ROWS[f"`{name}`"] == [*sizes, f"{n_parameters:,}", f"{n_in_layers:,}"]


def test_the_files_of_a_folder_are_named():
    for name in (CONFIG, WEIGHTS, CARD, "joint.spm", "source.spm", "target.spm", "manifest.json"):
        assert name in DOCUMENT
