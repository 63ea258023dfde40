"""Words given as text: a prefix, required words and forbidden words of translations."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deterministic import fill
from echo_engine import EchoEngine, tokenizers
from heedful.cli import main
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.settings import Sampling, SearchSettings
from heedful.decoding.text_constraints import TextConstraints, TokenConstraints
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import TokenizerConfig, learn_tokenizers
from tiny_models import sentences, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:.* cut off")
HOW = {"beam": 2, "max_len": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    size = tokenizers().source.vocab_size
    config = Seq2SeqConfig(size, size, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_len=24)
    model = fill(Seq2Seq(config), dtype=torch.float32)
    return save_model(tmp_path_factory.mktemp("models") / "small", model, tokenizers())


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.load(folder, engine="torch")


def test_every_translation_begins_with_the_prefix(translator: Translator) -> None:
    texts = ["a dog", "", "two cats", "a dog"]
    found = translator.translate(texts, target_prefix=" Der ", **HOW)
    assert [text[:3] for text in found] == ["Der", "", "Der", "Der"]
    each = translator.translate(texts, target_prefix=["Ein", "x", "Zwei", ""], **HOW)
    assert each[0].startswith("Ein") and each[2].startswith("Zwei")
    assert each[3] == translator.translate("a dog", **HOW)  # an empty one prescribes nothing
    assert list(translator.stream(texts, target_prefix=["Ein", "x", "Zwei", ""], block=2, **HOW)) == each


def test_other_processes_take_any_number_of_prefixes(translator: Translator) -> None:
    """More than the 128 KiB that an argument of a program may have, and more than a pipe holds."""
    texts, prefixes = ["a dog", "two cats", "a dog"], ["Ein", "Zwei", "Der"] * 20_000
    found = list(translator.stream(texts, target_prefix=prefixes, block=1, workers=2, **HOW))
    assert found == translator.translate(texts, target_prefix=prefixes, **HOW)
    assert [text[:3] for text in found] == ["Ein", "Zwe", "Der"]


def test_the_prefix_belongs_to_the_first_piece() -> None:
    engine = EchoEngine()
    Translator(engine, tokenizers(), reach=SourceLimit(64)).translate("one\ntwo", target_prefix="Ab")
    assert [list(request.prefix) for request in engine.asked] == [tokenizers().target.encode("Ab"), []]


def test_required_words_are_there(translator: Translator) -> None:
    texts = ["a dog", "two cats"]
    assert all("Hut" not in text for text in translator.translate(texts, **HOW))
    assert all("Hut" in text for text in translator.translate(texts, required=["Hut"], **HOW))
    assert all("Hut" in one.text for one in translator.search("a", required=["Hut"], n_best=2, **HOW))


def test_forbidden_words_go_to_the_search_as_runs_and_ids_as_ids() -> None:
    engine = EchoEngine()
    translator = Translator(engine, tokenizers(), reach=SourceLimit(64))
    translator.translate("one\ntwo", forbidden=["Hut", "ab", 7])
    runs = [tokenizers().target.encode(word) for word in ("Hut", "ab")]
    assert [request.forbidden for request in engine.asked] == [runs, runs]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_run_that_is_forbidden_is_not_written(beam: int, length: int) -> None:
    engine, requests = TorchEngine(tiny_model(seed=20)), sentences(12, seed=20)
    settings = SearchSettings(beam=beam, max_len=14)
    plain = [best[0].ids for best in engine.search(requests, settings)]
    runs = [ids[1 : 1 + length] for ids in plain]
    forbidding = [replace(one, forbidden=[run] if run else []) for one, run in zip(requests, runs, strict=True)]
    found = [best[0].ids for best in engine.search(forbidding, settings)]
    assert sum(map(len, runs)) > 9
    for ids, run, before in zip(found, runs, plain, strict=True):
        if len(run) < length:
            continue
        assert not any(ids[at : at + length] == run for at in range(len(ids)))
        if beam == 1:
            assert ids[: length - 1] == before[: length - 1]


def test_a_word_is_encoded_as_it_stands_inside_of_a_sentence() -> None:
    lines = ["狗在跑。", "猫和狗在睡觉。", "狗狗在这里。", "ein Hund rennt", "der Hund schläft", "Hund und Hund"]
    both = learn_tokenizers(lines, lines, TokenizerConfig(kind="char", vocab_size=80, byte_fallback=False)).target
    assert both.pieces(TokenConstraints(TextConstraints(required=("狗",)), both).required[0]) == ["狗"]
    assert both.pieces(TokenConstraints(TextConstraints(required=("Hund",)), both).required[0]) == [
        "▁",
        "H",
        "u",
        "n",
        "d",
    ]
    with pytest.raises(UserError, match="no token for a character of 'ж'"):
        TokenConstraints(TextConstraints(required=("ж",)), both)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"required": "Hund"}, "required = 'Hund': expected a list of words"),
        ({"required": [" "]}, "required: expected words, found ' '"),
        ({"required": ["a"], "forbidden": ["a"]}, "'a' is in both lists"),
        ({"required": ["a"], "sampling": Sampling()}, "of a beam only"),
        ({"target_prefix": [3]}, "target_prefix: expected words, found 3"),
        ({"target_prefix": 2024}, "target_prefix = 2024: expected a text; write a number in quotes"),
        ({"target_prefix": None}, "target_prefix = None: expected a text"),
        ({"target_prefix": ["a", "b"]}, "text 3: target_prefix: there are 2"),
        ({"required": ["a long run of words"], "max_len": 4}, "20 tokens must be written, and at most 4 may be"),
    ],
)
def test_what_cannot_be_is_refused(translator: Translator, options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        translator.translate(["a", "b", "c"], **options)


def test_required_words_of_a_text_in_pieces_are_refused(translator: Translator) -> None:
    with pytest.raises(UserError, match="text 2: it is translated in 2 pieces"):
        translator.translate(["a", "one\ntwo"], required=["Hut"])


def test_the_command_takes_them_too(folder: Path, tmp_path: Path, translator: Translator) -> None:
    (tmp_path / "in").write_text("a dog\ntwo cats\n")
    arguments = [str(tmp_path / "in"), "-m", str(folder), "--engine", "torch", "--output", str(tmp_path / "out")]
    words = ["target_prefix=Der", 'required=["Hut"]', 'forbidden=["x"]', "max_len=12"]
    assert main.run(["translate", *arguments, "--beam", "2", "--set", *words]) == 0
    wording = {"target_prefix": "Der", "required": ["Hut"], "forbidden": ["x"]}
    expected = translator.translate(["a dog", "two cats"], **wording, **HOW)
    assert (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1] == expected
    assert all(text.startswith("Der") and "Hut" in text for text in expected)
