"""Train and score translation models on Multi30k: check for overlap, train a recipe with several seeds, evaluate.

    python benchmarks/quality/multi30k.py --data FOLDER --recipe benchmarks/recipes/multi30k-en-de.toml
        [--seeds 1 2 3] [--runs runs] [--more SOURCE TARGET] [--init-from RUN] [--backwards] [--together [MODEL …]]
        [--keep build/multi30k] [--set key=value …]

FOLDER holds train, val and test files by language (train.en, test_2016_flickr.de.gz, train.lc.norm.tok.en, …). Files
with `tok` in their names are lower-cased and tokenized, and are scored as they are, as older papers do; other text is
scored cased and detokenized. Decisions use validation only: of the best checkpoint and the mean of the last ones, the
one that translates validation better with a beam of 5 translates each test set, once, at the end. A run that was
interrupted is resumed, and a finished one is only scored.

--more adds two aligned files to the training text; benchmarks/quality/diversify.py makes such files. --backwards
trains models that write each sentence from its last word to its first (Liu et al. 2016), so that their mistakes differ
from those of other models; the translations are reversed again before they are scored. --together also translates with
the models of all seeds, and any models named, as one ensemble. --keep copies the log, settings, translations and
scores of each run into a folder.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heedful.evaluation.metrics import Tokenize
from translations import read_lines, write_lines

CANDIDATES = ("average", "best")  # models in a run folder that validation decides between
GOALS = (30, 35, 38, 40, 41, 42)  # BLEU on validation; the report names the minutes until each is reached
Values = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpus")
    parser.add_argument("--pair", default="en-de", help="source and target language")
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--name", help="beginning of the run folders' names (default: the recipe's name)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument(
        "--more",
        type=Path,
        nargs=2,
        action="append",
        default=[],
        metavar=("SOURCE", "TARGET"),
        help="two aligned files to add to the training text; may be repeated",
    )
    parser.add_argument("--init-from", type=Path, help="run or model folder whose weights training starts from")
    parser.add_argument("--backwards", action="store_true", help="train models that write the last word first")
    parser.add_argument(
        "--together",
        type=Path,
        nargs="*",
        metavar="MODEL",
        help="also score the models of all seeds, and these, as one ensemble",
    )
    parser.add_argument(
        "--keep", type=Path, help="copy log, settings, translations and scores of each run into this folder"
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings that replace the recipe's")
    options = parser.parse_args()
    if options.backwards and (options.more or options.together is not None):
        parser.error("--backwards cannot be combined with --more or --together")
    name = options.name or options.recipe.stem
    reversed_folder = options.runs / f"{name}-reversed" if options.backwards else None
    corpus = Corpus(options.data, *options.pair.split("-"), reversed_folder=reversed_folder)
    repeated = overlap(corpus, options.more)
    counts = ", ".join(f"{count} in {split}" for split, count in repeated.items())
    print(f"source sentences that are also in the training text: {counts}", flush=True)
    rows: list[Values] = []
    chosen: list[Path] = []
    for seed in options.seeds:
        run = options.runs / f"{name}-{seed}"
        start = ["--init-from", options.init_from] if options.init_from else []
        settings = ["--set", *options.set, f"run.seed={seed}"]
        train(run, corpus, "--recipe", options.recipe, *start, *settings, more=options.more)
        validation = {name: bleu_on_validation(run / name, run, corpus) for name in CANDIDATES}
        chosen.append(run / max(validation, key=lambda name: validation[name]))
        scores = score_all(chosen[-1:], run, corpus)
        choice = {"validation": validation, "chosen": chosen[-1].name}
        rows.append({"seed": seed, **summarize(run), "overlap": repeated, **choice, "scores": scores})
        write_scores(run, rows[-1], options)
    print("\n".join(report(rows)))
    if options.together is not None:
        chosen += options.together
        run = options.runs / f"{name}-together"
        run.mkdir(exist_ok=True)
        scores = score_all(chosen, run, corpus)
        names = [f"{model.parent.name}/{model.name}" for model in chosen]
        write_scores(run, {"models": names, "scores": scores}, options)
        for case, (bleu, chrf) in scores.items():
            print(f"ensemble of {len(chosen)} models, {case}: BLEU {bleu['value']:.2f}, chrF2 {chrf['value']:.2f}")


class Corpus:
    """The files of a corpus folder, by split and language.

    With `reversed_folder`, training uses targets whose words are in reverse order; that folder receives them.
    """

    def __init__(self, folder: Path, source: str, target: str, *, reversed_folder: Path | None = None) -> None:
        self.folder, self.source, self.target, self.reversed_folder = folder, source, target, reversed_folder
        is_tokenized = ".tok." in self.find("train", source).name or folder.name.endswith("tok")
        self.tokenize: Tokenize = "none" if is_tokenized else "13a"

    def find(self, split: str, language: str) -> Path:
        """Return the only file of this split and language."""
        paths = [path for path in sorted(self.folder.glob(f"{split}.*")) if f".{language}" in path.suffixes]
        if len(paths) != 1:
            sys.exit(f"{self.folder}: expected one file {split}*.{language}, found {[path.name for path in paths]}")
        return paths[0]

    def pair(self, split: str) -> tuple[Path, Path]:
        """Return the source and target file that training reads."""
        target = self.find(split, self.target)
        if self.reversed_folder is not None:
            target = reverse_words(target, self.reversed_folder / f"{split}.{self.target}")
        return self.find(split, self.source), target

    def tests(self) -> list[str]:
        return sorted({path.name.split(".")[0] for path in self.folder.glob(f"test*.{self.target}*")})


def heedful(*args: str | Path, json_output: bool = False) -> Values:
    """Run a command of heedful and exit if it fails; with `json_output`, return what it prints as JSON."""
    command = [sys.executable, "-m", "heedful", *map(str, args)]
    process = subprocess.run(command, check=False, stdout=subprocess.PIPE if json_output else None, text=True)
    if process.returncode:
        sys.exit(process.returncode)
    return dict(json.loads(process.stdout)) if json_output else {}


def overlap(corpus: Corpus, more: Sequence[tuple[Path, Path]] = ()) -> dict[str, int]:
    """Count the source sentences of validation and of each test set that are also in the training text."""
    paths = [corpus.find("train", corpus.source), *(source for source, _ in more)]
    training = {line for path in paths for line in read_lines(path)}
    splits = ("val", *corpus.tests())
    return {split: sum(line in training for line in read_lines(corpus.find(split, corpus.source))) for split in splits}


def reverse_words(path: Path, output: Path) -> Path:
    """Write the lines of a file with their words in reverse order; return the output's path."""
    lines = [" ".join(reversed(line.split())) for line in read_lines(path)]
    output.parent.mkdir(parents=True, exist_ok=True)
    write_lines(output, lines)
    return output


