"""What a model did to the texts of a call: how many were split, cut or kept, and the warnings that follow from it."""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple


class OutputNoun(NamedTuple):
    """How warnings name what a model writes."""

    one: str
    several: str
    done: str
    option: str  # that allows more tokens

    def were(self, n: int) -> str:
        return f"{n:,} {self.one} was" if n == 1 else f"{n:,} {self.several} were"


TRANSLATIONS = OutputNoun("translation", "translations", "translated", "max_len")
SUMMARIES = OutputNoun("summary", "summaries", "summarised", "max_len")


@dataclass(frozen=True)
class DecodingStats:
    """Counts of texts beyond the model's length, and of results that were cut off; they can be added up."""

    limit: int = 0  # source tokens that the model takes at once
    n_split: int = 0
    n_truncated: int = 0
    n_cut_tokens: int = 0
    n_extracted: int = 0
    n_sentences: int = 0  # of the extracted lines
    n_kept: int = 0  # sentences of the extracted lines
    n_beyond: int = 0  # texts with a segment of more source tokens than the model was trained for
    n_copied: int = 0  # characters that alone have more tokens than the model takes
    max_len: int = 0  # target tokens that the model was trained for
    n_cut: int = 0  # texts with a result that ended at the length limit
    first_cut: int | None = None  # the index of the first of them
    n_far: int = 0  # texts with a result of more than `max_len` tokens
    first_far: int | None = None

    def __add__(self, other: "DecodingStats") -> "DecodingStats":
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        largest = {name: max(getattr(self, name), getattr(other, name)) for name in ("limit", "max_len")}
        return DecodingStats(
            **sums,
            **largest,
            first_cut=_first(self.first_cut, other.first_cut),
            first_far=_first(self.first_far, other.first_far),
        )

    def warnings(self, *, of: str = "text", written: OutputNoun = TRANSLATIONS) -> list[str]:
        """Return a warning for everything that is missing in the output, or may be poor.

        `of` is what the indices count: "text" of a call, "line" of a file.
        """
        words = self._source_warnings(written)
        if self.first_cut is not None:
            words.append(
                f"{written.were(self.n_cut)} cut off at the length limit, without an end: "
                f"{_which(of, self.first_cut, self.n_cut)}. Allow more tokens with {written.option}, as far as the "
                f"model's positions go; shorter texts have shorter {written.several}"
            )
        if self.first_far is not None:
            words.append(
                f"{written.were(self.n_far)} longer than the {self.max_len:,} tokens that the model was trained for: "
                f"{_which(of, self.first_far, self.n_far)}. It has not learned positions beyond, and the {written.one} "
                "may be poor there"
            )
        return words

    def _source_warnings(self, written: OutputNoun) -> list[str]:
        words = []
        if self.n_truncated:
            words.append(
                f"{_lines(self.n_truncated)} cut to the {self.limit:,} tokens that the model takes; "
                f"{self.n_cut_tokens:,} tokens were not {written.done}"
            )
        if self.n_extracted:
            words.append(
                f"{_lines(self.n_extracted)} reduced to the most important sentences, "
                f"{self.n_kept:,} of {self.n_sentences:,}, so that they fit into {self.limit:,} tokens"
            )
        if self.n_beyond:
            words.append(
                f"{_lines(self.n_beyond)} {written.done} whole beyond the {self.max_len:,} tokens that the model was "
                f"trained for: it has not learned positions beyond, and the {written.one} may be poor there"
            )
        if self.n_copied:
            words.append(
                f"{self.n_copied:,} characters copied, not {written.done}: each alone has more tokens than the "
                f"{self.limit:,} that the model takes"
            )
        return words


_COUNTS = tuple(field.name for field in dataclasses.fields(DecodingStats) if field.name.startswith("n_"))


def _first(a: int | None, b: int | None) -> int | None:
    return min((index for index in (a, b) if index is not None), default=None)


def _lines(n: int) -> str:
    return f"{n:,} line was" if n == 1 else f"{n:,} lines were"


def _which(of: str, first: int, n: int) -> str:
    return f"that of {of} {first + 1:,}" if n == 1 else f"the first is that of {of} {first + 1:,}"
