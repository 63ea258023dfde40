"""`heedful evaluate`: scores of files and of models, and refused inputs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF

from deterministic import fill
from heedful.cli.main import run
from heedful.models.model_io import load_model, save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import TokenizerConfig, learn_tokenizers

SOURCE = ["A dog runs.", "Two girls read a book.", "The old man sleeps.", "A cat sits on the street."]
TARGET = ["Ein Hund rennt.", "Zwei Mädchen lesen ein Buch.", "Der alte Mann schläft.", "Eine Katze sitzt dort."]
OUTPUT = ["Ein Hund rennt.", "Zwei Mädchen lesen.", "Katze", "Eine Katze sitzt dort."]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    named = {"source": SOURCE, "target": TARGET, "output": OUTPUT, "other": TARGET}
    return {name: write(tmp_path / name, lines) for name, lines in named.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An untrained model, whose translations are noise but always equal."""
    config = TokenizerConfig(kind="char", vocab_size=80, byte_fallback=False)
    tokenizers = learn_tokenizers(SOURCE, TARGET, config)
    size = tokenizers.source.vocab_size
    shape = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 12}
    untrained = Seq2Seq(Seq2SeqConfig(size, size, **shape))
    return str(save_model(tmp_path_factory.mktemp("evaluate") / "model", fill(untrained).float(), tokenizers))


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    assert run(["evaluate", *arguments, "--json"]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_a_file_of_translations(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    report = answer(["--hypotheses", files["output"], "--target", files["target"], "--lowercase"], capsys)
    (system,) = report["systems"]
    metrics = [BLEU(), CHRF(), BLEU(lowercase=True), CHRF(lowercase=True)]
    for score, metric in zip(system["scores"], metrics, strict=True):
        assert score["value"] == pytest.approx(metric.corpus_score(OUTPUT, [TARGET], n_bootstrap=1000).score)
        assert score["signature"] == str(metric.get_signature())
        assert score["low"] <= score["value"] <= score["high"]
    assert [score["lowercase"] for score in system["scores"]] == [False, False, True, True]
    assert (report["sentences"], report["references"], report["comparisons"], report["worst"]) == (4, 1, [], [])


def test_the_table_has_the_scores_of_the_json(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["--hypotheses", files["output"], "--target", files["target"], "--source", files["source"], "--worst", "2"]
    scores = answer(typed, capsys)["systems"][0]["scores"]
    assert run(["evaluate", *typed]) == 0
    out = capsys.readouterr().out
    for score in scores:
        assert f"{score['value']:.2f} ± {score['margin']:.2f}" in out
        assert score["signature"] in out
    worst = out.index("line 3:")
    for line in (SOURCE[2], TARGET[2], OUTPUT[2]):
        assert line in out[worst:]
    assert "line 2:" in out[worst:] and "line 1:" not in out


def test_two_outputs_are_compared(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["--hypotheses", files["output"], "--against", files["other"], "--target", files["target"]]
    report = answer(typed, capsys)
    assert [one["name"] for one in report["systems"]] == [files["output"], files["other"]]
    bleu, chrf = report["comparisons"]
    assert bleu["difference"] < 0 and chrf["difference"] < 0
    assert run(["evaluate", *typed]) == 0
    assert f"{files['output']} against {files['other']}" in capsys.readouterr().out


def test_several_references(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    one = answer(["--hypotheses", files["output"], "--target", files["target"]], capsys)
    both = ["--target", files["target"], "--target", files["output"]]
    two = answer(["--hypotheses", files["output"], *both], capsys)
    assert two["references"] == 2
    assert "nrefs:2" in two["systems"][0]["scores"][0]["signature"]
    assert two["systems"][0]["scores"][0]["value"] == pytest.approx(100.0)
    assert one["systems"][0]["scores"][0]["value"] < 100.0
    assert run(["evaluate", "--hypotheses", files["output"], *both]) == 0
    assert "sentences, 2 references each" in capsys.readouterr().out


def test_a_file_of_references_may_have_gaps(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = tmp_path / "gaps"
    gaps.write_text("\n" * Path(files["target"]).read_text(encoding="utf-8").count("\n"), encoding="utf-8")
    one = answer(["--hypotheses", files["output"], "--target", files["target"]], capsys)
    typed = ["--hypotheses", files["output"], "--target", files["target"], "--target", str(gaps)]
    assert answer(typed, capsys)["systems"] == one["systems"]
    assert run(["evaluate", *typed]) == 0
    assert "sentences, up to 2 references each" in capsys.readouterr().out


def test_sentence_by_sentence(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sentences.jsonl"
    typed = ["--hypotheses", files["output"], "--against", files["other"], "--target", files["target"]]
    answer([*typed, "--source", files["source"], "--per-sentence", str(path)], capsys)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    assert [row["source"] for row in rows] == SOURCE
    assert [row["hypothesis"] for row in rows] == OUTPUT
    assert [row["references"] for row in rows] == [[line] for line in TARGET]
    assert rows[0]["chrf"] == pytest.approx(100.0) and rows[2]["chrf"] < 50
    assert all(row["against"]["chrf"] == pytest.approx(100.0) for row in rows)


@pytest.mark.parametrize("name", ["source", "target", "output", "other"])
def test_scores_do_not_overwrite_an_input(name: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(files[name]).read_bytes()
    read = ["--source", files["source"], "--hypotheses", files["output"], "--against", files["other"]]
    assert run(["evaluate", *read, "--target", files["target"], "--per-sentence", files[name]]) == 1
    assert f"--per-sentence {files[name]}" in (message := capsys.readouterr().err) and "would be lost" in message
    assert Path(files[name]).read_bytes() == before


def test_a_model_translates_and_its_perplexity_is_reported(
    files: dict[str, str], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("heedful.decoding.translator")
    from heedful.decoding.translator import Translator
    from heedful.evaluation.perplexity import likelihood

    path = tmp_path / "sentences.jsonl"
    test_set = ["--source", files["source"], "--target", files["target"]]
    report = answer(["-m", model, *test_set, "--beam", "2", "--per-sentence", str(path)], capsys)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with pytest.warns(UserWarning, match="were cut off at the length limit"):
        assert [row["hypothesis"] for row in rows] == Translator.load(model).translate(SOURCE, beam=2)
    assert any(note.startswith(f"{model}: ") and "were cut off" in note for note in report["notes"])
    loaded = load_model(model)
    expected = likelihood(loaded.model, loaded.tokenizers, SOURCE, TARGET)
    assert report["systems"][0]["perplexity"] == pytest.approx(expected.perplexity)
    assert [row["reference_log_prob"] for row in rows] == pytest.approx(expected.log_probs)
    assert run(["evaluate", "-m", model, *test_set]) == 0
    assert f"{expected.perplexity:.2f}" in capsys.readouterr().out


def test_one_long_line_does_not_spoil_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str) -> None:
    tokenizers = load_model(model).tokenizers
    assert tokenizers is not None
    size = tokenizers.source.vocab_size
    shape = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 12, "max_len": 40, "positions": "learned"}
    folder = str(
        save_model(tmp_path / "learned", fill(Seq2Seq(Seq2SeqConfig(size, size, **shape))).float(), tokenizers)
    )
    source = write(tmp_path / "long.en", [*SOURCE, "A cat. " * 30])
    target = write(tmp_path / "long.de", [*TARGET, "Eine Katze. " * 30])
    sentences = tmp_path / "sentences"
    test_set = ["-m", folder, "--source", source, "--target", target, "--beam", "1"]
    report = answer([*test_set, "--per-sentence", str(sentences)], capsys)
    assert [score["name"] for score in report["systems"][0]["scores"]] == ["BLEU", "chrF2"]
    assert report["systems"][0]["left_out"] == [5] and report["systems"][0]["perplexity"] > 1
    assert any("1 pair, line 5, is longer than the 40 positions" in note for note in report["notes"])
    rows = [json.loads(line) for line in sentences.read_text(encoding="utf-8").splitlines()]
    assert ["reference_log_prob" in row for row in rows] == [True] * 4 + [False]
    assert run(["evaluate", *test_set]) == 0
    assert "of 4 of the references, per token" in capsys.readouterr().out


def test_a_model_against_itself_does_not_differ(
    files: dict[str, str], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("heedful.decoding.translator")
    report = answer(
        ["-m", model, "--against", model, "--source", files["source"], "--target", files["target"], "--beam", "1"],
        capsys,
    )
    assert [(one["difference"], one["p_value"]) for one in report["comparisons"]] == [(0.0, 1.0)] * 2


def test_a_built_in_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-m fr-en` names a built-in model, and so does --against (docs/decode.md)."""
    monkeypatch.chdir(tmp_path)  # where no folder has this name
    test_set = ["--source", write(tmp_path / "a", ["Hello."]), "--target", write(tmp_path / "b", ["Salut."])]
    report = answer(["-m", "en-fr", "--against", "en-fr", *test_set, "--beam", "1"], capsys)
    assert [system["name"] for system in report["systems"]] == ["en-fr", "en-fr"]
    assert run(["evaluate", "-m", "en-tlh", *test_set]) == 1
    assert "en-tlh: no such folder" in (message := capsys.readouterr().err) and "en-fr" in message


@pytest.mark.parametrize("against", ["absent", "short"])
def test_a_file_that_does_not_fit_is_refused_before_a_model_translates(
    against: str, files: dict[str, str], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "short", TARGET[:3])
    test_set = ["--source", files["source"], "--target", files["target"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heedful.evaluation.evaluate.system_from_model", lambda *_, **__: pytest.fail("it translated"))
        assert run(["evaluate", "-m", model, *test_set, "--against", str(tmp_path / against)]) == 1
    assert f"{against}: " in capsys.readouterr().err


def test_progress_is_reported(
    files: dict[str, str], model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress goes to standard error, line by line without a terminal, so that a program can read the scores."""
    monkeypatch.setattr("heedful.cli.progress.EVERY", 0.0)
    arguments = ["-m", model, "--source", files["source"], "--target", files["target"], "--json"]
    assert run(["evaluate", *arguments, "--against", model]) == 0
    out, err = capsys.readouterr()
    json.loads(out)
    lines = err.splitlines()
    for activity in ("translating", "scoring the references"):
        reports = [line for line in lines if line.startswith(f"{model}: {activity}: ")]
        assert f"{model}: {activity}: 4 sentences" in reports[-1] and "100%" in reports[-1]
    assert len([line for line in lines if "translating: 4 sentences" in line]) == 2  # of both models


def test_files_are_scored_without_torch(files: dict[str, str]) -> None:
    program = f"""
import sys
from heedful.cli.main import run
assert run(["evaluate", "--hypotheses", {files["output"]!r}, "--target", {files["target"]!r}]) == 0
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_chinese_with_13a_gives_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "zh", ["一只狗在街上奔跑。", "两个女孩在看书。"])
    report = answer(["--hypotheses", path, "--target", path], capsys)
    assert "--tokenize zh" in report["notes"][0]
    assert run(["evaluate", "--hypotheses", path, "--target", path]) == 0
    assert f"note: {report['notes'][0]}" in capsys.readouterr().out
    assert answer(["--hypotheses", path, "--target", path, "--tokenize", "zh"], capsys)["notes"] == []


def test_empty_lines_are_sentences(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = write(tmp_path / "gaps", [OUTPUT[0], "", "", OUTPUT[3]])
    report = answer(["--hypotheses", output, "--target", files["target"], "--worst", "9"], capsys)
    assert report["sentences"] == 4
    assert [row["line"] for row in report["worst"]] == [2, 3, 1, 4]


def test_characters_that_a_terminal_cannot_encode_are_escaped(files: dict[str, str]) -> None:
    command = [sys.executable, "-m", "heedful", "evaluate", "--worst", "4"]
    done = subprocess.run(
        [*command, "--hypotheses", files["output"], "--target", files["target"]],
        env={"PATH": "", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"schl\xe4ft" in done.stdout


MISTAKES = {
    "--target {target}": ("nothing to evaluate", "--hypotheses"),
    "--hypotheses {output}": ("--target",),
    "-m {folder} --target {target}": ("--source",),
    "-m {folder} --hypotheses {output} --target {target}": ("--against",),
    "-m {output} --source {source} --target {target}": ("--hypotheses",),
    "--hypotheses {folder} --target {target}": ("folder", "-m"),
    "--hypotheses {short} --target {target}": ("short: 3 lines", "target has 4"),
    "--hypotheses {output} --target {target} --target {short}": ("short: 3 lines", "target has 4"),
    "--hypotheses {output} --target {target} --source {short}": ("short: 3 lines", "target has 4"),
    "--hypotheses {output} --target {target} --against {short}": ("short: 3 lines", "target has 4"),
    "--hypotheses {nothing} --target {nothing}": ("nothing", "no line in it"),
    "--hypotheses absent --target {target}": ("absent: no such file",),
    "--hypotheses {latin} --target {target}": ("latin: line 2", "0xE4"),
    "--hypotheses {output} --target {target} --worst -1": ("--worst -1",),
    "--hypotheses {output} --target {target} --per-sentence absent/file": ("absent/file", "no folder"),
    "--hypotheses {output} --target {target} --against {folder} --source {source}": ("folder",),
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_explained(
    typed: str, files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin").write_bytes(b"a\nschl\xe4ft\nc\nd\n")
    untrained = {"short": write(tmp_path / "short", TARGET[:3]), "nothing": write(tmp_path / "nothing", [])}
    places = {**files, **untrained, "folder": str(tmp_path / "folder"), "latin": str(tmp_path / "latin")}
    assert run(["evaluate", *typed.format(**places).split()]) == 1
    message = capsys.readouterr().err
    assert "Traceback" not in message and "on_bad_line" not in message
    for word in MISTAKES[typed]:
        assert word in message
