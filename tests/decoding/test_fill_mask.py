"""Masked words are filled in with the model's own probabilities, for every tokenizer."""

from pathlib import Path

import pytest
import torch

from encoder_models import bert_folder, own_tokenizers, vit_folder, word_pieces
from heedful import UserError, load_model, pipeline
from heedful.decoding.fill_mask import FillMask

pytest.importorskip("tokenizers", reason="tokenizers is not installed: heedful[hf]")


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fill")
    return bert_folder(folder / "model", word_pieces(folder / "words"))


def test_probabilities_equal_those_of_the_model(bert: Path) -> None:
    loaded = load_model(bert)
    tokenizer, config = loaded.tokenizers.source, loaded.model.config
    ids = [config.special_ids.start_id, *tokenizer.encode("a dog [MASK] on the [MASK]"), config.special_ids.eos_id]
    places = [place for place, number in enumerate(ids) if number == config.special_ids.mask_id]
    probabilities = loaded.model(torch.tensor([ids]))[0].softmax(dim=-1)
    found = FillMask.load(bert).fill("a dog [MASK] on the [MASK]", top_k=4)
    assert len(found) == len(places) == 2
    for candidates, place in zip(found, places, strict=True):
        best = probabilities[place].topk(4)
        assert [candidate.token for candidate in candidates] == best.indices.tolist()
        assert torch.allclose(torch.tensor([c.score for c in candidates]), best.values)
        for candidate in candidates:
            assert candidate.token_text == tokenizer.decode([candidate.token])


def test_the_candidate_text_contains_the_word(bert: Path) -> None:
    [[candidate]] = FillMask.load(bert).fill("a dog [MASK] on", targets=["sleeps"])
    assert (candidate.token_text, candidate.text) == ("sleeps", "a dog sleeps on")


def test_a_batch_gives_the_results_of_single_texts(bert: Path) -> None:
    filler = FillMask.load(bert)
    texts = ["a [MASK]", "the man and the dog run on the [MASK] in the sun", "[MASK]", "two [MASK] run"]
    together = filler.fill_batch(texts)
    for text, found in zip(texts, together, strict=True):
        alone = filler.fill(text)
        assert [[c.token for c in place] for place in alone] == [[c.token for c in place] for place in found]
        scores = torch.tensor([[c.score for c in place] for place in alone])
        assert torch.allclose(scores, torch.tensor([[c.score for c in place] for place in found]), atol=1e-6)


def test_a_model_trained_by_heedful_fills_masks(tmp_path: Path) -> None:
    found = FillMask.load(bert_folder(tmp_path / "model", own_tokenizers())).fill("a [MASK] runs", top_k=3)
    assert len(found) == 1 and len(found[0]) == 3


def test_the_pipeline_answers_as_transformers_4_did(bert: Path) -> None:
    pipe = pipeline("fill-mask", model=bert)
    one = pipe("a dog [MASK] on", top_k=2)
    assert [sorted(found) for found in one] == [["score", "sequence", "token", "token_str"]] * 2
    assert pipe(["a dog [MASK] on"], top_k=2) == one
    assert pipe("a [MASK] dog [MASK]", top_k=1)[1][0].keys() == one[0].keys()
    several = pipe(["a [MASK]", "[MASK] runs"])
    assert [len(found) for found in several] == [5, 5]
    assert [found["token_str"] for found in pipe("a [MASK]", targets=["dog", "cat"])] in (
        ["dog", "cat"],
        ["cat", "dog"],
    )


def test_models_and_texts_that_cannot_be_used_are_rejected(bert: Path, tmp_path: Path) -> None:
    filler = FillMask.load(bert)
    with pytest.raises(UserError, match=r"text 1: has no \[MASK\]"):
        filler.fill("a dog runs")
    with pytest.raises(UserError, match="beyond the model's maximum length"):
        filler.fill("a dog " * 40 + "[MASK]")
    with pytest.raises(UserError, match="top_k"):
        filler.fill("a [MASK]", top_k=0)
    with pytest.raises(UserError, match="head 'pool'"):
        FillMask.load(bert_folder(tmp_path / "pool", word_pieces(tmp_path / "words"), head="pool"))
    with pytest.raises(UserError, match="family 'vit'"):
        FillMask.load(vit_folder(tmp_path / "vit"))


def test_a_warning_counts_masks_that_are_cut_off(bert: Path) -> None:
    with pytest.warns(UserWarning, match=r"1 text was cut to the 40 tokens .*; 1 \[MASK\] was cut off"):
        [_, found] = FillMask.load(bert).fill_batch(["a [MASK]", "a [MASK] " + "dog " * 60 + "[MASK]"])
    assert len(found) == 1


def test_a_lone_surrogate_is_rejected(bert: Path) -> None:
    with pytest.raises(UserError, match=r"text 2: character 10 is U\+DCFF"):
        FillMask.load(bert).fill_batch(["a [MASK]", "a [MASK] \udcff"])
