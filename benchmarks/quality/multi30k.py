"""Multi30k from its files to a score: check for overlap, train with a recipe, translate, evaluate; for several seeds.

    python benchmarks/quality/multi30k.py --data FOLDER --recipe benchmarks/recipes/multi30k-en-de.toml [--seeds 1 2
        3] [--runs runs]
        [--more SOURCE TARGET] [--from RUN] [--backwards] [--together [MODEL …]] [--keep docs/results/multi30k]
        [--set key=value …]

FOLDER holds train, val and test files by language (train.en, test_2016_flickr.de.gz, train.lc.norm.tok.en, …). Text
that is lower-cased and tokenised, as older papers scored it, is known by the `tok` in its names and scored as it is;
other text is scored cased and detokenised. Validation alone decides anything: the best checkpoint or the mean of the
last ones, whichever translates validation better with a beam of 5, translates each test set once, at the end. A run
that was interrupted goes on. --more adds two aligned files to the training text (benchmarks/quality/diversify.py
makes some).
With --backwards the model writes each sentence from its last word to its first, so that it errs elsewhere than others
(Liu et al. 2016); what it says is turned round again before it is scored.
With --together the models of all seeds, and those that are named, also translate as one, each word chosen by the mean
of what they say.
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

from heedful.data.corpus import read_text
from heedful.evaluation.counts import Tokenize

CANDIDATES = ("average", "best")
GOALS = (30, 35, 38, 40, 41, 42)  # BLEU on validation: when is each reached?
Values = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--name", help="of the runs (default: the recipe's)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--more", type=Path, nargs=2, action="append", default=[], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--from", dest="start", type=Path, help="a run or model folder to begin with")
    parser.add_argument("--backwards", action="store_true", help="models that write the last word first")
    parser.add_argument(
        "--together",
        type=Path,
        nargs="*",
        metavar="MODEL",
        help="score the models of all seeds and these as one, too",
    )
    parser.add_argument("--keep", type=Path, help="copy log, hypotheses and scores of each run into this folder")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    if options.backwards and (options.more or options.together is not None):
        parser.error("--backwards goes with neither --more nor --together: their texts and models run forwards")
    name = options.name or options.recipe.stem
    turned = options.runs / f"{name}-turned" if options.backwards else None
    corpus = Corpus(options.data, *options.pair.split("-"), turned=turned)
    shared = overlap(corpus, options.more)
    counts = ", ".join(f"{count} in {split}" for split, count in shared.items())
    print(f"sources that also stand in the training text: {counts}", flush=True)
    rows: list[Values] = []
    chosen: list[Path] = []
    for seed in options.seeds:
        run = options.runs / f"{name}-{seed}"
        start = ["--from", options.start] if options.start else []
        settings = ["--set", *options.set, f"run.seed={seed}"]
        train(run, corpus, "--recipe", options.recipe, *start, *settings, more=options.more)
        judged = {name: bleu_on_validation(run / name, run, corpus) for name in CANDIDATES}
        chosen.append(run / max(judged, key=lambda name: judged[name]))
        scores = score_all(chosen[-1:], run, corpus)
        how = {"validation": judged, "chosen": chosen[-1].name}
        rows.append({"seed": seed, **facts_of(run), "overlap": shared, **how, "scores": scores})
        finish(run, rows[-1], options)
    print("\n".join(report(rows)))
    if options.together is not None:
        chosen += options.together
        run = options.runs / f"{name}-together"
        run.mkdir(exist_ok=True)
        scores = score_all(chosen, run, corpus)
        finish(run, {"models": [f"{model.parent.name}/{model.name}" for model in chosen], "scores": scores}, options)
        for what, (bleu, chrf) in scores.items():
            print(f"{len(chosen)} models together, {what}: BLEU {bleu['value']:.2f}, chrF2 {chrf['value']:.2f}")


class Corpus:
    """The files of a folder, by split and language; with `turned`, a folder for them, targets that run backwards."""

    def __init__(self, folder: Path, source: str, target: str, *, turned: Path | None = None) -> None:
        self.folder, self.source, self.target, self.turned = folder, source, target, turned
        is_tokenised = ".tok." in self.find("train", source).name or folder.name.endswith("tok")
        self.tokenize: Tokenize = "none" if is_tokenised else "13a"

    def find(self, split: str, language: str) -> Path:
        found = [path for path in sorted(self.folder.glob(f"{split}.*")) if f".{language}" in path.suffixes]
        if len(found) != 1:
            sys.exit(f"{self.folder}: expected one file {split}*.{language}, found {[p.name for p in found]}")
        return found[0]

    def pair(self, split: str) -> tuple[Path, Path]:
        """What a model learns from."""
        target = self.find(split, self.target)
        if self.turned is not None:
            target = turn(target, self.turned / f"{split}.{self.target}")
        return self.find(split, self.source), target

    def tests(self) -> list[str]:
        return sorted({path.name.split(".")[0] for path in self.folder.glob(f"test*.{self.target}*")})


def heedful(*words: str | Path, reads: bool = False) -> Values:
    command = [sys.executable, "-m", "heedful", *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE if reads else None, text=True)
    return dict(json.loads(done.stdout)) if reads else {}


def overlap(corpus: Corpus, more: Sequence[tuple[Path, Path]] = ()) -> dict[str, int]:
    """How many sources of validation and of each test set also stand in the training text, with all that was added."""
    paths = [corpus.find("train", corpus.source), *(source for source, _ in more)]
    trained = {line for path in paths for line in lines_of(path)}
    splits = ("val", *corpus.tests())
    return {split: sum(line in trained for line in lines_of(corpus.find(split, corpus.source))) for split in splits}


def lines_of(path: Path) -> list[str]:
    return [example.source for example in read_text(path, keep_empty=True)]  # line n stays line n


def turn(lines: Path, output: Path) -> Path:
    """The lines with their words from the last to the first."""
    turned = [" ".join(reversed(line.split())) for line in lines_of(lines)]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("".join(f"{line}\n" for line in turned), encoding="utf-8")
    return output


def train(run: Path, corpus: Corpus, *words: str | Path, more: Sequence[tuple[Path, Path]] = ()) -> None:
    """The run with the training pairs and more of them, unless it is there; one that was interrupted goes on."""
    if (run / "average").exists():
        return
    if (run / "settings.toml").exists():
        heedful("train", run, "--resume")
        return
    sources, targets = zip(corpus.pair("train"), *more, strict=True)
    valid_source, valid_target = corpus.pair("val")
    files = ["--source", *sources, "--target", *targets, "--valid-source", valid_source, "--valid-target", valid_target]
    heedful("train", run, *files, *words)


def bleu_on_validation(model: Path, folder: Path, corpus: Corpus) -> float:
    return float(score([model], folder, corpus, "val", 5)[0]["value"])


def score_all(models: Sequence[Path], folder: Path, corpus: Corpus) -> dict[str, list[Values]]:
    """Beam 5 and greedy on validation and on every test set: scores with intervals and signatures."""
    splits = ("val", *corpus.tests())
    return {f"{split}, beam {beam}": score(models, folder, corpus, split, beam) for split in splits for beam in (5, 1)}


def score(models: Sequence[Path], folder: Path, corpus: Corpus, split: str, beam: int) -> list[Values]:
    """BLEU and chrF of what the models say together, which is kept in the folder."""
    source = corpus.find(split, corpus.source)
    output = folder / f"{split}.beam{beam}.{corpus.target}"
    named = [word for model in models for word in ("-m", model)]
    heedful("translate", source, *named, "--beam", str(beam), "--output", output)
    if corpus.turned is not None:
        turn(output, output)
    return score_file(output, corpus, split)


def score_file(output: Path, corpus: Corpus, split: str) -> list[Values]:
    target = corpus.find(split, corpus.target)
    scored: list[str | Path] = ["--hypotheses", output, "--target", target, "--tokenize", corpus.tokenize, "--json"]
    (system,) = heedful("evaluate", *scored, reads=True)["systems"]
    return list(system["scores"])


def facts_of(run: Path) -> Values:
    """What the run took, and when validation reached each goal."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = {event["step"]: event for event in events if event["event"] == "step"}
    last = steps[max(steps)]
    judged = [e for e in events if e["event"] == "validation"]
    curve = [[steps[e["step"]]["seconds"] / 60, e["bleu"], e["loss"]] for e in judged if e["step"] in steps]
    plan = next(event for event in events if event["event"] == "plan")
    return {
        "parameters": plan["parameters"],
        "peak_memory_bytes": max((event.get("peak_memory_bytes", 0) for event in events), default=0),
        "steps": last["step"],
        "minutes": last["seconds"] / 60,
        "tokens": last["tokens"],
        "curve": curve,
        "minutes_to": {goal: next((at for at, bleu, _ in curve if bleu >= goal), None) for goal in GOALS},
    }


