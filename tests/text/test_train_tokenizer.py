from collections.abc import Iterator

import pytest

from heedful.errors import UserError
from heedful.text import SPECIAL_IDS, TokenizerConfig, learn_tokenizer, learn_tokenizers

KINDS = ("word", "char", "bpe", "unigram")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_gives_the_same_bytes(lines: list[str], kind: str) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=500, max_texts=110)  # type: ignore[arg-type]
    texts = [word for line in lines for word in line.split()]
    assert len(texts) > config.max_texts
    assert learn_tokenizer(texts, config).model == learn_tokenizer(iter(texts), config).model


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_is_an_upper_limit(lines: list[str], kind: str) -> None:
    plenty = learn_tokenizer(lines, TokenizerConfig(kind=kind, vocab_size=50_000))  # type: ignore[arg-type]
    assert 50 < plenty.vocab_size < 5_000
    assert f"{plenty.vocab_size:,} pieces of 50,000 allowed" in plenty.describe()
    fewer = plenty.vocab_size - 5
    assert learn_tokenizer(lines, TokenizerConfig(kind=kind, vocab_size=fewer)).vocab_size == fewer  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_too_small_size_is_refused_with_the_size_needed(lines: list[str], kind: str) -> None:
    with pytest.raises(UserError, match=r"vocab_size is 300, but .* alone need (\d+)") as caught:
        learn_tokenizer(lines, TokenizerConfig(kind=kind, vocab_size=300))  # type: ignore[arg-type]
    needed = int(str(caught.value).split("need ")[1].split(":")[0])
    enough = learn_tokenizer(lines, TokenizerConfig(kind=kind, vocab_size=needed))  # type: ignore[arg-type]
    assert enough.vocab_size == needed
    with pytest.raises(UserError):
        learn_tokenizer(lines, TokenizerConfig(kind=kind, vocab_size=needed - 1))  # type: ignore[arg-type]


def test_a_size_without_room_for_the_bytes_is_refused_at_once() -> None:
    with pytest.raises(UserError, match=r"vocab_size is 260, but .*256 bytes alone need 261"):
        TokenizerConfig(vocab_size=260)
    assert learn_tokenizer(["a"], TokenizerConfig(kind="char", vocab_size=261)).vocab_size == 261
    assert learn_tokenizer(["a b"], TokenizerConfig(kind="word", vocab_size=5)).vocab_size == 5


def test_common_words_stay_whole_and_rare_ones_are_split() -> None:
    lines = ["annoying annoying loudly", "annoying badly sadly", "annoying gladly", "annoying madly"] * 20
    tokenizer = learn_tokenizer(lines, TokenizerConfig(vocab_size=320))
    assert tokenizer.pieces(tokenizer.encode("annoyingly")) == ["▁annoying", "ly"]
    suffix = learn_tokenizer(lines, TokenizerConfig(vocab_size=320, whitespace="suffix"))
    assert suffix.pieces(suffix.encode("annoying")) == ["annoying▁"]


def test_bpe_merges_the_most_frequent_pair_first() -> None:
    counts = {"abx": 3, "aby": 3, "cdx": 2, "cdy": 2}  # ab 6 times, x and y at the end of a word 5, cd 4
    lines = [word for word, count in counts.items() for _ in range(count)]
    tokenizer = learn_tokenizer(lines, TokenizerConfig(vocab_size=10_000, byte_fallback=False, whitespace="suffix"))
    merged = [piece for piece in tokenizer.info.pieces[4:] if len(piece) > 1]
    assert (merged[0], set(merged[1:3]), merged[3]) == ("ab", {"x▁", "y▁"}, "cd")


def test_six_words() -> None:
    target = ["i am a student", "thanks"]
    config = TokenizerConfig(kind="word", vocab_size=100, joint=False)
    tokenizers = learn_tokenizers(["je suis étudiant", "merci"], target, config)
    english = tokenizers.target
    assert sorted(english.pieces(range(4, english.vocab_size))) == ["▁a", "▁am", "▁i", "▁student", "▁thanks"]
    assert english.decode([*english.encode("i am a student"), SPECIAL_IDS.eos_id]) == "i am a student"
    assert english.pieces([SPECIAL_IDS.eos_id]) == ["</s>"]
    assert tokenizers.source.decode(tokenizers.source.encode("je suis merci")) == "je suis merci"
    assert tokenizers.source.count_unknown("i am étudiant") == 2


