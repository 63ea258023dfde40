"""Sizes with a name. The vocabulary comes from the tokenizer."""

from typing import Any

# base and big are the paper's (table 3); tiny is the size that works best on tens of thousands of pairs.
SEQ2SEQ_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 128, "d_ff": 256, "n_heads": 4, "n_layers": 4, "dropout": 0.3},
    "small": {"d_model": 256, "d_ff": 1024, "n_heads": 4, "n_layers": 3, "dropout": 0.1},
    "base": {"d_model": 512, "d_ff": 2048, "n_heads": 8, "n_layers": 6, "dropout": 0.1},
    "big": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "n_layers": 6, "dropout": 0.3},
}
