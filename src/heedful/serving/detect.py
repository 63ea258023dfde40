"""Which language a text is in, by py3langid: 97 languages, a few megabytes, no network."""

from collections.abc import Sequence
from dataclasses import dataclass

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from heedful.decoding.writing.long_text import has_words
from heedful.serving.languages import base, canonical

READ = 2_000  # characters of a text that are looked at; more change nothing, and cost time
UNKNOWN = "en"  # with a confidence of 0, as LibreTranslate says it


@dataclass(frozen=True)
class Detected:
    language: str
    confidence: float  # 0 to 100


class Detector:
    """Safe to call from several threads: it only reads."""

    def __init__(self) -> None:
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def rank(self, text: str, *, most: int = 3) -> list[Detected]:
        """The likeliest languages, best first."""
        if not has_words(text):
            return [Detected(UNKNOWN, 0.0)]
        ranked = self._identifier.rank(text[:READ])
        found = [Detected(canonical(code), round(100.0 * chance, 1)) for code, chance in ranked[:most]]
        return [one for number, one in enumerate(found) if number == 0 or one.confidence > 0.0]

    def choose(self, text: str, allowed: Sequence[str]) -> Detected:
        """The likeliest of the allowed languages; with a confidence of 0 where there is nothing to go by."""
        if not has_words(text):
            return Detected(UNKNOWN if UNKNOWN in allowed else allowed[0], 0.0)
        chances = {code: 100.0 * chance for code, chance in self._identifier.rank(text[:READ])}
        best = max(allowed, key=lambda code: chances.get(base(code), 0.0))
        return Detected(best, round(chances.get(base(best), 0.0), 1))
