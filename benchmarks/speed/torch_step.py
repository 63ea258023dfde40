"""Would int8 or torch.compile make the torch engine faster? The products of one decoder step, as they are and so.

    python benchmarks/speed/torch_step.py [--threads 1] [--rounds 15]

Products are most of a step. Shapes are those of a model with 3 layers, d_model 256, d_ff 1024, 8,000 words: queries,
keys and values in one, the way out of the attention, both for the memory, the feed-forward part with its bend, the
vocabulary. Rows are the sentences of a greedy batch, the hypotheses of a batch with a beam, or one. Median of rounds
that take turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.decoding.steps.packed_linear import Linear

D, FF, V, LAYERS = 256, 1024, 8000, 3
SHAPES = [(D, 3 * D), (D, D), (D, D), (D, D), (D, FF), (FF, D)] * LAYERS + [(D, V)]
Step = Callable[[Tensor], Tensor]


class Products(nn.Module):
    """All the products of a step, one after the other: each reads as many numbers as it needs of what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(inner, outer) for inner, outer in SHAPES)

    def forward(self, x: Tensor) -> Tensor:
        wide = x
        for layer in self.layers:
            said = layer(x if layer.in_features == D else wide)
            if layer.out_features == FF:
                wide = F.relu(said)
            else:
                x = said[:, :D]
        return said


def packed(model: Products) -> Step:
    """As heedful's step does it: weights laid out once, the bend within the product."""
    layers = [Linear(layer.weight, layer.bias, F.relu if layer.out_features == FF else None) for layer in model.layers]

    def step(x: Tensor) -> Tensor:
        wide = x
        for layer, (inner, outer) in zip(layers, SHAPES, strict=True):
            said = layer(x if inner == D else wide)
            if outer == FF:
                wide = said
            else:
                x = said[:, :D].contiguous()
        return said

    return step


def in_int8(model: Products) -> Step:
    """Weights in int8, activations quantised at every call: what PyTorch offers without calibration."""
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def compiled(model: Products) -> Step:
    """One program for each number of rows; it needs a C++ compiler on the user's machine."""
    return torch.compile(model, dynamic=False)


WAYS: dict[str, Callable[[Products], Step]] = {"heedful": packed, "int8": in_int8, "torch.compile": compiled}


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    model = Products().eval()
    steps = {name: make(model) for name, make in WAYS.items()}
    print("| rows | " + " | ".join(f"{name}, ms" for name in steps) + " | int8 | torch.compile |")
    print("|---:|" + "---:|" * (len(steps) + 2))
    for rows in (1, 5, 64, 320):
        x = torch.randn(rows, D)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            step(x)  # laid out, compiled
        for _ in range(given.rounds):
            for name, step in steps.items():
                times[name].append(seconds(step, x))
        found = {name: statistics.median(several) * 1000 for name, several in times.items()}
        ratios = [found["heedful"] / found[name] for name in ("int8", "torch.compile")]
        cells = [f"{found[name]:.2f}" for name in steps] + [f"{ratio:.2f} ×" for ratio in ratios]
        print(f"| {rows} | " + " | ".join(cells) + " |")


def seconds(step: Step, x: Tensor) -> float:
    n = max(2, 600 // len(x))
    started = time.perf_counter()
    for _ in range(n):
        step(x)
    return (time.perf_counter() - started) / n


if __name__ == "__main__":
    main()
