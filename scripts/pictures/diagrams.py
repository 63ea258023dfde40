"""Draw the diagrams of the docs as SVG.

    python scripts/pictures/diagrams.py [FOLDER]

FOLDER is docs/pictures by default. A test checks that the committed files equal the drawn ones.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from decoder_only import gpt
from decoders import decoders
from encoders import encoders
from grids import masks, patterns
from position_codes import positions
from wiring import joins, transformer

PICTURES_FOLDER = Path(__file__).parents[2] / "docs" / "pictures"

PICTURES: dict[str, Callable[[], str]] = {
    "transformer.svg": transformer,
    "masks.svg": masks,
    "patterns.svg": patterns,
    "positions.svg": positions,
    "joins.svg": joins,
    "encoders.svg": encoders,
    "decoders.svg": decoders,
    "gpt.svg": gpt,
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES_FOLDER
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
