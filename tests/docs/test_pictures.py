"""The committed pictures of the docs equal those that scripts/pictures draws."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from heedful.insight.html_export import PAGE

PROJECT = Path(__file__).parents[2]
PICTURES = PROJECT / "docs" / "pictures"
SCRIPTS = PROJECT / "scripts" / "pictures"


def test_the_committed_diagrams_equal_newly_drawn_ones(tmp_path):
    subprocess.run([sys.executable, SCRIPTS / "diagrams.py", tmp_path], check=True)
    new = sorted(tmp_path.iterdir())
    different = [path.name for path in new if path.read_bytes() != (PICTURES / path.name).read_bytes()]
    assert new
    assert not different, f"draw them again with: python scripts/pictures/diagrams.py ({different})"


def test_pictures_are_small_and_self_contained():
    for path in PICTURES.glob("*.svg"):
        assert path.stat().st_size < 200_000
        for element in ElementTree.parse(path).iter():
            for name, value in element.attrib.items():
                assert "href" not in name or value.startswith("data:image/png;base64,"), f"{path.name}: {value[:60]}"


@pytest.fixture
def thinking_machines(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import thinking_machines

    return thinking_machines


def test_the_thinking_machines_example_computes_attention(thinking_machines):
    example = thinking_machines.thinking_machines()
    x, w_q, w_k, w_v, q, k, v, z = (np.array(example[name]) for name in ("x", "w_q", "w_k", "w_v", "q", "k", "v", "z"))
    assert x.shape == (2, 4) and w_q.shape == w_k.shape == w_v.shape == (4, 64)
    assert (q == x @ w_q).all() and (k == x @ w_k).all() and (v == x @ w_v).all()
    assert (np.array(example["scores"]) == q @ k.T).all()
    assert example["scores"][0] == [112, 96] and example["scale"] == 8 and example["scaled"][0] == [14, 12]
    weights = np.array(example["weights"])
    assert [round(value, 2) for value in weights[0]] == [0.88, 0.12]
    assert np.allclose(weights.sum(axis=1), 1, atol=1e-5) and np.allclose(weights @ v, z, atol=1e-4)


def test_the_page_has_the_numbers_of_the_thinking_machines_example(thinking_machines):
    written = (PAGE / "thinking_machines.js").read_text(encoding="utf-8")
    assert written == thinking_machines.javascript_module(), (
        "write the file again with: python scripts/pictures/thinking_machines.py"
    )
