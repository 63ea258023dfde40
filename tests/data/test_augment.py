"""Informal copies of pairs: which pairs, how many, and how both sides change."""

import itertools
from collections import Counter

import pytest

from heedful.data import Example
from heedful.data.augment import InformalCopies, strip_final_punctuation
from heedful.errors import UserError
from heedful.training.settings import DataSettings

PAIRS = [Example(f"Tom has {n} dogs.", f"Tom a {n} chiens !", line=n + 1) for n in range(3000)]
ORIGINALS = set(PAIRS)


def test_all_pairs_are_kept_and_each_copy_follows_its_original() -> None:
    copies = list(InformalCopies(PAIRS, 0.3))
    first = [example for example in copies if example in ORIGINALS]
    assert first == PAIRS
    for before, after in itertools.pairwise(copies):
        assert after in ORIGINALS or after.line == before.line


def test_the_share_is_right_and_the_three_forms_are_equally_frequent() -> None:
    forms = Counter(
        (one.source.endswith("."), one.source.islower(), one.target.endswith("!"))
        for one in InformalCopies(PAIRS, 0.3)
        if one not in ORIGINALS
    )
    assert set(forms) == {(False, False, False), (True, True, True), (False, True, False)}
    assert all(abs(count - 300) < 60 for count in forms.values())


def test_the_choice_is_reproducible_and_grows_with_the_share() -> None:
    few, again, more = (list(InformalCopies(PAIRS, share)) for share in (0.2, 0.2, 0.5))
    assert few == again
    assert set(few) < set(more)
    assert list(InformalCopies(PAIRS, 0.0)) == PAIRS


def test_the_target_keeps_its_capitals() -> None:
    assert {one.target[:5] for one in InformalCopies(PAIRS, 1.0)} == {"Tom a"}


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Hello!", "Bonjour\u202f!", ("Hello", "Bonjour")),
        ("Wait...", "Attends…", ("Wait", "Attends")),
        ("Who is it? ", "C'est qui ?", ("Who is it", "C'est qui")),
        ("你好。", "Hello.", ("你好", "Hello")),
    ],
)
def test_final_punctuation_is_removed_from_both_sides(source: str, target: str, expected: tuple[str, str]) -> None:
    assert strip_final_punctuation(Example(source, target)) == Example(*expected)


@pytest.mark.parametrize(
    ("source", "target"), [("Hello", "Bonjour."), ("Hello.", "Bonjour"), ("...", "Rien."), ("", "")]
)
def test_nothing_is_removed_if_a_side_has_no_final_punctuation_or_nothing_else(source: str, target: str) -> None:
    assert strip_final_punctuation(Example(source, target)) == Example(source, target)


def test_a_copy_that_would_equal_its_original_is_left_out() -> None:
    pairs = [Example(f"{n} 只狗", f"{n} dogs") for n in range(200)]
    assert list(InformalCopies(pairs, 1.0)) == pairs


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(UserError, match="informal_share"):
        DataSettings(informal_share=share)
