"""Compare heedful's translation speed with CTranslate2 and Hugging Face: the same weights and sentences, in one run.

    python benchmarks/speed/decode.py --model runs/en-de --source test.en --json decode.json
    python benchmarks/speed/decode.py --model MODEL --source FILE --quick --rounds 1  # a short test that it runs

Programs, from token ids to token ids:
- heedful's torch engine;
- heedful's engine `auto`, which is CTranslate2 here, with and without a shortlist;
- CTranslate2's `translate_batch`, with the fastest threads and batch sizes on this machine for single and many
  sentences, greedy and beam search;
- Hugging Face's `generate` on the exported weights, with sentences sorted by length and the fastest batch size.

Cases: greedy and beam 5; all sentences at once and one at a time; natural lengths and exactly 15 tokens for every
sentence. Forced lengths keep single long outputs of a model from deciding the comparison. With a beam, `auto` would
leave forced lengths to torch; here its CTranslate2 engine is measured. The end token counts as a token.

Each program runs in its own process (CTranslate2 without torch), and the programs take turns, round after round. A
case that takes less than a few seconds is repeated up to five times in a round, and the median counts. Memory is the
highest PSS of the process after it has chosen its settings.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from heedful.cli.system_info import processor
from watch import Memory, busy_cores, cpu_of_others, end

PEERS = Path(__file__).parents[1] / "peers"
FORCED = 15  # tokens
QUIET = 0.1  # cores that other processes may use before a round is reported as disturbed
TIME_LIMIT = 3600.0  # seconds for one program in one round


@dataclass(frozen=True)
class Program:
    key: str  # in decode_programs.py
    name: str
    compute: str


PROGRAMS = [
    Program("torch", "heedful, torch", "float32"),
    Program("auto", "heedful, auto", "float32"),
    Program("ctranslate2", "CTranslate2, tuned by hand", "float32"),
    Program("huggingface", "Hugging Face generate", "float32"),
    Program("auto", "heedful, auto", "int8"),
    Program("ctranslate2", "CTranslate2, tuned by hand", "int8"),
    Program("shortlist", "heedful, auto, shortlist", "float32"),
    Program("shortlist", "heedful, auto, shortlist", "int8"),
]
KEYS = list(dict.fromkeys(program.key for program in PROGRAMS))
CASES = [
    {"mode": mode, "beam": beam, "forced": forced}
    for mode in ("bulk", "single")
    for beam in (1, 5)
    for forced in (None, FORCED)
]


@dataclass
class Result:
    """The rounds of one program: in each, the output of decode_programs.py for every case."""

    program: Program
    rounds: list[list[dict]] = field(default_factory=list)
    peak_memory: int = 0  # bytes
    others: float = 0.0  # cores that other processes used, the highest of all rounds
    failure: str | None = None

    def values(self, case: int, key: str) -> list[float]:
        """Return a value of one case in each round."""
        return [outputs[case][key] for outputs in self.rounds]

    def rates(self, case: int, unit: str) -> list[float]:
        """Return sentences or tokens per second of one case in each round."""
        return [outputs[case][unit] / outputs[case]["seconds"] for outputs in self.rounds]


def prepare(options: argparse.Namespace, work: Path) -> dict:
    """Prepare what all programs read: the sentences as token ids, and the weights in each program's format.

    This runs in a child process. The benchmark's own process must not load torch or CTranslate2: it would share their
    memory pages with the programs, and PSS would then count only a part of those pages.
    """
    needs_marian = any(program.key == "huggingface" for program in selected_programs(options))
    n_sentences = 24 if options.quick else options.sentences
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        prepared = pool.apply(_prepare, (options.model, options.source, n_sentences, work / "marian", needs_marian))
        if options.text:
            pool.apply(_learn_shortlist, (options.model, options.text, options.quick))
    return {
        **prepared,
        "longest": 20 if options.quick else options.longest,
        "single": 8 if options.quick else options.single,
        "threads": options.threads,
        "cases": [case for case in CASES if options.beams is None or case["beam"] in options.beams],
    }


def _prepare(path: Path, source: Path, n_sentences: int, marian: Path, needs_marian: bool) -> dict:
    from heedful.data import read_text
    from heedful.interop.ctranslate2.cache import convert
    from heedful.interop.ctranslate2.spec import source_token
    from heedful.models.model_info import find_model_folder
    from heedful.text import load_tokenizers

    model = find_model_folder(path)
    lines = [example.source for example in read_text(source)][:n_sentences]
    if needs_marian:
        _export(model, marian)
    return {
        "model": str(model.resolve()),
        "marian": str(marian),
        "converted": str(convert(model).folder.resolve()),
        "source token": source_token(0).replace("0", "%d"),
        "sources": load_tokenizers(model).source.encode_batch(lines),
    }


def _learn_shortlist(path: Path, text: Path, quick: bool) -> None:
    from heedful.data import read_text
    from heedful.decoding.engines.lexical_shortlist import learn_own_shortlist

    lines = [example.source for example in read_text(text)]
    learn_own_shortlist(path, lines, least_texts=1 if quick else 1_000)


def _bleu(model: str, reference: Path, outputs: dict[str, list[list[int]]]) -> dict[str, float]:
    """Return the BLEU of each program's translations with natural lengths; runs in a child process like `_prepare`."""
    from heedful.data import read_text
    from heedful.evaluation.metrics import bleu
    from heedful.text import load_tokenizers

    lines = [example.source for example in read_text(reference)]
    tokenizer = load_tokenizers(model).target
    return {
        name: bleu(tokenizer.decode_batch(rows), [lines[: len(rows)]], lowercase=False).value
        for name, rows in outputs.items()
    }


