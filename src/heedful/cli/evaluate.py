"""`heedful evaluate`: score a model, or a file of translations, and print the scores for people or as JSON."""

import io
import json as json_format
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from heedful.cli.options import DATA, MODEL, OUTPUT, RUN, Compute, Device, Json, resolve_device
from heedful.cli.output import name_in_errors, refuse_overwriting
from heedful.cli.progress import ProgressReporter
from heedful.data.problems import excerpt
from heedful.errors import UserError
from heedful.models.model_info import builtin_folders, find_model_folder

if TYPE_CHECKING:  # the evaluation needs NumPy, which the help must not wait for
    from heedful.evaluation.evaluate import Evaluation, EvaluationSet, SentenceScores, System
    from heedful.evaluation.metrics import Interval, Score
    from heedful.evaluation.significance import Comparison

Tokenize = Literal["13a", "none", "intl", "zh", "ja-mecab", "ko-mecab", "char"]
SIGNIFICANT = 0.05
WIDTH = 110  # characters of a sentence that is shown
Values = dict[str, object]


def evaluate(
    source: Annotated[Path | None, Parameter(group=DATA)] = None,
    *,
    target: Annotated[list[Path] | None, Parameter(consume_multiple=True, group=DATA)] = None,
    hypotheses: Annotated[Path | None, Parameter(group=DATA)] = None,
    against: Annotated[Path | None, Parameter(group=DATA)] = None,
    model: Annotated[Path | None, Parameter(name=("--model", "-m"), group=MODEL)] = None,
    compute: Compute = "float32",
    beam: Annotated[int, Parameter(group=RUN)] = 5,
    device: Device = "auto",
    lowercase: Annotated[bool, Parameter(group=RUN)] = False,
    tokenize: Annotated[Tokenize, Parameter(group=RUN)] = "13a",
    worst: Annotated[int, Parameter(group=OUTPUT)] = 0,
    per_sentence: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    json: Json = False,
) -> None:
    """Score a model, or a file of translations, with BLEU and chrF.

    The scores are those of sacreBLEU, on detokenized text with its case, with
    signatures and 95 % intervals by bootstrap; for a model also the perplexity
    of the references.

    Parameters
    ----------
    source
        The text to translate, one sentence a line.
    target
        The reference translation of --source, line by line; several files are several references.
    hypotheses
        In place of a model: a file with translations, line by line.
    against
        A second model folder or file of translations: is the difference more than chance?
    model
        The run or model folder that translates --source, or a built-in model (en-fr, fr-en).
    beam
        Hypotheses that the search keeps; 1 is greedy search.
    lowercase
        Also print the scores of lower-cased text.
    tokenize
        How BLEU splits words: none for tokenized text; zh, ja-mecab, ko-mecab, char for text without spaces.
    worst
        Show this many of the sentences with the lowest chrF.
    per_sentence
        Write the scores of each sentence to this file, one JSON object a line.
    """
    from heedful.evaluation.evaluate import evaluate_texts, read_evaluation_set

    system = _system_to_score(model, hypotheses, source)
    _check_options(worst, per_sentence, [system, source, against, *(target or ())])
    if not target:
        raise UserError("nothing to compare with: pass --target, the reference translation of --source")
    name = resolve_device(device)
    texts = read_evaluation_set(source, target)
    systems = _systems([path for path in (system, against) if path is not None], texts, beam, compute, name)
    outputs = [each.hypotheses for each in systems]
    scores = evaluate_texts(
        outputs[0],
        texts.references,
        against=outputs[1] if len(outputs) > 1 else None,
        tokenize=tokenize,
        lowercase=lowercase,
    )
    report = EvaluationReport(texts, systems, scores, worst)
    if per_sentence is not None:
        report.write_sentences(per_sentence)
    print(json_format.dumps(report.values(), indent=1) if json else report.text())


def _system_to_score(model: Path | None, hypotheses: Path | None, source: Path | None) -> Path:
    """Return the model folder or the file of translations; raise a UserError if the options do not name exactly one."""
    if model is not None and hypotheses is not None:
        raise UserError(
            f"-m {model} and --hypotheses {hypotheses} both name a system to evaluate; "
            "to compare the two, pass one of them as --against"
        )
    if hypotheses is not None:
        if hypotheses.is_dir():
            raise UserError(f"--hypotheses {hypotheses}: a folder, where a file was expected; for a model use -m")
        return hypotheses
    if model is None:
        raise UserError(
            "nothing to evaluate. Name a model and its test set, -m MODEL --source FILE --target FILE, "
            "or a file of translations, --hypotheses FILE --target FILE"
        )
    if model.is_file():
        raise UserError(f"-m {model}: a file, where a model folder was expected; for translations use --hypotheses")
    if source is None:
        raise UserError(f"-m {model}: a model needs text to translate: pass --source")
    find_model_folder(model)
    return model


