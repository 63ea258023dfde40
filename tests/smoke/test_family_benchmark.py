"""The benchmark of the family measures what it says."""

from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_words_in_a_bag_learn_what_words_say() -> None:
    from family_peers import bag_of_words

    train = [(f"a {word} film {i % 7}", label) for i in range(40) for word, label in (("good", "+"), ("bad", "-"))]
    assert bag_of_words(train, [("one good thing", "+"), ("one bad thing", "-")]) == 100.0
    assert bag_of_words(train, [("one good thing", "-"), ("one bad thing", "-")]) == 50.0


def test_rouge_l_is_the_longest_common_subsequence() -> None:
    from family import rouge_l

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


def test_a_cnn_learns_in_its_time(tmp_path: Path) -> None:
    from family_peers import cnn_accuracy, divided_pictures

    draw, targets = np.random.default_rng(0), np.arange(640) % 2
    pixels = draw.integers(0, 60, size=(640, 8, 8), dtype=np.uint8)
    pixels[targets == 1, 4:] += 150
    np.savez(tmp_path / "pictures.npz", x=pixels, y=targets)
    given, test = divided_pictures(tmp_path / "pictures.npz", tmp_path)
    assert len(test) == 500
    assert cnn_accuracy(given, test, seconds=2.0) > 90
