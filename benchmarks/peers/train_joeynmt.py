"""Train with JoeyNMT, with a separate attention dropout and a count of tokens, which its settings do not offer.

    python train_joeynmt.py CONFIG

CONFIG is a file for `joeynmt train`. Prints "step N" after each step, where N is the number of its target tokens
without padding.
"""

import json
import sys
from pathlib import Path

from joeynmt.config import load_config
from joeynmt.helpers import make_model_dir
from joeynmt.training import TrainManager, train
from joeynmt.transformer_layers import MultiHeadedAttention


class CountedStep:
    """A replacement of TrainManager._train_step that sets the attention dropout and prints the number of tokens."""

    def __init__(self, attention_dropout: float) -> None:
        self.original = TrainManager._train_step
        self.attention_dropout = attention_dropout

    def step(self, manager: TrainManager, batch: object) -> tuple[float, int]:
        for module in manager.model.modules():
            if isinstance(module, MultiHeadedAttention):
                module.dropout.p = self.attention_dropout
        result = self.original(manager, batch)
        print("step", int(batch.ntokens), flush=True)
        return result


def main() -> None:
    config = load_config(Path(sys.argv[1]))
    counted = CountedStep(json.loads(Path(sys.argv[1]).read_text())["attention_dropout"])
    TrainManager._train_step = lambda manager, batch: counted.step(manager, batch)
    make_model_dir(Path(config["model_dir"]), overwrite=True)
    train(rank=0, world_size=None, cfg=config, skip_test=True)


if __name__ == "__main__":
    main()
