"""Constraints on a translation that are given as text: how it begins, and words that it must or must not contain."""

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
    """Constraints as texts in the target language."""

    target_prefix: str = ""  # each translation begins with it
    target_prefixes: tuple[str, ...] = ()  # one for each text, instead of `target_prefix`
    required: tuple[str, ...] = ()  # each of these words occurs in the translation
    forbidden: tuple[str, ...] = ()  # none of these words occurs in the translation


NO_CONSTRAINTS = TextConstraints()


def pop_text_constraints(options: dict[str, Any]) -> tuple[TextConstraints, dict[str, Any]]:
    """Divide the options of a search into those that are text, and the rest; forbidden ids belong to the rest."""
    rest = dict(options)
    prefix = rest.pop("target_prefix", "")
    required, forbidden = rest.pop("required", ()), rest.get("forbidden", ())
    if not isinstance(prefix, str | list | tuple):
        raise UserError(f"target_prefix = {prefix!r}: expected a text; write a number in quotes: '\"{prefix}\"'")
    for name, value in (("required", required), ("forbidden", forbidden)):
        if not isinstance(value, list | tuple):
            raise UserError(f"{name} = {value!r}: expected a list of words")
    words = tuple(each for each in forbidden if isinstance(each, str))
    if words:
        rest["forbidden"] = [each for each in forbidden if not isinstance(each, str)]
    prefixes = () if isinstance(prefix, str) else tuple(prefix)
    constraints = TextConstraints(prefix if isinstance(prefix, str) else "", prefixes, tuple(required), words)
    for name, values in (("target_prefix", prefixes), ("required", required), ("forbidden", words)):
        for value in values:
            if not isinstance(value, str) or (name != "target_prefix" and not value.strip()):
                raise UserError(f"{name}: expected words, found {value!r}")
    if both := set(constraints.required) & set(words):
        raise UserError(f"required and forbidden: {sorted(both)[0]!r} is in both lists")
    if required and rest.get("sampling") is not None:
        raise UserError("required: words can be required of a beam only, not of samples; leave out sampling")
    return constraints, rest


class TokenConstraints:
    """Constraints in the ids of a tokenizer."""

    def __init__(self, constraints: TextConstraints, tokenizer: Tokenizer) -> None:
        self._constraints, self._tokenizer = constraints, tokenizer
        self.required = [_ids_inside(word, tokenizer) for word in constraints.required]
        banned = [
            ids
            for word in constraints.forbidden
            for ids in (_ids_inside(word, tokenizer), tokenizer.encode(word.strip()))
        ]
        self.forbidden = [list(ids) for ids in dict.fromkeys(map(tuple, banned))]
        for word, ids in zip(constraints.required, self.required, strict=True):
            if tokenizer.special_ids.unk_id in ids:
                raise UserError(f"required: the model has no token for a character of {word!r}, so it cannot write it")

    def requests(self, plan: SegmentedText, number: int, *, is_sampled: bool) -> list[Request]:
        """Make a request for each segment of text `number`. The prefix belongs to the first segment."""
        if self.required and len(plan.segments) > 1:
            raise BadText(
                number,
                f"it is translated in {len(plan.segments)} pieces, and the required words could belong to any of them; "
                "give each piece as a text of its own",
            )
        return [
            Request(
                segment.ids,
                prefix=() if index else self._prefix(number),
                required=self.required,
                forbidden=self.forbidden,
                sample_key=(number, index) if is_sampled else None,
            )
            for index, segment in enumerate(plan.segments)
        ]

    def _prefix(self, number: int) -> Sequence[int]:
        """Return the ids of the prefix, without a space at its end, which belongs to the next word."""
        prefixes = self._constraints.target_prefixes
        if prefixes and number >= len(prefixes):
            raise BadText(number, f"target_prefix: there are {len(prefixes):,} prefixes, and more texts than that")
        text = prefixes[number] if prefixes else self._constraints.target_prefix
        return self._tokenizer.encode(text.strip()) if text.strip() else ()


def _ids_inside(word: str, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a word inside of a sentence: after a space, unless its script has none."""
    word = word.strip()
    before, gap = ("。", "") if UNSPACED.match(word) else ("a", " ")
    alone, together = tokenizer.encode(before), tokenizer.encode(before + gap + word)
    return together[len(alone) :] if together[: len(alone)] == alone else tokenizer.encode(word)
