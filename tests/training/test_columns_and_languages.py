"""data.columns and data.languages select what a run learns from, in training and in validation."""

import json
from pathlib import Path

import pytest

from heedful.cli.main import run
from heedful.data import Corpus
from heedful.errors import UserError
from heedful.training.resolve_settings import resolve_settings
from heedful.training.run_config import Content, Files
from heedful.training.settings import DataSettings
from small_run import settings

ROWS = [{"de": f"Hund {n}", "en": f"dog {n}", "fr": f"chien {n}"} for n in range(5)]
EN_DE = [(row["en"], row["de"]) for row in ROWS]


def pairs_of(corpus: Corpus) -> list[tuple[str, str]]:
    return [(example.source, example.target) for example in corpus]


def files_of(path: Path, content: Content = "pairs") -> Files:
    return Files.of(path, (), path, None, None, content)


def write_tmx(path: Path) -> Path:
    units = [
        "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in row.items()) + "</tu>"
        for row in ROWS
    ]
    path.write_text(f'<tmx version="1.4"><body>{"".join(units)}</body></tmx>', encoding="utf-8")
    return path


def write_jsonl(path: Path, *, inside: bool) -> Path:
    rows = [{"translation": row} if inside else row for row in ROWS]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: heedful[parquet]")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("kind", ["tmx", "inside.jsonl", "flat.jsonl", "parquet"])
def test_languages_are_chosen_and_have_their_direction(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    if kind == "tmx":
        write_tmx(path)
    elif kind == "parquet":
        write_parquet(path)
    else:
        write_jsonl(path, inside=kind.startswith("inside"))
    data = DataSettings(languages=("en", "de"))
    [corpus] = files_of(path).corpora(data)
    valid = files_of(path).valid_corpus(data)
    assert valid is not None and pairs_of(corpus) == pairs_of(valid) == EN_DE
    [back] = files_of(path).corpora(DataSettings(languages=("de", "en")))
    assert pairs_of(back) == [(german, english) for english, german in EN_DE]
    assert back.fingerprint() != corpus.fingerprint()
    with pytest.raises(UserError, match=r"data\.languages"):
        pairs_of(files_of(path).corpora()[0])


@pytest.mark.parametrize("content", ["pairs", "labels"])
def test_columns_are_chosen(content: Content, tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text(
        "".join(f"{german}\t{n}\t{english}\n" for n, (english, german) in enumerate(EN_DE)), encoding="utf-8"
    )
    data = DataSettings(columns=(3, 1))
    [corpus] = files_of(path, content).corpora(data)
    valid = files_of(path, content).valid_corpus(data)
    assert valid is not None and pairs_of(corpus) == pairs_of(valid) == EN_DE
    assert pairs_of(files_of(path, content).corpora()[0])[0] == ("Hund 0", "0")


def test_for_other_formats_languages_are_for_the_card_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("".join(f"{one}\t{other}\n" for one, other in EN_DE), encoding="utf-8")
    [plain], [named] = (files_of(path).corpora(data) for data in (DataSettings(), DataSettings(languages=("en", "de"))))
    assert pairs_of(plain) == pairs_of(named) == EN_DE and plain.fingerprint() == named.fingerprint()


def test_a_recipe_is_chosen_for_a_file_of_three_languages(tmp_path: Path) -> None:
    files = files_of(write_jsonl(tmp_path / "rows.jsonl", inside=True))
    assert resolve_settings(files, None, None, ['data.languages=["en", "fr"]']).recipe == "tiny"


def test_a_run_learns_from_the_second_column_to_the_first(tmp_path: Path) -> None:
    words = ["red", "green", "blue", "small", "large", "old", "new", "wet", "dry", "sad"]
    lines = [f"{a}-{b} HUND\t{a} {b} dog\n" for a in words for b in words]
    (tmp_path / "rows.tsv").write_text("".join(lines), encoding="utf-8")
    small = [f"model.{size}" for size in ("d_model=16", "d_ff=16", "n_heads=2", "n_layers=1")]
    command = ["train", str(tmp_path / "run"), "--source", str(tmp_path / "rows.tsv"), "--set", "data.columns=[2, 1]"]
    assert run([*command, *small, "tokenizer.vocab_size=300", "run.steps=2", "data.workers=0"]) == 0
    held_out = [json.loads(line) for line in (tmp_path / "run" / "data" / "valid.jsonl").read_text().splitlines()]
    assert held_out and all("dog" in pair["source"] and "HUND" in pair["target"] for pair in held_out)


@pytest.mark.parametrize("columns", ["[2]", "[1, 1]", "[0, 1]", "[1, 2, 3]"])
def test_columns_are_two(columns: str) -> None:
    with pytest.raises(UserError, match="two different columns"):
        settings(f"data.columns={columns}")


@pytest.mark.parametrize("setting", ["data.columns=[2, 1]", "data.informal_share=0.1"])
def test_settings_of_pairs_are_rejected_for_running_text(setting: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("A dog.\n", encoding="utf-8")
    files = Files.of(tmp_path / "book.txt", (), None, None, None, "text")
    with pytest.raises(UserError, match="cannot use it"):
        resolve_settings(files, "gpt", None, [setting])
