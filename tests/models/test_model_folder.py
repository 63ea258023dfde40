"""The model folder: the same model back, bit for bit; anything else is refused by name, and nothing in it can run."""

import json
import random
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deterministic import fill, whole_numbers
from heedful.errors import UserError
from heedful.files import MANIFEST, write_manifest
from heedful.models.folder import (
    CARD,
    CONFIG,
    FORMAT,
    WEIGHTS,
    find_model_folder,
    load_model,
    read_weights,
    save_model,
    weights_of,
)
from heedful.models.seq2seq import PatternConfig, Seq2Seq, Seq2SeqConfig
from heedful.text import TokenizerConfig, Tokenizers, learn_tokenizers

ENGLISH = ["a dog runs", "two men sit on a bench", "the animal didn't cross the street because it was too tired"]
GERMAN = ["ein Hund rennt", "zwei Männer sitzen auf einer Bank", "das Tier überquerte die Straße nicht"]


@pytest.fixture(scope="module")
def joint() -> Tokenizers:
    return learn_tokenizers(ENGLISH, GERMAN, TokenizerConfig(kind="char", vocab_size=60, byte_fallback=False))


@pytest.fixture(scope="module")
def separate() -> Tokenizers:
    return learn_tokenizers(
        ENGLISH, GERMAN, TokenizerConfig(kind="char", vocab_size=60, byte_fallback=False, joint=False)
    )


def make(tokenizers: Tokenizers | None = None, *, dtype=torch.float32, **changes) -> Seq2Seq:
    sizes = (11, 11) if tokenizers is None else (tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    settings = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 12, **changes}
    return fill(Seq2Seq(Seq2SeqConfig(*sizes, **settings)), dtype=dtype)


def logits(model: Seq2Seq) -> torch.Tensor:
    config = model.config
    source = whole_numbers(2, 5, below=config.source_vocab_size, name="s")
    return model(source, whole_numbers(2, 4, below=config.target_vocab_size, name="t"))


@pytest.fixture
def plain(tmp_path) -> Path:
    """A folder of a model that takes ids only: quick to load."""
    return save_model(tmp_path / "model", make(), None, card="# A model\n")


def refused(folder: Path, *words: str) -> str:
    with pytest.raises(UserError) as caught:
        load_model(folder)
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"
    return str(caught.value)


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

    monkeypatch.setattr(f"heedful.models.folder.{part}", fails)
    with pytest.raises(OSError, match="No space left"):
        save_model(tmp_path / "model", make(joint, d_ff=20), joint)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert torch.equal(logits(load_model(tmp_path / "model").model), logits(old))


def test_the_folder_that_a_path_means(tmp_path):
    run = tmp_path / "run"
    for name in ("last", "average", "best"):
        save_model(run / name, make(), None)
        assert find_model_folder(run) == run / name
        assert find_model_folder(str(run / name)) == run / name
    with pytest.raises(UserError, match="nowhere: no such folder"):
        find_model_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="neither a model folder"):
        find_model_folder(tmp_path)


