"""Draw every picture of the documentation: python docs/pictures/make.py [FOLDER]"""

import sys
from collections.abc import Callable
from pathlib import Path

from codes import positions
from decoders import gpt
from grids import masks, patterns
from readers import readers
from wiring import joins, transformer
from writers import writers

HERE = Path(__file__).parent

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
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
