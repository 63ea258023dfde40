import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from heedful.insight.packed_arrays import pack, to_plain, unpack
from heedful.insight.word_spans import word_spans
from heedful.text.tokenizer import generated_pieces
from look_models import tokenizers

SHAPES = array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


def through_json(values: np.ndarray, kind: str) -> np.ndarray:
    return unpack(json.loads(json.dumps(to_plain(pack(values, kind)))))  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, SHAPES, elements=st.floats(0, 1, width=32)))
def test_weights_come_back_within_the_stated_error(values: np.ndarray) -> None:
    unpacked = through_json(values, "u16")
    assert unpacked.shape == values.shape
    assert np.abs(unpacked.astype(float) - values).max(initial=0) <= 1 / 131070 + 1e-7
    assert (unpacked[values == 0] == 0).all() and (unpacked[values == 1] == 1).all()


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, SHAPES, elements=st.floats(-60_000, 60_000, width=32)))
def test_halves_come_back_within_the_stated_error(values: np.ndarray) -> None:
    unpacked = through_json(values, "f16")
    allowed = np.maximum(np.abs(values.astype(float)) / 2048, 3e-8)
    assert (np.abs(unpacked.astype(float) - values) <= allowed).all()


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, SHAPES, elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_singles_come_back_exactly(values: np.ndarray) -> None:
    assert np.array_equal(through_json(values, "f32"), values)


def test_values_out_of_range_are_an_error() -> None:
    good = to_plain(pack(np.zeros((2, 3), np.float32), "u16"))
    assert isinstance(good, dict)
    for change in ({"dtype": "u32"}, {"shape": [2, 4]}, {"shape": "2"}, {"data": "!"}, {"data": "AAA="}, {"more": 1}):
        with pytest.raises(ValueError):
            unpack({**good, **change})


def test_plain_numbers_keep_as_many_digits_as_float32_has() -> None:
    assert to_plain({"a": (math.pi, 1, "x", None, True)}) == {"a": [3.141593, 1, "x", None, True]}


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ("▁trans lat ion . ▁of </s>", ["▁translation.", "▁of", "</s>"]),
        ("<s> ▁A ▁dog s", ["<s>", "▁A", "▁dogs"]),
        ("trans lation▁ of▁ </s>", ["translation▁", "of▁", "</s>"]),
        ("dog ▁ s▁ </s>", ["dog▁", "s▁", "</s>"]),
        ("▁ 一个 女人 走 。 </s>", ["▁一个", "女人", "走。", "</s>"]),
        ("▁a <0xE4> <0xBD> ▁b", ["▁a<0xE4><0xBD>", "▁b"]),
        ("▁a <unk> b ▁c", ["▁a", "<unk>", "b", "▁c"]),
        ("</s>", ["</s>"]),
        ("<s> A Ġdog s Ġrun . </s>", ["<s>", "A", "Ġdogs", "Ġrun.", "</s>"]),
        ("[CLS] a dog ##s , [MASK] [SEP]", ["[CLS]", "a", "dog##s", ",", "[MASK]", "[SEP]"]),
        ("<|endoftext|> The Ġend", ["<|endoftext|>", "The", "Ġend"]),
    ],
)
def test_pieces_merge_into_words(tokens: str, words: list[str]) -> None:
    pieces = tokens.split(" ")
    assert ["".join(pieces[first:end]) for first, end in word_spans(pieces)] == words


def test_words_follow_each_other_without_gaps() -> None:
    assert word_spans([]) == []
    spans = word_spans(["a", "▁", "▁", "b", "</s>", "c▁"])
    assert [first for first, _ in spans[1:]] == [end for _, end in spans[:-1]]


def test_a_spare_row_of_the_vocabulary_is_written_as_its_number() -> None:
    tokenizer = tokenizers().source
    size = tokenizer.vocab_size
    assert generated_pieces(tokenizer, [size + 2, 5, size, 3]) == [
        f"<{size + 2}>",
        tokenizer.pieces([5])[0],
        f"<{size}>",
        "</s>",
    ]
