"""A damaged model, or one with other special ids, is refused with its name and a reason and never crashes."""

import io
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece

from heedful.errors import UserError
from heedful.text import SentencePieceTokenizer, TokenizerConfig, load_tokenizer, sentencepiece_model

Of = Callable[[TokenizerConfig], SentencePieceTokenizer]


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def piece(text: bytes, *, score: float = 0.0, kind: int = 1) -> bytes:
    return message(1, message(1, text) + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(kind))


SPECIALS = piece(b"<pad>", kind=3) + piece(b"<unk>", kind=2) + piece(b"<s>", kind=3) + piece(b"</s>", kind=3)
BASE = SPECIALS + piece("▁a".encode()) + piece(b"a") + piece("▁".encode())
BPE = message(2, b"\x18\x02")


def charsmap(units: list[int], normalized: bytes) -> bytes:
    trie = struct.pack(f"<{len(units)}I", *units)
    return message(3, message(2, struct.pack("<I", len(trie)) + trie + normalized))


BAD = {
    "empty file": (b"", "no pieces"),
    "text": (b"not a model at all, only words", "byte"),
    "zeros": (bytes(100), "no pieces"),
    "long piece": (BASE + piece(b"x" * 200_000) + BPE, "piece 7 .* 200,000 bytes"),
    "NUL": (BASE + piece(b"x\0y"), "piece 7 .*NUL"),
    "empty piece": (BASE + piece(b""), "piece 7 .* 0 bytes"),
    "not UTF-8": (BASE + piece(b"\xff\xfe"), "piece 7 .*not UTF-8"),
    "twice": (BASE + piece(b"a"), "it has the piece 'a' twice"),
    "score": (BASE + piece(b"b", score=float("nan")), "score nan"),
    "type": (BASE + piece(b"b", kind=9), "unknown type 9"),
    "kind": (BASE + message(2, b"\x18\x09"), "unknown kind of model: 9"),
    "two unknowns": (BASE + piece(b"<unk2>", kind=2), "2 unknown pieces"),
    "no unknown": (piece(b"<pad>", kind=3), "0 unknown pieces"),
    "byte piece": (BASE + piece(b"<0xZZ>", kind=6), "<0xZZ>"),
    "few bytes": (BASE + piece(b"<0x41>", kind=6) + message(2, b"\x98\x02\x01"), "1 of the 256"),
    "length": (BASE + varint(1 << 3 | 2) + varint(2**40), "1,099,511,627,776 bytes at byte"),
    "endless number": (BASE + b"\xff" * 30 + b"\x01", "number without an end"),
    "group": (BASE + b"\x0b", "wire type 3"),
    "many fields": (message(2, b"\x08\x01" * 200_000), "more than 100,000 fields"),
    "no escapes": (BASE + message(3, b"\x28\x00"), "escape_whitespaces"),
    "settings": (BASE + BPE + message(2000, b'{"kind": '), "settings inside"),
    "unknown setting": (BASE + BPE + message(2000, b'{"kynd": "bpe"}'), "did you mean 'kind'"),
    "other kind": (BASE + BPE + message(2000, b'{"kind": "unigram"}'), "'bpe', but its settings have 'unigram'"),
    "foreign ids": (piece(b"<unk>", kind=2) + piece(b"<s>", kind=3) + piece(b"a"), "pad 0, unknown 1"),
}


@pytest.mark.parametrize(("model", "reason"), BAD.values(), ids=BAD)
def test_a_bad_model_is_refused_with_its_name_and_a_reason(model: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.model"
    path.write_bytes(model)
    with pytest.raises(UserError, match=reason) as caught:
        load_tokenizer(path, probe=False)  # even where no child would look
    assert str(path) in str(caught.value)


# What only SentencePiece itself can judge: the child meets it first.
SUSPECT = {
    "cut table": charsmap([2**31 - 1] * 64, b"abc"),
    "table out of bounds": charsmap([0x3FFFFF << 10] * 256, b"abc\0"),
    "random table": charsmap([random.Random(n).getrandbits(32) for n in range(256)], b"abc\0"),
}


@pytest.mark.parametrize("table", SUSPECT.values(), ids=SUSPECT)
def test_a_crafted_table_is_refused_by_the_child(table: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.model"
    path.write_bytes(BASE + BPE + table)
    with pytest.raises(UserError, match="cannot be used"):
        load_tokenizer(path)


def test_a_crash_of_the_child_is_a_user_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "good.model"
    path.write_bytes(BASE + BPE)
    assert load_tokenizer(path).encode("a") == [4]
    monkeypatch.setattr(sentencepiece_model, "_CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(UserError, match=r"crashes SentencePiece \(signal 11, "):
        load_tokenizer(path)
    monkeypatch.setattr(sentencepiece_model, "_CHILD", "import time; time.sleep(60)")
    monkeypatch.setattr(sentencepiece_model, "_CHILD_SECONDS", 0.2)
    with pytest.raises(UserError, match="did not finish"):
        load_tokenizer(path)


def test_mutated_models_give_an_answer_or_a_user_error(tokenizer_of: Of) -> None:
    model = tokenizer_of(TokenizerConfig(kind="bpe", vocab_size=700)).model
    chance = random.Random(0)
    n_refused = 0
    for _ in range(400):
        mutant = bytearray(model)
        for _ in range(chance.choice([1, 3, 20])):
            mutant[chance.randrange(len(mutant))] = chance.randrange(256)
        if chance.random() < 0.3:
            del mutant[chance.randrange(len(mutant)) :]
        try:
            sentencepiece_model.read_model(bytes(mutant), where="mutant")
        except UserError:
            n_refused += 1
    assert 200 < n_refused < 400


def test_a_missing_or_too_large_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_tokenizer(tmp_path / "missing.spm")
    with pytest.raises(UserError, match="no such file"):
        load_tokenizer(tmp_path)
    (tmp_path / "large.spm").touch()
    with (tmp_path / "large.spm").open("r+b") as file:
        file.truncate(sentencepiece_model.MAX_MODEL_BYTES + 1)
    monkeypatch.delattr(Path, "read_bytes")  # it is refused without being read
    with pytest.raises(UserError, match="at most"):
        load_tokenizer(tmp_path / "large.spm")


@pytest.mark.parametrize("suffix", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
@pytest.mark.parametrize("rule", ["nmt_nfkc", "identity"])
def test_a_model_of_another_program_gives_the_ids_of_sentencepiece(
    lines: list[str], tmp_path: Path, rule: str, kind: str, suffix: bool
) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, vocab_size=600, hard_vocab_limit=False,
        treat_whitespace_as_suffix=suffix, byte_fallback=True, normalization_rule_name=rule,
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    path = tmp_path / "foreign.model"
    path.write_bytes(model.getvalue())
    ours = load_tokenizer(path)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    texts = [*lines, "  two   spaces ", "ﬁne Ａ", "", "   ", "e\u0301 🐶\n"]
    assert ours.encode_batch(texts) == [theirs.encode(text) for text in texts]
    assert ours.decode_batch(ours.encode_batch(texts)) == [ours.normalize(text) for text in texts]