def _export(model: Path, marian: Path) -> None:
    from heedful.errors import UserError
    from heedful.interop import export_huggingface

    try:
        export_huggingface(model, marian)
    except UserError as error:  # the other programs can still be measured
        print(f"Hugging Face: {error}", flush=True)


def run_round(result: Result, prepared: Path, work: Path, options: argparse.Namespace) -> None:
    """Run one program once, watch its memory, and add its output, or the reason of its failure, to its result."""
    program, output_file, log = result.program, work / "output.json", work / "log"
    ready = output_file.with_suffix(".ready")
    for path in (output_file, ready):
        path.unlink(missing_ok=True)
    threads = str(options.threads)
    variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    script = str(PEERS / "decode_programs.py")
    with log.open("w") as log_file:
        process = subprocess.Popen(
            [sys.executable, script, program.key, program.compute, str(prepared), str(output_file)],
            env={**os.environ, **variables, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            memory, others = watch_memory(process, ready)
        finally:
            end(process)  # also when the benchmark is interrupted
    if not output_file.exists():
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        result.failure = f"exit code {process.returncode}: {(lines or ['it printed nothing'])[-1][:300]}"
        return
    output = json.loads(output_file.read_text())
    result.rounds.append(output["cases"])
    result.peak_memory = max(result.peak_memory, memory.peak, output["memory"])
    result.others = max(result.others, others)


def watch_memory(process: "subprocess.Popen[bytes]", ready: Path) -> tuple[Memory, float]:
    """Watch a program until it ends; return its memory after the file `ready` exists, and cores used by others."""
    memory, start, before = Memory(), time.monotonic(), cpu_of_others(process.pid)
    others = before
    while process.poll() is None and time.monotonic() - start < TIME_LIMIT:
        if ready.exists():
            memory.update(process.pid)
        others = cpu_of_others(process.pid)
        time.sleep(0.2)
    return memory, max(0.0, others - before) / max(1.0, time.monotonic() - start)


def print_round(result: Result, number: int) -> None:
    name = f"{result.program.name}, {result.program.compute}"
    if result.failure:
        print(f"round {number}: {name}: FAILED: {result.failure}", flush=True)
        return
    rates = [f"{output['sentences'] / output['seconds']:,.0f}" for output in result.rounds[-1]]
    disturbed = ": NOT QUIET" if result.others > QUIET else ""
    print(
        f"round {number}: {name}: {', '.join(rates)} sentences/s; others {result.others:.2f} cores{disturbed}",
        flush=True,
    )


def table(results: list[Result], cases: list[dict], number: int) -> str:
    """Return a Markdown table of one case, a row for each program; a ratio compares speeds of the same round."""
    case = cases[number]
    length = "natural lengths" if case["forced"] is None else f"{case['forced']} tokens each"
    amount = "all at once" if case["mode"] == "bulk" else "one at a time"
    lines = [
        f"**{'greedy' if case['beam'] == 1 else 'beam ' + str(case['beam'])}, {amount}, {length}**",
        "",
        "| program | compute | sentences/s | tokens/s | × Hugging Face | × CTranslate2, same compute | p50, ms | p95 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ran = [result for result in results if result.rounds]
    for result in ran:
        sentences, tokens = result.rates(number, "sentences"), result.rates(number, "tokens")
        peers = (("huggingface", "float32"), ("ctranslate2", result.program.compute))
        by_program = {(other.program.key, other.program.compute): other for other in ran}
        ratios = [ratio(result, by_program.get(peer), number) for peer in peers]
        times = ["–", "–"]
        if case["mode"] == "single":
            times = [f"{1000 * statistics.median(result.values(number, key)):.1f}" for key in ("p50", "p95")]
        lines.append(
            f"| {result.program.name} | {result.program.compute} | {spread(sentences, '.1f')} "
            f"| {statistics.median(tokens):,.0f} "
            f"| {' | '.join([*ratios, *times])} |"
        )
    return "\n".join(lines)


def ratio(result: Result, other: Result | None, number: int) -> str:
    """Return sentences per second relative to another program, compared within each round."""
    if other is None:
        return "–"
    pairs = zip(result.rates(number, "sentences"), other.rates(number, "sentences"), strict=False)
    return spread([ours / theirs for ours, theirs in pairs], ".2f")


def spread(values: list[float], digits: str) -> str:
    low, middle, high = (format(value, f",{digits}") for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} [{low}–{high}]" if len(values) > 1 else middle


def agreement(results: list[Result], cases: list[dict]) -> str:
    """Return a table of how many translations of each program equal those of heedful's torch engine.

    With forced lengths programs rank beams differently: CTranslate2 redistributes the probability of the end token
    that it must not choose.
    """
    base = next((result for result in results if result.program.key == "torch" and result.rounds), None)
    if base is None:
        return ""
    lines = [
        "| program | compute | natural lengths: equal to heedful's torch engine | forced lengths | peak memory, MB |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        if not result.rounds:
            continue
        shares = []
        for forced in (False, True):
            pairs = [
                (ours, theirs)
                for number, case in enumerate(cases)
                if (case["forced"] is not None) == forced
                for ours, theirs in zip(
                    base.rounds[0][number]["translations"], result.rounds[0][number]["translations"], strict=True
                )
            ]
            shares.append(f"{sum(ours == theirs for ours, theirs in pairs):,} of {len(pairs):,}")
        lines.append(
            f"| {result.program.name} | {result.program.compute} | {' | '.join(shares)} "
            f"| {result.peak_memory / 1e6:,.0f} |"
        )
    return "\n".join(lines)


def scores(results: list[Result], prepared: dict, options: argparse.Namespace) -> str:
    """Return a table of the BLEU of each program with natural lengths."""
    lines = ["| program | compute | search | BLEU |", "|---|---|---|---|"]
    for number, case in enumerate(prepared["cases"]):
        if case["mode"] == "bulk" and case["forced"] is None:
            outputs = {
                f"| {result.program.name} | {result.program.compute} |": result.rounds[0][number]["translations"]
                for result in results
                if result.rounds
            }
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                values = pool.apply(_bleu, (prepared["model"], options.reference, outputs))
            lines += [f"{name} beam {case['beam']} | {value:.2f} |" for name, value in values.items()]
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a run or model folder of heedful")
    parser.add_argument("--source", type=Path, required=True, help="text to translate, one sentence per line")
    parser.add_argument("--reference", type=Path, help="reference translation: adds the BLEU of each program")
    parser.add_argument("--text", type=Path, help="source text that the model translates to make a shortlist")
    parser.add_argument("--sentences", type=int, default=1000, help="use at most so many sentences")
    parser.add_argument("--longest", type=int, default=256, help="maximum number of tokens with natural lengths")
    parser.add_argument("--single", type=int, default=100, help="sentences to translate one at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="threads of all programs but auto, which chooses them itself",
    )
    parser.add_argument(
        "--programs", default=None, help=f"comma-separated list of: {', '.join(dict.fromkeys(p.key for p in PROGRAMS))}"
    )
    parser.add_argument("--beams", type=lambda text: [int(number) for number in text.split(",")], help="1, 5 or 1,5")
    parser.add_argument("--quick", action="store_true", help="a few sentences only, to test that everything runs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    unknown = set((options.programs or "").split(",")) - {*KEYS, ""}
    if unknown:
        parser.error(f"--programs: unknown program {', '.join(sorted(unknown))}; allowed: {', '.join(KEYS)}")
    return options


def selected_programs(options: argparse.Namespace) -> list[Program]:
    """Return the programs of --programs; the shortlist needs --text."""
    keys = None if options.programs is None else options.programs.split(",")
    return [
        program
        for program in PROGRAMS
        if (keys is None or program.key in keys) and (program.key != "shortlist" or options.text)
    ]


def measure(options: argparse.Namespace, work: Path) -> None:
    prepared, file = prepare(options, work), work / "prepared.json"
    assert not {"torch", "ctranslate2"} & sys.modules.keys()
    file.write_text(json.dumps(prepared))
    busy = busy_cores(0.1 if options.quick else 3.0)
    versions = {
        name: importlib.metadata.version(name)
        for name in ("torch", "ctranslate2", "transformers")
        if importlib.util.find_spec(name)
    }
    print(f"{processor()}, {os.cpu_count()} cores, {options.threads} threads; {busy:.2f} cores busy before the start")
    print(", ".join(f"{name} {version}" for name, version in versions.items()), flush=True)
    results = [Result(program) for program in selected_programs(options)]
    for number in range(1, options.rounds + 1):
        for result in results:
            if result.failure is None:
                run_round(result, file, work, options)
                print_round(result, number)
    for number, _ in enumerate(prepared["cases"]):
        print(f"\n{table(results, prepared['cases'], number)}")
    print(f"\n{agreement(results, prepared['cases'])}")
    if options.reference:
        print(f"\n{scores(results, prepared, options)}")
    for result in results:
        if result.failure:
            print(f"{result.program.name}, {result.program.compute}: FAILED: {result.failure}")
    if options.json:
        machine = {"processor": processor(), "cores": os.cpu_count(), "busy": busy, "versions": versions}
        figures = [
            {
                **asdict(result),
                "rounds": [[{**output, "translations": None} for output in outputs] for outputs in result.rounds],
            }
            for result in results
        ]
        options.json.write_text(json.dumps({"machine": machine, "results": figures}, indent=1) + "\n")


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="heedful-decode-") as folder:
        measure(options, Path(folder))


if __name__ == "__main__":
    main()
