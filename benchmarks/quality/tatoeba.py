"""Train and score translation models on the everyday sentences of Tatoeba.

    python benchmarks/quality/tatoeba.py --train eng-fra.train.tsv.xz --valid eng-fra.valid.tsv.xz
        --run runs/tatoeba-en-fr [--recipe benchmarks/recipes/tatoeba-en-fr.toml] [--reverse] [--init-from RUN]
        [--ship src/heedful/builtin/en-fr] [--model MODEL] [--keep build/tatoeba] [--set key=value …]

It checks for overlap, trains with a recipe and scores against all references. A source sentence has several correct
translations: validation becomes one line for each distinct source and several reference files (a source with fewer
references than the others has empty lines there, which are not counted). The models are scored three times:

- as written: on these sentences;
- as typed: with sources in lower case and without the final punctuation mark on either side;
- new on both sides: without the sentences of which a translation is also in the training text, as the translation of
  another source.

--ship writes the model in int8 and scores what it wrote, for its model card. --model scores that model and trains
nothing. --keep copies the translations, the scores and, after training, the run's log and settings.
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

from heedful.data import Example
from heedful.data.augment import strip_final_punctuation
from multi30k import copy_records

# Tatoeba's language names -> the codes of model cards
CODES = {"eng": "en", "fra": "fr", "deu": "de", "spa": "es", "cmn": "zh"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", type=Path, required=True, help="training pairs, a TSV file (.xz allowed)")
    parser.add_argument("--valid", type=Path, required=True, help="validation pairs, in the same format")
    parser.add_argument("--run", type=Path, required=True, help="run folder; RUN-data receives the prepared files")
    parser.add_argument("--recipe", type=Path, default=Path("benchmarks/recipes/tatoeba-en-fr.toml"))
    parser.add_argument("--model", type=Path, help="score this model and train nothing")
    parser.add_argument("--tokenize", default="13a", help="BLEU's tokenizer: zh for Chinese")
    parser.add_argument("--reverse", action="store_true", help="translate from the second column to the first")
    parser.add_argument("--init-from", type=Path, help="run or model folder whose weights training starts from")
    parser.add_argument(
        "--ship", type=Path, help="write the model to this folder in int8, in the form that heedful ships"
    )
    parser.add_argument("--keep", type=Path, help="copy translations, scores, log and settings into this folder")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings that replace the recipe's")
    options = parser.parse_args()
    work = options.run.with_name(options.run.name + "-data")
    valid = write_pairs(options.valid, work, options.reverse)
    train = write_pairs(options.train, work, options.reverse, without=sources_of(valid))
    sets = {"as written": write_references(valid, work), "as typed": write_references(write_typed(valid), work)}
    if (new := write_new(valid, train)).read_text(encoding="utf-8") not in ("", valid.read_text(encoding="utf-8")):
        sets["new on both sides"] = write_references(new, work)
    n_repeated = overlap(train, sets["as written"][0])
    print(f"training sources that are also in validation: {n_repeated}", flush=True)
    codes = [CODES[name] for name in options.train.name.split(".")[0].split("-")]
    languages = codes[::-1] if options.reverse else codes
    if options.model is None and not (options.run / "average").exists():
        resume = (options.run / "settings.toml").exists()
        settings = [f"data.languages={json.dumps(languages)}", *options.set]
        start = ["--init-from", options.init_from] if options.init_from else []
        args = ["--source", train, "--valid-source", valid, "--recipe", options.recipe, *start, "--set", *settings]
        heedful("train", options.run, *(["--resume"] if resume else args))
    model = options.model or options.run / "best"
    scores = score_all(model, sets, options.tokenize)
    if options.ship:
        ship(model, options.ship, languages, scores, options.init_from)
        print(f"{options.ship}: {sum(path.stat().st_size for path in options.ship.iterdir()):,} bytes")
        scores = score_all(options.ship, sets, options.tokenize)
        # Write the card again: its scores must be those of the int8 weights beside it.
        ship(model, options.ship, languages, scores, options.init_from)
    if options.keep:
        copy_results(options, [source for source, _ in sets.values()], scores, n_repeated)


def score_all(model: Path, sets: dict[str, tuple[Path, list[Path]]], tokenize: str) -> str:
    return "\n".join(score(model, name, source, references, tokenize) for name, (source, references) in sets.items())


def score(model: Path, name: str, source: Path, references: list[Path], tokenize: str) -> str:
    """Translate with beam and greedy search; return what `heedful evaluate` prints for both."""
    reports = []
    for case, beam in ((f"{name}, beam 5", 5), (f"{name}, greedy", 1)):
        output = source.with_suffix(f".beam{beam}.txt")
        heedful("translate", source, "-m", model, "--beam", str(beam), "--output", output)
        args = ["evaluate", "--hypotheses", output, "--target", *references, "--tokenize", tokenize]
        process = subprocess.run(
            [sys.executable, "-m", "heedful", *map(str, args)], check=True, stdout=subprocess.PIPE, text=True
        )
        reports.append(f"{case}:\n{process.stdout.replace(str(output), output.name)}")
        print(f"{model}, {reports[-1]}", flush=True)
    return "\n".join(reports)


def copy_results(options: argparse.Namespace, sources: list[Path], scores: str, n_repeated: int) -> None:
    """Copy the translations, scores and overlap into the --keep folder; after training, also the log and settings."""
    options.keep.mkdir(parents=True, exist_ok=True)
    for source in sources:
        for hypotheses in source.parent.glob(f"{source.stem}.beam*.txt"):
            shutil.copyfile(hypotheses, options.keep / hypotheses.name)
    text = f"training sources that are also in validation: {n_repeated}\n\n{scores.strip()}\n"
    (options.keep / "scores.txt").write_text(text, encoding="utf-8")
    if options.model is None:
        copy_records(options.run, options.keep)


def ship(model: Path, folder: Path, languages: list[str], scores: str, start: Path | None) -> None:
    """Write the model in int8, with a model card that states its data, its licence and its scores."""
    from heedful.models.model_io import CARD, load_model, save_model

    body = (model / CARD).read_text(encoding="utf-8").split("\n---\n", 1)[1].split("\n\n", 2)[2]  # without its title
    source, target = languages
    origin = (
        f" Training started from the weights of `{start.name}`, which was trained on the same sentences."
        if start
        else ""
    )
    card = SHIPPED_CARD.format(source=source, target=target, origin=origin, body=body.strip(), scores=scores.strip())
    loaded = load_model(model)
    save_model(folder, loaded.model, loaded.tokenizers, card=card, precision="int8")


SHIPPED_CARD = """---
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
members and published under the licence CC BY 2.0 FR; Tatoeba's files name the author of each sentence. The weights are
int8, with a scale for each row of a matrix (docs/models.md).{origin}