def train(run: Path, corpus: Corpus, *args: str | Path, more: Sequence[tuple[Path, Path]] = ()) -> None:
    """Train on the corpus and the files in `more`; resume an interrupted run and leave a finished one alone."""
    if (run / "average").exists():
        return
    if (run / "settings.toml").exists():
        heedful("train", run, "--resume")
        return
    sources, targets = zip(corpus.pair("train"), *more, strict=True)
    valid_source, valid_target = corpus.pair("val")
    files = ["--source", *sources, "--target", *targets, "--valid-source", valid_source, "--valid-target", valid_target]
    heedful("train", run, *files, *args)


def bleu_on_validation(model: Path, folder: Path, corpus: Corpus) -> float:
    return float(score([model], folder, corpus, "val", 5)[0]["value"])


def score_all(models: Sequence[Path], folder: Path, corpus: Corpus) -> dict[str, list[Values]]:
    """Score the models on validation and every test set, with a beam of 5 and greedily."""
    splits = ("val", *corpus.tests())
    return {f"{split}, beam {beam}": score(models, folder, corpus, split, beam) for split in splits for beam in (5, 1)}


def score(models: Sequence[Path], folder: Path, corpus: Corpus, split: str, beam: int) -> list[Values]:
    """Translate a split with one model or an ensemble, into the folder, and return BLEU and chrF."""
    source = corpus.find(split, corpus.source)
    output = folder / f"{split}.beam{beam}.{corpus.target}"
    model_args = [arg for model in models for arg in ("-m", model)]
    heedful("translate", source, *model_args, "--beam", str(beam), "--output", output)
    if corpus.reversed_folder is not None:
        reverse_words(output, output)
    return score_file(output, corpus, split)


