"""data.informal_share in a run: more pairs to learn from, the same vocabulary, the same pairs to validate on."""

from pathlib import Path

import numpy as np
import pytest

from heedful import train
from heedful.data.augment import strip_final_punctuation
from heedful.models.model_io import CARD
from heedful.training import Files
from heedful.training.data_preparation import PreparedData, prepare_data
from small_run import OVERRIDES, settings

PAIRS = [(f"The {a} dogs see {b} cats.", f"Die {a} Hunde sehen {b} Katzen.") for a in range(30) for b in range(10)]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    for name, side in (("train.en", 0), ("train.de", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    return Files.of(tmp_path / "train.en", tmp_path / "train.de", None, None, None)


def prepared(folder: Path, files: Files, *more: str) -> tuple[PreparedData, list[str]]:
    notes: list[str] = []
    return prepare_data(folder, files.corpora(), None, settings(*more), tokenizers=None, notify=notes.append), notes


def sources(found: PreparedData) -> list[str]:
    [shards] = found.train
    return shards.source.texts(np.arange(len(shards)))  # these settings sample their segmentation, so text is kept


def test_informal_copies_are_added(tmp_path: Path, files: Files) -> None:
    plain, notes = prepared(tmp_path / "plain", files)
    typed, notes_typed = prepared(tmp_path / "typed", files, "data.informal_share=0.5")
    assert {text for text in sources(typed) if text.startswith("The") and text.endswith(".")} == set(sources(plain))
    again = [text for text in sources(typed) if text not in set(sources(plain))]
    assert 0.35 < len(again) / len(sources(plain)) < 0.65
    assert {(text.startswith("the"), text.endswith(".")) for text in again} == {(1, 1), (1, 0), (0, 0)}
    assert typed.tokenizers.source.fingerprint == plain.tokenizers.source.fingerprint
    assert typed.valid == plain.valid and all(strip_final_punctuation(example) != example for example in typed.valid)
    assert not any("informal_share" in line for line in notes)
    assert any("about 50%" in line and "data.informal_share" in line for line in notes_typed)


@pytest.mark.parametrize("share", ["0.0", "0.5"])
def test_the_card_says_what_its_count_of_pairs_counts(tmp_path: Path, files: Files, share: str) -> None:
    few = [
        "run.steps=1",
        "run.validation_sentences=0",
        "run.metric=loss",
        "data.workers=0",
        f"data.informal_share={share}",
    ]
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    folder = train(folder=tmp_path / "run", source=source, target=target, overrides=[*OVERRIDES, *few]).folder
    rows = [line for line in (folder / "last" / CARD).read_text().splitlines() if line.startswith("| training")]
    assert ["also in informal spelling" in row for row in rows] == [share == "0.5"]


def test_another_informal_share_prepares_the_data_again(tmp_path: Path, files: Files) -> None:
    few, _ = prepared(tmp_path / "run", files, "data.informal_share=0.2")
    more, _ = prepared(tmp_path / "run", files, "data.informal_share=0.8")
    assert len(few.train[0]) < len(more.train[0])
