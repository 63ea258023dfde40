"""What may stand in a text where a word is hidden: `FillMask.load(MODEL).fill("A [MASK] runs.")`."""

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
    """One word for one hidden place."""

    score: float  # its probability
    token: int
    token_text: str
    text: str  # the whole, with this word in its place and what else is hidden left out
    ids: tuple[int, ...]  # the same as the model reads it: with its marks, and what else is hidden still hidden


class FillMask:
    """A BERT that was trained for hidden words, and its tokenizer."""

    def __init__(self, model: Bert, tokenizer: Tokenizer, *, where: str = "this model") -> None:
        if model.config.head != "masked":
            raise UserError(
                f"{where}: has the head '{model.config.head}', which finds no hidden words; that needs head = 'masked'"
            )
        mask_id = model.config.special_ids.mask_id
        if mask_id is None:
            raise UserError(f"{where}: has no mask token (special_ids.mask_id in config.json), so it cannot fill masks")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.mask_id = mask_id

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> "FillMask":
        folder = find_model_folder(path)
        loaded = load_model(folder, device=device)
        model = loaded.expect(Bert)
        if loaded.tokenizers is None:
            raise UserError(f"{folder}: has no tokenizer: it takes ids only, and no text")
        return cls(model, loaded.tokenizers.source, where=str(folder))

    def fill(self, text: str, *, top_k: int = 5, targets: Sequence[str] | None = None) -> list[list[Candidate]]:
        """For each [MASK] of the text the likeliest words, the best first; with `targets` only these are compared."""
        return self.fill_batch([text], top_k=top_k, targets=targets)[0]

    def fill_batch(
        self, texts: Sequence[str], *, top_k: int = 5, targets: Sequence[str] | None = None
    ) -> list[list[list[Candidate]]]:
        """`fill` for each text, in one go."""
        config = self.model.config
        if not 1 <= top_k <= config.vocab_size:
            raise UserError(f"top_k = {top_k}: must lie between 1 and the {config.vocab_size:,} pieces there are")
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
                hidden = [i for i, one in enumerate(rows[number].ids) if one == self.mask_id]
                if not hidden:
                    raise _nothing_hidden(number, rows[number].n_cut)
                shares = self.model.head(states[place, hidden]).float().softmax(dim=-1).cpu()
                results[number] = [
                    self._candidates(rows[number].ids, at, share, top_k, only)
                    for at, share in zip(hidden, shares, strict=True)
                ]
        self._say_what_was_cut(whole, rows)
        return results

    def _say_what_was_cut(self, whole: Sequence[list[int]], rows: Sequence[Row]) -> None:
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
            raise _nothing_hidden(number, 0)
        return ids

    def _candidates(
        self, ids: list[int], at: int, share: torch.Tensor, top_k: int, only: list[int] | None
    ) -> list[Candidate]:
        if only is not None:
            best = sorted(only, key=lambda number: -float(share[number]))[:top_k]
        else:
            best = share.topk(min(top_k, len(share))).indices.tolist()
        return [self._candidate(ids, at, int(number), float(share[number])) for number in best]

    def _candidate(self, ids: list[int], at: int, token: int, score: float) -> Candidate:
        hidden = self.mask_id
        row = (*ids[:at], token, *ids[at + 1 :])
        filled = [one for one in row[1:-1] if one != hidden or one == token]
        known = token < self.tokenizer.vocab_size  # a table may have spare rows
        return Candidate(
            score=score,
            token=token,
            token_text=(self.tokenizer.decode([token]) or self.tokenizer.pieces([token])[0]) if known else "",
            text=decode_generated(self.tokenizer, filled),
            ids=row,
        )

    def _target_ids(self, targets: Sequence[str]) -> list[int]:
        """The piece of each word; of one that has several, the first and a warning, as in Hugging Face's pipeline."""
        ids = [self.tokenizer.encode(target) for target in targets]
        if empty := [target for target, found in zip(targets, ids, strict=True) if not found]:
            raise UserError(f"targets: {empty[0]!r} has no token")
        for target, found in zip(targets, ids, strict=True):
            if len(found) > 1:
                first, *_ = pieces = self.tokenizer.pieces(found)
                words = (
                    f"target {target!r} is {len(found)} tokens of this model ({' '.join(pieces)}), and a hidden place "
                    f"holds one: the first, {first!r}, is compared"
                )
                warn(Notice(words))
        return list(dict.fromkeys(found[0] for found in ids))


def _nothing_hidden(number: int, n_cut: int) -> UserError:
    if n_cut:
        return UserError(
            f"text {number + 1}: every {MASK} lies beyond the length that the model takes; shorten the text"
        )
    return UserError(f"text {number + 1}: hides no word; write {MASK} where one is to be found")
