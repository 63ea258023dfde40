"""`pipeline("translation", …)` takes and returns what Hugging Face's did in version 4."""

from dataclasses import replace
from pathlib import Path

import pytest

import heedful
from echo_engine import EchoEngine, install, model_folder, tokenizers
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit


@pytest.fixture
def translator() -> Translator:
    return Translator(EchoEngine(), tokenizers(), reach=SourceLimit(64))


@pytest.mark.parametrize("task", ["translation", "translation_en_to_de", "translation_zh-Hant_to_pt-BR"])
def test_one_text_and_many(translator: Translator, task: str) -> None:
    pipe = heedful.pipeline(task, model=translator)
    assert pipe("A dog.") == [{"translation_text": "A dog."}]
    assert pipe(["A dog.", "Cats."]) == [{"translation_text": "A dog."}, {"translation_text": "Cats."}]
    assert pipe([]) == []
    assert pipe(text for text in ("A dog.", "Cats.")) == pipe(["A dog.", "Cats."])


def test_summaries_have_a_name_of_their_own(translator: Translator) -> None:
    pipe = heedful.pipeline("summarization", model=translator)
    assert pipe("A dog.") == [{"summary_text": "A dog."}]
    assert pipe(["A dog.", "Cats."]) == [{"summary_text": "A dog."}, {"summary_text": "Cats."}]
    assert pipe("abc", num_beams=4, num_return_sequences=2) == [{"summary_text": "abc"}, {"summary_text": "ab"}]
    assert pipe([]) == []


@pytest.mark.parametrize(("task", "word"), [("summarization", "summary"), ("translation", "translation")])
def test_what_is_cut_off_is_called_by_its_name(
    task: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EchoEngine()
    install(monkeypatch.setattr, engine)
    whole = engine.search
    ended = lambda *given: [[replace(one, complete=False) for one in best] for best in whole(*given)]  # noqa: E731
    monkeypatch.setattr(engine, "search", ended)
    with pytest.warns(UserWarning, match=rf"1 {word} was cut off[^$]*Allow more tokens with max_length"):
        heedful.pipeline(task, model_folder(tmp_path))("A dog.")


def test_several_answers(translator: Translator) -> None:
    pipe = heedful.pipeline("translation", model=translator)
    abc = [{"translation_text": "abc"}, {"translation_text": "ab"}]
    assert pipe("abc", num_beams=4, num_return_sequences=2) == abc
    assert pipe(["abc", "de"], num_beams=4, num_return_sequences=2)[0] == abc


def test_usual_options_reach_the_search(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    search = translator.search

    def watch(texts, **options):
        seen.update(options)
        return search(texts, **options)

    monkeypatch.setattr(translator, "search", watch)
    heedful.pipeline("translation", model=translator)("a", max_length=40, num_beams=2, batch_size=8, min_length=None)
    assert seen == {"max_len": 40, "beam": 2}


USUAL = {
    "a summary, as in their docs": (
        {"max_length": 130, "min_length": 30, "do_sample": False},
        {"max_len": 130, "min_len": 30},
    ),
    "what changes nothing": (
        {"truncation": True, "padding": "longest", "clean_up_tokenization_spaces": True, "batch_size": 4},
        {},
    ),
    "new tokens count more": (
        {"max_new_tokens": 9, "max_length": 40, "min_new_tokens": 3, "min_length": 1},
        {"max_len": 9, "min_len": 3},
    ),
    "stop early": ({"early_stopping": True}, {"stop": "patience"}),
    "stop late": ({"early_stopping": False, "num_beams": 4}, {"stop": "estimated", "beam": 4}),
    "never stop": ({"early_stopping": "never"}, {"stop": "proven"}),
    "greedy search stops at the end": ({"early_stopping": False, "num_beams": 1}, {"beam": 1}),
    "draws": (
        {"do_sample": True, "temperature": 0.7, "seed": 3},
        {"sampling": {"top_k": 50, "temperature": 0.7, "seed": 3}},
    ),
}


@pytest.mark.parametrize("task", ["translation", "summarization"])
@pytest.mark.parametrize("case", USUAL)
def test_usual_calls_are_taken(translator: Translator, task: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, wanted = USUAL[case]
    seen = {}
    search = translator.search

    def watch(texts, **settings):
        seen.update(settings)
        return search(texts, **settings)

    monkeypatch.setattr(translator, "search", watch)
    heedful.pipeline(task, model=translator)("abc", **options)
    assert seen == wanted


def test_a_prefix_goes_before_each_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr)
    folder = model_folder(tmp_path)
    assert heedful.pipeline("translation", folder, prefix="x: ")("abc") == [{"translation_text": "x: abc"}]
    assert heedful.pipeline("summarization", folder, prefix="x: ")("abc") == [{"summary_text": "x: abc"}]
    with pytest.raises(UserError, match="is for encoder-decoder models"):
        heedful.pipeline("fill-mask", folder, prefix="x: ")


def test_a_loaded_translator_has_its_prefix_already(translator: Translator) -> None:
    with pytest.raises(UserError, match=r"prefix= to Translator\.load"):
        heedful.pipeline("translation", translator, prefix="x: ")


def test_a_model_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr)
    assert heedful.pipeline("translation", str(model_folder(tmp_path)))("abc") == [{"translation_text": "abc"}]
    assert heedful.pipeline("translation", tmp_path, device=-1)("abc") == [{"translation_text": "abc"}]


@pytest.mark.parametrize("task", ["text2text-generation", "translation_en", "translate", ""])
def test_other_tasks_are_refused(translator: Translator, task: str) -> None:
    with pytest.raises(UserError, match="allowed: 'translation'"):
        heedful.pipeline(task, model=translator)


def test_without_a_model() -> None:
    with pytest.raises(UserError, match="heedful train"):
        heedful.pipeline("summarization")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beam": 3}, ["'num_beam'", "did you mean 'num_beams'", "allowed: batch_size"]),
        ({"return_tensors": True}, ["'return_tensors'"]),
        ({"batch_size": 0}, ["batch_size = 0"]),
        ({"num_beams": 0}, ["'beam'"]),
        ({"early_stopping": 3}, ["early_stopping = 3", "'never'"]),
        ({"do_sample": True, "num_beams": 2}, ["a beam cannot be sampled"]),
    ],
)
def test_options_that_nobody_knows_are_refused(
    translator: Translator, options: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(UserError) as error:
        heedful.pipeline("translation", model=translator)("a", **options)
    for word in words:
        assert word in str(error.value)
