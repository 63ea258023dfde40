"""Long texts are split, translated and joined in order; nothing is lost, and what is left out is counted."""

import re
import warnings

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from echo_engine import EchoEngine, tokenizers
from heedful.decoding.decoding_stats import DecodingStats
from heedful.decoding.input_text import BadText
from heedful.decoding.segmentation import (
    WINDOW,
    SegmentedText,
    Segmenter,
    centrality,
    cut_to_fit,
    has_words,
    most_important,
    split_lines,
    split_sentences,
)
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit

# All that breaks lines and words in other programs, next to text of many scripts.
hostile = st.text(
    st.sampled_from(
        "abc zZ.,;:!?\"'«»()\t\n\r\x0b\x0c\x1c\x85\u2028\u2029\xa0\u200b\u200d\u0301。！？、「」你好กี👩😀\ufeff\0"
    )
)
anything = hostile | st.text()


def planner(limit: int = 16, **options) -> Segmenter:
    return Segmenter(tokenizers().source, SourceLimit(limit), **options)


def echo(max_len: int = 16, **options) -> Translator:
    return Translator(EchoEngine(), tokenizers(), reach=SourceLimit(max_len), **options)


def whole(plan: SegmentedText) -> str:
    between = [
        part for pair in zip([piece.text for piece in plan.segments], plan.gaps[1:], strict=True) for part in pair
    ]
    return "".join([plan.gaps[0], *between])


@given(anything.filter(lambda text: not re.search("[\n\r]", text)))
def test_sentences_joined_are_the_line(line: str) -> None:
    sentences = split_sentences(line)
    assert "".join(sentences) == line
    assert "" not in sentences


