"""Train every model family on real data and compare it with a simple baseline; each command prints one table.

    python benchmarks/quality/family.py data --shared ../shared/data --output family  # write the sets as plain files
    python benchmarks/quality/family.py shakespeare                                  # gpt: loss per character
    python benchmarks/quality/family.py labels --sets sst trec --labels 100 1000 0   # bert, also from scratch
    python benchmarks/quality/family.py pictures --sets cifar mnist                  # vit, beside a small CNN
    python benchmarks/quality/family.py summaries --families t5 bart extract         # with and without pre-training
    python benchmarks/quality/family.py scan --families universal seq2seq            # simple and length split

Runs are kept in the folder --runs. An interrupted run is resumed, a finished one is only scored again, and one that
was started with other options is refused. Test files choose nothing. They are scored once: with the last weights
(labels), the best weights on validation (pictures) or the mean of the last checkpoints (summaries, scan). Minutes are
elapsed time, with validation and saving.
"""

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from family_data import read_pairs, write_all, write_some
from family_scores import exactly_right, rouge_l, table

RECIPES = Path(__file__).parents[1] / "recipes"
PRETRAINED = {"bert": "english.txt", "t5": "paragraphs.txt", "bart": "paragraphs.txt"}
SETS = {"labels": ["sst", "trec"], "pictures": ["cifar", "mnist"]}
FAMILIES = {"summaries": ["t5", "bart", "extract"], "scan": ["universal", "seq2seq"]}
PICTURES = {"cifar": "cifar10_2000train_500test.npz", "mnist": "mnist_5k.csv.gz"}
FROM_SCRATCH, PRE_TRAINED = "from scratch", "pre-trained"
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder with the original sets")
    parser.add_argument(
        "--output", "--data", dest="data", type=Path, default=Path("family"), help="folder of the plain files"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/family"), help="folder for the runs")
    parser.add_argument("--sets", nargs="+", help=f"sets to use (default: {SETS})")
    parser.add_argument("--families", nargs="+", help=f"families to train (default: {FAMILIES})")
    parser.add_argument("--labels", nargs="+", type=int, default=[0], help="numbers of labelled examples; 0: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings for every run")
    parser.add_argument("--json", type=Path, help="append the rows to this file, one JSON object per line")
    options = parser.parse_args()
    for name, known in (("sets", SETS), ("families", FAMILIES)):
        allowed = known.get(options.command, [])
        chosen = getattr(options, name) or allowed
        if set(chosen) - set(allowed):
            parser.error(f"--{name}: allowed for {options.command}: {', '.join(allowed) or 'none'}")
        setattr(options, name, chosen)
    rows = COMMANDS[options.command](options)
    print(table(rows))
    if options.json is not None:
        with options.json.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def data(options: argparse.Namespace) -> list[Row]:
    """Write the sets as plain files."""
    return [{"file": path.name, "lines": n} for path, n in write_all(options.shared, options.data)]


def shakespeare(options: argparse.Namespace) -> list[Row]:
    """Train character language models; report the lowest validation loss."""
    text = options.shared / "lm" / "tinyshakespeare.txt.xz"
    rows = []
    for recipe in ("shakespeare-nanogpt", "shakespeare"):
        for seed in options.seeds:
            run = train(options, f"{recipe}-{seed}", recipe, "--text", text, settings=[f"run.seed={seed}"])
            best = min(validations(run), key=lambda event: event["loss"])
            row = {"recipe": recipe, "seed": seed, "validation loss": best["loss"], "at step": best["step"]}
            rows.append({**row, **cost(run)})
    return rows


def labels(options: argparse.Namespace) -> list[Row]:
    """Compare a bag of words, BERT from scratch and pre-trained BERT, by the number of labelled examples."""
    from family_peers import bag_of_words

    start = pretrain(options, "bert")
    rows = []
    for name in options.sets:
        test, valid = (options.data / f"{name}.{part}.tsv" for part in ("test", "valid"))
        for n_labels in options.labels:
            for seed in options.seeds:
                train_file = write_some(options.data / f"{name}.train.tsv", n_labels, seed)
                row: Row = {"set": name, "labels": len(read_pairs(train_file)), "seed": seed}
                row["bag of words"] = bag_of_words(read_pairs(train_file), read_pairs(test))
                for origin, init_from in ((FROM_SCRATCH, None), (PRE_TRAINED, start)):
                    run_name = f"{name}-{n_labels or 'all'}-{seed}-{origin.replace(' ', '-')}"
                    settings = [f"run.seed={seed}", "run.patience=1000", "run.validate_every=500"]
                    files = ["--labels", train_file, "--valid", valid]
                    run = train(options, run_name, f"bert-{name}", *files, start=init_from, settings=settings)
                    row[origin] = accuracy(run, read_pairs(test))
                    row[f"minutes, {origin}"] = cost(run)["minutes"]
                rows.append(row)
    return rows


def pictures(options: argparse.Namespace) -> list[Row]:
    """Compare a ViT with a CNN that gets the same pictures and as many operations."""
    from family_peers import cnn_accuracy, picture_accuracy, split_pictures

    rows = []
    for name in options.sets:
        parts = split_pictures(options.shared / "images" / PICTURES[name], options.data)
        for seed in options.seeds:
            files = ["--images", parts.train, "--valid", parts.valid]
            run = train(options, f"vit-{name}-{seed}", f"vit-{name}", *files, settings=[f"run.seed={seed}"])
            row = {"set": name, "seed": seed, "ViT": picture_accuracy(run / "best", parts.test), **cost(run)}
            n_pictures = row.pop("tokens")
            row["CNN"] = compute_once(
                options.runs / f"cnn-{name}-{seed}.json",
                lambda run=run, parts=parts, seed=seed, n=n_pictures: cnn_accuracy(run / "best", parts, n, seed=seed),
            )
            rows.append(row)
    return rows


def summaries(options: argparse.Namespace) -> list[Row]:
    """Compare T5 and BART, with and without pre-training, with the first sentence of each paragraph.

    `extract` is a BART that reads only the most important sentences, in few tokens.
    """
    test = read_pairs(options.data / "summarise.test.tsv")
    sources, targets = [source for source, _ in test], [target for _, target in test]
    baseline = scores([first_sentence(text) for text in sources], targets)
    rows = [{"family": "", "training": "first sentence", **baseline}]
    for family in options.families:
        starts: list[tuple[str, Path | None]] = [(FROM_SCRATCH, None)]
        if family in PRETRAINED:
            starts.append((PRE_TRAINED, pretrain(options, family)))
        for seed, (origin, start) in itertools.product(options.seeds, starts):
            files = ["--source", options.data / "summarise.train.tsv"]
            name = f"{family}-summarise-{origin.replace(' ', '-')}-{seed}"
            run = train(options, name, f"{family}-summarise", *files, start=start, settings=[f"run.seed={seed}"])
            outputs = run_heedful("summarize", run / "average", sources)
            rows.append({"family": family, "seed": seed, "training": origin, **scores(outputs, targets), **cost(run)})
    return rows


def scores(outputs: Sequence[str], targets: Sequence[str]) -> Row:
    from heedful.evaluation.metrics import chrf

    return {"chrF": chrf(outputs, [targets]).value, "ROUGE-L": rouge_l(outputs, targets)}


def first_sentence(text: str) -> str:
    from heedful.decoding.segmentation import split_sentences

    return next((sentence.strip() for sentence in split_sentences(text) if sentence.strip()), "")


def scan(options: argparse.Namespace) -> list[Row]:
    """Train on SCAN; report the percentage of outputs that are exactly right."""
    rows = []
    for family in options.families:
        for split in ("simple", "length"):
            test = read_pairs(options.data / f"scan.{split}.test.tsv")
            for seed in options.seeds:
                files = ["--source", options.data / f"scan.{split}.train.tsv"]
                run_name = f"{family}-scan-{split}-{seed}"
                run = train(options, run_name, f"{family}-scan", *files, settings=[f"run.seed={seed}"])
                outputs = run_heedful("translate", run / "average", [source for source, _ in test], "--beam", "1")
                right = exactly_right(outputs, [target for _, target in test])
                rows.append({"family": family, "split": split, "seed": seed, "exactly right": right, **cost(run)})
    return rows


def pretrain(options: argparse.Namespace, family: str) -> Path:
    """Pre-train a family on unlabelled text; return the model folder."""
    text = options.data / PRETRAINED[family]
    return train(options, f"{family}-pretrain", f"{family}-pretrain", "--text", text) / "average"


def train(
    options: argparse.Namespace,
    name: str,
    recipe: str,
    *files: str | Path,
    start: Path | None = None,
    settings: Sequence[str] = (),
) -> Path:
    """Train a recipe of benchmarks/recipes; resume an interrupted run, leave a finished one; return the run folder."""
    run = options.runs / name
    args = [
        *files,
        *([] if start is None else ["--init-from", start]),
        "--set",
        "run.average=3",
        *settings,
        *options.set,
    ]
    require_same(options.runs / f"{name}.json", RECIPES / f"{recipe}.toml", args, start)
    if (run / "average").exists():
        return run
    if (run / "settings.toml").exists():
        args = ["--resume"]
    else:
        args = ["--recipe", RECIPES / f"{recipe}.toml", *args]
    subprocess.run([sys.executable, "-m", "heedful", "train", run, *args], check=True)
    return run


def require_same(record: Path, recipe: Path, args: Sequence[str | Path], start: Path | None) -> None:
    """Record beside a run how it is trained, and exit if an existing run was trained with another recipe or options.

    So a trial run's result is never reported as that of the recipe.
    """
    weights = b"" if start is None else (start / "manifest.json").read_bytes()
    training = {
        "recipe": hashlib.sha256(recipe.read_bytes()).hexdigest(),
        "args": [str(arg) for arg in args],
        "start": hashlib.sha256(weights).hexdigest(),
    }
    if record.exists():
        recorded = json.loads(record.read_text(encoding="utf-8"))
        if recorded != training:
            run = record.with_suffix("")
            sys.exit(
                f"{run}: was trained with another recipe or other options; delete it and {record.name}, "
                "or name another folder with --runs"
            )
        return
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(training, indent=1) + "\n", encoding="utf-8")


