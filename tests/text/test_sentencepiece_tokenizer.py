"""decode(encode(x)) == normalize(x), for every x."""

import itertools
import pickle
from collections.abc import Callable

import pytest
import sentencepiece
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from heedful.errors import UserError
from heedful.text import SPECIAL_IDS, UNKNOWN_SIGN, SentencePieceTokenizer, TokenizerConfig, learn_tokenizer

Of = Callable[[TokenizerConfig], SentencePieceTokenizer]

SUBWORDS = [
    TokenizerConfig(kind=kind, whitespace=whitespace, vocab_size=700)
    for kind in ("char", "bpe", "unigram")
    for whitespace in ("prefix", "suffix")
]
WORDS = [TokenizerConfig(kind="word", whitespace=whitespace) for whitespace in ("prefix", "suffix")]
OTHERS = [
    TokenizerConfig(vocab_size=700, unicode_form="none"),
    TokenizerConfig(vocab_size=700, unicode_form="nfkc", lowercase=True),
    TokenizerConfig(vocab_size=700, collapse_spaces=True, special_tokens=("[MASK]", "<2de>")),
]


def name(config: TokenizerConfig) -> str:
    return f"{config.kind}-{config.whitespace}-{config.unicode_form}"


SNIPPETS = ["▁", "▁▁", "⁇", "▅", "<s>", "</s>", "<pad>", "<unk>", "<0x41>", "[MASK]", "<2de>", "dog"]
SNIPPETS += ["dogs", "annoyingly", "été", "e\u0301te\u0301", "Ἀθῆναι", "собака", "كلب", "كَلْب", "הכלב"]
SNIPPETS += ["कुत्ता", "สุนัข", "한국", "\u1112\u1161\u11ab", "犬が", "🐶", "👩‍🚀", "👨‍👩‍👧‍👦", "🇫🇷", "❤️"]
SNIPPETS += ["ﬁ", "Ａ", "Ⅳ", "İ", "ß", "ẞ", "Σ", "ǆ", "Å", "\u0344", "\u0f73", "\ufeff", "\ufffd"]
SNIPPETS += ["\ufffe", "\U0010ffff", "\ud800", "\udfff", "\ud83d\udc36", "", " ", "  ", "\t", "\n"]
SNIPPETS += ["\r\n", "\r", "\v", "\f", "\0", "\x1c", "\x7f", "\x85", "\xa0", "\xad", "\u200b", "\u200d"]
SNIPPETS += ["\u200e", "\u200f", "\u202e", "\u2028", "\u2029", "\u2060", "\u3000", "\u0316\u0301"]
SNIPPETS += ["\u0301" * 40]
RANGES = [(0x20, 0x7F), (0, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600), (0x590, 0x700), (0x900, 0xE80)]
RANGES += [(0x1100, 0x1200), (0x2000, 0x2070), (0x2580, 0x2600), (0x3040, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4)]
RANGES += [(0xE000, 0x10000), (0x1F300, 0x1FA00), (0xE0000, 0xE0100), (0x10000, 0x110000)]


def texts_of(data: bytes) -> list[str]:
    """Generate texts of six parts, each a snippet or a character, from bytes, which is faster than generating texts."""
    parts = []
    for kind, high, low in zip(data[::3], data[1::3], data[2::3], strict=True):
        if kind < 100:
            parts.append(SNIPPETS[high % len(SNIPPETS)])
        else:
            first, beyond = RANGES[kind % len(RANGES)]
            parts.append(chr(first + (high * 256 + low) % (beyond - first)))
    return ["".join(parts[start : start + 6]) for start in range(0, len(parts), 6)]


def many_texts(n_texts: int) -> st.SearchStrategy[list[str]]:
    return st.binary(min_size=18 * n_texts, max_size=18 * n_texts).map(texts_of)


def often(n_examples: int) -> settings:
    return settings(max_examples=n_examples, deadline=None, suppress_health_check=list(HealthCheck))


@often(400)
@given(texts=many_texts(25))  # ten thousand
@example(
    texts=["", " ", "▁", " ▁", "▁ ", "\0", "a\0b", " a  b ", "\n", "a\n", "\ta", "⁇", "<s>a</s>", "e\u0301", "👩‍🚀"]
)
def test_nothing_is_lost(tokenizer_of: Of, texts: list[str]) -> None:
    for config in SUBWORDS:
        tokenizer = tokenizer_of(config)
        ids = tokenizer.encode_batch(texts)
        normal = [tokenizer.normalize(text) for text in texts]
        assert tokenizer.decode_batch(ids) == normal
        assert not any(number <= SPECIAL_IDS.eos_id for row in ids for number in row)
        assert [tokenizer.normalize(text) for text in normal] == normal


@often(100)
@given(texts=many_texts(20), seed=st.integers())
def test_nothing_is_lost_with_other_settings_and_by_sampling(tokenizer_of: Of, texts: list[str], seed: int) -> None:
    for config in OTHERS:
        tokenizer = tokenizer_of(config)
        assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == [tokenizer.normalize(text) for text in texts]
    for kind in ("bpe", "unigram"):
        tokenizer = tokenizer_of(TokenizerConfig(kind=kind, vocab_size=700, sample_alpha=0.3))
        sampled = tokenizer.sample_batch(texts, seed=seed)
        assert tokenizer.decode_batch(sampled) == [tokenizer.normalize(text) for text in texts]


