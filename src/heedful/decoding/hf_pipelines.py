"""`heedful.pipeline(task, model=…)`: the pipelines of Hugging Face's Transformers 4, with their options and results.

Programs that were written for them keep working, also for the tasks that Transformers 5 has removed. Unknown options
are refused.
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
    from heedful.decoding.fill_mask import FillMask, MaskCandidate

SAMPLING = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "seed": "seed"}
STOPS = {True: "patience", False: "estimated", "never": "proven"}  # of early_stopping
# Accepted without effect: batches are made by length, padding is never read, and texts that are too long are always
# split, reduced or cut.
UNUSED = ("batch_size", "truncation", "padding", "clean_up_tokenization_spaces", "pad_token_id")


def check_options(options: Mapping[str, Any], known: Iterable[str] = ()) -> None:
    """Refuse options that are neither in `known` nor accepted without effect."""
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
    """Turn options of Hugging Face's generate into fields of SearchSettings.

    `beam` and `early_stopping` are the defaults of the pipeline, `lengths` has further names of options for lengths,
    over which `max_new_tokens` and `min_new_tokens` have priority, and `also` has other options of the pipeline.
    """
    options = {name: value for name, value in options.items() if value is not None}
    names = {**(lengths or {}), **HUGGING_FACE_NAMES}
    check_options(options, [*names, "do_sample", "early_stopping", *SAMPLING, *also])
    settings = {ours: options[theirs] for theirs, ours in names.items() if theirs in options}
    sampling = {ours: options[theirs] for theirs, ours in SAMPLING.items() if theirs in options}
    if options.get("do_sample", False):
        if options.get("num_beams", 1) > 1:
            raise UserError("pipeline: num_beams > 1 with do_sample: a beam cannot be sampled; pass one of them")
        return {**settings, "sampling": {"top_k": 50, **sampling}}  # 50 is Hugging Face's default
    if sampling:  # Hugging Face's pipelines ignore them, too
        warn(f"{', '.join(sampling)}: has no effect without do_sample=True")
    stop = options.get("early_stopping", early_stopping)
    if stop is not None and settings.get("beam", beam) > 1:
        settings["stop"] = _stop(stop)
    return settings


def _stop(early_stopping: object) -> str:
    if isinstance(early_stopping, (bool, str)) and early_stopping in STOPS:
        return STOPS[early_stopping]
    raise UserError(f"early_stopping = {early_stopping!r}: must be True, False or 'never'")


LENGTHS = {"max_length": "max_len", "min_length": "min_len"}  # of the target

Answer = list[dict[str, str]]


class TranslationPipeline:
    """pipe("A dog.") and pipe(["A dog."]) -> [{"translation_text": "Ein Hund."}]."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def __call__(self, texts: str | Iterable[str], **options: Any) -> Answer | list[Answer]:
        """Return a dict for each text; with `num_return_sequences` above 1, a list of dicts for each.

        The options are those of Hugging Face's generate; the defaults are heedful's.
        """
        settings = search_options(options, beam=SearchSettings.beam, lengths=LENGTHS)
        many = [texts] if isinstance(texts, str) else list(texts)
        answers = [_dicts(best) for best in self.translator.search(many, **settings)]
        if isinstance(texts, str):
            return answers[0]
        return answers if settings.get("n_best", 1) > 1 else [best[0] for best in answers]


class SummarizationPipeline:
    """pipe("A long story.") and pipe(["A long story."]) -> [{"summary_text": "A story."}]."""

    def __init__(self, translator: Translator) -> None:
        self.inner = TranslationPipeline(translator)

    def __call__(self, texts: str | Iterable[str], **options: Any) -> Answer | list[Answer]:
        """Summarize; options as in translation. A text that is too long is reduced to its most important sentences."""
        renamed: Answer | list[Answer] = _renamed(self.inner(texts, **options))
        return renamed


def _dicts(best: list[Translation]) -> Answer:
    return [{"translation_text": translation.text} for translation in best]


def _renamed(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_renamed(each) for each in answer]
    return {"summary_text": answer["translation_text"]}


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
        """Continue prompts. `max_length` counts the prompt, `max_new_tokens` does not; `seed` is for `do_sample`."""
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

LEGACY = ""  # the default of top_k in Transformers 4: a text then has one dict, not a list


class FillMaskPipeline:
    """pipe("A [MASK] runs.") -> [{"score", "token", "token_str", "sequence"}, …]; a list for each of several masks.

    As in Hugging Face's, the sequences of several masks contain special tokens and the other masks.
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

    def _answer(self, candidate: "MaskCandidate", *, several: bool) -> dict[str, str | float | int]:
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
        """Classify texts; they are always cut to the model's length.

        `top_k=None` returns all labels, the most probable first. The older `return_all_scores` returns them in the
        model's order, in a list for each text, even for a single text.
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
                f"max_length = {max_length}: texts are always cut to the {longest} tokens that the model "
                "takes; leave it out"
            )


