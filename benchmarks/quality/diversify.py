"""Make more training text from the same pairs: models of both directions translate the training text.

    python benchmarks/quality/diversify.py --data FOLDER --recipe benchmarks/recipes/multi30k-en-de-teacher.toml
        [--pair en-de] [--both-ways] [--runs runs] [--set key=value …]

FOLDER holds the corpus as benchmarks/quality/multi30k.py expects it. A model of each direction is trained on the
training pairs alone. Translations of the source side become additional targets, and translations of the target side
additional sources (data diversification, Nguyen et al. 2020). With --both-ways, one model is trained for both
directions: on the pairs and on the pairs with their sides exchanged. A model of one direction may start from its
weights (Ding et al. 2021).

At the end the command prints the options with which multi30k.py uses the result: --init-from RUN --more SOURCE TARGET
twice. Models and translations that already exist are not made again.
"""

import argparse
from pathlib import Path

from multi30k import Corpus, heedful, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpus")
    parser.add_argument("--pair", default="en-de", help="source and target language")
    parser.add_argument("--recipe", type=Path, required=True, help="recipe of the models that translate")
    parser.add_argument("--both-ways", action="store_true", help="train one model for both directions")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the runs and translations")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings that replace the recipe's")
    options = parser.parse_args()
    source, target = options.pair.split("-")
    forward, backward = Corpus(options.data, source, target), Corpus(options.data, target, source)
    new_targets, new_sources = (translate_training_text(corpus, options) for corpus in (forward, backward))
    sources, targets = forward.pair("train")
    run = run_folder(forward, options)
    print(f"--init-from {run} --more {sources} {new_targets} --more {new_sources} {targets}")


def run_folder(corpus: Corpus, options: argparse.Namespace) -> Path:
    direction = "both" if options.both_ways else f"{corpus.source}-{corpus.target}"
    return Path(options.runs / f"{options.recipe.stem}-{direction}")


def translate_training_text(corpus: Corpus, options: argparse.Namespace) -> Path:
    """Translate the source side of the training text line by line; train the model first if it does not exist."""
    run = run_folder(corpus, options)
    output = Path(f"{run}.{corpus.target}")
    if not output.exists():
        train_translator(run, corpus, options)
        heedful("translate", corpus.find("train", corpus.source), "-m", run, "--output", output)
    return output


def train_translator(run: Path, corpus: Corpus, options: argparse.Namespace) -> None:
    """Train the model that translates; one for both directions is validated on the direction of --pair."""
    exchanged = []
    if options.both_ways:
        corpus = Corpus(options.data, *options.pair.split("-"))
        exchanged = [corpus.pair("train")[::-1]]
    settings = ["--set", *options.set] if options.set else []
    train(run, corpus, "--recipe", options.recipe, *settings, more=exchanged)


if __name__ == "__main__":
    main()
