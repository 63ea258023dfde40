"""Inputs of encoders: pairs, masked texts, batches."""

from pathlib import Path

import pytest

from encoder_models import bert_folder, own_tokenizers
from heedful import load_model
from heedful.decoding.encoder_inputs import Row, batches, make_pair, masked_ids


def test_the_longer_text_of_a_pair_is_cut_first(tmp_path: Path) -> None:
    config = load_model(bert_folder(tmp_path / "model", own_tokenizers())).model.config
    row = make_pair(list(range(100, 150)), list(range(200, 210)), config)
    assert row.ids[1:-1] == [*range(100, 127), config.special_ids.eos_id, *range(200, 210)]
    assert (len(row.ids), row.n_cut, row.second) == (40, 23, 29)
    row = make_pair(list(range(100, 150)), list(range(200, 250)), config)
    assert (len(row.ids), row.second) == (40, 21)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
@pytest.mark.parametrize("whitespace", ["prefix", "suffix"])
def test_the_words_around_a_mask_have_the_tokens_that_they_have_beside_a_word(kind: str, whitespace: str) -> None:
    tokenizer = own_tokenizers(kind=kind, whitespace=whitespace).source
    mask = tokenizer.special_ids.mask_id
    ids = masked_ids(tokenizer, "a dog [MASK] through the snow", mask_id=mask)
    # The mask stands for one character, or for a word with its space.
    unmasked = tokenizer.encode("a dog r through the snow" if kind == "char" else "a dog runs through the snow")
    position = ids.index(mask)
    assert ids.count(mask) == 1
    assert ids[:position] == unmasked[:position]
    assert ids[position + 1 :] == unmasked[len(unmasked) - len(ids) + position + 1 :]
    assert masked_ids(tokenizer, "a dog <mask> through the snow", mask_id=mask) == ids


def test_punctuation_after_a_mask_keeps_its_tokens() -> None:
    tokenizer = own_tokenizers().source
    mask = tokenizer.special_ids.mask_id
    ids = masked_ids(tokenizer, "on the [MASK], and a man", mask_id=mask)
    unmasked = tokenizer.encode("on the beach, and a man")
    assert ids[ids.index(mask) + 1 :] == unmasked[unmasked.index(tokenizer.encode("beach")[-1]) + 1 :]


def test_batches_contain_every_row_once_within_the_token_budget() -> None:
    rows = [Row(list(range(1, n + 1))) for n in (3, 9, 1, 4, 4, 7, 2)]
    all_indices = []
    for indices, ids, mask in batches(rows, pad_id=0, batch_tokens=16):
        assert ids.shape == mask.shape and (ids.numel() <= 16 or len(indices) == 1)
        for i, index in enumerate(indices):
            assert ids[i][mask[i]].tolist() == rows[index].ids
        assert not ids[~mask].any()
        all_indices += indices
    assert sorted(all_indices) == list(range(7))
