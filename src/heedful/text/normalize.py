"""What happens to a text before it is cut into pieces. By default nothing that a reader could see.

Everything here is idempotent and takes time in proportion to the text, whatever the text (RELIABILITY M4).
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

Form = Literal["none", "nfc", "nfkc"]

# Unicode's Stream-Safe Text Format (UAX 15, section 13) allows 30 marks on one letter: more than any language writes.
_MOST_MARKS = 30
# No mark stands below U+0300, so a text without such a run has no run of marks either: most texts stop here.
_MAYBE_LONG_RUN = re.compile(f"[\u0300-\U0010ffff]{{{_MOST_MARKS + 1}}}")


@dataclass(frozen=True)
class Normalizer:
    """`normaliser(text)`: surrogates repaired, then the Unicode form, then what was asked for beyond it."""

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
        # Sorting the marks of one letter is quadratic in CPython: 40,000 of them take seconds. More marks than Unicode
        # calls safe are kept as they are; all of them, because cutting their run would not be idempotent.
        parts = _around_long_runs(text)
        parts[::2] = [unicodedata.normalize(form, part) for part in parts[::2]]
        return "".join(parts)


def _around_long_runs(text: str) -> list[str]:
    """The text in parts: at odd places a long run of marks, at even places all that is between."""
    marks = "".join(re.escape(character) for character in set(text) if _is_mark(character))
    if not marks:
        return [text]
    return re.split(f"([{marks}]{{{_MOST_MARKS + 1},}})", text)


def _is_mark(character: str) -> bool:
    # Decomposed first: a few characters (U+0F73 is one) are no marks themselves but consist of nothing else.
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


def _without_surrogates(text: str) -> str:
    """Two halves of a pair are joined; a lone one becomes U+FFFD, since no UTF-8 and so no file can hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
