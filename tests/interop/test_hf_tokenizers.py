"""Tokenizers of Hugging Face checkpoints give the ids of `transformers` for any text; hostile files are refused."""

import io
import json
import pickle
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
import sentencepiece

from heedful.decoding.encoder_inputs import masked_ids
from heedful.errors import MissingExtra, UserError
from heedful.interop.huggingface.tokenizer_export import merges_of, write_converted, write_tokenizer_json
from heedful.interop.huggingface.tokenizer_import import drop_tokens_beyond_embedding, import_tokenizers
from heedful.text import (
    HFTokenizer,
    TokenizerConfig,
    Tokenizers,
    learn_tokenizer,
    load_tokenizers,
    save_tokenizers,
)
from heedful.text.hf_tokenizer import MAX_JSON_BYTES
from hostile_strings import hostile_strings

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

PROJECT = Path(__file__).parents[2]
TEXTS = hostile_strings()


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """Some thousands of lines in several scripts: the pages in docs/ and the hostile strings."""
    pages = [line for path in sorted((PROJECT / "docs").glob("*.md")) for line in path.read_text().splitlines()]
    return [*pages, *(text for text in TEXTS[200:1500] if text.isprintable())]


def word_piece_folder(folder: Path, lines: list[str], *, lowercase: bool) -> Path:
    from tokenizers import BertWordPieceTokenizer

    trained = BertWordPieceTokenizer(lowercase=lowercase)
    trained.train_from_iterator(lines, vocab_size=600, show_progress=False)
    trained.save_model(str(folder))
    settings = {"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def byte_level_folder(folder: Path, lines: list[str], special: list[str]) -> Path:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(lines, vocab_size=700, special_tokens=special, show_progress=False)
    trained.save_model(str(folder))
    return folder


def pieces_folder(folder: Path, name: str, lines: list[str], **settings) -> Path:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for line in lines if line.strip() and len(line.encode()) < 4000),
        model_writer=model,
        vocab_size=1500,
        character_coverage=0.98,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    (folder / name).write_bytes(model.getvalue())
    return folder


T5 = {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
LLAMA = {
    "model_type": "bpe",
    "unk_id": 0,
    "bos_id": 1,
    "eos_id": 2,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
}


def write_config(folder: Path, model_type: str) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))


CLASSES = {
    "bert": transformers.BertTokenizer,
    "bert cased": transformers.BertTokenizer,
    "gpt2": transformers.GPT2Tokenizer,
    "bart": transformers.BartTokenizer,
    "t5": transformers.T5Tokenizer,
    "pegasus": transformers.PegasusTokenizer,
    "llama": transformers.LlamaTokenizer,
}
KINDS = tuple(CLASSES)
_trained: dict[str, dict[str, bytes]] = {}  # kind -> its files, trained once


def made(kind: str, folder: Path, lines: list[str]):
    """Write the folder of a tokenizer and return what `transformers` loads from it."""
    if kind not in _trained:
        with tempfile.TemporaryDirectory() as new:
            train_files(kind, Path(new), lines)
            _trained[kind] = {path.name: path.read_bytes() for path in Path(new).iterdir()}
    for name, content in _trained[kind].items():
        (folder / name).write_bytes(content)
    write_config(folder, kind.split()[0])
    return CLASSES[kind].from_pretrained(folder)


