"""Pipelines of encoders, called and answering as those of Hugging Face's Transformers 4: hidden words and labels."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from heedful.decoding.encoders.classify import Classifier, Labelled, Text
from heedful.decoding.encoders.fill import Candidate, Filler
from heedful.decoding.pipelines.options import check_options
from heedful.errors import UserError
from heedful.text.written import marked_text_of

if TYPE_CHECKING:
    from heedful.data.images import Picture

Answer = list[dict[str, str | float]]
Filled = list[dict[str, str | float | int]]

LEGACY = ""  # what Transformers 4 takes for "top_k was not given": then a text has one dict, not a list of them


class FillMaskPipeline:
    """pipe("A [MASK] runs.") -> [{"score", "token", "token_str", "sequence"}, …]; a list for each of several masks.

    As theirs do, the sequences of several masks hold the marks of the model and the masks that are left.
    """

    def __init__(self, filler: Filler) -> None:
        self.filler = filler

    def __call__(
        self,
        inputs: str | Iterable[str],
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
            dicts = [[self._answer(one, several=len(places) > 1) for one in place] for place in places]
            answers.append(dicts[0] if len(dicts) == 1 else dicts)
        return answers[0] if len(answers) == 1 else answers

    def _answer(self, candidate: Candidate, *, several: bool) -> dict[str, str | float | int]:
        pad_id = self.filler.model.config.marks.pad_id
        return {
            "score": candidate.score,
            "token": candidate.token,
            "token_str": candidate.token_text,
            "sequence": marked_text_of(self.filler.tokenizer, [id for id in candidate.ids if id != pad_id])
            if several
            else candidate.text,
        }


class TextClassificationPipeline:
    """pipe("Good!") -> [{"label", "score"}]; pipe([…]) -> one dict for each; with `top_k` a list of dicts for each.

    A text may be a pair: pipe({"text": "Who ran?", "text_pair": "A dog."}) -> {"label", "score"}.
    """

    def __init__(self, classifier: Classifier) -> None:
        if classifier.takes_images:
            raise UserError("pipeline('text-classification'): this model takes images: 'image-classification'")
        self.classifier = classifier

    def __call__(
        self,
        inputs: str | Mapping[str, str] | Iterable[str | Mapping[str, str]],
        *,
        top_k: int | str | None = LEGACY,
        function_to_apply: str | None = None,
        return_all_scores: bool | None = None,
        max_length: int | None = None,
        **unused: Any,
    ) -> dict[str, str | float] | Answer | list[Answer]:
        """A text is cut to the tokens that the model takes, with `truncation` or without. `top_k=None` gives all
        labels, the likeliest first; the older `return_all_scores` all of them in the model's order, in a list for each
        text, also for a single one.
        """
        check_options(unused, ("top_k", "function_to_apply", "return_all_scores", "max_length"))
        self._check_length(max_length)
        several = not isinstance(inputs, (str, Mapping)) and isinstance(inputs, Iterable)
        texts = [_text(one) for one in (inputs if several else [inputs])]
        found = self.classifier.classify(texts, apply=function_to_apply)
        if top_k != LEGACY:
            answers = [[_label(label) for label in labels[: _count(top_k, len(labels))]] for labels in found]
            return answers if several else answers[0]
        if return_all_scores:
            order = self.classifier.model.config.labels.index
            answers = [[_label(one) for one in sorted(labels, key=lambda one: order(one.label))] for labels in found]
            return answers if several or isinstance(inputs, str) else answers[0]
        best = [_label(labels[0]) for labels in found]
        return best if several or isinstance(inputs, str) else best[0]

    def _check_length(self, max_length: int | None) -> None:
        longest = getattr(self.classifier.model.config, "max_len", 0)
        if max_length is not None and max_length < longest:
            raise UserError(
                f"max_length = {max_length}: a text is cut to the {longest} tokens that the model takes, not before; "
                "leave it out"
            )


class ImageClassificationPipeline:
    """pipe("dog.png") -> [{"score", "label"}, …], the likeliest first; a list of those for a list. An image is the name
    of a file, or one of Pillow's.
    """

    def __init__(self, classifier: Classifier) -> None:
        if not classifier.takes_images:
            raise UserError("pipeline('image-classification'): this model takes text: 'text-classification'")
        self.classifier = classifier

    def __call__(
        self,
        inputs: "Picture | Iterable[Picture]",
        *,
        top_k: int | None = 5,
        function_to_apply: str | None = None,
        **unused: Any,
    ) -> Answer | list[Answer]:
        check_options(unused, ("top_k", "function_to_apply"))
        several = not isinstance(inputs, str) and isinstance(inputs, Iterable)
        pictures = list(cast("Iterable[Picture]", inputs if several else [inputs]))
        found = self.classifier.classify(pictures, apply=function_to_apply)
        answers = [[_label(label) for label in labels[: _count(top_k, len(labels))]] for labels in found]
        return answers if several else answers[0]


def _text(given: object) -> Text:
    """A text, or the two of a pair."""
    if isinstance(given, str):
        return given
    values = given if isinstance(given, Mapping) else {}
    text, second = values.get("text"), values.get("text_pair")
    if set(values) <= {"text", "text_pair"} and isinstance(text, str) and isinstance(second, (str, type(None))):
        return text if second is None else (text, second)
    raise UserError(
        f"pipeline('text-classification'): takes texts, and pairs as {{'text': …, 'text_pair': …}}, found "
        f"{str(given)[:60]!r}"
    )


def _count(top_k: int | str | None, n_labels: int) -> int:
    if top_k is None:
        return n_labels
    if not isinstance(top_k, int) or top_k < 1:
        raise UserError(f"top_k = {top_k!r}: must be at least 1, or None for all labels")
    return top_k


def _label(labelled: Labelled) -> dict[str, str | float]:
    return {"label": labelled.label, "score": labelled.score}
