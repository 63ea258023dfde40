"""A model is converted once, by a child process; the conversion is used until the model or CTranslate2 changes."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ct2_models import count_conversions, make_model
from heedful.atomic_io import MANIFEST, check_manifest
from heedful.errors import UserError
from heedful.interop.ctranslate2 import cache
from heedful.interop.ctranslate2.cache import convert
from heedful.interop.ctranslate2.conversion import INFO, NotConvertible
from heedful.models.model_io import load_model, save_model
from heedful.text import TokenizerConfig, learn_tokenizers

ENGLISH = ["a dog runs", "two men sit on a bench", "the animal didn't cross the street because it was too tired"]
GERMAN = ["ein Hund rennt", "zwei Männer sitzen auf einer Bank", "das Tier überquerte die Straße nicht"]


@pytest.fixture
def counted(monkeypatch) -> list[Path]:
    """Run conversions in this process, and count them."""
    return count_conversions(monkeypatch)


@pytest.fixture
def model_folder(tmp_path) -> Path:
    return save_model(tmp_path / "model", make_model(), None)


def test_a_model_is_converted_once(model_folder, counted):
    first, second = convert(model_folder), convert(str(model_folder))
    assert first == second
    assert len(counted) == 1
    assert first.folder.parent == model_folder
    check_manifest(first.folder)


def test_the_model_folder_still_loads_after_a_conversion(model_folder, counted):
    before = check_manifest(model_folder)
    convert(model_folder)
    assert check_manifest(model_folder) == before
    load_model(model_folder)


def test_another_model_in_the_same_folder_is_converted_again(model_folder, counted):
    first = convert(model_folder)
    save_model(model_folder, make_model(d_ff=64), None)
    second = convert(model_folder)
    assert first.info.key != second.info.key
    assert len(counted) == 2


def test_conversions_for_another_version_are_deleted(model_folder, counted, monkeypatch):
    first = convert(model_folder)
    monkeypatch.setattr(cache, "LAYOUT", 99)
    second = convert(model_folder)
    assert second.folder.is_dir() and second.folder != first.folder
    assert not first.folder.exists()


@pytest.mark.parametrize("name", ["model.bin", MANIFEST, INFO])
@pytest.mark.parametrize("damage", ["cut", "gone", "changed"])
def test_a_damaged_conversion_is_replaced(name, damage, model_folder, counted):
    path = convert(model_folder).folder / name
    whole = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "changed":
        path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    assert convert(model_folder).folder == path.parent
    assert len(counted) == 2
    assert path.read_bytes() == whole


def test_nothing_is_written_into_a_read_only_model_folder(model_folder, counted, tmp_path, monkeypatch):
    writable = os.access
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: path != model_folder and writable(path, mode))
    before = sorted(model_folder.rglob("*"))
    first = convert(model_folder)
    assert sorted(model_folder.rglob("*")) == before
    assert first.folder.is_relative_to(tmp_path / "cache" / "heedful")
    assert convert(model_folder) == first
    assert len(counted) == 1


def test_a_model_that_cannot_be_converted_is_refused_with_reason_and_remedy(tmp_path):
    folder = save_model(tmp_path / "model", make_model(positions="alibi"), None)
    with pytest.raises(NotConvertible, match=r"ALiBi.*torch"):
        convert(folder)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=MANIFEST):
        convert(tmp_path)


@pytest.fixture(scope="module")
def by_child(tmp_path_factory) -> Path:
    """A model folder that a child process has converted."""
    settings = TokenizerConfig(kind="char", vocab_size=60, byte_fallback=False)
    tokenizers = learn_tokenizers(ENGLISH, GERMAN, settings)
    model = make_model(source_vocab_size=tokenizers.source.vocab_size, target_vocab_size=tokenizers.target.vocab_size)
    folder = save_model(tmp_path_factory.mktemp("child") / "model", model, tokenizers)
    convert(folder)
    return folder


def test_a_damaged_model_gives_the_childs_message(by_child, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for path in by_child.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(UserError, match=r"model\.safetensors: has changed"):
        convert(folder)
    assert not list(folder.glob(".*"))  # and leaves nothing behind


PROGRAM = """
import sys
from heedful.decoding.engines.auto import open_engine, open_tokenizers
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
engine = open_engine(sys.argv[1], threads=1)
tokenizers = open_tokenizers(sys.argv[1], engine)
request = Request(tokenizers.source.encode("a dog runs"))
for beam in (1, 5):
    ((best,),) = engine.search([request], SearchSettings(beam=beam, max_len=10))
    tokenizers.target.decode(best.ids)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "transformers")))
"""


def test_a_converted_model_translates_without_torch(by_child):
    command = [sys.executable, "-c", PROGRAM, str(by_child)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


def test_tokenizers_are_probed_again_if_they_changed_since_the_conversion(by_child, monkeypatch):
    converted = convert(by_child)
    probed: list[str] = []
    monkeypatch.setattr(
        "heedful.text.tokenizer_files.probe_in_subprocess", lambda model, facts, *, where: probed.append(where)
    )
    converted.load_tokenizers()
    assert probed == []
    others = dataclasses.replace(converted.info, tokenizers={"joint.spm": "0" * 64})
    for info in (others, dataclasses.replace(converted.info, tokenizers={})):
        probed.clear()
        dataclasses.replace(converted, info=info).load_tokenizers()
        assert len(probed) == 1