def train_files(kind: str, folder: Path, lines: list[str]) -> None:
    if kind in ("bert", "bert cased"):
        word_piece_folder(folder, lines, lowercase=kind == "bert")
    elif kind == "gpt2":
        byte_level_folder(folder, lines, ["<|endoftext|>"])
    elif kind == "bart":
        byte_level_folder(folder, lines, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    elif kind in ("t5", "pegasus"):
        pieces_folder(folder, "spiece.model", lines, **T5)
    else:
        pieces_folder(folder, "tokenizer.model", lines, **LLAMA)
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')


def same_ids(ours, theirs, texts: list[str] = TEXTS) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = theirs(texts, add_special_tokens=False)["input_ids"]
    assert [text for text, a, b in zip(texts, ours.encode_batch(texts), wanted, strict=True) if a != b] == []
    assert ours.vocab_size >= len(theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_equal_those_of_transformers(kind: str, lines: list[str], tmp_path: Path) -> None:
    assert len(TEXTS) == 5000
    theirs = made(kind, tmp_path, lines)
    model_type = kind.split()[0]
    ours = import_tokenizers(tmp_path, model_type=model_type).source
    same_ids(ours, theirs)
    saved = tmp_path / "saved"
    theirs.save_pretrained(saved)  # now as a tokenizer.json
    write_config(saved, model_type)
    assert (saved / "tokenizer.json").is_file()
    same_ids(import_tokenizers(saved, model_type=model_type).source, theirs)
    special = ours.special_ids
    assert special.eos_id == (theirs.sep_token_id if theirs.sep_token else theirs.eos_token_id)
    assert special.mask_id == theirs.mask_token_id
    if theirs.pad_token:
        assert special.pad_id == theirs.pad_token_id


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_folder_keeps_the_tokenizer(kind: str, lines: list[str], tmp_path: Path) -> None:
    made(kind, tmp_path, lines)
    tokenizers = import_tokenizers(tmp_path, model_type=kind.split()[0])
    paths = save_tokenizers(tmp_path / "kept", tokenizers)
    assert sorted(path.name for path in paths) == ["special_tokens_map.json", "tokenizer.json"]
    again = load_tokenizers(tmp_path / "kept")
    assert again.joint
    assert again.source.fingerprint == tokenizers.source.fingerprint
    assert again.source.special_ids == tokenizers.source.special_ids
    assert again.source.encode_batch(TEXTS[:300]) == tokenizers.source.encode_batch(TEXTS[:300])


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_tokenizer_gives_transformers_equal_ids(kind: str, lines: list[str], tmp_path: Path) -> None:
    first = made(kind, tmp_path, lines)
    tokenizers = import_tokenizers(tmp_path, model_type=kind.split()[0])
    (tmp_path / "there").mkdir()
    write_converted(tokenizers, tmp_path / "there")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "there")
    same_ids(tokenizers.source, theirs, TEXTS[:1000])
    assert theirs.unk_token == tokenizers.source.roles["unk_token"]
    wanted = first(TEXTS[:500])["input_ids"]  # with their marks
    assert theirs(TEXTS[:500])["input_ids"] == wanted


def hub_content(kind: str, lines: list[str]) -> dict:
    """A tokenizer.json as on the hub, written by an earlier version than Transformers 5."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = made(kind, Path(folder), lines)
        values = json.loads(theirs.backend_tokenizer.to_str())
    if kind == "llama":
        spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        normalizers = [{"type": "Prepend", "prepend": "▁"}, spaces]
        values["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
        values["pre_tokenizer"] = None
        values["model"] |= {"unk_token": "<unk>", "merges": [" ".join(pair) for pair in values["model"]["merges"]]}
    if kind == "t5":
        metaspace = {"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": True}
        values["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
        values["decoder"] = metaspace
    if kind == "bart":
        for token in values["added_tokens"]:
            token["lstrip"] = token["content"] == "<mask>"
    return values


@pytest.fixture(scope="module")
def hub(lines: list[str]) -> dict[str, dict]:
    return {kind: hub_content(kind, lines) for kind in KINDS}


USER = {"content": "the", "single_word": True, "lstrip": True, "rstrip": False, "normalized": True, "special": False}
HUB = {  # the kind of tokenizer.json, and tokenizer_config.json
    "Llama 2, legacy": ("llama", {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True}),
    "Llama 2, not legacy": ("llama", {"tokenizer_class": "LlamaTokenizer", "legacy": False}),
    "Llama 2, fast": ("llama", {"tokenizer_class": "LlamaTokenizerFast", "eos_token": "<eos>"}),
    "Llama 2, general": ("llama", {"tokenizer_class": "PreTrainedTokenizerFast", "additional_special_tokens": ["of"]}),
    "Llama 2, no class": ("llama", {}),
    "Llama 2, no prefix": ("llama", {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}),
    "Llama 3": ("gpt2", {"tokenizer_class": "LlamaTokenizerFast", "model_type": "llama"}),
    "GPT-2": ("gpt2", {"unk_token": None, "model_max_length": 1024}),
    "GPT-2, prefix": ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}),
    "GPT-2, general": ("gpt2", {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": True}),
    "BART": ("bart", {"tokenizer_class": "BartTokenizerFast", "trim_offsets": True}),
    "BART, prefix": ("bart", {"tokenizer_class": "BartTokenizer", "add_prefix_space": True}),
    "BERT cased, says so": ("bert cased", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}),
    "BERT cased, silent": ("bert cased", {"tokenizer_class": "BertTokenizer"}),
    "BERT cased, denies it": ("bert cased", {"do_lower_case": True, "strip_accents": False}),
    "BERT cased, general": ("bert cased", {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "BERT, Chinese together": ("bert", {"tokenizer_class": "BertTokenizerFast", "tokenize_chinese_chars": False}),
    "BERT, its own pieces": ("bert", {"extra_special_tokens": ["of", "Ünseen"], "image_token": "<image>"}),
    "BERT, numbered": ("bert", {"added_tokens_decoder": {"700": USER, "3": {**USER, "content": "[SEP]"}}}),
    "general, numbered": (
        "bert",
        {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": {"700": USER}, "mask_token": "<hide>"},
    ),
    "T5": ("t5", {"tokenizer_class": "T5Tokenizer", "extra_ids": 100, "eos_token": "</s>"}),
    "T5, its own pieces": ("t5", {"tokenizer_class": "T5TokenizerFast", "additional_special_tokens": ["<extra_id_3>"]}),
    "T5, general": ("t5", {"tokenizer_class": "PreTrainedTokenizerFast"}),
}  # fmt: skip


@pytest.mark.parametrize("case", HUB)
def test_ids_of_a_hub_folder_equal_those_of_auto_tokenizer(case: str, hub: dict, tmp_path: Path) -> None:
    kind, settings = HUB[case]
    model_type = settings.get("model_type", kind.split()[0])
    (tmp_path / "tokenizer.json").write_text(json.dumps(hub[kind]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    same_as_auto(tmp_path, model_type)


def same_as_auto(folder: Path, model_type: str) -> None:
    write_config(folder, model_type)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = import_tokenizers(folder, model_type=model_type).source
    same_ids(ours, theirs, TEXTS[:1000])
    assert ours.vocab_size == len(theirs)
    for role, piece in ours.roles.items():
        assert getattr(theirs, role) in (
            piece,
            None,
        )  # None: theirs has no part for it, ours found it in the vocabulary


PLAIN = ("bert", "gpt2", "bart", "llama", "t5")


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("numbered", [False, True])
def test_tokens_added_in_other_files_are_found(kind: str, numbered: bool, lines: list[str], tmp_path: Path) -> None:
    n_pieces = len(made(kind, tmp_path, lines))
    added = {"<|user|>": n_pieces + 1, "The": n_pieces, "Ünseen": n_pieces + 2}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    special = {"additional_special_tokens": ["<|user|>", "<|new|>"], "pad_token": "<|pad|>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text()) if path.is_file() else {}
    if numbered:
        settings["added_tokens_decoder"] = {str(n_pieces): {**USER, "content": "<|user|>"}, "9999": USER}
    path.write_text(json.dumps(settings))
    same_as_auto(tmp_path, kind)
    texts = ["Hello<|user|> there <|pad|>x", "The <|new|> dog <|user|>", "ünseen, Ünseen  the <|user|>"]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    same_ids(import_tokenizers(tmp_path, model_type=kind).source, theirs, texts)


@pytest.mark.parametrize("kind", PLAIN)
def test_special_tokens_are_split_with_split_special_tokens(kind: str, lines: list[str], tmp_path: Path) -> None:
    special = made(kind, tmp_path, lines).all_special_tokens
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**settings, "split_special_tokens": True}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|user|>": 9999}))  # not special: still found
    texts = [f"Hello{piece} there {piece}<|user|>x" for piece in special]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = import_tokenizers(tmp_path, model_type=kind).source
    same_ids(ours, theirs, texts)
    (tmp_path / "kept").mkdir()
    (tmp_path / "there").mkdir()
    save_tokenizers(tmp_path / "kept", Tokenizers(ours, ours))
    kept = load_tokenizers(tmp_path / "kept").source
    assert kept.fingerprint == ours.fingerprint
    write_converted(Tokenizers(kept, kept), tmp_path / "there")
    for one in (kept, pickle.loads(pickle.dumps(kept))):  # noqa: S301
        same_ids(one, transformers.AutoTokenizer.from_pretrained(tmp_path / "there"), texts)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tokenizer_config.json", {"split_special_tokens": "yes"}),
        ("added_tokens.json", {"<a>": "1"}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": "<a>"}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"700": {"content": 5}}}),
        ("tokenizer_config.json", {"additional_special_tokens": [{"content": "<a>", "lstrip": 1}]}),
        ("special_tokens_map.json", {"additional_special_tokens": "<a>"}),
    ],
    ids=str,
)
def test_a_folder_with_bad_settings_is_refused(name: str, values: dict, tmp_path: Path) -> None:
    write_config(tmp_path, "gpt2")
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain()))
    (tmp_path / name).write_text(json.dumps(values))
    with pytest.raises(UserError, match=rf"transformers cannot read its tokenizer \(.*{re.escape(name)}"):
        import_tokenizers(tmp_path, model_type="gpt2")


def test_a_unigram_model_with_byte_fallback_gives_equal_ids(lines: list[str], tmp_path: Path) -> None:
    pieces_folder(tmp_path, "tokenizer.model", lines, **{**LLAMA, "model_type": "unigram"})
    write_config(tmp_path, "llama")
    theirs = transformers.TokenizersBackend.from_pretrained(tmp_path)
    same_ids(import_tokenizers(tmp_path, model_type="llama").source, theirs)


OWN = {
    "bpe": {"kind": "bpe"},
    "char": {"kind": "char"},
    "without bytes": {"kind": "bpe", "byte_fallback": False},
    "as it is": {"kind": "bpe", "unicode_form": "none"},
    "nfkc": {"kind": "bpe", "unicode_form": "nfkc"},
}
WRITTEN_OUT = ("▁", "<pad>", "<unk>", "<s>", "</s>", "<mask>")


def own_tokenizers(lines: list[str], **settings) -> Tokenizers:
    config = TokenizerConfig(vocab_size=1500, character_coverage=0.99, special_tokens=("<mask>",), **settings)
    tokenizer = learn_tokenizer(lines, config)
    return Tokenizers(source=tokenizer, target=tokenizer)


@pytest.mark.parametrize("case", OWN)
def test_heedfuls_own_tokenizer_gives_transformers_equal_ids(case: str, lines: list[str], tmp_path: Path) -> None:
    tokenizers = own_tokenizers(lines, **OWN[case])
    write_tokenizer_json(tokenizers, tmp_path, model_type="bert")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [text for text in TEXTS if not any(piece in text for piece in WRITTEN_OUT)]
    assert len(texts) > 4000
    wanted = tokenizers.source.encode_batch(texts)
    found = theirs(texts, add_special_tokens=False)["input_ids"]
    assert [text for text, a, b in zip(texts, found, wanted, strict=True) if a != b] == []
    special = tokenizers.source.special_ids
    assert theirs(texts[50])["input_ids"] == [special.bos_id, *wanted[50], special.eos_id]
    assert (theirs.pad_token_id, theirs.mask_token_id) == (special.pad_id, special.mask_id)
    [hidden] = [theirs("the model <mask> text", add_special_tokens=False)["input_ids"]]
    assert hidden == masked_ids(tokenizers.source, "the model [MASK] text", mask_id=special.mask_id)
    plain = "A dog, and a café: 犬"
    assert theirs.decode(tokenizers.source.encode(plain)) == plain or case in ("without bytes", "char")


@pytest.mark.parametrize(
    "settings", [{"kind": "word"}, {"kind": "unigram"}, {"whitespace": "suffix"}, {"lowercase": True}], ids=str
)
def test_a_tokenizer_that_no_tokenizer_json_expresses_is_refused(
    settings: dict, lines: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no tokenizer like this"):
        write_tokenizer_json(own_tokenizers(lines[:300], **settings), tmp_path, model_type="bert")


def test_merges_are_in_the_order_of_transformers() -> None:
    from transformers.tokenization_utils_base import generate_merges

    pieces = ["ddd", "dd", "d", "dddd", *"abc", "ab", "bc", "abc", "aa", "aaa", "cab", "abcab", "ca", "aab", "caab"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    assert merges_of(vocabulary) == generate_merges(vocabulary)


def marian_folder(folder: Path, lines: list[str]) -> Path:
    for name, part in (("source.spm", lines[::2]), ("target.spm", lines[1::2])):
        pieces_folder(folder, name, part, model_type="unigram", bos_id=-1)
    pieces = {}
    for name in ("source.spm", "target.spm"):
        processor = sentencepiece.SentencePieceProcessor(model_proto=(folder / name).read_bytes())
        pieces |= dict.fromkeys(processor.id_to_piece(number) for number in range(processor.get_piece_size()))
    kept = [piece for piece in pieces if piece not in ("<unk>", "</s>", "<s>")]
    order = ["</s>", "<unk>", *kept[: len(kept) * 9 // 10], ">>fr<<", "<pad>"]  # a tenth is missing: unknown there
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(order)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    write_config(folder, "marian")
    return folder


def test_marians_ids_equal_those_of_transformers(lines: list[str], tmp_path: Path) -> None:
    theirs = transformers.MarianTokenizer.from_pretrained(marian_folder(tmp_path, lines))
    ours = import_tokenizers(tmp_path, model_type="marian")
    theirs.punc_normalizer = lambda text: text  # sacremoses may be installed; ids are compared without it
    wanted = theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert [text for text, a, b in zip(TEXTS, ours.source.encode_batch(TEXTS), wanted, strict=True) if a != b] == []
    wanted = theirs(text_target=TEXTS, add_special_tokens=False)["input_ids"]
    assert [text for text, a, b in zip(TEXTS, ours.target.encode_batch(TEXTS), wanted, strict=True) if a != b] == []
    assert (ours.source.special_ids.eos_id, ours.source.special_ids.unk_id) == (
        theirs.eos_token_id,
        theirs.unk_token_id,
    )
    assert ours.source.special_ids.pad_id == theirs.pad_token_id
    assert ours.source.kind == ours.target.kind == "unigram"
    save_tokenizers(tmp_path / "kept", ours)
    again = load_tokenizers(tmp_path / "kept")
    assert again.source.encode_batch(TEXTS[:100]) == ours.source.encode_batch(TEXTS[:100])
    assert again.target.fingerprint == ours.target.fingerprint
    assert ours.source.decode(ours.source.encode("The dog runs.")) == "The dog runs."


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("added_tokens.json", {"<user>": 9999}, "the piece '<user>'"),
        ("special_tokens_map.json", {"additional_special_tokens": ["<user>"]}, "the piece '<user>'"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"9999": USER}}, "the piece 'the'"),
        ("tokenizer_config.json", {"eos_token": "<pad>"}, "'eos_token' is '<pad>'"),
        ("tokenizer_config.json", {"split_special_tokens": True}, "'split_special_tokens' is true"),
    ],
    ids=str,
)
def test_a_marian_folder_with_other_special_tokens_is_refused(
    name: str, values: dict, words: str, lines: list[str], tmp_path: Path
) -> None:
    """`transformers` would find added tokens in a text, or no special tokens: texts would get other ids."""
    folder = marian_folder(tmp_path, lines[:500])
    (folder / name).write_text(json.dumps(values))
    with pytest.raises(UserError, match=re.escape(words)):
        import_tokenizers(folder, model_type="marian")


def test_a_marian_folder_may_name_its_usual_special_tokens(lines: list[str], tmp_path: Path) -> None:
    folder = marian_folder(tmp_path, lines[:500])
    ids = json.loads((folder / "vocab.json").read_text())
    marks = {
        "eos_token": "</s>",
        "unk_token": {**USER, "__type": "AddedToken", "content": "<unk>"},
        "pad_token": "<pad>",
    }
    decoder = {str(ids[piece]): {**USER, "content": piece} for piece in ("</s>", "<unk>", "<pad>")}
    (folder / "special_tokens_map.json").write_text(json.dumps(marks))
    (folder / "tokenizer_config.json").write_text(json.dumps({**marks, "added_tokens_decoder": decoder}))
    assert import_tokenizers(folder, model_type="marian") is not None


@pytest.fixture(scope="module")
def bert(lines: list[str], tmp_path_factory) -> HFTokenizer:
    folder = word_piece_folder(tmp_path_factory.mktemp("bert"), lines, lowercase=True)
    return import_tokenizers(folder, model_type="bert").source


def with_pieces(tokenizer: HFTokenizer, *pieces: str, **roles: str) -> HFTokenizer:
    """Return the tokenizer with more special tokens, after all other ids."""
    values = json.loads(tokenizer.content)
    same = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    for number, piece in enumerate(pieces, start=tokenizer.vocab_size):
        values["added_tokens"].append({"id": number, "content": piece, **same})
    return HFTokenizer(json.dumps(values), {**tokenizer.roles, **roles})


@pytest.mark.parametrize("kind", ["gpt2", "t5"])  # pieces by name, and in a list
def test_special_tokens_beyond_the_embedding_are_left_out(kind: str, lines: list[str], tmp_path: Path) -> None:
    made(kind, tmp_path, lines)
    plain = import_tokenizers(tmp_path, model_type=kind).source
    longer = with_pieces(plain, "<|pad|>", "<|tool|>", pad_token="<|pad|>")
    found, left = drop_tokens_beyond_embedding(longer, plain.vocab_size, where="folder")
    assert (left, found.vocab_size) == (["<|pad|>", "<|tool|>"], plain.vocab_size)
    assert (
        found.special_ids.pad_id != longer.special_ids.pad_id and found.special_ids.eos_id == plain.special_ids.eos_id
    )
    assert found.encode_batch(TEXTS[:500]) == plain.encode_batch(TEXTS[:500])
    assert drop_tokens_beyond_embedding(longer, longer.vocab_size + 3, where="folder") == (
        longer,
        [],
    )
    with pytest.raises(UserError, match=r"folder: the tokenizer's piece '<\|end\|>' has the id"):
        drop_tokens_beyond_embedding(
            with_pieces(plain, "<|end|>", eos_token="<|end|>"), plain.vocab_size, where="folder"
        )


def test_a_required_mask_beyond_the_embedding_is_refused(bert: HFTokenizer) -> None:
    longer = with_pieces(bert, "[HIDDEN]", mask_token="[HIDDEN]")
    with pytest.raises(UserError, match=r"piece '\[HIDDEN\]' has the id"):
        drop_tokens_beyond_embedding(longer, bert.vocab_size, optional_roles=(), where="folder")


def test_a_lone_surrogate_is_repaired(bert: HFTokenizer) -> None:
    assert bert.encode("dog \ud83d runs") == bert.encode("dog \ufffd runs")


def test_the_protocol(bert: HFTokenizer) -> None:
    ids = bert.encode("the model [MASK] text")
    assert bert.special_ids.mask_id in ids
    assert bert.pieces([bert.special_ids.bos_id, bert.special_ids.eos_id]) == ["[CLS]", "[SEP]"]
    assert bert.id_of("[MASK]") == bert.special_ids.mask_id
    assert "[CLS]" not in bert.decode([bert.special_ids.bos_id, *ids, bert.special_ids.eos_id])
    assert bert.decode_batch([bert.encode("the model")]) == ["the model"]
    assert not bert.can_sample
    assert bert.count_unknown("\U000e0041") == 0 or bert.special_ids.unk_id in bert.encode("\U000e0041")
    with pytest.raises(UserError, match="cannot sample"):
        bert.sample_batch(["a"], seed=0)
    with pytest.raises(UserError, match="not in the vocabulary"):
        bert.decode([10**6])
    with pytest.raises(UserError, match="no piece"):
        bert.id_of("never in there")


def test_it_can_be_pickled(bert: HFTokenizer) -> None:
    kind, arguments = bert.__reduce__()
    assert kind(*arguments).fingerprint == bert.fingerprint


def test_padding_and_truncation_of_the_file_are_ignored(bert: HFTokenizer, tmp_path: Path) -> None:
    backend = Tokenizer.from_str(bert.content)
    backend.enable_truncation(3)
    backend.enable_padding(length=50)
    write_config(tmp_path, "bert")
    (tmp_path / "tokenizer.json").write_text(backend.to_str())
    ours = import_tokenizers(tmp_path, model_type="bert").source
    assert ours.encode_batch(TEXTS[:50]) == bert.encode_batch(TEXTS[:50])
    direct = HFTokenizer(backend.to_str(), bert.roles)
    assert direct.encode_batch(TEXTS[:50]) == bert.encode_batch(TEXTS[:50])


def test_a_folder_without_tokenizer_files_has_none(tmp_path: Path) -> None:
    assert import_tokenizers(tmp_path, model_type="bert") is None


def test_files_that_the_declared_class_reads_otherwise(lines: list[str], tmp_path: Path) -> None:
    """HerBERT's class reads the two files of a byte-level BPE as a BPE of characters."""
    made("bart", tmp_path, lines)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "HerbertTokenizerFast"}')
    same_as_auto(tmp_path, "bert")


