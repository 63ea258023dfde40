"""heedful's pre-norm Transformer equals Hugging Face's Pegasus: outputs and texts, in both directions."""

import io
import json
from pathlib import Path

import pytest
import sentencepiece
import torch

from deterministic import fill
from encoder_decoders import (
    ours_from,
    same_gradients,
    same_outputs,
    same_searches,
    same_searches_of_several,
    shuffled,
)
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.interop import export_huggingface, import_huggingface
from heedful.interop.huggingface.marian import PegasusType
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS, TokenizerConfig, Tokenizers, learn_tokenizers
from heedful.text.special_ids import SpecialIds

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

LINES = ["a dog runs over the street", "two men sit on a bench", "the animal was too tired", "Who goes there? Nobody!"]
SIZES = {
    "vocab_size": 60,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "scale_embedding": True,
    "activation_function": "relu",
    "dropout": 0.0,
}


def hugging_face(dtype: torch.dtype = torch.float32, seed: int = 7, **changes: object):
    """Return a Pegasus with large weights in its layers, which otherwise hardly change the residual stream."""
    config = transformers.PegasusConfig(**{**SIZES, **changes})
    theirs = shuffled(transformers.PegasusForConditionalGeneration(config), torch.float64, seed=seed)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if parameter.dim() == 2 and ".layers." in name:
                parameter *= 3.0
    return theirs.to(dtype)


# Theirs, read


CASES = {"public": {}, "gelu": {"activation_function": "gelu"}, "one layer": {"encoder_layers": 1, "decoder_layers": 1}}


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_outputs_are_equal(changes: dict, left: bool) -> None:
    theirs = hugging_face(**changes)
    ours = ours_from(theirs, "pegasus")
    assert ours.config.logits_bias and ours.config.residual == "pre"
    same_outputs(theirs, ours, atol=1e-5, left=left)


def in_double(theirs, ours: Seq2Seq):
    """Replace their sinusoids, which are rounded to float32, by exact ones."""
    for side, positions in (("encoder", ours.source_positions), ("decoder", ours.target_positions)):
        rows = getattr(theirs.model, side).embed_positions.weight
        with torch.no_grad():
            rows.copy_(positions(torch.zeros(1, len(rows), rows.size(1)).double(), torch.arange(len(rows)))[0])
    return theirs


def test_in_float64() -> None:
    theirs = hugging_face(torch.float64)
    ours = ours_from(theirs, "pegasus", torch.float64)
    same_outputs(in_double(theirs, ours), ours, atol=1e-10)


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_gradients_are_equal(dtype: torch.dtype, largest: float) -> None:
    theirs = hugging_face(dtype)
    ours = ours_from(theirs, "pegasus", dtype)
    same_gradients(in_double(theirs, ours) if dtype == torch.float64 else theirs, ours, "pegasus", atol=largest)


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
def test_generate_gives_equal_texts(tmp_path: Path) -> None:
    theirs = hugging_face()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours")).model
    assert ours.config.special_ids == SpecialIds(pad_id=0, bos_id=0, eos_id=1)
    same_searches(theirs, ours)
    same_searches_of_several(lambda seed: hugging_face(seed=seed), "pegasus")


@pytest.mark.filterwarnings("ignore:.*no tokenizer", "error:.*does not know these settings")
def test_settings_of_public_folders_are_read(tmp_path: Path) -> None:
    """In bfloat16 the stored sinusoids are rounded more than in float32."""
    theirs = hugging_face().bfloat16()
    theirs.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    more = {
        "normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": False, "num_hidden_layers": 2,
        "static_position_embeddings": True, "extra_pos_embeddings": 1, "add_bias_logits": False,
        "force_bos_token_to_be_generated": False, "classif_dropout": 0.0, "length_penalty": 0.6, "num_beams": 8,
    }  # fmt: skip
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    ours = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours")).model
    assert ours.config.n_decoder_layers == 3


