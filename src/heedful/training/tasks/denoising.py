"""A damaged text made whole again: how encoder-decoders learn from running text (T5's spans, BART's denoising)."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from heedful.data.batch_sampler import plan_batches
from heedful.data.collate import Batch
from heedful.data.datasets import DenoisingDataset, DocumentChunks, Noise
from heedful.data.noising import Noised, corrupt_spans, infill, permute_sentences
from heedful.data.seeding import IntArray
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.models.model_io import Model
from heedful.text import MASK_PIECE, Tokenizer
from heedful.text.special_ids import SpecialIds
from heedful.training.objectives import EncoderDecoder, make_objective, pair_loss
from heedful.training.settings import NoiseSettings, Settings
from heedful.training.tasks.base import PreparedTask, Say, Task, build
from heedful.training.tasks.text_data import Texts, about_texts, mask_id_of, pieces_of, prepare_texts, reopen_texts
from heedful.training.tasks.translation import config_for
from heedful.training.validation import (
    Validation,
    ValidationSample,
    check_plan,
    evaluation_mode,
    mean_loss,
    perplexity_of,
)

SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))  # as T5 writes them
SPAN_RATE, INFILL_RATE = 0.15, 0.3  # of T5, of BART
N_SAMPLES = 3


MakeNoise = Callable[[Tokenizer, NoiseSettings], Noise]


def lesson(texts: Texts, settings: Settings, *, make: MakeNoise) -> PreparedTask:
    config = config_for(texts.tokenizers, settings)
    noise = opened(make(texts.tokenizer, settings.noise), config.special_ids)
    longest = settings.data.max_len - 1 - config.special_ids.n_forced

    def dataset(stretches: DocumentChunks, pin_memory: bool = False) -> DenoisingDataset:
        return DenoisingDataset(stretches, noise, special_ids=config.special_ids, pin_memory=pin_memory)

    return PreparedTask(
        tokenizers=texts.tokenizers,
        make_dataset=lambda pin: dataset(DocumentChunks(texts.train, max_len=longest), pin),
        make_model=partial(build, config, settings),
        objective=make_objective(
            settings.objective,
            label_smoothing=settings.loss.label_smoothing,
            r_drop=settings.loss.r_drop,
            family=settings.family,
        ),
        make_validator=lambda say: RestoringValidator(
            dataset(DocumentChunks([texts.valid], max_len=longest)), texts.tokenizer, settings, say
        ),
        about=about_texts(
            texts,
            what="model that restores damaged texts",
            output="texts that it writes",
            tag="text2text-generation",
            command="heedful train RUN --init-from {run} --source INPUT --target OUTPUT",
        ),
    )


def spans(tokenizer: Tokenizer, settings: NoiseSettings) -> Noise:
    """T5: each hidden span becomes a sentinel, and the target says what stood for each."""
    rate, sentinels, special_ids = settings.rate or SPAN_RATE, sentinel_ids(tokenizer), tokenizer.special_ids

    def noise(ids: IntArray, random: np.random.Generator) -> Noised:
        return corrupt_spans(
            ids, random, special_ids=special_ids, sentinels=sentinels, rate=rate, mean_span=settings.mean_span
        )

    return noise


def denoising(tokenizer: Tokenizer, settings: NoiseSettings) -> Noise:
    """BART: sentences in another order, spans behind one mask each; the target is the whole text."""
    mask_id, ends, special_ids = mask_id_of(tokenizer), sentence_ends(tokenizer), tokenizer.special_ids

    def noise(ids: IntArray, random: np.random.Generator) -> Noised:
        shuffled = permute_sentences(ids, random, ends=ends[ids]) if len(ids) else Noised(ids, ids)
        hidden = infill(
            shuffled.input,
            random,
            special_ids=special_ids,
            mask_id=mask_id,
            rate=settings.rate or INFILL_RATE,
            mean_span=settings.mean_span,
        )
        return Noised(hidden.input, np.asarray(ids).copy())

    return noise


def sentinel_ids(tokenizer: Tokenizer) -> list[int]:
    known = {piece: number for number, piece in enumerate(pieces_of(tokenizer))}
    found = [known[piece] for piece in SENTINELS if piece in known]
    if not found:
        raise UserError(f"the tokenizer has no sentinels ({SENTINELS[0]}, …), which T5's spans need: learn a new one")
    return found


def sentence_ends(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """By id, whether a piece ends a sentence."""
    return np.array([piece.rstrip("▁").endswith((".", "!", "?", "。", "！", "？")) for piece in pieces_of(tokenizer)])


def opened(noise: Noise, special_ids: SpecialIds) -> Noise:
    """The same noise; a model whose texts begin with a mark (BART's <s>) gets it before both sides."""
    if not special_ids.source_bos:
        return noise

    def with_mark(ids: IntArray, random: np.random.Generator) -> Noised:
        return Noised(
            *(np.asarray(special_ids.with_source_bos(side.tolist()), np.int64) for side in noise(ids, random))
        )

    return with_mark


class RestoringValidator:
    """The held-out text, damaged in the same way every time."""

    def __init__(self, dataset: DenoisingDataset, tokenizer: Tokenizer, settings: Settings, say: Say) -> None:
        self.tokenizer, self.n_texts = tokenizer, len(dataset.texts)
        self.batches = _fixed_batches(dataset, settings, say)

    def __call__(self, model: Model) -> Validation:
        assert isinstance(model, EncoderDecoder)
        with evaluation_mode(model) as device:
            loss = mean_loss(self.batches, partial(pair_loss, model), device)
            samples = tuple(self._restore(model, batch) for batch in self.batches[:N_SAMPLES])
        score = Score("loss per token", loss, "")
        metrics = {"perplexity": perplexity_of(loss)}
        return Validation(loss=loss, metrics=metrics, scores=(score,), n_scored=self.n_texts, samples=samples)

    def _restore(self, model: EncoderDecoder, batch: Batch) -> ValidationSample:
        special_ids = model.config.special_ids
        source = batch.source[0, batch.source_mask[0]].tolist()[special_ids.n_forced : -1]
        wanted = batch.target_out[0, batch.target_mask[0]].tolist()[special_ids.n_forced : -1]
        found = TorchEngine(model).search([Request(source)], SearchSettings(beam=1))[0][0].ids
        shown = [" ".join(self.tokenizer.pieces(ids)) for ids in (source, wanted, list(found))]
        return ValidationSample(*shown)


def _fixed_batches(dataset: DenoisingDataset, settings: Settings, say: Say) -> Sequence[Batch]:
    data = settings.data
    plan = plan_batches(dataset.source_lengths, dataset.target_lengths, batch_tokens=data.batch_tokens, seed=0, epoch=0)
    check_plan(
        plan, len(dataset.texts), "stretches of text", max_len=data.max_len, batch_tokens=data.batch_tokens, say=say
    )
    return [dataset.batch(numbers, np.arange(len(numbers)), seed=step) for step, numbers in enumerate(plan)]


SPANS: Task[Texts] = Task(
    families=("t5", "bart"),
    content="text",
    metrics=("loss", "perplexity"),
    recipe=lambda family, files, data: family,
    prepare=lambda given: prepare_texts(given, symbols=SENTINELS),
    reopen=reopen_texts,
    lesson=partial(lesson, make=spans),
)
DENOISING: Task[Texts] = Task(
    families=("bart", "t5"),
    content="text",
    metrics=("loss", "perplexity"),
    recipe=lambda family, files, data: family,
    prepare=lambda given: prepare_texts(given, symbols=[MASK_PIECE]),
    reopen=reopen_texts,
    lesson=partial(lesson, make=denoising),
)
