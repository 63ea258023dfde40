"""An evaluation for the eye, for programs, and sentence by sentence."""

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.cli.text_output import named
from heedful.data.findings import shown
from heedful.errors import UserError
from heedful.evaluation.evaluate import Evaluation, SentenceScores
from heedful.evaluation.resampling import Comparison, Interval
from heedful.evaluation.scores import Score
from heedful.evaluation.systems import System, Texts

SIGNIFICANT = 0.05
WIDTH = 110  # of a sentence that is shown
Values = dict[str, object]


@dataclass(frozen=True)
class Report:
    texts: Texts
    systems: list[System]  # what was evaluated; then, perhaps, what it was compared with
    evaluation: Evaluation
    n_worst: int

    def values(self) -> Values:
        """Plain values for JSON; the keys are stable."""
        scores = (self.evaluation.scores, self.evaluation.other_scores)
        return {
            "version": 1,
            "sentences": len(self.texts),
            "references": len(self.texts.references),
            "systems": [_system_values(system, some) for system, some in zip(self.systems, scores, strict=False)],
            "comparisons": [
                _comparison_values(one, score)
                for one, score in zip(self.evaluation.comparisons, scores[1], strict=True)
            ],
            "worst": [self._sentence(i) for i in self.evaluation.sentences.worst(self.n_worst)],
            "notes": self._notes(),
        }

    def text(self) -> str:
        """A few lines for a person; what standard output cannot write is escaped."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return "\n".join(self._lines())

    def write_sentences(self, path: Path) -> None:
        """One JSON object a line, in the order of the test set."""
        try:
            with named(path), path.open("w", encoding="utf-8", newline="\n") as file:
                for i in range(len(self.texts)):
                    file.write(json.dumps(self._sentence(i), ensure_ascii=False) + "\n")
        except PermissionError:
            raise UserError(f"--per-sentence {path}: not writable for this user; name another place") from None

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
        several = f", {up_to}{len(sets)} references each" * (len(sets) > 1)
        for system, some in zip(self.systems, scores, strict=False):
            yield f"{system.name}: {len(self.texts):,} sentences{several}"
            yield from _score_lines(some)
            yield from _likelihood_lines(system)
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
        for one, score in zip(self.evaluation.comparisons, self.evaluation.scores, strict=True):
            low, high = one.interval.low, one.interval.high
            numbers = f"{one.difference:+6.2f}  [{low:+.2f}, {high:+.2f}]  p = {one.p_value:.4f}"
            yield f"  {_name(score):<18}{numbers}  {_verdict(one)}"

    def _worst_lines(self) -> Iterator[str]:
        for i in self.evaluation.sentences.worst(self.n_worst):
            chrf, bleu = self.evaluation.sentences.chrf[i], self.evaluation.sentences.bleu[i]
            yield f"line {i + 1:,}: chrF2 {chrf:.1f}, BLEU {bleu:.1f}"
            if self.texts.sources is not None:
                yield f"  source      {shown(self.texts.sources[i], WIDTH)}"
            for lines in self.texts.references:
                yield f"  reference   {shown(lines[i], WIDTH)}"
            yield f"  translation {shown(self.systems[0].hypotheses[i], WIDTH)}"


def _score_lines(scores: list[Score]) -> Iterator[str]:
    for score in scores:
        margin = "" if score.interval is None else f" ± {score.interval.margin:.2f}"
        yield f"  {_name(score):<18}{score.value:6.2f}{margin:<8}  {score.signature}"


def _likelihood_lines(system: System) -> Iterator[str]:
    likely = system.likelihood
    if likely is not None and likely.n_scored:
        which = f"{likely.n_scored:,} of the references" if likely.left_out else "the references"
        yield (
            f"  {'perplexity':<18}{likely.perplexity:6.2f}{'':8}  of {which}, per token "
            f"({likely.nats_per_sentence:.2f} nats per sentence, {sum(likely.n_tokens):,} tokens)"
        )


def _is_lower(score: Score) -> bool:
    return "case:lc" in score.signature.split("|")


def _name(score: Score) -> str:
    return f"{score.name} lower-cased" if _is_lower(score) else score.name


def _verdict(comparison: Comparison) -> str:
    if comparison.p_value >= SIGNIFICANT:
        return "no more than chance"
    return "better" if comparison.difference > 0 else "worse"


def _system_values(system: System, scores: list[Score]) -> Values:
    values: Values = {"name": system.name, "scores": [_score_values(score) for score in scores]}
    likely = system.likelihood
    if likely is not None:
        if likely.n_scored:
            values["perplexity"] = likely.perplexity
            values["nats_per_token"] = likely.loss
            values["nats_per_sentence"] = likely.nats_per_sentence
        values["tokens"] = sum(likely.n_tokens)
        values["left_out"] = [number + 1 for number in likely.left_out]
    return values


def _score_values(score: Score) -> Values:
    values: Values = {"name": score.name, "lowercase": _is_lower(score), "value": score.value}
    interval = {} if score.interval is None else _interval_values(score.interval)
    return {**values, **interval, "signature": score.signature}


def _interval_values(interval: Interval) -> Values:
    return {"low": interval.low, "high": interval.high, "margin": interval.margin, "mean": interval.mean}


def _comparison_values(comparison: Comparison, score: Score) -> Values:
    values: Values = {"name": comparison.name, "lowercase": _is_lower(score), "difference": comparison.difference}
    return {**values, **_interval_values(comparison.interval), "p_value": comparison.p_value}


def _sentence_values(system: System, scores: SentenceScores, i: int) -> Values:
    values: Values = {"hypothesis": system.hypotheses[i], "bleu": scores.bleu[i], "chrf": scores.chrf[i]}
    if system.likelihood is not None and i not in system.likelihood.left_out:
        values["reference_log_prob"] = system.likelihood.log_probs[i]
        values["reference_tokens"] = system.likelihood.n_tokens[i]
    return values
