"""A look at a BERT or a ViT: its attention, its answers, and attention over an image."""

import base64
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_models import bert_folder, own_tokenizers, picture, vit_folder
from heedful import UserError, load_model
from heedful.cli.main import run
from heedful.decoding.classifier import Classifier
from heedful.decoding.encoder_inputs import image_tensor
from heedful.decoding.fill_mask import FillMask
from heedful.insight.look_encoder import look_at_encoder
from heedful.insight.packed_arrays import unpack
from trace_checks import check_trace

pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: heedful[images]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place, tokenizers = tmp_path_factory.mktemp("looked at"), own_tokenizers()
    bert_folder(place / "bert", tokenizers)
    bert_folder(place / "mood", tokenizers, head="classify", labels=("bad", "good"))
    bert_folder(place / "tags", tokenizers, head="tag", labels=("O", "B"))
    vit_folder(place / "vit")
    picture(place / "photo.png", size=30)
    return place


@pytest.mark.parametrize("model", ["bert", "mood", "tags"])
def test_a_lone_surrogate_is_an_error(model: str, folder: Path) -> None:
    """A command line that is not UTF-8 contains one, and a terminal cannot print it."""
    with pytest.raises(UserError, match=r"character 3 is U\+DCFF"):
        look_at_encoder(folder / model, "a \udcff")


def test_weights_equal_those_of_the_model(folder: Path) -> None:
    result = look_at_encoder(folder / "bert", "a [MASK] runs")
    assert result.weights.shape == (2, 4, len(result.tokens), len(result.tokens))
    assert torch.allclose(result.weights.sum(dim=-1), torch.ones(1), atol=1e-5)
    loaded = load_model(folder / "bert")
    model, ids = loaded.model, [loaded.tokenizers.source.id_of(token) for token in result.tokens]
    x = model.norm(
        model.positions(model.embedding(torch.tensor([ids])) + model.segments.weight[0], torch.arange(len(ids)))
    )
    attention = model.encoder.layers[0].attention
    q, k = (part(x)[0].reshape(len(ids), 4, 4).transpose(0, 1) for part in (attention.to_q, attention.to_k))
    assert torch.allclose(result.weights[0], (q @ k.transpose(1, 2) / 2).softmax(dim=-1).detach(), atol=1e-5)


def test_the_answers_are_the_models_own(folder: Path) -> None:
    assert [list(place) for place in look_at_encoder(folder / "bert", "a [MASK] runs").answer] == FillMask.load(
        folder / "bert"
    ).fill("a [MASK] runs")
    assert look_at_encoder(folder / "bert", "a dog runs").answer == ()
    labels = Classifier.load(folder / "mood").classify(["a dog"])[0]
    assert list(look_at_encoder(folder / "mood", "a dog").answer) == labels
    text = "a  unseenword dog"
    tags = Classifier.load(folder / "tags").label_words([text])[0]
    result = look_at_encoder(folder / "tags", text)
    assert list(result.answer) == tags
    firsts = [spans[0] for spans in result.source.words if result.tokens[spans[0]].startswith("▁")]
    assert [one["place"] for one in result.to_values()["answer"]] == [one.position for one in tags] == firsts


def test_attention_over_an_image(folder: Path) -> None:
    result = look_at_encoder(folder / "vit", str(folder / "photo.png"))
    assert result.tokens[:3] == ("class", "1,1", "1,2") and len(result.tokens) == 10
    assert torch.equal(result.over_image(1, 2), result.weights[0, 1, 0, 1:].reshape(3, 3))
    assert torch.allclose(result.over_image(), result.weights[-1].mean(dim=0)[0, 1:].reshape(3, 3))
    assert result.pixels.shape == (3, 12, 12)
    model = Classifier.load(folder / "vit").model
    assert torch.isfinite(model(image_tensor(model, [folder / "photo.png"]))).all()


def test_rollout(folder: Path) -> None:
    result = look_at_encoder(folder / "vit", str(folder / "photo.png"))
    mixed = [0.5 * layer.mean(dim=0) + 0.5 * torch.eye(10) for layer in result.weights]
    expected = (mixed[1] @ mixed[0])[0]
    assert torch.allclose(result.rollout().flatten(), expected[1:], atol=1e-6)
    assert float(expected.sum()) == pytest.approx(1, abs=1e-5)


def test_the_svg_of_an_image_contains_the_image_and_every_weight(folder: Path, tmp_path: Path) -> None:
    result = look_at_encoder(folder / "vit", str(folder / "photo.png"))
    text = result.save(tmp_path / "a.svg", layer=1, head=2).read_text()
    tree = ElementTree.fromstring(text)
    names = [element.tag.rsplit("}", 1)[1] for element in tree.iter()]
    assert names.count("image") == 1 and names.count("use") == 3 + 4 + 2
    [url] = [element.get("href") for element in tree.iter() if element.tag.endswith("}image")]
    stored = np.asarray(pillow.open(io.BytesIO(base64.b64decode(url.split(",")[1]))))
    assert np.array_equal(stored.transpose(2, 0, 1), result.pixels)
    titles = [element.text for element in tree.iter() if element.tag.endswith("}title")]
    assert f"row 2, column 3: {float(result.over_image(1, 2)[1, 2]):.4f}" in titles


