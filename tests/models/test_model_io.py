"""The model folder: the same model back, bit for bit, and every changed byte refused by name."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from heedful.atomic_io import MANIFEST, write_manifest
from heedful.config import config_from_dict, config_to_dict
from heedful.decoding import Translator
from heedful.errors import UserError
from heedful.models.model_io import CARD, CONFIG, WEIGHTS, find_model_folder, load_model, save_model, weights_of
from heedful.models.seq2seq import PatternConfig
from heedful.text import SentencePieceTokenizer, SpecialIds, TokenizerConfig, learn_tokenizer
from heedful.text.sentencepiece_model import with_settings
from model_folders import logits, make, refused
from scripts.upgrade_model_folder import upgrade, upgraded, with_new_names

# There and back


@pytest.mark.parametrize("tied", ["all", "target", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_same_logits_to_the_last_bit(tmp_path, tied, dtype):
    model = make(tied=tied, dtype=dtype)
    loaded = load_model(save_model(tmp_path / "model", model, None))
    assert loaded.family == "seq2seq"
    assert loaded.model.config == model.config
    assert not loaded.model.training
    assert torch.equal(logits(loaded.model), logits(model))
    assert loaded.tokenizers is None


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "batch", "residual": "pre", "positions": "learned", "max_len": 9, "join": "mix"},
        {"norm": "rms", "positions": "relative", "pattern": PatternConfig("additive"), "activation": "swiglu"},
        {"pattern": PatternConfig("sparse", span=2, n_global=2), "n_kv_heads": 1, "d_head": 6, "positions": "rotary"},
        {"n_layers": 2, "n_decoder_layers": 3, "join": "matching", "init": "t5", "positions": "alibi"},
    ],
)
def test_every_part_comes_back(tmp_path, changes):
    model = make(**changes)
    loaded = load_model(save_model(tmp_path / "model", model, None)).model
    assert loaded.config == model.config
    assert torch.equal(logits(loaded), logits(model))
    for name, tensor in weights_of(model).items():
        assert torch.equal(weights_of(loaded)[name], tensor), name


def test_ties_survive_and_are_stored_once(tmp_path):
    for tied, n_tables in (("all", 1), ("target", 2), ("none", 3)):
        folder = save_model(tmp_path / tied, make(tied=tied), None)
        stored = load_file(folder / WEIGHTS)
        assert sum("table" in name or "head" in name for name in stored) == n_tables
        model = load_model(folder).model
        tables = {id(m.weight) for m in (model.source_embedding.table, model.target_embedding.table, model.head.linear)}
        assert len(tables) == n_tables
        before = logits(model)
        with torch.no_grad():
            model.target_embedding.table.weight += 1
        assert torch.equal(model.head.linear.weight, model.target_embedding.table.weight) == (tied != "none")
        assert not torch.equal(before, logits(model))


def test_a_loaded_model_can_be_trained_and_saved_again(tmp_path):
    model = load_model(save_model(tmp_path / "a", make(), None)).model.train()
    logits(model).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    again = load_model(save_model(tmp_path / "b", model, None)).model
    assert torch.equal(logits(again), logits(model.eval()))


@pytest.mark.parametrize("kind", ["joint", "separate"])
def test_tokenizers_come_back_with_it(tmp_path, kind, request):
    tokenizers = request.getfixturevalue(kind)
    model = make(tokenizers, tied="all" if kind == "joint" else "target")
    loaded = load_model(save_model(tmp_path / "model", model, tokenizers))
    assert loaded.tokenizers.joint == (kind == "joint")
    for side in ("source", "target"):
        ours, theirs = getattr(loaded.tokenizers, side), getattr(tokenizers, side)
        assert ours.encode("a dog sits") == theirs.encode("a dog sits")
    assert torch.equal(logits(loaded.model), logits(model))


def test_saving_leaves_the_random_numbers_and_the_model_alone(tmp_path):
    model = make()
    before = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    load_model(save_model(tmp_path / "model", model, None))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in weights_of(model).items())


def test_the_same_model_gives_the_same_bytes(tmp_path):
    folders = [save_model(tmp_path / name, make(), None, card="x") for name in ("a", "b")]
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert files[0] == files[1]
    assert set(files[0]) == {CONFIG, WEIGHTS, CARD, MANIFEST}


def test_saving_over_an_old_model(tmp_path, joint):
    save_model(tmp_path / "model", make(joint), joint, card="old")
    new = make(d_ff=20)
    save_model(tmp_path / "model", new, None)
    loaded = load_model(tmp_path / "model")
    assert loaded.tokenizers is None
    assert loaded.model.config == new.config
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["model", CONFIG, WEIGHTS, MANIFEST])


@pytest.mark.parametrize("part", ["save_file", "save_tokenizers"])
def test_a_failure_in_the_middle_of_saving_leaves_the_old_model_and_nothing_else(tmp_path, joint, monkeypatch, part):
    old = make(joint)
    save_model(tmp_path / "model", old, joint)

    def fails(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"heedful.models.model_io.{part}", fails)
    with pytest.raises(UserError, match=r"No space left on device.* bytes are needed, .* are free"):
        save_model(tmp_path / "model", make(joint, d_ff=20), joint)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert torch.equal(logits(load_model(tmp_path / "model").model), logits(old))


def test_the_folder_that_a_path_means(tmp_path):
    run = tmp_path / "run"
    for name in ("last", "average", "best"):
        save_model(run / name, make(), None)
        assert find_model_folder(run) == run / name
        assert find_model_folder(str(run / name)) == run / name
        assert load_model(run).folder == run / name
    with pytest.raises(UserError, match="nowhere: no such folder"):
        find_model_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="neither a model folder"):
        find_model_folder(tmp_path)


def test_loading_does_not_import_what_only_initialising_needs(plain):
    """Drawing normal numbers on the meta device would: a second more for every command that loads a model."""
    script = (
        "import sys; from heedful.models.model_io import load_model; before = len(sys.modules); load_model(sys.argv[1])"
    )
    script += "; print(len(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", script, str(plain)], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 50


# A changed byte


def test_a_changed_byte_in_any_file_is_refused_with_its_name(tmp_path, separate):
    folder = save_model(tmp_path / "model", make(separate, tied="target"), separate, card="# A model\n")
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 6
    for name in names:
        original = (folder / name).read_bytes()
        for i in range(25):
            changed = bytearray(original)
            changed[i * (len(original) - 1) // 24] ^= 1 << i % 8
            (folder / name).write_bytes(changed)
            refused(folder, "model")
        for damaged in (b"", original[:-1], original[: len(original) // 2], original + b"\0"):
            (folder / name).write_bytes(damaged)
            message = refused(folder)
            assert name in message
        (folder / name).unlink()
        refused(folder, name)
        (folder / name).write_bytes(original)
    assert load_model(folder).tokenizers is not None


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, "joint.spm"])
def test_a_file_that_the_manifest_does_not_list_is_refused(tmp_path, joint, name):
    folder = save_model(tmp_path / "model", make(joint), joint)
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["sha256"][name]
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    refused(folder, name, "not listed")


def test_a_tokenizer_that_the_manifest_does_not_list_is_refused(plain, joint):
    joint.source.save(plain / "joint.spm")
    refused(plain, "joint.spm", "not listed")


def test_a_copy_of_a_folder_is_as_good(plain, tmp_path):
    shutil.copytree(plain, tmp_path / "copy")
    assert torch.equal(logits(load_model(tmp_path / "copy").model), logits(load_model(plain).model))


# config.json of a small model as heedful wrote it in format 1
OF_FORMAT_1 = """
{
 "format": 1, "family": "seq2seq", "source_vocab_size": 11, "target_vocab_size": 11, "d_model": 8, "n_layers": 1,
 "n_heads": 2, "d_ff": 12, "dropout": 0.1, "attention_dropout": 0.0, "activation": "relu", "norm": "layer",
 "residual": "post", "positions": "sinusoidal", "max_len": 20,
 "pattern": {"kind": "full", "span": 64, "n_global": 1},
 "join": "last", "tied": "all", "init": "xavier", "logits_bias": false,
 "marks": {"pad_id": 0, "start_id": 2, "end_id": 3, "opens_target": true, "forbidden": [], "other_ends": []}
}
"""


def folder_of_format_1(tmp_path):
    model = make(max_len=20)
    folder = save_model(tmp_path / "model", model, None)
    (folder / CONFIG).write_text(OF_FORMAT_1)
    write_manifest(folder)
    return folder, model


@pytest.mark.parametrize("read", [load_model, find_model_folder, Translator.load])
def test_a_folder_of_an_earlier_format_is_refused_with_a_remedy(tmp_path, read):
    folder, _ = folder_of_format_1(tmp_path)
    with pytest.raises(UserError) as error:
        read(folder)
    assert str(error.value) == (
        f"{folder}: was written by an earlier heedful, in format 1, and this one reads format 2: write it anew by "
        "the command that made it (heedful train, heedful convert), or with scripts/upgrade_model_folder.py from "
        "heedful's repository"
    )


def test_the_script_for_earlier_formats_writes_the_same_model(tmp_path):
    folder, model = folder_of_format_1(tmp_path)
    upgrade(folder)
    loaded = load_model(folder)
    assert loaded.model.config == model.config
    assert torch.equal(logits(loaded.model), logits(model))


def test_the_script_keeps_the_special_ids_of_a_converted_model():
    marks = {"pad_id": 1, "start_id": 2, "end_id": 2, "first_id": 0, "opens_target": True, "forbidden": [1]}
    values = upgraded({"format": 1, "family": "bart", "marks": marks})
    assert config_from_dict(SpecialIds, values["special_ids"], where="") == SpecialIds(
        pad_id=1,
        unk_id=2,
        bos_id=0,
        eos_id=2,
        decoder_start_id=2,
        source_bos=True,
        force_bos=True,
        forbidden_ids=(1,),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"head": "label_tokens", "exclusive": True}, {"head": "tag", "multi_label": False}),
        ({"head": "classify", "exclusive": False}, {"head": "classify", "multi_label": True}),
        ({"pattern": {"kind": "strongest", "span": 3}}, {"pattern": {"kind": "top_k", "span": 3}}),
        (
            {"rotary": {"base": 500.0, "first_len": 64, "low": 1.0, "high": 4.0}},
            {"rotary": {"base": 500.0, "original_max_len": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
        ),
    ],
)
def test_the_script_renames_every_field_that_has_another_name_now(old, new):
    assert upgraded({"format": 1, **old}) == {"format": 2, **new}


def test_the_script_renames_the_settings_inside_a_tokenizer():
    text = ["a small dog runs", "a large cat sleeps", "the man eats bread"]
    tokenizer = learn_tokenizer(text, TokenizerConfig(vocab_size=300, special_tokens=("<mask>",)))
    settings = config_to_dict(tokenizer.config)
    settings["symbols"], settings["normal_form"] = settings.pop("special_tokens"), settings.pop("unicode_form")
    old = with_settings(tokenizer.model, json.dumps(settings).encode())
    with pytest.raises(UserError, match="older version of heedful wrote this tokenizer"):
        SentencePieceTokenizer(old)
    assert SentencePieceTokenizer(with_new_names(old, where="joint.spm")).config == tokenizer.config
