"""How fast a decoder-only model writes, beside Hugging Face's `generate`: the same weights, prompts and texts.

    python benchmarks/speed/generate.py [--threads 2] [--rounds 5] [--json generate.json]
    python benchmarks/speed/generate.py --quick                                           # does it run?

All write greedily, with a cache, exactly as many tokens for every prompt; none ever ends by itself. heedful runs as
users get it (`auto`: CTranslate2 in float32), with `compute="int8"`, and on torch alone. Each is in a process of its
own, and they take turns, round after round; a ratio is taken within a round, and the median of the rounds is shown.
The weights are random: what a step costs does not depend on them. The texts must be equal, token for token; with
random weights the two likeliest tokens are sometimes equal but for rounding, and then a text goes another way, so the
share of texts that are equal to Hugging Face's is shown. In int8 few are.
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
from heedful.interop.huggingface.checkpoint import export_huggingface
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.models.special_ids import SpecialIds

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
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens for each prompt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--lanes", type=int, help="batches that torch has under way at a time; by default heedful's choice"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
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
        model = make(shape, options)
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
            folder = Path(name)
            save_model(folder / "ours", model, None)
            export_huggingface(folder / "ours", folder / "theirs")
            programs = {one: running.enter_context(Running(one, folder, options)) for one in NAMES}
            for batch in options.batches:
                results.append({"shape": shape, **compare(programs, batch, model.config.vocab_size, options)})
                show(results[-1], sum(one.numel() for one in model.parameters()))
    if options.json:
        options.json.write_text(json.dumps({"options": {**vars(options), "json": None}, "results": results}, indent=1))


def make(shape: str, options: argparse.Namespace) -> Gpt:
    torch.manual_seed(1)
    sizes = {"vocab_size": 16384, **SHAPES[shape]}
    if options.quick:
        sizes |= {"vocab_size": 300, "d_model": 48, "n_layers": 2, "d_ff": 96}
    # An end outside of the vocabulary never comes.
    model = Gpt(GptConfig(**sizes, max_len=1024, marks=SpecialIds(start_id=0, end_id=sizes["vocab_size"])))
    with torch.no_grad():  # as drawn, a tied model repeats the last token; larger numbers make texts that move
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.eval()


class Running:
    """A program, in a process of its own."""

    def __init__(self, name: str, folder: Path, options: argparse.Namespace) -> None:
        lanes = [str(options.lanes)] if options.lanes and name == "heedful, torch" else []
        command = [sys.executable, PROGRAMS, name, folder, str(options.threads), *lanes]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def write(self, prompts: Texts, n_tokens: int) -> tuple[Texts, float]:
        """The texts, and the seconds that they took."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "n_tokens": n_tokens}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a program ended with code {self._process.wait()}")
        answer = json.loads(line)
        return answer["texts"], answer["seconds"]

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def compare(programs: dict[str, Running], batch: int, vocab_size: int, options: argparse.Namespace) -> dict:
    """Rounds in turn, after one that nobody counts."""
    torch.manual_seed(2)
    prompts = torch.randint(1, vocab_size, (batch, options.prompt)).tolist()
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    found: dict[str, Texts] = {}
    for number in range(options.rounds + 1):
        for name, program in programs.items():
            found[name], took = program.write(prompts, options.tokens)
            if number:
                seconds[name].append(took)
    equal = {name: sum(a == b for a, b in zip(texts, found[PEER], strict=True)) for name, texts in found.items()}
    assert all(len(text) == options.tokens for texts in found.values() for text in texts)
    return {"batch": batch, "seconds": seconds, "equal": equal, "n_tokens": batch * options.tokens}


def show(result: dict, n_parameters: int) -> None:
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
