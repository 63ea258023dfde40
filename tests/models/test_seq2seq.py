"""The encoder-decoder: settings, sizes, ties, ends. What holds for all settings is in test_seq2seq_properties."""

import dataclasses

import pytest
import torch

from deterministic import fill, largest_difference, whole_numbers
from heedful.config import config_from_dict
from heedful.errors import UserError
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from heedful.nn.attention import AdditiveAttend, attend_fused
from heedful.nn.sparse_attention import PatternAttention, TopKAttention
from recipe_sizes import RECIPES, recipe_sizes

SMALL = {"source_vocab_size": 11, "target_vocab_size": 11, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 12}


def make(**changes) -> Seq2Seq:
    return fill(Seq2Seq(Seq2SeqConfig(**{**SMALL, **changes})))


def n_parameters(model: Seq2Seq) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# Sizes


def count(d: int, f: int, n: int, vocabulary: int) -> int:
    """The paper's model by hand: one embedding, N encoder and N decoder layers, all with biases and norms."""
    attention, network, norm = 4 * (d * d + d), 2 * d * f + d + f, 2 * d
    return vocabulary * d + n * (attention + network + 2 * norm) + n * (2 * attention + network + 3 * norm)


@pytest.mark.parametrize(
    ("recipe", "total"), [("base", 63_082_496), ("big", 214_245_376)], ids=["base: 65 million", "big: 213 million"]
)
def test_with_37000_tokens_base_and_big_have_the_papers_sizes(recipe, total):
    sizes = recipe_sizes(recipe)
    with torch.device("meta"):
        model = Seq2Seq(Seq2SeqConfig(37_000, 37_000, **sizes))
    assert n_parameters(model) == total == count(sizes["d_model"], sizes["d_ff"], sizes["n_layers"], 37_000)
    published = {"base": 65e6, "big": 213e6}[recipe]
    assert abs(total / published - 1) < 0.03


def test_base_and_big_are_the_published_sizes():
    def shape(recipe):
        config = Seq2SeqConfig(100, 100, **recipe_sizes(recipe))
        return config.n_layers, config.d_model, config.d_ff, config.n_heads

    assert {name: shape(name) for name in RECIPES} == {
        "tiny": (4, 128, 256, 4),
        "small": (3, 256, 1024, 4),
        "base": (6, 512, 2048, 8),
        "big": (6, 1024, 4096, 16),
    }
    assert recipe_sizes("big")["dropout"] == 0.3
    assert Seq2SeqConfig(100, 100) == Seq2SeqConfig(100, 100, **recipe_sizes("base"))  # base is the default


def test_head_size_is_free_of_d_model():
    model = make(d_head=5)
    assert model.encoder.layers[0].attention.to_q.weight.shape == (10, 8)
    assert model(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 2, dtype=torch.long)).shape == (1, 2, 11)


def test_depths_may_differ():
    model = make(n_layers=3, n_decoder_layers=1)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)
    assert len(model.make_cache().layers) == 1


# Ties


def test_one_matrix_three_times():
    model = make(tied="all")
    table = model.source_embedding.table.weight
    assert model.target_embedding.table.weight is table
    assert model.head.linear.weight is table
    assert n_parameters(make(tied="none")) - n_parameters(model) == 2 * 11 * 8


def test_target_and_output_only():
    model = make(tied="target", source_vocab_size=7)
    assert model.source_embedding.table.weight.shape == (7, 8)
    assert model.head.linear.weight is model.target_embedding.table.weight
    assert model.target_embedding.table.weight is not model.source_embedding.table.weight


def test_three_matrices():
    model = make(tied="none")
    weights = {id(m.weight) for m in (model.source_embedding.table, model.target_embedding.table, model.head.linear)}
    assert len(weights) == 3


def test_a_tied_model_is_the_untied_one_with_equal_numbers():
    tied, untied = make(tied="all"), make(tied="none")
    untied.load_state_dict(tied.state_dict())
    source, target = whole_numbers(2, 5, below=11, name="s"), whole_numbers(2, 4, below=11, name="t")
    assert largest_difference(tied(source, target), untied(source, target)) == 0


# Parts


@pytest.mark.parametrize("kind", ["local", "window", "strided", "dilated", "sparse"])
def test_a_pattern_is_used_in_self_attention_only(kind):
    model = make(pattern=PatternConfig(kind=kind, span=3, n_global=2))
    for layer, causal in ((model.encoder.layers[0], False), (model.decoder.layers[0], True)):
        assert isinstance(layer.attention.attend, PatternAttention)
        assert type(layer.attention.attend.pattern).__name__.lower() == kind
        assert layer.attention.attend.pattern.span == 3
        assert layer.attention.attend.pattern.causal == causal
        assert getattr(layer.attention.attend.pattern, "n_global", 2) == 2
    assert model.decoder.layers[0].cross_attention.attend is attend_fused


def test_top_k_and_additive_attention():
    strongest = make(pattern=PatternConfig(kind="top_k", span=3))
    assert isinstance(strongest.decoder.layers[0].attention.attend, TopKAttention)
    assert strongest.decoder.layers[0].attention.attend.causal
    assert not strongest.encoder.layers[0].attention.attend.causal
    additive = make(pattern=PatternConfig(kind="additive"))
    assert isinstance(additive.decoder.layers[0].cross_attention.attend, AdditiveAttend)
    assert isinstance(additive.encoder.layers[0].attention.attend, AdditiveAttend)


