"""What a translation must begin with, must hold and must not hold, given as text: into the ids that a search knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heedful.decoding.input_text import BadText
from heedful.decoding.search.request import Request
from heedful.decoding.segmentation import UNSPACED, SegmentedText
from heedful.errors import UserError
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextConstraints:
    """Texts in the target language."""

    target_prefix: str = ""  # what each translation begins with
    target_prefixes: tuple[str, ...] = ()  # one for each text, in place of it
    required: tuple[str, ...] = ()  # each must be in it somewhere
    forbidden: tuple[str, ...] = ()  # none may be in it


NO_CONSTRAINTS = TextConstraints()


def pop_text_constraints(options: dict[str, Any]) -> tuple[TextConstraints, dict[str, Any]]:
    """What of the options of a search is text, and the rest; ids that are forbidden belong to the rest."""
    rest = dict(options)
    prefix = rest.pop("target_prefix", "")
    required, forbidden = rest.pop("required", ()), rest.get("forbidden", ())
    if not isinstance(prefix, str | list | tuple):
        raise UserError(f"target_prefix = {prefix!r}: expected a text; numbers stand in quotes: '\"{prefix}\"'")
    for name, value in (("required", required), ("forbidden", forbidden)):
        if not isinstance(value, list | tuple):
            raise UserError(f"{name} = {value!r}: expected a list of words")
    words = tuple(one for one in forbidden if isinstance(one, str))
    if words:
        rest["forbidden"] = [one for one in forbidden if not isinstance(one, str)]
    each = () if isinstance(prefix, str) else tuple(prefix)
    wording = TextConstraints(prefix if isinstance(prefix, str) else "", each, tuple(required), words)
    for name, values in (("target_prefix", each), ("required", required), ("forbidden", words)):
        for value in values:
            if not isinstance(value, str) or (name != "target_prefix" and not value.strip()):
                raise UserError(f"{name}: expected words, found {value!r}")
    if both := set(wording.required) & set(words):
        raise UserError(f"required and forbidden: {sorted(both)[0]!r} stands in both")
    if required and rest.get("sampling") is not None:
        raise UserError("required: words can be required of a beam only, not of draws; leave out sampling")
    return wording, rest


class TokenConstraints:
    """A wording in the ids of one tokenizer."""

    def __init__(self, wording: TextConstraints, tokenizer: Tokenizer) -> None:
        self.wording, self._tokenizer = wording, tokenizer
        self.required = [_inside(word, tokenizer) for word in wording.required]
        runs = [ids for word in wording.forbidden for ids in (_inside(word, tokenizer), tokenizer.encode(word.strip()))]
        self.forbidden = [list(run) for run in dict.fromkeys(map(tuple, runs))]
        for word, ids in zip(wording.required, self.required, strict=True):
            if tokenizer.special_ids.unk_id in ids:
                raise UserError(f"required: the model has no token for a character of {word!r}, so it cannot write it")

    def requests(self, plan: SegmentedText, number: int, *, drawn: bool) -> list[Request]:
        """One for each piece of text `number`. The prefix belongs to the first piece."""
        if self.required and len(plan.pieces) > 1:
            raise BadText(
                number,
                f"it is translated in {len(plan.pieces)} pieces, and nobody knows which of them the required words "
                "belong to; give each as a text of its own",
            )
        return [
            Request(
                piece.ids,
                prefix=() if at else self._prefix(number),
                required=self.required,
                forbidden=self.forbidden,
                sample_key=(number, at) if drawn else None,
            )
            for at, piece in enumerate(plan.pieces)
        ]

    def _prefix(self, number: int) -> Sequence[int]:
        """A translation begins as every text does; the blank after the prefix belongs to the word that follows."""
        wording = self.wording
        if wording.target_prefixes and number >= len(wording.target_prefixes):
            raise BadText(
                number, f"target_prefix: there are {len(wording.target_prefixes):,}, and more texts than that"
            )
        text = wording.target_prefixes[number] if wording.target_prefixes else wording.target_prefix
        return self._tokenizer.encode(text.strip()) if text.strip() else ()


def _inside(word: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a word as it stands inside of a sentence: after a blank, unless its script has none."""
    word = word.strip()
    before, gap = ("。", "") if UNSPACED.match(word) else ("a", " ")
    alone, together = tokenizer.encode(before), tokenizer.encode(before + gap + word)
    return together[len(alone) :] if together[: len(alone)] == alone else tokenizer.encode(word)
