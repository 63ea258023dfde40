"""Texts in, texts out, greedily: what validation and the demo need."""

from collections.abc import Sequence

from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.encoder_decoder import EncoderDecoder
from heedful.text import Tokenizers


def translate_greedily(model: EncoderDecoder, tokenizers: Tokenizers, texts: Sequence[str]) -> list[str]:
    """Greedy translations, in the order of the texts."""
    requests = [Request(ids) for ids in tokenizers.source.encode_batch(texts)]
    found = TorchEngine(model).search(requests, SearchSettings(beam=1))
    return tokenizers.target.decode_batch([best[0].ids for best in found])
