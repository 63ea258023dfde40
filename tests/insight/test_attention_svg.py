import itertools
import xml.etree.ElementTree as ET

import pytest
import torch
from torch import Tensor

from deterministic import fill, largest_difference
from heedful.decoding.translator import translate_greedily
from heedful.errors import UserError
from heedful.insight.attention_maps import TokenAttention, cross_attention
from heedful.insight.attention_svg import CAPTION, PAGE, SCALE, attention_picture, colour
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import TokenizerConfig, Tokenizers, learn_tokenizers

SVG = "{http://www.w3.org/2000/svg}"
TEXTS = ["A dog runs.", "Two dogs & a cat <sleep>.", "一个女人在街上走路。", "Ein Hund rennt über die Wiese."] * 20


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return learn_tokenizers(TEXTS, None, TokenizerConfig(kind="bpe", vocab_size=300))


@pytest.fixture(scope="module")
def model(tokenizers: Tokenizers) -> Seq2Seq:
    config = Seq2SeqConfig(
        source_vocab_size=tokenizers.source.vocab_size,
        target_vocab_size=tokenizers.target.vocab_size,
        d_model=16,
        n_layers=3,
        n_heads=4,
        d_ff=32,
    )
    filled = fill(Seq2Seq(config), dtype=torch.float32)
    assert isinstance(filled, Seq2Seq)
    return filled


