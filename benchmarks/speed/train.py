"""Compare heedful's training speed with other programs: the same model, data and machine, in one run.

    python benchmarks/speed/train.py --data ../shared/data/multi30k/raw --json train.json
    python benchmarks/speed/train.py --data FOLDER --peers heedful,plain --seconds 2 --rounds 1 --quick  # a short test

FOLDER holds train.en, train.de, val.en and val.de (.gz allowed). `benchmarks/peers/install.sh PEER` installs a peer
into its own environment. A peer that is not installed or fails is reported with the reason.

All programs train 3+3 layers of width 256, post-norm (OpenNMT-py and Eole: pre-norm, their only choice), with one
vocabulary of 8,000 pieces and one embedding matrix, dropout 0.1 but none inside the attention, label smoothing 0.1,
Adam (0.9, 0.98), steps of about 4,096 target tokens, two threads, and float32 unless a name says bfloat16. heedful
starts from the raw text, the peers from its tokenized text; heedful's time to the first step includes checking the
corpus, training the tokenizer, tokenizing and planning. Programs take turns, round after round. Speed counts target
tokens without padding; memory is PSS, summed over the processes of a program.
"""

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from heedful.cli.doctor import rate
from heedful.cli.system_info import processor
from heedful.data import open_corpus
from heedful.text import TokenizerConfig, learn_tokenizers, save_tokenizers
from watch import Failed, Watched, Window, busy_cores, watch

sys.path.insert(0, str(Path(__file__).parents[1]))  # to import benchmarks/peers
from peers.commands import PEERS, Sizes

QUICK = Sizes(d_model=32, d_ff=64, n_heads=2, n_layers=1, vocab_size=400, batch_tokens=512)
QUIET = 0.1  # cores that other processes may use before a round is reported as disturbed


@dataclass
class Result:
    """The rounds of one program."""

    peer: str
    name: str
    rounds: list[Watched] = field(default_factory=list)
    failure: str | None = None

    @property
    def speed(self) -> float:
        return statistics.median(watched.tokens_per_second for watched in self.rounds)


def prepare(options: argparse.Namespace, folder: Path) -> tuple[Sizes, float]:
    """Train heedful's tokenizer and write the text as token ids; return the sizes and FLOP per target token."""
    files = {
        f"{part}{side}": str(_file(options.data, f"{name}.{getattr(options, side)}"))
        for part, name in (("", "train"), ("valid_", "val"))
        for side in ("source", "target")
    }
    base = QUICK if options.quick else Sizes()
    corpus = list(open_corpus((files["source"], files["target"])))
    config = TokenizerConfig(vocab_size=base.vocab_size)
    tokenizers = learn_tokenizers((pair.source for pair in corpus), (pair.target for pair in corpus), config)
    save_tokenizers(folder / "tokenizers", tokenizers)
    changes = {"vocab_size": tokenizers.target.vocab_size, "threads": options.threads}
    sizes = Sizes(**{**asdict(base), **changes, "attention_dropout": options.attention_dropout})
    lengths: dict[str, list[int]] = {}
    for name, pairs in (
        ("train", corpus),
        ("valid", list(open_corpus((files["valid_source"], files["valid_target"])))),
    ):
        for side in ("source", "target"):
            rows = tokenizers.target.encode_batch([getattr(pair, side) for pair in pairs])
            (folder / f"{name}.{side}").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
            if name == "train":
                lengths[side] = [len(row) for row in rows]
    (folder / "vocabulary").write_text("".join(f"{number}\n" for number in range(4, sizes.vocab_size)))
    (folder / "sizes.json").write_text(json.dumps(asdict(sizes)))
    (folder / "files.json").write_text(json.dumps(files))
    return sizes, flop_per_target_token(sizes, lengths["source"], [length + 1 for length in lengths["target"]])


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path.resolve()
    sys.exit(f"{folder}: contains neither {name} nor {name}.gz")


def flop_per_target_token(sizes: Sizes, source: list[int], target: list[int]) -> float:
    """Count FLOP of forward and backward: 6 per weight and token, 12 d per pair of query and key; no padding."""
    d, ff = sizes.d_model, 2 * sizes.d_model * sizes.d_ff
    # The encoder, and the keys and values of the decoder's cross-attention.
    at_source = sizes.n_layers * (4 * d * d + ff + 2 * d * d)
    at_target = sizes.n_layers * (4 * d * d + 2 * d * d + ff) + d * sizes.vocab_size
    pairs = sum(s * s + t * t + t * s for s, t in zip(source, target, strict=True)) * sizes.n_layers
    return (6 * (at_source * sum(source) + at_target * sum(target)) + 12 * d * pairs) / sum(target)


