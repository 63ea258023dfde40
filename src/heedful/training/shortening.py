"""Extract, then write: a source that is too long is reduced to its most important sentences before it is learned from.

By the rule of `heedful summarize --long extract`, so that a model meets in training what it will be given later: whole
sentences, in their order, as many as fit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from heedful.data.corpus import Example
from heedful.decoding.writing.long_text import Planner
from heedful.models.find import Reach
from heedful.text import Tokenizer
from heedful.training.settings import Settings


class Extractor:
    """Text in, text out; short ones as they are. Counts what it reduced."""

    def __init__(self, tokenizer: Tokenizer, *, max_len: int, language: str = "en") -> None:
        self._planner = Planner(tokenizer, Reach(max_len), long="extract", language=language)
        self.language = language
        self.n_reduced = 0

    def __call__(self, text: str) -> str:
        [plan], tally = self._planner.plan([text])
        if not tally.n_extracted or not plan.pieces:  # nothing of it fits: the loader leaves it out, and says so
            return text
        self.n_reduced += 1
        return " ".join(piece.text for piece in plan.pieces)


@dataclass(frozen=True)
class Reduced:
    """Examples whose sources went through an extractor."""

    examples: Iterable[Example]
    extract: Extractor

    def __iter__(self) -> Iterator[Example]:
        return (replace(example, source=self.extract(example.source)) for example in self.examples)


def extractor_of(settings: Settings, tokenizer: Tokenizer, *, language: str, n_marks: int = 0) -> Extractor | None:
    """The extractor that a run wants; None: long sources are left out. `n_marks` stand before each source."""
    data = settings.data
    if data.long != "extract":
        return None
    return Extractor(tokenizer, max_len=data.max_len - n_marks, language=language)
