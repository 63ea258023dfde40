"""`heedful fill`, `classify` and `embed`: outputs, formats and mistakes."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

from encoder_models import bert_folder, own_tokenizers, picture, vit_folder
from heedful.cli.embed import npy_header
from heedful.cli.main import run
from heedful.decoding.classifier import Classifier
from heedful.decoding.embedder import Embedder
from heedful.decoding.fill_mask import FillMask

LINES = ["a dog runs", "", "two dogs run on the beach", "a cat\u2028sleeps"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Models for masked words, for labels of texts, of tokens and of images."""
    place, tokenizers = tmp_path_factory.mktemp("encoders"), own_tokenizers()
    bert_folder(place / "bert", tokenizers)
    bert_folder(place / "mood", tokenizers, head="classify", labels=("bad", "good", "so-so"))
    bert_folder(place / "tags", tokenizers, head="tag", labels=("O", "B"))
    vit_folder(place / "vit")
    (place / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return place


def test_fill_prints_words_with_their_probabilities(folder: Path, capsys) -> None:
    assert run(["fill", "a [MASK] runs", "-m", str(folder / "bert"), "--top-k", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [expected] = FillMask.load(folder / "bert").fill("a [MASK] runs", top_k=3)
    assert [float(line.split()[0]) for line in lines] == [pytest.approx(c.score, abs=1e-4) for c in expected]


def test_fill_with_an_ascii_standard_output(folder: Path) -> None:
    shown = {}
    for encoding in ("utf-8", "ascii"):
        for more in ((), ("--json",)):
            out = io.BytesIO()
            with contextlib.redirect_stdout(io.TextIOWrapper(out, encoding=encoding)) as stream:
                assert run(["fill", "ä [MASK] runs", "-m", str(folder / "bert"), *more]) == 0
                stream.detach()
            shown[encoding, more] = out.getvalue()
    assert shown["ascii", ()] == shown["utf-8", ()].decode().encode("ascii", "backslashreplace")
    assert shown["ascii", ("--json",)] == shown["utf-8", ("--json",)]
    assert not shown["utf-8", ()].isascii()


def test_fill_as_json(folder: Path, capsys) -> None:
    arguments = ["fill", "a [MASK] runs on [MASK]", "-m", str(folder / "bert"), "--json", "--target", "dog", "cat"]
    assert run(arguments) == 0
    results = json.loads(capsys.readouterr().out)
    assert [len(place) for place in results] == [2, 2]
    assert sorted(results[0][0]) == ["score", "text", "token", "token_text"]


def test_classify_writes_one_line_for_each_line(folder: Path, capsys) -> None:
    assert run(["classify", str(folder / "lines.txt"), "-m", str(folder / "mood")]) == 0
    lines = capsys.readouterr().out.split("\n")
    expected = Classifier.load(folder / "mood").classify(LINES)
    assert lines[-1] == "" and len(lines) == len(LINES) + 1
    for line, labels in zip(lines, expected, strict=False):
        label, score = line.split("\t")
        assert (label, float(score)) == (labels[0].label, pytest.approx(labels[0].score, abs=1e-3))


def test_classify_as_json(folder: Path, tmp_path: Path) -> None:
    arguments = ["classify", str(folder / "lines.txt"), "-m", str(folder / "mood"), "--format", "jsonl", "--top-k", "2"]
    assert run([*arguments, "--output", str(tmp_path / "out.jsonl")]) == 0
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().split(b"\n")[:-1]]
    assert len(results) == len(LINES)
    assert all(one["label"] == one["labels"][0]["label"] and len(one["labels"]) == 2 for one in results)


def test_classify_words(folder: Path, capsys) -> None:
    arguments = ["classify", str(folder / "lines.txt"), "-m", str(folder / "tags")]
    assert run(arguments) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == len(LINES) + 1 and lines[1] == ""
    results = Classifier.load(folder / "tags").label_words(LINES)
    assert lines[:-1] == [" ".join(f"{one.word}/{one.label}" for one in words) for words in results]
    assert run([*arguments, "--format", "jsonl"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[one["word"] for one in each["words"]] for each in objects] == [line.split() for line in LINES]
    assert sorted(objects[0]["words"][0]) == ["label", "score", "word"]


def test_a_missing_image_is_named_with_its_line(folder: Path, tmp_path: Path, capsys) -> None:
    there = picture(tmp_path / "there.png")
    (tmp_path / "names.txt").write_text(f"{there}\n{tmp_path / 'nowhere.png'}\n")
    assert run(["classify", str(tmp_path / "names.txt"), "-m", str(folder / "vit")]) == 1
    place = f"{tmp_path / 'names.txt'}: line 2 (byte {len(str(there)) + 1})"
    assert f"heedful: {place}: {tmp_path / 'nowhere.png'}: no such file\n" == capsys.readouterr().err
    assert run(["classify", str(tmp_path / "nowhere.png"), "-m", str(folder / "vit")]) == 1
    assert f"heedful: {tmp_path / 'nowhere.png'}: no such file\n" == capsys.readouterr().err


def test_a_target_of_several_tokens_gives_a_warning(folder: Path, capsys) -> None:
    pieces = own_tokenizers().source.pieces(own_tokenizers().source.encode("zebrafish"))
    assert len(pieces) > 1
    assert run(["fill", "a [MASK] runs", "-m", str(folder / "bert"), "--target", "zebrafish", "a"]) == 0
    error = capsys.readouterr().err
    assert error.startswith(f"heedful: the target 'zebrafish' has {len(pieces)} tokens") and error.count("\n") == 1
    assert f"the first, {pieces[0]!r}, is used" in error


def test_classify_images(folder: Path, tmp_path: Path, capsys) -> None:
    files = [picture(tmp_path / f"{n}.png", seed=n) for n in range(3)]
    assert run(["classify", str(files[1]), "-m", str(folder / "vit")]) == 0
    one = capsys.readouterr().out
    (tmp_path / "names.txt").write_text("".join(f"{file}\n" for file in files))
    assert run(["classify", str(tmp_path / "names.txt"), "-m", str(folder / "vit")]) == 0
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert len(lines) == 3 and lines[1].split("\t")[0] == one.split("\t")[0]
    (tmp_path / "names.txt").write_text("nowhere.png\n")
    assert run(["classify", str(tmp_path / "names.txt"), "-m", str(folder / "vit")]) == 1
    assert "nowhere.png" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["classify"], ["embed", "--output", "v.npy"]])
def test_input_that_is_no_list_of_images_is_refused(
    command: list[str], folder: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    picture(tmp_path / "there.png").rename("film.gif")
    Path("photos").mkdir()
    Path("names").write_text("film.gif\n\n")
    picture(tmp_path / "there.png")
    for model, file, words in (
        ("vit", "film.gif", None),  # a PNG under another name
        ("vit", "names", "the name of an image file is missing"),
        ("vit", "photos", "ls photos/* | heedful"),
        ("mood", "there.png", "there.png: an image, and this model reads text"),
        ("mood", "photos", "name one file"),
    ):
        assert run([*command, file, "-m", str(folder / model)]) == (words is not None)
        assert (words or "") in capsys.readouterr().err


def test_a_line_that_is_not_utf8(folder: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "bad.txt").write_bytes(b"a dog\n\xff\xfe\na cat\n")
    arguments = ["classify", str(tmp_path / "bad.txt"), "-m", str(folder / "mood")]
    assert run(arguments) == 1
    error = capsys.readouterr().err
    assert "bad.txt" in error and error.endswith("Or pass --on-bad-line skip\n")
    assert run([*arguments, "--on-bad-line", "skip"]) == 0
    assert capsys.readouterr().out.split("\n")[1] == ""
    assert (
        run(["embed", str(tmp_path / "bad.txt"), "-m", str(folder / "bert"), "--output", str(tmp_path / "v.npy")]) == 1
    )


@pytest.mark.parametrize("pool", ["mean", "class"])
def test_embed_to_npy(pool: str, folder: Path, tmp_path: Path) -> None:
    arguments = ["embed", str(folder / "lines.txt"), "-m", str(folder / "bert"), "--output", str(tmp_path / "v.npy")]
    assert run([*arguments, "--pool", pool]) == 0
    results = np.load(tmp_path / "v.npy", allow_pickle=False)
    assert results.dtype == np.float32
    expected = Embedder.load(folder / "bert").embed(LINES, pool=pool).numpy()
    assert np.allclose(results, expected, atol=1e-6)


def test_embed_to_jsonl(folder: Path, tmp_path: Path) -> None:
    arguments = ["embed", str(folder / "lines.txt"), "-m", str(folder / "bert"), "--output", str(tmp_path / "v.jsonl")]
    assert run(arguments) == 0
    assert [len(json.loads(line)["vector"]) for line in (tmp_path / "v.jsonl").open()] == [16] * len(LINES)
    assert run([*arguments, "--pool", "tokens"]) == 0
    for line in (tmp_path / "v.jsonl").open():
        values = json.loads(line)
        assert len(values["tokens"]) == len(values["vectors"]) >= 2


@pytest.mark.parametrize("name", ["v.npy", "v.jsonl"])
def test_embed_reports_its_progress(name: str, folder: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("heedful.cli.progress.EVERY", 0.0)
    (tmp_path / "many.txt").write_text("a dog runs\n" * 100)
    assert run(["embed", str(tmp_path / "many.txt"), "-m", str(folder / "bert"), "--output", str(tmp_path / name)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(", ")[0] for line in lines] == [f"embedding: {n} lines" for n in (32, 96, 100)]
    assert [line.split(", ")[2] for line in lines] == ["32%", "96%", "100%"]


def test_embed_an_image(folder: Path, tmp_path: Path) -> None:
    file = picture(tmp_path / "a.png")
    assert run(["embed", str(file), "-m", str(folder / "vit"), "--output", str(tmp_path / "v.npy")]) == 0
    assert np.load(tmp_path / "v.npy").shape == (1, 16)


@pytest.mark.parametrize("n_rows", [0, 7, 10**12])
def test_the_header_is_numpys_and_has_a_fixed_length(n_rows: int) -> None:
    import io

    header = npy_header(n_rows, 1024)
    assert len(header) == 128
    assert np.lib.format.read_magic(stream := io.BytesIO(header)) == (1, 0)
    assert np.lib.format.read_array_header_1_0(stream) == ((n_rows, 1024), False, np.dtype("<f4"))


MISTAKES = {
    "no mask": (["fill", "a dog", "-m", "bert"], "has no [MASK]"),
    "another family": (["fill", "a [MASK]", "-m", "vit"], "family 'vit'"),
    "no labels": (["classify", "lines.txt", "-m", "bert"], "labels need head"),
    "top_k": (["classify", "lines.txt", "-m", "mood", "--top-k", "0"], "--top-k"),
    "a picture": (["embed", "lines.txt", "-m", "bert", "--output", "v.png"], ".npy or .jsonl"),
    "tokens as a table": (
        ["embed", "lines.txt", "-m", "bert", "--output", "v.npy", "--pool", "tokens"],
        "write a .jsonl",
    ),
    "no pooler": (["embed", "lines.txt", "-m", "bert", "--output", "v.npy", "--pool", "pooler"], "no pooler"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_gives_one_paragraph(case: str, folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    arguments, words = MISTAKES[case]
    assert run(arguments) == 1
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error
