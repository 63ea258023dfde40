"""benchmarks/speed/patterns.py measures time and memory correctly, and writes tables, figures and a chart."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "speed"


@pytest.fixture
def patterns(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import patterns

    return patterns


@pytest.mark.long
def test_patterns_prints_tables_and_writes_figures_and_a_chart(tmp_path):
    (tmp_path / "page.md").write_text("# Results\n<!-- patterns: begin -->\nold\n<!-- patterns: end -->\nrest\n")
    command = [sys.executable, BENCHMARKS / "patterns.py", "--quick", "--patterns", "window", "--repeats", "1"]
    files = {"--json": "figures.json", "--plot": "picture.svg", "--document": "page.md"}
    process = subprocess.run(
        [*command, *(arg for option, name in files.items() for arg in (option, tmp_path / name))],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [row["length"] for row in figures["measured"]] == [512, 1024, 2048]
    assert figures["machine"]["processor"] in process.stdout
    assert "| window, blocks of 64 |" in process.stdout
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Results\n<!-- patterns: begin -->\n\nprocessor: ")
    assert process.stdout.strip() in page and "old" not in page
    assert page.endswith("\n<!-- patterns: end -->\nrest\n")
    lines = ElementTree.parse(tmp_path / "picture.svg").iter("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [3, 3]  # time and memory, three lengths each


def test_memory_is_measured_in_the_first_run(patterns):
    formula, window = (patterns.measure_apart(patterns.Case(name, 2048, 1, 1)) for name in ("formula", "window"))
    matrix = patterns.N_HEADS * 2048 * 2048 * 4 / 1e6  # the weights of all heads, in megabytes
    assert 2.5 * matrix < formula.megabytes < 4 * matrix
    assert window.megabytes < matrix / 2
    assert (formula.kernels, window.kernels) == ([], ["ScaledDotProductFlashAttentionForCpu"])


def test_every_pattern_can_be_measured(patterns):
    for name in patterns.NAMES:
        measured = patterns.measure(patterns.Case(name, 128, torch.get_num_threads(), 1))
        assert 0 < measured.fastest <= measured.seconds <= measured.slowest


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_exponent_of_a_power_is_that_power(patterns, power):
    lengths = [1, 2, 4, 8]
    assert patterns.exponent(lengths, [3 * n**power for n in lengths]) == pytest.approx(power)
    assert patterns.exponent(lengths[:2], [1, 2]) is None  # two points always lie on a line
