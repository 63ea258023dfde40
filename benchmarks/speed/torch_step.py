"""Measure whether int8 or torch.compile would make the torch engine faster: the matrix products of a decoder step.

    python benchmarks/speed/torch_step.py [--threads 1] [--rounds 15]

Matrix products take most of a step's time. The shapes are those of a model with 3 layers, d_model 256, d_ff 1024 and a
vocabulary of 8,000: queries, keys and values in one product, the attention's output projection, both for the
cross-attention, the feed-forward block with its activation, the output layer. The number of rows is 1, or that of a
greedy batch, or that of the hypotheses of a beam. The table shows medians over rounds in which the methods take turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.decoding.steps.packed_linear import PackedLinear

D, FF, V, LAYERS = 256, 1024, 8000, 3
SHAPES = [(D, 3 * D), (D, D), (D, D), (D, D), (D, FF), (FF, D)] * LAYERS + [(D, V)]
Step = Callable[[Tensor], Tensor]


class Products(nn.Module):
    """All matrix products of a step in sequence; each reads the first columns of an earlier output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(inner, outer) for inner, outer in SHAPES)

    def forward(self, x: Tensor) -> Tensor:
        wide = x
        for layer in self.layers:
            output = layer(x if layer.in_features == D else wide)
            if layer.out_features == FF:
                wide = F.relu(output)
            else:
                x = output[:, :D]
        return output


def packed(model: Products) -> Step:
    """Return the step as heedful computes it: weights packed once, the activation fused with the product."""
    layers = [
        PackedLinear(layer.weight, layer.bias, F.relu if layer.out_features == FF else None) for layer in model.layers
    ]

    def step(x: Tensor) -> Tensor:
        wide = x
        for layer, (inner, outer) in zip(layers, SHAPES, strict=True):
            output = layer(x if inner == D else wide)
            if outer == FF:
                wide = output
            else:
                x = output[:, :D].contiguous()
        return output

    return step


def in_int8(model: Products) -> Step:
    """Return the step with int8 weights and dynamic quantization, which needs no calibration."""
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def compiled(model: Products) -> Step:
    """Return the compiled step, with a program for each number of rows; this needs a C++ compiler."""
    return torch.compile(model, dynamic=False)


METHODS: dict[str, Callable[[Products], Step]] = {"heedful": packed, "int8": in_int8, "torch.compile": compiled}


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = Products().eval()
    steps = {name: make(model) for name, make in METHODS.items()}
    print("| rows | " + " | ".join(f"{name}, ms" for name in steps) + " | int8 | torch.compile |")
    print("|---:|" + "---:|" * (len(steps) + 2))
    for rows in (1, 5, 64, 320):
        x = torch.randn(rows, D)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            step(x)  # packs or compiles
        for _ in range(options.rounds):
            for name, step in steps.items():
                times[name].append(seconds(step, x))
        milliseconds = {name: statistics.median(values) * 1000 for name, values in times.items()}
        ratios = [milliseconds["heedful"] / milliseconds[name] for name in ("int8", "torch.compile")]
        cells = [f"{milliseconds[name]:.2f}" for name in steps] + [f"{ratio:.2f} ×" for ratio in ratios]
        print(f"| {rows} | " + " | ".join(cells) + " |")


def seconds(step: Step, x: Tensor) -> float:
    n = max(2, 600 // len(x))
    start = time.perf_counter()
    for _ in range(n):
        step(x)
    return (time.perf_counter() - start) / n


if __name__ == "__main__":
    main()
