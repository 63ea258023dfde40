"""How fast heedful translates, beside CTranslate2 and Hugging Face: the same weights and sentences, in one run.

    python benchmarks/speed/decode.py --model runs/en-de --source test.en --json decode.json
    python benchmarks/speed/decode.py --model MODEL --source FILE --quick --rounds 1           # does it run?

Four programs, from ids to ids: heedful's torch engine; heedful's `auto`, which here is CTranslate2; CTranslate2's own
`translate_batch` with the threads and batches that are fastest on this machine, for one sentence and for many, greedy
and with a beam; Hugging Face's `generate` on the exported weights, sorted by length, in the fastest batches. Each runs
in a process of its own, CTranslate2 in one without torch, and they take turns, round after round. Greedy and beam 5;
all sentences at once and one at a time; float32 and int8; natural lengths, and exactly 15 tokens for each sentence,
which takes the luck of a model's long answers out of the comparison (in a beam, where `auto` would leave forced lengths
to torch, the engine that it has for natural ones is asked all the same). Tokens count the end mark. Memory is the
highest PSS of the process once it has found its settings. What takes less than a few seconds is done up to five times
in a round, and the median counts.
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
QUIET = 0.1  # cores that others may use without a word
PATIENCE = 3600.0  # seconds for one program in one round


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
CASES = [
    {"mode": mode, "beam": beam, "forced": forced}
    for mode in ("bulk", "single")
    for beam in (1, 5)
    for forced in (None, FORCED)
]


@dataclass
class Result:
    """The rounds of one program: in each, what decode_programs.py answered."""

    program: Program
    rounds: list[list[dict]] = field(default_factory=list)
    peak_memory: int = 0  # bytes
    others: float = 0.0  # cores that were busy with something else, at worst
    failure: str | None = None

    def values(self, number: int, key: str) -> list[float]:
        return [answers[number][key] for answers in self.rounds]

    def rates(self, number: int, amount: str) -> list[float]:
        """A second, in each round."""
        return [answers[number][amount] / answers[number]["seconds"] for answers in self.rounds]


def prepare(options: argparse.Namespace, work: Path) -> dict:
    """What all programs are given: the sentences as ids, the weights in each one's own format.

    In a process of its own: this one must hold neither torch nor CTranslate2, whose pages it would share with the
    programs, and PSS would call half of them somebody else's.
    """
    wants_marian = any(program.key == "huggingface" for program in chosen(options))
    n_sentences = 24 if options.quick else options.sentences
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        given = pool.apply(_prepare, (options.model, options.source, n_sentences, work / "marian", wants_marian))
        if options.text:
            pool.apply(_learn_shortlist, (options.model, options.text, options.quick))
    return {
        **given,
        "longest": 20 if options.quick else options.longest,
        "single": 8 if options.quick else options.single,
        "threads": options.threads,
        "cases": [case for case in CASES if options.beams is None or case["beam"] in options.beams],
    }


def _prepare(path: Path, source: Path, n_sentences: int, marian: Path, wants_marian: bool) -> dict:
    from heedful.data.corpus import read_text
    from heedful.interop.ctranslate2.cache import convert
    from heedful.interop.ctranslate2.spec import source_token
    from heedful.models.model_info import find_model_folder
    from heedful.text import load_tokenizers

    model = find_model_folder(path)
    lines = [example.source for example in read_text(source)][:n_sentences]
    if wants_marian:
        _export(model, marian)
    return {
        "model": str(model.resolve()),
        "marian": str(marian),
        "converted": str(convert(model).folder.resolve()),
        "source token": source_token(0).replace("0", "%d"),
        "sources": load_tokenizers(model).source.encode_batch(lines),
    }


def _learn_shortlist(path: Path, text: Path, quick: bool) -> None:
    from heedful.data.corpus import read_text
    from heedful.decoding.engines.lexical_shortlist import learn_own_shortlist

    lines = [example.source for example in read_text(text)]
    learn_own_shortlist(path, lines, least_texts=1 if quick else 1_000)


def _bleu(model: str, reference: Path, written: dict[str, list[list[int]]]) -> dict[str, float]:
    """Of each program's natural translations; in a process of its own, as above."""
    from heedful.data.corpus import read_text
    from heedful.evaluation.metrics import bleu
    from heedful.text import load_tokenizers

    lines = [example.source for example in read_text(reference)]
    tokenizer = load_tokenizers(model).target
    return {
        name: bleu(tokenizer.decode_batch(rows), [lines[: len(rows)]], lowercase=False).value
        for name, rows in written.items()
    }