def test_joint_is_one_tokenizer_and_separate_are_two(lines: list[str]) -> None:
    joint = learn_tokenizers(lines[:2], lines[2:4], TokenizerConfig(vocab_size=400))
    assert joint.joint and joint.source is joint.target
    separate = learn_tokenizers(lines[:2], lines[2:4], TokenizerConfig(vocab_size=400, joint=False))
    assert not separate.joint
    assert "ä" in separate.target.pieces(range(separate.target.vocab_size))
    assert "ä" not in separate.source.pieces(range(separate.source.vocab_size))
    alone = learn_tokenizers(lines, None, TokenizerConfig(vocab_size=700, joint=False))
    assert alone.joint


@pytest.mark.parametrize("kind", KINDS)
def test_any_text_can_be_learned_from(kind: str) -> None:
    texts = [
        "a\0b",
        "▁ ▅ x▅y",
        "a\tb\nc\r\n",
        "\u2028",
        "x" * 100_000,
        "日本語" * 2_000,
        "<s> </s> <unk>",
        "\ud800",
        "e\u0301",
    ]
    tokenizer = learn_tokenizer([*texts, "x y " * 50_000], TokenizerConfig(kind=kind, vocab_size=600))  # type: ignore[arg-type]
    for piece in tokenizer.pieces(range(4, tokenizer.vocab_size)):
        assert not set(piece) & set("\0\t▅")
    if kind != "word":
        assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == [tokenizer.normalize(text) for text in texts]


def test_long_lines_are_learned_from_too() -> None:
    words = [f"wort{number}" for number in range(3_000)]
    tokenizer = learn_tokenizer([" ".join(words)], TokenizerConfig(kind="word", vocab_size=5_000))
    assert tokenizer.count_unknown(" ".join(words)) == 0


def test_splitting_a_long_line_at_spaces_changes_nothing(lines: list[str]) -> None:
    config = TokenizerConfig(vocab_size=500)
    latin = " ".join(lines[:4])
    assert learn_tokenizer([latin], config).model == learn_tokenizer(latin.split(" "), config).model


def test_equal_lines_do_not_slow_down_unigram(lines: list[str]) -> None:
    config = TokenizerConfig(kind="unigram", vocab_size=700)
    assert learn_tokenizer(lines * 2_000, config).model == learn_tokenizer(lines, config).model  # not in hours


def test_at_most_max_texts_are_learned_from() -> None:
    words = [f"wort{number}" for number in range(3_000)]
    tokenizer = learn_tokenizer(words, TokenizerConfig(kind="word", max_texts=1_000))
    learned = [int(piece.removeprefix("▁wort")) for piece in tokenizer.pieces(range(4, tokenizer.vocab_size))]
    assert len(learned) == 1_000
    assert 1_300 < sum(learned) / 1_000 < 1_700  # from all parts alike


@pytest.mark.parametrize("texts", [[], [""], [" ", "\n"]])
def test_no_text_is_a_user_error(texts: list[str]) -> None:
    with pytest.raises(UserError, match="no text"):
        learn_tokenizer(texts, TokenizerConfig())


def test_an_error_of_the_reader_is_not_changed(lines: list[str]) -> None:
    def broken(after: int) -> Iterator[str]:
        yield from lines[:after]
        raise UserError("train.de: line 4: invalid UTF-8")

    for after in (0, 1, 2, 10):
        with pytest.raises(UserError, match=r"^train\.de: line 4: invalid UTF-8$"):
            learn_tokenizer(broken(after), TokenizerConfig(vocab_size=700))


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("kind", "bqe", "did you mean 'bpe'"),
        ("whitespace", "both", "prefix, suffix"),
        ("unicode_form", "nfd", "nfc"),
        ("character_coverage", 0.5, "0.98 to 1"),
        ("sample_alpha", -0.1, "-0.1"),
        ("sample_alpha", 1.0, "0.1 is usual"),
        ("sample_alpha", float("nan"), "nan"),
        ("max_texts", 0, "max_texts is 0"),
        ("special_tokens", ("a b",), "'a b'"),
        ("special_tokens", ("</s>",), "already"),
        ("special_tokens", ("[M]", "[M]"), "already"),
    ],
)
def test_wrong_settings_are_refused_by_name(setting: str, value: object, words: str) -> None:
    with pytest.raises(UserError) as caught:
        TokenizerConfig(**{setting: value})  # type: ignore[arg-type]
    assert setting in str(caught.value)
    assert words in str(caught.value)
