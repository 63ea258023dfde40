"""Masked words are filled in with the model's own probabilities, for every tokenizer."""

from pathlib import Path

import pytest
import torch

from encoder_models import bert_folder, own_tokenizers, vit_folder, word_pieces
from heedful import UserError, load_model, pipeline
from heedful.decoding.encoder_inputs import Row, batches, masked_ids
from heedful.decoding.fill_mask import FillMask

pytest.importorskip("tokenizers", reason="tokenizers is not installed: heedful[hf]")


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fill")
    return bert_folder(folder / "model", word_pieces(folder / "words"))


def test_the_probabilities_are_the_models_own(bert: Path) -> None:
    loaded = load_model(bert)
    tokenizer, config = loaded.tokenizers.source, loaded.model.config
    ids = [config.special_ids.start_id, *tokenizer.encode("a dog [MASK] on the [MASK]"), config.special_ids.eos_id]
    places = [place for place, number in enumerate(ids) if number == config.special_ids.mask_id]
    shares = loaded.model(torch.tensor([ids]))[0].softmax(dim=-1)
    found = FillMask.load(bert).fill("a dog [MASK] on the [MASK]", top_k=4)
    assert len(found) == len(places) == 2
    for candidates, place in zip(found, places, strict=True):
        best = shares[place].topk(4)
        assert [candidate.token for candidate in candidates] == best.indices.tolist()
        assert torch.allclose(torch.tensor([c.score for c in candidates]), best.values)
        for candidate in candidates:
            assert candidate.token_text == tokenizer.decode([candidate.token])


def test_the_text_has_the_word_in_its_place(bert: Path) -> None:
    [[candidate]] = FillMask.load(bert).fill("a dog [MASK] on", targets=["sleeps"])
    assert (candidate.token_text, candidate.text) == ("sleeps", "a dog sleeps on")


def test_many_texts_at_once_are_as_one_by_one(bert: Path) -> None:
    filler = FillMask.load(bert)
    texts = ["a [MASK]", "the man and the dog run on the [MASK] in the sun", "[MASK]", "two [MASK] run"]
    together = filler.fill_batch(texts)
    for text, found in zip(texts, together, strict=True):
        alone = filler.fill(text)
        assert [[c.token for c in place] for place in alone] == [[c.token for c in place] for place in found]
        scores = torch.tensor([[c.score for c in place] for place in alone])
        assert torch.allclose(scores, torch.tensor([[c.score for c in place] for place in found]), atol=1e-6)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
@pytest.mark.parametrize("whitespace", ["prefix", "suffix"])
def test_the_words_around_a_mask_are_cut_as_in_the_whole_text(kind: str, whitespace: str) -> None:
    tokenizer = own_tokenizers(kind=kind, whitespace=whitespace).source
    mask = tokenizer.special_ids.mask_id
    found = masked_ids(tokenizer, "a dog [MASK] through the snow", mask_id=mask)
    # One token is hidden: of characters one character, elsewhere a word with its space.
    whole = tokenizer.encode("a dog r through the snow" if kind == "char" else "a dog runs through the snow")
    place = found.index(mask)
    assert found.count(mask) == 1
    assert found[:place] == whole[:place]
    assert found[place + 1 :] == whole[len(whole) - len(found) + place + 1 :]
    assert masked_ids(tokenizer, "a dog <mask> through the snow", mask_id=mask) == found


def test_a_mask_beside_punctuation_leaves_it_as_it_is() -> None:
    tokenizer = own_tokenizers().source
    found = masked_ids(tokenizer, "on the [MASK], and a man", mask_id=tokenizer.special_ids.mask_id)
    whole = tokenizer.encode("on the beach, and a man")
    assert (
        found[found.index(tokenizer.special_ids.mask_id) + 1 :]
        == whole[whole.index(tokenizer.encode("beach")[-1]) + 1 :]
    )


def test_a_model_of_ones_own_finds_words(tmp_path: Path) -> None:
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


def test_what_cannot_be_done_is_said(bert: Path, tmp_path: Path) -> None:
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


def test_what_the_model_does_not_read_is_said(bert: Path) -> None:
    with pytest.warns(UserWarning, match=r"1 text was cut to the 40 tokens .*; 1 \[MASK\] was cut off"):
        [_, found] = FillMask.load(bert).fill_batch(["a [MASK]", "a [MASK] " + "dog " * 60 + "[MASK]"])
    assert len(found) == 1


def test_half_a_character_is_refused(bert: Path) -> None:
    with pytest.raises(UserError, match=r"text 2: character 10 is U\+DCFF"):
        FillMask.load(bert).fill_batch(["a [MASK]", "a [MASK] \udcff"])


def test_batches_hold_every_row_once_and_no_more_than_so_many_tokens() -> None:
    rows = [Row(list(range(1, n + 1))) for n in (3, 9, 1, 4, 4, 7, 2)]
    seen = []
    for numbers, ids, mask in batches(rows, pad_id=0, batch_tokens=16):
        assert ids.shape == mask.shape and (ids.numel() <= 16 or len(numbers) == 1)
        for place, number in enumerate(numbers):
            assert ids[place][mask[place]].tolist() == rows[number].ids
        assert not ids[~mask].any()
        seen += numbers
    assert sorted(seen) == list(range(7))
