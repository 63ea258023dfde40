"""Sentences as people type them: without the mark at the end, in small letters, or both.

Corpora consist of sentences that somebody has written with care. A model that has never seen another kind makes up an
end for "hello world". So some pairs are learned once more in such a form. The target loses its mark with the source,
and keeps its capitals: it is to be right whatever was typed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from heedful.data.corpus import Example
from heedful.data.splits import hash_sample

MARKS = ".!?…。！？"


@dataclass(frozen=True)
class InformalCopies:
    """All examples; after about this share of them, the same ones on every machine, the pair once more, as typed."""

    examples: Iterable[Example]
    share: float

    def __iter__(self) -> Iterator[Example]:
        is_chosen = hash_sample(self.share, salt=b"as typed")
        in_small_letters, with_mark = hash_sample(2 / 3, salt=b"small"), hash_sample(1 / 2, salt=b"mark")
        for example in self.examples:
            yield example
            pair = f"{example.source}\t{example.target}"
            if not is_chosen(pair):
                continue
            small = in_small_letters(pair)  # three ways, each as often: no mark, small letters, both
            typed = example if small and with_mark(pair) else strip_final_punctuation(example)
            if small:
                typed = replace(typed, source=typed.source.lower())
            if typed != example:
                yield typed


def strip_final_punctuation(example: Example) -> Example:
    """Without the marks that end both sides; as it is where one side has none, or nothing else."""
    source, target = (text.rstrip().rstrip(MARKS).rstrip() for text in (example.source, example.target))
    ended = all(text.rstrip().endswith(tuple(MARKS)) for text in (example.source, example.target))
    return replace(example, source=source, target=target) if ended and source and target else example
