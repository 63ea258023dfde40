"""More text out of the same pairs: what models of each direction make of the training text.

    python benchmarks/quality/diversify.py --data FOLDER --recipe benchmarks/recipes/multi30k-en-de-teacher.toml
        [--pair en-de]
        [--both-ways] [--runs runs] [--set key=value …]

FOLDER is as for benchmarks/quality/multi30k.py. A model of each direction learns from the training pairs and from
nothing else.
What the first makes of the sources can then stand as a second target beside them, what the other makes of the targets
as a second source (data diversification, Nguyen et al. 2020). With --both-ways it is one model for both directions: it
learns from the pairs and from the pairs turned round, and knows by the language of a sentence which way to go. A model
of one direction may begin with it (Ding et al. 2021). What to begin with and the files are named at the end, as
benchmarks/quality/multi30k.py takes them: --from RUN --more SOURCE TARGET. Whatever is there already is not made again.
"""

import argparse
from pathlib import Path

from multi30k import Corpus, heedful, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--recipe", type=Path, required=True, help="of what translates")
    parser.add_argument("--both-ways", action="store_true", help="one model for both directions")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    source, target = options.pair.split("-")
    corpora = Corpus(options.data, source, target), Corpus(options.data, target, source)
    forward, backward = (translated(corpus, options) for corpus in corpora)
    sources, targets = corpora[0].pair("train")
    print(f"--from {run_of(corpora[0], options)} --more {sources} {forward} --more {backward} {targets}")


def run_of(corpus: Corpus, options: argparse.Namespace) -> Path:
    way = "both" if options.both_ways else f"{corpus.source}-{corpus.target}"
    return Path(options.runs / f"{options.recipe.stem}-{way}")


def translated(corpus: Corpus, options: argparse.Namespace) -> Path:
    """The training text of one language in the other, by a model that learned from the pairs; line by line."""
    run = run_of(corpus, options)
    output = Path(f"{run}.{corpus.target}")
    if not output.exists():
        learn(run, corpus, options)
        heedful("translate", corpus.find("train", corpus.source), "-m", run, "--output", output)
    return output


def learn(run: Path, corpus: Corpus, options: argparse.Namespace) -> None:
    """The model that translates, unless it is there. One for both ways is validated on the pair as it was named."""
    turned = []
    if options.both_ways:
        corpus = Corpus(options.data, *options.pair.split("-"))
        turned = [corpus.pair("train")[::-1]]
    train(run, corpus, "--recipe", options.recipe, *(["--set", *options.set] if options.set else []), more=turned)


if __name__ == "__main__":
    main()
