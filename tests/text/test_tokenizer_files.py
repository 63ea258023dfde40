from pathlib import Path

import pytest

from heedful.errors import UserError
from heedful.text import (
    TokenizerConfig,
    Tokenizers,
    has_tokenizers,
    learn_tokenizer,
    learn_tokenizers,
    load_tokenizer,
    load_tokenizers,
    save_tokenizers,
)

CONFIG = TokenizerConfig(
    kind="unigram", vocab_size=400, whitespace="suffix", sample_alpha=0.2, unicode_form="nfkc", lowercase=True,
    special_tokens=("[MASK]",),
)  # fmt: skip


@pytest.mark.parametrize("probe", [True, False])
@pytest.mark.parametrize("joint", [True, False])
def test_what_is_saved_is_loaded(lines: list[str], tmp_path: Path, joint: bool, probe: bool) -> None:
    config = TokenizerConfig(vocab_size=400, joint=joint, lowercase=True)
    saved = learn_tokenizers(lines[:2], lines[2:4], config)
    paths = save_tokenizers(tmp_path / "model", saved)
    assert [path.name for path in paths] == (["joint.spm"] if joint else ["source.spm", "target.spm"])
    loaded = load_tokenizers(tmp_path / "model", probe=probe)
    assert loaded.joint == joint
    for before, after in ((saved.source, loaded.source), (saved.target, loaded.target)):
        assert after.fingerprint == before.fingerprint
        assert after.encode_batch(lines) == before.encode_batch(lines)


def test_the_file_holds_all_settings(lines: list[str], tmp_path: Path) -> None:
    tokenizer = learn_tokenizer(lines[:4], CONFIG)
    tokenizer.save(tmp_path / "x")
    loaded = load_tokenizer(tmp_path / "x")
    assert loaded.config == CONFIG
    assert loaded.sample_batch(lines, seed=1) == tokenizer.sample_batch(lines, seed=1)
    assert loaded.normalize("ＥLAN") == "elan"


def test_saving_again_removes_the_earlier_files(lines: list[str], tmp_path: Path) -> None:
    one, two = (learn_tokenizer(lines[n : n + 2], TokenizerConfig(vocab_size=400)) for n in (0, 2))
    assert not has_tokenizers(tmp_path)
    save_tokenizers(tmp_path, Tokenizers(source=one, target=one))
    save_tokenizers(tmp_path, Tokenizers(source=one, target=two))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.spm", "target.spm"]
    assert has_tokenizers(tmp_path)
    save_tokenizers(tmp_path, Tokenizers(source=two, target=two))
    assert [path.name for path in tmp_path.iterdir()] == ["joint.spm"]


@pytest.mark.parametrize("names", [[], ["source.spm"], ["joint.spm", "target.spm"]])
def test_an_incomplete_folder_is_named(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UserError, match=r"expected joint\.spm, or source\.spm and target\.spm, or .*; found") as caught:
        load_tokenizers(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert all(name in str(caught.value) for name in names)
