"""The facts of a run, gathered for the card of each model that it leaves."""

import hashlib
import json
import platform
from collections.abc import Sequence
from pathlib import Path

from heedful import __version__
from heedful.config import to_values
from heedful.data.corpus import Example
from heedful.models.seq2seq import Seq2Seq
from heedful.training.card import CardFacts, CorpusFacts, CostFacts, ScoreFacts, SizeFacts, model_card
from heedful.training.checkpoint import State
from heedful.training.prepare import Prepared
from heedful.training.record import RunRecord
from heedful.training.validation import Validation


def describe_model(
    record: RunRecord, prepared: Prepared, model: Seq2Seq, state: State, result: Validation, *, weights: str
) -> str:
    """The card of one model folder; `weights` says which these are."""
    config, files = model.config, record.files
    names = [" + ".join(Path(part).name for part in pair) for pair in files.pairs()]
    trained_on = tuple(
        CorpusFacts(name, len(shards), fingerprint)
        for name, shards, fingerprint in zip(names, prepared.train, files.fingerprints, strict=False)
    )
    valid = " + ".join(Path(part).name for part in files.valid) or "held out of the training files"
    return model_card(
        CardFacts(
            name=" and ".join(names) or "a translation model",
            heedful=__version__,
            sizes=SizeFacts(
                family="seq2seq",
                parameters=sum(parameter.numel() for parameter in model.parameters()),
                n_layers=config.n_layers,
                n_decoder_layers=config.n_decoder_layers or config.n_layers,
                source_vocab_size=config.source_vocab_size,
                target_vocab_size=config.target_vocab_size,
                joint=prepared.tokenizers.joint,
                tokenizer=record.settings.tokenizer.kind,
                max_len=record.settings.data.max_len,
            ),
            settings=to_values(record.settings),
            trained_on=trained_on,
            validated_on=(CorpusFacts(valid, len(prepared.valid), fingerprint_of(prepared.valid)),),
            cost=CostFacts(state.step, state.tokens, state.seconds, f"{platform.machine()}, {platform.system()}"),
            scores=tuple(ScoreFacts(valid, len(result.hypotheses), score, "greedy") for score in result.scores),
            weights=weights,
        )
    )


def fingerprint_of(examples: Sequence[Example]) -> str:
    """SHA-256 of the pairs themselves, since held-out ones are no file."""
    return hashlib.sha256(json.dumps([[e.source, e.target] for e in examples]).encode()).hexdigest()
