"""The special ids: what they say of a text, and what is refused."""

import dataclasses

import pytest

from heedful.config import config_from_dict, config_to_dict
from heedful.errors import UserError
from heedful.text import SPECIAL_IDS, SpecialIds

BART = SpecialIds(pad_id=1, unk_id=3, bos_id=0, eos_id=2, decoder_start_id=2, source_bos=True, force_bos=True)


def test_bos_stands_before_a_source_only_in_models_that_have_it_there() -> None:
    assert SPECIAL_IDS.with_source_bos([5, 6]) == [5, 6] and SPECIAL_IDS.n_source_prefix == 0
    assert BART.with_source_bos([5, 6]) == [0, 5, 6] and BART.n_source_prefix == 1


def test_the_decoder_begins_with_bos_unless_another_id_is_named() -> None:
    assert (SPECIAL_IDS.start_id, SPECIAL_IDS.n_forced) == (SPECIAL_IDS.bos_id, 0)
    assert (BART.start_id, BART.n_forced) == (2, 1)


def test_all_ids_are_each_named_once() -> None:
    assert SPECIAL_IDS.all_ids == (0, 1, 2, 3)
    assert dataclasses.replace(BART, mask_id=9, extra_eos_ids=(7, 2)).all_ids == (1, 3, 0, 2, 9, 7)


@pytest.mark.parametrize("ids", [SPECIAL_IDS, BART, dataclasses.replace(BART, mask_id=9, adds_bos=False)])
def test_they_come_back_from_plain_values(ids: SpecialIds) -> None:
    assert config_from_dict(SpecialIds, config_to_dict(ids), where="") == ids


@pytest.mark.parametrize(
    "name", ["pad_id", "unk_id", "bos_id", "eos_id", "mask_id", "decoder_start_id", "extra_eos_ids", "forbidden_ids"]
)
def test_each_id_must_be_a_row_of_the_vocabulary(name: str) -> None:
    wrap = (lambda id: (id,)) if name.endswith("_ids") else int
    dataclasses.replace(BART, **{name: wrap(9)}).check(10)
    with pytest.raises(UserError, match="'special_ids' has the id 10, but the last id of the vocabulary is 9"):
        dataclasses.replace(BART, **{name: wrap(10)}).check(10)
    with pytest.raises(UserError, match=f"'{name}' must .*at least 0, found -1"):
        dataclasses.replace(BART, **{name: wrap(-1)})


def test_no_vocabulary_is_too_small_to_be_checked() -> None:
    SPECIAL_IDS.check(4)
    with pytest.raises(UserError, match="has the id 3"):
        SPECIAL_IDS.check(3)
