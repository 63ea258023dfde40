"""What callers of Hugging Face's pipelines pass, in one place for all: what it means here, and what is refused.

Pipelines that write one text for another, called and answering as those of Hugging Face's Transformers 4.

`heedful.pipeline("text-generation", model=…)`, called and answering as in Hugging Face's Transformers 4.

Pipelines of encoders, called and answering as those of Hugging Face's Transformers 4: hidden words and labels.

`heedful.pipeline(TASK, model=…)`: called and answering as the pipelines of Hugging Face's Transformers 4, of which
version 5 took some away, so that programs written for them go on working.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from heedful.decoding.decoding_stats import SUMMARIES, TRANSLATIONS, OutputNoun
from heedful.decoding.generator import Generation, Generator
from heedful.decoding.search.settings import HUGGING_FACE_NAMES, SearchSettings
from heedful.decoding.segmentation import Long
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import UserError, did_you_mean, warn
from heedful.models.model_info import ANY_TASK, DEFAULT, builtin_models, find_model_folder, read_prefixes
from heedful.text.tokenizer import decode_with_specials

if TYPE_CHECKING:  # these import torch
    from heedful.data.images import Picture
    from heedful.decoding.classifier import Classifier, Labelled, Text
    from heedful.decoding.fill_mask import Candidate, FillMask

SAMPLING = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "seed": "seed"}
STOPS = {True: "patience", False: "estimated", "never": "proven"}  # of early_stopping
# Taken and not needed: batches are made by length, padding is no token, and what a model cannot take whole is always
# split, reduced or cut, as the pipeline's own docs say.
UNUSED = ("batch_size", "truncation", "padding", "clean_up_tokenization_spaces", "pad_token_id")


def check_options(options: Mapping[str, Any], known: Iterable[str] = ()) -> None:
    """Refuse an option that neither is known nor may be left unused."""
    allowed = [*UNUSED, *known]
    for name in options:
        if name not in allowed:
            raise UserError(
                f"pipeline: unknown option {name!r}{did_you_mean(name, allowed)}\nallowed: {', '.join(allowed)}"
            )
    batch_size = options.get("batch_size")
    if batch_size is not None and batch_size < 1:
        raise UserError(f"batch_size = {batch_size}: must be at least 1")


def search_options(
    options: Mapping[str, Any],
    *,
    beam: int,
    early_stopping: bool | None = None,
    lengths: Mapping[str, str] | None = None,
    also: Sequence[str] = (),
) -> dict[str, Any]:
    """The fields of SearchSettings. `beam` and `early_stopping` are what holds where a caller says nothing of them;
    `lengths` has further names, which count less than those of new tokens; `also` what else the pipeline takes.
    """
    options = {name: value for name, value in options.items() if value is not None}
    names = {**(lengths or {}), **HUGGING_FACE_NAMES}
    check_options(options, [*names, "do_sample", "early_stopping", *SAMPLING, *also])
    settings = {ours: options[theirs] for theirs, ours in names.items() if theirs in options}
    given = {ours: options[theirs] for theirs, ours in SAMPLING.items() if theirs in options}
    if options.get("do_sample", False):
        if options.get("num_beams", 1) > 1:
            raise UserError("pipeline: num_beams > 1 with do_sample: a beam is searched, not drawn; pass one of them")
        return {**settings, "sampling": {"top_k": 50, **given}}  # 50 is Hugging Face's default
    if given:  # theirs goes on without them as well
        warn(f"{', '.join(given)}: acts only with do_sample=True")
    stop = options.get("early_stopping", early_stopping)
    if stop is not None and settings.get("beam", beam) > 1:
        settings["stop"] = _stop(stop)
    return settings


def _stop(early_stopping: object) -> str:
    if isinstance(early_stopping, (bool, str)) and early_stopping in STOPS:
        return STOPS[early_stopping]
    raise UserError(f"early_stopping = {early_stopping!r}: must be True, False or 'never'")


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


GenerationAnswer = list[dict[str, str]]


class GenerationPipeline:
    """pipe("Once") -> [{"generated_text": "Once upon a time"}]; a list of prompts gives a list of such lists."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def __call__(
        self,
        prompts: str | Iterable[str],
        *,
        max_length: int | None = None,
        return_full_text: bool | None = None,
        **options: Any,
    ) -> GenerationAnswer | list[GenerationAnswer]:
        """`max_length` counts the prompt, `max_new_tokens` does not. With `do_sample`, `seed` says what is drawn."""
        settings = search_options(options, beam=1, early_stopping=False, also=("max_length", "return_full_text"))
        many = [prompts] if isinstance(prompts, str) else list(prompts)
        if max_length is not None and "max_len" not in settings:
            found = [self.generator.search(one, **settings, max_len=self._room(one, max_length)) for one in many]
        else:
            found = self.generator.search(many, **settings)
        answers = [_generation_dicts(best, whole=return_full_text is not False) for best in found]
        return answers[0] if isinstance(prompts, str) else answers

    def _room(self, prompt: str, max_length: int) -> int:
        n_prompt = len(self.generator.prompt_ids(prompt))
        room = max_length - n_prompt
        if room < 1:
            raise UserError(
                f"max_length = {max_length} leaves no room after a prompt of {n_prompt} tokens; "
                "raise it, or pass max_new_tokens"
            )
        return room


