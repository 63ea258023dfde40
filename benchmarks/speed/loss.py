"""Compare the loss over a few rows at a time with the loss over the logits of a whole batch: time and memory.

    python benchmarks/speed/loss.py [--tokens 4096] [--width 256] [--vocabularies 8000 32000] [--threads 1] [--rounds 5]

Forward and backward from the decoder's last hidden states, label smoothing 0.1, float32. With R-Drop, half of the
states are the second pass over the same tokens. Each method runs in its own processes, and the methods take turns.
Memory is the growth of the highest resident set.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only the child processes import torch
    from torch import Tensor

AGREEMENT = 2.0
METHODS = {
    "logits of the whole batch": "whole",
    "a few rows at a time (`linear_cross_entropy`)": "chunks",
    "R-Drop, logits of the whole batch": "twice",
    "R-Drop, a few rows at a time (`agreeing_cross_entropy`)": "twice in chunks",
}


def measure(method: str, tokens: int, width: int, vocabulary: int, threads: int) -> tuple[float, float]:
    """Return the seconds of one forward and backward pass (the best of three) and its megabytes."""
    import torch

    from heedful.training.losses import agreeing_cross_entropy, linear_cross_entropy, smoothed_cross_entropy

    def whole_batch(states: "Tensor", weight: "Tensor", target: "Tensor") -> "Tensor":
        return smoothed_cross_entropy(states @ weight.T, target, 0.1)

    def whole_batch_r_drop(states: "Tensor", weight: "Tensor", target: "Tensor") -> "Tensor":
        p, q = (states @ weight.T).log_softmax(-1).chunk(2)
        loss = smoothed_cross_entropy(p, target[: len(p)], 0.1) + smoothed_cross_entropy(q, target[len(p) :], 0.1)
        return loss / 2 + AGREEMENT / 4 * ((p.exp() - q.exp()) * (p - q)).sum()

    losses = {
        "whole": whole_batch,
        "chunks": partial(linear_cross_entropy, label_smoothing=0.1),
        "twice": whole_batch_r_drop,
        "twice in chunks": partial(agreeing_cross_entropy, label_smoothing=0.1, agreement=AGREEMENT),
    }
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    states = torch.randn(tokens, width, requires_grad=True)
    weight = (torch.randn(vocabulary, width) * width**-0.5).requires_grad_()
    target = torch.randint(vocabulary, (tokens // 2,)).repeat(2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(3):
        states.grad = weight.grad = None
        start = time.perf_counter()
        losses[method](states, weight, target).backward()
        seconds.append(time.perf_counter() - start)
    return min(seconds), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of the batch")
    parser.add_argument("--width", type=int, default=256, help="size of a hidden state")
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[8000, 32000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        method, vocabulary = options.one.split(":")
        print(json.dumps(measure(method, options.tokens, options.width, int(vocabulary), options.threads)))
        return
    print(
        f"{options.tokens:,} tokens, width {options.width}, {options.threads} thread(s), median of {options.rounds}\n"
    )
    print("| vocabulary | method | milliseconds | megabytes |\n|---:|---|---:|---:|")
    args = ["--tokens", str(options.tokens), "--width", str(options.width), "--threads", str(options.threads)]
    for vocabulary in options.vocabularies:
        results: dict[str, list[list[float]]] = {name: [] for name in METHODS}
        for _ in range(options.rounds):
            for name, method in METHODS.items():
                command = [sys.executable, __file__, "--one", f"{method}:{vocabulary}", *args]
                results[name].append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
        for name, rounds in results.items():
            seconds, megabytes = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(f"| {vocabulary:,} | {name} | {seconds * 1000:,.0f} | {megabytes:,.0f} |")


if __name__ == "__main__":
    main()
