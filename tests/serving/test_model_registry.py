"""The language pair of a model, from the command line or from the model's card."""

from pathlib import Path

import pytest

from echo_engine import install, model_folder
from heedful.errors import UserError
from heedful.serving.languages import canonical
from heedful.serving.model_registry import Pairs, open_pair, parse_pair


def card(*codes: str) -> str:
    listed = "".join(f'- "{code}"\n' for code in codes)
    return f"---\nlanguage:\n{listed}library_name: heedful\n---\n\n# A model\n"


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("en-fr", ("en", "fr")),
        ("EN-Fr", ("en", "fr")),
        ("en-zh", ("en", "zh-Hans")),
        ("en-zh-Hant", ("en", "zh-Hant")),
        ("pt-BR-en", ("pt-BR", "en")),
        ("en-pt-BR", ("en", "pt-BR")),
        ("enfr", None),
        ("runs/en-fr", None),
        ("", None),
    ],
)
def test_parse_pair(argument, expected):
    assert parse_pair(argument) == expected


def test_language_codes_are_normalized():
    assert [canonical(code) for code in ("ZH", "zt", "pb", "pt_br", "iw", "En", "xx-Yy")] == [
        "zh-Hans",
        "zh-Hant",
        "pt-BR",
        "pt-BR",
        "he",
        "en",
        "xx-yy",
    ]


def test_the_card_names_the_languages(tmp_path: Path, monkeypatch):
    install(monkeypatch.setattr)
    folder = model_folder(tmp_path / "model")
    (folder / "README.md").write_text(card("de", "fr"))
    pair = open_pair(str(folder))
    assert (pair.source, pair.target, pair.name) == ("de", "fr", "de-fr")
    assert open_pair(f"en-fr={folder}").name == "en-fr"  # what is typed counts more
    with pytest.raises(UserError, match="two models for de-fr"):
        Pairs([pair, pair])


def test_a_model_that_does_not_translate_is_an_error(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"family": "gpt"}')
    for path in (str(tmp_path), f"en-fr={tmp_path}"):
        with pytest.raises(UserError, match=r"family 'gpt'.* use heedful generate"):
            open_pair(path)


@pytest.mark.parametrize("text", [None, "no head", card("de"), card("de", "fr", "en"), "---\nlanguage: de\n---\n"])
def test_a_card_without_languages_is_an_error(tmp_path: Path, monkeypatch, text):
    install(monkeypatch.setattr)
    folder = model_folder(tmp_path / "en-fr")
    if text is not None:
        (folder / "README.md").write_text(text)
    with pytest.raises(UserError, match="-m en-fr="):
        open_pair(str(folder))
