"""Normalize text before it is split into pieces: Unicode form, lower case, whitespace.

Normalizing twice changes nothing, and the time is proportional to the length of the text, whatever the text.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

Form = Literal["none", "nfc", "nfkc"]

# Unicode's Stream-Safe Text Format (UAX 15, section 13) allows 30 combining marks on one letter, more than any language
# uses.
_MOST_MARKS = 30
# All combining marks are at U+0300 or above. Most texts have no run of such characters, and so no run of marks.
_MAYBE_LONG_RUN = re.compile(f"[\u0300-\U0010ffff]{{{_MOST_MARKS + 1}}}")


@dataclass(frozen=True)
class Normalizer:
    """Normalizes text when called: repairs surrogates, applies the Unicode form, then the other options.

    >>> Normalizer(form="nfkc", lowercase=True)("ﬁne Café")
    'fine café'
    """

    form: Form = "nfc"
    lowercase: bool = False
    collapse_spaces: bool = False

    def __call__(self, text: str) -> str:
        text = self._formed(_without_surrogates(text))
        if self.lowercase:
            text = self._formed(text.lower())  # lower() can take a text out of its form: "İ" becomes two characters
        if self.collapse_spaces:
            text = " ".join(text.split())
        return text

    def _formed(self, text: str) -> str:
        if self.form == "none" or text.isascii():
            return text
        form: Literal["NFC", "NFKC"] = "NFC" if self.form == "nfc" else "NFKC"
        if not _MAYBE_LONG_RUN.search(text):
            return unicodedata.normalize(form, text)
        # CPython sorts the marks of one letter in quadratic time: 40,000 of them take seconds. A run of more marks than
        # Unicode calls safe is kept as it is; as a whole, because shortening it would not be idempotent.
        parts = _around_long_runs(text)
        parts[::2] = [unicodedata.normalize(form, part) for part in parts[::2]]
        return "".join(parts)


def _around_long_runs(text: str) -> list[str]:
    """Split a text at its long runs of marks: the runs are at odd indices, the text between them at even ones."""
    marks = "".join(re.escape(character) for character in set(text) if _is_mark(character))
    if not marks:
        return [text]
    return re.split(f"([{marks}]{{{_MOST_MARKS + 1},}})", text)


def _is_mark(character: str) -> bool:
    # Decompose first: a few characters, such as U+0F73, do not count as combining marks but decompose into them.
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


def _without_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
