"""BART, T5 and the Universal Transformer: what must hold for every encoder-decoder, in float64."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deterministic import fill, largest_difference, whole_numbers
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import Sampling, SearchSettings
from heedful.errors import UserError
from heedful.models.bart import Bart, BartConfig
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.models.t5 import T5, T5Config
from heedful.models.universal import Universal, UniversalConfig
from heedful.text.special_ids import SpecialIds

VOCAB = 23
OWN_MARKS = SpecialIds(pad_id=1, bos_id=0, eos_id=2, decoder_start_id=2, source_bos=True, force_bos=True)
BART = BartConfig(vocab_size=VOCAB, d_model=8, n_layers=1, n_decoder_layers=2, n_heads=2, d_ff=12, max_len=24)
TINY_T5 = T5Config(VOCAB, d_model=8, n_layers=2, n_heads=2, d_head=3, d_ff=12, n_buckets=4, max_distance=6)
UNIVERSAL = UniversalConfig(VOCAB, VOCAB, d_model=8, n_steps=3, n_heads=2, d_ff=12)

MODELS = {
    "bart": lambda: Bart(BART),
    "bart scaled, its own marks": lambda: Bart(dataclasses.replace(BART, scaled_embedding=True, special_ids=OWN_MARKS)),
    "t5": lambda: T5(TINY_T5),
    "t5 1.1": lambda: T5(dataclasses.replace(TINY_T5, activation="geglu", tied=False, n_decoder_layers=1)),
    "universal": lambda: Universal(UNIVERSAL),
    "universal, unlike depths": lambda: Universal(dataclasses.replace(UNIVERSAL, n_decoder_steps=2, tied="none")),
    "universal, soon sure": lambda: Universal(dataclasses.replace(UNIVERSAL, n_steps=4, threshold=0.5)),
    "universal without halting": lambda: Universal(dataclasses.replace(UNIVERSAL, halting="none")),
    "universal of two vocabularies": lambda: Universal(
        dataclasses.replace(UNIVERSAL, target_vocab_size=19, tied="target")
    ),
}


@pytest.fixture(params=MODELS, ids=MODELS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    return fill(MODELS[request.param]())


def batch(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    target_size = getattr(model.config, "target_vocab_size", VOCAB)
    source = whole_numbers(3, 6, below=VOCAB, first=4, name="source")
    mask = torch.arange(6) < torch.tensor([[6], [1], [4]])
    return source, mask, whole_numbers(3, 5, below=target_size, first=4, name="target")


@torch.no_grad()
def test_a_cache_changes_nothing(model: nn.Module) -> None:
    source, mask, target = batch(model)
    memory, cache = model.encode(source, mask), model.make_cache()
    wanted = model.decode(target, memory)
    first = model.decode(target[:, :2], memory, cache=cache)
    steps = [model.decode(target[:, t : t + 1], memory, cache=cache) for t in range(2, 5)]
    assert cache.length == 5
    assert largest_difference(torch.cat([first, *steps], dim=1), wanted) < 1e-12


@torch.no_grad()
def test_no_output_depends_on_later_tokens(model: nn.Module) -> None:
    source, mask, target = batch(model)
    before = model(source, target, mask)
    target[:, 3:] = 4 + (target[:, 3:] - 3) % 10
    after = model(source, target, mask)
    assert largest_difference(before[:, :3], after[:, :3]) < 1e-12
    assert largest_difference(before[:, 3:], after[:, 3:]) > 1e-6


@torch.no_grad()
def test_padding_changes_nothing(model: nn.Module) -> None:
    source, mask, target = batch(model)
    whole = model(source, target, mask)
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        assert largest_difference(whole[row : row + 1], alone) < 1e-12
    assert largest_difference(whole[1], model(source, target)[1]) > 1e-6, "the mask matters"


def test_every_weight_has_a_gradient(model: nn.Module) -> None:
    source, mask, target = batch(model)
    model(source, target, mask).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@torch.no_grad()
def test_logits_are_the_head_of_the_states(model: nn.Module) -> None:
    source, mask, target = batch(model)
    states = model.hidden_states(target, model.encode(source, mask))
    linear = model.head.linear
    logits = states @ linear.weight.T + (0 if linear.bias is None else linear.bias)
    assert largest_difference(logits, model(source, target, mask)) < 1e-12


def test_a_folder_gives_the_model_back(model: nn.Module, tmp_path: Path) -> None:
    loaded = load_model(save_model(tmp_path / "model", model, None))
    assert loaded.model.config == model.config
    assert type(loaded.model) is type(model)
    for name, tensor in weights_of(model).items():
        assert torch.equal(weights_of(loaded.model)[name], tensor), name
    source, mask, target = batch(model)
    with torch.no_grad():
        assert torch.equal(loaded.model(source, target, mask), model(source, target, mask))


@torch.no_grad()
def greedy(model: nn.Module, ids: list[int], limit: int) -> list[int]:
    """Search as simple as can be: no cache, no batch."""
    special_ids = model.config.special_ids
    memory = model.encode(torch.tensor([[*special_ids.with_source_bos(ids), special_ids.eos_id]]))
    written = [special_ids.start_id, *special_ids.with_source_bos([])]
    while len(written) - 1 - special_ids.n_forced < limit:
        newest = int(model.decode(torch.tensor([written]), memory)[0, -1].argmax())
        if newest == special_ids.eos_id:
            break
        written.append(newest)
    return written[1 + special_ids.n_forced :]


def requests(n: int = 9) -> list[Request]:
    return [Request(whole_numbers(1 + i % 5, below=VOCAB, first=4, name=f"r{i}").tolist()) for i in range(n)]


def test_searches_return_what_the_model_predicts(model: nn.Module) -> None:
    engine = TorchEngine(model, batch_rows=4, lanes=1)
    found = engine.search(requests(), SearchSettings(beam=1, max_len=8))
    assert [best[0].ids for best in found] == [greedy(model, list(one.source), 8) for one in requests()]
    settings = SearchSettings(beam=3, n_best=3, max_len=8)
    together = engine.search(requests(), settings)
    alone = [engine.search([one], settings)[0] for one in requests()]
    assert [[each.ids for each in best] for best in together] == [[each.ids for each in best] for best in alone]
    for best in together:
        assert [each.normalized_score for each in best] == sorted(
            (each.normalized_score for each in best), reverse=True
        )


@torch.no_grad()
def test_the_score_of_a_hypothesis_is_its_log_probability(model: nn.Module) -> None:
    special_ids = model.config.special_ids
    for one, best in zip(
        requests(), TorchEngine(model, lanes=1).search(requests(), SearchSettings(beam=2, max_len=8)), strict=True
    ):
        ids = (
            [*special_ids.with_source_bos(best[0].ids), special_ids.eos_id]
            if best[0].complete
            else [*special_ids.with_source_bos(best[0].ids)]
        )
        memory = model.encode(torch.tensor([[*special_ids.with_source_bos(one.source), special_ids.eos_id]]))
        said = model.decode(torch.tensor([[special_ids.start_id, *ids[:-1]]]), memory).log_softmax(dim=-1)[0]
        terms = said.gather(1, torch.tensor(ids)[:, None])[:, 0]
        assert float(terms[special_ids.n_forced :].sum()) == pytest.approx(best[0].score, abs=1e-9)


def test_attention_is_returned_with_sampling(model: nn.Module) -> None:
    engine = TorchEngine(model, lanes=1)
    for one, best in zip(
        requests(4), engine.search(requests(4), SearchSettings(beam=2, max_len=6, attention=True)), strict=True
    ):
        assert best[0].attention is not None
        assert len(best[0].attention) == len(best[0].ids)
        for row in best[0].attention:
            assert len(row) == len(one)  # the marks before a source are left out, and so their share
            assert sum(row) == pytest.approx(1.0, abs=1e-6) or model.config.special_ids.n_source_prefix
    drawn = SearchSettings(beam=1, n_best=2, max_len=6, sampling=Sampling(seed=3))
    first, again = engine.search(requests(4), drawn), engine.search(requests(4), drawn)
    assert [[each.ids for each in best] for best in first] == [[each.ids for each in best] for best in again]


def test_a_prefix_follows_the_forced_bos(model: nn.Module) -> None:
    found = TorchEngine(model, lanes=1).search(
        [Request([5, 6, 7], prefix=[9, 8])], SearchSettings(beam=2, max_len=6, min_len=4, forbidden=(10,))
    )
    assert found[0][0].ids[:2] == [9, 8]
    assert 4 <= len(found[0][0].ids) <= 6


@torch.no_grad()
def test_some_positions_halt_before_others() -> None:
    """Else the cases above would not tell a position that has stopped from one that has not."""
    model = fill(MODELS["universal, soon sure"]())
    source, mask, target = batch(model)
    for thought in (model._encode(source, mask), model._decode(target, model.encode(source, mask))):
        assert 1 <= int(thought.steps.min()) < int(thought.steps.max()) <= 4


SEQ2SEQ = Seq2SeqConfig(VOCAB, VOCAB, d_model=8, n_layers=1, n_heads=2, d_ff=12, logits_bias=True)


def test_a_models_own_special_ids_and_forbidden_ids() -> None:
    special_ids = SpecialIds(pad_id=22, bos_id=22, eos_id=0, forbidden_ids=(22,))
    model = fill(Seq2Seq(dataclasses.replace(SEQ2SEQ, special_ids=special_ids)))
    with torch.no_grad():
        model.head.linear.bias[22] = 50.0  # the likeliest by far
    for beam in (1, 3):
        for best in TorchEngine(model, lanes=1).search(requests(), SearchSettings(beam=beam, max_len=8)):
            assert 22 not in best[0].ids and 0 not in best[0].ids
    found = TorchEngine(model, lanes=1).search(requests(), SearchSettings(beam=1, max_len=8))
    with torch.no_grad():
        model.head.linear.bias[22] = -1e9
    assert [best[0].ids for best in found] == [greedy(model, list(one.source), 8) for one in requests()]


def test_a_bias_on_the_logits_is_one_number_for_each_word() -> None:
    model = fill(Seq2Seq(SEQ2SEQ))
    source, mask, target = batch(model)
    with torch.no_grad():
        with_bias = model(source, target, mask)
        bias = model.head.linear.bias.clone()
        model.head.linear.bias.zero_()
        assert largest_difference(with_bias, model(source, target, mask) + bias) < 1e-12


def test_the_default_special_ids_are_those_of_heedfuls_tokenizers() -> None:
    assert SEQ2SEQ.special_ids == SpecialIds(pad_id=0, bos_id=2, eos_id=3)
    assert not Seq2SeqConfig(VOCAB, VOCAB).logits_bias


@pytest.mark.parametrize(
    ("kind", "settings", "word"),
    [
        (BartConfig, {"vocab_size": 0}, "vocab_size"),
        (BartConfig, {"vocab_size": 9, "n_heads": 5}, "n_heads"),
        (BartConfig, {"vocab_size": 9, "activation_dropout": 1.0}, "activation_dropout"),
        (BartConfig, {"vocab_size": 9, "special_ids": SpecialIds(eos_id=9)}, "special_ids"),
        (T5Config, {"vocab_size": 9, "n_buckets": 6}, "n_buckets"),
        (T5Config, {"vocab_size": 9, "max_distance": 16}, "max_distance"),
        (T5Config, {"vocab_size": 9, "norm_eps": 0.0}, "norm_eps"),
        (T5Config, {"vocab_size": 9, "dropout": -0.1}, "dropout"),
        (UniversalConfig, {"source_vocab_size": 9, "target_vocab_size": 8}, "tied"),
        (UniversalConfig, {"source_vocab_size": 9, "target_vocab_size": 9, "threshold": 1.0}, "threshold"),
        (UniversalConfig, {"source_vocab_size": 9, "target_vocab_size": 9, "ponder_weight": -1.0}, "ponder_weight"),
        (UniversalConfig, {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": 9, "n_heads": 3}, "d_model"),
        (SpecialIds, {"pad_id": -1}, "pad_id"),
        (SpecialIds, {"forbidden_ids": (-2,)}, "forbidden_ids"),
    ],
)
def test_impossible_settings_are_refused(kind: type, settings: dict, word: str) -> None:
    with pytest.raises(UserError, match=word):
        kind(**settings)


def test_barts_positions_have_a_limit() -> None:
    model = fill(Bart(BART))
    with pytest.raises(UserError, match="24 positions"):
        model.encode(torch.full((1, 25), 5))
    found = TorchEngine(model, lanes=1).search([Request([5])], SearchSettings(beam=1, max_len=100))
    assert len(found[0][0].ids) <= 24


def test_t5_has_the_papers_initial_weights() -> None:
    torch.manual_seed(3)
    model = T5(T5Config(500, d_model=64, n_layers=1, n_heads=4, d_head=16, d_ff=128))
    layer = model.decoder.layers[0]
    expected = {
        "embedding": (model.embedding.table.weight, 1.0),
        "queries": (layer.attention.to_q.weight, (64 * 16) ** -0.5),
        "keys": (layer.cross_attention.to_k.weight, 64**-0.5),
        "output": (layer.attention.to_out.weight, 64**-0.5),
        "inner": (layer.feed_forward.inner.weight, 64**-0.5),
        "outer": (layer.feed_forward.outer.weight, 128**-0.5),
        "distances": (model.encoder.bias.table.weight, 64**-0.5),
    }
    for name, (weight, std) in expected.items():
        assert float(weight.detach().std()) == pytest.approx(std, rel=0.25), name
    assert model.head.linear.weight is model.embedding.table.weight
