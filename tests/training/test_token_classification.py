"""Tagging, from a file to a run: what is held out, truncated and scored."""

import json
import re
from pathlib import Path

import pytest

from heedful import train
from heedful.errors import UserError
from heedful.models.model_io import load_model
from small_tasks import CASES, sentences

FEW = [*CASES["tagging"].overrides, "run.steps=1", "run.validate_every=1", "run.ema=0.0"]


def write(path: Path, tag_of: dict[str, str], *, numbered: bool = False) -> Path:
    """Write sentences whose words have the tag "N" or that of the table; `numbered`: one word is unique."""
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(sentences(150, seed=3)):
            for word in text.strip(".").split():
                file.write(f"{word}\t{tag_of.get(word, 'N')}{number if numbered and word in tag_of else ''}\n")
            file.write("\n")
    return path


def learn(folder: Path, tags: Path | list[Path], *overrides: str) -> list[str]:
    """Train, and return the notes of the run."""
    said: list[str] = []
    train(
        folder=folder,
        family="bert",
        tags=tags,
        overrides=[*FEW, *overrides],
        listeners=[lambda event: said.append(str(event.get("text")))],
    )
    return said


def test_a_tag_of_held_out_sentences_only_is_known(tmp_path: Path) -> None:
    """The user does not choose which sentences are held out."""
    learn(tmp_path / "run", write(tmp_path / "a", {"man": "R"}, numbered=True))
    parts = [(tmp_path / "run" / "data" / f"{name}.jsonl").read_text().splitlines() for name in ("train", "valid")]
    training, held_out = ({tag for line in part for tag in json.loads(line)[1]} for part in parts)
    assert held_out - training
    assert set(load_model(tmp_path / "run" / "last").model.config.labels) == held_out | training


def test_f1_needs_stretches(tmp_path: Path) -> None:
    """Parts of speech have no spans; the error comes before the first step, not at the first validation."""
    with pytest.raises(UserError, match=r"run\.metric = 'f1' scores spans, .*: use accuracy or loss"):
        learn(tmp_path / "run", write(tmp_path / "a", {"man": "V"}), "run.metric=f1")


def test_columns_that_give_no_word_are_named(tmp_path: Path) -> None:
    """Without numbers in the first column, all lines of a file of three columns would be comments."""
    tags = tmp_path / "a"
    tags.write_text("the x DT\nman y NN\n\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a: no word where data\.columns = \[2, 3\] looks .*number of each word"):
        learn(tmp_path / "run", tags, "data.columns=[2,3]")


def test_truncated_examples_are_reported(tmp_path: Path) -> None:
    tags = write(tmp_path / "a", {"man": "V"})
    assert not any("max_len" in text for text in learn(tmp_path / "whole", tags))
    assert any("more than 4 tokens (data.max_len)" in text for text in learn(tmp_path / "cut", tags, "data.max_len=6"))


def test_the_card_says_how_many_sentences_each_file_has(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", {"man": "R"}), tmp_path / "b"
    second.write_text("a N\nman R\n\nthe N\nwoman N\n\n")
    learn(tmp_path / "run", [first, second])
    card = (tmp_path / "run" / "last" / "README.md").read_text()
    n_held_out = len((tmp_path / "run" / "data" / "valid.jsonl").read_text().splitlines())
    sizes = {name: int(size) for name, size in re.findall(r"^\| training \| (.+?) \| ([0-9]+) \|", card, re.MULTILINE)}
    assert list(sizes) == ["a", "b"] and sizes["b"] <= 2
    assert sum(sizes.values()) == 152 - n_held_out


@pytest.mark.parametrize("kind", ["tagging", "image_classification", "masked_patches"])
def test_joined_files_have_no_weights(kind: str, tmp_path: Path) -> None:
    [(option, path)] = CASES[kind].files(tmp_path).items()
    files, case = {option: [path, path]}, CASES[kind]
    with pytest.raises(UserError, match=r"data\.weights = \[1\.0, 0\.5\]: files of (tags|images) are joined to one"):
        train(
            folder=tmp_path / "run", family=case.family, overrides=[*case.overrides, "data.weights=[1.0,0.5]"], **files
        )
