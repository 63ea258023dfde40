"""Train with heedful, starting from the raw text.

    python train_heedful.py FOLDER RUN [PRECISION]

benchmarks/speed/train.py prepares FOLDER; RUN is a run folder to create. Prints "step N" after each step, where N is
the number of its target tokens without padding.
"""

import json
import sys
from pathlib import Path

import heedful
from heedful.training import Event

NEVER = 10**9  # steps


class Steps:
    """A listener that prints the target tokens of each step."""

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(self, event: Event) -> None:
        if event["event"] == "step":
            print("step", event["tokens"] - self.tokens, flush=True)
            self.tokens = event["tokens"]


def main() -> None:
    folder, run = Path(sys.argv[1]), Path(sys.argv[2])
    precision = (sys.argv[3:] or ["float32"])[0]
    sizes = json.loads((folder / "sizes.json").read_text())
    files = json.loads((folder / "files.json").read_text())
    shape = ("d_model", "d_ff", "n_heads", "n_layers", "dropout", "attention_dropout")
    heedful.train(
        folder=run,
        **files,
        recipe="small",
        overrides=[
            *(f"model.{name}={sizes[name]}" for name in shape),
            "model.residual=post",
            f"tokenizer.vocab_size={sizes['vocab_size']}",
            f"data.batch_tokens={sizes['batch_tokens']}",
            "data.max_doubtful=1.0",
            f"loss.label_smoothing={sizes['label_smoothing']}",
            f"optimiser.lr={sizes['lr']}",
            "schedule.kind=constant",
            "schedule.warmup_steps=0",
            *(f"run.{name}={NEVER}" for name in ("steps", "validate_every", "save_every")),
            "run.log_every=1",
            "run.device=cpu",
            f"run.precision={precision}",
            f"run.threads={sizes['threads']}",
        ],
        listeners=[Steps()],
    )


if __name__ == "__main__":
    main()
