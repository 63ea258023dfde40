"""Predict masked words: `FillMask.load(MODEL).fill("A [MASK] runs.")`."""

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
class Candidate:
    """One word for one mask."""

    score: float  # the probability
    token: int
    token_text: str
    text: str  # the whole text with this word; other masks are left out
    ids: tuple[int, ...]  # of the text as the model reads it: with special tokens and other masks


class FillMask:
    """A BERT that was trained to predict masked words, and its tokenizer."""

    def __init__(self, model: Bert, tokenizer: Tokenizer, *, where: str = "this model") -> None:
        if model.config.head != "masked":
            raise UserError(
                f"{where}: has the head '{model.config.head}', which predicts no masked words; that needs head = "
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
        """Load the model of a run or a model folder."""
        folder = find_model_folder(path)
        loaded = load_model(folder, device=device)
        model = loaded.expect(Bert)
        if loaded.tokenizers is None:
            raise UserError(f"{folder}: has no tokenizer: it takes ids only, and no text")
        return cls(model, loaded.tokenizers.source, where=str(folder))

    def fill(self, text: str, *, top_k: int = 5, targets: Sequence[str] | None = None) -> list[list[Candidate]]:
        """Return for each [MASK] the `top_k` most probable words; with `targets`, only these are compared."""
        return self.fill_batch([text], top_k=top_k, targets=targets)[0]

    def fill_batch(
        self, texts: Sequence[str], *, top_k: int = 5, targets: Sequence[str] | None = None
    ) -> list[list[list[Candidate]]]:
        """Do the same for several texts together."""
        config = self.model.config
        if not 1 <= top_k <= config.vocab_size:
            raise UserError(f"top_k = {top_k}: must lie between 1 and {config.vocab_size:,}, the vocabulary size")
        return self._filled(texts, top_k, None if targets is None else self._target_ids(targets))

    @torch.inference_mode()
    def _filled(self, texts: Sequence[str], top_k: int, only: list[int] | None) -> list[list[list[Candidate]]]:
        config = self.model.config
        whole = [self._ids(text, number) for number, text in enumerate(texts)]
        rows = [make_row(ids, config) for ids in whole]
        results: list[list[list[Candidate]]] = [[] for _ in texts]
        device = self.model.embedding.table.weight.device
        for numbers, ids, mask in batches(rows, pad_id=config.special_ids.pad_id):
            states = self.model.hidden_states(ids.to(device), mask.to(device))
            for place, number in enumerate(numbers):
                masked = [i for i, id in enumerate(rows[number].ids) if id == self.mask_id]
                if not masked:
                    raise _no_mask(number, rows[number].n_cut)
                probabilities = self.model.head(states[place, masked]).float().softmax(dim=-1).cpu()
                results[number] = [
                    self._candidates(rows[number].ids, at, row, top_k, only)
                    for at, row in zip(masked, probabilities, strict=True)
                ]
        self._warn_if_cut(whole, rows)
        return results

    def _warn_if_cut(self, whole: Sequence[list[int]], rows: Sequence[Row]) -> None:
        n_cut = sum(row.n_cut > 0 for row in rows)
        if n_cut:
            texts = "1 text was" if n_cut == 1 else f"{n_cut:,} texts were"
            n_lost = sum(
                ids.count(self.mask_id) - row.ids.count(self.mask_id) for ids, row in zip(whole, rows, strict=True)
            )
            lost = f", and {n_lost:,} {MASK} {'is' if n_lost == 1 else 'are'} not among them" if n_lost else ""
            warn(Notice(f"{texts} cut to the {self.model.config.max_len:,} tokens that the model takes{lost}"))

    def _ids(self, text: str, number: int) -> list[int]:
        ids = masked_ids(self.tokenizer, checked(text, number), mask_id=self.mask_id)
        if self.mask_id not in ids:
            raise _no_mask(number, 0)
        return ids

    def _candidates(
        self, ids: list[int], at: int, probabilities: torch.Tensor, top_k: int, only: list[int] | None
    ) -> list[Candidate]:
        if only is not None:
            best = sorted(only, key=lambda number: -float(probabilities[number]))[:top_k]
        else:
            best = probabilities.topk(min(top_k, len(probabilities))).indices.tolist()
        return [self._candidate(ids, at, int(number), float(probabilities[number])) for number in best]

    def _candidate(self, ids: list[int], at: int, token: int, score: float) -> Candidate:
        mask_id = self.mask_id
        row = (*ids[:at], token, *ids[at + 1 :])
        filled = [id for id in row[1:-1] if id != mask_id or id == token]
        known = token < self.tokenizer.vocab_size  # an embedding may have spare rows
        return Candidate(
            score=score,
            token=token,
            token_text=(self.tokenizer.decode([token]) or self.tokenizer.pieces([token])[0]) if known else "",
            text=decode_generated(self.tokenizer, filled),
            ids=row,
        )

    def _target_ids(self, targets: Sequence[str]) -> list[int]:
        """Return the token of each word; of several tokens the first, with a warning, as in Hugging Face's pipeline."""
        ids = [self.tokenizer.encode(target) for target in targets]
        if empty := [target for target, found in zip(targets, ids, strict=True) if not found]:
            raise UserError(f"targets: {empty[0]!r} has no token")
        for target, found in zip(targets, ids, strict=True):
            if len(found) > 1:
                first, *_ = pieces = self.tokenizer.pieces(found)
                words = (
                    f"target {target!r} is {len(found)} tokens of this model ({' '.join(pieces)}), and a mask stands "
                    f"for one token: the first, {first!r}, is compared"
                )
                warn(Notice(words))
        return list(dict.fromkeys(found[0] for found in ids))


def _no_mask(number: int, n_cut: int) -> UserError:
    if n_cut:
        return UserError(f"text {number + 1}: every {MASK} is beyond the length that the model takes; shorten the text")
    return UserError(f"text {number + 1}: has no mask; write {MASK} in place of a word")