def score_file(output: Path, corpus: Corpus, split: str) -> list[Values]:
    """Score translations in a file; return BLEU and chrF with confidence intervals and signatures."""
    target = corpus.find(split, corpus.target)
    args: list[str | Path] = ["--hypotheses", output, "--target", target, "--tokenize", corpus.tokenize, "--json"]
    (system,) = heedful("evaluate", *args, json_output=True)["systems"]
    return list(system["scores"])


def summarize(run: Path) -> Values:
    """Read from a run's log what training cost, its learning curve, and when validation reached each goal."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = {event["step"]: event for event in events if event["event"] == "step"}
    last = steps[max(steps)]
    validations = [event for event in events if event["event"] == "validation" and event["step"] in steps]
    curve = [[steps[event["step"]]["seconds"] / 60, event["bleu"], event["loss"]] for event in validations]
    plan = next(event for event in events if event["event"] == "plan")
    return {
        "parameters": plan["parameters"],
        "peak_memory_bytes": max((event.get("peak_memory_bytes", 0) for event in events), default=0),
        "steps": last["step"],
        "minutes": last["seconds"] / 60,
        "tokens": last["tokens"],
        "curve": curve,
        "minutes_to": {goal: next((minutes for minutes, bleu, _ in curve if bleu >= goal), None) for goal in GOALS},
    }


def report(rows: list[Values]) -> Iterator[str]:
    """Yield a Markdown table with a row for each seed and set, then means, choices and signature."""
    yield "| seed | parameters | minutes | target tokens | set | BLEU | chrF2 |\n|---:|---:|---:|---:|---|---:|---:|"
    for row in rows:
        for case, (bleu, chrf) in row["scores"].items():
            cost = f"{row['parameters']:,} | {row['minutes']:.0f} | {row['tokens']:,}"
            yield f"| {row['seed']} | {cost} | {case} | {bleu['value']:.2f} | {chrf['value']:.2f} |"
    for case in rows[0]["scores"]:
        values = [row["scores"][case][0]["value"] for row in rows]
        spread = f", from {min(values):.2f} to {max(values):.2f}" if len(values) > 1 else ""
        yield f"mean of {len(values)}, {case}: BLEU {statistics.mean(values):.2f}{spread}"
    for row in rows:
        validation = ", ".join(f"{name} {bleu:.2f}" for name, bleu in row["validation"].items())
        yield f"seed {row['seed']}, validation with a beam of 5: {validation}; chosen: {row['chosen']}"
    yield f"signature: {next(iter(rows[0]['scores'].values()))[0]['signature']}"
    for row in rows:
        goals = [f"{goal} after {time:.0f} min" for goal, time in row["minutes_to"].items() if time is not None]
        yield f"seed {row['seed']}, BLEU on validation (greedy): {', '.join(goals)}"


def write_scores(run: Path, row: Values, options: argparse.Namespace) -> None:
    """Write scores.json into the run folder; with --keep, copy the results."""
    (run / "scores.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    if options.keep:
        copy_results(run, options.keep / run.name)


def copy_results(run: Path, folder: Path) -> None:
    """Copy the translations, log, settings and scores of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    for hypotheses in run.glob("*.beam*.*"):
        shutil.copyfile(hypotheses, folder / hypotheses.name)
    copy_records(run, folder)


def copy_records(run: Path, folder: Path) -> None:
    """Copy the log, settings and scores of a run without the paths of this machine: only file names remain."""
    for record in (run / name for name in ("log.jsonl", "settings.toml", "scores.json")):
        if record.exists():
            text = re.sub(r'(?<=[\s"])(?:\.\.)?/[^"\s]*/', "", record.read_text(encoding="utf-8"))
            (folder / record.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