KNOWN_WORDS = ["A", "dog", "runs", "the", "man", "Un", "chien", "Собака"]


@pytest.mark.parametrize("config", WORDS, ids=name)
@often(100)
@given(texts=many_texts(5), known=st.lists(st.sampled_from(KNOWN_WORDS), max_size=5))
def test_word_level_loses_only_unknown_words_and_counts_them(
    tokenizer_of: Of, config: TokenizerConfig, texts: list[str], known: list[str]
) -> None:
    tokenizer = tokenizer_of(config)
    text = " ".join(itertools.chain(*itertools.zip_longest(known, texts, fillvalue="")))
    words = tokenizer.normalize(text).split()
    ids = tokenizer.encode(text)
    assert len(ids) == len(words)
    vocabulary = {tokenizer.decode([number]) for number in range(4, tokenizer.vocab_size)}
    assert vocabulary.issuperset(known)
    expected = [word if word in vocabulary else UNKNOWN_SIGN for word in words]
    assert tokenizer.decode(ids) == " ".join(expected)
    assert tokenizer.count_unknown(text) == sum(word not in vocabulary for word in words)


def test_adjacent_unknown_words_stay_apart(tokenizer_of: Of) -> None:
    for config in WORDS:
        tokenizer = tokenizer_of(config)
        assert tokenizer.encode("dog zzz yyy xxx man")[1:4] == [SPECIAL_IDS.unk_id] * 3
        assert tokenizer.decode(tokenizer.encode("A zzz yyy man")) == "A ⁇ ⁇ man"
        assert tokenizer.count_unknown("A zzz yyy man") == 2


@pytest.mark.parametrize("config", SUBWORDS, ids=name)
def test_the_file_gives_the_same_ids_in_plain_sentencepiece(
    tokenizer_of: Of, lines: list[str], config: TokenizerConfig
) -> None:
    tokenizer = tokenizer_of(config)
    plain = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    texts = [*lines, " two  spaces ", "", " ", "日本 🐶\n"]
    assert tokenizer.encode_batch(texts) == [plain.encode(text) for text in texts]


@pytest.mark.parametrize("config", [*SUBWORDS, *WORDS], ids=name)
def test_a_batch_gives_the_ids_of_its_texts(tokenizer_of: Of, lines: list[str], config: TokenizerConfig) -> None:
    tokenizer = tokenizer_of(config)
    texts = [*lines, "a▁b", ""] * 20  # enough for several threads
    ids = tokenizer.encode_batch(texts)
    assert ids == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(ids) == [tokenizer.decode(row) for row in ids]
    assert tokenizer.encode_batch([]) == []


def test_characters_without_a_piece_become_bytes(tokenizer_of: Of) -> None:
    tokenizer = tokenizer_of(SUBWORDS[2])
    assert tokenizer.pieces(tokenizer.encode("dog ▁"))[-3:] == ["<0xE2>", "<0x96>", "<0x81>"]
    assert tokenizer.count_unknown("▁ 🐶 \0") == 0


def test_without_byte_fallback_unknowns_are_counted(lines: list[str]) -> None:
    tokenizer = learn_tokenizer(lines, TokenizerConfig(vocab_size=500, byte_fallback=False))
    assert tokenizer.decode(tokenizer.encode("dog 🐶 man ▁")) == "dog ⁇ man ⁇"
    assert tokenizer.count_unknown("dog 🐶 man ▁") == 2


def test_special_tokens_have_no_text(tokenizer_of: Of) -> None:
    tokenizer = tokenizer_of(OTHERS[2])
    mask = tokenizer.id_of("[MASK]")
    assert (mask, tokenizer.id_of("<2de>")) == (4, 5)
    assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]
    ids = tokenizer.encode("A dog runs.")
    assert tokenizer.decode([2, *ids[:2], mask, *ids[2:], 3, 0, 0]) == "A dog runs."
    assert mask not in tokenizer.encode("A [MASK] runs.")  # a text cannot forge a symbol
    with pytest.raises(UserError, match=r"\[MASKED\].*did you mean '\[MASK\]'"):
        tokenizer.id_of("[MASKED]")


@pytest.mark.parametrize("ids", [[5, -1], [5, 10**6]])
def test_a_wrong_id_is_named(tokenizer_of: Of, ids: list[int]) -> None:
    tokenizer = tokenizer_of(SUBWORDS[2])
    for method in (tokenizer.decode, tokenizer.pieces):
        with pytest.raises(UserError, match=f"id {ids[1]} is not in the vocabulary"):
            method(ids)


def test_half_a_character_in_bytes_is_decoded_as_u_fffd(tokenizer_of: Of) -> None:
    tokenizer = tokenizer_of(SUBWORDS[2])
    broken = tokenizer.encode("🐶")[:-1]
    assert tokenizer.decode(broken) == "�"


def test_a_tokenizer_can_be_pickled(tokenizer_of: Of, lines: list[str]) -> None:
    tokenizer = tokenizer_of(SUBWORDS[3])
    copy = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301
    assert copy.encode_batch(lines) == tokenizer.encode_batch(lines)
    assert copy.fingerprint == tokenizer.fingerprint
