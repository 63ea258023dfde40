"""Label texts, pairs of texts, images or words: `Classifier.load(MODEL).classify(["What a film!"])`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from heedful.decoding.encoder_inputs import (
    IMAGES_AT_ONCE,
    Row,
    Tally,
    batches,
    encode_words,
    image_tensor,
    make_pair,
    make_row,
    segments_of,
)
from heedful.errors import UserError
from heedful.models.bert import Bert
from heedful.models.model_info import find_model_folder, wrong_family
from heedful.models.model_io import load_model
from heedful.models.vit import Vit
from heedful.text import Tokenizer

if TYPE_CHECKING:
    from heedful.data.images import Picture

Text = str | tuple[str, str]  # a text, or a pair such as a question and a possible answer


@dataclass(frozen=True)
class Labelled:
    """A label and its probability."""

    label: str
    score: float


@dataclass(frozen=True)
class LabelledWord:
    """A word, its most probable label, and the probability."""

    word: str
    label: str
    score: float
    position: int  # of its first token, which the label is predicted from; the start token is at 0


@dataclass
class Classifier:
    """A BERT or ViT with a head for labels.

    `tally` counts the texts that were cut to the model's length.
    """

    model: Bert | Vit
    tokenizer: Tokenizer | None = None
    where: str = "this model"
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        head = self.model.config.head
        if head not in ("classify", "tag"):
            raise UserError(
                f"{self.where}: has the head '{head}', which predicts no labels; that needs head = 'classify' or 'tag'"
            )
        if isinstance(self.model, Bert) and self.tokenizer is None:
            raise UserError(f"{self.where}: has no tokenizer: it takes ids only, and no text")
        self.model.eval()

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> "Classifier":
        """Load the model of a run or a model folder."""
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
        return self.model.config.head == "tag"

    def classify(self, inputs: "Sequence[Text | Picture]", *, apply: str | None = None) -> list[list[Labelled]]:
        """Return for each text, pair of texts or image every label with its probability, the most probable first.

        `apply` is the function from logits to scores: "softmax", "sigmoid" or "none"; by default that of the training.
        """
        if self.labels_tokens:
            raise UserError(f"{self.where}: labels each word of a text, not the text; use label_words")
        function = _function(apply, multi_label=self.model.config.multi_label)
        pictures = cast("Sequence[Picture]", inputs)  # reading them refuses anything else
        logits = self._of_images(pictures) if isinstance(self.model, Vit) else self._of_texts(inputs)
        return [self._sorted(function(row.float())) for row in logits]

    def label_words(self, texts: Sequence[str]) -> list[list[LabelledWord]]:
        """Return the most probable label of each word of each text; words are separated by white space."""
        if not self.labels_tokens or self.tokenizer is None:
            raise UserError(f"{self.where}: has one label for a whole text; use classify")
        assert isinstance(self.model, Bert)
        words = [text.split() for text in texts]
        encoded = [encode_words(self.tokenizer, some) for some in words]
        rows = [make_row(list(chain.from_iterable(ids)), self.model.config) for ids in encoded]
        results = []
        for some, ids, logits in zip(words, encoded, self._of_rows(rows), strict=True):
            positions = list(accumulate(map(len, ids), initial=1))  # a word's first token predicts its label
            positions = [position for position in positions if position < len(logits) - 1]
            results.append([self._of_word(word, logits, at) for word, at in zip(some, positions, strict=False)])
        return results

    def _of_word(self, word: str, logits: Tensor, position: int) -> LabelledWord:
        score, index = logits[position].float().softmax(dim=-1).max(dim=-1)
        return LabelledWord(word, self.model.config.labels[int(index)], float(score), position)

    def _of_texts(self, texts: "Sequence[Text | Picture]") -> list[Tensor]:
        assert isinstance(self.model, Bert) and self.tokenizer is not None
        pairs = [text if isinstance(text, tuple) else (str(text), "") for text in texts]
        firsts, seconds = (self.tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1))
        return self._of_rows(
            [
                make_pair(first, second, self.model.config)
                if isinstance(text, tuple)
                else make_row(first, self.model.config)
                for text, first, second in zip(texts, firsts, seconds, strict=True)
            ]
        )

    @torch.inference_mode()
    def _of_rows(self, rows: Sequence[Row]) -> list[Tensor]:
        assert isinstance(self.model, Bert)
        config, device = self.model.config, self.model.embedding.table.weight.device
        self.tally.limit = config.max_len
        self.tally.n_cut += sum(row.n_cut > 0 for row in rows)
        results: dict[int, Tensor] = {}
        for indices, ids, mask in batches(rows, pad_id=config.special_ids.pad_id):
            segments = segments_of([rows[index] for index in indices], ids.size(1), n_segments=config.n_segments)
            segments = None if segments is None else segments.to(device)
            logits = self.model(ids.to(device), mask.to(device), segments).cpu()
            results |= {
                index: logits[i, : len(rows[index].ids)] if self.labels_tokens else logits[i]
                for i, index in enumerate(indices)
            }
        return [results[index] for index in range(len(rows))]

    @torch.inference_mode()
    def _of_images(self, files: "Sequence[Picture]") -> list[Tensor]:
        assert isinstance(self.model, Vit)
        results: list[Tensor] = []
        for start in range(0, len(files), IMAGES_AT_ONCE):
            results += self.model(image_tensor(self.model, files[start : start + IMAGES_AT_ONCE])).cpu()
        return results

    def _sorted(self, scores: Tensor) -> list[Labelled]:
        labels = self.model.config.labels
        order = sorted(range(len(labels)), key=lambda number: -float(scores[number]))
        return [Labelled(labels[number], float(scores[number])) for number in order]


def _function(apply: str | None, *, multi_label: bool) -> Callable[[Tensor], Tensor]:
    name = apply or ("sigmoid" if multi_label else "softmax")
    if name not in FUNCTIONS:
        raise UserError(f"function_to_apply = {apply!r}: allowed are {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(dim=-1),
    "sigmoid": torch.sigmoid,
    "none": lambda logits: logits,
}
