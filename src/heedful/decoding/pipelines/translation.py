"""Pipelines that write one text for another, called and answering as those of Hugging Face's Transformers 4."""

from collections.abc import Iterable
from typing import Any

from heedful.decoding.pipelines.options import search_options
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.writing.translation import Translation
from heedful.decoding.writing.translator import Translator

LENGTHS = {"max_length": "max_len", "min_length": "min_len"}  # of what is written

Answer = list[dict[str, str]]


class TranslationPipeline:
    """pipe("A dog.") and pipe(["A dog."]) -> [{"translation_text": "Ein Hund."}]."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def __call__(self, texts: str | Iterable[str], **options: Any) -> Answer | list[Answer]:
        """One dict for each text; a list of dicts for each where `num_return_sequences` is more than 1.

        Options as of Hugging Face's `generate`; a search that they say nothing of is heedful's own.
        """
        settings = search_options(options, beam=SearchSettings.beam, lengths=LENGTHS)
        many = [texts] if isinstance(texts, str) else list(texts)
        found = [_dicts(best) for best in self.translator.search(many, **settings)]
        if isinstance(texts, str):
            return found[0]
        return found if settings.get("n_best", 1) > 1 else [best[0] for best in found]


class SummarizationPipeline:
    """pipe("A long story.") and pipe(["A long story."]) -> [{"summary_text": "A story."}]."""

    def __init__(self, translator: Translator) -> None:
        self.inner = TranslationPipeline(translator)

    def __call__(self, texts: str | Iterable[str], **options: Any) -> Answer | list[Answer]:
        """Options as of a translation. A text that is longer than the model takes is reduced to what matters in it."""
        renamed: Answer | list[Answer] = _renamed(self.inner(texts, **options))
        return renamed


def _dicts(best: list[Translation]) -> Answer:
    return [{"translation_text": translation.text} for translation in best]


def _renamed(found: Any) -> Any:
    if isinstance(found, list):
        return [_renamed(each) for each in found]
    return {"summary_text": found["translation_text"]}
