import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.text import Normalizer

ALL = [
    Normalizer(form=form, lowercase=lowercase, collapse_spaces=collapse)
    for form in ("none", "nfc", "nfkc")
    for lowercase in (False, True)
    for collapse in (False, True)
]


def test_normalizing_is_idempotent_for_every_character() -> None:
    # Left out: what is not assigned, and the Han and Hangul blocks, where all are alike.
    skip = (range(0x3400, 0xA000), range(0xAC00, 0xD7A4), range(0xD800, 0xF900), range(0x16FF0, 0x1B000))
    codes = (code for code in range(0x1FFFF) if not any(code in block for block in skip))
    characters = [chr(code) for code in codes if unicodedata.category(chr(code)) != "Cn"]
    assert len(characters) > 30_000
    for normalise in ALL:
        once = [normalise(character) for character in characters]
        assert [normalise(text) for text in once] == once


MARKS = st.text("\u0301\u0316\u0327\u0344\u0f73\u3099\u0307", min_size=25, max_size=70)
LETTERS = st.sampled_from(["a", "İ", "Å", "\u1100\u1161", "か", "", " ", "Σ", "\n"])


@settings(max_examples=300, deadline=None)
@example(parts=[("İ", "\u0316")])
@example(parts=[("İ", "\u0316" * 30)])
@given(parts=st.lists(st.tuples(LETTERS, MARKS | st.text(max_size=3)), max_size=4))
def test_normalizing_is_idempotent_around_the_limit_of_marks(parts: list[tuple[str, str]]) -> None:
    text = "".join(letter + marks for letter, marks in parts)
    for normalise in ALL:
        once = normalise(text)
        assert normalise(once) == once


@given(st.text())
def test_a_text_with_few_marks_gets_exactly_its_unicode_form(text: str) -> None:
    assert Normalizer()(text) == unicodedata.normalize("NFC", text)
    assert Normalizer(form="none")(text) == text


def test_text_around_a_long_run_of_marks_is_normalized() -> None:
    run = "x" + "\u0301\u0316" * 20
    assert Normalizer()(f"e\u0301{run}e\u0301") == f"é{run}é"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("\ud800", "\ufffd"),
        ("a\udc00b", "a\ufffdb"),
        ("\ud83d\udc36", "🐶"),  # two halves, as a careless JSON reader leaves them
        ("\ufeff\ud800", "\ufeff\ufffd"),
        ("e\u0301", "é"),
        (" a \t\n b ", " a \t\n b "),
        ("ﬁ Ａ ½", "ﬁ Ａ ½"),
    ],
)
def test_the_default_normalization(text: str, normal: str) -> None:
    assert Normalizer()(text) == normal


def test_options() -> None:
    assert Normalizer(form="nfkc")("ﬁ Ａ ½") == "fi A 1⁄2"
    assert Normalizer(lowercase=True)("ÉTÉ İ ΟΔΟΣ") == "été i̇ οδος"
    assert Normalizer(collapse_spaces=True)(" a \t\n\u3000b ") == "a b"
