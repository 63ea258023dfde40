"""What to look into: a model with its tokenizers, however it was named."""

from dataclasses import dataclass
from pathlib import Path

from heedful.config import to_values
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.writing.translator import Translator
from heedful.errors import UserError
from heedful.insight.trace import scale_of
from heedful.models.find import find_model_folder
from heedful.models.folder import LoadedModel, load_model
from heedful.models.seq2seq import Seq2Seq
from heedful.nn.attention import AdditiveAttend, MultiHeadAttention
from heedful.text import Tokenizers


@dataclass(frozen=True)
class Subject:
    """Keep one to look at many sentences: the model is then loaded once."""

    model: Seq2Seq
    tokenizers: Tokenizers
    name: str = "model"
    family: str = "seq2seq"


@dataclass(frozen=True)
class ModelFacts:
    name: str
    family: str
    n_parameters: int
    config: dict[str, object]
    n_encoder_layers: int
    n_decoder_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_ff: int
    embedding_scale: float
    attention_scale: float
    score: str  # "dot" or "additive"


def open_subject(given: Subject | Translator | LoadedModel | str | Path) -> Subject:
    """The model of a folder, a run, a Translator; one that runs in CTranslate2 is loaded again, into torch."""
    if isinstance(given, Subject):
        return given
    if isinstance(given, Translator):
        name = "model" if given.opening is None else Path(given.opening.path).resolve().name
        if isinstance(given.engine, TorchEngine):
            model = given.engine.model
            if not isinstance(model, Seq2Seq):
                raise UserError(
                    f"look: shows translation models of the family seq2seq, this is a {type(model).__name__}"
                )
            return Subject(model, given.tokenizers, name)
        if given.opening is None:
            raise UserError(
                "look: this Translator has no torch model and was not loaded from a folder; give the folder"
            )
        return open_subject(given.opening.path)
    if isinstance(given, LoadedModel):
        return _with_tokenizers(given, "model")
    folder = find_model_folder(given)
    return _with_tokenizers(load_model(folder), Path(given).resolve().name)


def _with_tokenizers(loaded: LoadedModel, name: str) -> Subject:
    if loaded.tokenizers is None:
        raise UserError(f"{name}: has no tokenizers, so it knows ids only, and there is no text to look at")
    return Subject(loaded.expect(Seq2Seq), loaded.tokenizers, name, loaded.family)


def model_facts(subject: Subject) -> ModelFacts:
    model, config = subject.model, subject.model.config
    attention = next(module for module in model.decoder.modules() if isinstance(module, MultiHeadAttention))
    additive = isinstance(attention.attend, AdditiveAttend)
    return ModelFacts(
        name=subject.name,
        family=subject.family,
        n_parameters=sum(one.numel() for one in model.parameters()),
        config=to_values(config),
        n_encoder_layers=len(model.encoder.layers),
        n_decoder_layers=len(model.decoder.layers),
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads or config.n_heads,
        d_model=config.d_model,
        d_head=attention.d_head,
        d_ff=config.d_ff,
        embedding_scale=float(model.source_embedding.scale),
        attention_scale=scale_of(attention.attend, attention.d_head, attention.scale),
        score="additive" if additive else "dot",
    )
