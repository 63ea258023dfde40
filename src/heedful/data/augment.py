"""Augment sentence pairs with informal copies: without final punctuation, in lower case, or both.

Corpora consist of carefully written sentences. A model that has seen no others invents an ending for "hello world".
With this augmentation, some pairs are learnt a second time in an informal form. The target loses its final punctuation
with the source but keeps its capitals: the translation is to be correct however the source was typed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from heedful.data.corpus import Example
from heedful.data.splits import hash_sample

FINAL_PUNCTUATION = ".!?…。！？"


@dataclass(frozen=True)
class InformalCopies:
    """All examples, and after about `share` of them an informal copy; the same ones on every machine."""

    examples: Iterable[Example]
    share: float

    def __iter__(self) -> Iterator[Example]:
        is_chosen = hash_sample(self.share, salt=b"as typed")
        in_lower_case, with_punctuation = hash_sample(2 / 3, salt=b"small"), hash_sample(1 / 2, salt=b"mark")
        for example in self.examples:
            yield example
            pair = f"{example.source}\t{example.target}"
            if not is_chosen(pair):
                continue
            lower = in_lower_case(pair)  # three forms, equally frequent: no punctuation, lower case, both
            informal = example if lower and with_punctuation(pair) else strip_final_punctuation(example)
            if lower:
                informal = replace(informal, source=informal.source.lower())
            if informal != example:
                yield informal


def strip_final_punctuation(example: Example) -> Example:
    """Remove the final punctuation of both sides; change nothing if a side has none, or nothing else.

    >>> strip_final_punctuation(Example("Hello!", "Bonjour !"))
    Example(source='Hello', target='Bonjour', line=0)
    """
    source, target = (text.rstrip().rstrip(FINAL_PUNCTUATION).rstrip() for text in (example.source, example.target))
    ended = all(text.rstrip().endswith(tuple(FINAL_PUNCTUATION)) for text in (example.source, example.target))
    return replace(example, source=source, target=target) if ended and source and target else example
