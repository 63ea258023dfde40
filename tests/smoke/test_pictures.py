"""The pictures of the documentation are those that their code draws."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def test_drawing_again_gives_the_committed_pictures(tmp_path):
    subprocess.run([sys.executable, PICTURES / "make.py", tmp_path], check=True)
    drawn = sorted(tmp_path.iterdir())
    different = [path.name for path in drawn if path.read_bytes() != (PICTURES / path.name).read_bytes()]
    assert drawn
    assert not different, f"draw them again with: python docs/pictures/make.py ({different})"


def test_pictures_are_small_and_self_contained():
    for path in PICTURES.glob("*.svg"):
        assert path.stat().st_size < 200_000
        for element in ElementTree.parse(path).iter():
            for name, value in element.attrib.items():
                assert "href" not in name or value.startswith("data:image/png;base64,"), f"{path.name}: {value[:60]}"
