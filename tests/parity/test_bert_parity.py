"""heedful's BERT equals Hugging Face's: logits, hidden states and gradients, in both directions."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deterministic import fill, numbers, whole_numbers
from encoder_models import own_tokenizers
from heedful import pipeline
from heedful.decoding.embedder import Embedder
from heedful.errors import UserError
from heedful.interop import export_huggingface, import_huggingface
from heedful.interop.huggingface.bert import BertType
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.text.special_ids import SpecialIds
from hugging_face import close, gradients_differ, imported, recorded, unlike

pytestmark = pytest.mark.filterwarnings("ignore:.*has no tokenizer:UserWarning")
transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 12,
}
HEADS = {
    "masked": transformers.BertForMaskedLM,
    "classify": transformers.BertForSequenceClassification,
    "tag": transformers.BertForTokenClassification,
    "pool": transformers.BertModel,
    "none": partial(transformers.BertModel, add_pooling_layer=False),
}
SWITCHES = {
    "plain": {},
    "gelu through tanh": {"hidden_act": "gelu_new"},
    "relu": {"hidden_act": "relu"},
    "silu": {"hidden_act": "silu"},
    "one segment": {"type_vocab_size": 1},
    "five segments": {"type_vocab_size": 5},
    "another eps": {"layer_norm_eps": 1e-5},
    "another padding": {"pad_token_id": 7},
    "dropout of the classifier": {"classifier_dropout": 0.3},
}


def theirs_of(head: str, dtype: torch.dtype = torch.float32, **changes):
    labels = {"num_labels": 3} if head in ("classify", "tag") else {}
    return unlike(HEADS[head](transformers.BertConfig(**{**SIZES, **labels, **changes})), dtype)


def batch(config: BertConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and segments of rows with padding on the right, on the left and without."""
    ids = whole_numbers(3, 9, below=config.vocab_size - 1, name="ids")
    ids += ids >= config.special_ids.pad_id  # theirs learns nothing for padding, wherever it stands
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[0, 5:] = False
    mask[1, :4] = False
    ids[~mask] = config.special_ids.pad_id
    return ids, mask, whole_numbers(3, 9, below=config.n_segments, name="segments")


def answer(theirs, ids: Tensor, mask: Tensor, segments: Tensor | None):
    return theirs(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments, output_hidden_states=True)