Scores on the held-out sentences, against all their translations, cased, as printed by `heedful evaluate`. *As typed*
means lower-case sources and no final punctuation mark on either side:

```text
{scores}
```

{body}
"""


def heedful(*args: str | Path) -> None:
    """Run a command of heedful."""
    subprocess.run([sys.executable, "-m", "heedful", *map(str, args)], check=True)


def write_pairs(path: Path, folder: Path, reverse: bool, without: Collection[str] = ()) -> Path:
    """Write the first two columns, source first, into a TSV file of the folder; return its path.

    The third column names the authors. Pairs whose source is in `without` are left out: Tatoeba's files were split by
    their first column, so a held-out sentence of the second column may also be in the training text.
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
    """Write the pairs as people type them: sources in lower case, no final punctuation mark on either side."""
    output = pairs.with_name("typed.tsv")
    with output.open("w", encoding="utf-8", newline="\n") as typed:
        for line in pairs.read_text(encoding="utf-8").split("\n")[:-1]:
            bare = strip_final_punctuation(Example(*line.split("\t")))
            print(f"{bare.source.lower()}\t{bare.target}", file=typed)
    return output


def write_new(pairs: Path, train: Path) -> Path:
    """Write the pairs of those sources of which no translation is also a target in the training text."""
    training_targets = targets_of(train)
    columns = [line.split("\t") for line in pairs.read_text(encoding="utf-8").split("\n") if line]
    repeated = {source for source, target in columns if target in training_targets}
    output = pairs.with_name("new.tsv")
    output.write_text("".join(f"{s}\t{t}\n" for s, t in columns if s not in repeated), encoding="utf-8")
    return output


def write_references(pairs: Path, folder: Path) -> tuple[Path, list[Path]]:
    """Write each distinct source once, and its translations to as many reference files as needed; return the paths."""
    by_source: dict[str, list[str]] = defaultdict(list)
    for line in pairs.read_text(encoding="utf-8").split("\n"):
        if line:
            source, target = line.split("\t")
            by_source[source].append(target)
    n_references = max(map(len, by_source.values()))
    texts = {"source": list(by_source)}
    for number in range(n_references):
        texts[f"reference-{number}"] = [(targets[number : number + 1] or [""])[0] for targets in by_source.values()]
    for name, lines in texts.items():
        (folder / f"{pairs.stem}.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder / f"{pairs.stem}.source", [
        folder / f"{pairs.stem}.reference-{number}" for number in range(n_references)
    ]


def overlap(train: Path, test: Path) -> int:
    """Count the training pairs whose source is also in validation, with `heedful check`."""
    command = [sys.executable, "-m", "heedful", "check", str(train), "--test", str(test), "--json"]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    report: dict[str, Any] = json.loads(process.stdout)
    findings = [finding for corpus in report["corpora"] for finding in corpus["findings"]]
    return sum(finding["count"] for finding in findings if finding["kind"] == "overlap")


if __name__ == "__main__":
    main()
