"""Translate one batch of texts of several clients, some of whom may leave, or read along while it is translated."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator

Wanted = Callable[[int], bool]  # the index of a text -> whether somebody still waits for it
Listener = Callable[[str], None]  # gets the translation of a text as far as it is written


def translate_texts(
    translator: Translator,
    texts: Sequence[str],
    settings: SearchSettings,
    *,
    wanted: Wanted = lambda number: True,
    listeners: Mapping[int, Listener] = MappingProxyType({}),
) -> list[list[Translation]]:
    """Find the n best translations of each text, in their order; none for a text that is no longer wanted.

    `listeners` has, by index of text, the function that gets what is written so far.
    """
    block = translator.translate_block(
        texts, settings, should_stop=lambda index: not wanted(index), on_partial=listeners
    )
    return list(block.outputs)
