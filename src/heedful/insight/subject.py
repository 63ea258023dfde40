"""What to look into: a model with its tokenizers, however it was named."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from heedful.config import to_values
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.writing.long_text import Long, Planner
from heedful.decoding.writing.translator import Translator
from heedful.errors import UserError
from heedful.insight.anatomy import Writer, anatomy
from heedful.insight.trace import M, Trace, bare, scale_of
from heedful.models.card import source_language
from heedful.models.find import ENCODER_DECODERS, Reach, find_model_folder, wrong_family
from heedful.models.folder import LoadedModel, Model, family_of, load_model
from heedful.nn.attention import AdditiveAttend, MultiHeadAttention
from heedful.nn.embeddings import TokenEmbedding
from heedful.text import Tokenizers


@dataclass(frozen=True)
class Subject:
    """Keep one to look at many sentences: the model is then loaded once."""

    model: Writer
    tokenizers: Tokenizers
    name: str = "model"
    planner: Planner | None = None  # cuts a text into what the model takes at once; None: as a Translator's would


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


def open_subject(given: Subject | Translator | LoadedModel | str | Path, *, long: Long = "split") -> Subject:
    """The model of a folder, a run, a Translator; one that runs in CTranslate2 is loaded again, into torch.

    `long` is a Translator's: what becomes of a line beyond the model's reach. A Translator that is given keeps its own.
    """
    if isinstance(given, Subject):
        return given
    if isinstance(given, Translator):
        name = "model" if given.opening is None else Path(given.opening.path).resolve().name
        if isinstance(given.engine, TorchEngine):
            if given.engine.others:
                raise UserError("look: shows one model, and this Translator has several; give one of their folders")
            return Subject(_writer(given.engine.model, name), given.tokenizers, name, given.planner)
        if given.opening is None:
            raise UserError(
                "look: this Translator has no torch model and was not loaded from a folder; give the folder"
            )
        return replace(open_subject(given.opening.path), planner=given.planner)
    if isinstance(given, LoadedModel):
        return _with_tokenizers(given, "model", long)
    folder = find_model_folder(given)
    return _with_tokenizers(load_model(folder), Path(given).resolve().name, long)


def reach_of(model: Writer) -> Reach:
    """What `read_reach` reads in a folder, of a model that is there."""
    return Reach(model.config.max_len - model.config.marks.n_before, ends_there=model.longest is not None)


def _with_tokenizers(loaded: LoadedModel, name: str, long: Long) -> Subject:
    model = _writer(loaded.model, name)
    if loaded.tokenizers is None:
        raise UserError(f"{name}: has no tokenizers, so it knows ids only, and there is no text to look at")
    language = None if loaded.folder is None else source_language(loaded.folder)
    planner = Planner(loaded.tokenizers.source, reach_of(model), long=long, language=language or "en")
    return Subject(model, loaded.tokenizers, name, planner)


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
    attend = bare(attention.attend)
    assert isinstance(model, Model)
    values = to_values(model.config)
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
