"""`heedful.pipeline(TASK, model=…)`: called and answering as the pipelines of Hugging Face's Transformers 4, of which
version 5 took some away, so that programs written for them go on working.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import UserError, nearest
from heedful.models.builtin import DEFAULT, builtin_models

Pipeline = Callable[..., Any]
TRANSLATION = re.compile("translation_([A-Za-z-]+)_to_([A-Za-z-]+)")

# What callers of Hugging Face pass -> the field of SearchSettings.
OPTIONS = {
    "num_beams": "beam",
    "num_return_sequences": "n_best",
    "max_length": "max_len",
    "max_new_tokens": "max_len",
    "min_length": "min_len",
    "length_penalty": "length_penalty",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
}

Answer = list[dict[str, str]]


class TranslationPipeline:
    """pipe("A dog.") and pipe(["A dog."]) -> [{"translation_text": "Ein Hund."}]."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def __call__(
        self, texts: str | list[str], *, batch_size: int | None = None, **options: Any
    ) -> Answer | list[Answer]:
        """One dict for each text; a list of dicts for each where `num_return_sequences` is more than 1.

        `batch_size` is taken and not needed: batches are made by length and refilled as sentences end.
        """
        if batch_size is not None and batch_size < 1:
            raise UserError(f"batch_size = {batch_size}: must be at least 1")
        settings = {_field(name): value for name, value in options.items() if value is not None}
        found = [
            _dicts(best) for best in self.translator.search([texts] if isinstance(texts, str) else texts, **settings)
        ]
        if isinstance(texts, str):
            return found[0]
        return found if settings.get("n_best", 1) > 1 else [best[0] for best in found]


@dataclass(frozen=True)
class Running:
    """Where and how a model is to run."""

    device: str
    engine: str
    compute: str

    def only_torch(self, task: str) -> None:
        """Refuse what only a translation has."""
        if self.engine not in ("auto", "torch") or self.compute != "float32":
            raise UserError(
                f"pipeline({task!r}): runs in torch and float32, not engine={self.engine!r}, compute={self.compute!r}"
            )


def _translation(model: Any, running: Running) -> Pipeline:
    if isinstance(model, Translator):
        return TranslationPipeline(model)
    return TranslationPipeline(
        Translator.load(model, engine=running.engine, compute=running.compute, device=running.device)
    )


def _text_generation(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.generation_pipeline import GenerationPipeline
    from heedful.decoding.generator import Generator

    running.only_torch("text-generation")
    generator = model if isinstance(model, Generator) else Generator.load(model, device=running.device)
    return GenerationPipeline(generator)


def _fill_mask(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.encoder_pipelines import FillMaskPipeline
    from heedful.decoding.fill import Filler

    running.only_torch("fill-mask")
    return FillMaskPipeline(model if isinstance(model, Filler) else Filler.load(model, device=running.device))


def _text_classification(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.classify import Classifier
    from heedful.decoding.encoder_pipelines import TextClassificationPipeline

    running.only_torch("text-classification")
    loaded = model if isinstance(model, Classifier) else Classifier.load(model, device=running.device)
    return TextClassificationPipeline(loaded)


def _image_classification(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.classify import Classifier
    from heedful.decoding.encoder_pipelines import ImageClassificationPipeline

    running.only_torch("image-classification")
    loaded = model if isinstance(model, Classifier) else Classifier.load(model, device=running.device)
    return ImageClassificationPipeline(loaded)


class SummarizationPipeline:
    """pipe("A long story.") and pipe(["A long story."]) -> [{"summary_text": "A story."}]."""

    def __init__(self, translator: Translator) -> None:
        self.inner = TranslationPipeline(translator)

    def __call__(self, texts: str | list[str], **options: Any) -> Answer | list[Answer]:
        """Options as of a translation. A text that is longer than the model takes is reduced to what matters in it."""
        renamed: Answer | list[Answer] = _renamed(self.inner(texts, **options))
        return renamed


def _renamed(found: Any) -> Any:
    if isinstance(found, list):
        return [_renamed(each) for each in found]
    return {"summary_text": found["translation_text"]}


def _summarization(model: Any, running: Running) -> Pipeline:
    if isinstance(model, Translator):
        return SummarizationPipeline(model)
    return SummarizationPipeline(
        Translator.load(model, engine=running.engine, compute=running.compute, device=running.device, long="extract")
    )


# task -> what makes its pipeline from a model (a path, or the object that it is loaded into)
TASKS: dict[str, Callable[[Any, Running], Pipeline]] = {
    "translation": _translation,
    "summarization": _summarization,
    "text-generation": _text_generation,
    "fill-mask": _fill_mask,
    "text-classification": _text_classification,
    "sentiment-analysis": _text_classification,  # its older name
    "image-classification": _image_classification,
}


def pipeline(
    task: str,
    model: str | Path | object | None = None,
    *,
    device: str | int = "cpu",
    engine: str = "auto",
    compute: str = "float32",
) -> Pipeline:
    """A function that does one task: `pipeline("translation", model="runs/en-de")("A dog runs.")`.

    Without a model "translation" takes the one that comes with heedful, "translation_en_to_fr" that of these languages.
    `device` is "cpu", "cuda:1" or, as in Hugging Face's, a number: -1 for the CPU, else that of a GPU.
    """
    languages = TRANSLATION.fullmatch(task)
    name = "translation" if languages else task
    if name not in TASKS:
        raise UserError(
            f"pipeline: the task {task!r} is not offered{nearest(task, TASKS)}\nallowed: "
            f"{', '.join(map(repr, TASKS))}, or with languages as in 'translation_en_to_de'"
        )
    if model is None and name == "translation":
        model = builtin_models().get("-".join(languages.groups()) if languages else DEFAULT)
    if model is None:
        raise UserError(
            f"pipeline({task!r}): name a model, the folder of a run for example: model='runs/en-de'. "
            "`heedful demo` makes one in some minutes, `heedful train` one of your own text"
        )
    if isinstance(device, int):
        device = "cpu" if device < 0 else f"cuda:{device}"
    return TASKS[name](model, Running(device, engine, compute))


def _field(name: str) -> str:
    if name not in OPTIONS:
        allowed = ["batch_size", *OPTIONS]
        raise UserError(f"pipeline: unknown option {name!r}{nearest(name, allowed)}\nallowed: {', '.join(allowed)}")
    return OPTIONS[name]


def _dicts(best: list[Translation]) -> Answer:
    return [{"translation_text": translation.text} for translation in best]
