"""heedful's Transformer equals Hugging Face's MarianMTModel: logits and translations, in both directions."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deterministic import fill, largest_difference, whole_numbers
from heedful.data import pad_sources
from heedful.errors import UserError
from heedful.interop import export_huggingface, import_huggingface
from heedful.interop.huggingface.marian import POSITION_TABLES, MarianType
from heedful.interop.huggingface.tensor_map import write_tensors
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS, TokenizerConfig, Tokenizers, learn_tokenizers

ENGLISH = ["a dog runs", "two men sit on a bench", "the animal didn't cross the street because it was too tired"]
GERMAN = ["ein Hund rennt", "zwei Männer sitzen auf einer Bank", "das Tier überquerte die Straße nicht"]
SIZES = {"d_model": 16, "n_layers": 2, "n_decoder_layers": 1, "n_heads": 4, "d_ff": 20}
LARGEST = 1e-5


@pytest.fixture(scope="module")
def joint() -> Tokenizers:
    return learn_tokenizers(ENGLISH, GERMAN, TokenizerConfig(vocab_size=300))


@pytest.fixture(scope="module")
def separate() -> Tokenizers:
    return learn_tokenizers(ENGLISH, GERMAN, TokenizerConfig(vocab_size=300, joint=False))


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")


def make(tokenizers: Tokenizers, **changes: object) -> Seq2Seq:
    sizes = (tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    return fill(Seq2Seq(Seq2SeqConfig(*sizes, **{**SIZES, **changes})), dtype=torch.float32)


def marian_weights(model: Seq2Seq) -> dict[str, Tensor]:
    return write_tensors(MarianType().tensor_map(model.config), weights_of(model))


def batch(model: Seq2Seq) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources of different lengths, their mask, and target prefixes."""
    config = model.config
    rows = [whole_numbers(n, below=config.source_vocab_size, first=4, name=f"s{n}").tolist() for n in (9, 1, 5, 0)]
    source, mask = pad_sources(rows, special_ids=SPECIAL_IDS)
    target = whole_numbers(4, 7, below=config.target_vocab_size, name="t")
    target[:, 0] = SPECIAL_IDS.bos_id
    return source, mask, target


@torch.inference_mode()
def logits_there(theirs, model: Seq2Seq) -> Tensor:
    source, mask, target = batch(model)
    return theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits


@torch.inference_mode()
def logits_here(model: Seq2Seq) -> Tensor:
    source, mask, target = batch(model)
    return model(source, target, mask)


