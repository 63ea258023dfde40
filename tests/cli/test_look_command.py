"""`heedful look`: the translation, the alignment, the alternatives and the beams, as plain text."""

import contextlib
import io
import json
from pathlib import Path

import pytest

import echo_engine
from deterministic import fill
from encoder_models import bert_folder, own_tokenizers
from heedful.cli.main import run
from heedful.insight.look import look
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import TokenizerConfig, learn_tokenizers
from trace_checks import check_trace

SOURCE = ["A dog runs.", "Two girls read a book.", "The old man sleeps."]
TARGET = ["Ein Hund rennt.", "Zwei Mädchen lesen ein Buch.", "Der alte Mann schläft."]
SENTENCE = "A dog runs."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = TokenizerConfig(kind="bpe", vocab_size=90, byte_fallback=False)
    tokenizers = learn_tokenizers(SOURCE, TARGET, config)
    size = tokenizers.source.vocab_size
    untrained = Seq2Seq(Seq2SeqConfig(size, size, d_model=8, n_layers=2, n_heads=2, d_ff=12))
    return str(save_model(tmp_path_factory.mktemp("look") / "model", fill(untrained).float(), tokenizers))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["look", *arguments]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert err == "" and "\x1b" not in out
    return out


def test_the_report_in_the_terminal(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, SENTENCE, "-m", model, "--target", "Ein Hund.", "--beam", "2")
    result = look(model, SENTENCE, target="Ein Hund.", beam=2)
    lines = out.splitlines()
    assert lines[0] == SENTENCE and lines[1] == result.translation.text
    assert "shown below: Ein Hund." in out
    for number, step in enumerate(result.steps):
        (line,) = [line for line in lines if line.startswith(f"{number + 1:3} {step.token} ")]
        assert f"{step.probability:.1%}" in line
        assert all(f"{one.token} {100 * one.probability:.2g}%" in line for one in step.top[:5])
    for source, target in result.alignment:
        assert f"← {result.source.tokens[source]} " in next(x for x in lines if x.startswith(f"{target + 1:3} "))
    mean = result.attention["cross"].weights.values[-1].mean(axis=0)
    row = next(line for line in lines if line.startswith(result.target.tokens[0]))
    shown = [f"{100 * weight:.0f}" if weight >= 0.005 else "·" for weight in mean[0]]
    assert row.split()[1:] == shown
    assert "beam of 2" in out and f"{result.beam.hypotheses[0].score:.3f}, normalized" in out and "best" in out
    assert "Attention is not an explanation." in out


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_any_layer_and_head(model: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, SENTENCE, "-m", model, "--kind", kind, "--layer", "1", "--head", "2", "--target", "Ein Hund.")
    assert f"{kind} self-attention: Layer 1 of 2, head 2 of 2" in out


def test_removing_a_head_and_hiding_a_word(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, SENTENCE, "-m", model, "--without", "cross:2:1", "encoder:1:2", "--hide", "2")
    assert "without cross layer 2 head 1, encoder layer 1 head 2, the word 'dog'" in out and "before:" in out


def test_json_is_the_trace_file(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    trace = json.loads(printed(capsys, SENTENCE, "-m", model, "--json"))
    check_trace(trace)
    assert trace["model"]["name"] == "model"


@pytest.mark.parametrize("suffix", ["json", "npz", "svg"])
def test_the_suffix_decides_the_file_format(
    model: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"seen.{suffix}"
    assert f"{path}: " in printed(capsys, SENTENCE, "-m", model, "--output", str(path))
    assert path.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["x", "-m", "absent"], "absent: no such folder"),
        (["x", "-m", "MODEL", "--output", "x.gif"], ".svg"),
        (["x", "-m", "MODEL", "--layer", "3"], "layer 3"),
        (["x", "-m", "MODEL", "--head", "0"], "head 0"),
        (["x", "-m", "MODEL", "--without", "cross"], "kind:layer:head"),
        (["x", "-m", "MODEL", "--without", "cross:0:1"], "counted from 1"),
        (["x", "-m", "MODEL", "--without", "cross:3:1"], "no layer number 3"),
        (["x", "-m", "MODEL", "--hide", "9"], "word number 9"),
        ([" ", "-m", "MODEL"], "empty"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], expected: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["look", *(model if one == "MODEL" else one for one in arguments)]) == 1
    message = capsys.readouterr().err
    assert message.startswith("heedful: ") and expected in message


def test_a_text_of_several_lines_is_shown_piece_by_piece(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "A dog runs.\nThe old man sleeps."
    for number, line in enumerate(text.splitlines(), start=1):
        assert run(["look", text, "-m", model, "--beam", "2", *(["--piece", "2"] if number == 2 else [])]) == 0
        out, err = capsys.readouterr()
        assert out == printed(capsys, line, "-m", model, "--beam", "2")
        assert f"shown: segment {number}. For another one: --piece {3 - number}" in err
    assert run(["look", text, "-m", model, "--piece", "3"]) == 1
    assert "segment 3, but this text has 2" in capsys.readouterr().err


@pytest.fixture(scope="module")
def models(model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, tokenizers = tmp_path_factory.mktemp("others"), echo_engine.tokenizers()
    gpt = Gpt(
        GptConfig(vocab_size=tokenizers.source.vocab_size, d_model=16, n_layers=2, n_heads=4, d_ff=24, max_len=64)
    )
    save_model(folder / "gpt", fill(gpt).float(), tokenizers)
    bert_folder(folder / "bert", own_tokenizers())
    return {"seq2seq": model, "gpt": str(folder / "gpt"), "bert": str(folder / "bert")}


def encoded_output(encoding: str, *arguments: str) -> bytes:
    """Return what a command writes to a standard output of this encoding, which refuses other characters."""
    out = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(out, encoding=encoding)) as stream:
        assert run(["look", *arguments]) == 0
        stream.detach()
    return out.getvalue()


@pytest.mark.parametrize("family", ["seq2seq", "gpt", "bert"])
def test_an_ascii_standard_output(family: str, models: dict[str, str], tmp_path: Path) -> None:
    arguments = ["Ä dog [MASK]", "-m", models[family]]
    # Text for people: characters that the output cannot encode are escaped.
    for more in ([], ["--output", str(tmp_path / "gesehen-ä.json")]):
        shown = encoded_output("utf-8", *arguments, *more).decode("utf-8")
        assert not shown.isascii()
        assert encoded_output("ascii", *arguments, *more) == shown.encode("ascii", "backslashreplace")
    trace = encoded_output("utf-8", *arguments, "--json")  # for programs: JSON is UTF-8 everywhere
    assert not trace.isascii()
    check_trace(json.loads(trace))
    for encoding in ("ascii", "latin-1", "utf-16"):
        assert encoded_output(encoding, *arguments, "--json") == trace