def _check_options(worst: int, per_sentence: Path | None, inputs: list[Path | None]) -> None:
    """Report options that cannot work before anything is translated."""
    if worst < 0:
        raise UserError(f"--worst {worst}: expected the number of sentences to show, from 0 upwards")
    if per_sentence is not None and (per_sentence.is_dir() or not per_sentence.absolute().parent.is_dir()):
        problem = "a folder" if per_sentence.is_dir() else f"there is no folder {per_sentence.parent}"
        raise UserError(f"--per-sentence {per_sentence}: {problem}; name a file in an existing folder")
    refuse_overwriting(per_sentence, *inputs, option="--per-sentence")


def _systems(paths: list[Path], texts: "EvaluationSet", beam: int, compute: Compute, device: str) -> "list[System]":
    from heedful.evaluation.evaluate import system_from_file, system_from_model

    # Files first: a problem with one is reported before a model has translated for an hour.
    files = {path: system_from_file(path, texts) for path in paths if not _is_model(path)}
    with ProgressReporter(unit="sentences") as progress:

        def on_progress(activity: str, n_done: int) -> None:
            progress.update(activity, n_done, n_done / max(1, len(texts)))

        return [
            files.get(path)
            or system_from_model(path, texts, beam=beam, compute=compute, device=device, on_progress=on_progress)
            for path in paths
        ]


def _is_model(path: Path) -> bool:
    if path.exists():
        return path.is_dir()
    if str(path) in (builtin := builtin_folders()):
        return True
    names = f", or name a built-in model: {', '.join(builtin)}" if builtin else ""
    raise UserError(f"{path}: no such file or folder; name a file of translations, or a model folder{names}")


