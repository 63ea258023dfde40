"""The family on real data: what each model reaches, beside something simple of the same cost. One table for a command.

    python benchmarks/quality/family.py data --shared ../shared/data --output family  # plain files of the sets below
    python benchmarks/quality/family.py shakespeare  # gpt: validation loss by character
    python benchmarks/quality/family.py labels --sets sst trec --labels 100 1000 0  # bert: with and without
        pre-training
    python benchmarks/quality/family.py pictures --sets cifar mnist                        # vit beside a small CNN
    python benchmarks/quality/family.py summaries --families t5 bart extract  # with and without pre-training
    python benchmarks/quality/family.py scan --families universal seq2seq  # exactly right, simple and length

Runs are kept below --runs and go on if they were interrupted; a finished one is only scored again, and one that was
begun in another way is refused. No test file chooses anything: it is scored once, with the last weights (labels), the
best on validation (pictures) or the mean of the last checkpoints (summaries, scan). Minutes are those of the clock,
with validation and saving.
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
    parser.add_argument("what", choices=list(COMMANDS))
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="the sets as they come")
    parser.add_argument("--output", "--data", dest="data", type=Path, default=Path("family"), help="the plain files")
    parser.add_argument("--runs", type=Path, default=Path("runs/family"))
    parser.add_argument("--sets", nargs="+", help=f"by default {SETS}")
    parser.add_argument("--families", nargs="+", help=f"by default {FAMILIES}")
    parser.add_argument("--labels", nargs="+", type=int, default=[0], help="labelled examples; 0: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--json", type=Path, help="append the rows to this file, one object a line")
    options = parser.parse_args()
    for name, known in (("sets", SETS), ("families", FAMILIES)):
        allowed = known.get(options.what, [])
        chosen = getattr(options, name) or allowed
        if set(chosen) - set(allowed):
            parser.error(f"--{name}: of {options.what} there are {', '.join(allowed) or 'none'}")
        setattr(options, name, chosen)
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
        for seed in options.seeds:
            run = train(options, f"{recipe}-{seed}", recipe, "--text", text, settings=[f"run.seed={seed}"])
            best = min(validations(run), key=lambda event: event["loss"])
            row = {"recipe": recipe, "seed": seed, "validation loss": best["loss"], "at step": best["step"]}
            rows.append({**row, **cost(run)})
    return rows


def labels(options: argparse.Namespace) -> list[Row]:
    """By number of labelled examples: words in a bag, the encoder from scratch, the pre-trained encoder."""
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
                for how, begin in ((FROM_SCRATCH, None), (PRE_TRAINED, start)):
                    run_name = f"{name}-{n_labels or 'all'}-{seed}-{how.replace(' ', '-')}"
                    settings = [f"run.seed={seed}", "run.patience=1000", "run.validate_every=500"]
                    given = ["--labels", train_file, "--valid", valid]
                    run = train(options, run_name, f"bert-{name}", *given, start=begin, settings=settings)
                    row[how] = classified(run, read_pairs(test))
                    row[f"minutes, {how}"] = cost(run)["minutes"]
                rows.append(row)
    return rows


def pictures(options: argparse.Namespace) -> list[Row]:
    """A ViT, and a CNN that is given the same pictures and as many operations."""
    from family_peers import cnn_accuracy, divided_pictures, picture_accuracy

    rows = []
    for name in options.sets:
        parts = divided_pictures(options.shared / "images" / PICTURES[name], options.data)
        for seed in options.seeds:
            given = ["--images", parts.train, "--valid", parts.valid]
            run = train(options, f"vit-{name}-{seed}", f"vit-{name}", *given, settings=[f"run.seed={seed}"])
            row = {"set": name, "seed": seed, "ViT": picture_accuracy(run / "best", parts.test), **cost(run)}
            n_pictures = row.pop("tokens")
            row["CNN"] = kept(
                options.runs / f"cnn-{name}-{seed}.json",
                lambda run=run, parts=parts, seed=seed, n=n_pictures: cnn_accuracy(run / "best", parts, n, seed=seed),
            )
            rows.append(row)
    return rows


def summaries(options: argparse.Namespace) -> list[Row]:
    """Beside what needs no model, the first sentence: T5 and BART with and without pre-training, and a BART of few
    tokens that reads the most important sentences (`extract`).
    """
    test = read_pairs(options.data / "summarise.test.tsv")
    sources, wanted = [source for source, _ in test], [target for _, target in test]
    rows = [{"family": "", "how": "first sentence", **likeness([first_sentence(text) for text in sources], wanted)}]
    for family in options.families:
        starts: list[tuple[str, Path | None]] = [(FROM_SCRATCH, None)]
        if family in PRETRAINED:
            starts.append((PRE_TRAINED, pretrain(options, family)))
        for seed, (how, start) in itertools.product(options.seeds, starts):
            given = ["--source", options.data / "summarise.train.tsv"]
            name = f"{family}-summarise-{how.replace(' ', '-')}-{seed}"
            run = train(options, name, f"{family}-summarise", *given, start=start, settings=[f"run.seed={seed}"])
            said = written("summarize", run / "average", sources)
            rows.append({"family": family, "seed": seed, "how": how, **likeness(said, wanted), **cost(run)})
    return rows


def likeness(said: Sequence[str], wanted: Sequence[str]) -> Row:
    from heedful.evaluation.metrics import chrf

    return {"chrF": chrf(said, [wanted]).value, "ROUGE-L": rouge_l(said, wanted)}


def first_sentence(text: str) -> str:
    from heedful.decoding.segmentation import split_sentences

    return next((sentence.strip() for sentence in split_sentences(text) if sentence.strip()), "")


def scan(options: argparse.Namespace) -> list[Row]:
    rows = []
    for family in options.families:
        for split in ("simple", "length"):
            test = read_pairs(options.data / f"scan.{split}.test.tsv")
            for seed in options.seeds:
                given = ["--source", options.data / f"scan.{split}.train.tsv"]
                run_name = f"{family}-scan-{split}-{seed}"
                run = train(options, run_name, f"{family}-scan", *given, settings=[f"run.seed={seed}"])
                said = written("translate", run / "average", [source for source, _ in test], "--beam", "1")
                right = exactly_right(said, [target for _, target in test])
                rows.append({"family": family, "split": split, "seed": seed, "exactly right": right, **cost(run)})
    return rows


def pretrain(options: argparse.Namespace, family: str) -> Path:
    text = options.data / PRETRAINED[family]
    return train(options, f"{family}-pretrain", f"{family}-pretrain", "--text", text) / "average"


def train(
    options: argparse.Namespace,
    name: str,
    recipe: str,
    *given: str | Path,
    start: Path | None = None,
    settings: Sequence[str] = (),
) -> Path:
    """Train with a recipe of benchmarks/recipes/, or go on, or find it done; the run's folder."""
    run = options.runs / name
    words = [
        *given,
        *([] if start is None else ["--init-from", start]),
        "--set",
        "run.average=3",
        *settings,
        *options.set,
    ]
    require_same(options.runs / f"{name}.json", RECIPES / f"{recipe}.toml", words, start)
    if (run / "average").exists():
        return run
    command: list[str | Path] = [sys.executable, "-m", "heedful", "train", run]
    is_begun = (run / "settings.toml").exists()
    subprocess.run(
        [*command, *(["--resume"] if is_begun else ["--recipe", RECIPES / f"{recipe}.toml", *words])], check=True
    )
    return run