REFUSED = {
    "tie_word_embeddings": False,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "scale_embedding": False,
    "activation_function": "tanh",
    "decoder_ffn_dim": 28,
    "architectures": ["PegasusForCausalLM"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_settings_are_refused_by_name(name: str) -> None:
    values = {**transformers.PegasusConfig(**SIZES).to_dict(), name: REFUSED[name]}
    with pytest.raises(UserError, match=name):
        PegasusType().config_from_hf(values, where="config.json")


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the first public ones: spiece.model, whose pieces have ids that are 103 higher in the model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 20), model_writer=model, vocab_size=40, minloglevel=2, model_type="unigram",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, hard_vocab_limit=False,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("pegasus") / "theirs"
    folder.mkdir()
    (folder / "spiece.model").write_bytes(model.getvalue())
    tokenizer = transformers.PegasusTokenizer.from_pretrained(folder)
    theirs = hugging_face(vocab_size=len(tokenizer), seed=3)
    theirs.final_logits_bias[0, 2:105] = -20.0  # it learned to write words, not marks
    theirs.save_pretrained(folder)
    return folder


TEXTS = [*LINES, "the  dog", "Zebra ☂ umbrella", "a"]


@pytest.mark.parametrize("beam", [1, 4])
def test_texts_equal_those_of_transformers(public: Path, beam: int, tmp_path: Path) -> None:
    ours, tokenizer = import_huggingface(public, tmp_path / "ours"), transformers.AutoTokenizer.from_pretrained(public)
    theirs = transformers.PegasusForConditionalGeneration.from_pretrained(public).eval()
    source = load_model(ours).tokenizers.source
    for text in TEXTS:
        assert [*source.encode(text), 1] == tokenizer(text)["input_ids"], text
    given = tokenizer(TEXTS, return_tensors="pt", padding=True)
    said = theirs.generate(
        given["input_ids"], attention_mask=given["attention_mask"], num_beams=beam, max_new_tokens=14,
        forced_eos_token_id=None,
    )  # fmt: skip
    wanted = tokenizer.batch_decode(said, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    found = Translator.load(ours, engine="torch").translate(TEXTS, beam=beam, max_len=14, stop="estimated")
    assert [text.strip() for text in found] == [text.strip() for text in wanted]
    assert len(set(found)) > 2


# Ours, written


@pytest.fixture(scope="module")
def joint() -> Tokenizers:
    return learn_tokenizers(LINES, LINES, TokenizerConfig(vocab_size=300))


def make(tokenizers: Tokenizers, **changes: object) -> Seq2Seq:
    size = tokenizers.source.vocab_size
    sizes = {"d_model": 16, "n_layers": 2, "n_decoder_layers": 1, "n_heads": 4, "d_ff": 20, "residual": "pre"}
    return fill(Seq2Seq(Seq2SeqConfig(size, size, **{**sizes, **changes})), dtype=torch.float32)


OWN = {
    "the recipes'": {},
    "positions in halves": {"positions": "sinusoidal_halves"},
    "swish": {"activation": "swish", "init": "gpt2"},
    "a bias on the logits": {"logits_bias": True, "max_len": 2000},
}


@pytest.mark.parametrize("changes", OWN.values(), ids=OWN)
def test_there_and_back_is_the_same_to_the_bit(changes: dict, joint: Tokenizers, tmp_path: Path) -> None:
    model = make(joint, **changes)
    exported = export_huggingface(save_model(tmp_path / "model", model, joint), tmp_path / "theirs")
    theirs, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(exported, output_loading_info=True)
    assert type(theirs).__name__ == "PegasusForConditionalGeneration"
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    theirs.eval().save_pretrained(tmp_path / "saved")
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    tokenizer.save_pretrained(tmp_path / "saved")
    for text in TEXTS:
        assert tokenizer(text)["input_ids"] == [*joint.source.encode(text), SPECIAL_IDS.eos_id], text
    for folder in (exported, tmp_path / "saved"):
        back = load_model(import_huggingface(folder, tmp_path / "back"))
        assert back.model.config == model.config
        assert all(torch.equal(weights_of(back.model)[name], tensor) for name, tensor in weights_of(model).items())
        assert back.tokenizers.source.fingerprint == joint.source.fingerprint
    same_searches(theirs, model, n_inputs=8)


@pytest.mark.parametrize("changes", OWN.values(), ids=OWN)
def test_without_heedfuls_own_settings_it_computes_the_same(changes: dict, joint: Tokenizers, tmp_path: Path) -> None:
    model = make(joint, **changes)
    exported = export_huggingface(save_model(tmp_path / "model", model, joint), tmp_path / "theirs")
    path = exported / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "heedful": None}))
    back = load_model(import_huggingface(exported, tmp_path / "back")).model
    assert back.config.positions == "sinusoidal_halves"
    theirs = transformers.PegasusForConditionalGeneration.from_pretrained(exported).eval()
    same_outputs(theirs, back, atol=1e-5)
    logits = [one.double().eval()(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7, 8]])) for one in (model, back)]
    assert torch.allclose(*logits, atol=1e-10, rtol=0)


NOT_THERE = {
    "norm": "rms",
    "positions": "rotary",
    "activation": "swiglu",
    "pattern": PatternConfig("window"),
    "join": "matching",
    "n_kv_heads": 2,
    "d_head": 8,
    "tied": "target",
    "init": "t5",
}


@pytest.mark.parametrize("name", NOT_THERE)
def test_settings_that_pegasus_lacks_are_refused_by_name(name: str, joint: Tokenizers, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make(joint, **{name: NOT_THERE[name]}), joint)
    with pytest.raises(UserError, match=rf"cannot be written .*: as marian: residual.*as pegasus: {name}"):
        export_huggingface(folder, tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_every_tensor_of_other_settings_has_a_row(joint: Tokenizers) -> None:
    for changes in OWN.values():
        model = make(joint, **changes)
        assert PegasusType().config_to_hf(model.config)
        assert {row.name for row in PegasusType().tensor_map(model.config)} == set(weights_of(model))
