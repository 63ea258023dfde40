"""A shortlist learned from a model's own translations hardly changes them, and is used only on request."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ct2_models import count_conversions, make_model
from echo_engine import tokenizers
from heedful.cli.main import run
from heedful.decoding.engines import lexical_shortlist
from heedful.decoding.engines.auto import open_engine
from heedful.decoding.engines.lexical_shortlist import learn_own_shortlist
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError
from heedful.interop.ctranslate2.shortlist import VMAP
from heedful.models.model_io import save_model

WORDS = ["the", "dog", "cat", "runs", "sees", "a", "house", "in", "big", "red", "park", "walks", "old", "street"]


@pytest.fixture(autouse=True)
def converted_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    count_conversions(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    size = tokenizers().source.vocab_size
    model = make_model(source_vocab_size=size, target_vocab_size=size, max_len=64)
    return save_model(tmp_path / "model", model, tokenizers())


def lines(n: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(n)]


def test_what_it_says_is_in_its_list(folder: Path) -> None:
    """Of the texts that it learned from, with room for everything, no greedy translation changes."""
    texts = lines(300)
    told = []
    learned = learn_own_shortlist(
        folder,
        texts,
        n_candidates=10_000,
        least_texts=10,
        progress=lambda what, done, share: told.append((done, share)),
    )
    assert learned.path.name == VMAP
    assert learned.texts == len(set(texts)) - sum(one.texts for one in learned.comparisons[:1])
    assert told[-1][1] == 1.0
    engine = open_engine(folder, compute="int8", threads=1)
    ids = tokenizers().source.encode_batch([text for i, text in enumerate(dict.fromkeys(texts)) if i % 20])
    for beam in (1,):
        plain, listed = (
            engine.search([Request(one) for one in ids], SearchSettings(beam=beam, shortlist=shortlist))
            for shortlist in (False, True)
        )
        assert [one[0].ids for one in listed] == [one[0].ids for one in plain]
    assert learned.comparisons[0].same >= 0.8 * learned.comparisons[0].texts


def test_a_short_list_keeps_to_few_words(folder: Path) -> None:
    wide = learn_own_shortlist(folder, lines(300), n_candidates=10_000, least_texts=10)
    short = learn_own_shortlist(folder, lines(300), n_candidates=2, n_always=3, least_texts=10)
    assert short.candidates <= 3 < wide.candidates


def test_little_text_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="at least 1,000 different lines"):
        learn_own_shortlist(folder, ["a dog"] * 5000)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])  # with an end, and without one
def test_long_lines_are_left_out_and_counted(tmp_path: Path, positions: str) -> None:
    """What is learned is what is learned without them."""
    size, texts = tokenizers().source.vocab_size, lines(100)
    model = make_model(source_vocab_size=size, target_vocab_size=size, max_len=64, positions=positions)
    folder = save_model(tmp_path / "model", model, tokenizers())
    plain = learn_own_shortlist(folder, texts, least_texts=10)
    expected = plain.path.read_bytes()
    learned = learn_own_shortlist(folder, ["x" * 64, *texts[:50], "dog " * 30, *texts[50:]], least_texts=10)
    assert (plain.too_long, learned.too_long) == (0, 2)
    assert (learned.texts, learned.path.read_bytes()) == (plain.texts, expected)
    with pytest.raises(UserError, match=r"at least 10 different lines of text, found 9.*Another 2 are longer"):
        learn_own_shortlist(folder, [*texts[:9], "x" * 64, "y" * 64], least_texts=10)


@pytest.mark.parametrize(("name", "least"), [("candidates", 1), ("always", 0)])
def test_numbers_that_mean_nothing_are_refused(folder: Path, name: str, least: int) -> None:
    with pytest.raises(UserError, match=f"{name} = {least - 1}: must be at least {least}"):
        learn_own_shortlist(folder, lines(300), least_texts=10, **{f"n_{name}": least - 1})  # type: ignore[arg-type]
    assert learn_own_shortlist(folder, lines(300), least_texts=10, **{f"n_{name}": least}).candidates  # type: ignore[arg-type]


def test_torch_has_none(folder: Path) -> None:
    engine = open_engine(folder, engine="torch")
    with pytest.raises(UserError, match="only CTranslate2"):
        engine.search([Request([5, 6])], SearchSettings(shortlist=True))


def test_where_ctranslate2_cannot_go_there_is_none(tmp_path: Path) -> None:
    """To leave it out is all the advice: no engine has it for such a model."""
    size = tokenizers().source.vocab_size
    model = make_model(source_vocab_size=size, target_vocab_size=size, positions="alibi")
    folder = save_model(tmp_path / "model", model, tokenizers())
    with pytest.raises(UserError, match=r"cannot run this model here.*torch has none; leave it out") as error:
        open_engine(folder).search([Request([5, 6])], SearchSettings(shortlist=True))
    assert "use --engine" not in str(error.value)
    with pytest.raises(UserError, match="its encoder has no ALiBi") as error:
        learn_own_shortlist(folder, lines(300), least_texts=10)
    assert "--engine" not in str(error.value)


def test_auto_gives_to_torch_what_ctranslate2_cannot_do(folder: Path) -> None:
    """And torch looks at all words, since it has no list."""
    engine = open_engine(folder, threads=1)
    settings = {"beam": 2, "diversity": 0.5, "max_len": 8}
    listed = engine.search([Request([5, 6])], SearchSettings(**settings, shortlist=True))  # type: ignore[arg-type]
    assert listed == engine.search([Request([5, 6])], SearchSettings(**settings))  # type: ignore[arg-type]


def test_the_command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, few = tmp_path / "text", tmp_path / "few"
    text.write_text("".join(f"{line}\n" for line in [*lines(1_300), "dog " * 2_000]), encoding="utf-8")
    few.write_text("".join(f"{line}\n" for line in [*lines(20), "dog " * 2_000]), encoding="utf-8")
    output = tmp_path / "out"
    translate = ["translate", str(few), "-m", str(folder), "--output", str(output), "--set", "shortlist=true"]
    assert run(translate) == 1
    assert f"heedful shortlist {folder} TEXT" in capsys.readouterr().err

    results: list[object] = []

    def learn_once(*args: Any, **options: Any) -> object:
        if not results:
            results.append(learn_own_shortlist(*args, **options))
        return results[0]

    monkeypatch.setattr(lexical_shortlist, "learn_own_shortlist", learn_once)
    assert run(["shortlist", str(folder), str(text), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [judged["beam"] for judged in values["comparisons"]] == [1, 5] and values["too_long"] == 1
    assert run(translate) == 0
    assert len(output.read_bytes().splitlines()) == 21
    assert run(["shortlist", str(folder), str(text)]) == 0
    out = capsys.readouterr().out
    assert "use it: heedful translate FILE" in out and "lines left out, longer than the model's limit: 1\n" in out
