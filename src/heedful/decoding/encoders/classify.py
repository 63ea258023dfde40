"""Which label a text or an image has: `Classifier.load(MODEL).classify(["What a film!"])`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from heedful.decoding.encoders.images import IMAGES_AT_ONCE, image_tensor
from heedful.decoding.encoders.rows import Tally, batches, make_row
from heedful.errors import UserError
from heedful.models.bert import Bert
from heedful.models.find import find_model_folder, wrong_family
from heedful.models.folder import load_model
from heedful.models.vit import Vit
from heedful.text import Tokenizer


@dataclass(frozen=True)
class Labelled:
    """A label and its probability."""

    label: str
    score: float


@dataclass(frozen=True)
class LabelledToken:
    """A token, its likeliest label and that label's probability."""

    token: str
    label: str
    score: float


@dataclass
class Classifier:
    """A BERT or a ViT with a head for labels."""

    model: Bert | Vit
    tokenizer: Tokenizer | None = None
    where: str = "this model"
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        head = self.model.config.head
        if head not in ("classify", "label_tokens"):
            raise UserError(f"{self.where}: has the head '{head}', which knows no labels; that needs head = 'classify'")
        if isinstance(self.model, Bert) and self.tokenizer is None:
            raise UserError(f"{self.where}: has no tokenizer: it takes ids only, and no text")
        self.model.eval()

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> "Classifier":
        folder = find_model_folder(path)
        loaded = load_model(folder, device=device)
        model = loaded.model
        if not isinstance(model, (Bert, Vit)):
            raise wrong_family(folder, loaded.family, "bert", "vit")
        tokenizer = None if loaded.tokenizers is None else loaded.tokenizers.source
        return cls(model, tokenizer, where=str(folder))

    @property
    def takes_images(self) -> bool:
        return isinstance(self.model, Vit)

    @property
    def labels_tokens(self) -> bool:
        return self.model.config.head == "label_tokens"

    def classify(self, inputs: Sequence[str | Path], *, apply: str | None = None) -> list[list[Labelled]]:
        """For each text, or image file, every label with its probability, the likeliest first.

        `apply` is "softmax", "sigmoid" or "none"; by default as the labels were learned.
        """
        if self.labels_tokens:
            raise UserError(f"{self.where}: labels each token of a text, not the text; use label_tokens")
        function = _function(apply, exclusive=self.model.config.exclusive)
        logits = (
            self._of_images(inputs) if isinstance(self.model, Vit) else self._of_texts([str(one) for one in inputs])
        )
        return [self._ranked(function(row.float())) for row in logits]

    def label_tokens(self, texts: Sequence[str]) -> list[list[LabelledToken]]:
        """For each token of each text its likeliest label."""
        if not self.labels_tokens or self.tokenizer is None:
            raise UserError(f"{self.where}: has one label for a whole text; use classify")
        found = []
        for text, logits in zip(texts, self._of_texts(texts), strict=True):
            ids = self.tokenizer.encode(text)[: len(logits) - 2]
            shares = logits[1 : len(ids) + 1].float().softmax(dim=-1)
            best = [(float(score), int(number)) for score, number in zip(*shares.max(dim=-1), strict=True)]
            labels = self.model.config.labels
            found.append(
                [
                    LabelledToken(piece, labels[number], score)
                    for piece, (score, number) in zip(self.tokenizer.pieces(ids), best, strict=True)
                ]
            )
        return found

    @torch.inference_mode()
    def _of_texts(self, texts: Sequence[str]) -> list[Tensor]:
        assert isinstance(self.model, Bert) and self.tokenizer is not None
        config, device = self.model.config, self.model.embedding.table.weight.device
        rows = [make_row(ids, config) for ids in self.tokenizer.encode_batch(texts)]
        self.tally.limit = config.max_len
        self.tally.n_cut += sum(row.n_cut > 0 for row in rows)
        results: dict[int, Tensor] = {}
        for numbers, ids, mask in batches(rows, pad_id=config.marks.pad_id):
            logits = self.model(ids.to(device), mask.to(device)).cpu()
            results |= {
                number: logits[place, : len(rows[number].ids)] if self.labels_tokens else logits[place]
                for place, number in enumerate(numbers)
            }
        return [results[number] for number in range(len(texts))]

    @torch.inference_mode()
    def _of_images(self, files: Sequence[str | Path]) -> list[Tensor]:
        assert isinstance(self.model, Vit)
        results: list[Tensor] = []
        for start in range(0, len(files), IMAGES_AT_ONCE):
            results += self.model(image_tensor(self.model, files[start : start + IMAGES_AT_ONCE])).cpu()
        return results

    def _ranked(self, scores: Tensor) -> list[Labelled]:
        labels = self.model.config.labels
        order = sorted(range(len(labels)), key=lambda number: -float(scores[number]))
        return [Labelled(labels[number], float(scores[number])) for number in order]


def _function(apply: str | None, *, exclusive: bool) -> Callable[[Tensor], Tensor]:
    name = apply or ("softmax" if exclusive else "sigmoid")
    if name not in FUNCTIONS:
        raise UserError(f"function_to_apply = {apply!r}: allowed are {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(dim=-1),
    "sigmoid": torch.sigmoid,
    "none": lambda logits: logits,
}
