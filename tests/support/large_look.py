"""The page of a large model and a long sentence, as the command writes it, made in seconds."""

from pathlib import Path

import torch

from deterministic import fill
from heedful.cli.look import look
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS, TokenizerConfig, learn_tokenizers

LINES = ["A dog runs.", "Two dogs sleep in the snow.", "The animal was too tired.", "A big man eats bread."] * 10
SLOW = 58  # of 128 numbers of the position code: sin(t / 65), which grows for a hundred positions
END = 6.0  # how much of it the end mark is made of


def look_at_60_words(path: Path) -> Path:
    """Look into a random model of 6 + 6 layers of 8 heads. Its width is small, as the page cuts vectors anyway."""
    words = learn_tokenizers(LINES, LINES, TokenizerConfig(kind="bpe", vocab_size=360, joint=True))
    sizes = {"d_model": 128, "n_layers": 6, "n_heads": 8, "d_ff": 128}
    n_source, n_target = words.source.vocab_size, words.target.vocab_size
    config = Seq2SeqConfig(n_source, n_target, residual="pre", **sizes)  # type: ignore[arg-type]
    model = fill(Seq2Seq(config), dtype=torch.float32)
    assert isinstance(model, Seq2Seq)
    with torch.no_grad():  # it ends by itself, early, so that the search does
        model.head.linear.weight[SPECIAL_IDS.eos_id] = 0.0
        model.head.linear.weight[SPECIAL_IDS.eos_id, SLOW] = END
    text = " ".join(" ".join(LINES).split()[:60])
    look(text, model=save_model(path.parent / "large", model, words), target=text, output=path)
    return path
