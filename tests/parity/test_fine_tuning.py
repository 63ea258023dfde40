"""A converted checkpoint can be trained further; its special ids and its tokenizer stay."""

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from encoder_folders import folder_of
from heedful import train
from heedful.data import Loader
from heedful.interop import import_huggingface
from heedful.models.model_io import load_model
from heedful.training import Files
from heedful.training.resolve_settings import resolve_settings
from heedful.training.tasks.base import Preparation
from heedful.training.tasks.registry import task_of

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")
from tokenizers import ByteLevelBPETokenizer  # noqa: E402

QUICK = [
    "data.max_len=32", "data.hold_out=8", "run.steps=2", "run.validate_every=2", "run.save_every=2", "run.average=1",
    "run.threads=1", "run.device=cpu", "run.validation_sentences=2",
]  # fmt: skip
TEXTS = [
    "A dog runs through the snow.",
    "Two men sit on the beach!",
    "The cat is asleep",
    "A woman sees a big red ball",
]


def labelled(folder: Path) -> Path:
    draw, path = random.Random(0), folder / "labels.tsv"
    texts = [f"{draw.choice(TEXTS)} {number}" for number in range(80)]
    path.write_text("".join(f"{text}\t{'dog' if 'dog' in text else 'none'}\n" for text in texts), encoding="utf-8")
    return path


def test_bert_with_its_word_pieces_learns_labels(tmp_path: Path) -> None:
    there = folder_of(transformers.BertForMaskedLM, tmp_path)
    ours = import_huggingface(there, tmp_path / "ours")
    settings = [*QUICK, "data.batch_tokens=8", "optimiser.lr=1e-12"]
    train(folder=tmp_path / "run", labels=labelled(tmp_path), init_from=ours, overrides=settings)
    before, after = load_model(ours), load_model(tmp_path / "run" / "last")
    assert before.tokenizers is not None and after.tokenizers is not None
    assert before.tokenizers.source.fingerprint == after.tokenizers.source.fingerprint
    assert " pieces (`wordpiece`)\n" in (tmp_path / "run" / "last" / "README.md").read_text(encoding="utf-8")
    assert after.model.config.special_ids == before.model.config.special_ids
    a, b = (load_file(path / "model.safetensors") for path in (ours, tmp_path / "run" / "last"))
    body = [name for name in b if not name.startswith("head.")]
    assert body and all(torch.allclose(a[name], b[name], atol=1e-6) for name in body)


def bart_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    tokenizer = ByteLevelBPETokenizer()
    special_ids = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(TEXTS * 20, vocab_size=320, special_tokens=special_ids)
    tokenizer.save_model(str(folder))
    config = transformers.BartConfig(
        vocab_size=320, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BartForConditionalGeneration(config).save_pretrained(folder)
    transformers.BartTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


def test_bart_is_trained_with_its_own_special_ids(tmp_path: Path) -> None:
    """Sources are <s> ids </s>, targets </s> <s> ids </s>, as in BART's own training."""
    ours = import_huggingface(bart_folder(tmp_path / "theirs"), tmp_path / "ours")
    special_ids = load_model(ours).model.config.special_ids
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{text} {i}\t{text[::-1]} {i}\n" for i in range(30) for text in TEXTS), encoding="utf-8")
    files = Files.of(path, (), None, None, ours)
    settings = resolve_settings(files, None, None, [*QUICK, "data.batch_tokens=128", "data.max_doubtful=1.0"]).settings
    task = task_of(settings)
    task.prepare(Preparation(tmp_path / "run", files, settings, load_model(ours).tokenizers, lambda text: None))
    prepared_task = task.assemble(task.reopen(tmp_path / "run", settings), settings)
    batch = next(Loader(prepared_task.make_dataset(False), batch_tokens=128, max_len=64, seed=1))
    row = batch.source[0, batch.source_mask[0]].tolist()  # type: ignore[attr-defined]
    assert (row[0], row[-1]) == (special_ids.bos_id, special_ids.eos_id) == (0, 2)
    row = batch.target_in[0, batch.target_mask[0]].tolist()  # type: ignore[attr-defined]
    assert row[:2] == [special_ids.start_id, special_ids.bos_id] == [2, 0]
    padding = batch.target_in[~batch.target_mask]  # type: ignore[attr-defined]
    assert set(padding.tolist()) <= {special_ids.pad_id}
    train(folder=tmp_path / "trained", source=path, init_from=ours, overrides=[*QUICK, "data.max_doubtful=1.0"])
    assert load_model(tmp_path / "trained" / "last").model.config.special_ids == special_ids


@pytest.mark.parametrize("head", ["ViTModel", "ViTForImageClassification"])
def test_vit_learns_labels_of_its_own_size(head: str, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: heedful[images]")
    config = transformers.ViTConfig(
        image_size=12, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20
    )
    getattr(transformers, head)(config).save_pretrained(tmp_path / "theirs")
    ours = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    for label in ("cat", "dog", "fox"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(6):
            pillow.new("RGB", (10 + number, 15), (40 * number, 99, 9)).save(
                tmp_path / "photos" / label / f"{number}.png"
            )
    settings = [*QUICK, "data.batch_tokens=4", "optimiser.lr=1e-12"]
    train(folder=tmp_path / "run", images=tmp_path / "photos", init_from=ours, overrides=settings)
    assert load_model(tmp_path / "run" / "last").model.config.labels == ("cat", "dog", "fox")
    a, b = (load_file(path / "model.safetensors") for path in (ours, tmp_path / "run" / "last"))
    body = [name for name in b if not name.startswith("head.")]
    assert body and all(torch.allclose(a[name], b[name], atol=1e-6) for name in body)
