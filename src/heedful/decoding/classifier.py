"""Classify texts, images or the words of a text: `Classifier.load(MODEL).classify(["What a film!"])`."""

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
    Truncation,
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

Text = str | tuple[str, str]  # one text, or a pair, such as a question and a sentence that may answer it


@dataclass(frozen=True)
class Labelled:
    """A label and its probability."""

    label: str
    score: float


@dataclass(frozen=True)
class LabelledWord:
    """A word, its likeliest label and that label's probability."""

    word: str
    label: str
    score: float
    position: int  # of its first token, at which the label is predicted; the first special token has position 0


@dataclass
class Classifier:
    """A BERT or a ViT with a classification head: head = "classify" for texts and images, "tag" for words.

    [labels] = Classifier.load("runs/mood").classify(["What a film!"])
    labels[0].label, labels[0].score
    """

    model: Bert | Vit
    tokenizer: Tokenizer | None = None
    where: str = "this model"
    truncation: Truncation = field(default_factory=Truncation)

    def __post_init__(self) -> None:
        head = self.model.config.head
        if head not in ("classify", "tag"):
            raise UserError(
                f"{self.where}: has the head '{head}', but labels need head = 'classify' or, for words, head = 'tag'"
            )
        if isinstance(self.model, Bert) and self.tokenizer is None:
            raise UserError(f"{self.where}: has no tokenizer, so it cannot read text")
        self.model.eval()

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> "Classifier":
        """Load the model of a run or of a model folder."""
        folder = find_model_folder(path)
        loaded = load_model(folder, device=device)
        model = loaded.model
        if not isinstance(model, (Bert, Vit)):
            raise wrong_family(folder, loaded.family, "bert", "vit")
        tokenizer = None if loaded.tokenizers is None else loaded.tokenizers.source
        return cls(model, tokenizer, where=str(folder))

    @property
    def takes_images(self) -> bool:
        """Whether the inputs are images instead of texts."""
        return isinstance(self.model, Vit)

    @property
    def labels_words(self) -> bool:
        """Whether the model labels words (`label_words`) instead of whole inputs (`classify`)."""
        return self.model.config.head == "tag"

    def classify(self, inputs: "Sequence[Text | Picture]", *, apply: str | None = None) -> list[list[Labelled]]:
        """Return for each text, pair of texts or image all labels with their probabilities, best first.

        `apply` is the function from logits to scores: "softmax", "sigmoid" or "none"; by default "sigmoid" for a
        multi-label model, else "softmax".
        """
        if self.labels_words:
            raise UserError(f"{self.where}: labels the words of a text, not the text; use label_words")
        function = _function(apply, multi_label=self.model.config.multi_label)
        pictures = cast("Sequence[Picture]", inputs)  # for a ViT; read_image raises on other types
        logits = self._image_logits(pictures) if isinstance(self.model, Vit) else self._text_logits(inputs)
        return [self._ranked(function(row.float())) for row in logits]

    def label_words(self, texts: Sequence[str]) -> list[list[LabelledWord]]:
        """Return the most probable label of each word of each text; words are split at white space, as in training."""
        if not self.labels_words or self.tokenizer is None:
            raise UserError(f"{self.where}: labels whole inputs, not words; use classify")
        assert isinstance(self.model, Bert)
        texts_words = [text.split() for text in texts]
        texts_ids = [encode_words(self.tokenizer, words) for words in texts_words]
        rows = [make_row(list(chain.from_iterable(ids)), self.model.config) for ids in texts_ids]
        results = []
        for words, ids, logits in zip(texts_words, texts_ids, self._row_logits(rows), strict=True):
            starts = accumulate(map(len, ids), initial=1)  # training teaches the label at a word's first token only
            kept = [start for start in starts if start < len(logits) - 1]  # words that were not cut off
            results.append([self._label_word(word, logits, start) for word, start in zip(words, kept, strict=False)])
        return results

    def _label_word(self, word: str, logits: Tensor, position: int) -> LabelledWord:
        score, label_id = logits[position].float().softmax(dim=-1).max(dim=-1)
        return LabelledWord(word, self.model.config.labels[int(label_id)], float(score), position)

    def _text_logits(self, texts: "Sequence[Text | Picture]") -> list[Tensor]:
        assert isinstance(self.model, Bert) and self.tokenizer is not None
        pairs = [text if isinstance(text, tuple) else (str(text), "") for text in texts]
        firsts, seconds = (self.tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1))
        return self._row_logits(
            [
                make_pair(first, second, self.model.config)
                if isinstance(text, tuple)
                else make_row(first, self.model.config)
                for text, first, second in zip(texts, firsts, seconds, strict=True)
            ]
        )

    @torch.inference_mode()
    def _row_logits(self, rows: Sequence[Row]) -> list[Tensor]:
        assert isinstance(self.model, Bert)
        config, device = self.model.config, self.model.embedding.table.weight.device
        self.truncation.limit = config.max_len
        self.truncation.n_cut += sum(row.n_cut > 0 for row in rows)
        results: dict[int, Tensor] = {}
        for indices, ids, mask in batches(rows, pad_id=config.special_ids.pad_id):
            segments = segments_of([rows[index] for index in indices], ids.size(1), n_segments=config.n_segments)
            segments = None if segments is None else segments.to(device)
            logits = self.model(ids.to(device), mask.to(device), segments).cpu()
            results |= {
                index: logits[i, : len(rows[index].ids)] if self.labels_words else logits[i]
                for i, index in enumerate(indices)
            }
        return [results[index] for index in range(len(rows))]

    @torch.inference_mode()
    def _image_logits(self, files: "Sequence[Picture]") -> list[Tensor]:
        assert isinstance(self.model, Vit)
        results: list[Tensor] = []
        for start in range(0, len(files), IMAGES_AT_ONCE):
            results += self.model(image_tensor(self.model, files[start : start + IMAGES_AT_ONCE])).cpu()
        return results

    def _ranked(self, scores: Tensor) -> list[Labelled]:
        labels = self.model.config.labels
        order = sorted(range(len(labels)), key=lambda label_id: -float(scores[label_id]))
        return [Labelled(labels[label_id], float(scores[label_id])) for label_id in order]


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
