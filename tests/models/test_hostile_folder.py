"""Model folders made to deceive, with a manifest that fits: refused in few words, and nothing in them runs."""

import json
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deterministic import fill
from heedful.errors import UserError
from heedful.models.model_io import CONFIG, FORMAT, WEIGHTS, load_model, read_weights, save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from model_folders import logits, make, refused, rewrite, sealed


def with_config(folder: Path, **changes) -> Path:
    values = {**json.loads((folder / CONFIG).read_text()), **changes}
    (folder / CONFIG).write_text(json.dumps({key: value for key, value in values.items() if value != "absent"}))
    return sealed(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 3}, ["format 3", f"format {FORMAT}"]),
        ({"format": True}, ["format True"]),
        ({"format": 2.0}, ["format 2.0"]),
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
    "text", ['{"format": 2, "format": 2}', "", "[]", "{", "null", "[" * 100_000, '{"a": ' * 50_000, "\ufeff{}", "\0"]
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
        (lambda w: w.update(more=torch.zeros(1)), ["unexpected 1", "more"]),
        (lambda w: w.update({"head.linear.weight": torch.zeros(11, 8)}), ["unexpected 1", "head.linear.weight"]),
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

from heedful.models.model_io import load_model, save_model
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