def logits_of(output, head: str) -> Tensor:
    return output[{"pool": "pooler_output", "none": "last_hidden_state"}.get(head, "logits")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("switch", SWITCHES)
def test_logits_states_and_gradients_are_equal(switch: str, head: str, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = theirs_of(head, dtype, **SWITCHES[switch])
    ours = imported(theirs, tmp_path)
    ids, mask, segments = batch(ours.config)
    states = recorded(ours, ours.dropout, *ours.encoder.layers)
    logits, there = ours(ids, mask, segments), answer(theirs, ids, mask, segments)
    assert ours.config.head == head
    per_token = head in ("masked", "tag", "none")
    chosen = mask if per_token else torch.ones(len(ids), dtype=torch.bool)
    if not per_token:
        chosen[1] = False  # its first token is padding, which has no meaning
    assert close(logits[chosen], logits_of(there, head)[chosen], dtype)
    assert len(states) == len(there.hidden_states) == SIZES["num_hidden_layers"] + 1
    for state, hidden in zip(states, there.hidden_states, strict=True):
        assert close(state[mask], hidden[mask], dtype)
    weights = numbers(*logits[chosen].shape, name="loss", dtype=dtype)
    (logits[chosen] * weights).sum().backward()
    (logits_of(there, head)[chosen] * weights).sum().backward()
    assert gradients_differ(ours, theirs, "bert", dtype) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_an_untied_output_layer_is_equal(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = theirs_of("masked", dtype, tie_word_embeddings=False)
    ours = imported(theirs, tmp_path)
    assert not ours.config.tied
    ids, mask, _ = batch(ours.config)
    logits, there = ours(ids, mask), answer(theirs, ids, mask, None)
    assert close(logits[mask], there.logits[mask], dtype)
    weights = numbers(*logits[mask].shape, name="loss", dtype=dtype)
    (logits[mask] * weights).sum().backward()
    (there.logits[mask] * weights).sum().backward()
    assert gradients_differ(ours, theirs, "bert", dtype) == []


def test_a_pre_training_checkpoint_is_read_as_a_masked_language_model(tmp_path: Path) -> None:
    theirs = unlike(transformers.BertForPreTraining(transformers.BertConfig(**SIZES)), torch.float32)
    ours = imported(theirs, tmp_path)
    assert ours.config.head == "masked"
    ids, mask, segments = batch(ours.config)
    there = theirs(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments).prediction_logits
    assert close(ours(ids, mask, segments)[mask], there[mask], torch.float32)


def test_the_pooler_of_a_masked_language_model_is_kept(tmp_path: Path) -> None:
    """Public masked language models have one, from pre-training."""
    theirs = unlike(transformers.BertForPreTraining(transformers.BertConfig(**SIZES)), torch.float32)
    ours = imported(theirs, tmp_path)
    ids, mask, segments = batch(ours.config)
    chosen = torch.tensor([0, 2])  # the first token of the other is padding
    pooled = theirs.bert(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments).pooler_output
    found = Embedder(ours, own_tokenizers().source)._pooler()
    assert found is not None
    assert close(found(ours.hidden_states(ids, mask, segments))[chosen], pooled[chosen], torch.float32)
    exported = export_huggingface(tmp_path / "ours", tmp_path / "again")
    again = transformers.BertModel.from_pretrained(exported).eval()
    pooled_again = again(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments).pooler_output
    assert close(pooled_again[chosen], pooled[chosen], torch.float32)
    transformers.BertForMaskedLM.from_pretrained(exported).save_pretrained(tmp_path / "without")  # it drops the pooler
    assert not load_model(import_huggingface(tmp_path / "without", tmp_path / "back")).model.config.pooler


def test_tensor_names_of_the_first_checkpoints_are_read(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    theirs = theirs_of("masked")
    imported(theirs, tmp_path)
    path = tmp_path / "theirs" / "model.safetensors"
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {}
    for name, tensor in load_file(path).items():
        for new, before in old.items():
            name = name.replace(new, before)
        renamed[name] = tensor
    renamed["bert.embeddings.position_ids"] = torch.arange(12)[None]
    save_file(renamed, path, metadata={"format": "pt"})
    first = weights_of(load_model(tmp_path / "ours").model)
    again = weights_of(load_model(import_huggingface(tmp_path / "theirs", tmp_path / "again")).model)
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())


OURS = {
    "masked": {"head": "masked"},
    "its own decoder": {"head": "masked", "tied": False},
    "classify": {"head": "classify", "labels": ("bad", "so-so", "good"), "classifier_dropout": 0.2},
    "several labels": {"head": "classify", "labels": ("red", "green"), "multi_label": True},
    "one label": {"head": "classify", "labels": ("red",), "multi_label": True},
    "tokens": {"head": "tag", "labels": ("O", "B", "I")},
    "pool": {"head": "pool", "special_ids": SpecialIds(pad_id=5, bos_id=6, eos_id=7, mask_id=8)},
    "no pooler": {"head": "none"},
}


def made(**changes) -> Bert:
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20, "max_len": 12, "activation": "gelu_tanh"}
    return fill(Bert(BertConfig(50, **{**sizes, **changes})), dtype=torch.float32)


def saved_as(head: str, folder: Path):
    """Return Hugging Face's model of a folder, and its loading report."""
    if head == "none":
        return transformers.BertModel.from_pretrained(folder, add_pooling_layer=False, output_loading_info=True)
    return HEADS[head].from_pretrained(folder, output_loading_info=True)


@pytest.mark.parametrize("case", OURS)
def test_there_and_back_is_the_same_to_the_bit(case: str, tmp_path: Path) -> None:
    model = made(**OURS[case])
    exported = export_huggingface(save_model(tmp_path / "model", model, None), tmp_path / "there")
    theirs, info = saved_as(model.config.head, exported)
    assert [info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[name]] == []
    ids, mask, segments = batch(model.config)
    there = logits_of(answer(theirs.eval(), ids, mask, segments), model.config.head)
    ours = model(ids, mask, segments)
    chosen = mask if ours.dim() == 3 else torch.tensor([True, False, True])
    assert close(ours[chosen], there[chosen], torch.float32)
    theirs.save_pretrained(tmp_path / "saved")
    for place in (exported, tmp_path / "saved"):
        back = load_model(import_huggingface(place, tmp_path / "back")).model
        assert back.config == model.config
        found = weights_of(back)
        assert all(torch.equal(tensor, found[name]) for name, tensor in weights_of(model).items())


def test_every_tensor_has_its_row() -> None:
    for changes in OURS.values():
        model = made(**changes)
        parts = [name for row in BertType().tensor_map(model.config) for name in row.names]
        assert sorted(parts) == sorted(weights_of(model))


def values(**changes) -> dict:
    return {**SIZES, "model_type": "bert", "architectures": ["BertForMaskedLM"], **changes}


REFUSED = {
    "relative positions": ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
    "a decoder": ({"is_decoder": True}, "is_decoder"),
    "heads taken out": ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
    "cross-attention": ({"add_cross_attention": True}, "add_cross_attention"),
    "another head": ({"architectures": ["BertForQuestionAnswering"]}, "architectures"),
    "a bend": ({"hidden_act": "gelu_10"}, "hidden_act"),
    "numbers for labels": (
        {"architectures": ["BertForSequenceClassification"], "problem_type": "regression"},
        "problem_type",
    ),
    "labels with a gap": (
        {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "2": "b"}},
        "id2label",
    ),
    "no number": ({"hidden_size": "16"}, "hidden_size"),
    "heads that do not fit": ({"num_attention_heads": 3}, "n_heads"),
    "no layer": ({"num_hidden_layers": 0}, "n_layers"),
    "far too many": ({"num_hidden_layers": 10**9}, "n_layers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_settings_are_refused_by_name(case: str) -> None:
    changes, word = REFUSED[case]
    with pytest.raises(UserError, match=word):
        BertType().config_from_hf(values(**changes), where="config.json")


def test_an_unknown_setting_is_named() -> None:
    with pytest.warns(UserWarning, match="brand_new_switch"):
        BertType().config_from_hf(values(brand_new_switch=3), where="config.json")


def test_pickles_are_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(values()))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(UserError, match=r"pytorch_model\.bin.*safetensors"):
        import_huggingface(tmp_path, tmp_path / "out")


def test_a_pair_of_texts_has_the_scores_of_their_pipeline(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "runs", "who", "?"]
    theirs = theirs_of("classify", vocab_size=len(words))
    theirs.save_pretrained(tmp_path / "there")
    (tmp_path / "there" / "vocab.txt").write_text("\n".join(words) + "\n")
    import_huggingface(tmp_path / "there", tmp_path / "here")
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path / "there")
    their_pipe = transformers.pipeline("text-classification", model=theirs, tokenizer=tokenizer)
    our_pipe = pipeline("text-classification", model=tmp_path / "here")
    pair = {"text": "Who runs?", "text_pair": "a dog"}
    for given in (pair, [pair, pair], [pair, "a dog"], "a dog", ["a dog"]):
        for options in ({}, {"top_k": None}, {"top_k": 2}):
            assert same(our_pipe(given, **options), their_pipe(given, **options))


def same(ours, theirs) -> bool:
    """Return labels and shape of a result, and its scores rounded to five places."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    assert isinstance(ours, dict) and isinstance(theirs, dict)
    return ours["label"] == theirs["label"] and abs(ours["score"] - theirs["score"]) < 1e-5
