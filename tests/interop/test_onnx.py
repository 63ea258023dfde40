"""ONNX Runtime computes what torch computes, for other lengths and batch sizes than in the export."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from deterministic import fill, numbers, whole_numbers
from heedful.data import pad_sources
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError
from heedful.interop.onnx import export_onnx, names_of, why_not
from heedful.models.bart import Bart, BartConfig
from heedful.models.bert import Bert, BertConfig
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from heedful.models.t5 import T5, T5Config
from heedful.models.universal import UniversalConfig
from heedful.models.vit import Vit, VitConfig
from heedful.text.special_ids import SpecialIds

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: heedful[onnx]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: heedful[onnx]")

SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 20}
VOCAB = 40
WRITERS = {
    "seq2seq": lambda: Seq2Seq(Seq2SeqConfig(VOCAB, VOCAB, **SIZES, logits_bias=True)),
    "t5": lambda: T5(T5Config(VOCAB, **SIZES, d_head=6, n_decoder_layers=2)),
    "bart": lambda: Bart(
        BartConfig(
            VOCAB,
            **SIZES,
            max_len=24,
            special_ids=SpecialIds(pad_id=1, bos_id=0, eos_id=2, decoder_start_id=2, source_bos=True, force_bos=True),
        )
    ),
}


def exported(model: nn.Module, tmp_path: Path) -> Path:
    return export_onnx(save_model(tmp_path / "model", model, None), tmp_path / "onnx")


def session(path: Path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def greedy(folder: Path, model: nn.Module, sources: list[list[int]], limit: int) -> list[list[int]]:
    """Search greedily with ONNX Runtime alone, as another program would."""
    special_ids, first = model.config.special_ids, model.decoder.layers[0].attention
    encoder, decoder = session(folder / "encoder.onnx"), session(folder / "decoder.onnx")
    source, mask = (
        x.numpy() for x in pad_sources([special_ids.with_source_bos(ids) for ids in sources], special_ids=special_ids)
    )
    memory_names = names_of("memory_", len(model.decoder.layers))
    memory = dict(zip(memory_names, encoder.run(memory_names, {"source": source, "source_mask": mask}), strict=True))
    past_names, kept_names = (names_of(prefix, len(model.decoder.layers)) for prefix in ("past_", ""))
    past = {name: np.zeros((len(sources), first.n_kv_heads, 0, first.d_head), np.float32) for name in past_names}
    written: list[list[int]] = [[] for _ in sources]
    tokens, running = np.full((len(sources), 1), special_ids.start_id), np.ones(len(sources), bool)
    for step in range(limit + special_ids.n_forced):
        feeds = {"tokens": tokens, "source_mask": mask, **memory, **past}
        logits, *kept = decoder.run(["logits", *kept_names], feeds)
        past = dict(zip(past_names, kept, strict=True))
        tokens = logits.argmax(axis=1, keepdims=True)
        if step < special_ids.n_forced:
            tokens = np.full_like(tokens, special_ids.bos_id)
            continue
        running &= tokens[:, 0] != special_ids.eos_id
        for row in np.flatnonzero(running):
            written[row].append(int(tokens[row, 0]))
    return written


@pytest.mark.parametrize("family", WRITERS)
def test_an_encoder_decoder_generates_the_ids_of_torch(family: str, tmp_path: Path) -> None:
    model = fill(WRITERS[family](), dtype=torch.float32)
    folder = exported(model, tmp_path)
    assert json.loads((folder / "config.json").read_text())["family"] == family
    sources = [whole_numbers(n, below=VOCAB, first=4, name=f"s{n}").tolist() for n in (1, 7, 3, 12, 5)]
    found = TorchEngine(model, lanes=1).search([Request(ids) for ids in sources], SearchSettings(beam=1, max_len=9))
    assert greedy(folder, model, sources, 9) == [best[0].ids for best in found]


def test_logits_of_a_language_model_equal_those_of_torch(tmp_path: Path) -> None:
    model = fill(Gpt(GptConfig(VOCAB, **SIZES, max_len=30)), dtype=torch.float32)
    ids = whole_numbers(3, 9, below=VOCAB, name="ids")
    [logits] = session(exported(model, tmp_path) / "model.onnx").run(["logits"], {"ids": ids.numpy()})
    with torch.no_grad():
        assert np.abs(logits - model(ids).numpy()).max() < 1e-4


def test_logits_of_an_encoder_equal_those_of_torch(tmp_path: Path) -> None:
    model = fill(Bert(BertConfig(VOCAB, **SIZES, max_len=30)), dtype=torch.float32)
    ids, mask = whole_numbers(3, 9, below=VOCAB, name="ids"), torch.arange(9) < torch.tensor([[9], [2], [5]])
    feeds = {"ids": ids.numpy(), "mask": mask.numpy()}
    [logits] = session(exported(model, tmp_path) / "model.onnx").run(["logits"], feeds)
    with torch.no_grad():
        assert np.abs(logits - model(ids, mask).numpy())[mask.numpy()].max() < 1e-4


def test_logits_of_an_image_model_equal_those_of_torch(tmp_path: Path) -> None:
    config = VitConfig(image_size=8, patch_size=4, n_channels=3, **SIZES, labels=("a", "b", "c"))
    model = fill(Vit(config), dtype=torch.float32)
    pixels = numbers(5, 3, 8, 8, dtype=torch.float32)
    [logits] = session(exported(model, tmp_path) / "model.onnx").run(["logits"], {"pixels": pixels.numpy()})
    with torch.no_grad():
        assert np.abs(logits - model(pixels).numpy()).max() < 1e-4


def test_models_that_are_no_graph_are_refused_by_name(tmp_path: Path) -> None:
    assert "universal" in why_not("universal", UniversalConfig(9, 9))
    assert "batch" in why_not("seq2seq", Seq2SeqConfig(9, 9, norm="batch"))
    config = Seq2SeqConfig(VOCAB, VOCAB, **SIZES, pattern=PatternConfig("window"))
    folder = save_model(tmp_path / "model", fill(Seq2Seq(config), dtype=torch.float32), None)
    with pytest.raises(UserError, match="'window'"):
        export_onnx(folder, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
