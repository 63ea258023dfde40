"""The benchmark of the model families trains from existing files and recipes; its baselines and scores are right."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.data import open_images
from heedful.models.model_io import load_model, save_model
from heedful.models.vit import Vit, VitConfig
from heedful.training import read_settings

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "quality"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_a_bag_of_words_learns_which_words_decide_the_label() -> None:
    from family_peers import bag_of_words

    train = [(f"a {word} film {i % 7}", label) for i in range(40) for word, label in (("good", "+"), ("bad", "-"))]
    assert bag_of_words(train, [("one good thing", "+"), ("one bad thing", "-")]) == 100.0
    assert bag_of_words(train, [("one good thing", "-"), ("one bad thing", "-")]) == 50.0


def test_a_large_bag_of_words_leaves_out_words_that_occur_once() -> None:
    from family_peers import bag_of_words

    train = [(f"once{i} {'good' if i % 2 else 'bad'}", "+" if i % 2 else "-") for i in range(1200)]
    assert bag_of_words(train, [("good", "+"), ("bad", "-"), ("once5 bad", "-")]) == 100.0


def test_rouge_l_is_the_longest_common_subsequence() -> None:
    from family_scores import rouge_l

    assert rouge_l(["the cat sat"], ["the cat sat"]) == 100.0
    assert rouge_l(["police killed the gunman"], ["police kill the gunman"]) == pytest.approx(75.0)
    assert rouge_l(["a", ""], ["b", "c"]) == 0.0


def test_a_part_of_the_labels_keeps_their_proportions(tmp_path: Path) -> None:
    from family_data import read_pairs, write_pairs, write_some

    write_pairs(tmp_path / "a.tsv", [(f"text {i}", "rare" if i % 4 == 0 else "common") for i in range(100)])
    some = read_pairs(write_some(tmp_path / "a.tsv", 20, seed=1))
    assert len(some) == len(set(some)) == 20
    assert 4 <= sum(label == "rare" for _, label in some) <= 7
    assert write_some(tmp_path / "a.tsv", 0, seed=1) == tmp_path / "a.tsv"


def test_texts_that_begin_alike_stay_on_one_side_of_a_split() -> None:
    from family_data import beginning, split_pairs

    pairs = [(f"Story {i % 30}: {'x' * 60} told {i}", f"summary {i}") for i in range(90)]
    rest, test = split_pairs(pairs, 10)
    assert (len(rest), len(test)) == (60, 10)
    assert not {beginning(source) for source, _ in rest} & {beginning(source) for source, _ in test}


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    config = VitConfig(
        image_size=8, patch_size=4, n_channels=1, d_model=16, n_heads=2, d_ff=32, n_layers=2, labels=("a", "b")
    )
    return save_model(tmp_path / "vit", Vit(config), None)


def test_a_cnn_learns_with_the_operations_of_a_vit(vit: Path, tmp_path: Path) -> None:
    from family_peers import cnn_accuracy, split_pictures

    rng, targets = np.random.default_rng(0), np.arange(900) % 2
    pixels = rng.integers(0, 60, size=(900, 8, 8), dtype=np.uint8)
    pixels[targets == 1, 4:] += 150
    np.savez(tmp_path / "pictures.npz", x=pixels, y=targets)
    parts = split_pictures(tmp_path / "pictures.npz", tmp_path)
    assert (len(open_images(parts.train)), len(open_images(parts.valid)), len(parts.test)) == (360, 40, 500)
    assert cnn_accuracy(vit, parts, 100_000, seed=1) > 90


def test_operations_are_those_of_the_matrix_products(vit: Path) -> None:
    from family_peers import operations

    width, ff, tokens, n_patches = 16, 32, 5, 4
    layer = 2 * tokens * width * (4 * width + 2 * ff) + 2 * 2 * tokens * tokens * width
    expected = 2 * n_patches * 16 * width + 2 * layer + 2 * width * 2
    assert operations(load_model(vit).model, torch.zeros(1, 1, 8, 8)) == pytest.approx(expected, rel=0.1)


class RecordedTraining:
    """A replacement of training: records its arguments and leaves the files of a finished run."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, command, **options) -> None:
        args = [str(arg) for arg in command]
        assert args[1:4] == ["-m", "heedful", "train"]
        self.commands.append(args[4:])
        run = Path(args[4])
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


@pytest.mark.parametrize("command", ["shakespeare", "labels", "pictures", "summaries", "scan"])
def test_every_command_trains_from_existing_files_and_recipes(command, tmp_path, monkeypatch, capsys) -> None:
    import family
    import family_peers

    for name in ("sst", "trec", "summarise", "scan.simple", "scan.length"):
        for part in ("train", "valid", "test"):
            (tmp_path / f"{name}.{part}.tsv").write_text("".join(f"text {i}\tlabel {i % 2}\n" for i in range(20)))
    for name in ("english.txt", "paragraphs.txt"):
        (tmp_path / name).write_text("a text\n")
    training = RecordedTraining()
    monkeypatch.setattr(family.subprocess, "run", training)
    monkeypatch.setattr(family, "accuracy", lambda run, test: 75.0)
    monkeypatch.setattr(family, "run_heedful", lambda command, model, sources, *args: ["label 0"] * len(sources))
    picture = tmp_path / "picture.npz"
    picture.touch()
    monkeypatch.setattr(family_peers, "split_pictures", lambda path, folder: family_peers.Parts(picture, picture, None))
    monkeypatch.setattr(family_peers, "picture_accuracy", lambda model, test: 80.0)
    monkeypatch.setattr(family_peers, "cnn_accuracy", lambda vit, parts, n, seed: float(n))
    argv = ["family.py", command, "--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "--seeds", "1", "2"]
    if command == "shakespeare":
        text = tmp_path / "lm" / "tinyshakespeare.txt.xz"
        text.parent.mkdir()
        text.touch()
        argv += ["--shared", str(tmp_path)]
    monkeypatch.setattr("sys.argv", argv)
    family.main()
    first = capsys.readouterr().out
    assert "2.000" in first  # minutes of the first start and of the resumption
    assert training.commands
    for args in training.commands:
        settings = args[args.index("--set") + 1 :]
        paths = [Path(arg) for arg in args[1:] if arg.endswith((".toml", ".tsv", ".txt", ".npz", ".xz"))]
        paths += [Path(args[args.index("--init-from") + 1])] if "--init-from" in args else []
        assert len(paths) >= 2
        assert all(path.exists() for path in paths), paths
        recipe = next(path for path in paths if path.suffix == ".toml")
        read_settings(recipe, settings)
    n_runs = len(training.commands)
    family.main()
    assert (len(training.commands), capsys.readouterr().out) == (n_runs, first)
    monkeypatch.setattr("sys.argv", [*argv, "--set", "run.steps=3"])
    with pytest.raises(SystemExit, match="was trained with another recipe or other options"):
        family.main()


def test_sets_of_another_command_are_refused(monkeypatch, capsys) -> None:
    import family

    monkeypatch.setattr("sys.argv", ["family.py", "pictures", "--sets", "sst"])
    with pytest.raises(SystemExit):
        family.main()
    assert "allowed for pictures: cifar, mnist" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", sorted((BENCHMARKS.parent / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_has_valid_settings(recipe: Path) -> None:
    assert read_settings(recipe).run.steps > 0
