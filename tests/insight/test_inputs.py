"""A look at a segment of a text shows the same part of the translation as a Translator."""

import contextlib
import json
from pathlib import Path

import pytest

from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.segmentation import Long
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.insight.inputs import LookModel, open_look_model, source_limit_of
from heedful.insight.look import Look, look
from heedful.models.model_info import read_source_limit
from heedful.models.model_io import LoadedModel, load_model, save_model
from look_models import look_model, other_look_model
from trace_checks import check_trace

TEXT = "  A dog runs.\r\n\n\tTwo dogs & a cat <sleep>. The animal was too tired.\u2028A big man eats bread.\n"
LINES = ("A dog runs.", "Two dogs & a cat <sleep>. The animal was too tired.", "A big man eats bread.")


def translator(of: LookModel, *, long: Long = "split", limit: int | None = None, prefix: str = "") -> Translator:
    return Translator(
        TorchEngine(of.model), of.tokenizers, reach=source_limit_of(of.model), long=long, limit=limit, prefix=prefix
    )


def every_piece(model: Translator | LookModel, text: str) -> list[Look]:
    first = look(model, text, beam=2)
    n = 1 if first.pieces is None else len(first.pieces.sources)
    return [first, *(look(model, text, beam=2, piece=number) for number in range(1, n))]


@pytest.mark.parametrize(("limit", "n_pieces"), [(None, 3), (12, 6)])
@pytest.mark.parametrize("prefix", ["", "Two: "])
def test_the_segments_joined_are_the_translation(limit: int | None, n_pieces: int, prefix: str) -> None:
    model = translator(look_model(), limit=limit, prefix=prefix)
    [plan], _ = model.segmenter.segment([TEXT])
    looks = every_piece(model, TEXT)
    assert len(looks) >= n_pieces
    assert [one.source.ids[:-1] for one in looks] == [tuple(piece.ids) for piece in plan.segments]
    assert plan.join([one.target.text for one in looks]) == model.translate(TEXT, beam=2)
    for number, one in enumerate(looks):
        assert one.pieces is not None and one.pieces.number == number
        assert one.pieces.sources[number] == one.source.text
        assert not any("<0x0A>" in token or "\n" in token for token in one.source.tokens)


@pytest.mark.parametrize("long", ["split", "truncate", "extract"])
def test_the_text_of_a_segment_is_one_segment_with_the_same_look(long: Long) -> None:
    """The page requests a segment by its text alone."""
    model = translator(look_model(), long=long, limit=12)
    with pytest.warns() if long != "split" else contextlib.nullcontext():
        for one in every_piece(model, TEXT):
            alone = look(model, one.source.text, beam=2)
            assert alone.pieces is None
            assert (alone.source.ids, alone.target.ids) == (one.source.ids, one.target.ids)


def test_a_model_without_a_translator_segments_as_a_translator_does(tmp_path: Path) -> None:
    for of in (look_model(), look_model("learned"), other_look_model("bart with BOS")):
        path = save_model(tmp_path / of.name, of.model, of.tokenizers)
        assert read_source_limit(path) == source_limit_of(of.model)
    of = look_model()
    texts = [
        look(opened, TEXT, beam=1).pieces.sources
        for opened in (of, LoadedModel(of.model.config, of.model, of.tokenizers), path)
    ]
    assert texts == [LINES] * 3
    assert open_look_model(Translator.load(tmp_path / of.name, engine="torch", limit=9)).segmenter.limit == 9


def test_sentences_are_split_by_the_language_of_the_card(tmp_path: Path) -> None:
    """A translation splits in the same way: "z. B." ends a sentence in English only."""
    path = save_model(tmp_path / "model", look_model().model, look_model().tokenizers)
    (path / "README.md").write_text("---\nlanguage:\n- de\n- en\n---\n")
    opened = open_look_model(load_model(path)), open_look_model(path), Translator.load(path, engine="torch")
    assert {one.segmenter.language for one in opened} == {"de"}


@pytest.mark.parametrize("signs", ["...", "😀 !"])
def test_a_text_of_signs_has_no_word_to_translate(signs: str) -> None:
    with pytest.raises(UserError, match="no word to translate"):
        look(look_model(), signs)


def test_a_target_is_split_line_by_line() -> None:
    looks = look(look_model(), TEXT, target="Ein Hund.\nZwei Hunde. Das Tier.\nEin Mann.", beam=1, piece=1)
    assert looks.target.text == "Zwei Hunde. Das Tier." and looks.target.kind == "reference"
    assert looks.pieces.targets == ("Ein Hund.", "Zwei Hunde. Das Tier.", "Ein Mann.")
    assert look(look_model(), TEXT, target="Ein Mann.", beam=1, piece=2).target.text == "Ein Mann."
    with pytest.raises(UserError, match="3 segments, and it is unknown which words"):
        look(look_model(), TEXT, target="Ein Hund.", beam=1)


def test_the_trace_file_has_the_number_of_the_segment() -> None:
    values = json.loads(look(look_model(), TEXT, beam=1, piece=2).to_json())
    check_trace(values)
    assert values["pieces"] == {"number": 2, "sources": list(LINES), "targets": None}
    assert json.loads(look(look_model(), LINES[0], beam=1).to_json())["pieces"] is None


@pytest.mark.parametrize("number", [-1, 3])
def test_a_segment_out_of_range_is_an_error(number: int) -> None:
    with pytest.raises(UserError, match="but this text has 3"):
        look(look_model(), TEXT, piece=number)


def test_long_lines_follow_the_setting() -> None:
    model = translator(look_model(), long="error", limit=12)
    with pytest.raises(UserError, match=r"look: .* the model takes 12 at once"):
        look(model, TEXT)