def require_same(record: Path, recipe: Path, words: Sequence[str | Path], start: Path | None) -> None:
    """How a run is trained is written down beside it: nobody takes the result of a trial for that of the recipe."""
    weights = b"" if start is None else (start / "manifest.json").read_bytes()
    how = {
        "recipe": hashlib.sha256(recipe.read_bytes()).hexdigest(),
        "words": [str(word) for word in words],
        "start": hashlib.sha256(weights).hexdigest(),
    }
    if record.exists():
        before = json.loads(record.read_text(encoding="utf-8"))
        if before != how:
            run = record.with_suffix("")
            sys.exit(f"{run}: was trained in another way; delete it and {record.name}, or name another --runs")
        return
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(how, indent=1) + "\n", encoding="utf-8")


def kept(path: Path, compute: Callable[[], float]) -> float:
    """What was computed once."""
    if not path.exists():
        path.write_text(json.dumps(compute()) + "\n", encoding="utf-8")
    return float(json.loads(path.read_text(encoding="utf-8")))


def events_of(run: Path) -> list[Row]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def validations(run: Path) -> list[Row]:
    return [event for event in events_of(run) if event["event"] == "validation"]


def cost(run: Path) -> Row:
    """What it took: the minutes from the start to the end of each sitting."""
    events = events_of(run)
    seconds, began = 0.0, None
    for event in events:
        if event["event"] == "start":
            began = event["time"]
        elif event["event"] == "stop" and began is not None:
            seconds, began = seconds + event["time"] - began, None
    plan = next(event for event in events if event["event"] == "plan")
    last = [event for event in events if event["event"] == "stop"][-1]
    return {"parameters": plan["parameters"], "tokens": last["tokens"], "minutes": seconds / 60}


def classified(run: Path, test: Sequence[tuple[str, str]]) -> float:
    from heedful.decoding.classifier import Classifier

    # The last one: who has a hundred labels has none to spare for choosing.
    found = Classifier.load(run / "last").classify([text for text, _ in test])
    right = sum(labels[0].label == wanted for labels, (_, wanted) in zip(found, test, strict=True))
    return 100.0 * right / len(test)


def written(command: str, model: Path, sources: Sequence[str], *more: str) -> list[str]:
    """What the command of that name says to each line."""
    done = subprocess.run(
        [sys.executable, "-m", "heedful", command, "-m", model, *more],
        input="".join(f"{source}\n" for source in sources),
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.split("\n")[:-1]


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