@dataclass(frozen=True)
class EvaluationReport:
    """The scores of one system, perhaps compared with a second."""

    texts: "EvaluationSet"
    systems: "list[System]"
    evaluation: "Evaluation"
    n_worst: int

    def values(self) -> Values:
        """Return plain values for JSON; the keys are stable."""
        scores = (self.evaluation.scores, self.evaluation.other_scores)
        return {
            "version": 1,
            "sentences": len(self.texts),
            "references": len(self.texts.references),
            "systems": [_system_values(system, some) for system, some in zip(self.systems, scores, strict=False)],
            "comparisons": [
                _comparison_values(comparison, score)
                for comparison, score in zip(self.evaluation.comparisons, scores[1], strict=True)
            ],
            "worst": [self._sentence(i) for i in self.evaluation.sentences.worst(self.n_worst)],
            "notes": self._notes(),
        }

    def text(self) -> str:
        """Return a few lines for a person; characters that standard output cannot encode are escaped."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return "\n".join(self._lines())

    def write_sentences(self, path: Path) -> None:
        """Write one JSON object a line, in the order of the test set."""
        try:
            with name_in_errors(path), path.open("w", encoding="utf-8", newline="\n") as file:
                for i in range(len(self.texts)):
                    file.write(json_format.dumps(self._sentence(i), ensure_ascii=False) + "\n")
        except PermissionError:
            raise UserError(f"--per-sentence {path}: not writable for this user; name another file") from None

    def _sentence(self, i: int) -> Values:
        first = self.systems[0]
        values: Values = {"line": i + 1}
        if self.texts.sources is not None:
            values["source"] = self.texts.sources[i]
        values["references"] = [lines[i] for lines in self.texts.references]
        values |= _sentence_values(first, self.evaluation.sentences, i)
        if self.evaluation.other_sentences is not None:
            values["against"] = _sentence_values(self.systems[1], self.evaluation.other_sentences, i)
        return values

    def _lines(self) -> Iterator[str]:
        scores = (self.evaluation.scores, self.evaluation.other_scores)
        sets = self.texts.references
        up_to = "up to " * any(not line.strip() for lines in sets for line in lines)  # an empty line is no reference
        references = f", {up_to}{len(sets)} references each" * (len(sets) > 1)
        for system, some in zip(self.systems, scores, strict=False):
            yield f"{system.name}: {len(self.texts):,} sentences{references}"
            yield from _score_lines(some)
            yield from _perplexity_lines(system)
        yield from self._comparison_lines()
        for note in self._notes():
            yield f"note: {note}"
        yield from self._worst_lines()

    def _notes(self) -> list[str]:
        of_systems = [f"{system.name}: {note}" for system in self.systems for note in system.notes]
        return [*self.evaluation.notes, *of_systems]

    def _comparison_lines(self) -> Iterator[str]:
        if not self.evaluation.comparisons:
            return
        first, other = (system.name for system in self.systems)
        yield f"{first} against {other}"
        for comparison, score in zip(self.evaluation.comparisons, self.evaluation.scores, strict=True):
            low, high = comparison.interval.low, comparison.interval.high
            numbers = f"{comparison.difference:+6.2f}  [{low:+.2f}, {high:+.2f}]  p = {comparison.p_value:.4f}"
            yield f"  {_name(score):<18}{numbers}  {_verdict(comparison)}"

    def _worst_lines(self) -> Iterator[str]:
        for i in self.evaluation.sentences.worst(self.n_worst):
            chrf, bleu = self.evaluation.sentences.chrf[i], self.evaluation.sentences.bleu[i]
            yield f"line {i + 1:,}: chrF2 {chrf:.1f}, BLEU {bleu:.1f}"
            if self.texts.sources is not None:
                yield f"  source      {excerpt(self.texts.sources[i], WIDTH)}"
            for lines in self.texts.references:
                yield f"  reference   {excerpt(lines[i], WIDTH)}"
            yield f"  translation {excerpt(self.systems[0].hypotheses[i], WIDTH)}"


def _score_lines(scores: "list[Score]") -> Iterator[str]:
    for score in scores:
        margin = "" if score.interval is None else f" ± {score.interval.margin:.2f}"
        yield f"  {_name(score):<18}{score.value:6.2f}{margin:<8}  {score.signature}"


def _perplexity_lines(system: "System") -> Iterator[str]:
    likelihood = system.likelihood
    if likelihood is not None and likelihood.n_scored:
        which = f"{likelihood.n_scored:,} of the references" if likelihood.left_out else "the references"
        yield (
            f"  {'perplexity':<18}{likelihood.perplexity:6.2f}{'':8}  of {which}, per token "
            f"({likelihood.nats_per_sentence:.2f} nats per sentence, {sum(likelihood.n_tokens):,} tokens)"
        )


def _is_lower(score: "Score") -> bool:
    return "case:lc" in score.signature.split("|")


def _name(score: "Score") -> str:
    return f"{score.name} lower-cased" if _is_lower(score) else score.name


def _verdict(comparison: "Comparison") -> str:
    if comparison.p_value >= SIGNIFICANT:
        return "no more than chance"
    return "better" if comparison.difference > 0 else "worse"


def _system_values(system: "System", scores: "list[Score]") -> Values:
    values: Values = {"name": system.name, "scores": [_score_values(score) for score in scores]}
    likelihood = system.likelihood
    if likelihood is not None:
        if likelihood.n_scored:
            values["perplexity"] = likelihood.perplexity
            values["nats_per_token"] = likelihood.loss
            values["nats_per_sentence"] = likelihood.nats_per_sentence
        values["tokens"] = sum(likelihood.n_tokens)
        values["left_out"] = [number + 1 for number in likelihood.left_out]
    return values


def _score_values(score: "Score") -> Values:
    values: Values = {"name": score.name, "lowercase": _is_lower(score), "value": score.value}
    interval = {} if score.interval is None else _interval_values(score.interval)
    return {**values, **interval, "signature": score.signature}


def _interval_values(interval: "Interval") -> Values:
    return {"low": interval.low, "high": interval.high, "margin": interval.margin, "mean": interval.mean}


def _comparison_values(comparison: "Comparison", score: "Score") -> Values:
    values: Values = {"name": comparison.name, "lowercase": _is_lower(score), "difference": comparison.difference}
    return {**values, **_interval_values(comparison.interval), "p_value": comparison.p_value}


def _sentence_values(system: "System", scores: "SentenceScores", i: int) -> Values:
    values: Values = {"hypothesis": system.hypotheses[i], "bleu": scores.bleu[i], "chrf": scores.chrf[i]}
    if system.likelihood is not None and i not in system.likelihood.left_out:
        values["reference_log_prob"] = system.likelihood.log_probs[i]
        values["reference_tokens"] = system.likelihood.n_tokens[i]
    return values
