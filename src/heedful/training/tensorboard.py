"""The curves of a run for TensorBoard, an optional extra: `tensorboard --logdir RUN`."""

from collections.abc import Callable
from pathlib import Path

from heedful.errors import MissingExtra
from heedful.training.events import Event

# kind of event -> fields that become curves
CURVES = {
    "step": ("loss", "tokens_per_second", "lr", "grad_norm", "epoch"),
    "validation": ("loss", "perplexity", "bleu", "chrf", "score"),
}
NAMES = {"step": "train", "validation": "validation"}


class TensorBoardLog:
    """A listener that writes curves below `folder`; after a resume, the curves of repeated steps are overwritten."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("TensorBoard", "track") from None
        # Opened with the first point: points of earlier sittings from that step on are purged.
        self._open: Callable[[int], SummaryWriter] = lambda step: SummaryWriter(str(folder), purge_step=step)
        self._writer: SummaryWriter | None = None

    def __call__(self, event: Event) -> None:
        if event["event"] != "step" and event["event"] != "validation":
            return
        if self._writer is None:
            self._writer = self._open(event["step"])
        values = {name: event.get(name) for name in CURVES[event["event"]]}
        if event["event"] == "validation":
            values |= event.get("metrics", {})
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self._writer.add_scalar(f"{NAMES[event['event']]}/{name}", value, event["step"], event["time"])
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
