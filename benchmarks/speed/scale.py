"""Estimate what training costs on many GPUs: time, communication and memory, for the two models of the 2017 paper.

    python benchmarks/speed/scale.py

A step takes as long as its computation, or as the exchange of gradients if that takes longer. The computation is the
number of floating-point operations of the model's matrices, divided by the speed that hardware reaches in practice.
That share of the peak comes from the paper's published runs, so the estimate agrees with published times; the figures
for other GPUs are extrapolations.
"""

import argparse
from dataclasses import dataclass

import torch

from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig

VOCABULARY = 37_000  # shared by source and target (section 5.1 of the paper)
TOKENS = 25_000  # source tokens per step, and as many target tokens (section 5.1)
MODELS = {  # table 3 of the paper
    "base": {"d_model": 512, "d_ff": 2048, "n_heads": 8, "n_layers": 6},
    "big": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "n_layers": 6},
}


@dataclass(frozen=True)
class Hardware:
    name: str
    flops: float  # per second and GPU, in the number format of training
    memory: float  # bytes
    inside: float  # bytes per second and GPU, between GPUs of one machine
    between: float  # bytes per second and GPU, between machines
    per_machine: int  # GPUs


P100 = Hardware("P100", 9.5e12, 16e9, 16e9, 1.25e9, 8)  # 9.5 TFLOP/s: the paper's own estimate, footnote 5
A100 = Hardware("A100", 312e12, 80e9, 300e9, 25e9, 8)  # bfloat16; NVLink 600 GB/s both ways, 200 Gbit/s network


@dataclass(frozen=True)
class Published:
    model: str
    steps: int
    hours: float


# Section 5.2: base 100,000 steps of 0.4 s, 12 hours; big 300,000 steps of 1.0 s, 3.5 days.
RUNS = (Published("base", 100_000, 12.0), Published("big", 300_000, 84.0))


def sizes(name: str) -> tuple[int, int, int]:
    """Return the numbers of parameters of the encoder, the decoder and the shared embedding matrix."""
    config = Seq2SeqConfig(VOCABULARY, VOCABULARY, **MODELS[name])
    with torch.device("meta"):
        model = Seq2Seq(config)
    count = {part: sum(p.numel() for p in module.parameters()) for part, module in model.named_children()}
    return count["encoder"], count["decoder"], VOCABULARY * config.d_model


def flops_per_step(name: str) -> float:
    """Count 2 operations per weight and token forward, and 4 backward; attention adds a few percent at 25 tokens."""
    encoder, decoder, vocabulary = sizes(name)
    return 6.0 * TOKENS * (encoder + decoder + vocabulary)


def share_of_peak(name: str) -> float:
    """Return the share of the GPUs' peak that the published run must have reached."""
    run = next(run for run in RUNS if run.model == name)
    seconds = run.hours * 3600 / run.steps
    return flops_per_step(name) / (8 * P100.flops * seconds)


def step_seconds(name: str, hardware: Hardware, n_gpus: int, efficiency: float) -> tuple[float, float]:
    """Return the seconds of computation and of communication per step; a ring all-reduce sends a gradient twice."""
    compute = flops_per_step(name) / (n_gpus * hardware.flops * efficiency)
    if n_gpus == 1:
        return compute, 0.0
    bandwidth = hardware.inside if n_gpus <= hardware.per_machine else hardware.between
    gradient_bytes = 4.0 * sum(sizes(name))
    return compute, 2 * (n_gpus - 1) / n_gpus * gradient_bytes / bandwidth


def memory_per_rank(name: str, n_gpus: int, *, sharded: bool) -> float:
    """Return the bytes of weights, gradients and Adam's two moments in float32, without activations."""
    whole = 16.0 * sum(sizes(name))
    return whole / n_gpus if sharded else whole


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("Published runs on 8 P100, and the share of the peak that follows from their times\n")
    print(f"{'model':<6}{'parameters':>12}{'TFLOP/step':>12}{'s/step':>8}{'share of peak':>15}")
    for run in RUNS:
        seconds = run.hours * 3600 / run.steps
        total = sum(sizes(run.model)) / 1e6
        flops = flops_per_step(run.model) / 1e12
        print(f"{run.model:<6}{total:>11.1f}M{flops:>12.1f}{seconds:>8.2f}{share_of_peak(run.model):>14.0%}")
    for run in RUNS:
        print(f"\n{run.model}, {run.steps:,} steps of {TOKENS:,} target tokens on {A100.name}s, at the same share\n")
        header = f"{'GPUs':>5}{'compute':>10}{'exchange':>10}{'tokens/s':>12}{'hours':>8}{'GB, DDP':>9}{'GB, FSDP':>10}"
        print(header)
        for n_gpus in (1, 2, 4, 8, 16, 32, 64):
            compute, exchange = step_seconds(run.model, A100, n_gpus, share_of_peak(run.model))
            step = max(compute, exchange)  # gradients are exchanged while the backward pass still runs
            memory = [memory_per_rank(run.model, n_gpus, sharded=sharded) / 1e9 for sharded in (False, True)]
            print(
                f"{n_gpus:>5}{compute * 1e3:>7.0f} ms{exchange * 1e3:>7.1f} ms{TOKENS / step:>12,.0f}"
                f"{run.steps * step / 3600:>8.1f}{memory[0]:>9.2f}{memory[1]:>10.2f}"
            )


if __name__ == "__main__":
    main()