def test_loading_does_not_import_what_only_initialising_needs(plain):
    """Drawing normal numbers on the meta device would: a second more for every command that loads a model."""
    script = (
        "import sys; from heedful.models.folder import load_model; before = len(sys.modules); load_model(sys.argv[1])"
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
def test_a_file_that_the_manifest_does_not_list_is_not_believed(tmp_path, joint, name):
    folder = save_model(tmp_path / "model", make(joint), joint)
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["sha256"][name]
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    refused(folder, name, "not listed")


def test_a_tokenizer_laid_beside_the_model_is_not_believed(plain, joint):
    joint.source.save(plain / "joint.spm")
    refused(plain, "joint.spm", "not listed")


# A folder that was made to deceive: its manifest is right


def rewrite(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # some file systems wait for the disk when a file is cut to zero and written again
    path.write_bytes(content)


def sealed(folder: Path) -> Path:
    (folder / MANIFEST).unlink(missing_ok=True)
    write_manifest(folder)
    return folder


def with_config(folder: Path, **changes) -> Path:
    values = {**json.loads((folder / CONFIG).read_text()), **changes}
    (folder / CONFIG).write_text(json.dumps({key: value for key, value in values.items() if value != "absent"}))
    return sealed(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, ["format 2", f"format {FORMAT}"]),
        ({"format": True}, ["format True"]),
        ({"format": 1.0}, ["format 1.0"]),
        ({"format": "absent"}, ["format None"]),
        ({"family": "seq2seqq"}, ["'family'", "did you mean 'seq2seq'"]),
        ({"family": ["seq2seq"]}, ["'family'"]),
        ({"family": "absent"}, ["'family'"]),
        ({"d_modle": 8}, ["unknown key 'd_modle'", "did you mean 'd_model'"]),
        ({"d_model": "8"}, ["'d_model' must be a whole number"]),
        ({"d_model": 8.0}, ["'d_model' must be a whole number"]),
        ({"d_model": None}, ["'d_model' must be a whole number"]),
        ({"d_model": "absent"}, ["has shape"]),  # the default is another number
        ({"source_vocab_size": "absent"}, ["'source_vocab_size' is missing"]),
        ({"norm": "layers"}, ["'norm'", "did you mean 'layer'"]),
        ({"pattern": {"kind": "full", "more": 1}}, ["unknown key 'pattern.more'"]),
        ({"pattern": 3}, ["'pattern' must be a table"]),
        ({"dropout": 1.5}, ["'dropout' must lie in"]),
        ({"n_layers": 10**9}, ["'n_layers' must lie between"]),
        ({"n_layers": 10**400}, ["'n_layers' must lie between"]),
        ({"n_heads": 3}, ["does not divide"]),
        ({"_attn_implementation": "x/y"}, ["unknown key"]),
    ],
)
def test_settings_that_do_not_fit_are_refused(plain, changes, words):
    refused(with_config(plain, **changes), CONFIG if "has shape" not in words else WEIGHTS, *words)


@pytest.mark.parametrize(
    "text", ['{"format": 1, "format": 1}', "", "[]", "{", "null", "[" * 100_000, '{"a": ' * 50_000, "\ufeff{}", "\0"]
)
def test_a_config_that_is_no_object_is_refused(plain, text):
    (plain / CONFIG).write_text(text, encoding="utf-8")
    refused(sealed(plain), CONFIG)


def test_sizes_beyond_reason_are_refused_at_once(plain):
    """The shapes are compared before any memory is taken or any layer of theirs is filled."""
    began = time.process_time()
    for changes in ({"d_model": 10**6, "n_heads": 1}, {"d_ff": 10**7}, {"max_len": 10**9, "positions": "learned"}):
        refused(with_config(plain, **{"d_model": 8, "n_heads": 2, "d_ff": 12, **changes}), WEIGHTS)
    assert time.process_time() - began < 5


def with_weights(folder: Path, change) -> Path:
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS)
    return sealed(folder)


FIRST = "encoder.layers.0.attention.to_q.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.pop(FIRST), ["missing 1", FIRST]),
        (lambda w: w.update(more=torch.zeros(1)), ["not asked for 1", "more"]),
        (lambda w: w.update({"head.linear.weight": torch.zeros(11, 8)}), ["not asked for 1", "head.linear.weight"]),
        (lambda w: w.update({FIRST: torch.zeros(8, 9)}), [FIRST, "shape (8, 9)", "(8, 8)"]),
        (lambda w: w.update({FIRST: torch.zeros(64)}), [FIRST, "shape (64,)"]),
        (lambda w: w[FIRST].fill_(torch.nan), [FIRST, "not finite"]),
        (lambda w: w[FIRST][0, 0].fill_(torch.inf), [FIRST, "not finite"]),
        (lambda w: w.update({FIRST: torch.zeros(8, 8, dtype=torch.int32)}), [FIRST, "type I32", "F32"]),
        (lambda w: w.update({FIRST: torch.zeros(8, 8, dtype=torch.bool)}), [FIRST, "type BOOL"]),
        (lambda w: w.update({FIRST: torch.zeros(8, 8).to(torch.float8_e4m3fn)}), [FIRST, "type F8"]),
        (lambda w: w.update({FIRST: w[FIRST].half()}), ["mixes F16 and F32"]),
        (lambda w: w.update({FIRST: w[FIRST].double()}), ["mixes F32 and F64"]),
    ],
    ids=lambda value: "" if callable(value) else " ".join(value),
)
def test_weights_that_do_not_fit_are_refused(plain, change, words):
    refused(with_weights(plain, change), WEIGHTS, *words)


