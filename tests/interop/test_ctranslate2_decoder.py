"""CTranslate2 gives the logits of torch, for every variant of a decoder-only model."""

from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import torch

from deterministic import fill, largest_difference, whole_numbers
from echo_engine import tokenizers
from gpt_writers import LLAMA, SIZES, convert_here, make_gpt
from heedful.decoding.generator import Generator
from heedful.errors import UserError
from heedful.interop.convert import convert_model
from heedful.interop.ctranslate2.model_config import why_not
from heedful.models.gpt import Gpt, GptConfig, RotaryConfig
from heedful.models.model_io import save_model
from heedful.text.special_ids import SpecialIds

LLAMA_3 = RotaryConfig(base=500.0, factor=4.0, original_max_len=64)
VARIANTS = {
    "gpt2": {},
    "llama": LLAMA,
    "llama 3": {**LLAMA, "rotary": LLAMA_3},
    "other edges": {
        "positions": "rotary",
        "rotary": RotaryConfig(500.0, 8.0, original_max_len=100, low_freq_factor=2.0, high_freq_factor=7.0),
    },
    "interpolated": {"positions": "rotary", "rotary": RotaryConfig(factor=4.0)},
    "base": {"positions": "rotary", "rotary": RotaryConfig(base=100.0)},
    "no positions": {"positions": "none"},
    "rms": {"norm": "rms"},
    "relu": {"activation": "relu"},
    "gelu": {"activation": "gelu"},
    "swish": {"activation": "swish"},
    "geglu": {"activation": "geglu"},
    "one key head": {"n_kv_heads": 1},
    "one key head, rotary": {"n_kv_heads": 1, "positions": "rotary"},
    "wide heads": {"d_head": 12, "n_kv_heads": 2},
    "narrow heads, rotary": {"d_head": 6, "positions": "rotary"},
    "by layer": {"score_scale": "layer"},
    "by both": {"score_scale": "head_and_layer"},
    "not scaled": {"score_scale": "none"},
    "no bias in attention": {"attention_bias": False},
    "no bias in the network": {"feed_forward_bias": False},
    "large epsilon": {"norm_eps": 0.1},
    "its own output": {"tied": False},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_logits_equal_those_of_torch(changes: dict, tmp_path: Path) -> None:
    model = fill(Gpt(GptConfig(**{**SIZES, "max_len": 150, **changes})), dtype=torch.float32)
    assert why_not(model.config) is None
    ids = whole_numbers(2, 150, below=60)
    generator = ctranslate2.Generator(str(convert_here(model, tmp_path / "ct2").folder))
    found = torch.from_numpy(np.array(generator.forward_batch([[str(id) for id in row] for row in ids.tolist()])))
    with torch.inference_mode():
        assert largest_difference(found, model(ids)) < 2e-5


def test_shared_key_heads_stay_shared(tmp_path: Path) -> None:
    """Four query heads share one key head: the file has a quarter of the keys and values."""
    sizes = [
        (convert_here(make_gpt(n_kv_heads=n, tied=False), tmp_path / str(n)).folder / "model.bin").stat().st_size
        for n in (1, 4)
    ]
    assert sizes[1] - sizes[0] >= 2 * 2 * (24 * 32 + 24) * 4  # layers, keys and values, rows of 32 and a bias, bytes


def test_bos_before_each_source_is_refused() -> None:
    assert "no BOS before" in why_not(GptConfig(**SIZES, special_ids=SpecialIds(source_bos=True)))


def test_with_tokenizers_ids_are_named_by_their_pieces(tmp_path: Path) -> None:
    """Ids are named by their pieces, and the settings name the special tokens."""
    model = make_gpt(vocab_size=tokenizers().source.vocab_size)
    folder = save_model(tmp_path / "model", model, tokenizers())
    written = convert_model(folder, tmp_path / "ct2", format="ctranslate2")
    ours, theirs = Generator(model, tokenizers().source), ctranslate2.Generator(str(written))
    for prompt in ("A dog", "Two cats sit", "x"):
        pieces = tokenizers().source.pieces(ours.prompt_ids(prompt))
        [result] = theirs.generate_batch([pieces], max_length=12, include_prompt_in_result=False)
        [[best]] = ours.search_ids([ours.prompt_ids(prompt)], max_len=12)
        assert result.sequences_ids[0] == best.ids
        assert result.sequences[0] == tokenizers().source.pieces(best.ids)


def test_with_tokenizers_eos_must_be_in_the_vocabulary(tmp_path: Path) -> None:
    size = tokenizers().source.vocab_size
    folder = save_model(
        tmp_path / "model", make_gpt(vocab_size=size, special_ids=SpecialIds(eos_id=size)), tokenizers()
    )
    with pytest.raises(UserError, match="which is not in its vocabulary"):
        convert_model(folder, tmp_path / "ct2", format="ctranslate2")
