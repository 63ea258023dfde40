"""benchmarks/speed/train.py measures programs with their children, and reports those that fail."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "speed"
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the benchmark reads /proc")


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import train

    return train


@pytest.fixture
def corpus(tmp_path):
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 8))) for _ in range(300)]
    for name, n_pairs in (("train", 400), ("val", 20)):
        for side in ("en", "de"):
            lines = (" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(n_pairs))
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


@pytest.mark.long
def test_heedful_and_the_plain_loop_are_measured_and_a_missing_peer_is_reported(corpus, tmp_path):
    command = [sys.executable, BENCHMARKS / "train.py", "--data", corpus, "--peers", "heedful,plain,eole"]
    quick = ["--quick", "--threads", "1", "--rounds", "1", "--seconds", "0.5", "--warm-up", "0.1"]
    process = subprocess.run(
        [*command, *quick, "--environments", tmp_path / "nowhere", "--json", tmp_path / "figures.json"],
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads((tmp_path / "figures.json").read_text())["results"]
    for peer in ("heedful", "plain"):
        (watched,) = results[peer]["rounds"]
        assert watched["steps"] >= 2 and watched["seconds"] >= 0.5
        assert 300 < watched["tokens_per_step"] <= 512  # QUICK's batch_tokens, minus padding
        assert watched["tokens_per_second"] == pytest.approx(
            watched["tokens_per_step"] * watched["steps"] / watched["seconds"]
        )
        assert 1e8 < watched["training_memory"] <= watched["peak_memory"] < 2e9
    assert "install.sh eole" in results["eole"]["failure"]
    assert "Eole 0.6.4: FAILED: not installed" in process.stdout
    assert "| heedful |" in process.stdout


# Prints a step of 100 tokens every 20 ms, while a child holds 200 MB.
PROGRAM = """
import os, sys, time
if os.fork() == 0:
    memory = bytearray(b"x") * 200_000_000
    time.sleep(600)
for _ in range(1000):
    print("step 100", flush=True)
    time.sleep(0.02)
"""


def runs_program(command_line):
    try:
        return PROGRAM.encode() in command_line.read_bytes()
    except OSError:  # the process has just ended
        return False


def test_a_program_is_measured_with_its_children_and_ended_with_them(benchmark, tmp_path):
    window = benchmark.Window(warm_up=0.3, seconds=1.0)
    command = [sys.executable, "-c", PROGRAM]
    watched = benchmark.watch(
        command, environment={}, folder=tmp_path, steps=r"^step (\d+)$", window=window, log=tmp_path / "log"
    )
    assert watched.tokens_per_step == 100
    assert 100 < watched.tokens_per_second <= 100 / 0.02
    assert watched.peak_memory > 200_000_000
    time.sleep(0.2)
    assert not any(runs_program(path) for path in Path("/proc").glob("[0-9]*/cmdline"))


def test_a_failure_is_reported_with_the_error_that_the_program_printed(benchmark, tmp_path):
    lines = ["Traceback (most recent call last):", "ValueError: no such luck", "bye"]
    program = f"import sys; print({os.linesep.join(lines)!r}); sys.exit(3)"
    with pytest.raises(benchmark.Failed, match="exit code 3: ValueError: no such luck"):
        benchmark.watch(
            [sys.executable, "-c", program],
            environment={},
            folder=tmp_path,
            steps=r"^step (\d+)$",
            window=benchmark.Window(warm_up=0.0, seconds=1.0),
            log=tmp_path / "log",
        )


def test_the_benchmark_itself_does_not_import_torch():
    # It would share torch's memory pages with the programs, and PSS would count only a part of them.
    program = "import sys, train; print('torch' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    assert process.stdout == "False\n"


def test_operations_are_counted_from_the_models_matrices(benchmark):
    sizes = benchmark.Sizes(d_model=32, d_ff=48, n_heads=2, n_layers=3, vocab_size=50)
    model = Seq2Seq(
        Seq2SeqConfig(source_vocab_size=50, target_vocab_size=50, d_model=32, d_ff=48, n_heads=2, n_layers=3)
    )
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
    attention = 3 * 7 * 3  # layers x tokens x (encoder, decoder, decoder to encoder)
    assert benchmark.flop_per_target_token(sizes, [7, 7], [7, 7]) == 6 * weights + 12 * 32 * attention


def test_the_table_has_the_ratio_to_the_fastest_peer_and_names_disturbed_programs(benchmark):
    def result(peer, *speeds, others):
        watched = [
            benchmark.Watched(
                tokens_per_second=speed,
                tokens_per_step=4000,
                steps=10,
                seconds=60,
                first_step=5,
                peak_memory=10**9,
                training_memory=10**9,
                others=others,
            )
            for speed in speeds
        ]
        return benchmark.Result(peer, f"name of {peer}", watched)

    rows = benchmark.table(
        [result("plain", 1000, 900, 1100, others=0.3), result("heedful", 1500, 1400, 1600, others=0.0)], 1e6, 4e9
    ).splitlines()
    assert rows[2].startswith("| name of heedful | 1,500 [1,400–1,600] | 1.50 | 38% | 4,000 | 1.00 |")
    assert rows[3].startswith("| name of plain | 1,000 [900–1,100] | 1.00 | 25% |")
    assert rows[-1] == "Not reliable, because other processes were busy: name of plain"


# Prints a step per second, while a child that has left the session keeps a core busy, like another program.
DISTURBED = """
import os, time
if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        pass
    os._exit(0)
for _ in range(1000):
    print("step 100", flush=True)
    time.sleep(1)
"""


def test_the_cpu_use_of_other_programs_is_measured_even_with_few_steps(benchmark, tmp_path):
    watched = benchmark.watch(
        [sys.executable, "-c", DISTURBED],
        environment={},
        folder=tmp_path,
        steps=r"^step (\d+)$",
        window=benchmark.Window(warm_up=0.0, seconds=0.9),
        log=tmp_path / "log",
    )
    assert watched.steps == 1
    assert watched.others > 0.3
