"""The numbers of a run for TensorBoard, an optional part: `tensorboard --logdir RUN`."""

from pathlib import Path

from heedful.errors import MissingExtra
from heedful.training.log import Event

# kind of event -> its numbers that make a curve
CURVES = {
    "step": ("loss", "tokens_per_second", "lr", "grad_norm", "epoch"),
    "validation": ("loss", "perplexity", "bleu", "chrf", "score"),
}
NAMES = {"step": "train", "validation": "validation"}


class TensorBoardLog:
    """A listener that writes curves below `folder`. `step` is where this sitting starts: later points are replaced."""

    def __init__(self, folder: Path, *, step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("TensorBoard", "track") from None
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def __call__(self, event: Event) -> None:
        if event["event"] != "step" and event["event"] != "validation":
            return
        for name in CURVES[event["event"]]:
            value = event.get(name)
            if isinstance(value, (int, float)):
                self._writer.add_scalar(f"{NAMES[event['event']]}/{name}", value, event["step"], event["time"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
