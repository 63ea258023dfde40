"""`heedful evaluate`: how good a model, or a file of translations, is."""

from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from heedful.cli.evaluate_report import Report
from heedful.cli.progress import Passing
from heedful.cli.text_output import refuse_overwriting
from heedful.errors import UserError
from heedful.evaluation.counts import Tokenize
from heedful.evaluation.evaluate import Evaluation
from heedful.evaluation.evaluate import evaluate as evaluate_texts
from heedful.evaluation.systems import Compute, System, Texts, file_system, model_system, read_texts
from heedful.models.find import builtin_folders, find_model_folder


def evaluate(
    source: Path | None = None,
    *,
    model: Annotated[Path | None, Parameter(name=("--model", "-m"))] = None,
    target: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    hypotheses: Path | None = None,
    against: Path | None = None,
    beam: int = 5,
    compute: Compute = "float32",
    device: str = "cpu",
    lowercase: bool = False,
    tokenize: Tokenize = "13a",
    worst: int = 0,
    per_sentence: Path | None = None,
    json: bool = False,
) -> None:
    """Score a model, or a file of translations: BLEU, chrF, how sure they are.

    By sacreBLEU, cased and detokenised, with signatures and 95 % intervals by
    bootstrap; of a model also the perplexity of the references.

    Parameters
    ----------
    source
        The text to translate, one sentence a line.
    model
        The run or model folder that translates --source.
    target
        Its right translation, line by line; several files are several references.
    hypotheses
        In place of a model: a file with translations, line by line.
    against
        Compare with this, a model folder or a file with translations: is the difference more than chance?
    beam
        The beam of the search; 1 is greedy search.
    compute
        float32 or int8: how the model computes when it translates.
    device
        Where to compute: cpu, cuda, cuda:N (the GPU of that number, from 0) or mps.
    lowercase
        Also give the scores of lower-cased text.
    tokenize
        How BLEU finds words: none for text that is tokenised; zh, ja-mecab, ko-mecab, char for text without spaces.
    worst
        Show so many of the sentences with the lowest chrF.
    per_sentence
        Write the scores of each sentence to this file, one JSON object a line.
    json
        Print one JSON object, for programs.
    """
    subject = _subject(model, hypotheses, source)
    _check_options(worst, per_sentence, [subject, source, against, *(target or ())])
    if not target:
        raise UserError("heedful evaluate: nothing to compare with: give --target, the right translation of --source")
    texts = read_texts(source, target)
    systems = _systems([path for path in (subject, against) if path is not None], texts, beam, compute, device)
    report = Report(texts, systems, _evaluate(systems, texts, tokenize, lowercase), worst)
    if per_sentence is not None:
        report.write_sentences(per_sentence)
    print(dumps(report.values(), indent=1) if json else report.text())


def _subject(model: Path | None, hypotheses: Path | None, source: Path | None) -> Path:
    if model is not None and hypotheses is not None:
        raise UserError(
            f"heedful evaluate: -m {model} and --hypotheses {hypotheses} both say what to evaluate; "
            "to compare the two, give one of them as --against"
        )
    if hypotheses is not None:
        if hypotheses.is_dir():
            raise UserError(f"--hypotheses {hypotheses}: a folder, where a file was expected; a model is given by -m")
        return hypotheses
    if model is None:
        raise UserError(
            "heedful evaluate: nothing to evaluate. Give a model and its test set, -m MODEL --source FILE --target "
            "FILE, or a file of translations, --hypotheses FILE --target FILE"
        )
    if model.is_file():
        raise UserError(
            f"-m {model}: a file, where a model folder was expected; translations are given by --hypotheses"
        )
    if source is None:
        raise UserError(f"-m {model}: a model needs text to translate: give --source")
    find_model_folder(model)  # what is wrong with it is said now; it may be the name of one that comes with heedful
    return model


def _check_options(worst: int, per_sentence: Path | None, read: list[Path | None]) -> None:
    """Complain of what cannot work now, not after translating."""
    if worst < 0:
        raise UserError(f"--worst {worst}: expected how many sentences to show, from 0 upwards")
    if per_sentence is not None and (per_sentence.is_dir() or not per_sentence.absolute().parent.is_dir()):
        what = "a folder" if per_sentence.is_dir() else f"there is no folder {per_sentence.parent}"
        raise UserError(f"--per-sentence {per_sentence}: {what}; name a file in a folder that is there")
    refuse_overwriting(per_sentence, *read, option="--per-sentence")


def _systems(paths: list[Path], texts: Texts, beam: int, compute: Compute, device: str) -> list[System]:
    # Files first: what is wrong with one is said before a model has translated for an hour.
    files = {path: file_system(path, texts) for path in paths if not _is_model(path)}
    with Passing(unit="sentences") as passing:

        def tell(what: str, done: int) -> None:
            passing.update(what, done, done / max(1, len(texts)))

        return [
            files.get(path) or model_system(path, texts, beam=beam, compute=compute, device=device, tell=tell)
            for path in paths
        ]


def _is_model(path: Path) -> bool:
    if path.exists():
        return path.is_dir()
    if str(path) in (builtin := builtin_folders()):
        return True
    ours = f", or name a model that comes with heedful: {', '.join(builtin)}" if builtin else ""
    raise UserError(f"{path}: no such file or folder; give a file of translations, or a model folder{ours}")


def _evaluate(systems: list[System], texts: Texts, tokenize: Tokenize, lowercase: bool) -> Evaluation:
    outputs = [system.hypotheses for system in systems]
    against = outputs[1] if len(outputs) > 1 else None
    return evaluate_texts(outputs[0], texts.references, against=against, tokenize=tokenize, lowercase=lowercase)
