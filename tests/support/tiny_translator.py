"""A Translator with a small random model."""

import torch

from echo_engine import tokenizers
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.translator import Translator
from heedful.models.model_info import SourceLimit
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig


def tiny_translator() -> Translator:
    """Return a Translator of letters with a random model, in float64, so that rounding does not decide a search."""
    torch.manual_seed(1)
    size = tokenizers().source.vocab_size
    config = Seq2SeqConfig(source_vocab_size=size, target_vocab_size=size, d_model=16, n_layers=1, n_heads=2, d_ff=32)
    return Translator(TorchEngine(Seq2Seq(config).double().eval(), batch_rows=16), tokenizers(), reach=SourceLimit(80))
