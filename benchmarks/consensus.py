"""What several systems agree on: for each sentence one of their translations is chosen, without a model or a reference.

    python benchmarks/consensus.py --data FOLDER --systems docs/results/multi30k/multi30k-en-de-[123] [--pair en-de]
        [--beam 5] [--keep docs/results/multi30k/multi30k-en-de-consensus]

FOLDER holds the corpus as for benchmarks/multi30k.py, and each system is a folder that its --keep has left: val and
test files as a beam translated them. How likeness is measured, by words (BLEU) or by characters (chrF), is chosen by
BLEU on validation; the test sets are then scored once, with that one.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from heedful.evaluation.consensus import LIKENESSES, Likeness, consensus
from multi30k import Corpus, lines_of, score_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--systems", type=Path, nargs="+", required=True)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--keep", type=Path, required=True, help="the folder for what was chosen, and its scores")
    options = parser.parse_args()
    corpus = Corpus(options.data, *options.pair.split("-"))
    options.keep.mkdir(parents=True, exist_ok=True)
    judged = {likeness: agreed(options, corpus, "val", likeness) for likeness in LIKENESSES}
    likeness = max(LIKENESSES, key=lambda one: judged[one][0]["value"])
    scores = {split: agreed(options, corpus, split, likeness) for split in ("val", *corpus.tests())}
    how = {
        "systems": [path.name for path in options.systems],
        "validation": {one: found[0]["value"] for one, found in judged.items()},
        "chosen": likeness,
    }
    for split, (bleu, chrf) in scores.items():
        print(f"{len(options.systems)} systems, {split}: BLEU {bleu['value']:.2f}, chrF2 {chrf['value']:.2f}")
    print(json.dumps(how))
    (options.keep / "scores.json").write_text(json.dumps({**how, "scores": scores}, indent=1) + "\n", encoding="utf-8")


def agreed(options: argparse.Namespace, corpus: Corpus, split: str, likeness: Likeness) -> list[dict[str, Any]]:
    """BLEU and chrF of what is chosen, which is kept."""
    name = f"{split}.beam{options.beam}.{corpus.target}"
    outputs = [lines_of(system / name) for system in options.systems]
    chosen = consensus(outputs, likeness=likeness, tokenize=corpus.tokenize)
    output = options.keep / name
    output.write_text("".join(f"{line}\n" for line in chosen), encoding="utf-8")
    return score_file(output, corpus, split)


if __name__ == "__main__":
    main()
