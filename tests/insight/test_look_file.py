"""A look as files: pages, pictures, numbers."""

import json
import warnings
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deterministic import fill
from heedful.cli.look import BRANCHES
from heedful.cli.look import look as command
from heedful.errors import UserError
from heedful.insight.html_export import PAGE
from heedful.insight.look import Look, look
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from look_models import SENTENCE, look_model, other_look_model, tokenizers
from recipe_sizes import recipe_sizes
from trace_checks import check_trace


@pytest.fixture(scope="module")
def result() -> Look:
    return look(look_model(), SENTENCE, beam=2, target="Ein Hund rennt.")


def test_json(result: Look, tmp_path: Path) -> None:
    trace = json.loads(result.save(tmp_path / "trace.json").read_text(encoding="utf-8"))
    check_trace(trace)
    assert trace == json.loads(json.dumps(result.to_values()))


def test_npz_has_every_number_exactly(result: Look, tmp_path: Path) -> None:
    with np.load(result.save(tmp_path / "trace.npz"), allow_pickle=False) as arrays:
        check_trace(json.loads(bytes(arrays["trace"]).decode()))
        assert {f"tensors/{name}" for name in result.tensors} <= set(arrays)
        for kind, maps in result.attention.items():
            assert np.array_equal(arrays[f"attention/{kind}"], maps.weights.values)
            layers = [name for name in result.tensors if name.endswith(".weights")]
            assert len(layers) == 6
        assert arrays["tensors/head"].shape == (1, len(result.target.ids), result.model.config["target_vocab_size"])
        weights = arrays["tensors/decoder.layers.1.cross_attention.weights"][0]
        assert np.array_equal(weights, arrays["attention/cross"][1])


@pytest.mark.parametrize("name", ["bart", "t5", "universal"])
def test_npz_has_every_call(name: str, tmp_path: Path) -> None:
    """A BART and a T5 embed both texts with one module; a Universal Transformer repeats one layer."""
    result = look(other_look_model(name), SENTENCE, beam=2, target="Ein Hund rennt.")
    with np.load(result.save(tmp_path / "trace.npz"), allow_pickle=False) as arrays:
        tensors = {key.removeprefix("tensors/"): arrays[key] for key in arrays if key.startswith("tensors/")}
    assert not {key.split("@")[0] for key in tensors if "@" in key} & set(tensors)
    if name == "universal":
        steps = result.model.n_encoder_layers, result.model.n_decoder_layers
        for side, n_steps in zip(("encoder", "decoder"), steps, strict=True):
            calls = sorted(key for key in tensors if key.startswith(f"{side}_layer.attention.weights"))
            assert n_steps > 1 and calls == [f"{side}_layer.attention.weights@{i}" for i in range(n_steps)]
            weights = np.stack([tensors[key][0] for key in calls])
            assert np.array_equal(weights, result.attention[side].weights.values)
    else:
        source, target = tensors["embedding@0"], tensors["embedding@1"]
        assert np.array_equal(tensors["embedding.table.input@0"][0], result.source.ids)
        assert np.array_equal(tensors["embedding.table.input@1"][0], result.target.input_ids)
        assert source.shape[1] == len(result.source.ids) != target.shape[1] == len(result.target.ids)


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_svg(result: Look, tmp_path: Path, kind: str) -> None:
    path = result.save(tmp_path / "picture.svg", kind=kind, layer=1, head=2)
    text = path.read_text(encoding="utf-8")
    label = ET.fromstring(text).attrib["aria-label"]
    assert "Layer 1 of 2, head 2 of 4" in label
    assert {"cross": "Cross", "encoder": "encoder", "decoder": "decoder"}[kind] in label
    weight = float(result.attention[kind].weights.values[0, 1, 1, 0])
    query = result.source.tokens[1] if kind == "encoder" else result.target.tokens[1]
    key = "&lt;s&gt;" if kind == "decoder" else result.source.tokens[0]
    assert f"{query} ← {key}: {weight:.4f}" in text
    assert ("produced target token t" in text) == (kind != "encoder")


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_png_and_pdf(result: Look, tmp_path: Path, suffix: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    paths = [result.save(tmp_path / f"{name}.{suffix}", layer=2) for name in ("one", "two")]
    assert paths[0].read_bytes().startswith(magic)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths  # nothing half-written is left


def test_missing_glyphs_are_a_warning(result: Look, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    strange = replace(result.source, tokens=("\uf8fe", *result.source.tokens[1:]))  # which no font has
    with pytest.warns(UserWarning, match="no installed font has all characters"):
        replace(result, source=strange).save(tmp_path / "picture.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result.save(tmp_path / "plain.png")


def test_html(result: Look, tmp_path: Path) -> None:
    if not (PAGE / "index.html").exists():
        pytest.skip("the page is not there yet")
    html = result.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"format":"heedful-trace"' in html and "</html>" in html


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("trace.txt", {}, "allowed: .html"),
        ("absent/trace.json", {}, "does not exist"),
        ("picture.svg", {"layer": 3}, "layers 1 to 2"),
        ("picture.svg", {"head": 5}, "heads 1 to 4"),
        ("picture.svg", {"kind": "crss"}, "did you mean 'cross'"),
    ],
)
def test_errors(result: Look, tmp_path: Path, name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        result.save(tmp_path / name, **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_page_of_a_small_model_and_20_words_stays_below_5_mb(tmp_path: Path) -> None:
    """The page as the command writes it, with the continuations of all pruned branches."""
    words = tokenizers()
    sizes = recipe_sizes("small") | {"d_ff": 64}  # a page has only the first numbers of each vector
    config = Seq2SeqConfig(words.source.vocab_size, words.target.vocab_size, **sizes)  # type: ignore[arg-type]
    model = fill(Seq2Seq(config), dtype=torch.float32)
    assert isinstance(model, Seq2Seq)
    text = " ".join(["The animal was too tired and a big man eats bread."] * 2)[:-1]
    assert len(text.split()) >= 20
    page = tmp_path / "page.html"
    command(text, model=save_model(tmp_path / "small", model, words), target=text, output=page)
    html = page.read_text(encoding="utf-8")
    assert html.count('"continuation":{') == BRANCHES
    assert page.stat().st_size < 5_000_000
