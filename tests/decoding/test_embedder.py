"""Vectors are pooled from the hidden states of the model, in the order of the inputs."""

from pathlib import Path

import pytest
import torch

from deterministic import fill
from encoder_models import SIZES, bert_folder, own_tokenizers, picture, vit_folder
from heedful import UserError
from heedful.data import pad_sources
from heedful.decoding.embedder import Embedder
from heedful.decoding.encoder_inputs import image_tensor
from heedful.decoding.generator import Generator
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS
from heedful.text.special_ids import SpecialIds

TEXTS = ["a dog runs", "", "two dogs run on the beach, and a man looks at them", "a cat"]


@pytest.fixture(scope="module")
def tokenizers():
    return own_tokenizers()


def test_vectors_of_a_bert(tokenizers, tmp_path: Path) -> None:
    embedder = Embedder.load(bert_folder(tmp_path / "model", tokenizers, head="pool"))
    token_vectors = [vectors for _, vectors in embedder.embed_tokens(TEXTS)]
    for text, (pieces, vectors) in zip(TEXTS, embedder.embed_tokens(TEXTS), strict=True):
        assert len(pieces) == len(vectors) == len(tokenizers.source.encode(text)) + 2
    assert torch.allclose(
        embedder.embed(TEXTS), torch.stack([vectors.mean(dim=0) for vectors in token_vectors]), atol=1e-6
    )
    assert torch.allclose(
        embedder.embed(TEXTS, pool="class"), torch.stack([vectors[0] for vectors in token_vectors]), atol=1e-6
    )
    pooled = torch.stack([embedder.model.head(vectors[None])[0] for vectors in token_vectors])
    assert torch.allclose(embedder.embed(TEXTS, pool="pooler"), pooled, atol=1e-6)


def test_vectors_of_an_image(tmp_path: Path) -> None:
    embedder = Embedder.load(vit_folder(tmp_path / "vit"))
    files = [picture(tmp_path / f"{n}.png", seed=n) for n in range(2)]
    states = embedder.model.hidden_states(image_tensor(embedder.model, files))
    assert torch.allclose(embedder.embed(files, pool="class"), states[:, 0])
    assert torch.allclose(embedder.embed(files), states.mean(dim=1))
    with pytest.raises(UserError, match="no pooler"):
        embedder.embed(files, pool="pooler")


def test_vectors_of_an_encoder_decoder(tokenizers, tmp_path: Path) -> None:
    size = tokenizers.source.vocab_size
    config = Seq2SeqConfig(size, size, d_model=16, n_layers=1, n_heads=2, d_ff=20)
    model = fill(Seq2Seq(config), dtype=torch.float32)
    embedder = Embedder.load(save_model(tmp_path / "model", model, tokenizers))
    source, mask = pad_sources([tokenizers.source.encode("a dog runs")], special_ids=SPECIAL_IDS)
    expected = model.encode(source, mask).states[-1].mean(dim=1)
    assert torch.allclose(embedder.embed(["a dog runs"]), expected, atol=1e-6)
    with pytest.raises(UserError, match="no class token"):
        embedder.embed(["a"], pool="class")


@pytest.mark.parametrize("end_id", [2, 3])
def test_vectors_of_a_gpt_are_those_of_its_prompt(end_id: int, tokenizers, tmp_path: Path) -> None:
    """A prompt begins with BOS, unless the model has one token for the start and the end of a text, as in GPT-2."""
    config = GptConfig(tokenizers.source.vocab_size, **SIZES, special_ids=SpecialIds(bos_id=2, eos_id=end_id))
    model = fill(Gpt(config), dtype=torch.float32)
    folder = save_model(tmp_path / "model", model, tokenizers)
    texts = ["a dog runs", ""]
    vectors = Embedder.load(folder).embed(texts)
    generator = Generator(model, tokenizers.source)
    for text, vector in zip(texts, vectors, strict=True):
        expected = model.hidden_states(torch.tensor([generator.prompt_ids(text)])).mean(dim=1)[0]
        assert torch.allclose(vector, expected, atol=1e-6)
