"""Models numbered as the public OPUS-MT ones are: end 0, padding last, which also starts the decoder; a bias on the
logits; SentencePiece models whose ids are given by a list of their own. No network is here, so the weights are random.
"""

import io
import json
from pathlib import Path

import pytest
import sentencepiece
import torch

from encoder_decoders import (
    EXACT,
    ours_from,
    same_gradients,
    same_outputs,
    same_searches,
    same_searches_of_several,
    shuffled,
)
from heedful.decoding.translator import Translator
from heedful.interop import export_huggingface, import_huggingface
from heedful.models.model_io import load_model, weights_of
from heedful.text.special_ids import SpecialIds

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

ENGLISH = [
    "a dog runs over the street",
    "two men sit on a bench",
    "the animal was too tired to cross",
    "who goes there?",
]
GERMAN = ["ein Hund rennt über die Straße", "zwei Männer sitzen auf einer Bank", "das Tier war zu müde", "wer da?"]
SIZES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "scale_embedding": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "activation_function": "swish",
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "dropout": 0.0,
}


def hugging_face(vocab_size: int = 60, dtype: torch.dtype = torch.float32, seed: int = 7, **changes: object):
    pad = vocab_size - 1
    marks = {"pad_token_id": pad, "decoder_start_token_id": pad, "vocab_size": vocab_size}
    config = transformers.MarianConfig(**{**SIZES, **marks, **changes})
    theirs = shuffled(transformers.MarianMTModel(config), dtype, seed=seed)
    theirs.generation_config.bad_words_ids = [[pad]]
    return theirs


CASES = {
    "opus-mt": {},
    "relu": {"activation_function": "relu"},
    "a vocabulary for each side": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60},
}


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_outputs_are_equal(changes: dict, left: bool) -> None:
    theirs = hugging_face(**changes)
    ours = ours_from(theirs, "marian")
    assert ours.config.logits_bias
    same_outputs(theirs, ours, atol=1e-5, left=left)


def test_gradients_are_equal() -> None:
    theirs = hugging_face()
    same_gradients(theirs, ours_from(theirs, "marian"), "marian", atol=1e-5)


def test_in_float64() -> None:
    """Hugging Face's sinusoids are rounded to float32, heedful's are not."""
    theirs = hugging_face(dtype=torch.float64)
    same_outputs(theirs, ours_from(theirs, "marian", torch.float64), atol=1e-6)
    assert EXACT[torch.float64] < 1e-6


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
def test_generate_gives_equal_texts(tmp_path: Path) -> None:
    theirs = hugging_face()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours")).model
    assert ours.config.special_ids == SpecialIds(pad_id=59, unk_id=0, bos_id=59, eos_id=0, forbidden_ids=(59,))
    same_searches(theirs, ours)
    same_searches_of_several(lambda seed: hugging_face(seed=seed), "marian")


@pytest.mark.filterwarnings("error:.*does not know these settings")
def test_the_unused_position_setting_of_old_folders_is_ignored(opus: Path, tmp_path: Path) -> None:
    """No code of `transformers` reads `extra_pos_embeddings`."""
    path = opus / "config.json"
    values = json.loads(path.read_text())
    wanted = load_model(import_huggingface(opus, tmp_path / "plain")).model
    path.write_text(json.dumps({**values, "extra_pos_embeddings": values["vocab_size"], "_num_labels": 3}))
    found = load_model(import_huggingface(opus, tmp_path / "old")).model
    path.write_text(json.dumps(values))
    assert found.config == wanted.config
    same_outputs(transformers.MarianMTModel.from_pretrained(opus).eval(), found, atol=1e-5)


def learned(lines: list[str], size: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 20), model_writer=model, vocab_size=size, model_type="unigram", minloglevel=2
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as on the hub: source.spm, target.spm, vocab.json, the weights."""
    folder = tmp_path_factory.mktemp("opus") / "opus-mt-en-de"
    folder.mkdir()
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for name, lines in (("source.spm", ENGLISH), ("target.spm", GERMAN)):
        model = learned(lines, 32)
        (folder / name).write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        for number in range(processor.vocab_size()):
            piece = processor.id_to_piece(number)
            if piece not in ("<s>", "</s>", "<unk>"):
                pieces.setdefault(piece, len(pieces))
    pieces["<pad>"] = len(pieces)
    (folder / "vocab.json").write_text(json.dumps(pieces))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"})
    )
    hugging_face(len(pieces)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_equal_those_of_transformers(opus: Path, beam: int, tmp_path: Path) -> None:
    tokenizer = transformers.MarianTokenizer.from_pretrained(opus)
    theirs = transformers.MarianMTModel.from_pretrained(opus).eval()
    ours = Translator.load(import_huggingface(opus, tmp_path / "ours"), engine="torch")
    texts = [*ENGLISH, "a tired bench", "Zebra! ☂", "the  dog"]
    given = tokenizer(texts, return_tensors="pt", padding=True)
    said = theirs.generate(**given, num_beams=beam, max_new_tokens=14, forced_eos_token_id=None)
    wanted = tokenizer.batch_decode(said, skip_special_tokens=True)
    found = ours.translate(texts, beam=beam, max_len=14, stop="estimated")
    assert [text.strip() for text in found] == [text.strip() for text in wanted]
    assert len(set(found)) > 1


def test_ctranslate2_gives_equal_translations(opus: Path, tmp_path: Path) -> None:
    folder = import_huggingface(opus, tmp_path / "ours")
    slow, fast = Translator.load(folder, engine="torch"), Translator.load(folder, engine="auto")
    for beam in (1, 3):  # a beam goes to torch: of ids that are never written CTranslate2 keeps no probability
        options = {"beam": beam, "max_len": 14}
        assert fast.translate(ENGLISH, **options) == slow.translate(ENGLISH, **options)


def test_there_and_back(opus: Path, tmp_path: Path) -> None:
    first = load_model(import_huggingface(opus, tmp_path / "first"))
    exported = export_huggingface(tmp_path / "first", tmp_path / "theirs")
    again = load_model(import_huggingface(exported, tmp_path / "again"))
    assert again.model.config == first.model.config
    for name, tensor in weights_of(first.model).items():
        assert torch.equal(weights_of(again.model)[name], tensor), name
    assert again.tokenizers.source.fingerprint == first.tokenizers.source.fingerprint
    tokenizer = transformers.MarianTokenizer.from_pretrained(exported)
    for text in ENGLISH:
        assert tokenizer(text)["input_ids"] == [*first.tokenizers.source.encode(text), 0]
    theirs = transformers.MarianMTModel.from_pretrained(exported).eval()
    same_outputs(theirs, first.model, atol=1e-5)
