"""The facts of a run, gathered for the card of each model that it leaves."""

import platform
from pathlib import Path

from heedful import __version__
from heedful.config import to_values
from heedful.models.find import ENCODER_DECODERS
from heedful.models.folder import Model
from heedful.training.card import CardFacts, CorpusFacts, CostFacts, ScoreFacts, SizeFacts, model_card
from heedful.training.checkpoint import State
from heedful.training.languages import languages_of
from heedful.training.record import RunRecord
from heedful.training.tasks.task import Lesson
from heedful.training.validation import Validation


def describe_model(
    record: RunRecord, lesson: Lesson, model: Model, state: State, result: Validation, *, weights: str
) -> str:
    """The card of one model folder; `weights` says which these are."""
    files, about = record.files, lesson.about
    names = [" + ".join(Path(part).name for part in pair) for pair in files.pairs()]
    again = ", some of it once more as people type" if record.settings.data.as_typed else ""
    trained_on = tuple(
        CorpusFacts(f"{name}{again}", size, fingerprint)
        for name, size, fingerprint in zip(names, about.train, files.fingerprints, strict=False)
    )
    valid = " + ".join(Path(part).name for part in files.valid) or "held out of the training files"
    return model_card(
        CardFacts(
            name=" and ".join(names) or f"a {about.what}",
            heedful=__version__,
            sizes=sizes_of(record, lesson, model),
            settings=to_values(record.settings),
            trained_on=trained_on,
            validated_on=(CorpusFacts(valid, about.valid, about.valid_sha256),),
            cost=CostFacts(state.step, state.tokens, state.seconds, f"{platform.machine()}, {platform.system()}"),
            scores=tuple(ScoreFacts(valid, result.n_scored, score, result.how) for score in result.scores),
            weights=weights,
            languages=languages_of(record) if files.content == "pairs" else None,
            what=about.what,
            output=about.output,
            tag=about.tag,
            unit=about.unit,
        )
    )


def sizes_of(record: RunRecord, lesson: Lesson, model: Model) -> SizeFacts:
    """The sizes that this family has: an encoder alone has one stack, a model of images no vocabulary."""
    settings, config, tokenizers = record.settings, model.config, lesson.tokenizers
    n_layers = getattr(config, "n_layers", 1)  # one layer, gone through again and again, is one
    has_decoder = settings.family in ENCODER_DECODERS
    return SizeFacts(
        family=settings.family,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        n_layers=n_layers,
        n_decoder_layers=(getattr(config, "n_decoder_layers", None) or n_layers) if has_decoder else 0,
        source_vocab_size=0 if tokenizers is None else tokenizers.source.vocab_size,
        target_vocab_size=0 if tokenizers is None else tokenizers.target.vocab_size,
        joint=tokenizers is None or tokenizers.joint,
        # Its own: with --from it is that of the start, whatever the settings would have learned.
        tokenizer="" if tokenizers is None else tokenizers.target.kind,
        max_len=0 if tokenizers is None else settings.data.max_len,
        n_labels=len(getattr(config, "labels", ())),
    )