def test_only_pre_norm_ends_with_a_norm():
    for residual, ends in (("pre", True), ("post", False), ("none", False)):
        model = make(residual=residual)
        assert (model.encoder.final_norm is not None) == ends
        assert (model.decoder.final_norm is not None) == ends


def test_t5s_initial_weights_need_no_division_of_scores():
    assert make(init="t5").encoder.layers[0].attention.scale == 1.0
    assert make(init="xavier").encoder.layers[0].attention.scale is None


def test_dropout_acts_in_training_only_and_everywhere_it_should():
    source, target = whole_numbers(2, 5, below=11, name="s"), whole_numbers(2, 4, below=11, name="t")
    for settings in ({"dropout": 0.5}, {"dropout": 0.0, "attention_dropout": 0.5}):
        model = make(**settings)
        assert torch.equal(model(source, target), model(source, target))
        model.train()
        assert not torch.equal(model(source, target), model(source, target))
    model = make(dropout=0.0).train()
    assert torch.equal(model(source, target), model(source, target))


def test_the_rows_of_a_memory():
    model = make(join="matching")
    source = whole_numbers(3, 5, below=11)
    real = torch.arange(5)[None] < torch.tensor([[5], [2], [3]])
    memory = model.encode(source, real)
    rows = torch.tensor([2, 2, 0])
    chosen = memory.rows(rows)
    for state, wanted in zip(chosen.states, memory.states, strict=True):
        assert torch.equal(state, wanted[rows])
    assert torch.equal(chosen.mask, memory.mask[rows])
    assert model.encode(source).rows(rows).mask is None


# The end of a learned table


def test_beyond_the_learned_positions_is_an_error_that_says_how_many_there_are():
    model = make(positions="learned", max_len=4)
    four, five = torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 5, dtype=torch.long)
    assert model(four, four).shape == (1, 4, 11)
    with pytest.raises(UserError, match="5 tokens, but this model has learned only 4 positions"):
        model.encode(five)
    with pytest.raises(UserError, match="5 tokens, but this model has learned only 4 positions"):
        model(four, five)
    cache = model.make_cache()
    with torch.no_grad():
        model.decode(four, model.encode(four), cache=cache)
        with pytest.raises(UserError, match="5 tokens, but this model has learned only 4 positions"):
            model.decode(four[:, :1], model.encode(four), cache=cache)


def test_sinusoids_have_no_last_position():
    long = torch.zeros(1, 50, dtype=torch.long)
    assert make(max_len=4)(long, long).isfinite().all()


# Settings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_model": 0}, "'d_model' must lie between 1 and 1,000,000, found 0"),
        ({"n_layers": -1}, "'n_layers' must lie between 1 and 1,000, found -1"),
        ({"n_layers": 10**9}, "'n_layers' must lie between 1 and 1,000, found 1000000000"),
        ({"n_decoder_layers": 0}, "'n_decoder_layers'"),
        ({"n_heads": 0}, "'n_heads'"),
        ({"n_kv_heads": 0}, "'n_kv_heads'"),
        ({"n_kv_heads": -2}, "'n_kv_heads'"),
        ({"d_head": 0}, "'d_head'"),
        ({"d_ff": 0}, "'d_ff'"),
        ({"max_len": 0}, "'max_len'"),
        ({"source_vocab_size": 0, "tied": "none"}, "'source_vocab_size'"),
        ({"target_vocab_size": 10**30, "tied": "none"}, "'target_vocab_size'"),
        ({"dropout": 1.0}, "'dropout' must lie in [0, 1), found 1.0"),
        ({"dropout": -0.1}, "'dropout'"),
        ({"attention_dropout": 2.0}, "'attention_dropout'"),
        ({"source_vocab_size": 12}, "tied = 'all' needs one vocabulary for both sides, found 12 and 11"),
        ({"n_heads": 3}, "n_heads = 3 does not divide d_model = 8"),
        ({"n_heads": 4, "n_kv_heads": 3}, "n_kv_heads = 3 does not divide n_heads = 4"),
        ({"positions": "rotary", "d_head": 3}, "d_head must be even"),
        ({"d_model": 9, "n_heads": 3}, "d_model = 9 must be even"),
    ],
)
def test_impossible_settings_are_refused_with_the_value(changes, words):
    with pytest.raises(UserError) as caught:
        Seq2SeqConfig(**{**SMALL, **changes})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [({"span": 0}, "'span'"), ({"span": 10**20}, "'span'"), ({"n_global": -1}, "'n_global'"), ({"kind": "x"}, "kind")],
)
def test_impossible_patterns_are_refused_with_the_table(values, words):
    with pytest.raises(UserError, match="pattern") as caught:
        config_from_dict(Seq2SeqConfig, {**SMALL, "pattern": values}, where="config.json")
    assert words in str(caught.value)
    assert "config.json" in str(caught.value)


def test_settings_are_frozen_and_few():
    own = [field for field in dataclasses.fields(Seq2SeqConfig) if not dataclasses.is_dataclass(field.type)]
    assert len(own) <= 20  # a table inside counts its own
    with pytest.raises(dataclasses.FrozenInstanceError):
        Seq2SeqConfig(11, 11).d_model = 3