@pytest.mark.parametrize("mark", [".", '"', "(", "«", "你好。", "a. ", "A. B ", "!?", " ", "x", "\u0301"])
def test_a_line_of_any_length_is_split_in_time_that_grows_with_it(mark: str) -> None:
    line = mark * (200_000 // len(mark))
    assert "".join(split_sentences(line)) == line


def test_sentences_are_found_across_windows() -> None:
    sentence = "The old man walked slowly through the rain to the market. "
    line = sentence * (5 * WINDOW // len(sentence))
    assert split_sentences(line) == [sentence] * (len(line) // len(sentence))


@pytest.mark.parametrize("words", ["wort ", "ein Wort, noch eines ", "a\xa0b ", "你好，"])
def test_a_window_without_an_end_of_a_sentence_ends_between_words(words: str) -> None:
    for line in (words * (3 * WINDOW // len(words)), "x" * (WINDOW - 3) + " " + words * 2000):
        parts = split_sentences(line)
        assert "".join(parts) == line
        assert all(re.search(r"[\s，]\Z", part) for part in parts[:-1])


def test_a_window_without_a_gap_keeps_letters_and_their_marks_together() -> None:
    for before in range(3):
        line = "x" * before + "e\u0301" * WINDOW
        parts = split_sentences(line)
        assert "".join(parts) == line
        assert not any(part.startswith("\u0301") for part in parts)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A dog runs. Two cats sleep!  Why?", ["A dog runs. ", "Two cats sleep!  ", "Why?"]),
        ("Dr. Smith has 3.5 dogs. He likes them.", ["Dr. Smith has 3.5 dogs. ", "He likes them."]),
        ("一只狗在跑。两只猫在睡觉！为什么？", ["一只狗在跑。", "两只猫在睡觉！", "为什么？"]),
        ("犬が走る。猫が寝る。", ["犬が走る。", "猫が寝る。"]),
        ("Un chien court. Où est-il ?", ["Un chien court. ", "Où est-il ?"]),
        ("Vitamin A\xa0. Next\u3000. 。", ["Vitamin A\xa0. ", "Next\u3000. ", "。"]),
    ],
)
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_a_library_that_fails_or_loses_text_leaves_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(language: str, text: str) -> list[str]:
        raise PanicException

    for broken in (panic, lambda language, text: [text[:3]]):
        monkeypatch.setattr(sentencex, "segment", broken)
        assert split_sentences("A dog. A cat.") == ["A dog. A cat."]


@given(anything, st.integers(1, 12))
def test_parts_fit_and_joined_are_the_text(text: str, room: int) -> None:
    def lengths(texts: list[str]) -> list[int]:
        return [len(ids) for ids in tokenizers().source.encode_batch([text.strip() for text in texts])]

    parts = cut_to_fit(text, room=room, lengths=lengths)
    assert "".join(parts) == text
    assert all(length <= room or len(part) == 1 for part, length in zip(parts, lengths(parts), strict=True))


@pytest.mark.parametrize(
    ("text", "room", "parts"),
    [
        ("one two, three four, five", 20, ["one two, ", "three four, five"]),  # at a clause
        ("it is 3,5 or 10:30 now", 13, ["it is 3,5 or ", "10:30 now"]),  # not inside a number
        ("one two three", 8, ["one two ", "three"]),  # between words
        ("one two three four", 15, ["one two ", "three four"]),  # in the middle
        ("abcdefgh", 4, ["abc", "def", "gh"]),  # between letters; a space is put before each, which is a token too
        ("ae\u0301be\u0301", 4, ["a", "e\u0301", "b", "e\u0301"]),  # a letter keeps its marks
    ],
)
def test_a_sentence_is_cut_where_it_hurts_least(text: str, room: int, parts: list[str]) -> None:
    def lengths(texts: list[str]) -> list[int]:
        return [len(ids) for ids in tokenizers().source.encode_batch([text.strip() for text in texts])]

    assert cut_to_fit(text, room=room, lengths=lengths) == parts


@given(anything)
def test_lines_and_gaps_are_the_text(text: str) -> None:
    parts = split_lines(text)
    assert "".join(parts) == text
    assert len(parts) % 2 == 1
    assert all(gap == "" or gap.isspace() for gap in parts[::2])
    assert all(len(line.splitlines()) == 1 and line == line.strip() for line in parts[1::2])


@given(st.lists(anything), st.integers(2, 40))
def test_a_plan_has_all_of_the_text_in_pieces_that_fit(texts: list[str], limit: int) -> None:
    plans, _ = planner(limit).segment(texts)
    assert [whole(plan) for plan in plans] == texts
    for plan in plans:
        for piece in plan.segments:
            assert 0 < len(piece.ids) < limit
            assert piece.ids == tokenizers().source.encode(piece.text)


@pytest.mark.filterwarnings("ignore:.* characters copied")
@given(anything, st.integers(2, 40))
def test_what_an_echo_translates_is_the_text(text: str, limit: int) -> None:
    expected = "" if text.isspace() else text
    assert echo(limit).translate(text) == expected


def test_a_document_fifty_times_the_limit_comes_back_whole_and_in_order() -> None:
    paragraphs = [
        " ".join(f"Sentence {n} of paragraph {p} is here, and a clause follows." for n in range(12)) for p in range(6)
    ]
    paragraphs[3] = "句子一在这里。" * 40
    document = "\n\n  ".join(paragraphs) + "\n"
    limit = len(tokenizers().source.encode(document)) // 50
    assert echo(limit).translate(document) == document


def test_text_within_the_limit_is_not_split() -> None:
    text = "One. Two. Three."
    n_tokens = len(tokenizers().source.encode(text))
    plans, tally = planner(n_tokens + 1).segment([text])  # with the end mark it just fits
    assert [piece.text for piece in plans[0].segments] == [text]
    assert tally.n_split == 0
    plans, tally = planner(n_tokens).segment([text])
    assert [piece.text for piece in plans[0].segments] == ["One.", "Two.", "Three."]
    assert plans[0].gaps == ["", " ", " ", ""]
    assert tally.n_split == 1


def test_lines_are_translated_one_by_one_however_short() -> None:
    plans, _ = planner(100).segment(["a b\r\n\n\tc\u2028d  "])
    assert [piece.text for piece in plans[0].segments] == ["a b", "c", "d"]
    assert plans[0].gaps == ["", "\r\n\n\t", "\u2028", "  "]


@pytest.mark.parametrize("signs", ["---", "***", "♪", "…", "😀😀", "\u200b", "- -", "!"])
def test_signs_and_emoji_alone_stay_as_they_are(signs: str) -> None:
    """A model that has learned sentences would make one up, wherever they stand."""
    plans, _ = planner(100).segment([signs, f"One two.\n{signs}\nThree."])
    assert [whole(plan) for plan in plans] == [signs, f"One two.\n{signs}\nThree."]
    assert [[piece.text for piece in plan.segments] for plan in plans] == [[], ["One two.", "Three."]]


@pytest.mark.parametrize(
    "address",
    ["https://example.com/a?b=c", "www.example.org", "(ftp://a.b/c)", "you@example.com", "mailto:a@b.cd, a@b.cd"],
)
def test_addresses_alone_stay_as_they_are(address: str) -> None:
    """They mean the same in every language, and one letter of them changed is another address."""
    plans, _ = planner(100).segment([address, f"Look:\n– {address}"])
    assert [whole(plan) for plan in plans] == [address, f"Look:\n– {address}"]
    assert [[piece.text for piece in plan.segments] for plan in plans] == [[], ["Look:"]]


@pytest.mark.parametrize(
    "text", ["See https://a.b/c", "https://a.b/c请看", "me @ home", "@you", "www.", "://", "a: b@c", "https://a.b 7"]
)
def test_what_only_holds_an_address_is_translated(text: str) -> None:
    [plan], _ = planner(100).segment([text])
    assert [piece.text for piece in plan.segments] == ([text] if any(map(str.isalnum, text)) else [])


def test_a_very_long_word_is_soon_known_to_be_no_address() -> None:
    """No time that grows with the square of the length: this would take hours."""
    for text in ("a." * 500_000 + "@", "@" * 1_000_000 + "a", "a@" + "a" * 1_000_000, "://" * 300_000 + "a"):
        assert has_words(text)


@pytest.mark.parametrize("text", ["⠓⠑⠇⠇⠕", "7", "你", "한", "ᚠ", "e\u0301", "№ 5"])
def test_letters_and_digits_of_any_script_are_translated(text: str) -> None:
    [plan], _ = planner(100).segment([text])
    assert [piece.text for piece in plan.segments] == [text]


def test_a_long_line_gives_the_model_no_part_of_signs_alone() -> None:
    line = "One is here. " + "* " * 60 + "Two is here."
    plans, tally = planner(20).segment([line])
    assert tally.n_split == 1 and whole(plans[0]) == line
    assert all(any(map(str.isalnum, piece.text)) for piece in plans[0].segments)


def plan_of(*pieces: str, gap: str) -> SegmentedText:
    plan = SegmentedText()
    for number, text in enumerate(pieces):
        plan.copy(gap if number else "")
        plan.add(planner(100).segment([text])[0][0].segments[0])
    return plan


@pytest.mark.parametrize(
    ("pieces", "gap", "translations", "expected"),
    [
        (("A.", "B."), "  ", ("X.", "Y."), "X.  Y."),
        (("A.", "B."), " ", ("你。", "好。"), "你。好。"),  # no space between Chinese sentences
        (("你。", "好。"), "", ("X.", "Y."), "X. Y."),  # but one between English ones
        (("你。", "好。"), "", ("你。", "好。"), "你。好。"),
        (("ab", "cd"), "", ("ab", "cd"), "abcd"),  # a word that was cut
        (("A.", "B."), "\n", ("你。", "好。"), "你。\n好。"),
        (("A.", "B."), " ", ("你。", "Y."), "你。 Y."),
        (("A.", "B."), " ", ("", ""), " "),
    ],
)
def test_the_gap_between_sentences(
    pieces: tuple[str, ...], gap: str, translations: tuple[str, ...], expected: str
) -> None:
    assert plan_of(*pieces, gap=gap).join(translations) == expected


def test_truncate_keeps_the_beginning_and_says_how_much_is_lost() -> None:
    text = "abc def ghi jkl"
    n_tokens = len(tokenizers().source.encode(text))
    translator = echo(8, long="truncate")
    with pytest.warns(
        UserWarning, match=rf"2 lines were cut to the 8 tokens .* {2 * (n_tokens + 1 - 8)} tokens were not"
    ):
        found = translator.translate([text, "abc", text])
    assert found[1] == "abc"
    assert found[0] == found[2] == tokenizers().target.decode(tokenizers().source.encode(text)[:7])


def test_extract_keeps_the_most_important_sentences_in_their_order() -> None:
    sentences = ["The cat sat. ", "Zyx wvu. ", "The cat ran. ", "Qpo nml. ", "The cat hid."]
    text = "".join(sentences)
    translator = echo(30, long="extract")
    with pytest.warns(UserWarning, match="1 line was reduced to the most important sentences, 2 of 5, .* 30 tokens"):
        found = translator.translate(text)
    assert re.fullmatch(r"(The cat \w+\. ?){2}", found), found
    assert found in text.replace("Zyx wvu. ", "").replace("Qpo nml. ", "")


def test_the_most_central_part_is_the_one_that_shares_most() -> None:
    scores = centrality([[1, 2, 3], [7, 8, 9], [1, 2, 4], [1, 2, 5]])
    assert min(scores) == scores[1]
    assert centrality([]) == []
    assert centrality([[1], [1]]) == pytest.approx([1.0, 1.0])


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), max_size=20), st.integers(0, 40))
def test_what_is_kept_fits_and_nothing_more_would(parts: list[list[int]], room: int) -> None:
    kept = most_important(parts, room=room)
    free = room - sum(len(parts[number]) for number in kept)
    assert kept == sorted(set(kept))
    assert free >= 0
    assert all(len(part) > free for number, part in enumerate(parts) if number not in kept)


