import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.formatting import (
    BARS,
    DiffSpan,
    count,
    duration,
    escape_control_chars,
    number,
    share,
    size,
    sparkline,
    word_diff,
)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (math.inf, "–"),
        (-3, "0 s"),
        (0, "0 s"),
        (0.84, "0.8 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (48, "48 s"),
        (59.7, "1 m 00 s"),
        (725, "12 m 05 s"),
        (3599.6, "1 h 00 m"),
        (3840, "1 h 04 m"),
        (47 * 3600, "47 h 00 m"),
        (51 * 3600, "2 d 03 h"),
    ],
)
def test_durations(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [
        (None, "–"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (114_000_000, "114 MB"),
        (1.24e9, "1.2 GB"),
        (2e12, "2,000 GB"),
    ],
)
def test_sizes(n_bytes: float | None, words: str) -> None:
    assert size(n_bytes) == words


def test_numbers() -> None:
    assert (count(1234567.2), count(None), count(math.nan)) == ("1,234,567", "–", "–")
    assert (number(1234.5678, 2), number(None, 2)) == ("1,234.57", "–")
    assert share(1 / 8) == "12.5 %"


@given(st.text())
def test_a_harmless_text_is_one_line_and_moves_no_cursor(text: str) -> None:
    result = escape_control_chars(text)
    assert len(result.splitlines()) <= 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or "\u202a" <= c <= "\u202e" for c in result)
    result.encode()  # no half surrogate pair


def test_a_harmless_text_keeps_what_languages_need() -> None:
    for text in ("می\u200cخواهم", "un\u00a0mot", "日本\u3000語", "👩\u200d🚀", "naïve"):
        assert escape_control_chars(text) == text
    assert escape_control_chars("\x1b[31mred\u202e") == "\\x1b[31mred\\u202e"


WORDS = st.lists(st.sampled_from(["ein", "Hund", "rennt", "女", "人", "."])).map(" ".join)


@given(WORDS, WORDS)
def test_the_pieces_of_a_change_make_both_texts(before: str, after: str) -> None:
    pieces = word_diff(before, after)
    assert "".join(p.space + p.new for p in pieces if p.new).split() == after.split()
    assert " ".join(p.old for p in pieces if p.old).split() == before.split()


@given(WORDS)
def test_what_is_equal_or_new_is_not_marked_as_changed(text: str) -> None:
    for before in (text, None):
        pieces = word_diff(before, text)
        assert "".join(piece.space + piece.new for piece in pieces) == text
        assert all(piece.old == piece.new for piece in pieces)


@pytest.mark.parametrize(
    ("before", "after", "pieces"),
    [
        ("Ein Mann", "Ein Hund", [("", "Ein", "Ein"), (" ", "Mann", "Hund")]),
        ("Ein Hund", "Ein alter Hund", [("", "Ein", "Ein"), (" ", "", "alter"), (" ", "Hund", "Hund")]),
        ("Ein alter Hund", "Ein Hund", [("", "Ein", "Ein"), (" ", "alter", ""), (" ", "Hund", "Hund")]),
        ("Ein Hund", "Hund", [("", "Ein ", ""), ("", "Hund", "Hund")]),
        ("一个人走。", "一个女人走。", [("", "一个", "一个"), ("", "", "女"), ("", "人走。", "人走。")]),
        ("", "Hund", [("", "", "Hund")]),
        ("Hund", "", [("", "Hund", "")]),
    ],
)
def test_changes_are_found_by_words(before: str, after: str, pieces: list[tuple[str, str, str]]) -> None:
    assert word_diff(before, after) == [DiffSpan(*piece) for piece in pieces]


@given(st.lists(st.floats(-1e3, 1e3)), st.integers(1, 60))
def test_a_sparkline_fits_and_has_its_extremes(values: list[float], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(width, len(values)) and set(line) <= set(BARS)
    if len(values) <= width and len(set(values)) > 1:
        assert line[values.index(min(values))] == BARS[0] and line[values.index(max(values))] == BARS[-1]


def test_a_sparkline_shows_the_whole_curve() -> None:
    assert sparkline([7, 6, 5, 4, 3, 2, 1, 0], 8) == BARS[::-1]
    assert sparkline([float(v) for v in range(800)], 8) == BARS
    assert sparkline([2.0, 2.0], 8) == BARS[0] * 2
