"""`heedful.pipeline(TASK, model=…)`: called and answering as the pipelines of Hugging Face's Transformers 4, of which
version 5 took some away, so that programs written for them go on working.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.decoding.pipelines.translation import SummarizationPipeline, TranslationPipeline
from heedful.decoding.writing.long_text import SUMMARIES, TRANSLATIONS, Long, Written
from heedful.decoding.writing.translator import Translator
from heedful.errors import UserError, nearest, warn
from heedful.models.builtin import DEFAULT, builtin_models
from heedful.models.find import ANY_TASK, find_model_folder, read_prefixes

Pipeline = Callable[..., Any]
TRANSLATION = re.compile("translation_([A-Za-z-]+)_to_([A-Za-z-]+)")


@dataclass(frozen=True)
class Running:
    """Where and how a model is to run."""

    task: str
    device: str
    engine: str
    compute: str
    prefix: str | None = None  # what a model that writes is told before each text; None: as its settings say

    def only_torch(self, task: str) -> None:
        """Refuse what only models that write have."""
        self.no_prefix(task)
        if self.engine not in ("auto", "torch") or self.compute != "float32":
            raise UserError(
                f"pipeline({task!r}): runs in torch and float32, not engine={self.engine!r}, compute={self.compute!r}"
            )

    def no_prefix(self, task: str) -> None:
        if self.prefix is not None:
            raise UserError(f"pipeline({task!r}): prefix={self.prefix!r} is for models that write one text for another")


def _translation(model: Any, running: Running) -> Pipeline:
    return TranslationPipeline(_translator(model, running, long="split"))


def _summarization(model: Any, running: Running) -> Pipeline:
    return SummarizationPipeline(_translator(model, running, long="extract", written=SUMMARIES))


def _translator(model: Any, running: Running, *, long: Long, written: Written = TRANSLATIONS) -> Translator:
    if isinstance(model, Translator):
        if running.prefix is not None:
            raise UserError("pipeline: this Translator is loaded already; give prefix= to Translator.load")
        return model
    prefix = _told(model, running.task) if running.prefix is None else running.prefix
    translator = Translator.load(
        model, engine=running.engine, compute=running.compute, device=running.device, long=long, prefix=prefix
    )
    translator.written = written._replace(option="max_length")  # Hugging Face's name for it
    return translator


def _told(model: str | Path, task: str) -> str:
    """What a converted model is told before a text of this task, as Hugging Face's own pipelines tell it."""
    known = read_prefixes(find_model_folder(model))
    prefix = known.get(task, known.get(ANY_TASK))
    if known and prefix is None:
        warn(
            f"pipeline({task!r}): this model is told what to do by words before each text. Its settings have none for "
            f"this task, only for {', '.join(known)}; pass prefix='…'"
        )
    return prefix or ""


def _text_generation(model: Any, running: Running) -> Pipeline:
    running.no_prefix("text-generation")
    from heedful.decoding.pipelines.generation import GenerationPipeline
    from heedful.decoding.writing.generator import Generator

    if isinstance(model, Generator):
        return GenerationPipeline(model)
    return GenerationPipeline(
        Generator.load(model, engine=running.engine, compute=running.compute, device=running.device)
    )


def _fill_mask(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.encoders.fill import Filler
    from heedful.decoding.pipelines.encoders import FillMaskPipeline

    running.only_torch("fill-mask")
    return FillMaskPipeline(model if isinstance(model, Filler) else Filler.load(model, device=running.device))


def _text_classification(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.encoders.classify import Classifier
    from heedful.decoding.pipelines.encoders import TextClassificationPipeline

    running.only_torch("text-classification")
    loaded = model if isinstance(model, Classifier) else Classifier.load(model, device=running.device)
    return TextClassificationPipeline(loaded)


def _image_classification(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.encoders.classify import Classifier
    from heedful.decoding.pipelines.encoders import ImageClassificationPipeline

    running.only_torch("image-classification")
    loaded = model if isinstance(model, Classifier) else Classifier.load(model, device=running.device)
    return ImageClassificationPipeline(loaded)


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

# task -> what `heedful train` is given for a model of that kind
TRAINED_BY = {
    "translation": "RUN --source FILE --target FILE",
    "summarization": "RUN --family bart --source FILE --target FILE",
    "text-generation": "RUN --family gpt --text FILE",
    "fill-mask": "RUN --family bert --text FILE",
    "text-classification": "RUN --family bert --labels FILE",
    "sentiment-analysis": "RUN --family bert --labels FILE",
    "image-classification": "RUN --family vit --images FOLDER",
}


def pipeline(
    task: str,
    model: str | Path | object | None = None,
    *,
    device: str | int = "cpu",
    engine: str = "auto",
    compute: str = "float32",
    prefix: str | None = None,
) -> Pipeline:
    """A function that does one task: `pipeline("translation", model="runs/en-de")("A dog runs.")`.

    Without a model "translation" takes the one that comes with heedful, "translation_en_to_fr" that of these languages.
    `device` is "cpu", "cuda:1" or, as in Hugging Face's, a number: -1 for the CPU, else that of a GPU. `prefix` stands
    before each text: T5 is told "summarize: ". By default it is what a converted model's own settings say for the task.
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
            f"pipeline({task!r}): name a model, the folder of a run for example: model='runs/mine'. "
            f"`heedful train {TRAINED_BY[name]}` makes one"
        )
    if isinstance(device, int):
        device = "cpu" if device < 0 else f"cuda:{device}"
    return TASKS[name](model, Running(task, device, engine, compute, prefix))