def test_an_extract_of_one_endless_word_is_its_part() -> None:
    with pytest.warns(UserWarning, match="most important"):
        found = echo(10, long="extract").translate("x" * 1000)
    assert 0 < len(found) < 10


def test_error_names_the_text_and_the_numbers() -> None:
    with pytest.raises(UserError, match=r"text 2: 12 tokens with the end of the source, and the model takes 8 at once"):
        echo(8, long="error").translate(["abc", "abcdefghij"])
    assert echo(8, long="error").translate(["abc"]) == ["abc"]


def test_whole_goes_beyond_where_positions_have_no_end_and_says_so() -> None:
    with pytest.warns(UserWarning, match="1 line was translated whole beyond the 8 tokens"):
        assert echo(8, long="whole").translate("abcdefghijklm. Nop") == "abcdefghijklm. Nop"
    with pytest.warns(
        UserWarning, match="1 line was translated whole beyond the 8 tokens"
    ):  # a limit is for what is split
        assert echo(8, long="whole", limit=4).translate("abcdefghijklm") == "abcdefghijklm"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert echo(8, long="whole", limit=4).translate("abcde") == "abcde"
    learned = Translator(EchoEngine(), tokenizers(), reach=SourceLimit(8, is_hard=True), long="whole")
    with pytest.raises(UserError, match="learned positions end there"):
        learned.translate("abcdefghijklm")