@pytest.mark.parametrize(
    ("declared", "name", "reason"),
    [
        ("BertJapaneseTokenizer", "vocab.txt", "is a BertJapaneseTokenizer, which is Python code"),
        ("CpmTokenizer", "spiece.model", "cannot read its tokenizer .*CpmTokenizer"),  # needs a package of its own
    ],
)
def test_a_tokenizer_that_no_tokenizer_json_describes_is_refused(
    declared: str, name: str, reason: str, lines: list[str], tmp_path: Path
) -> None:
    kind = {"vocab.txt": "bert", "spiece.model": "t5"}[name]
    made(kind, tmp_path, lines)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": declared}))
    with pytest.raises(UserError, match=reason) as caught:
        import_tokenizers(tmp_path, model_type=kind)
    assert name in str(caught.value)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "bart", "llama", "t5"])
def test_the_general_class_takes_the_usual_special_tokens(
    kind: str, lines: list[str], hub: dict, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(hub[kind]))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    write_config(tmp_path, kind)
    (tmp_path / "own").mkdir()
    theirs = made(kind, tmp_path / "own", lines)  # of the class that has these special tokens by itself
    special = import_tokenizers(tmp_path, model_type=kind).source.special_ids
    assert special.eos_id == (theirs.sep_token_id if theirs.sep_token else theirs.eos_token_id)
    assert (special.unk_id, special.mask_id) == (theirs.unk_token_id, theirs.mask_token_id)


