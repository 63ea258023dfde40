"""Everyday sentences of Tatoeba: check for overlap, train with a recipe, score against all references.

    python benchmarks/quality/tatoeba.py --train eng-fra.train.tsv.xz --valid eng-fra.valid.tsv.xz --run
        runs/tatoeba-en-fr
        [--recipe benchmarks/recipes/tatoeba-en-fr.toml] [--reverse] [--from RUN] [--ship src/heedful/builtin/en-fr]
        [--model MODEL] [--keep docs/results/tatoeba/en-fr] [--set key=value …]

A source has several right translations here: the validation set becomes one line for each unique source and as many
reference files as the most translated one has (lines without a further reference are empty there, and not counted).
The same set is scored a second time as people type: sources in small letters, no mark at the end of either side; and a
third time without sentences whose translation also stands in the training text, as that of another source.
`--ship` writes the model in int8 and scores what it has written, for its card. With `--model` nothing is trained, that
model is scored. `--keep` copies hypotheses, scores, the check for overlap and, of a run, log and settings.
"""

import argparse
import json
import lzma
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from heedful.data.corpus import Example
from heedful.data.typed import without_mark
from multi30k import write_record

CODES = {"eng": "en", "fra": "fr", "deu": "de", "spa": "es", "cmn": "zh"}  # as Tatoeba names languages -> as cards do


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--valid", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--recipe", type=Path, default=Path("benchmarks/recipes/tatoeba-en-fr.toml"))
    parser.add_argument("--model", type=Path, help="score this model folder; nothing is trained")
    parser.add_argument("--tokenize", default="13a", help="how BLEU finds words: zh for Chinese")
    parser.add_argument("--reverse", action="store_true", help="from the second column to the first")
    parser.add_argument("--from", dest="start", type=Path, help="a run or model folder to begin with")
    parser.add_argument("--ship", type=Path, help="write the model here, in int8, as it comes with heedful")
    parser.add_argument("--keep", type=Path, help="copy what must last into this folder")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    work = options.run.with_name(options.run.name + "-data")
    valid = write_pairs(options.valid, work, options.reverse)
    train = write_pairs(options.train, work, options.reverse, without=sources_of(valid))
    sets = {"as written": write_references(valid, work), "as typed": write_references(write_typed(valid), work)}
    if (new := write_new(valid, train)).read_text(encoding="utf-8") not in ("", valid.read_text(encoding="utf-8")):
        sets["new on both sides"] = write_references(new, work)
    shared = overlap(train, sets["as written"][0])
    print(f"training sources that are also in validation: {shared}", flush=True)
    codes = [CODES[name] for name in options.train.name.split(".")[0].split("-")]
    languages = codes[::-1] if options.reverse else codes
    if options.model is None and not (options.run / "average").exists():
        resume = (options.run / "settings.toml").exists()
        settings = [f"data.languages={json.dumps(languages)}", *options.set]
        start = ["--from", options.start] if options.start else []
        new = ["--source", train, "--valid-source", valid, "--recipe", options.recipe, *start, "--set", *settings]
        heedful("train", options.run, *(["--resume"] if resume else new))
    model = options.model or options.run / "best"
    scores = score_all(model, sets, options.tokenize)
    if options.ship:
        ship(model, options.ship, languages, scores, options.start)
        print(f"{options.ship}: {sum(path.stat().st_size for path in options.ship.iterdir()):,} bytes")
        scores = score_all(options.ship, sets, options.tokenize)
        ship(model, options.ship, languages, scores, options.start)  # a card has the scores of the weights beside it
    if options.keep:
        keep(options, [source for source, _ in sets.values()], scores, shared)


def score_all(model: Path, sets: dict[str, tuple[Path, list[Path]]], tokenize: str) -> str:
    return "\n".join(score(model, name, source, references, tokenize) for name, (source, references) in sets.items())


def score(model: Path, how: str, source: Path, references: list[Path], tokenize: str) -> str:
    """What `heedful evaluate` says of the translations by beam search and by greedy search."""
    said = []
    for name, beam in ((f"{how}, beam 5", 5), (f"{how}, greedy", 1)):
        output = source.with_suffix(f".beam{beam}.txt")
        heedful("translate", source, "-m", model, "--beam", str(beam), "--output", output)
        words = ["evaluate", "--hypotheses", output, "--target", *references, "--tokenize", tokenize]
        done = subprocess.run(
            [sys.executable, "-m", "heedful", *map(str, words)], check=True, stdout=subprocess.PIPE, text=True
        )
        said.append(f"{name}:\n{done.stdout.replace(str(output), output.name)}")
        print(f"{model}, {said[-1]}", flush=True)
    return "\n".join(said)


