"""Compare the generation speed of a decoder-only model with Hugging Face's `generate`: the same weights and prompts.

    python benchmarks/speed/generate.py [--threads 2] [--rounds 5] [--json generate.json]
    python benchmarks/speed/generate.py --quick  # a short test that it runs

All programs use greedy search with a KV cache and generate the same number of tokens for every prompt; no text ends
early. heedful runs with its default engine (`auto`: CTranslate2 in float32), with `compute="int8"`, and on torch alone.
Each program runs in its own process, and they take turns, round after round. A ratio compares the times of one round;
the median over the rounds is shown.

The weights are random, because the cost of a step does not depend on them. The texts should be equal token for token.
With random weights the two most likely tokens sometimes differ by rounding only, and the texts differ from there on,
so the table shows how many texts equal Hugging Face's. In int8 few are equal.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from heedful.cli.system_info import processor
from heedful.interop import export_huggingface
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.text.special_ids import SpecialIds

SHAPES = {
    "nanogpt": {"d_model": 128, "n_layers": 4, "n_heads": 4, "d_ff": 512, "vocab_size": 65},
    "gpt2": {"d_model": 256, "n_layers": 12, "n_heads": 4, "d_ff": 1024},
    "gpt2-wide-vocabulary": {"d_model": 256, "n_layers": 6, "n_heads": 4, "d_ff": 1024, "vocab_size": 50257},
    "llama": {
        "d_model": 256, "n_layers": 12, "n_heads": 4, "n_kv_heads": 2, "d_ff": 704, "positions": "rotary",
        "norm": "rms", "activation": "swiglu", "attention_bias": False, "feed_forward_bias": False, "tied": False,
    },
}  # fmt: skip
PROGRAMS = Path(__file__).parents[1] / "peers" / "generate_programs.py"
PEER = "Hugging Face"
NAMES = ("heedful", "heedful, int8", "heedful, torch", PEER)
Texts = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES), help="model shapes to measure"
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16], help="numbers of prompts per call")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens for each prompt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lanes", type=int, help="batches that torch decodes in parallel (default: heedful's choice)")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few tokens: tests that it runs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.tokens, options.prompt = 1, 8, 5
    print(
        f"{processor()}, {options.threads} threads, torch {torch.__version__}; "
        f"{options.prompt} + {options.tokens} tokens\n"
    )
    print("| model | parameters | batch | program | tokens/s | × Hugging Face | equal texts |")
    print("|---|---:|---:|---|---:|---:|---:|")
    results = []
    for shape in options.shapes:
        model = make_model(shape, options)
        with tempfile.TemporaryDirectory() as path, contextlib.ExitStack() as stack:
            folder = Path(path)
            save_model(folder / "ours", model, None)
            export_huggingface(folder / "ours", folder / "theirs")
            programs = {name: stack.enter_context(Program(name, folder, options)) for name in NAMES}
            for batch in options.batches:
                results.append({"shape": shape, **compare(programs, batch, model.config.vocab_size, options)})
                print_rows(results[-1], sum(parameter.numel() for parameter in model.parameters()))
    if options.json:
        options.json.write_text(json.dumps({"options": {**vars(options), "json": None}, "results": results}, indent=1))


def make_model(shape: str, options: argparse.Namespace) -> Gpt:
    torch.manual_seed(1)
    sizes = {"vocab_size": 16384, **SHAPES[shape]}
    if options.quick:
        sizes |= {"vocab_size": 300, "d_model": 48, "n_layers": 2, "d_ff": 96}
    # The end token is outside of the vocabulary, so no text ends early.
    model = Gpt(GptConfig(**sizes, max_len=1024, special_ids=SpecialIds(bos_id=0, eos_id=sizes["vocab_size"])))
    with torch.no_grad():  # with the initial weights a tied model repeats its last token; larger weights vary the text
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.eval()


class Program:
    """A program of benchmarks/peers/generate_programs.py that runs in its own process."""

    def __init__(self, name: str, folder: Path, options: argparse.Namespace) -> None:
        lanes = [str(options.lanes)] if options.lanes and name == "heedful, torch" else []
        command = [sys.executable, PROGRAMS, name, folder, str(options.threads), *lanes]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def generate(self, prompts: Texts, n_tokens: int) -> tuple[Texts, float]:
        """Generate `n_tokens` after each prompt; return the texts and the seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "n_tokens": n_tokens}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a program ended with code {self._process.wait()}")
        response = json.loads(line)
        return response["texts"], response["seconds"]

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def compare(programs: dict[str, Program], batch: int, vocab_size: int, options: argparse.Namespace) -> dict:
    """Measure the programs in turns, round after round; the first round is a warm-up."""
    torch.manual_seed(2)
    prompts = torch.randint(1, vocab_size, (batch, options.prompt)).tolist()
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    results: dict[str, Texts] = {}
    for number in range(options.rounds + 1):
        for name, program in programs.items():
            results[name], duration = program.generate(prompts, options.tokens)
            if number:
                seconds[name].append(duration)
    equal = {name: sum(a == b for a, b in zip(texts, results[PEER], strict=True)) for name, texts in results.items()}
    assert all(len(text) == options.tokens for texts in results.values() for text in texts)
    return {"batch": batch, "seconds": seconds, "equal": equal, "n_tokens": batch * options.tokens}


def print_rows(result: dict, n_parameters: int) -> None:
    for name, seconds in result["seconds"].items():
        ratios = [theirs / ours for ours, theirs in zip(seconds, result["seconds"][PEER], strict=True)]
        rate = result["n_tokens"] / statistics.median(seconds)
        print(
            f"| {result['shape']} | {n_parameters:,} | {result['batch']} | {name} | {rate:,.0f} "
            f"| {statistics.median(ratios):.2f} | {result['equal'][name]} of {result['batch']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
