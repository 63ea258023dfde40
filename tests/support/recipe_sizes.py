"""The sizes of the packaged recipes for translation, for tests that need models of real sizes."""

from typing import Any

from heedful.config import read_toml
from heedful.training.settings import find_recipe

RECIPES = ("tiny", "small", "base", "big")


def recipe_sizes(name: str) -> dict[str, Any]:
    """Return the table [model] of a recipe."""
    table: dict[str, Any] = read_toml(find_recipe(name))["model"]
    return table
