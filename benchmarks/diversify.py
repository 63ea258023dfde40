"""More text out of the same pairs: a model each way translates what the other way's training text is made of.

    python benchmarks/diversify.py --data FOLDER --recipe recipes/multi30k-en-de-teacher.toml [--pair en-de]
        [--runs runs] [--set key=value …]

FOLDER is as for benchmarks/multi30k.py. A model of each direction learns from the training pairs and from nothing else.
What the first makes of the sources can then stand as a second target beside them, what the other makes of the targets
as a second source (data diversification, Nguyen et al. 2020). The files are named at the end, as benchmarks/multi30k.py
takes them: --more SOURCE TARGET. Whatever is there already is not made again.
"""

import argparse
from pathlib import Path

from multi30k import Corpus, heedful, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--recipe", type=Path, required=True, help="of the two models that translate")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    source, target = options.pair.split("-")
    sources, targets = Corpus(options.data, source, target).pair("train")
    forward = translated(options, source, target)
    backward = translated(options, target, source)
    print(f"--more {sources} {forward} --more {backward} {targets}")


def translated(options: argparse.Namespace, source: str, target: str) -> Path:
    """The training text of one language in the other, by a model that learned from the pairs; line by line."""
    run = options.runs / f"{options.recipe.stem}-{source}-{target}"
    output = Path(f"{run}.{target}")
    if not output.exists():
        corpus = Corpus(options.data, source, target)
        train(run, corpus, "--recipe", options.recipe, *(["--set", *options.set] if options.set else []))
        heedful("translate", corpus.find("train", source), "-m", run, "--output", output)
    return output


if __name__ == "__main__":
    main()
