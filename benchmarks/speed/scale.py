"""What a training run costs on many GPUs, on paper: time, communication and memory, for the paper's two models.

    python benchmarks/speed/scale.py

A step takes compute + communication that is not hidden. Compute is the floating-point operations of the model's own
matrices, divided by what the hardware reaches in practice. That share is taken from the paper's published runs: so the
model is checked where numbers exist, before it speaks of machines where none are at hand.
"""

import argparse
from dataclasses import dataclass

import torch

from heedful.models.presets import SEQ2SEQ_PRESETS
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig

VOCABULARY = 37_000  # pieces, shared (section 5.1 of the paper)
TOKENS = 25_000  # source and as many target tokens in a step (section 5.1)


@dataclass(frozen=True)
class Hardware:
    name: str
    flops: float  # per second and GPU, as used for training
    memory: float  # bytes
    inside: float  # bytes per second between GPUs of one machine, per GPU
    between: float  # bytes per second between machines, per GPU
    per_machine: int


P100 = Hardware("P100", 9.5e12, 16e9, 16e9, 1.25e9, 8)  # 9.5 TFLOP/s: the paper's own estimate, footnote 5
A100 = Hardware("A100", 312e12, 80e9, 300e9, 25e9, 8)  # bfloat16; NVLink 600 GB/s both ways, 200 Gbit/s network


@dataclass(frozen=True)
class Published:
    preset: str
    steps: int
    hours: float


# Section 5.2: base 100,000 steps of 0.4 s, 12 hours; big 300,000 steps of 1.0 s, 3.5 days.
RUNS = (Published("base", 100_000, 12.0), Published("big", 300_000, 84.0))


def sizes(preset: str) -> tuple[int, int, int]:
    """Parameters of the encoder, of the decoder, and of the one embedding matrix."""
    config = Seq2SeqConfig(VOCABULARY, VOCABULARY, **SEQ2SEQ_PRESETS[preset])
    with torch.device("meta"):
        model = Seq2Seq(config)
    count = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    return count["encoder"], count["decoder"], VOCABULARY * config.d_model


def flops_per_step(preset: str) -> float:
    """2 operations for each weight and token forward, 4 backward; attention adds some per cent at 25 tokens."""
    encoder, decoder, vocabulary = sizes(preset)
    return 6.0 * TOKENS * (encoder + decoder + vocabulary)


def reached(preset: str) -> float:
    """The share of the peak that the published run must have reached."""
    run = next(run for run in RUNS if run.preset == preset)
    seconds = run.hours * 3600 / run.steps
    return flops_per_step(preset) / (8 * P100.flops * seconds)


def step_seconds(preset: str, hardware: Hardware, n_gpus: int, efficiency: float) -> tuple[float, float]:
    """(compute, communication) of one step. A ring all-reduce sends every gradient about twice."""
    compute = flops_per_step(preset) / (n_gpus * hardware.flops * efficiency)
    if n_gpus == 1:
        return compute, 0.0
    bandwidth = hardware.inside if n_gpus <= hardware.per_machine else hardware.between
    gradient_bytes = 4.0 * sum(sizes(preset))
    return compute, 2 * (n_gpus - 1) / n_gpus * gradient_bytes / bandwidth


def memory_per_rank(preset: str, n_gpus: int, *, sharded: bool) -> float:
    """Weights, gradients and Adam's two moments in float32; activations come on top and depend on the batch alone."""
    whole = 16.0 * sum(sizes(preset))
    return whole / n_gpus if sharded else whole


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("Published runs (8 P100), and the share of the peak that they imply\n")
    print(f"{'model':<6}{'parameters':>12}{'TFLOP/step':>12}{'s/step':>8}{'share of peak':>15}")
    for run in RUNS:
        seconds = run.hours * 3600 / run.steps
        total = sum(sizes(run.preset)) / 1e6
        flops = flops_per_step(run.preset) / 1e12
        print(f"{run.preset:<6}{total:>11.1f}M{flops:>12.1f}{seconds:>8.2f}{reached(run.preset):>14.0%}")
    for run in RUNS:
        print(f"\n{run.preset}, {run.steps:,} steps of {TOKENS:,} target tokens on {A100.name}s, at the same share\n")
        header = f"{'GPUs':>5}{'compute':>10}{'exchange':>10}{'tokens/s':>12}{'hours':>8}{'GB, DDP':>9}{'GB, FSDP':>10}"
        print(header)
        for n_gpus in (1, 2, 4, 8, 16, 32, 64):
            compute, exchange = step_seconds(run.preset, A100, n_gpus, reached(run.preset))
            step = max(compute, exchange)  # gradients are exchanged while the backward pass still runs
            memory = [memory_per_rank(run.preset, n_gpus, sharded=sharded) / 1e9 for sharded in (False, True)]
            print(
                f"{n_gpus:>5}{compute * 1e3:>7.0f} ms{exchange * 1e3:>7.1f} ms{TOKENS / step:>12,.0f}"
                f"{run.steps * step / 3600:>8.1f}{memory[0]:>9.2f}{memory[1]:>10.2f}"
            )


if __name__ == "__main__":
    main()
