"""Write the tables of the demo corpus: `python -m scripts.demo_corpus` in heedful's folder, or `make demo-corpus`."""

import argparse
import sys
from pathlib import Path
from typing import cast

from heedful.data.demo import FOLDER, PAIRS
from scripts.demo_corpus.corpus import SEED
from scripts.demo_corpus.meaning import Language
from scripts.demo_corpus.tables import write_table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.demo_corpus",
        description="Write the tables of the demo corpus; without options, those of the package, byte for byte.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder for the tables")
    parser.add_argument("--pair", nargs="+", choices=PAIRS, default=PAIRS, help="directions to write")
    parser.add_argument("--scale", type=int, default=1, help="draw SCALE times as many sentences; needs --output")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="choose what is held out, and the order, by this number; needs --output"
    )
    options = parser.parse_args(arguments)
    if options.scale < 1:
        parser.error(f"--scale {options.scale}: expected 1 or more")
    if options.output.resolve() == FOLDER.resolve() and (options.scale, options.seed) != (1, SEED):
        parser.error("--scale and --seed make another corpus than the one that the package ships. Give an --output")
    for pair in options.pair:
        source, target = cast("tuple[Language, Language]", tuple(pair.split("-")))
        path = options.output / f"{pair}.tsv.xz"
        n_rows = write_table(path, source, target, seed=options.seed, scale=options.scale)
        print(f"{path}: {n_rows:,} rows, {path.stat().st_size:,} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