def report(rows: list[Values]) -> Iterator[str]:
    """A Markdown row for each seed and test set, then the means."""
    yield "| seed | parameters | minutes | target tokens | what | BLEU | chrF2 |\n|---:|---:|---:|---:|---|---:|---:|"
    for row in rows:
        for what, (bleu, chrf) in row["scores"].items():
            took = f"{row['parameters']:,} | {row['minutes']:.0f} | {row['tokens']:,}"
            yield f"| {row['seed']} | {took} | {what} | {bleu['value']:.2f} | {chrf['value']:.2f} |"
    for what in rows[0]["scores"]:
        values = [row["scores"][what][0]["value"] for row in rows]
        spread = f", from {min(values):.2f} to {max(values):.2f}" if len(values) > 1 else ""
        yield f"mean of {len(values)}, {what}: BLEU {statistics.mean(values):.2f}{spread}"
    for row in rows:
        judged = ", ".join(f"{name} {bleu:.2f}" for name, bleu in row["validation"].items())
        yield f"seed {row['seed']}, validation with a beam of 5: {judged}; chosen: {row['chosen']}"
    yield f"signature: {next(iter(rows[0]['scores'].values()))[0]['signature']}"
    for row in rows:
        reached = [f"{goal} after {at:.0f} min" for goal, at in row["minutes_to"].items() if at is not None]
        yield f"seed {row['seed']}, BLEU on validation (greedy): {', '.join(reached)}"


def finish(run: Path, row: Values, options: argparse.Namespace) -> None:
    (run / "scores.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    if options.keep:
        keep(run, options.keep / run.name)


def keep(run: Path, folder: Path) -> None:
    """Copy what must last; where files lay on this machine is nobody's business."""
    folder.mkdir(parents=True, exist_ok=True)
    for hypotheses in run.glob("*.beam*.*"):
        shutil.copyfile(hypotheses, folder / hypotheses.name)
    write_record(run, folder)


def write_record(run: Path, folder: Path) -> None:
    """Log, settings and scores of a run, without the folders in which its files lay."""
    for record in (run / name for name in ("log.jsonl", "settings.toml", "scores.json")):
        if record.exists():
            text = re.sub(r'(?<=[\s"])(?:\.\.)?/[^"\s]*/', "", record.read_text(encoding="utf-8"))
            (folder / record.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
