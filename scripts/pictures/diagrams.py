"""Draw every picture of the documentation: python scripts/pictures/diagrams.py [FOLDER]"""

import sys
from collections.abc import Callable
from pathlib import Path

from codes import positions
from decoders import gpt
from grids import masks, patterns
from readers import readers
from wiring import joins, transformer
from writers import writers

PICTURES_FOLDER = Path(__file__).parents[2] / "docs" / "pictures"

PICTURES: dict[str, Callable[[], str]] = {
    "transformer.svg": transformer,
    "masks.svg": masks,
    "patterns.svg": patterns,
    "positions.svg": positions,
    "joins.svg": joins,
    "readers.svg": readers,
    "writers.svg": writers,
    "gpt.svg": gpt,
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES_FOLDER
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
