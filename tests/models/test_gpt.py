"""The decoder-only family: causal, cached, padded on either side, packed; GPT-2's shape and Llama's."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from deterministic import fill, largest_difference, numbers, whole_numbers
from heedful.errors import UserError
from heedful.models.gpt import Gpt, GptConfig, RotaryConfig, document_positions
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.nn.attention import attend, attend_causal
from heedful.nn.masks import causal_mask, combine
from heedful.nn.positions import RopeScaling, Rotary
from heedful.text.special_ids import SpecialIds
from packed_rows import pack_rows

SIZES = {"vocab_size": 13, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20, "max_len": 12}
LLAMA = {
    "positions": "rotary", "norm": "rms", "activation": "swiglu", "attention_bias": False, "feed_forward_bias": False,
    "n_kv_heads": 2, "d_head": 6, "tied": False,
}  # fmt: skip
SHAPES = {"gpt2": {}, "llama": LLAMA, "no positions": {"positions": "none", "score_scale": "head_and_layer"}}


def make(shape: str = "gpt2", **changes) -> Gpt:
    return fill(Gpt(GptConfig(**{**SIZES, **SHAPES[shape], **changes})))


def ids_of(*shape: int, name: str = "ids") -> torch.Tensor:
    return whole_numbers(*shape, below=13, name=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_token_sees_what_comes_after_it(shape: str) -> None:
    model, ids = make(shape), ids_of(2, 9)
    other = ids.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 13
    one, two = model(ids), model(other)
    assert torch.equal(one[:, :5], two[:, :5])
    assert largest_difference(one[:, 5:], two[:, 5:]) > 1e-3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parts", [[1] * 9, [4, 5], [3, 1, 5]])
def test_cached_is_uncached(shape: str, parts: list[int]) -> None:
    model, ids = make(shape), ids_of(3, 9)
    cache = model.make_cache()
    found = torch.cat([model.head(model.hidden_states(part, cache=cache)) for part in ids.split(parts, dim=1)], dim=1)
    assert cache.length == 9
    assert largest_difference(found, model(ids)) < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(shape: str, side: str) -> None:
    model, lengths, width = make(shape), [9, 1, 4], 9
    rows = [ids_of(n, name=str(n)) for n in lengths]
    ids, mask = torch.full((3, width), 7), torch.zeros(3, width, dtype=torch.bool)
    for row, text in enumerate(rows):
        place = slice(width - len(text), None) if side == "left" else slice(0, len(text))
        ids[row, place], mask[row, place] = text, True
    logits = model(ids, mask)
    assert torch.isfinite(logits).all()
    for row, text in enumerate(rows):
        assert largest_difference(logits[row][mask[row]], model(text[None])[0]) < 1e-12
    if side == "right":
        assert largest_difference(logits[mask], model(ids)[mask]) < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_padded_on_the_left_and_cached(shape: str) -> None:
    model, ids = make(shape), ids_of(2, 9)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, :4] = False
    cache = model.make_cache()
    steps = [model.hidden_states(ids[:, t : t + 1], mask[:, : t + 1], cache=cache) for t in range(9)]
    assert largest_difference(torch.cat(steps, dim=1)[mask], model.hidden_states(ids, mask)[mask]) < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_texts_do_not_see_each_other(shape: str) -> None:
    model = make(shape)
    texts = [ids_of(n, name=str(n)).numpy() for n in (5, 3, 1, 7, 2)]
    packed = pack_rows(texts, 7)  # two of the texts are cut, and the last row is padded
    documents = torch.from_numpy(packed.documents)
    logits = model(torch.from_numpy(packed.ids), documents=documents)
    for row, numbers_in_row in enumerate(packed.documents):
        for document in set(numbers_in_row.tolist()) - {-1}:
            columns = numbers_in_row == document
            alone = model(torch.from_numpy(packed.ids[row, columns])[None])[0]
            assert largest_difference(logits[row, torch.from_numpy(columns)], alone) < 1e-12
    real = torch.from_numpy(packed.mask)
    assert torch.equal(document_positions(documents)[real], torch.from_numpy(packed.positions)[real])


def test_gradients_are_finite_where_rows_are_padded() -> None:
    model, mask = make("llama"), torch.ones(2, 6, dtype=torch.bool)
    mask[0, :5] = False
    model(ids_of(2, 6), mask)[mask].square().sum().backward()
    assert all(torch.isfinite(one.grad).all() for one in model.parameters())


@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(6, 6), (1, 6), (3, 6), (1, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_causal_attention_equals_the_formula(heads: int, n_queries: int, n_keys: int, masked: bool) -> None:
    q = numbers(2, 4, n_queries, 6, name="q")
    k, v = numbers(2, heads, n_keys, 6, name="k"), numbers(2, heads, n_keys, 6, name="v")
    given = None
    if masked:  # everybody may see themselves
        given = torch.eye(n_keys, dtype=torch.bool)[n_keys - n_queries :] | (numbers(2, 1, 1, n_keys, name="m") > 0)
    mask = combine(given, causal_mask(n_queries, n_keys))
    for scale in (None, 0.3):
        expected = attend(q, k, v, mask, scale=scale)
        assert largest_difference(attend_causal(q, k, v, given, scale=scale), expected) < 1e-12


def test_scores_are_divided_by_the_layers_number_where_asked() -> None:
    scales = {
        name: [layer.attention.scale for layer in make(score_scale=name).layers]
        for name in ("head", "head_and_layer", "layer", "none")
    }
    assert scales == {"head": [None, None], "head_and_layer": [0.5, 0.25], "layer": [1.0, 0.5], "none": [1.0, 1.0]}


def test_scaled_frequencies_keep_the_high_and_divide_the_low() -> None:
    turns = Rotary(d_head=64, base=500_000.0)
    plain = torch.stack(turns.cos_sin(torch.tensor([1]), torch.float64))
    stretch = RopeScaling(factor=8.0, original_max_len=8192, low_freq_factor=1.0, high_freq_factor=4.0)
    frequencies = 500_000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
    stretched = stretch(frequencies)
    rounds = 8192 * frequencies / (2 * math.pi)
    assert torch.equal(stretched[rounds >= 4], frequencies[rounds >= 4])
    assert torch.allclose(stretched[rounds <= 1], frequencies[rounds <= 1] / 8, rtol=1e-15)
    between = (rounds > 1) & (rounds < 4)
    assert between.any()
    assert (stretched[between] < frequencies[between]).all()
    assert (stretched[between] > frequencies[between] / 8).all()
    assert (stretched.diff() < 0).all()
    same = Rotary(d_head=64, base=500_000.0, scaling=RopeScaling(factor=1.0))
    assert torch.equal(torch.stack(same.cos_sin(torch.tensor([1]), torch.float64)), plain)
    # Every position counts as a fraction of itself.
    interpolated = Rotary(d_head=64, scaling=RopeScaling(factor=4.0)).cos_sin(torch.tensor([12]), torch.float64)
    assert torch.allclose(
        torch.stack(interpolated), torch.stack(Rotary(d_head=64).cos_sin(torch.tensor([3]), torch.float64))
    )


def test_learned_positions_end_and_others_do_not() -> None:
    with pytest.raises(UserError, match="13 tokens, but this model has learned only 12 positions"):
        make()(ids_of(1, 13))
    padded = torch.ones(1, 13, dtype=torch.bool)
    padded[0, 0] = False
    assert make()(ids_of(1, 13), padded).shape == (1, 13, 13)
    assert make("llama")(ids_of(1, 13)).shape == (1, 13, 13)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 0}, "'vocab_size' must lie between 1"),
        ({"n_layers": 10**5}, "'n_layers' must lie between"),
        ({"n_heads": 3}, "does not divide d_model"),
        ({"n_kv_heads": 3}, "n_kv_heads = 3 does not divide"),
        ({"positions": "rotary", "d_head": 5}, "d_head must be even"),
        ({"dropout": 1.0}, "'dropout'"),
        ({"norm_eps": -1.0}, "'norm_eps'"),
        ({"norm_eps": math.nan}, "'norm_eps'"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        GptConfig(**{**SIZES, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"base": 0.0},
        {"factor": 0.5},
        {"original_max_len": 0},
        {"low_freq_factor": 4.0, "high_freq_factor": 2.0},
        {"base": math.nan},
    ],
)
def test_impossible_frequencies_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(changes))):
        RotaryConfig(**changes)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_folder_gives_the_same_model_back(shape: str, tmp_path: Path) -> None:
    model = make(shape, rotary=RotaryConfig(base=1e5, factor=2.0, original_max_len=8)).float()
    loaded = load_model(save_model(tmp_path / "model", model, None))
    assert loaded.family == "gpt"
    assert loaded.model.config == model.config
    assert torch.equal(loaded.model(ids_of(2, 9)), model(ids_of(2, 9)))
    tied = SHAPES[shape].get("tied", True)
    assert ("head.linear.weight" in weights_of(loaded.model)) == (not tied)
    assert (loaded.model.head.linear.weight is loaded.model.embedding.table.weight) == tied


def test_another_family_is_named_with_the_command_that_runs_it(tmp_path: Path) -> None:
    from heedful.decoding.translator import Translator
    from heedful.models.seq2seq import Seq2Seq

    folder = save_model(tmp_path / "model", make().float(), None)
    for refuse in (lambda: load_model(folder).expect(Seq2Seq), lambda: Translator.load(folder)):
        with pytest.raises(UserError, match=r"family 'gpt'.*heedful generate") as caught:
            refuse()
        assert str(folder) in str(caught.value)


def test_initial_weights_are_gpt2s() -> None:
    torch.manual_seed(0)
    model = Gpt(GptConfig(vocab_size=500, d_model=128, n_layers=8, n_heads=4, d_ff=512))
    assert 0.018 < float(model.embedding.table.weight.detach().std()) < 0.022
    assert 0.004 < float(model.layers[3].feed_forward.outer.weight.detach().std()) < 0.006  # 0.02 / sqrt(16)
    logits = model.eval()(whole_numbers(1, 50, below=500, name="x")).detach()
    assert float(torch.logsumexp(logits, dim=-1).mean()) == pytest.approx(math.log(500), abs=0.1)


def test_bos_stands_before_a_prompt_unless_it_is_eos_too() -> None:
    llama, gpt2 = SpecialIds(bos_id=2, eos_id=3), SpecialIds(bos_id=3, eos_id=3)
    assert llama.with_bos([7]) == [2, 7] and llama.with_bos([]) == [2]
    assert gpt2.with_bos([7]) == [7] and gpt2.with_bos([]) == [3]
    # What a public model's tokenizer does counts more.
    assert dataclasses.replace(llama, adds_bos=False).with_bos([7]) == [7]
    assert dataclasses.replace(gpt2, adds_bos=True).with_bos([7]) == [3, 7]
