"""Check the texts of a call, and divide them into blocks."""

import re
from collections.abc import Iterable, Iterator

from heedful.errors import UserError

# The characters at which `str.splitlines`, and other programs, break lines: none of them may be inside of a line.
LINE_BREAK = re.compile("[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
# A block is translated together: it is large enough to sort its texts by length, and small enough for memory.
BLOCK_TEXTS, BLOCK_CHARACTERS = 1024, 1 << 20


class BadText(UserError):
    """A text that cannot be translated; `number` is its index among the texts of the call."""

    def __init__(self, number: int, what: str) -> None:
        self.number, self.what = number, what
        super().__init__(f"text {number + 1}: {what}")


def checked(text: str, number: int) -> str:
    """Return the text with the halves of surrogate pairs joined. A lone half is refused: UTF-8 cannot represent it."""
    if not isinstance(text, str):
        raise BadText(number, f"expected a str, found {type(text).__name__}")
    if text.isascii() or not _SURROGATE.search(text):
        return text
    lone = _LONE.search(text)
    if lone is None:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    raise BadText(
        number,
        f"character {lone.start() + 1:,} is U+{ord(lone[0]):04X}, half of a surrogate pair and no character. "
        "Was the text read as UTF-8? open(path, encoding='utf-8')",
    )


def in_blocks(
    texts: Iterable[str], *, n_texts: int = BLOCK_TEXTS, n_characters: int = BLOCK_CHARACTERS
) -> Iterator[list[str]]:
    """Yield blocks of at most `n_texts` texts; a block ends when it has `n_characters` characters."""
    block: list[str] = []
    size = 0
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise BadText(number, f"expected a str, found {type(text).__name__}")
        block.append(text)
        size += len(text)
        if len(block) >= n_texts or size >= n_characters:
            yield block
            block, size = [], 0
    if block:
        yield block
