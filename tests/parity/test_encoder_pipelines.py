"""A converted folder with its tokenizer gives the words and labels of Hugging Face's pipelines, and can be exported."""

from pathlib import Path

import pytest

from encoder_folders import folder_of, transformers
from encoder_models import bert_folder, own_tokenizers
from heedful import load_model, pipeline
from heedful.interop import export_huggingface, import_huggingface

TEXTS = ["A dog [MASK] through the snow.", "[MASK] men sit on the [MASK]!", "The cat is [MASK]"]
TWO = TEXTS[1]
PLAIN = [text.replace("[MASK]", "sleeps") for text in TEXTS]


def same(ours: list[dict], theirs: list[dict]) -> bool:
    assert [sorted(one) for one in ours] == [sorted(one) for one in theirs]
    scores = zip(ours, theirs, strict=True)
    return all(abs(a["score"] - b["score"]) < 1e-5 for a, b in scores) and [
        {key: value for key, value in one.items() if key != "score"} for one in ours
    ] == [{key: value for key, value in one.items() if key != "score"} for one in theirs]


def test_masked_words_equal_those_of_their_pipeline(tmp_path: Path) -> None:
    there = folder_of(transformers.BertForMaskedLM, tmp_path)
    ours = pipeline("fill-mask", model=import_huggingface(there, tmp_path / "ours"))
    theirs = transformers.pipeline("fill-mask", model=str(there))
    for text in TEXTS:
        found, wanted = ours(text, top_k=4), theirs(text, top_k=4)
        one = text.count("[MASK]") == 1
        for a, b in zip([found] if one else found, [wanted] if one else wanted, strict=True):
            assert same(a, b)
    # The whole table: marks and padding are among the words that are found.
    n_words = len(theirs.tokenizer)
    found, wanted = (pipe(TWO, top_k=n_words) for pipe in (ours, theirs))
    for a, b in zip(found, wanted, strict=True):
        assert {one["token"]: one["sequence"] for one in a} == {one["token"]: one["sequence"] for one in b}
    assert ours([TWO, TEXTS[0]], top_k=1)[0] == ours(TWO, top_k=1)


LABELS = {
    "one of three": {"id2label": {0: "bad", 1: "good", 2: "so-so"}},
    "each for itself": {"id2label": {0: "red", 1: "green"}, "problem_type": "multi_label_classification"},
    "a single one": {"id2label": {0: "spam"}},
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_equal_those_of_their_pipeline(case: str, tmp_path: Path) -> None:
    there = folder_of(transformers.BertForSequenceClassification, tmp_path, **LABELS[case])
    ours = pipeline("text-classification", model=import_huggingface(there, tmp_path / "ours"))
    theirs = transformers.pipeline("text-classification", model=str(there))
    assert same(ours(PLAIN), theirs(PLAIN))
    for found, wanted in zip(ours(PLAIN, top_k=None), theirs(PLAIN, top_k=None), strict=True):
        assert same(found, wanted)


def test_special_ids_come_from_the_tokenizer_and_survive_the_export(tmp_path: Path) -> None:
    there = folder_of(transformers.BertForMaskedLM, tmp_path)
    ours = import_huggingface(there, tmp_path / "ours")
    config = load_model(ours).model.config
    tokenizer = transformers.BertTokenizer.from_pretrained(there)
    assert (config.special_ids.start_id, config.special_ids.eos_id) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert (config.special_ids.pad_id, config.special_ids.mask_id) == (tokenizer.pad_token_id, tokenizer.mask_token_id)
    back = export_huggingface(ours, tmp_path / "back")
    again, first = (transformers.pipeline("fill-mask", model=str(place)) for place in (back, there))
    for text in TEXTS:
        assert again(text) == first(text)


def test_an_exported_model_with_heedfuls_tokenizer_finds_the_same_words(tmp_path: Path) -> None:
    tokenizers = own_tokenizers()
    ours = bert_folder(tmp_path / "ours", tokenizers)
    there = export_huggingface(ours, tmp_path / "there")
    theirs = transformers.pipeline("fill-mask", model=str(there))
    two = "a <mask> café dog <mask> through"
    found, wanted = (
        pipeline("fill-mask", model=ours)("a dog <mask> through the snow"),
        theirs("a dog <mask> through the snow"),
    )
    assert [one["token"] for one in found] == [one["token"] for one in wanted]
    for a, b in zip(pipeline("fill-mask", model=ours)(two), theirs(two), strict=True):
        assert [one["sequence"] for one in a] == [one["sequence"] for one in b]
    assert all(abs(a["score"] - b["score"]) < 1e-5 for a, b in zip(found, wanted, strict=True))
    back = load_model(import_huggingface(there, tmp_path / "back"))
    assert back.tokenizers.source.fingerprint == tokenizers.source.fingerprint
