"""CTranslate2 gives the ids and scores of heedful's own greedy search, for every variant that is converted."""

import copy

import pytest
import torch

from ct2_models import make_engine, make_model, score_of, some_requests, tie
from deterministic import largest_difference
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError
from heedful.interop.ctranslate2.model_config import POSITIONS, why_not
from heedful.interop.ctranslate2.spec import ct2_model, sinusoids
from heedful.models.model_io import LoadedModel
from heedful.models.seq2seq import PatternConfig, Seq2SeqConfig
from heedful.nn.positions import sinusoidal_code

VARIANTS = {
    "the paper's": {},
    "pre-norm": {"residual": "pre"},
    "rms": {"norm": "rms"},
    "rms, pre-norm": {"norm": "rms", "residual": "pre"},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "swish": {"activation": "swish"},
    "swiglu": {"activation": "swiglu"},
    "geglu": {"activation": "geglu"},
    "sines first": {"positions": "sinusoidal_halves"},
    "learned": {"positions": "learned", "max_len": 40},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
    "no positions": {"positions": "none"},
    "three matrices": {"tied": "none"},
    "two vocabularies": {"tied": "target", "source_vocab_size": 45, "target_vocab_size": 70},
    "one kv head": {"n_kv_heads": 1},
    "two kv heads": {"n_kv_heads": 2, "positions": "rotary"},
    "wide heads": {"d_head": 12},
    "narrow heads, rotary": {"d_head": 6, "positions": "rotary", "n_kv_heads": 2},
    "deep encoder": {"n_layers": 3, "n_decoder_layers": 1},
    "deep decoder": {"n_layers": 1, "n_decoder_layers": 3, "residual": "pre"},
    "t5": {"init": "t5", "positions": "relative", "norm": "rms", "residual": "pre", "activation": "geglu"},
    "dropout is for training": {"dropout": 0.5, "attention_dropout": 0.5},
}

REFUSED = {
    "local": {"pattern": PatternConfig("local", 4)},
    "top_k": {"pattern": PatternConfig("top_k", 4)},
    "additive": {"pattern": PatternConfig("additive")},
    "batch norm": {"norm": "batch"},
    "residual": {"residual": "none"},
    "ALiBi": {"positions": "alibi"},
    "encoder layer": {"join": "matching"},
    "the last encoder layer": {"join": "mix"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_greedy_search_gives_the_ids_and_scores_of_torch(changes, tmp_path):
    model = make_model(**changes)
    exact = copy.deepcopy(model).double()  # in float32 torch rounds, too, and on some processors the other way
    requests = some_requests(24, vocab=model.config.source_vocab_size)
    settings = SearchSettings(beam=1, max_len=16)
    found = make_engine(model, tmp_path / "ct2").search(requests, settings)
    expected = TorchEngine(model).search(requests, settings)
    for request, (ours,), (theirs,) in zip(requests, expected, found, strict=True):
        assert tie(model, request, ours, theirs) < 1e-4
        assert theirs.score == pytest.approx(score_of(exact, request, theirs), abs=2e-4)  # 17 logarithms in float32
    assert len({tuple(theirs.ids) for (theirs,) in found}) > 2  # they depend on the source


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norms_have_the_epsilon_of_torch(norm, tmp_path):
    model = make_model(norm=norm, residual="pre", positions="none", tied="none")
    with torch.no_grad():
        for embedding in (model.source_embedding, model.target_embedding):
            embedding.table.weight.mul_(1e-3)
    requests = some_requests(8)
    found = make_engine(model, tmp_path / "ct2").search(requests, SearchSettings(beam=1, max_len=6))
    for request, (best,) in zip(requests, found, strict=True):
        assert best.score == pytest.approx(score_of(model, request, best), abs=1e-4)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "none"])
def test_a_source_of_1100_tokens_is_read_to_its_end(positions, tmp_path):
    model = make_model(positions=positions, n_layers=1)
    engine = make_engine(model, tmp_path / "ct2")
    source = torch.randint(4, 60, (1_100,), generator=torch.Generator().manual_seed(0)).tolist()
    settings = SearchSettings(beam=1, max_len=8)
    request, cut = Request(source), Request(source[:1_024])
    ((whole,), (part,)) = engine.search([request, cut], settings)
    assert whole.score == pytest.approx(score_of(model, request, whole), abs=2e-4)
    assert abs(whole.score - part.score) > 1e-3


@pytest.mark.parametrize(("name", "changes"), REFUSED.items(), ids=REFUSED)
def test_unsupported_settings_are_refused_by_name(name, changes):
    config = Seq2SeqConfig(60, 60, d_model=32, n_heads=4, d_ff=48, n_layers=2, **changes)
    assert name in why_not(config)
    with pytest.raises(UserError, match=name):
        ct2_model(LoadedModel("seq2seq", make_model(**changes), None))


def test_every_other_setting_is_converted():
    for changes in VARIANTS.values():
        sizes = {"source_vocab_size": 60, "target_vocab_size": 60, "d_model": 32, "n_heads": 4}
        assert why_not(Seq2SeqConfig(**{**sizes, **changes})) is None
    assert why_not(Seq2SeqConfig(60, 60, norm="scale")) == "it has no scale norm"  # README.md adds one


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_the_position_table_equals_the_models_sinusoids(layout):
    expected = sinusoidal_code(torch.arange(POSITIONS), 48, layout=layout).float()
    ours = torch.from_numpy(sinusoids(48, halves=layout == "halves"))
    assert largest_difference(ours, expected) <= 1e-7


def test_the_table_of_positions_is_long_enough_for_4096_source_tokens():
    assert SearchSettings().limit(4_096) <= POSITIONS
