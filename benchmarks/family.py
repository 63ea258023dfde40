"""The family on real data: what each model reaches, beside something simple of the same cost. One table for a command.

    python benchmarks/family.py data --shared ../shared/data --output family       # plain files of the sets below
    python benchmarks/family.py shakespeare                                        # gpt: validation loss by character
    python benchmarks/family.py labels --sets sst trec --labels 100 1000 0         # bert: with and without pre-training
    python benchmarks/family.py pictures --sets cifar mnist                        # vit beside a small CNN
    python benchmarks/family.py summaries --families t5 bart                       # with and without pre-training
    python benchmarks/family.py scan --families universal seq2seq                  # exactly right, simple and length

Runs are kept below --runs and go on if they were interrupted; a finished one is only scored again. Validation alone, on
examples held out of the training files, chooses a model; the test files are scored once, with that model.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from family_data import read_pairs, write_all, write_some

RECIPES = Path(__file__).parents[1] / "recipes"
PRETRAINED = {"bert": "english.txt", "t5": "paragraphs.txt", "bart": "paragraphs.txt"}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=list(COMMANDS))
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="the sets as they come")
    parser.add_argument("--output", "--data", dest="data", type=Path, default=Path("family"), help="the plain files")
    parser.add_argument("--runs", type=Path, default=Path("runs/family"))
    parser.add_argument("--sets", nargs="+", default=["sst", "trec"])
    parser.add_argument("--families", nargs="+", default=["t5", "bart"])
    parser.add_argument("--labels", nargs="+", type=int, default=[0], help="labelled examples; 0: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--minutes", type=float, help="of each pre-training, at most")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--json", type=Path, help="append the rows to this file, one object a line")
    options = parser.parse_args()
    rows = COMMANDS[options.what](options)
    print(table(rows))
    if options.json is not None:
        with options.json.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def data(options: argparse.Namespace) -> list[Row]:
    return [{"file": path.name, "lines": n} for path, n in write_all(options.shared, options.data)]


def shakespeare(options: argparse.Namespace) -> list[Row]:
    text = options.shared / "lm" / "tinyshakespeare.txt.xz"
    rows = []
    for recipe in ("shakespeare-nanogpt", "shakespeare"):
        run = train(options, recipe, recipe, "--text", text)
        best = min(validations(run), key=lambda event: event["loss"])
        rows.append({"recipe": recipe, "validation loss": best["loss"], "at step": best["step"], **cost(run)})
    return rows


def labels(options: argparse.Namespace) -> list[Row]:
    """By number of labelled examples: words in a bag, the encoder from scratch, the pre-trained encoder."""
    from family_peers import bag_of_words

    start = pretrain(options, "bert")
    rows = []
    for name in options.sets:
        test = read_pairs(options.data / f"{name}.test.tsv")
        for n_labels in options.labels:
            for seed in options.seeds:
                train_file = write_some(options.data / f"{name}.train.tsv", n_labels, seed)
                row: Row = {"set": name, "labels": n_labels or len(read_pairs(train_file)), "seed": seed}
                row["bag of words"] = bag_of_words(read_pairs(train_file), test)
                for how, begin in (("from scratch", []), ("pre-trained", ["--from", start])):
                    run_name = f"{name}-{n_labels or 'all'}-{seed}-{how.replace(' ', '-')}"
                    settings = [f"run.seed={seed}", "run.patience=1000"]
                    run = train(options, run_name, f"bert-{name}", "--labels", train_file, *begin, settings=settings)
                    row[how] = classified(run, test)
                rows.append(row)
    return rows


def pictures(options: argparse.Namespace) -> list[Row]:
    from family_peers import cnn_accuracy, divided_pictures, picture_accuracy

    files = {"cifar": "cifar10_2000train_500test.npz", "mnist": "mnist_5k.csv.gz"}
    rows = []
    for name in options.sets:
        path = options.shared / "images" / files[name]
        given, test = divided_pictures(path, options.data)
        run = train(options, f"vit-{name}", f"vit-{name}", "--images", given)
        seconds = cost(run)["minutes"] * 60
        row = {"set": name, "ViT": picture_accuracy(run / "best", test), **cost(run)}
        row["CNN, as long"] = cnn_accuracy(given, test, seconds=seconds)
        rows.append(row)
    return rows


def summaries(options: argparse.Namespace) -> list[Row]:
    from heedful.evaluation.scores import chrf

    test = read_pairs(options.data / "summarise.test.tsv")
    rows = []
    for family in options.families:
        start = pretrain(options, family)
        row: Row = {"family": family}
        for how, begin in (("from scratch", []), ("pre-trained", ["--from", start])):
            given = ["--source", options.data / "summarise.train.tsv"]
            run = train(options, f"{family}-summarise-{how.replace(' ', '-')}", f"{family}-summarise", *given, *begin)
            said = written(run / "average", [source for source, _ in test])
            row[f"chrF, {how}"] = chrf(said, [[target for _, target in test]]).value
            row[f"ROUGE-L, {how}"] = rouge_l(said, [target for _, target in test])
        rows.append(row)
    return rows


def scan(options: argparse.Namespace) -> list[Row]:
    rows = []
    for family in options.families:
        row: Row = {"family": family}
        for split in ("simple", "length"):
            test = read_pairs(options.data / f"scan.{split}.test.tsv")
            run = train(
                options,
                f"{family}-scan-{split}",
                f"{family}-scan",
                "--source",
                options.data / f"scan.{split}.train.tsv",
            )
            said = written(run / "average", [source for source, _ in test])
            row[f"exact, {split}"] = 100.0 * sum(a == b for a, (_, b) in zip(said, test, strict=True)) / len(test)
        rows.append(row)
    return rows


def pretrain(options: argparse.Namespace, family: str) -> Path:
    limit = [] if options.minutes is None else [f"run.minutes={options.minutes}"]
    text = options.data / PRETRAINED[family]
    return train(options, f"{family}-pretrain", f"{family}-pretrain", "--text", text, settings=limit) / "average"


def train(
    options: argparse.Namespace, name: str, recipe: str, *given: str | Path, settings: Sequence[str] = ()
) -> Path:
    """Train with a recipe of recipes/, or go on, or find it done; the run's folder."""
    run = options.runs / name
    if (run / "average").exists():
        return run
    command: list[str | Path] = [sys.executable, "-m", "heedful", "train", run]
    if (run / "settings.toml").exists():
        command.append("--resume")
    else:
        command += ["--recipe", RECIPES / f"{recipe}.toml", *given, "--set", "run.average=3", *settings, *options.set]
    subprocess.run(command, check=True)
    return run