def compute_once(path: Path, compute: Callable[[], float]) -> float:
    """Return the result that the file holds; without the file, compute the result and write it."""
    if not path.exists():
        path.write_text(json.dumps(compute()) + "\n", encoding="utf-8")
    return float(json.loads(path.read_text(encoding="utf-8")))


def read_events(run: Path) -> list[Row]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def validations(run: Path) -> list[Row]:
    return [event for event in read_events(run) if event["event"] == "validation"]


def cost(run: Path) -> Row:
    """Return a run's parameters, tokens and minutes, summed over its first start and every resumption."""
    events = read_events(run)
    seconds, start = 0.0, None
    for event in events:
        if event["event"] == "start":
            start = event["time"]
        elif event["event"] == "stop" and start is not None:
            seconds, start = seconds + event["time"] - start, None
    plan = next(event for event in events if event["event"] == "plan")
    last = [event for event in events if event["event"] == "stop"][-1]
    return {"parameters": plan["parameters"], "tokens": last["tokens"], "minutes": seconds / 60}


def accuracy(run: Path, test: Sequence[tuple[str, str]]) -> float:
    """Return the percentage of test texts that the run's last weights classify correctly."""
    from heedful.decoding.classifier import Classifier

    # Not the best weights: with a hundred labels there are none to spare for choosing a checkpoint.
    results = Classifier.load(run / "last").classify([text for text, _ in test])
    n_right = sum(labels[0].label == expected for labels, (_, expected) in zip(results, test, strict=True))
    return 100.0 * n_right / len(test)


def run_heedful(command: str, model: Path, sources: Sequence[str], *args: str) -> list[str]:
    """Run a command of heedful on lines of text; return its output line for each."""
    process = subprocess.run(
        [sys.executable, "-m", "heedful", command, "-m", model, *args],
        input="".join(f"{source}\n" for source in sources),
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return process.stdout.split("\n")[:-1]


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