def plain() -> dict:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.train_from_iterator(["a few words are enough"], trainer)
    return json.loads(tokenizer.to_str())


def hostile(**changes) -> str:
    values = plain()
    for path, value in changes.items():
        inner = values
        *outer, last = path.split("__")
        for name in outer:
            inner = inner[name]
        inner[last] = value
    return json.dumps(values)


def nested(depth: int) -> dict:
    return {"type": "Sequence", "normalizers": [nested(depth - 1)] if depth else []}


HOSTILE = {
    "no json": ("{", "not a usable tokenizer.json"),
    "a list": ("[]", "the key 'model' is missing"),
    "deeper than a stack": ("[" * 100_000, "not a usable tokenizer.json"),
    "twice": ('{"model": {}, "model": {}}', "twice"),
    "another key": (hostile(auto_map="x"), "auto_map"),
    "another model": (hostile(model__type="Python"), "Python"),
    "no vocabulary": (hostile(model__vocab=None), "not a usable"),
    "an id without end": (hostile(model__vocab={"a": 10**15}), "id"),
    "a negative id": (hostile(model__vocab={"a": -1}), "id"),
    "no number": (hostile(model__vocab={"a": "1"}), "id"),
    "one id for two": (hostile(model__vocab={"a": 0, "b": 0}), "same id"),
    "chance": (hostile(model__dropout=0.5), "dropout"),
    "merges of nothing": (hostile(model__merges=[["no", "where"]]), "cannot be used"),
    "another part": (hostile(pre_tokenizer={"type": "Exec", "code": "1"}), "Exec"),
    "parts within parts": (
        hostile(normalizer=nested(9)),
        "too deep",
    ),
    "an endless prefix": (hostile(normalizer={"type": "Prepend", "prepend": "x" * 10**5}), "characters"),
    "a search for nothing": (
        hostile(normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "xxxx"}),
        "searches for nothing",
    ),
    "growing": (
        hostile(normalizer={"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 1000}),
        "grows without bound",
    ),
    "no regular expression": (
        hostile(pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}),
        "cannot be used",
    ),
    "a table of nonsense": (
        hostile(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "cannot be used",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_tokenizer_is_refused(case: str, tmp_path: Path) -> None:
    content, word = HOSTILE[case]
    write_config(tmp_path, "gpt2")
    (tmp_path / "tokenizer.json").write_text(content)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')  # as it stands
    with pytest.raises(UserError, match=word):
        import_tokenizers(tmp_path, model_type="gpt2")


def test_without_transformers_the_install_command_is_named(lines: list[str], tmp_path: Path, monkeypatch) -> None:
    made("bert", tmp_path, lines)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'heedful\[hf\]'"):
        import_tokenizers(tmp_path, model_type="bert")


def test_a_file_beyond_all_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(UserError, match="bytes"):
        import_tokenizers(tmp_path, model_type="gpt2")


def test_a_role_needs_a_piece_of_the_vocabulary() -> None:
    with pytest.raises(UserError, match="<nowhere>"):
        HFTokenizer(json.dumps(plain()), {"pad_token": "<nowhere>"})


def test_scores_are_needed_where_t5s_class_is_named(tmp_path: Path) -> None:
    write_config(tmp_path, "t5")
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain()))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    with pytest.raises(UserError, match="transformers cannot read its tokenizer"):
        import_tokenizers(tmp_path, model_type="t5")


def test_broken_merges_are_refused(tmp_path: Path) -> None:
    write_config(tmp_path, "gpt2")
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "<|endoftext|>": 2}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b c\n")
    with pytest.raises(UserError, match=r"transformers cannot read its tokenizer \(merges\.txt"):
        import_tokenizers(tmp_path, model_type="gpt2")


def test_two_hf_tokenizers_for_one_model_are_refused(bert: HFTokenizer, tmp_path: Path) -> None:
    other = HFTokenizer(bert.content, bert.roles)
    with pytest.raises(UserError, match="these are two"):
        save_tokenizers(tmp_path, Tokenizers(source=bert, target=other))


def test_running_a_converted_tokenizer_needs_no_transformers(bert: HFTokenizer, tmp_path: Path) -> None:
    save_tokenizers(tmp_path, Tokenizers(source=bert, target=bert))
    program = f"""
import sys
sys.modules["transformers"] = sys.modules["huggingface_hub"] = None
from heedful.text import load_tokenizers
print(load_tokenizers({str(tmp_path)!r}).source.encode("a dog"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(bert.encode("a dog")), done.stderr


def test_without_tokenizers_the_install_command_is_named(bert: HFTokenizer, tmp_path: Path) -> None:
    save_tokenizers(tmp_path, Tokenizers(source=bert, target=bert))
    program = f"""
import sys
sys.modules["tokenizers"] = None
from heedful.errors import UserError
from heedful.text import load_tokenizers
try:
    load_tokenizers({str(tmp_path)!r})
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'heedful[tokenizers]'" in done.stdout, done.stderr
