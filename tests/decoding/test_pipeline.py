"""`pipeline("translation", …)` takes and gives what Hugging Face's did in version 4."""

from pathlib import Path

import pytest

import heedful
from echo_engine import EchoEngine, install, model_folder, tokenizers
from heedful.decoding.writing.translator import Translator
from heedful.errors import UserError
from heedful.models.find import Reach


@pytest.fixture
def translator() -> Translator:
    return Translator(EchoEngine(), tokenizers(), reach=Reach(64))


@pytest.mark.parametrize("task", ["translation", "translation_en_to_de", "translation_zh-Hant_to_pt-BR"])
def test_one_text_and_many(translator: Translator, task: str) -> None:
    pipe = heedful.pipeline(task, model=translator)
    assert pipe("A dog.") == [{"translation_text": "A dog."}]
    assert pipe(["A dog.", "Cats."]) == [{"translation_text": "A dog."}, {"translation_text": "Cats."}]
    assert pipe([]) == []


def test_summaries_have_a_name_of_their_own(translator: Translator) -> None:
    pipe = heedful.pipeline("summarization", model=translator)
    assert pipe("A dog.") == [{"summary_text": "A dog."}]
    assert pipe(["A dog.", "Cats."]) == [{"summary_text": "A dog."}, {"summary_text": "Cats."}]
    assert pipe("abc", num_beams=4, num_return_sequences=2) == [{"summary_text": "abc"}, {"summary_text": "ab"}]
    assert pipe([]) == []


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
    ],
)
def test_options_that_nobody_knows_are_refused(
    translator: Translator, options: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(UserError) as error:
        heedful.pipeline("translation", model=translator)("a", **options)
    for word in words:
        assert word in str(error.value)
