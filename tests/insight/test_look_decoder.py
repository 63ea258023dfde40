"""A look at a GPT: its attention, probabilities and text, layer by layer."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deterministic import fill, largest_difference
from echo_engine import tokenizers
from heedful import UserError
from heedful.cli.look_report import decoder_report, known_from
from heedful.cli.main import run
from heedful.decoding.generator import Generator
from heedful.insight.look_decoder import DecoderLook, look_at_decoder
from heedful.insight.packed_arrays import unpack
from heedful.insight.trace import trace
from heedful.insight.walk import HeadVectors, walk_through
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from trace_checks import check_trace

LLAMA = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "n_kv_heads": 2, "tied": False}


@pytest.fixture(scope="module", params=[{}, LLAMA], ids=["gpt2", "llama"])
def generator(request) -> Generator:
    size = tokenizers().source.vocab_size
    config = GptConfig(vocab_size=size, d_model=16, n_layers=3, n_heads=4, d_ff=24, max_len=64, **request.param)
    return Generator(fill(Gpt(config), dtype=torch.float32), tokenizers().source)


@pytest.fixture(scope="module")
def result(generator: Generator) -> DecoderLook:
    return look_at_decoder(generator, "A dog", max_len=8)


def test_the_text_equals_the_generators(generator: Generator, result: DecoderLook) -> None:
    assert result.text == generator.generate("A dog", max_len=8)
    assert list(result.ids[: result.n_prompt]) == generator.prompt_ids("A dog")
    written = [step.id for step in result.steps[result.n_prompt - 1 :]]
    [[best]] = generator.search_ids([generator.prompt_ids("A dog")], max_len=8)
    assert written == [*best.ids, *([3] if best.complete else [])]
    assert sum(math.log(step.probability) for step in result.steps[result.n_prompt - 1 :]) == pytest.approx(
        best.score, abs=1e-4
    )


@torch.no_grad()
def test_weights_are_causal_and_equal_those_of_the_model(generator: Generator, result: DecoderLook) -> None:
    n = len(result.tokens)
    assert result.weights.shape == (3, 4, n, n)
    assert largest_difference(result.weights.sum(dim=-1), torch.ones(3, 4, n)) < 1e-5
    assert float(result.weights.triu(diagonal=1).abs().max()) == 0.0
    attention = result.tensors["layers.1.attention.v"]
    groups = 4 // attention.size(1)
    mixed = result.weights[1] @ attention[0].repeat_interleave(groups, dim=0)
    assert largest_difference(mixed, result.tensors["layers.1.attention.heads"][0]) < 1e-5


@torch.no_grad()
def test_the_last_lens_equals_the_models_distribution(generator: Generator, result: DecoderLook) -> None:
    assert len(result.lens) == 4
    for step, through in zip(result.steps, result.lens[-1].steps, strict=True):
        assert through.probability == pytest.approx(step.probability, abs=1e-6)
        assert through.rank == step.rank
    model = generator.model
    first = model.head(
        model.final_norm(model.positions(model.embedding(torch.tensor([result.ids])), torch.arange(len(result.ids))))
    )
    top = first[0].softmax(dim=-1).max(dim=-1)
    assert [step.top[0].id for step in result.lens[0].steps] == top.indices.tolist()
    for place in range(len(result.steps)):
        known = known_from(result, place)
        ranks = [layer.steps[place].rank for layer in result.lens]
        assert (known is None) == (ranks[-1] != 0)
        if known is not None:
            assert not any(ranks[known:])
            assert known == 0 or ranks[known - 1]


def test_files(result: DecoderLook, tmp_path: Path) -> None:
    values = json.loads(result.save(tmp_path / "a.json").read_text(encoding="utf-8"))
    check_trace(values)
    assert values["model"]["family"] == "gpt" and values["source"] is values["beam"] is None
    assert np.abs(unpack(values["attention"]["decoder"]["weights"]) - result.weights.numpy()).max() < 1e-4
    arrays = np.load(result.save(tmp_path / "a.npz"))
    assert np.array_equal(arrays["attention/decoder"], result.weights.numpy())
    assert arrays["tensors/layers.0.attention.q"].shape[-1] == 4
    assert result.save(tmp_path / "a.svg", layer=2, head=1).read_text(encoding="utf-8").startswith("<svg")
    with pytest.raises(UserError, match=r"\.html"):
        result.save(tmp_path / "a.doc")


@torch.no_grad()
def test_the_walk_leads_from_the_embedding_to_the_logits(generator: Generator, result: DecoderLook) -> None:
    with trace(generator.model) as t:
        logits = t.model(torch.tensor([result.ids]))[0]
    walk = walk_through(t, numbers=1000)
    assert walk.encoder is None and walk.decoder is not None
    start, layers = walk.decoder.start, walk.decoder.layers
    added = 0 if start.position is None else start.position.first.values
    assert np.abs(start.scaled.first.values + added - layers[0]["input"].first.values).max() < 1e-5
    for before, after in itertools.pairwise(layers):
        assert np.array_equal(before["feed_forward.added"].first.values, after["input"].first.values)
    assert largest_difference(generator.model.head(torch.from_numpy(walk.decoder.end.norm.first.values)), logits) < 1e-4


def test_the_six_steps_of_one_head(result: DecoderLook) -> None:
    """q . k, x scale, causal mask, softmax: computed from the numbers of the file alone."""
    mask = torch.from_numpy(result.attention.mask.values.astype(bool)[0, 0])
    assert torch.equal(mask, torch.ones_like(mask).tril())
    assert result.walk.decoder is not None
    for number, parts in enumerate(result.walk.decoder.layers):
        vectors = parts["attention"]
        assert isinstance(vectors, HeadVectors)
        scores = torch.from_numpy(result.attention.scores.values[number]) * vectors.scale
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        assert largest_difference(weights, result.weights[number]) < 1e-5


def test_the_command(generator: Generator, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = str(save_model(tmp_path / "model", generator.model, tokenizers()))
    assert run(["look", "A dog", "-m", folder]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert sum(line.startswith("> ") for line in lines) in range(1, 25)
    assert run(["look", "A dog", "-m", folder, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["target"]["text"].startswith("A dog")
    assert run(["look", "A dog", "-m", folder, "--output", str(tmp_path / "a.svg")]) == 0
    assert (tmp_path / "a.svg").stat().st_size > 1000
    assert run(["look", "x" * 200, "-m", folder]) == 1
    assert "look shows 40 at most" in capfd.readouterr().err
    assert run(["look", "A dog", "-m", folder, "--layer", "9"]) == 1


def test_three_alternatives_are_printed_even_a_comma(result: DecoderLook) -> None:
    step = result.steps[0]
    rivals = [replace(step.top[0], id=-number, token=token) for number, token in enumerate([", ", "b", "c", "d"], 1)]
    lines = decoder_report(replace(result, steps=(replace(step, top=tuple(rivals)), *result.steps[1:])), None, None)
    probability = f"{rivals[0].probability:.2f}"
    assert f",  {probability}, b {probability}, c {probability};" in lines[3]


def test_options_for_translation_are_errors(
    generator: Generator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If they were ignored, the output would not show the masked words and ablated heads that the user expects."""
    folder = save_model(tmp_path / "model", generator.model, tokenizers())
    options = {"--target": "x", "--beam": "3", "--kind": "encoder", "--hide": "1", "--without": "cross:1:1"}
    for option, value in options.items():
        assert run(["look", "A dog", "-m", str(folder), option, value]) == 1
        assert f"{option}: for models that translate" in capsys.readouterr().err
