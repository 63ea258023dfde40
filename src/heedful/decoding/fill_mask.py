"""Predict masked tokens with a BERT: `FillMask.load(MODEL).fill("A [MASK] runs.")`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from heedful.decoding.encoder_inputs import MASK, Row, batches, make_row, masked_ids
from heedful.decoding.input_text import checked
from heedful.errors import Notice, UserError, warn
from heedful.models.bert import Bert
from heedful.models.model_info import find_model_folder
from heedful.models.model_io import load_model
from heedful.text import Tokenizer
from heedful.text.tokenizer import decode_generated


@dataclass(frozen=True)
class MaskCandidate:
    """One predicted token for one mask."""

    score: float  # its probability
    token: int
    token_text: str
    text: str  # the whole text with this token filled in; other masks are left out
    ids: tuple[int, ...]  # the model's input with this token filled in: with special tokens and the other masks


class FillMask:
    """A BERT with the head for masked language modeling, and its tokenizer.

    [candidates] = FillMask.load("runs/bert").fill("A [MASK] runs.", top_k=3)
    """

    def __init__(self, model: Bert, tokenizer: Tokenizer, *, where: str = "this model") -> None:
        if model.config.head != "masked":
            raise UserError(
                f"{where}: has the head '{model.config.head}', but predicting masked tokens needs head = "
                "'masked' (heedful train RUN --family bert --text FILE)"
            )
        mask_id = model.config.special_ids.mask_id
        if mask_id is None:
            raise UserError(f"{where}: has no mask token (special_ids.mask_id in config.json), so it cannot fill masks")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.mask_id = mask_id

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> "FillMask":
        """Load the BERT of a run or of a model folder."""
        folder = find_model_folder(path)
        loaded = load_model(folder, device=device)
        model = loaded.expect(Bert)
        if loaded.tokenizers is None:
            raise UserError(f"{folder}: has no tokenizer, so it cannot read text")
        return cls(model, loaded.tokenizers.source, where=str(folder))

    def fill(self, text: str, *, top_k: int = 5, targets: Sequence[str] | None = None) -> list[list[MaskCandidate]]:
        """Return for each [MASK] the `top_k` most probable tokens, best first; with `targets`, only of these words."""
        return self.fill_batch([text], top_k=top_k, targets=targets)[0]

    def fill_batch(
        self, texts: Sequence[str], *, top_k: int = 5, targets: Sequence[str] | None = None
    ) -> list[list[list[MaskCandidate]]]:
        """Do `fill` for several texts in batches; a UserError names the first text without a mask."""
        config = self.model.config
        if not 1 <= top_k <= config.vocab_size:
            raise UserError(f"top_k = {top_k}: must be from 1 to {config.vocab_size:,}, the size of the vocabulary")
        return self._predict(texts, top_k, None if targets is None else self._target_ids(targets))

    @torch.inference_mode()
    def _predict(
        self, texts: Sequence[str], top_k: int, target_ids: list[int] | None
    ) -> list[list[list[MaskCandidate]]]:
        config = self.model.config
        encoded = [self._encode(text, index) for index, text in enumerate(texts)]
        rows = [make_row(ids, config) for ids in encoded]
        results: list[list[list[MaskCandidate]]] = [[] for _ in texts]
        device = self.model.embedding.table.weight.device
        for indices, ids, mask in batches(rows, pad_id=config.special_ids.pad_id):
            states = self.model.hidden_states(ids.to(device), mask.to(device))
            for batch_row, index in enumerate(indices):
                row = rows[index]
                masked = [position for position, id in enumerate(row.ids) if id == self.mask_id]
                if not masked:
                    raise _no_mask(index, row.n_cut)
                probs = self.model.head(states[batch_row, masked]).float().softmax(dim=-1).cpu()  # (n_masked, V)
                results[index] = [
                    self._candidates(row.ids, position, token_probs, top_k, target_ids)
                    for position, token_probs in zip(masked, probs, strict=True)
                ]
        self._warn_if_cut(encoded, rows)
        return results

    def _warn_if_cut(self, encoded: Sequence[list[int]], rows: Sequence[Row]) -> None:
        n_cut = sum(row.n_cut > 0 for row in rows)
        if n_cut:
            texts = "1 text was" if n_cut == 1 else f"{n_cut:,} texts were"
            n_lost = sum(
                ids.count(self.mask_id) - row.ids.count(self.mask_id) for ids, row in zip(encoded, rows, strict=True)
            )
            lost = f"; {n_lost:,} {MASK} {'was' if n_lost == 1 else 'were'} cut off and not filled" if n_lost else ""
            warn(Notice(f"{texts} cut to the {self.model.config.max_len:,} tokens that the model takes{lost}"))

    def _encode(self, text: str, index: int) -> list[int]:
        ids = masked_ids(self.tokenizer, checked(text, index), mask_id=self.mask_id)
        if self.mask_id not in ids:
            raise _no_mask(index, 0)
        return ids

    def _candidates(
        self, ids: list[int], position: int, probs: torch.Tensor, top_k: int, target_ids: list[int] | None
    ) -> list[MaskCandidate]:
        if target_ids is not None:
            best = sorted(target_ids, key=lambda token: -float(probs[token]))[:top_k]
        else:
            best = probs.topk(min(top_k, len(probs))).indices.tolist()
        return [self._candidate(ids, position, int(token), float(probs[token])) for token in best]

    def _candidate(self, ids: list[int], position: int, token: int, score: float) -> MaskCandidate:
        row = (*ids[:position], token, *ids[position + 1 :])
        filled = [id for id in row[1:-1] if id != self.mask_id or id == token]
        is_known = token < self.tokenizer.vocab_size  # the embedding may have more rows than the tokenizer has pieces
        return MaskCandidate(
            score=score,
            token=token,
            token_text=(self.tokenizer.decode([token]) or self.tokenizer.pieces([token])[0]) if is_known else "",
            text=decode_generated(self.tokenizer, filled),
            ids=row,
        )

    def _target_ids(self, targets: Sequence[str]) -> list[int]:
        """Return the token of each word; of several tokens the first, with a warning, as in Hugging Face's pipeline."""
        encoded = [self.tokenizer.encode(target) for target in targets]
        if empty := [target for target, ids in zip(targets, encoded, strict=True) if not ids]:
            raise UserError(f"targets: {empty[0]!r} has no token")
        for target, ids in zip(targets, encoded, strict=True):
            if len(ids) > 1:
                first, *_ = pieces = self.tokenizer.pieces(ids)
                message = (
                    f"the target {target!r} has {len(ids)} tokens in this model ({' '.join(pieces)}), but a mask "
                    f"stands for one: the first, {first!r}, is used"
                )
                warn(Notice(message))
        return list(dict.fromkeys(ids[0] for ids in encoded))


def _no_mask(index: int, n_cut: int) -> UserError:
    if n_cut:
        return UserError(f"text {index + 1}: every {MASK} is beyond the model's maximum length; shorten the text")
    return UserError(f"text {index + 1}: has no {MASK}; write {MASK} in place of the word to predict")
