"""What `--set` is refused for, in words, before anything is read or written."""

from pathlib import Path

import pytest
from small_run import write_corpus

from heedful.errors import UserError
from heedful.training.record import Files
from heedful.training.settle import settle


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Files:
    source, target = write_corpus(tmp_path_factory.mktemp("pairs"))
    return Files.of(source, target, None, None, None)


@pytest.mark.parametrize("recipe", [None, "tiny"])
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("model=5", r"'model' must be a table.*found 5"),
        ("data=3", r"'data' must be a table.*found 3"),
        ("run=fast", r"'run' must be a table.*found 'fast'"),
        ("optimiser.eps=-1.0", r"'optimiser\.eps' must be positive, found -1\.0"),
        ("run.seed=99999999999999999999999", r"'seed' must be less than .*, found 99999999999999999999999"),
        ("run.seed=-1", r"'seed' must be at least 0, found -1"),
        ("run.threads=-1", r"'threads' must be at least 1, found -1"),
        ("run.threads=0", r"'threads' must be at least 1, found 0"),
        ("run.patience=0", r"'patience' must be at least 1, found 0"),
        ("run.minutes=0", r"'minutes' must be positive, found 0"),
        ("run.minutes=-2.5", r"'minutes' must be positive, found -2\.5"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_words(typed: str, words: str, recipe: str | None, pairs: Files) -> None:
    with pytest.raises(UserError, match=words):
        settle(pairs, None, recipe, [typed])


def test_a_table_of_a_recipe_is_a_table(pairs: Files, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("model = 5\n")
    with pytest.raises(UserError, match=r"recipe\.toml.*'model' must be a table.*found 5"):
        settle(pairs, None, tmp_path / "recipe.toml", [])