@pytest.mark.parametrize("size", [-1, 1])
def test_a_vocabulary_that_does_not_match_is_refused(tmp_path, joint, separate, size):
    model = fill(
        Seq2Seq(Seq2SeqConfig(*[joint.source.vocab_size + size] * 2, d_model=8, n_layers=1, n_heads=2, d_ff=12)),
        dtype=torch.float32,
    )
    folder = save_model(tmp_path / "model", model, joint)
    message = refused(
        folder, "the source tokenizer has", f"{joint.source.vocab_size}", f"{model.config.source_vocab_size}"
    )
    assert CONFIG in message
    sizes = (separate.source.vocab_size, separate.target.vocab_size + size)
    model = fill(Seq2Seq(Seq2SeqConfig(*sizes, d_model=8, n_layers=1, n_heads=2, d_ff=12, tied="target")))
    refused(save_model(tmp_path / "model", model, separate), "the target tokenizer has")


def test_a_pickle_in_place_of_the_weights_is_refused_and_not_run(plain, tmp_path):
    trace = tmp_path / "ran"
    evil = f"cbuiltins\nopen\n(S'{trace}'\nS'w'\ntR.".encode()
    for content in (evil, b"\x80\x04" + evil, b"PK\x03\x04" + evil, struct.pack("<Q", len(evil)) + evil):
        (plain / WEIGHTS).write_bytes(content)
        refused(sealed(plain), WEIGHTS, "not a readable safetensors file")
    assert not trace.exists()


AUDIT = """
import pickle, sys
events = []
sys.addaudithook(lambda event, arguments: events.append(arguments) if event == "pickle.find_class" else None)

from heedful.models.folder import load_model, save_model
loaded = load_model(sys.argv[1])
save_model(sys.argv[1] + " again", loaded.model, loaded.tokenizers)
load_model(sys.argv[1] + " again")
print(len(events))
pickle.loads(pickle.dumps(pickle.Pickler))
print(len(events))
"""


def test_no_pickle_is_read_while_saving_and_loading(tmp_path, joint):
    """Python's own audit, in a process of its own; the last line shows that the hook would have seen it."""
    folder = save_model(tmp_path / "model", make(joint), joint)
    ran = subprocess.run([sys.executable, "-c", AUDIT, str(folder)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["0", "1"]


# Files made up by the thousand: a UserError or a sound model, never anything else

EXPECTED = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}


def file_of(header: object, data: bytes = bytes(40)) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


SOUND = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "F32", "shape": [4], "data_offsets": [24, 40]},
}
ODD = [
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64,
    10**30,
    1.5,
    1e400,
    "",
    "a",
    None,
    True,
    [],
    {},
    [1],
    {"a": 1},
    "\0",
    "F16",
    "I64",
    "F8_E4M3",
]


def mutated(value, choose: random.Random):
    """The same structure with one place changed: replaced, removed, doubled, wrapped, renamed."""
    if isinstance(value, dict) and value and choose.random() < 0.8:
        key = choose.choice(list(value))
        copy = dict(value)
        act = choose.random()
        if act < 0.15:
            del copy[key]
        elif act < 0.3:
            copy[choose.choice(["", "a", "b", "__metadata__", key + "x", "\ud83d\ude00"])] = copy.pop(key)
        elif act < 0.4:
            copy[choose.choice(["more", "__metadata__", "format"])] = choose.choice(ODD)
        else:
            copy[key] = mutated(value[key], choose)
        return copy
    if isinstance(value, list) and value and choose.random() < 0.8:
        place = choose.randrange(len(value))
        act = choose.random()
        if act < 0.2:
            return value[:place] + value[place + 1 :]
        if act < 0.4:
            return [*value[:place], value[place], *value[place:]]
        return [*value[:place], mutated(value[place], choose), *value[place + 1 :]]
    if isinstance(value, int) and choose.random() < 0.5:
        return value + choose.choice([-8, -4, -1, 1, 4, 8])
    return choose.choice(ODD)


