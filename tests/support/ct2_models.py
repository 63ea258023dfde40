"""Small models, converted in this process, because a child process for each would take seconds."""

from pathlib import Path

import pytest
import torch

from deterministic import fill
from heedful.decoding.engines.ctranslate2_engine import CTranslate2Engine
from heedful.decoding.engines.ctranslate2_tuning import Speed
from heedful.decoding.search.request import Hypothesis, Request
from heedful.interop.ctranslate2 import cache
from heedful.interop.ctranslate2.cache import Converted
from heedful.interop.ctranslate2.convert_process import conversion_info, convert_into
from heedful.interop.ctranslate2.spec import ct2_model, write_model
from heedful.models.bart import Bart
from heedful.models.model_io import LoadedModel
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.models.t5 import T5
from heedful.text import SPECIAL_IDS

VOCAB = 60
EncoderDecoder = Seq2Seq | Bart | T5


def make_model(**changes) -> Seq2Seq:
    """Return a model whose predictions differ clearly, so that rounding does not decide a search."""
    sizes = {"source_vocab_size": VOCAB, "target_vocab_size": VOCAB}
    settings = {**sizes, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, **changes}
    return with_opinions(fill(Seq2Seq(Seq2SeqConfig(**settings)), dtype=torch.float32))


def with_opinions(model: EncoderDecoder) -> EncoderDecoder:
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.attention.to_out.weight.mul_(4.0)
            layer.cross_attention.to_out.weight.mul_(8.0)
            layer.cross_attention.to_q.weight.mul_(4.0)
            layer.feed_forward.outer.weight.mul_(8.0)
        last = model.decoder.final_norm or model.decoder.layers[-1].feed_forward_residual.norm
        last.weight.mul_(3.0)
        model.head.linear.weight[SPECIAL_IDS.eos_id] *= 2.0  # some translations end early
    return model


def convert_here(model: EncoderDecoder, folder: Path) -> Converted:
    folder.mkdir(parents=True)
    config, weights = ct2_model(LoadedModel(type(model).__name__.lower(), model, None))
    write_model(config, weights, folder)
    return Converted(folder, folder, conversion_info(config, "", folder))


def make_engine(model: EncoderDecoder, folder: Path, **options) -> CTranslate2Engine:
    return CTranslate2Engine(convert_here(model, folder), **{"speed": Speed(1, 1, 100, 100), **options})


def some_requests(n: int, *, longest: int = 12, vocab: int = VOCAB, prefix: int = 0) -> list[Request]:
    generator = torch.Generator().manual_seed(n)

    def ids(length: int) -> list[int]:
        return torch.randint(4, vocab, (length,), generator=generator).tolist()

    prefixes = [list(range(30, 30 + prefix)) for _ in range(n)]
    lengths = torch.randint(0, longest + 1, (n,), generator=generator).tolist()
    return [Request(ids(length), prefix=start) for length, start in zip(lengths, prefixes, strict=True)]


@torch.inference_mode()
def log_probabilities(model: Seq2Seq, request: Request, ids: list[int]) -> torch.Tensor:
    """Return the log-probabilities of each next token, teacher-forced: (len(ids) + 1, V)."""
    source = torch.tensor([[*request.source, SPECIAL_IDS.eos_id]])
    return model(source, torch.tensor([[SPECIAL_IDS.bos_id, *ids]])).log_softmax(dim=-1)[0]


def score_of(model: Seq2Seq, request: Request, hypothesis: Hypothesis) -> float:
    ids = [*hypothesis.ids, SPECIAL_IDS.eos_id] if hypothesis.complete else list(hypothesis.ids)
    table = log_probabilities(model, request, list(hypothesis.ids))
    return float(sum(table[place, token] for place, token in enumerate(ids)))


def tie(model: Seq2Seq, request: Request, a: Hypothesis, b: Hypothesis) -> float:
    """Return the difference of log-probabilities where two hypotheses first differ; 0 if they are equal."""
    ends = [[*each.ids, SPECIAL_IDS.eos_id] if each.complete else each.ids for each in (a, b)]
    for place, (left, right) in enumerate(zip(*ends, strict=False)):
        if left != right:
            row = log_probabilities(model, request, ends[0][:place])[place]
            return abs(float(row[left] - row[right]))
    return 0.0 if len(ends[0]) == len(ends[1]) else float("inf")


def count_conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Run conversions in this process from now on, and return the list of their folders."""
    made: list[Path] = []

    def run(model: Path, folder: Path, key: str) -> None:
        made.append(folder)
        convert_into(model, folder, key=key)

    monkeypatch.setattr(cache, "_run_child", run)
    return made
