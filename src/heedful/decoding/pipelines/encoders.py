"""Pipelines of encoders, called and answering as those of Hugging Face's Transformers 4: hidden words and labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.decoding.encoders.classify import Classifier, Labelled
from heedful.decoding.encoders.fill import Candidate, Filler
from heedful.decoding.pipelines.options import check_options
from heedful.errors import UserError

Answer = list[dict[str, str | float]]
Filled = list[dict[str, str | float | int]]

LEGACY = ""  # what Transformers 4 takes for "top_k was not given": then a text has one dict, not a list of them


class FillMaskPipeline:
    """pipe("A [MASK] runs.") -> [{"score", "token", "token_str", "sequence"}, …]; a list for each of several masks."""

    def __init__(self, filler: Filler) -> None:
        self.filler = filler

    def __call__(
        self,
        inputs: str | list[str],
        *,
        top_k: int = 5,
        targets: str | Sequence[str] | None = None,
        **unused: Any,
    ) -> Filled | list[Filled] | list[Filled | list[Filled]]:
        check_options(unused, ("top_k", "targets"))
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        words = [targets] if isinstance(targets, str) else targets
        found = self.filler.fill_batch(texts, top_k=top_k, targets=words)
        answers: list[Filled | list[Filled]] = []
        for places in found:
            dicts = [[_candidate(candidate) for candidate in place] for place in places]
            answers.append(dicts[0] if len(dicts) == 1 else dicts)
        return answers[0] if len(answers) == 1 else answers


class TextClassificationPipeline:
    """pipe("Good!") -> [{"label", "score"}]; pipe([…]) -> one dict for each; with `top_k` a list of dicts for each."""

    def __init__(self, classifier: Classifier) -> None:
        if classifier.takes_images:
            raise UserError("pipeline('text-classification'): this model takes images: 'image-classification'")
        self.classifier = classifier

    def __call__(
        self,
        inputs: str | list[str],
        *,
        top_k: int | str | None = LEGACY,
        function_to_apply: str | None = None,
        return_all_scores: bool | None = None,
        max_length: int | None = None,
        **unused: Any,
    ) -> Answer | list[Answer]:
        """A text is cut to the tokens that the model takes, with `truncation` or without. `return_all_scores` is the
        older name of `top_k=None`.
        """
        check_options(unused, ("top_k", "function_to_apply", "return_all_scores", "max_length"))
        self._check_length(max_length)
        top_k = None if return_all_scores else top_k
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        found = self.classifier.classify(texts, apply=function_to_apply)
        if top_k == LEGACY:
            return [_label(labels[0]) for labels in found]
        answers = [[_label(label) for label in labels[: _count(top_k, len(labels))]] for labels in found]
        return answers[0] if isinstance(inputs, str) else answers

    def _check_length(self, max_length: int | None) -> None:
        longest = getattr(self.classifier.model.config, "max_len", 0)
        if max_length is not None and max_length < longest:
            raise UserError(
                f"max_length = {max_length}: a text is cut to the {longest} tokens that the model takes, not before; "
                "leave it out"
            )


class ImageClassificationPipeline:
    """pipe("dog.png") -> [{"score", "label"}, …], the likeliest first; a list of those for a list of files."""

    def __init__(self, classifier: Classifier) -> None:
        if not classifier.takes_images:
            raise UserError("pipeline('image-classification'): this model takes text: 'text-classification'")
        self.classifier = classifier

    def __call__(
        self,
        inputs: str | Path | Sequence[str | Path],
        *,
        top_k: int | None = 5,
        function_to_apply: str | None = None,
        **unused: Any,
    ) -> Answer | list[Answer]:
        check_options(unused, ("top_k", "function_to_apply"))
        one = isinstance(inputs, (str, Path))
        files: list[str | Path] = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
        found = self.classifier.classify(files, apply=function_to_apply)
        answers = [[_label(label) for label in labels[: _count(top_k, len(labels))]] for labels in found]
        return answers[0] if one else answers


def _count(top_k: int | str | None, n_labels: int) -> int:
    if top_k is None:
        return n_labels
    if not isinstance(top_k, int) or top_k < 1:
        raise UserError(f"top_k = {top_k!r}: must be at least 1, or None for all labels")
    return top_k


def _label(labelled: Labelled) -> dict[str, str | float]:
    return {"label": labelled.label, "score": labelled.score}


def _candidate(candidate: Candidate) -> dict[str, str | float | int]:
    return {
        "score": candidate.score,
        "token": candidate.token,
        "token_str": candidate.token_text,
        "sequence": candidate.text,
    }