CASES = {
    "the paper's": {},
    "positions in halves": {"positions": "sinusoidal_halves"},
    "target tied": {"tied": "target"},
    "nothing tied": {"tied": "none", "positions": "sinusoidal_halves"},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "swish": {"activation": "swish", "init": "gpt2"},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_logits_are_equal(changes: dict, joint: Tokenizers, tmp_path: Path, transformers) -> None:
    model = make(joint, **changes)
    exported = export_huggingface(save_model(tmp_path / "model", model, joint), tmp_path / "marian")
    theirs = transformers.MarianMTModel.from_pretrained(exported).eval()
    assert largest_difference(logits_there(theirs, model), logits_here(model)) < LARGEST


@pytest.mark.parametrize("tied", ["target", "none"])
def test_logits_are_equal_with_a_vocabulary_for_each_side(
    tied: str, separate: Tokenizers, tmp_path: Path, transformers
) -> None:
    model = make(separate, tied=tied)
    exported = export_huggingface(save_model(tmp_path / "model", model, separate), tmp_path / "marian")
    theirs = transformers.MarianMTModel.from_pretrained(exported).eval()
    assert largest_difference(logits_there(theirs, model), logits_here(model)) < LARGEST


@torch.inference_mode()
def greedy(model: Seq2Seq, source: Tensor, mask: Tensor, n_tokens: int) -> list[list[int]]:
    memory, written = model.encode(source, mask), torch.full((len(source), 1), SPECIAL_IDS.bos_id)
    for _ in range(n_tokens):
        newest = model.decode(written, memory)[:, -1].argmax(dim=-1)
        ended = (written == SPECIAL_IDS.eos_id).any(dim=1)
        written = torch.cat([written, newest.masked_fill(ended, SPECIAL_IDS.pad_id)[:, None]], dim=1)
    return [
        [n for n in row if n not in (SPECIAL_IDS.bos_id, SPECIAL_IDS.eos_id, SPECIAL_IDS.pad_id)]
        for row in written.tolist()
    ]


def test_greedy_search_gives_equal_texts(joint: Tokenizers, tmp_path: Path, transformers) -> None:
    model = make(joint)
    exported = export_huggingface(save_model(tmp_path / "model", model, joint), tmp_path / "marian")
    theirs = transformers.MarianMTModel.from_pretrained(exported).eval()
    assert theirs.config.forced_eos_token_id is None  # id 0 otherwise, which here is padding
    source, mask, _ = batch(model)
    found = theirs.generate(source, attention_mask=mask.long(), num_beams=1, max_new_tokens=20)
    assert set(found[:, 0].tolist()) == {SPECIAL_IDS.bos_id}
    special_ids = (SPECIAL_IDS.bos_id, SPECIAL_IDS.eos_id, SPECIAL_IDS.pad_id)
    rows = [[number for number in row if number not in special_ids] for row in found.tolist()]
    assert rows == greedy(model, source, mask, 20)
    assert any(rows)


TEXTS = ["a dog runs", "Über die Straße!", "  two   spaces ", "日本語 🐕", "", "a", "ein Hund, der rennt."]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
@pytest.mark.parametrize("both", [True, False], ids=["joint", "separate"])
def test_the_tokenizer_gives_the_same_ids_and_texts(both: bool, kind: str, tmp_path: Path, transformers) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=310, joint=both)
    tokenizers = learn_tokenizers(ENGLISH, GERMAN, config)
    tied = {} if both else {"tied": "target"}
    exported = export_huggingface(
        save_model(tmp_path / "model", make(tokenizers, **tied), tokenizers), tmp_path / "marian"
    )
    theirs = transformers.MarianTokenizer.from_pretrained(exported)
    special_ids = (theirs.pad_token_id, theirs.unk_token_id, theirs.bos_token_id, theirs.eos_token_id)
    assert special_ids == (SPECIAL_IDS.pad_id, SPECIAL_IDS.unk_id, SPECIAL_IDS.bos_id, SPECIAL_IDS.eos_id)
    for text in TEXTS:
        assert theirs(text)["input_ids"] == [*tokenizers.source.encode(text), SPECIAL_IDS.eos_id], text
        target = tokenizers.target.encode(text)
        assert theirs(text_target=text)["input_ids"] == [*target, SPECIAL_IDS.eos_id], text
        written = [SPECIAL_IDS.bos_id, *target, SPECIAL_IDS.eos_id, SPECIAL_IDS.pad_id]
        if text == text.strip():  # theirs strips what it decodes
            assert theirs.decode(written, skip_special_tokens=True) == tokenizers.target.decode(target)


def test_ids_of_known_words_are_equal(tmp_path: Path, transformers) -> None:
    tokenizers = learn_tokenizers(ENGLISH, GERMAN, TokenizerConfig(kind="word", vocab_size=60))
    exported = export_huggingface(save_model(tmp_path / "model", make(tokenizers), tokenizers), tmp_path / "marian")
    theirs = transformers.MarianTokenizer.from_pretrained(exported)
    for text in [*ENGLISH, *GERMAN, "a wolf runs"]:
        assert theirs(text)["input_ids"] == [*tokenizers.source.encode(text), SPECIAL_IDS.eos_id], text