def matrix_peak(threads: int, seconds: float) -> float:
    """Measure the FLOP per second of large matrix products, the best of some seconds.

    This runs in a child process. The benchmark's own process must not load torch: it would share torch's memory pages
    with heedful and the plain loop, and PSS would then count only a part of those pages.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_matrix_peak, (threads, seconds))


def _matrix_peak(threads: int, seconds: float) -> float:
    import torch

    torch.set_num_threads(threads)
    size = 2048
    left, right, product = (torch.rand(size, size) for _ in range(3))
    return rate(lambda: torch.mm(left, right, out=product), amount=2.0 * size**3, seconds=seconds).best


def run_round(result: Result, number: int, data: Path, work: Path, sizes: Sizes, options: argparse.Namespace) -> None:
    """Run one program once and add the measurement, or the reason of its failure, to its result."""
    peer = PEERS[result.peer]
    environment = options.environments / result.peer
    if peer.own_environment and not (environment / "installed").exists():
        install = f"benchmarks/peers/install.sh {result.peer} {options.environments}"
        result.failure = f"not installed completely in {environment}; run: {install}"
        return
    run = work / f"{result.peer}-{number}"
    run.mkdir()
    threads = str(sizes.threads)
    variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1", **peer.variables}
    try:
        watched = watch(
            peer.command(environment / "bin", data, run, sizes),
            environment=variables,
            folder=run,
            steps=peer.steps,
            window=Window(warm_up=options.warm_up, seconds=options.seconds),
            log=work / f"{result.peer}-{number}.log",
        )
    except Failed as failed:
        result.failure = str(failed)
        return
    if result.peer == "heedful":
        peers_model, own_model = ((folder / "tokenizers" / "joint.spm").read_bytes() for folder in (data, run / "run"))
        assert peers_model == own_model, "heedful trained a tokenizer that differs from the one its peers use"
    result.rounds.append(watched)


def print_round(result: Result, number: int) -> None:
    if result.failure:
        print(f"round {number}: {result.name}: FAILED: {result.failure}", flush=True)
        return
    watched = result.rounds[-1]
    others = f"other processes used {watched.others:.2f} cores" + (": NOT QUIET" if watched.others > QUIET else "")
    print(
        f"round {number}: {result.name}: {watched.tokens_per_second:,.0f} target tokens/s in {watched.steps} steps, "
        f"{watched.seconds:.0f} s; {others}",
        flush=True,
    )


def table(results: Iterable[Result], flop: float, peak: float) -> str:
    """Return a Markdown table, the fastest program first, with failures below it."""
    results = list(results)
    ran = sorted((result for result in results if result.rounds), key=lambda result: -result.speed)
    fastest = max((result.speed for result in ran if result.peer != "heedful"), default=None)
    lines = [
        "| program | target tokens/s | × the fastest peer | share of peak | tokens per step | peak memory, GB "
        "| first step after, s | others, cores |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in ran:
        rounds = result.rounds
        speeds = [watched.tokens_per_second for watched in rounds]
        median = {key: statistics.median(asdict(watched)[key] for watched in rounds) for key in asdict(rounds[0])}
        lines.append(
            f"| {result.name}{' (see below)' if result.failure else ''} "
            f"| {result.speed:,.0f} [{min(speeds):,.0f}–{max(speeds):,.0f}] "
            f"| {f'{result.speed / fastest:.2f}' if fastest else '–'} | {result.speed * flop / peak:.0%} "
            f"| {median['tokens_per_step']:,.0f} | {max(watched.peak_memory for watched in rounds) / 1e9:.2f} "
            f"| {median['first_step']:.0f} | {max(watched.others for watched in rounds):.2f} |"
        )
    failed = [f"{result.name}: FAILED: {result.failure}" for result in results if result.failure]
    disturbed = [result.name for result in ran if any(watched.others > QUIET for watched in result.rounds)]
    if disturbed:
        failed.append(f"Not reliable, because other processes were busy: {', '.join(disturbed)}")
    return "\n".join([*lines, *([""] if failed else []), *failed])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with train.* and val.* (.gz allowed)")
    parser.add_argument("--source", default="en", help="suffix of the source files")
    parser.add_argument("--target", default="de", help="suffix of the target files")
    parser.add_argument(
        "--peers",
        default="heedful,opennmt,eole,huggingface,joeynmt,plain",
        help="comma-separated list of: " + ", ".join(PEERS),
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds to measure each program per round")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds after the first step that do not count")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--attention-dropout", type=float, default=0.0)
    parser.add_argument("--quick", action="store_true", help="a tiny model, to test that everything runs")
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path.home() / ".cache" / "heedful-peers",
        help="folder of the peers' environments",
    )
    parser.add_argument("--folder", type=Path, help="working folder that keeps the logs (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    unknown = [name for name in options.peers.split(",") if name not in PEERS]
    if unknown:
        parser.error(f"--peers: unknown peer {', '.join(unknown)}; allowed: {', '.join(PEERS)}")
    options.environments = options.environments.resolve()
    return options


def measure(options: argparse.Namespace, work: Path) -> None:
    data = work / "data"
    data.mkdir(parents=True)
    sizes, flop = prepare(options, data)
    seconds = 0.1 if options.quick else 3.0
    busy, torch_version = busy_cores(seconds), importlib.metadata.version("torch")
    print(f"{processor()}, {os.cpu_count()} cores, torch {torch_version}; {busy:.2f} cores busy before the start")
    peak = matrix_peak(sizes.threads, seconds)
    results = {name: Result(name, PEERS[name].name) for name in options.peers.split(",")}
    for number in range(1, options.rounds + 1):
        for result in results.values():
            if result.failure is None:
                run_round(result, number, data, work, sizes, options)
                print_round(result, number)
    peak = max(peak, matrix_peak(sizes.threads, seconds))
    print(f"\n{flop / 1e6:.1f} MFLOP per target token; matrix products reach {peak / 1e9:.0f} GFLOP/s")
    print(f"attention dropout {sizes.attention_dropout:g}, {sizes.threads} threads\n")
    print(table(results.values(), flop, peak))
    if options.json:
        figures = {
            "machine": {"processor": processor(), "cores": os.cpu_count(), "torch": torch_version, "busy": busy},
            "sizes": asdict(sizes),
            "flop_per_target_token": flop,
            "peak_flop_per_second": peak,
            "results": {name: asdict(result) for name, result in results.items()},
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def main() -> None:
    options = parse()
    if options.folder:
        measure(options, options.folder.resolve())
        return
    with tempfile.TemporaryDirectory(prefix="heedful-train-") as folder:
        measure(options, Path(folder))


if __name__ == "__main__":
    main()