def test_the_png_of_an_image_is_brightest_where_the_attention_is(folder: Path, tmp_path: Path) -> None:
    result = look_at_encoder(folder / "vit", str(folder / "photo.png"))
    page = np.asarray(pillow.open(result.save(tmp_path / "a.png"))).astype(float)
    over = page[14 : 14 + 280, 280 + 28 : 280 + 28 + 280]
    yellow = over[..., 0] - over[..., 2]
    patches = np.array(
        [[yellow[y * 93 : y * 93 + 93, x * 93 : x * 93 + 93].mean() for x in range(3)] for y in range(3)]
    )
    assert np.argmax(patches) == int(result.over_image().argmax())


def test_json_and_npz_files(folder: Path, tmp_path: Path) -> None:
    result = look_at_encoder(folder / "mood", "a dog runs")
    values = json.loads(result.save(tmp_path / "a.json").read_text())
    check_trace(values)
    assert values["source"]["tokens"] == list(result.tokens)
    assert np.allclose(unpack(values["attention"]["encoder"]["weights"]), result.weights.numpy(), atol=1e-4)
    [answer] = values["answer"]
    assert [one["token"] for one in answer["top"]] == [one.label for one in result.answer]
    with np.load(result.save(tmp_path / "a.npz"), allow_pickle=False) as arrays:
        assert np.array_equal(arrays["attention/encoder"], result.weights.numpy())
    assert "<svg" in result.save(tmp_path / "a.svg").read_text()


def test_answers_in_the_trace_file(folder: Path) -> None:
    hidden = look_at_encoder(folder / "bert", "a [MASK] runs")
    [answer] = hidden.to_values()["answer"]
    assert hidden.tokens[answer["place"]] == "<mask>"
    assert [one["token"] for one in answer["top"]] == [one.token_text for one in hidden.answer[0]]
    tags = look_at_encoder(folder / "tags", "a dog runs")
    places = [(tags.tokens[one["place"]], one["top"][0]["token"]) for one in tags.to_values()["answer"]]
    assert places == [
        (f"▁{one.word}"[: len(token)], one.label) for one, (token, _) in zip(tags.answer, places, strict=True)
    ]
    for result in (hidden, tags, look_at_encoder(folder / "vit", str(folder / "photo.png"))):
        check_trace(json.loads(result.to_json()))


@torch.no_grad()
def test_the_walk_leads_from_the_text_to_the_last_vectors(folder: Path) -> None:
    for name, text_or_image in (("bert", "a [MASK] runs"), ("vit", str(folder / "photo.png"))):
        result = look_at_encoder(folder / name, text_or_image)
        stack = result.walk.encoder
        assert result.walk.decoder is None
        if name == "bert":
            total = stack.start.scaled.first.values + stack.start.position.first.values
            assert np.abs(total - stack.start.input.first.values).max() < 1e-5
        enters = stack.start.norm or stack.start.input
        assert np.array_equal(enters.first.values, stack.layers[0]["input"].first.values)
        out = stack.layers[0][stack.steps[-1]]
        assert np.array_equal(out.first.values, stack.layers[1]["input"].first.values)


def test_the_command(folder: Path, tmp_path: Path, capsys) -> None:
    assert run(["look", "a [MASK] runs", "-m", str(folder / "bert"), "--layer", "1", "--head", "2"]) == 0
    out = capsys.readouterr().out
    assert "[MASK] 1" in out and "Layer 1 of 2, head 2 of 4" in out and "→" in out
    arguments = ["look", str(folder / "photo.png"), "-m", str(folder / "vit")]
    assert run([*arguments, "--output", str(tmp_path / "over.svg")]) == 0
    assert "over.svg" in capsys.readouterr().out
    assert run(arguments) == 0
    assert "the class token attends to" in capsys.readouterr().out
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["family"] == "vit"


MISTAKES = {
    "too long": ("bert", "a dog " * 60, [], "give one sentence"),
    "no layer": ("bert", "a dog", ["--layer", "9"], "layers 1 to 2"),
    "no such kind": ("bert", "a dog", ["--output", "a.doc"], ".svg"),
    "no image": ("vit", "nowhere.png", [], "nowhere.png"),
    "no print": ("vit", "photo.png", ["--output", "a.pdf"], ".svg or .png"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_messages_for_wrong_options(case: str, folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    model, text_or_image, more, words = MISTAKES[case]
    assert run(["look", text_or_image, "-m", model, *more]) == 1
    assert words in capsys.readouterr().err


def test_another_family_is_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(UserError, match="neither a model folder"):
        look_at_encoder(tmp_path / "x", "a")
