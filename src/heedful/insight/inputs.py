"""What to look into: a model with its tokenizers, however it was named.

Which part of a text a look shows: a text is cut exactly as where it is translated, and one piece is looked at.

A Translator gives the model line by line, and what is beyond its reach in sentences (decoding/segmentation.py). A
look at the whole text at once would be one at another translation than the reader has before him. Each piece, given by
itself, is again one piece, with the same ids.
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
from heedful.insight.model_layout import Writer, anatomy
from heedful.insight.trace import M, Trace, scale_of, unwrap_attend
from heedful.models.model_info import ENCODER_DECODERS, SourceLimit, find_model_folder, source_language, wrong_family
from heedful.models.model_io import LoadedModel, Model, family_of, load_model
from heedful.nn.attention import AdditiveAttend, MultiHeadAttention
from heedful.nn.embeddings import TokenEmbedding
from heedful.text import Tokenizers


@dataclass(frozen=True)
class LookModel:
    """Keep one to look at many sentences: the model is then loaded once."""

    model: Writer
    tokenizers: Tokenizers
    name: str = "model"
    planner: Segmenter | None = None  # cuts a text into what the model takes at once; None: as a Translator's would


@dataclass(frozen=True)
class ModelFacts:
    """What a model is, in words that are the same for every family."""

    name: str
    family: str
    n_parameters: int
    config: dict[str, object]
    n_encoder_layers: int  # of a Universal Transformer the steps that it took
    n_decoder_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_ff: int
    residual: str
    norm: str
    activation: str
    vocab_size: int | None  # of what is written
    embedding_scale: float
    attention_scale: float
    output_scale: float
    score: str  # "dot" or "additive"


def open_subject(given: LookModel | Translator | LoadedModel | str | Path, *, long: Long = "split") -> LookModel:
    """The model of a folder, a run, a Translator; one that runs in CTranslate2 is loaded again, into torch.

    `long` is a Translator's: what becomes of a line beyond the model's reach. A Translator that is given keeps its own.
    """
    if isinstance(given, LookModel):
        return given
    if isinstance(given, Translator):
        name = "model" if given.opening is None else Path(given.opening.path).resolve().name
        if isinstance(given.engine, TorchEngine):
            if given.engine.others:
                raise UserError("look: shows one model, and this Translator has several; give one of their folders")
            return LookModel(_writer(given.engine.model, name), given.tokenizers, name, given.planner)
        if given.opening is None:
            raise UserError(
                "look: this Translator has no torch model and was not loaded from a folder; give the folder"
            )
        return replace(open_subject(given.opening.path), planner=given.planner)
    if isinstance(given, LoadedModel):
        return _with_tokenizers(given, "model", long)
    folder = find_model_folder(given)
    return _with_tokenizers(load_model(folder), Path(given).resolve().name, long)


def reach_of(model: Writer) -> SourceLimit:
    """What `read_reach` reads in a folder, of a model that is there."""
    return SourceLimit(
        model.config.max_len - model.config.special_ids.n_source_prefix, is_hard=model.max_length is not None
    )


def _with_tokenizers(loaded: LoadedModel, name: str, long: Long) -> LookModel:
    model = _writer(loaded.model, name)
    if loaded.tokenizers is None:
        raise UserError(f"{name}: has no tokenizers, so it knows ids only, and there is no text to look at")
    language = None if loaded.folder is None else source_language(loaded.folder)
    planner = Segmenter(loaded.tokenizers.source, reach_of(model), long=long, language=language or "en")
    return LookModel(model, loaded.tokenizers, name, planner)


def _writer(model: object, name: str) -> Writer:
    if not isinstance(model, Writer):
        assert isinstance(model, nn.Module)
        raise wrong_family(name, family_of(type(model)), *ENCODER_DECODERS)
    return model


def model_facts(t: Trace[M], name: str) -> ModelFacts:
    """Of the model whose pass was traced."""
    model, body = t.model, anatomy(t.model)
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
        n_parameters=sum(one.numel() for one in model.parameters()),
        config=values,
        n_encoder_layers=0 if body.encoder is None else len(body.encoder.places(t)),
        n_decoder_layers=0 if body.decoder is None else len(body.decoder.places(t)),
        n_heads=attention.n_heads,
        n_kv_heads=attention.n_kv_heads,
        d_model=attention.to_q.in_features,
        d_head=attention.d_head,
        d_ff=d_ff,
        residual=body.residual,
        norm=body.norm,
        activation=activation,
        vocab_size=body.vocab_size,
        embedding_scale=1.0 if embedding is None else float(embedding.scale),
        attention_scale=scale_of(attend, attention.d_head, attention.scale),
        output_scale=body.output_scale,
        score="additive" if isinstance(attend, AdditiveAttend) else "dot",
    )


@dataclass(frozen=True)
class Pieces:
    """A text that the model gets in several pieces, and which of them is shown."""

    number: int  # from 0
    sources: tuple[str, ...]
    targets: tuple[str, ...] | None  # of a given translation of the whole text


@dataclass(frozen=True)
class Part:
    """What is looked at."""

    piece: Segment
    target: str | None
    pieces: Pieces | None  # None of a text in one piece


def chosen_part(subject: LookModel, text: str, target: str | None, number: int | None) -> Part:
    """Piece `number` of a text, by default the first, and what of a given translation belongs to it."""
    plan = _plan(subject, text)
    n = len(plan.pieces)
    place = 0 if number is None else number
    if not 0 <= place < n:
        raise UserError(f"piece: {place} would be piece number {place + 1}, and the model gets this text in {n}")
    if n == 1:
        return Part(plan.pieces[0], target, None)
    targets = None if target is None else _lines_of(target, plan)
    if targets is not None:
        target = targets[place]
    elif target is not None and number is None:
        raise UserError(
            f"target: the model gets this text in {n} pieces, and nothing says which words of the target belong to "
            "the first; name the piece that it is the translation of, or look at that piece alone"
        )
    return Part(plan.pieces[place], target, Pieces(place, tuple(piece.text for piece in plan.pieces), targets))


def _plan(subject: LookModel, text: str) -> SegmentedText:
    planner = subject.planner or Segmenter(subject.tokenizers.source, reach_of(subject.model))
    try:
        [plan], tally = planner.plan([text])
    except BadText as error:
        raise UserError(f"look: {error.what}") from None
    if not plan.pieces:
        what = "has no word to translate, and is copied as it is" if text.strip() else "is empty"
        raise UserError(f"look: the text {what}; give a sentence to translate")
    for words in tally.warnings():
        warn(words)
    return plan


def _lines_of(target: str, plan: SegmentedText) -> tuple[str, ...] | None:
    """Line by line, where each piece is a line and the target has as many; None where nothing tells."""
    lines: Sequence[str] = split_lines(target)[1::2]
    is_each_a_line = all(LINE_BREAK.search(gap) for gap in plan.gaps[1:-1])
    return tuple(lines) if is_each_a_line and len(lines) == len(plan.pieces) else None