def test_a_limit_beyond_what_the_model_was_made_for_is_allowed_and_said() -> None:
    with pytest.warns(UserWarning, match="2 lines were translated whole beyond the 8 tokens"):
        found = echo(8, limit=16).translate(["abcdefghijkl", "abc", "abcdefghij. Abcdefghij"])
    assert found == ["abcdefghijkl", "abc", "abcdefghij. Abcdefghij"]


def test_a_character_that_alone_is_too_long_is_copied_and_counted() -> None:
    translator = echo(3)  # two tokens and the end; an emoji is four bytes
    with pytest.warns(UserWarning, match="1 characters copied"):
        assert translator.translate("ab😀") == "ab😀"


@pytest.mark.parametrize("limit", [1, 0, -3])
def test_a_limit_without_room_is_refused(limit: int) -> None:
    with pytest.raises(UserError, match="at least 2"):
        Segmenter(tokenizers().source, SourceLimit(16), limit=limit)


def test_no_limit_beyond_the_last_position() -> None:
    with pytest.raises(UserError, match="learned positions of this model end at max_len = 16"):
        Segmenter(tokenizers().source, SourceLimit(16, is_hard=True), limit=17)
    assert Segmenter(tokenizers().source, SourceLimit(16), limit=17).limit == 17


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ab\ud800c", ["text 2", "character 3", "U+D800"]),
        ("\udc00", ["character 1", "U+DC00"]),
        ("😀\ud83d\ude00\ud83d", ["character 4", "U+D83D"]),
    ],
)
def test_half_a_character_is_refused_with_its_place(text: str, words: list[str]) -> None:
    with pytest.raises(BadText) as error:
        echo().translate(["fine", text])
    for word in words:
        assert word in str(error.value)


def test_two_halves_make_a_character() -> None:
    assert echo().translate("a\ud83d\ude00b") == "a😀b"


def test_tallies_add_up() -> None:
    assert DecodingStats(limit=8, n_split=1) + DecodingStats(limit=8, n_split=2, n_beyond=1) == DecodingStats(
        limit=8, n_split=3, n_beyond=1
    )
    assert DecodingStats(limit=8, n_split=3).warnings() == []


@pytest.mark.parametrize("words", ["The old man walked slowly, with his dog, through the rain. ", "word ", "x", "你好"])
def test_a_very_long_line(words: str) -> None:
    line = words * (250_000 // len(words.encode()))
    assert echo(64).translate(line) == line
