"""`heedful generate`: a prompt as an argument, or one on each line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from deterministic import fill
from echo_engine import tokenizers
from heedful.cli import main
from heedful.cli.line_filter import one_line
from heedful.decoding.generator import Generator
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = GptConfig(
        vocab_size=tokenizers().source.vocab_size, d_model=16, n_layers=1, n_heads=2, d_ff=24, max_len=16
    )
    folder = tmp_path_factory.mktemp("generate") / "model"
    return save_model(folder, fill(Gpt(config), dtype=torch.float32), tokenizers())


@pytest.fixture(scope="module")
def generator(model: Path) -> Generator:
    return Generator.load(model)


def ran(*arguments: str, capfdbinary: pytest.CaptureFixture[bytes]) -> bytes:
    assert main.run(["generate", *arguments]) == 0
    out, err = capfdbinary.readouterr()
    assert err == b""
    return out


def filtered(model: Path, prompts: bytes, *options: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "heedful", "generate", "-m", str(model), *options]
    return subprocess.run(command, input=prompts, capture_output=True, check=False)


def test_a_prompt_and_its_continuation(model: Path, generator: Generator, capfdbinary) -> None:
    out = ran("A dog", "-m", str(model), "--max-tokens", "9", capfdbinary=capfdbinary)
    assert out.decode() == "A dog" + generator.generate("A dog", max_len=9) + "\n"


def test_sampling_with_a_seed(model: Path, generator: Generator, capfdbinary) -> None:
    options = ["A dog", "-m", str(model), "--max-tokens", "9", "--temperature", "0.9", "--top-k", "20", "--seed"]
    texts = [ran(*options, seed, capfdbinary=capfdbinary).decode() for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]
    sampling = {"temperature": 0.9, "top_k": 20, "seed": 1}
    assert texts[0] == "A dog" + generator.generate("A dog", max_len=9, sampling=sampling) + "\n"


def test_json_and_several_texts(model: Path, generator: Generator, capfdbinary) -> None:
    options = ["A dog", "-m", str(model), "--max-tokens", "6", "--beam", "3", "--n-best", "2"]
    expected = generator.search("A dog", max_len=6, beam=3, n_best=2)
    values = json.loads(ran(*options, "--format", "jsonl", capfdbinary=capfdbinary))
    assert values["prompt"] == "A dog"
    assert values["text"] == expected[0].text
    assert values["complete"] == expected[0].complete
    assert [one["score"] for one in values["candidates"]] == [one.score for one in expected]
    lines = ran(*options, capfdbinary=capfdbinary).decode().splitlines()
    assert [line.split(" ||| ")[0] for line in lines] == ["0", "0"]
    assert len(lines) == 2


def test_standard_input_gives_one_line_for_each_prompt(model: Path, generator: Generator) -> None:
    process = filtered(model, b"A dog\n\n  \nTwo cats\r\nlast", "--max-tokens", "9")
    assert process.returncode == 0, process.stderr
    lines = process.stdout.decode().split("\n")
    texts = [f"{prompt}{generator.generate(prompt, max_len=9)}" for prompt in ("A dog", "Two cats", "last")]
    assert lines == [texts[0], "", "  ", texts[1], texts[2], ""]


def test_standard_input_to_a_file_of_json(model: Path, generator: Generator, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    process = filtered(
        model, b"A dog\nx\n", "--format", "jsonl", "--output", str(out), "--seed", "3", "--max-tokens", "5"
    )
    assert (process.returncode, process.stdout) == (0, b"")
    objects = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    expected = generator.search(["A dog", "x"], max_len=5, sampling={"seed": 3})
    assert [one["text"] for one in objects] == [best[0].text for best in expected]


def test_the_text_appears_while_it_is_generated(model: Path) -> None:
    command = [sys.executable, "-m", "heedful", "generate", "A dog", "-m", str(model), "--max-tokens", "100000"]
    process = subprocess.Popen([*command, "--seed", "1", "--set", "min_len=100000"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(9).startswith(b"A dog")  # long before 100,000 tokens are generated
    process.terminate()
    process.wait()


def test_a_prompt_beyond_the_context_gives_a_warning(model: Path, capfd) -> None:
    assert main.run(["generate", "abcdefghijklmnopqrstuvwxyz", "-m", str(model), "--max-tokens", "3"]) == 0
    assert "heedful: the prompt has 28 tokens" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "-m", "nowhere"], "no such folder"),
        (["x", "-m", "MODEL", "--max-tokens", "0"], "--max-tokens 0: must lie between 1 and 1,000,000"),
        (["x", "-m", "MODEL", "--max-tokens", "5", "--set", "min_len=9"], "--max-tokens 5: fewer than min_len = 9"),
        (["x", "-m", "MODEL", "--set", "max_len=0"], "'max_len' must lie between 1"),
        (["x", "-m", "MODEL", "--temperature", "0"], "temperature must be above 0"),
        (["x", "-m", "MODEL", "--set", "beams=3"], "did you mean 'beam'"),
        (["x", "-m", "MODEL", "--compute", "int8", "--seed", "1"], "only CTranslate2 has it"),
        (["x", "-m", "MODEL", "--beam", "3", "--seed", "1"], "a beam search does not sample"),
        (["x", "-m", "MODEL", "--beam", "3", "--set", "sampling.top_k=4"], "a beam search does not sample"),
        (
            ["x", "-m", "MODEL", "--set", "shortlist=true"],
            "shortlist = true: a shortlist holds the translations of source words",
        ),
        (["x", "-m", "SEQ2SEQ"], "family 'seq2seq'"),
    ],
)
def test_mistakes(arguments: list[str], words: str, model: Path, tmp_path: Path, capfd) -> None:
    if "SEQ2SEQ" in arguments:
        config = Seq2SeqConfig(11, 11, d_model=8, n_layers=1, n_heads=2, d_ff=12)
        save_model(tmp_path / "other", Seq2Seq(config), None)
    places = {"MODEL": str(model), "SEQ2SEQ": str(tmp_path / "other")}
    assert main.run(["generate", *(places.get(one, one) for one in arguments)]) == 1
    out, err = capfd.readouterr()
    assert words in err
    assert "Traceback" not in err
    assert out == ""


def test_a_line_that_is_not_utf8_is_named(model: Path) -> None:
    process = filtered(model, b"A dog\n\xff\n", "--max-tokens", "3")
    assert process.returncode == 1
    assert process.stdout.count(b"\n") == 1  # the lines before it are written
    assert b"2" in process.stderr and b"UTF-8" in process.stderr
    assert b"--on-bad-line" not in process.stderr
    assert b"iconv -f latin1 -t utf-8 FILE | heedful" in process.stderr  # standard input has no file name


def test_samples_depend_on_the_line_number_alone(model: Path, generator: Generator) -> None:
    lines = ["same", "", "same"] + ["  ", "same"] * 20
    options = ("--temperature", "1", "--max-tokens", "8")
    process = filtered(model, "".join(f"{line}\n" for line in lines).encode(), *options)
    numbers = [number for number, line in enumerate(lines) if line.strip()]
    drawn = generator.generate(["same"] * len(lines), sampling={"temperature": 1.0}, max_len=8)
    lines_out = process.stdout.decode().split("\n")
    assert [lines_out[number] for number in numbers] == [one_line(f"same{drawn[number]}") for number in numbers]
