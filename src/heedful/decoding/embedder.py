"""Embeddings of texts and images: `Embedder.load(MODEL).embed(["A dog runs."])`; or one vector for each token."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from heedful.decoding.encoder_inputs import IMAGES_AT_ONCE, Row, Truncation, batches, image_tensor
from heedful.errors import UserError
from heedful.models.bert import Bert
from heedful.models.gpt import Gpt
from heedful.models.model_info import find_model_folder
from heedful.models.model_io import Model, load_model
from heedful.models.vit import Vit
from heedful.nn.heads import ClassificationHead, MaskedHead, Pooler
from heedful.text import Tokenizer

Pool = Literal["mean", "class", "pooler"]


class Embedder:
    """A model of any family as an encoder: the hidden states of BERT, ViT or GPT, the memory of an encoder-decoder.

    embedder = Embedder.load("runs/bert")
    vectors = embedder.embed(["A dog runs.", "Two cats sleep."])  # (2, D)
    """

    def __init__(self, model: Model, tokenizer: Tokenizer | None, *, where: str = "this model") -> None:
        if tokenizer is None and not isinstance(model, Vit):
            raise UserError(f"{where}: has no tokenizer, so it cannot read text")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.where = where
        self.truncation = Truncation(limit=getattr(model.config, "max_len", 0))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> "Embedder":
        """Load the model of a run or of a model folder."""
        folder = find_model_folder(path)
        loaded = load_model(folder, device=device)
        return cls(loaded.model, loaded.tokenizers.source if loaded.tokenizers else None, where=str(folder))

    @property
    def takes_images(self) -> bool:
        """Whether the inputs are image files instead of texts."""
        return isinstance(self.model, Vit)

    @property
    def width(self) -> int:
        """The size of a vector."""
        return int(self.model.config.d_model)

    def check(self, pool: Pool) -> None:
        """Raise a UserError if the model does not have this kind of pooling."""
        if pool == "class" and not isinstance(self.model, (Bert, Vit)):
            raise UserError(f"{self.where}: has no class token for pool = 'class'; use 'mean'")
        if pool == "pooler" and self._pooler() is None:
            raise UserError(f"{self.where}: has no pooler for pool = 'pooler'; use 'mean' or 'class'")

    @torch.no_grad()
    def embed(self, inputs: Sequence[str | Path], *, pool: Pool = "mean") -> Tensor:
        """Return a vector for each text or image file: (N, D) float32. The mean includes the special tokens."""
        self.check(pool)
        vectors = torch.empty(len(inputs), self.width)
        if isinstance(self.model, Vit):
            for start in range(0, len(inputs), IMAGES_AT_ONCE):
                states = self.model.hidden_states(image_tensor(self.model, inputs[start : start + IMAGES_AT_ONCE]))
                vectors[start : start + len(states)] = self._pooled(states, None, pool)
            return vectors
        rows = self._rows([str(text) for text in inputs])
        for indices, ids, mask in batches(rows, pad_id=self.model.config.special_ids.pad_id):
            states, mask = self._states(ids, mask)
            vectors[indices] = self._pooled(states, mask, pool)
        return vectors

    @torch.no_grad()
    def embed_tokens(self, texts: Sequence[str]) -> list[tuple[list[str], Tensor]]:
        """Return for each text its tokens, with special tokens, and their contextual vectors: (T, D) float32."""
        if isinstance(self.model, Vit) or self.tokenizer is None:
            raise UserError(f"{self.where}: takes images, which have no tokens; use pool = 'mean' or 'class'")
        rows = self._rows(texts)
        vectors: dict[int, Tensor] = {}
        for indices, ids, mask in batches(rows, pad_id=self.model.config.special_ids.pad_id):
            states, _ = self._states(ids, mask)
            vectors |= {index: states[i, : len(rows[index].ids)].float().cpu() for i, index in enumerate(indices)}
        return [(self.tokenizer.pieces(row.ids), vectors[index]) for index, row in enumerate(rows)]

    def _rows(self, texts: Sequence[str]) -> list[Row]:
        assert self.tokenizer is not None
        rows = [self._row(ids) for ids in self.tokenizer.encode_batch(texts)]
        self.truncation.n_cut += sum(row.n_cut > 0 for row in rows)
        return rows

    def _row(self, ids: list[int]) -> Row:
        """Add the special tokens of the family to a text, and cut it to the model's maximum length."""
        assert not isinstance(self.model, Vit) and self.tokenizer is not None
        special_ids = self.model.config.special_ids
        if isinstance(self.model, Bert):
            before, after = [special_ids.bos_id], [special_ids.eos_id]
        elif isinstance(self.model, Gpt):
            ids, before, after = special_ids.with_bos(ids), [], []
        else:
            before, after = [*special_ids.with_source_bos([])], [special_ids.eos_id]
        room = (getattr(self.model.config, "max_len", None) or len(ids) + 2) - len(before) - len(after)
        return Row([*before, *ids[:room], *after], n_cut=max(0, len(ids) - room))

    def _states(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        device = next(self.model.parameters()).device
        ids, mask = ids.to(device), mask.to(device)
        if isinstance(self.model, (Bert, Gpt)):
            return self.model.hidden_states(ids, mask), mask
        assert not isinstance(self.model, Vit)
        return self.model.encode(ids, mask).states[-1], mask

    def _pooled(self, states: Tensor, mask: Tensor | None, pool: Pool) -> Tensor:
        """Pool states (B, T, D), masked by (B, T), into vectors (B, D) on the CPU."""
        pooler = self._pooler()
        if pool == "pooler" and pooler is not None:
            vectors = pooler(states)
        elif pool == "class":
            vectors = states[:, 0]
        elif mask is None:
            vectors = states.mean(dim=1)
        else:
            vectors = (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        result: Tensor = vectors.float().cpu()
        return result

    def _pooler(self) -> Pooler | None:
        head = self.model.head
        if isinstance(head, Pooler):
            return head
        return head.pooler if isinstance(head, (ClassificationHead, MaskedHead)) else None