def test_tokens_and_weights_belong_together(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    found = cross_attention(model, tokenizers, "A dog runs.", "Ein Hund.")
    assert "".join(found.source) == "▁A▁dog▁runs.</s>" and "".join(found.target) == "▁Ein▁Hund.</s>"
    assert found.weights.shape == (3, 4, len(found.target), len(found.source))
    sums = found.weights.sum(dim=-1)
    assert largest_difference(sums, torch.ones_like(sums)) < 1e-5


def test_a_row_is_the_query_that_produced_its_token(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    """Row t does not depend on token t and later tokens; row t + 1 does."""
    one = cross_attention(model, tokenizers, "A dog runs.", "Ein Hund rennt.")
    two = cross_attention(model, tokenizers, "A dog runs.", "Ein Hund über die Wiese.")
    t = next(i for i, (a, b) in enumerate(zip(one.target, two.target, strict=False)) if a != b)
    assert t > 0
    assert largest_difference(one.weights[:, :, : t + 1], two.weights[:, :, : t + 1]) < 1e-6
    assert largest_difference(one.weights[:, :, t + 1], two.weights[:, :, t + 1]) > 1e-4


def test_the_default_target_is_the_models_greedy_translation(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    model.train()  # stays as it is, and its dropout plays no part
    found = cross_attention(model, tokenizers, "Two dogs & a cat <sleep>.")
    assert model.training
    model.eval()
    (translation,) = translate_greedily(model, tokenizers, ["Two dogs & a cat <sleep>."])
    ids = [tokenizers.target.id_of(piece) for piece in found.target]
    assert tokenizers.target.decode(ids) == translation
    assert torch.equal(found.weights, cross_attention(model, tokenizers, "Two dogs & a cat <sleep>.").weights)


def made_up(source: list[str], target: list[str], n_layers: int = 2, n_heads: int = 2) -> TokenAttention:
    n_weights = n_layers * n_heads * len(target) * len(source)
    weights = (torch.arange(n_weights) % 7 + 1.0).view(n_layers, n_heads, len(target), len(source))
    return TokenAttention(tuple(source), tuple(target), weights / weights.sum(dim=-1, keepdim=True))


def texts(svg: str) -> list[str]:
    """Return the visible texts of the picture, without tooltips."""
    root = ET.fromstring(svg)
    for title in list(root.iter(f"{SVG}title")):
        title.text = ""
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


AWKWARD = ["▁<b>", "&amp;", '"', "'", "]]>", "女人", "\x00\x1b", "\ud800", "\ufffe", "👩‍🚀", "ا", "<!--", "a" * 60]


def test_the_picture_is_well_formed_whatever_the_tokens() -> None:
    svg = attention_picture(made_up(AWKWARD, AWKWARD[::-1]))
    svg.encode()
    shown = texts(svg)
    for piece in ("▁<b>", "&amp;", '"', "'", "]]>", "女人", "👩‍🚀", "ا", "<!--"):
        assert shown.count(piece) == 2
    assert shown.count("\ufffd\ufffd") == 2 and shown.count("\ufffd") == 4
    assert shown.count("a" * 21 + "…") == 2 and "a" * 60 in svg  # in full when pointed at


def test_a_line_break_piece_is_visible() -> None:
    shown = texts(attention_picture(made_up(["a", "\n", "\t", "\nb"], ["\n\n"])))
    assert [shown.count(piece) for piece in ("⏎", "⇥", "⏎⏎")] == [1, 1, 1]
    assert not any("⏎b" in piece for piece in shown)


def test_the_picture_explains_its_rows(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    svg = attention_picture(cross_attention(model, tokenizers, "一个女人在街上走路。", "A woman walks."))
    shown = texts(svg)
    assert CAPTION in shown and "weight; each row sums to 1" in shown
    assert "row t is the query that produced target token t" in CAPTION.lower()
    assert "attention is not an explanation" in CAPTION.lower()
    assert {"Layer 3 of 3, mean of 4 heads", "head 1", "head 4", "layer 1", "layer 3"} <= set(shown)
    background = ET.fromstring(svg)[0]
    assert background.tag == f"{SVG}rect" and background.get("fill") == PAGE
    assert background.get("width") == ET.fromstring(svg).get("width")


def cells(svg: str) -> list[tuple[float, float, str, str]]:
    """Return x, y, colour and tooltip of each cell of the large map."""
    group = next(g for g in ET.fromstring(svg).iter(f"{SVG}g"))
    return [
        (float(rect.get("x", 0)), float(rect.get("y", 0)), rect.get("fill", ""), rect[0].text or "")
        for rect in group.iter(f"{SVG}rect")
        if len(rect)
    ]


def test_each_cell_has_its_position_and_exact_weight() -> None:
    attention = made_up(["s0", "s1", "s2"], ["t0", "t1"])
    found = cells(attention_picture(attention))
    mean: Tensor = attention.weights[-1].mean(dim=0)
    expected = [(t, s, float(mean[t, s])) for t in range(2) for s in range(3)]
    assert len(found) == 6
    for (x, y, shade, words), (t, s, weight) in zip(found, expected, strict=True):
        assert (x, y) == (s * 24, t * 24)
        assert words == f"t{t} ← s{s}: {weight:.4f}"
        assert shade == colour(weight)


def test_another_layer_can_be_chosen() -> None:
    attention = made_up(["s0", "s1"], ["t0"], n_layers=3)
    assert "Layer 1 of 3, mean of 2 heads" in texts(attention_picture(attention, layer=1))
    assert cells(attention_picture(attention, layer=1)) != cells(attention_picture(attention, layer=3))
    for layer in (0, 4):
        with pytest.raises(UserError, match=f"layer {layer}: this model has layers 1 to 3"):
            attention_picture(attention, layer=layer)


def test_the_scale_grows_darker_evenly() -> None:
    def lightness(fill: str) -> float:
        linear = [(int(fill[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
        y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        return 116 * y ** (1 / 3) - 16

    steps = [lightness(colour(i / 50)) for i in range(51)]
    falls = [a - b for a, b in itertools.pairwise(steps)]
    assert steps[0] > 99 and steps[-1] < 25
    assert all(0.5 < fall < 3 for fall in falls)
    assert colour(0.0) == PAGE and colour(-1.0) == colour(0.0) and colour(2.0) == colour(1.0)
    assert colour(1.0) == "#" + "".join(f"{part:02x}" for part in SCALE[-1])


def test_a_long_sentence_makes_no_huge_file() -> None:
    n_tokens = 128
    weights = torch.full((1, 2, n_tokens, n_tokens), 0.5 / n_tokens)
    weights += 0.5 * torch.eye(n_tokens)
    tokens = tuple(f"token{i}" for i in range(n_tokens))
    svg = attention_picture(TokenAttention(tokens, tokens, weights))
    assert len(cells(svg)) == n_tokens
    assert len(svg) < 500 * 3 * n_tokens


@pytest.mark.parametrize(("n_source", "n_target"), [(1, 1), (3, 40), (60, 4), (50, 50)])
def test_everything_lies_inside_the_picture(n_source: int, n_target: int) -> None:
    svg = attention_picture(made_up(["女人"] * n_source, ["token"] * n_target, n_heads=10))
    root = ET.fromstring(svg)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for group in root.iter(f"{SVG}g"):
        x, y = map(float, group.get("transform", "").removeprefix("translate(").removesuffix(")").split())
        frame = group[-1]
        assert x >= 0 and x + float(frame.get("width", 0)) <= width
        assert y >= 0 and y + float(frame.get("height", 0)) <= height
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", 0)) <= width and 0 <= float(text.get("y", 0)) <= height