REFUSED = {
    "residual": "none",
    "norm": "rms",
    "positions": "rotary",
    "activation": "swiglu",
    "pattern": PatternConfig("window"),
    "join": "matching",
    "n_kv_heads": 2,
    "d_head": 8,
    "init": "t5",
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_marian_lacks_are_refused_by_name(name: str, joint: Tokenizers, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make(joint, **{name: REFUSED[name]}), joint)
    with pytest.raises(UserError, match=rf"model: cannot be written for Hugging Face: as marian: {name}"):
        export_huggingface(folder, tmp_path / "marian")
    assert not (tmp_path / "marian").exists()


def test_every_tensor_of_other_settings_has_a_row(joint: Tokenizers, separate: Tokenizers) -> None:
    for changes in CASES.values():
        model = make(joint, **changes)
        assert MarianType().config_to_hf(model.config)
        assert {row.name for row in MarianType().tensor_map(model.config)} == set(weights_of(model))


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_there_and_back(changes: dict, joint: Tokenizers, tmp_path: Path) -> None:
    model = make(joint, **changes)
    exported = export_huggingface(save_model(tmp_path / "model", model, joint, card="# A card\n"), tmp_path / "marian")
    back = load_model(import_huggingface(exported, tmp_path / "back"))
    assert back.model.config == model.config
    for name, tensor in weights_of(model).items():
        assert torch.equal(weights_of(back.model)[name], tensor), name
    assert back.tokenizers.joint
    assert back.tokenizers.source.fingerprint == joint.source.fingerprint
    assert (tmp_path / "back" / "README.md").read_text() == "# A card\n"


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_without_heedfuls_own_settings_it_computes_the_same(changes: dict, joint: Tokenizers, tmp_path: Path) -> None:
    model = make(joint, **changes)
    exported = export_huggingface(save_model(tmp_path / "model", model, joint), tmp_path / "marian")
    changed(exported, "config.json", heedful=None)
    back = load_model(import_huggingface(exported, tmp_path / "back"))
    assert back.model.config.positions == "sinusoidal_halves"
    assert largest_difference(logits_here(back.model), logits_here(model)) < LARGEST
    again = marian_weights(back.model)
    for name, tensor in marian_weights(model).items():
        assert torch.equal(again[name], tensor), name


def test_a_folder_that_transformers_saved_again_is_read(joint: Tokenizers, tmp_path: Path, transformers) -> None:
    model = make(joint)
    exported = export_huggingface(save_model(tmp_path / "model", model, joint), tmp_path / "marian")
    theirs, saved = transformers.MarianMTModel.from_pretrained(exported), tmp_path / "saved"
    theirs.save_pretrained(saved)
    transformers.MarianTokenizer.from_pretrained(exported).save_pretrained(saved)
    back = load_model(import_huggingface(saved, tmp_path / "back")).model
    assert largest_difference(logits_here(back), logits_here(model)) < LARGEST


def changed(folder: Path, file: str, **values: object) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


HOSTILE = {
    "another family": ({"model_type": "mbart"}, "model_type"),
    "pre-norm": ({"normalize_before": True}, "normalize_before"),
    "marks outside": ({"decoder_start_token_id": 58100}, "58100"),
    "two ends": ({"eos_token_id": [3, 4]}, "eos_token_id"),
    "code of its own": ({"auto_map": {"AutoModel": "model.Evil"}}, "auto_map"),
    "unscaled": ({"scale_embedding": False}, "scale_embedding"),
    "an activation": ({"activation_function": "tanh"}, "activation_function"),
    "no number": ({"d_model": "16"}, "d_model"),
    "another size": ({"d_model": 32}, "asks for"),
    "a bad share": ({"dropout": 7}, r"config\.json: 'dropout'"),
    "no share": ({"dropout": "much"}, "dropout"),
    "two vocabularies": ({"decoder_vocab_size": 7}, "vocabular"),
    "an output of its own": ({"tie_word_embeddings": False}, "shared"),
    "unlike sides": ({"decoder_ffn_dim": 21}, "ffn_dim"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_folder_that_does_not_fit_is_refused(case: str, joint: Tokenizers, tmp_path: Path) -> None:
    exported = export_huggingface(save_model(tmp_path / "model", make(joint), joint), tmp_path / "marian")
    values, word = HOSTILE[case]
    changed(exported, "config.json", **values)
    with pytest.raises(UserError, match=word):
        import_huggingface(exported, tmp_path / "back")


@pytest.mark.parametrize("name", ["unheard.of", "lm_head.weight", *POSITION_TABLES])
def test_unknown_tensors_are_refused(name: str, joint: Tokenizers, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = make(joint)
    exported = export_huggingface(save_model(tmp_path / "model", model, joint), tmp_path / "marian")
    weights = marian_weights(model)
    shapes = {"lm_head.weight": tuple(weights["model.shared.weight"].shape)}
    weights[name] = torch.ones(shapes.get(name, (50, SIZES["d_model"])))
    save_file(weights, exported / "model.safetensors")
    with pytest.raises(UserError, match=name):
        import_huggingface(exported, tmp_path / "back")


def test_a_model_without_tokenizer_takes_ids(joint: Tokenizers, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make(joint), None)
    with pytest.warns(UserWarning, match="no tokenizer"):
        exported = export_huggingface(folder, tmp_path / "marian")
    with pytest.warns(UserWarning, match="ids"):
        back = load_model(import_huggingface(exported, tmp_path / "back"))
    assert back.tokenizers is None


def test_own_models_go_there_and_back_without_packages_of_hugging_face(joint: Tokenizers, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make(joint), joint)
    program = f"""
import sys
sys.modules["transformers"] = sys.modules["tokenizers"] = sys.modules["huggingface_hub"] = None
from heedful.interop import export_huggingface, import_huggingface
import_huggingface(export_huggingface({str(folder)!r}, {str(tmp_path / "marian")!r}), {str(tmp_path / "back")!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_folder_that_heedful_did_not_write_is_not_overwritten(joint: Tokenizers, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make(joint), joint)
    (tmp_path / "marian").mkdir()
    (tmp_path / "marian" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not a folder that heedful wrote"):
        export_huggingface(folder, tmp_path / "marian")
    assert (tmp_path / "marian" / "thesis.txt").exists()
    shutil.rmtree(tmp_path / "marian")
    export_huggingface(folder, tmp_path / "marian")