def keep(options: argparse.Namespace, sources: list[Path], scores: str, shared: int) -> None:
    """Copy what must last: hypotheses, scores and the check for overlap; of a run its log and settings."""
    options.keep.mkdir(parents=True, exist_ok=True)
    for source in sources:
        for hypotheses in source.parent.glob(f"{source.stem}.beam*.txt"):
            shutil.copyfile(hypotheses, options.keep / hypotheses.name)
    told = f"training sources that are also in validation: {shared}\n\n{scores.strip()}\n"
    (options.keep / "scores.txt").write_text(told, encoding="utf-8")
    if options.model is None:
        write_record(options.run, options.keep)


def ship(model: Path, folder: Path, languages: list[str], scores: str, start: Path | None) -> None:
    """The model in int8 with a card that says where it comes from and how good it is."""
    from heedful.models.folder import CARD, load_model, save_model

    body = (model / CARD).read_text(encoding="utf-8").split("\n---\n", 1)[1].split("\n\n", 2)[2]  # without its title
    source, target = languages
    begun = f" It began with `{start.name}`, which learned from the same sentences." if start else ""
    card = CARD_OF_SHIPPED.format(source=source, target=target, begun=begun, body=body.strip(), scores=scores.strip())
    loaded = load_model(model)
    save_model(folder, loaded.model, loaded.tokenizers, card=card, precision="int8")


CARD_OF_SHIPPED = """---
language:
- "{source}"
- "{target}"
library_name: heedful
pipeline_tag: translation
license: cc-by-2.0
metrics:
- bleu
- chrf
---

# Everyday sentences, {source} to {target}

This model comes with heedful. It was trained on sentences of Tatoeba (tatoeba.org), written and translated by its
members and published under the licence CC BY 2.0 FR; its files name the author of each sentence. The weights are int8,
with a scale for each row of a matrix (docs/models.md).{begun}

Scores on the held-out sentences, against all their translations, cased, as `heedful evaluate` prints them; *as typed*
has small letters in the sources and no mark at the end of either side:

```text
{scores}
```

{body}
"""


def heedful(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "heedful", *map(str, words)], check=True)


def write_pairs(path: Path, folder: Path, reverse: bool, without: Collection[str] = ()) -> Path:
    """The first two columns (the third says who wrote the sentences), in the direction that is wanted.

    Pairs with one of the sources `without` are left out: the files were split by the first column, so what is held out
    of the second may stand in the training text, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{path.name.split('.')[1]}.tsv"
    content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    with output.open("w", encoding="utf-8", newline="\n") as pairs:
        for line in content.decode("utf-8").rstrip("\n").split("\n"):
            first, second = line.rstrip("\r").split("\t")[:2]
            source, target = (second, first) if reverse else (first, second)
            if source not in without:
                print(f"{source}\t{target}", file=pairs)
    return output


def sources_of(pairs: Path) -> set[str]:
    return {line.split("\t")[0] for line in pairs.read_text(encoding="utf-8").split("\n") if line}


def targets_of(pairs: Path) -> set[str]:
    return {line.split("\t")[1] for line in pairs.read_text(encoding="utf-8").split("\n") if line}


def write_typed(pairs: Path) -> Path:
    """The pairs as people type them: the source in small letters, and no mark at the end of both sides."""
    output = pairs.with_name("typed.tsv")
    with output.open("w", encoding="utf-8", newline="\n") as typed:
        for line in pairs.read_text(encoding="utf-8").split("\n")[:-1]:
            bare = without_mark(Example(*line.split("\t")))
            print(f"{bare.source.lower()}\t{bare.target}", file=typed)
    return output


def write_new(pairs: Path, train: Path) -> Path:
    """The pairs of those sources that have no translation which is also one of another source, in the training text."""
    known = targets_of(train)
    columns = [line.split("\t") for line in pairs.read_text(encoding="utf-8").split("\n") if line]
    old = {source for source, target in columns if target in known}
    output = pairs.with_name("new.tsv")
    output.write_text("".join(f"{s}\t{t}\n" for s, t in columns if s not in old), encoding="utf-8")
    return output


def write_references(pairs: Path, folder: Path) -> tuple[Path, list[Path]]:
    by_source: dict[str, list[str]] = defaultdict(list)
    for line in pairs.read_text(encoding="utf-8").split("\n"):
        if line:
            source, target = line.split("\t")
            by_source[source].append(target)
    most = max(map(len, by_source.values()))
    texts = {"source": list(by_source)}
    for number in range(most):
        texts[f"reference-{number}"] = [(targets[number : number + 1] or [""])[0] for targets in by_source.values()]
    for name, lines in texts.items():
        (folder / f"{pairs.stem}.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder / f"{pairs.stem}.source", [folder / f"{pairs.stem}.reference-{number}" for number in range(most)]


def overlap(train: Path, test: Path) -> int:
    """How many training pairs have a source that is also in validation, as `heedful check` finds it."""
    command = [sys.executable, "-m", "heedful", "check", str(train), "--test", str(test), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    findings = [finding for corpus in report["corpora"] for finding in corpus["findings"]]
    return sum(finding["count"] for finding in findings if finding["kind"] == "overlap")


if __name__ == "__main__":
    main()
