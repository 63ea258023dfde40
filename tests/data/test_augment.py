"""Pairs as people type them: which, how often, and what becomes of both sides."""

import itertools
from collections import Counter

import pytest

from heedful.data import Example
from heedful.data.augment import InformalCopies, strip_final_punctuation
from heedful.errors import UserError
from heedful.training.settings import DataSettings

PAIRS = [Example(f"Tom has {n} dogs.", f"Tom a {n} chiens !", line=n + 1) for n in range(3000)]
WRITTEN = set(PAIRS)


def test_all_pairs_are_there_and_each_second_one_follows_its_first() -> None:
    found = list(InformalCopies(PAIRS, 0.3))
    first = [example for example in found if example in WRITTEN]
    assert first == PAIRS
    for before, after in itertools.pairwise(found):
        assert after in WRITTEN or after.line == before.line


def test_the_share_is_kept_and_the_three_ways_are_as_frequent() -> None:
    ways = Counter(
        (one.source.endswith("."), one.source.islower(), one.target.endswith("!"))
        for one in InformalCopies(PAIRS, 0.3)
        if one not in WRITTEN
    )
    assert set(ways) == {(False, False, False), (True, True, True), (False, True, False)}
    assert all(abs(count - 300) < 60 for count in ways.values())


def test_the_same_pairs_each_time_and_more_of_them_with_a_larger_share() -> None:
    few, again, more = (list(InformalCopies(PAIRS, share)) for share in (0.2, 0.2, 0.5))
    assert few == again
    assert set(few) < set(more)
    assert list(InformalCopies(PAIRS, 0.0)) == PAIRS


def test_the_target_keeps_its_capitals() -> None:
    assert {one.target[:5] for one in InformalCopies(PAIRS, 1.0)} == {"Tom a"}


@pytest.mark.parametrize(
    ("source", "target", "left"),
    [
        ("Hello!", "Bonjour\u202f!", ("Hello", "Bonjour")),
        ("Wait...", "Attends…", ("Wait", "Attends")),
        ("Who is it? ", "C'est qui ?", ("Who is it", "C'est qui")),
        ("你好。", "Hello.", ("你好", "Hello")),
    ],
)
def test_marks_are_taken_from_both_sides(source: str, target: str, left: tuple[str, str]) -> None:
    assert strip_final_punctuation(Example(source, target)) == Example(*left)


@pytest.mark.parametrize(
    ("source", "target"), [("Hello", "Bonjour."), ("Hello.", "Bonjour"), ("...", "Rien."), ("", "")]
)
def test_where_one_side_has_none_nothing_is_taken(source: str, target: str) -> None:
    assert strip_final_punctuation(Example(source, target)) == Example(source, target)


def test_a_pair_that_would_be_the_same_is_not_repeated() -> None:
    pairs = [Example(f"{n} 只狗", f"{n} dogs") for n in range(200)]
    assert list(InformalCopies(pairs, 1.0)) == pairs


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(UserError, match="informal_share"):
        DataSettings(informal_share=share)