def mutated_bytes(content: bytes, choose: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(choose.randint(1, 4)):
        place = choose.randrange(len(changed))
        act = choose.random()
        if act < 0.5:
            changed[place] = choose.randrange(256)
        elif act < 0.7:
            del changed[place : place + choose.randint(1, 8)]
        elif act < 0.9:
            changed[place:place] = bytes(choose.randrange(256) for _ in range(choose.randint(1, 8)))
        else:
            changed[place:place] = changed[place : place + choose.randint(1, 40)]
        changed = changed or bytearray(1)
    return bytes(changed)


def test_thousands_of_made_up_weight_files(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(file_of(SOUND))
    assert set(read_weights(path, expected=EXPECTED, device="cpu")) == {"a", "b"}
    choose = random.Random("headers")
    n_refused = 0
    for i in range(4000):
        if i % 2:
            header = SOUND
            for _ in range(choose.randint(1, 3)):
                header = mutated(header, choose)
            content = file_of(header, bytes(choose.choice([40, 40, 40, 0, 39, 41])))
        else:
            content = mutated_bytes(file_of(SOUND), choose)
        rewrite(path, content)
        try:
            weights = read_weights(path, expected=EXPECTED, device="cpu")
        except UserError as error:
            n_refused += 1
            assert str(path) in str(error)
        else:
            assert {name: tuple(w.shape) for name, w in weights.items()} == {"a": (2, 3), "b": (4,)}
    assert 3000 < n_refused < 4000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        struct.pack("<Q", 0),
        struct.pack("<Q", 2**64 - 1),
        struct.pack("<Q", 100_000_001) + b"{",
        file_of(b"{"),
        file_of(b"[]"),
        file_of(b"\xff\xfe"),
        file_of(b"[" * 100_000),
        file_of(b'{"a":' * 50_000),
        file_of(json.dumps(SOUND).encode()[:-1] + b', "a": ' + json.dumps(SOUND["a"]).encode() + b"}"),
        file_of({**SOUND, "b": {**SOUND["b"], "data_offsets": [0, 16]}}),  # overlapping
        file_of({**SOUND, "b": {**SOUND["b"], "data_offsets": [24, 2**40]}}),
        file_of({**SOUND, "a": {**SOUND["a"], "shape": [2**62, 2**62]}}),
        file_of({**SOUND, "__metadata__": {"a": 1}}),
        file_of(SOUND, bytes(1_000_000)),  # a hiding place behind the tensors
        file_of({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}, b""),
        file_of({"x" * 1_000_000: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}, b""),
    ],
    ids=lambda content: f"{content[8:40]!r} {len(content)}",
)
def test_known_tricks_are_refused_quickly_and_in_few_words(tmp_path, content):
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    began = time.process_time()
    with pytest.raises(UserError) as caught:
        read_weights(path, expected=EXPECTED, device="cpu")
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.process_time() - began < 2  # seconds of its own: the machine may have other work


def test_a_thousand_made_up_configs(plain):
    sound = json.loads((plain / CONFIG).read_text())
    choose = random.Random("configs")
    n_refused = 0
    for i in range(1000):
        values = sound
        for _ in range(choose.randint(1, 3)):
            values = mutated(values, choose)
        content = json.dumps(values).encode() if i % 4 else mutated_bytes(json.dumps(sound).encode(), choose)
        rewrite(plain / CONFIG, content)
        try:
            model = load_model(sealed(plain)).model
        except UserError as error:
            n_refused += 1
            assert str(plain) in str(error), content
        else:
            assert logits(model).isfinite().all()
    assert 500 < n_refused < 1000


def test_a_copy_of_a_folder_is_as_good(plain, tmp_path):
    shutil.copytree(plain, tmp_path / "copy")
    assert torch.equal(logits(load_model(tmp_path / "copy").model), logits(load_model(plain).model))
