"""Denoising: an encoder-decoder restores damaged running text (T5's spans, BART's masks and shuffled sentences)."""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor

from heedful.data.collate import Batch
from heedful.data.datasets import DenoisingDataset, DocumentChunks, Noise
from heedful.data.noising import Noised, corrupt_spans, infill, permute_sentences
from heedful.data.seeding import IntArray
from heedful.errors import UserError
from heedful.evaluation.metrics import Score
from heedful.text import MASK_PIECE, SpecialIds, Tokenizer
from heedful.training.events import Notify
from heedful.training.objectives import EncoderDecoder, make_objective, pair_loss
from heedful.training.settings import NoiseSettings, Settings
from heedful.training.tasks.base import (
    ENCODER_DECODER_SETTINGS,
    RUNNING_TEXT_SETTINGS,
    PreparedTask,
    Task,
    build,
)
from heedful.training.tasks.text_data import Texts, describe_texts, mask_id_of, pieces_of, prepare_texts, reopen_texts
from heedful.training.tasks.translation import config_for
from heedful.training.validation import (
    N_SAMPLES,
    Validation,
    ValidationSample,
    Validator,
    perplexity_of,
    plan_validation,
)

SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))  # T5's names
SPAN_RATE, INFILL_RATE = 0.15, 0.3  # shares of the tokens that T5 and BART mask

MakeNoise = Callable[[Tokenizer, NoiseSettings], Noise]


def assemble(texts: Texts, settings: Settings, *, make_noise: MakeNoise) -> PreparedTask:
    """Put together the parts that a trainer needs; `make_noise` makes the function that damages a text."""
    config = config_for(texts.tokenizers, settings)
    noise = with_source_bos(make_noise(texts.tokenizer, settings.noise), config.special_ids)
    longest = settings.data.max_len - 1 - config.special_ids.n_forced

    def dataset(chunks: DocumentChunks, pin_memory: bool = False) -> DenoisingDataset:
        return DenoisingDataset(chunks, noise, special_ids=config.special_ids, pin_memory=pin_memory)

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
        make_validator=lambda notify: DenoisingValidator(
            dataset(DocumentChunks([texts.valid], max_len=longest)), texts.tokenizer, settings, notify
        ),
        description=describe_texts(
            texts,
            what="model that restores damaged texts",
            output="texts that it writes",
            tag="text2text-generation",
            command="heedful train RUN --init-from {run} --source INPUT --target OUTPUT",
        ),
    )


def spans(tokenizer: Tokenizer, settings: NoiseSettings) -> Noise:
    """Return T5's noise: a sentinel replaces each masked span, and the target lists the spans after their sentinels."""
    rate, sentinels, special_ids = settings.rate or SPAN_RATE, sentinel_ids(tokenizer), tokenizer.special_ids

    def noise(ids: IntArray, random: np.random.Generator) -> Noised:
        return corrupt_spans(
            ids, random, special_ids=special_ids, sentinels=sentinels, rate=rate, mean_span=settings.mean_span
        )

    return noise


def denoising(tokenizer: Tokenizer, settings: NoiseSettings) -> Noise:
    """BART's noise: sentences in random order, each masked span one mask token; the target is the whole text."""
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
    """Return the ids of T5's sentinels, or raise a UserError if the tokenizer has none."""
    id_of = {piece: number for number, piece in enumerate(pieces_of(tokenizer))}
    ids = [id_of[piece] for piece in SENTINELS if piece in id_of]
    if not ids:
        raise UserError(f"the tokenizer has no sentinels ({SENTINELS[0]}, …), which T5's spans need: learn a new one")
    return ids


def sentence_ends(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Return, by id, whether a piece ends a sentence."""
    return np.array([piece.rstrip("▁").endswith((".", "!", "?", "。", "！", "？")) for piece in pieces_of(tokenizer)])


def with_source_bos(noise: Noise, special_ids: SpecialIds) -> Noise:
    """Put the model's first special token (BART's <s>) before input and target, if it has one."""
    if not special_ids.source_bos:
        return noise

    def with_bos(ids: IntArray, random: np.random.Generator) -> Noised:
        return Noised(
            *(np.asarray(special_ids.with_source_bos(side.tolist()), np.int64) for side in noise(ids, random))
        )

    return with_bos


class DenoisingValidator(Validator[Batch]):
    """Mean loss on the held-out text, damaged in the same way every time."""

    def __init__(self, dataset: DenoisingDataset, tokenizer: Tokenizer, settings: Settings, notify: Notify) -> None:
        plan = plan_validation(
            dataset.source_lengths, dataset.target_lengths, settings.data, "stretches of text", notify
        )
        super().__init__([dataset.batch(ids, np.arange(len(ids)), seed=step) for step, ids in enumerate(plan)])
        self.tokenizer, self.n_texts = tokenizer, len(dataset.texts)

    def score_batch(self, model: EncoderDecoder, batch: Batch) -> tuple[Tensor, None]:
        return pair_loss(model, batch), None

    def summarize(self, model: EncoderDecoder, loss: float, outputs: list[None]) -> Validation:
        return Validation(
            loss=loss,
            metrics={"perplexity": perplexity_of(loss)},
            scores=(Score("loss per token", loss, ""),),
            n_scored=self.n_texts,
            samples=tuple(self._restore(model, batch) for batch in self.batches[:N_SAMPLES]),
        )

    def _restore(self, model: EncoderDecoder, batch: Batch) -> ValidationSample:
        """Show the first row of a batch: damaged text, target, and the model's output, as pieces."""
        from heedful.decoding.engines.torch_engine import TorchEngine
        from heedful.decoding.search.request import Request
        from heedful.decoding.search.settings import SearchSettings

        n_forced = model.config.special_ids.n_forced
        source = batch.source[0, batch.source_mask[0]].tolist()[n_forced:-1]
        reference = batch.target_out[0, batch.target_mask[0]].tolist()[n_forced:-1]
        hypothesis = TorchEngine(model).search([Request(source)], SearchSettings(beam=1))[0][0].ids
        texts = [" ".join(self.tokenizer.pieces(ids)) for ids in (source, reference, list(hypothesis))]
        return ValidationSample(*texts)


SETTINGS_USED = RUNNING_TEXT_SETTINGS | ENCODER_DECODER_SETTINGS | {"noise.rate", "noise.mean_span"}

SPANS: Task[Texts] = Task(
    families=("t5", "bart"),
    content="text",
    metrics=("loss", "perplexity"),
    settings_used=SETTINGS_USED,
    recipe=lambda family, files, data: family,
    prepare=partial(prepare_texts, symbols=SENTINELS),
    reopen=reopen_texts,
    assemble=partial(assemble, make_noise=spans),
)
DENOISING: Task[Texts] = Task(
    families=("bart", "t5"),
    content="text",
    metrics=("loss", "perplexity"),
    settings_used=SETTINGS_USED,
    recipe=lambda family, files, data: family,
    prepare=partial(prepare_texts, symbols=[MASK_PIECE]),
    reopen=reopen_texts,
    assemble=partial(assemble, make_noise=denoising),
)