def validations(run: Path) -> list[Row]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "validation"]


def cost(run: Path) -> Row:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    parameters = [event["parameters"] for event in events if event["event"] == "plan"]
    stop = [event for event in events if event["event"] == "stop"][-1]
    return {"parameters": parameters[0], "tokens": stop["tokens"], "minutes": stop["seconds"] / 60}


def classified(run: Path, test: Sequence[tuple[str, str]]) -> float:
    from heedful.decoding.encoders.classify import Classifier

    # The last one: of a hundred labels ten are held out, too few to choose by.
    found = Classifier.load(run / "last").classify([text for text, _ in test])
    right = sum(labels[0].label == wanted for labels, (_, wanted) in zip(found, test, strict=True))
    return 100.0 * right / len(test)


def written(model: Path, sources: Sequence[str]) -> list[str]:
    from heedful.decoding.writing.translator import Translator

    return list(Translator.load(model, engine="torch").translate(list(sources)))


def rouge_l(said: Sequence[str], wanted: Sequence[str]) -> float:
    """The mean F1 of the longest common subsequence of words, lower-cased (Lin 2004)."""
    return (
        100.0
        * sum(_lcs_f1(a.lower().split(), b.lower().split()) for a, b in zip(said, wanted, strict=True))
        / len(said)
    )


def _lcs_f1(a: list[str], b: list[str]) -> float:
    lengths = [0] * (len(b) + 1)
    for word in a:
        before = 0
        for place, other in enumerate(b, 1):
            before, lengths[place] = (
                lengths[place],
                (before + 1 if word == other else max(lengths[place], lengths[place - 1])),
            )
    return 2 * lengths[-1] / max(1, len(a) + len(b))


def table(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    shown = [[_show(row.get(name, "")) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [names, ["---"] * len(names), *shown])


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


COMMANDS: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "data": data,
    "shakespeare": shakespeare,
    "labels": labels,
    "pictures": pictures,
    "summaries": summaries,
    "scan": scan,
}

if __name__ == "__main__":
    main()