class ImageClassificationPipeline:
    """pipe("dog.png") -> [{"score", "label"}, …], the most probable first; a list of such lists for a list.

    An image is the name of a file, or an image of Pillow.
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
    """Return a text, or the two texts of a pair."""
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
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
TRANSLATION = re.compile("translation_([A-Za-z-]+)_to_([A-Za-z-]+)")


@dataclass(frozen=True)
class RunOptions:
    """How to load and run the model of a pipeline."""

    task: str
    device: str
    engine: str
    compute: str
    prefix: str | None = None  # text before each input; None: that of the model's settings

    def only_torch(self, task: str) -> None:
        """Refuse options that only translating and generating models have."""
        self.no_prefix(task)
        if self.engine not in ("auto", "torch") or self.compute != "float32":
            raise UserError(
                f"pipeline({task!r}): runs in torch and float32, not engine={self.engine!r}, compute={self.compute!r}"
            )

    def no_prefix(self, task: str) -> None:
        if self.prefix is not None:
            raise UserError(f"pipeline({task!r}): prefix={self.prefix!r} is for encoder-decoder models")


def _translation(model: Any, options: RunOptions) -> Pipeline:
    return TranslationPipeline(_translator(model, options, long="split"))


def _summarization(model: Any, options: RunOptions) -> Pipeline:
    return SummarizationPipeline(_translator(model, options, long="extract", noun=SUMMARIES))


def _translator(model: Any, options: RunOptions, *, long: Long, noun: OutputNoun = TRANSLATIONS) -> Translator:
    if isinstance(model, Translator):
        if options.prefix is not None:
            raise UserError("pipeline: this Translator is already loaded; pass prefix= to Translator.load")
        return model
    prefix = _prefix_for(model, options.task) if options.prefix is None else options.prefix
    translator = Translator.load(
        model, engine=options.engine, compute=options.compute, device=options.device, long=long, prefix=prefix
    )
    translator.output_noun = noun._replace(option="max_length")  # Hugging Face's name for it
    return translator


def _prefix_for(model: str | Path, task: str) -> str:
    """Return the prefix of a converted model for a task, which Hugging Face's pipelines use as well."""
    known = read_prefixes(find_model_folder(model))
    prefix = known.get(task, known.get(ANY_TASK))
    if known and prefix is None:
        warn(
            f"pipeline({task!r}): this model needs a prefix before each text, and its settings have none for this "
            f"task, only for {', '.join(known)}; pass prefix='…'"
        )
    return prefix or ""


def _text_generation(model: Any, options: RunOptions) -> Pipeline:
    options.no_prefix("text-generation")
    if isinstance(model, Generator):
        return GenerationPipeline(model)
    return GenerationPipeline(
        Generator.load(model, engine=options.engine, compute=options.compute, device=options.device)
    )


def _fill_mask(model: Any, options: RunOptions) -> Pipeline:
    from heedful.decoding.fill_mask import FillMask

    options.only_torch("fill-mask")
    return FillMaskPipeline(model if isinstance(model, FillMask) else FillMask.load(model, device=options.device))


def _text_classification(model: Any, options: RunOptions) -> Pipeline:
    from heedful.decoding.classifier import Classifier

    options.only_torch("text-classification")
    loaded = model if isinstance(model, Classifier) else Classifier.load(model, device=options.device)
    return TextClassificationPipeline(loaded)


def _image_classification(model: Any, options: RunOptions) -> Pipeline:
    from heedful.decoding.classifier import Classifier

    options.only_torch("image-classification")
    loaded = model if isinstance(model, Classifier) else Classifier.load(model, device=options.device)
    return ImageClassificationPipeline(loaded)


# task -> the function that makes its pipeline from a model (a path, or a loaded object)
TASKS: dict[str, Callable[[Any, RunOptions], Pipeline]] = {
    "translation": _translation,
    "summarization": _summarization,
    "text-generation": _text_generation,
    "fill-mask": _fill_mask,
    "text-classification": _text_classification,
    "sentiment-analysis": _text_classification,  # its older name
    "image-classification": _image_classification,
}

# task -> the arguments of `heedful train` that make such a model
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
    """Make a function for one task: `pipeline("translation", model="runs/en-de")("A dog runs.")`.

    Without a model, "translation" and "translation_en_to_fr" use a built-in model. `device` is "cpu", "cuda:1" or, as
    in Hugging Face's, a number: -1 for the CPU, else that of a GPU. `prefix` is put before each text, such as
    "summarize: " for T5; by default it is that of the model's settings for the task.
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
    _refuse_hub_name(model)
    if isinstance(device, int):
        device = "cpu" if device < 0 else f"cuda:{device}"
    return TASKS[name](model, RunOptions(task, device, engine, compute, prefix))


def _refuse_hub_name(model: object) -> None:
    """Refuse the name of a model on the Hugging Face Hub, and say how to get the model."""
    if isinstance(model, str) and HUB_NAME.fullmatch(model) and not Path(model).parent.exists():
        folder = model.split("/")[1]
        raise UserError(
            f"pipeline: there is no folder {model}. If it is the name of a model on the Hugging Face Hub, download and "
            f"convert it first: hf download {model} --local-dir {folder}; heedful convert {folder} models/{folder} "
            f"--format heedful; then pass model='models/{folder}'"
        )