def _export(model: Path, marian: Path) -> None:
    from heedful.errors import UserError
    from heedful.interop.huggingface.checkpoint import export_huggingface

    try:
        export_huggingface(model, marian)
    except UserError as error:  # the others can be measured all the same
        print(f"Hugging Face: {error}", flush=True)


def run_round(result: Result, prepared: Path, work: Path, options: argparse.Namespace) -> None:
    """One turn of one program, watched from outside; its answer, or why there is none, is added to its result."""
    program, answer, log = result.program, work / "answer.json", work / "log"
    settled = answer.with_suffix(".settled")
    for path in (answer, settled):
        path.unlink(missing_ok=True)
    threads = str(options.threads)
    variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    script = str(PEERS / "decode_programs.py")
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, script, program.key, program.compute, str(prepared), str(answer)],
            env={**os.environ, **variables, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            memory, others = watch_memory(process, settled)
        finally:
            end(process)  # also when this program is interrupted
    if not answer.exists():
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        result.failure = f"exit code {process.returncode}: {(lines or ['it said nothing'])[-1][:300]}"
        return
    answered = json.loads(answer.read_text())
    result.rounds.append(answered["cases"])
    result.peak_memory = max(result.peak_memory, memory.peak, answered["memory"])
    result.others = max(result.others, others)


def watch_memory(process: "subprocess.Popen[bytes]", settled: Path) -> tuple[Memory, float]:
    """Look at a program until it ends: its highest memory once that file is there, and how many cores others used."""
    memory, began, before = Memory(), time.monotonic(), cpu_of_others(process.pid)
    others = before
    while process.poll() is None and time.monotonic() - began < PATIENCE:
        if settled.exists():
            memory.look(process.pid)
        others = cpu_of_others(process.pid)
        time.sleep(0.2)
    return memory, max(0.0, others - before) / max(1.0, time.monotonic() - began)


def say(result: Result, number: int) -> None:
    name = f"{result.program.name}, {result.program.compute}"
    if result.failure:
        print(f"round {number}: {name}: FAILED: {result.failure}", flush=True)
        return
    rates = [f"{answer['sentences'] / answer['seconds']:,.0f}" for answer in result.rounds[-1]]
    disturbed = ": NOT QUIET" if result.others > QUIET else ""
    print(
        f"round {number}: {name}: {', '.join(rates)} sentences/s; others {result.others:.2f} cores{disturbed}",
        flush=True,
    )


def table(results: list[Result], cases: list[dict], number: int) -> str:
    """Markdown for one case: the rows are the programs, each ratio is one of the same round."""
    case = cases[number]
    length = "natural lengths" if case["forced"] is None else f"{case['forced']} tokens each"
    how = "all at once" if case["mode"] == "bulk" else "one at a time"
    lines = [
        f"**{'greedy' if case['beam'] == 1 else 'beam ' + str(case['beam'])}, {how}, {length}**",
        "",
        "| program | compute | sentences/s | tokens/s | × Hugging Face | × CTranslate2, same compute | p50, ms | p95 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ran = [result for result in results if result.rounds]
    for result in ran:
        sentences, tokens = result.rates(number, "sentences"), result.rates(number, "tokens")
        peers = (("huggingface", "float32"), ("ctranslate2", result.program.compute))
        others = [next((one for one in ran if (one.program.key, one.program.compute) == peer), None) for peer in peers]
        times = ["–", "–"]
        if case["mode"] == "single":
            times = [f"{1000 * statistics.median(result.values(number, key)):.1f}" for key in ("p50", "p95")]
        lines.append(
            f"| {result.program.name} | {result.program.compute} | {spread(sentences, '.1f')} "
            f"| {statistics.median(tokens):,.0f} "
            f"| {' | '.join([*(ratio(result, one, number) for one in others), *times])} |"
        )
    return "\n".join(lines)


def ratio(result: Result, other: Result | None, number: int) -> str:
    """Sentences a second, as a multiple of another program's in the same round."""
    if other is None:
        return "–"
    pairs = zip(result.rates(number, "sentences"), other.rates(number, "sentences"), strict=False)
    return spread([ours / theirs for ours, theirs in pairs], ".2f")


def spread(values: list[float], digits: str) -> str:
    low, middle, high = (format(value, f",{digits}") for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} [{low}–{high}]" if len(values) > 1 else middle


def agreement(results: list[Result], cases: list[dict]) -> str:
    """How many translations of each program are those of heedful's torch engine.

    Where lengths are forced, programs rank differently: CTranslate2 spreads the probability of an end that may not be.
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
                    base.rounds[0][number]["written"], result.rounds[0][number]["written"], strict=True
                )
            ]
            shares.append(f"{sum(ours == theirs for ours, theirs in pairs):,} of {len(pairs):,}")
        lines.append(
            f"| {result.program.name} | {result.program.compute} | {' | '.join(shares)} "
            f"| {result.peak_memory / 1e6:,.0f} |"
        )
    return "\n".join(lines)


def scores(results: list[Result], prepared: dict, options: argparse.Namespace) -> str:
    """BLEU of what each program wrote when it was free to end where it liked."""
    lines = ["| program | compute | search | BLEU |", "|---|---|---|---|"]
    for number, case in enumerate(prepared["cases"]):
        if case["mode"] == "bulk" and case["forced"] is None:
            written = {
                f"| {result.program.name} | {result.program.compute} |": result.rounds[0][number]["written"]
                for result in results
                if result.rounds
            }
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found = pool.apply(_bleu, (prepared["model"], options.reference, written))
            lines += [f"{name} beam {case['beam']} | {value:.2f} |" for name, value in found.items()]
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a run or a model folder of heedful's")
    parser.add_argument("--source", type=Path, required=True, help="a text to translate, one sentence a line")
    parser.add_argument("--reference", type=Path, help="its translation: BLEU of each program is then given")
    parser.add_argument("--text", type=Path, help="source text to learn a shortlist from: the model translates it")
    parser.add_argument("--sentences", type=int, default=1000, help="at most so many of it")
    parser.add_argument("--longest", type=int, default=256, help="tokens of a translation whose length is not forced")
    parser.add_argument("--single", type=int, default=100, help="how many of them one at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="of all but auto, which chooses itself"
    )
    parser.add_argument("--programs", default=None, help=f"of {', '.join(dict.fromkeys(p.key for p in PROGRAMS))}")
    parser.add_argument("--beams", type=lambda text: [int(number) for number in text.split(",")], help="1, 5 or 1,5")
    parser.add_argument("--quick", action="store_true", help="a few sentences, to see that everything runs")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    unknown = set((options.programs or "").split(",")) - {program.key for program in PROGRAMS} - {""}
    if unknown:
        parser.error(f"--programs: {', '.join(sorted(unknown))}: unknown")
    return options


def chosen(options: argparse.Namespace) -> list[Program]:
    wanted = None if options.programs is None else options.programs.split(",")
    return [
        program
        for program in PROGRAMS
        if (wanted is None or program.key in wanted) and (program.key != "shortlist" or options.text)
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
    results = [Result(program) for program in chosen(options)]
    for number in range(1, options.rounds + 1):
        for result in results:
            if result.failure is None:
                run_round(result, file, work, options)
                say(result, number)
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
            {**asdict(result), "rounds": [[{**one, "written": None} for one in answers] for answers in result.rounds]}
            for result in results
        ]
        options.json.write_text(json.dumps({"machine": machine, "results": figures}, indent=1) + "\n")


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="heedful-decode-") as folder:
        measure(options, Path(folder))


if __name__ == "__main__":
    main()
