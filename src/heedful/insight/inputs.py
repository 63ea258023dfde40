"""The inputs of a look: the model with its tokenizers, and the segment of the text.

A Translator segments a text into lines, and lines that are too long for the model into sentences
(decoding/segmentation.py). A look uses the same segments, so that it shows the same translation as `translate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from heedful.config import config_to_dict
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.input_text import LINE_BREAK, BadText
from heedful.decoding.segmentation import Long, Segment, SegmentedText, Segmenter, split_lines
from heedful.decoding.translator import Translator
from heedful.errors import UserError, warn
from heedful.insight.model_layout import Writer, model_layout
from heedful.insight.trace import M, Trace, scale_of, unwrap_attend
from heedful.models.model_info import ENCODER_DECODERS, SourceLimit, find_model_folder, source_language, wrong_family
from heedful.models.model_io import LoadedModel, Model, family_of, load_model
from heedful.nn.attention import AdditiveAttend, MultiHeadAttention
from heedful.nn.embeddings import TokenEmbedding
from heedful.text import Tokenizers


@dataclass(frozen=True)
class LookModel:
    """A model that is loaded once, to look at many sentences."""

    model: Writer
    tokenizers: Tokenizers
    name: str = "model"
    segmenter: Segmenter | None = None  # None: segment as a Translator does by default


@dataclass(frozen=True)
class ModelFacts:
    """The sizes and settings of a model under names that are the same for every family."""

    name: str
    family: str
    n_parameters: int
    config: dict[str, object]
    n_encoder_layers: int  # for a Universal Transformer, the number of steps that it took
    n_decoder_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_ff: int
    residual: str
    norm: str
    activation: str
    vocab_size: int | None  # of the output
    embedding_scale: float
    attention_scale: float
    output_scale: float
    score: str  # "dot" or "additive"


def open_look_model(model: LookModel | Translator | LoadedModel | str | Path, *, long: Long = "split") -> LookModel:
    """Open the model of a folder, a run or a Translator. A model that runs in CTranslate2 is loaded again into torch.

    `long` chooses how lines that are too long are segmented, as for a Translator; a Translator keeps its own choice.
    """
    if isinstance(model, LookModel):
        return model
    if isinstance(model, Translator):
        name = "model" if model.load_spec is None else Path(model.load_spec.path).resolve().name
        if isinstance(model.engine, TorchEngine):
            if model.engine.others:
                raise UserError("look shows one model, and this Translator has several; give the folder of one of them")
            return LookModel(
                _require_encoder_decoder(model.engine.model, name), model.tokenizers, name, model.segmenter
            )
        if model.load_spec is None:
            raise UserError(
                "look: this Translator has no torch model and was not loaded from a folder; give the model's folder"
            )
        return replace(open_look_model(model.load_spec.path), segmenter=model.segmenter)
    if isinstance(model, LoadedModel):
        return _with_tokenizers(model, "model", long)
    folder = find_model_folder(model)
    return _with_tokenizers(load_model(folder), Path(model).resolve().name, long)


def source_limit_of(model: Writer) -> SourceLimit:
    """Return how many source tokens a loaded model reads."""
    return SourceLimit(
        model.config.max_len - model.config.special_ids.n_source_prefix, is_hard=model.max_length is not None
    )


def _with_tokenizers(loaded: LoadedModel, name: str, long: Long) -> LookModel:
    model = _require_encoder_decoder(loaded.model, name)
    if loaded.tokenizers is None:
        raise UserError(f"{name}: the model has no tokenizers, so it cannot read text")
    language = None if loaded.folder is None else source_language(loaded.folder)
    segmenter = Segmenter(loaded.tokenizers.source, source_limit_of(model), long=long, language=language or "en")
    return LookModel(model, loaded.tokenizers, name, segmenter)


def _require_encoder_decoder(model: object, name: str) -> Writer:
    if not isinstance(model, Writer):
        assert isinstance(model, nn.Module)
        raise wrong_family(name, family_of(type(model)), *ENCODER_DECODERS)
    return model


def model_facts(t: Trace[M], name: str) -> ModelFacts:
    """Collect the facts of the traced model."""
    model, layout = t.model, model_layout(t.model)
    attention = next(module for module in model.modules() if isinstance(module, MultiHeadAttention))
    embedding = next((module for module in model.modules() if isinstance(module, TokenEmbedding)), None)
    attend = unwrap_attend(attention.attend)
    assert isinstance(model, Model)
    values = config_to_dict(model.config)
    activation, d_ff = values["activation"], values["d_ff"]
    assert isinstance(activation, str) and isinstance(d_ff, int)
    return ModelFacts(
        name=name,
        family=family_of(type(model)),
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        config=values,
        n_encoder_layers=0 if layout.encoder is None else len(layout.encoder.places(t)),
        n_decoder_layers=0 if layout.decoder is None else len(layout.decoder.places(t)),
        n_heads=attention.n_heads,
        n_kv_heads=attention.n_kv_heads,
        d_model=attention.to_q.in_features,
        d_head=attention.d_head,
        d_ff=d_ff,
        residual=layout.residual,
        norm=layout.norm,
        activation=activation,
        vocab_size=layout.vocab_size,
        embedding_scale=1.0 if embedding is None else float(embedding.scale),
        attention_scale=scale_of(attend, attention.d_head, attention.scale),
        output_scale=layout.output_scale,
        score="additive" if isinstance(attend, AdditiveAttend) else "dot",
    )


@dataclass(frozen=True)
class Pieces:
    """A text of several segments, and the number of the segment that is shown."""

    number: int  # from 0
    sources: tuple[str, ...]
    targets: tuple[str, ...] | None  # the lines of a given translation of the whole text


@dataclass(frozen=True)
class ShownSegment:
    """The segment that is shown, and its given translation."""

    segment: Segment
    target: str | None
    pieces: Pieces | None  # None for a text of one segment


def choose_part(look_model: LookModel, text: str, target: str | None, number: int | None) -> ShownSegment:
    """Choose segment `number` of a text, by default the first, and its part of the given translation."""
    segmented = _segment(look_model, text)
    n = len(segmented.segments)
    index = 0 if number is None else number
    if not 0 <= index < n:
        raise UserError(f"piece: {index} would be segment {index + 1}, but this text has {n}")
    if n == 1:
        return ShownSegment(segmented.segments[0], target, None)
    targets = None if target is None else _lines_of(target, segmented)
    if targets is not None:
        target = targets[index]
    elif target is not None and number is None:
        raise UserError(
            f"target: this text has {n} segments, and it is unknown which words of the target belong to the first; "
            "choose with `piece` which segment the target translates, or look at this segment alone"
        )
    return ShownSegment(
        segmented.segments[index], target, Pieces(index, tuple(segment.text for segment in segmented.segments), targets)
    )


def _segment(look_model: LookModel, text: str) -> SegmentedText:
    segmenter = look_model.segmenter or Segmenter(look_model.tokenizers.source, source_limit_of(look_model.model))
    try:
        [segmented], stats = segmenter.segment([text])
    except BadText as error:
        raise UserError(f"look: {error.what}") from None
    if not segmented.segments:
        problem = "has no word to translate" if text.strip() else "is empty"
        raise UserError(f"look: the text {problem}; give a sentence to translate")
    for message in stats.warnings():
        warn(message)
    return segmented


def _lines_of(target: str, segmented: SegmentedText) -> tuple[str, ...] | None:
    """Split a target into one line per segment; None if the segments are no lines or the numbers differ."""
    lines: Sequence[str] = split_lines(target)[1::2]
    is_each_a_line = all(LINE_BREAK.search(gap) for gap in segmented.gaps[1:-1])
    return tuple(lines) if is_each_a_line and len(lines) == len(segmented.segments) else None