def _generation_dicts(best: Sequence[Generation], *, whole: bool) -> GenerationAnswer:
    return [{"generated_text": one.prompt + one.text if whole else one.text} for one in best]


LabelAnswer = list[dict[str, str | float]]
Filled = list[dict[str, str | float | int]]

LEGACY = ""  # what Transformers 4 takes for "top_k was not given": then a text has one dict, not a list of them


class FillMaskPipeline:
    """pipe("A [MASK] runs.") -> [{"score", "token", "token_str", "sequence"}, …]; a list for each of several masks.

    As theirs do, the sequences of several masks hold the marks of the model and the masks that are left.
    """

    def __init__(self, filler: "FillMask") -> None:
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

    def _answer(self, candidate: "Candidate", *, several: bool) -> dict[str, str | float | int]:
        pad_id = self.filler.model.config.special_ids.pad_id
        return {
            "score": candidate.score,
            "token": candidate.token,
            "token_str": candidate.token_text,
            "sequence": decode_with_specials(self.filler.tokenizer, [id for id in candidate.ids if id != pad_id])
            if several
            else candidate.text,
        }


class TextClassificationPipeline:
    """pipe("Good!") -> [{"label", "score"}]; pipe([…]) -> one dict for each; with `top_k` a list of dicts for each.

    A text may be a pair: pipe({"text": "Who ran?", "text_pair": "A dog."}) -> {"label", "score"}.
    """

    def __init__(self, classifier: "Classifier") -> None:
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
    ) -> dict[str, str | float] | LabelAnswer | list[LabelAnswer]:
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

    def __init__(self, classifier: "Classifier") -> None:
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
    ) -> LabelAnswer | list[LabelAnswer]:
        check_options(unused, ("top_k", "function_to_apply"))
        several = not isinstance(inputs, str) and isinstance(inputs, Iterable)
        pictures = list(cast("Iterable[Picture]", inputs if several else [inputs]))
        found = self.classifier.classify(pictures, apply=function_to_apply)
        answers = [[_label(label) for label in labels[: _count(top_k, len(labels))]] for labels in found]
        return answers if several else answers[0]


def _text(given: object) -> "Text":
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


def _label(labelled: "Labelled") -> dict[str, str | float]:
    return {"label": labelled.label, "score": labelled.score}


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
    return SummarizationPipeline(_translator(model, running, long="extract", noun=SUMMARIES))


def _translator(model: Any, running: Running, *, long: Long, noun: OutputNoun = TRANSLATIONS) -> Translator:
    if isinstance(model, Translator):
        if running.prefix is not None:
            raise UserError("pipeline: this Translator is loaded already; give prefix= to Translator.load")
        return model
    prefix = _told(model, running.task) if running.prefix is None else running.prefix
    translator = Translator.load(
        model, engine=running.engine, compute=running.compute, device=running.device, long=long, prefix=prefix
    )
    translator.output_noun = noun._replace(option="max_length")  # Hugging Face's name for it
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
    if isinstance(model, Generator):
        return GenerationPipeline(model)
    return GenerationPipeline(
        Generator.load(model, engine=running.engine, compute=running.compute, device=running.device)
    )


def _fill_mask(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.fill_mask import FillMask

    running.only_torch("fill-mask")
    return FillMaskPipeline(model if isinstance(model, FillMask) else FillMask.load(model, device=running.device))


def _text_classification(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.classifier import Classifier

    running.only_torch("text-classification")
    loaded = model if isinstance(model, Classifier) else Classifier.load(model, device=running.device)
    return TextClassificationPipeline(loaded)


def _image_classification(model: Any, running: Running) -> Pipeline:
    from heedful.decoding.classifier import Classifier

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
            f"pipeline: the task {task!r} is not offered{did_you_mean(task, TASKS)}\nallowed: "
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
