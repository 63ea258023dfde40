"""The benchmark of the family measures what it says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.data.images import open_images
from heedful.models.model_io import load_model, save_model
from heedful.models.vit import Vit, VitConfig
from heedful.training.settings import read_settings

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "quality"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_words_in_a_bag_learn_what_words_say() -> None:
    from family_peers import bag_of_words

    train = [(f"a {word} film {i % 7}", label) for i in range(40) for word, label in (("good", "+"), ("bad", "-"))]
    assert bag_of_words(train, [("one good thing", "+"), ("one bad thing", "-")]) == 100.0
    assert bag_of_words(train, [("one good thing", "-"), ("one bad thing", "-")]) == 50.0


def test_words_of_a_large_bag_that_stand_there_once_are_left_out() -> None:
    from family_peers import bag_of_words

    train = [(f"once{i} {'good' if i % 2 else 'bad'}", "+" if i % 2 else "-") for i in range(1200)]
    assert bag_of_words(train, [("good", "+"), ("bad", "-"), ("once5 bad", "-")]) == 100.0


def test_rouge_l_is_the_longest_common_subsequence() -> None:
    from family_scores import rouge_l

    assert rouge_l(["the cat sat"], ["the cat sat"]) == 100.0
    assert rouge_l(["police killed the gunman"], ["police kill the gunman"]) == pytest.approx(75.0)
    assert rouge_l(["a", ""], ["b", "c"]) == 0.0


def test_some_labels_are_as_many_of_each(tmp_path: Path) -> None:
    from family_data import read_pairs, write_pairs, write_some

    write_pairs(tmp_path / "a.tsv", [(f"text {i}", "rare" if i % 4 == 0 else "common") for i in range(100)])
    some = read_pairs(write_some(tmp_path / "a.tsv", 20, seed=1))
    assert len(some) == len(set(some)) == 20
    assert 4 <= sum(label == "rare" for _, label in some) <= 7
    assert write_some(tmp_path / "a.tsv", 0, seed=1) == tmp_path / "a.tsv"


def test_what_begins_alike_is_never_on_both_sides() -> None:
    from family_data import beginning, divided

    pairs = [(f"Story {i % 30}: {'x' * 60} told {i}", f"summary {i}") for i in range(90)]
    rest, chosen = divided(pairs, 10)
    assert (len(rest), len(chosen)) == (60, 10)
    assert not {beginning(source) for source, _ in rest} & {beginning(source) for source, _ in chosen}


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    config = VitConfig(
        image_size=8, patch_size=4, n_channels=1, d_model=16, n_heads=2, d_ff=32, n_layers=2, labels=("a", "b")
    )
    return save_model(tmp_path / "vit", Vit(config), None)


def test_a_cnn_learns_at_the_cost_of_the_other(vit: Path, tmp_path: Path) -> None:
    from family_peers import cnn_accuracy, divided_pictures

    draw, targets = np.random.default_rng(0), np.arange(900) % 2
    pixels = draw.integers(0, 60, size=(900, 8, 8), dtype=np.uint8)
    pixels[targets == 1, 4:] += 150
    np.savez(tmp_path / "pictures.npz", x=pixels, y=targets)
    parts = divided_pictures(tmp_path / "pictures.npz", tmp_path)
    assert (len(open_images(parts.train)), len(open_images(parts.valid)), len(parts.test)) == (360, 40, 500)
    assert cnn_accuracy(vit, parts, 100_000, seed=1) > 90


def test_operations_are_those_of_the_products(vit: Path) -> None:
    from family_peers import operations

    width, ff, tokens, n_patches = 16, 32, 5, 4
    layer = 2 * tokens * width * (4 * width + 2 * ff) + 2 * 2 * tokens * tokens * width
    expected = 2 * n_patches * 16 * width + 2 * layer + 2 * width * 2
    assert operations(load_model(vit).model, torch.zeros(1, 1, 8, 8)) == pytest.approx(expected, rel=0.1)


class Recorded:
    """Stands for training: writes down what it was asked for, and says that it is done."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, command, **options) -> None:
        words = [str(word) for word in command]
        assert words[1:4] == ["-m", "heedful", "train"]
        self.commands.append(words[4:])
        run = Path(words[4])
        for name in ("average", "best", "last"):
            (run / name).mkdir(parents=True)
            (run / name / "manifest.json").write_text("{}")
        events = [
            {"event": "start", "time": 0.0},
            {"event": "plan", "time": 1.0, "parameters": 5},
            {"event": "validation", "time": 2.0, "step": 10, "loss": 1.5},
            {"event": "stop", "time": 60.0, "tokens": 640, "step": 10},
            {"event": "start", "time": 1000.0},
            {"event": "stop", "time": 1060.0, "tokens": 700, "step": 10},
        ]
        (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.mark.parametrize("what", ["shakespeare", "labels", "pictures", "summaries", "scan"])
def test_every_command_trains_from_files_and_recipes_that_are_there(what, tmp_path, monkeypatch, capsys) -> None:
    import family
    import family_peers

    for name in ("sst", "trec", "summarise", "scan.simple", "scan.length"):
        for part in ("train", "valid", "test"):
            (tmp_path / f"{name}.{part}.tsv").write_text("".join(f"text {i}\tlabel {i % 2}\n" for i in range(20)))
    for name in ("english.txt", "paragraphs.txt"):
        (tmp_path / name).write_text("a text\n")
    asked = Recorded()
    monkeypatch.setattr(family.subprocess, "run", asked)
    monkeypatch.setattr(family, "classified", lambda run, test: 75.0)
    monkeypatch.setattr(family, "written", lambda command, model, sources, *more: ["label 0"] * len(sources))
    picture = tmp_path / "picture.npz"
    picture.touch()
    monkeypatch.setattr(
        family_peers, "divided_pictures", lambda path, folder: family_peers.Parts(picture, picture, None)
    )
    monkeypatch.setattr(family_peers, "picture_accuracy", lambda model, test: 80.0)
    monkeypatch.setattr(family_peers, "cnn_accuracy", lambda vit, parts, n, seed: float(n))
    command = ["family.py", what, "--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "--seeds", "1", "2"]
    if what == "shakespeare":
        text = tmp_path / "lm" / "tinyshakespeare.txt.xz"
        text.parent.mkdir()
        text.touch()
        command += ["--shared", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    family.main()
    first = capsys.readouterr().out
    assert "2.000" in first  # minutes of both sittings
    assert asked.commands
    for words in asked.commands:
        settings = words[words.index("--set") + 1 :]
        places = [Path(word) for word in words[1:] if word.endswith((".toml", ".tsv", ".txt", ".npz", ".xz"))]
        places += [Path(words[words.index("--init-from") + 1])] if "--init-from" in words else []
        assert len(places) >= 2
        assert all(place.exists() for place in places), places
        recipe = next(place for place in places if place.suffix == ".toml")
        read_settings(recipe, settings)
    n_runs = len(asked.commands)
    family.main()
    assert (len(asked.commands), capsys.readouterr().out) == (n_runs, first)
    monkeypatch.setattr("sys.argv", [*command, "--set", "run.steps=3"])
    with pytest.raises(SystemExit, match="was trained in another way"):
        family.main()


def test_sets_of_another_command_are_refused(monkeypatch, capsys) -> None:
    import family

    monkeypatch.setattr("sys.argv", ["family.py", "pictures", "--sets", "sst"])
    with pytest.raises(SystemExit):
        family.main()
    assert "of pictures there are cifar, mnist" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", sorted((BENCHMARKS.parent / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_is_one(recipe: Path) -> None:
    assert read_settings(recipe).run.steps > 0
