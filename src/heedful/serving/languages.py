"""Language codes in the spellings of clients, English names of languages, and language detection by py3langid."""

from collections.abc import Sequence
from dataclasses import dataclass

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from heedful.decoding.segmentation import has_words

# Other spellings of codes -> the spelling of responses. Case is ignored.
ALIASES = {"pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant", "zh-cn": "zh-Hans", "zh-tw": "zh-Hant", "iw": "he"}

NAMES = {
    "af": "Afrikaans",
    "am": "Amharic",
    "an": "Aragonese",
    "ar": "Arabic",
    "as": "Assamese",
    "az": "Azerbaijani",
    "be": "Belarusian",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "br": "Breton",
    "bs": "Bosnian",
    "ca": "Catalan",
    "cs": "Czech",
    "cy": "Welsh",
    "da": "Danish",
    "de": "German",
    "dz": "Dzongkha",
    "el": "Greek",
    "en": "English",
    "eo": "Esperanto",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fo": "Faroese",
    "fr": "French",
    "ga": "Irish",
    "gl": "Galician",
    "gu": "Gujarati",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "ht": "Haitian Creole",
    "hu": "Hungarian",
    "hy": "Armenian",
    "id": "Indonesian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "jv": "Javanese",
    "ka": "Georgian",
    "kk": "Kazakh",
    "km": "Khmer",
    "kn": "Kannada",
    "ko": "Korean",
    "ku": "Kurdish",
    "ky": "Kyrgyz",
    "la": "Latin",
    "lb": "Luxembourgish",
    "lo": "Lao",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mg": "Malagasy",
    "mk": "Macedonian",
    "ml": "Malayalam",
    "mn": "Mongolian",
    "mr": "Marathi",
    "ms": "Malay",
    "mt": "Maltese",
    "my": "Burmese",
    "nb": "Norwegian Bokmål",
    "ne": "Nepali",
    "nl": "Dutch",
    "nn": "Norwegian Nynorsk",
    "no": "Norwegian",
    "oc": "Occitan",
    "or": "Odia",
    "pa": "Punjabi",
    "pl": "Polish",
    "ps": "Pashto",
    "pt": "Portuguese",
    "pt-BR": "Portuguese (Brazil)",
    "qu": "Quechua",
    "ro": "Romanian",
    "ru": "Russian",
    "rw": "Kinyarwanda",
    "se": "Northern Sami",
    "si": "Sinhala",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tl": "Tagalog",
    "tr": "Turkish",
    "ug": "Uyghur",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "vo": "Volapük",
    "wa": "Walloon",
    "xh": "Xhosa",
    "zh-Hans": "Chinese",
    "zh-Hant": "Chinese (traditional)",
    "zu": "Zulu",
}
BY_LOWER_CASE = {code.lower(): code for code in NAMES}  # "pt-br" -> "pt-BR"


def canonical(code: str) -> str:
    """Normalize a language code: "ZH" becomes "zh-Hans", "PT-br" becomes "pt-BR", an unknown code lower case."""
    lower = code.strip().replace("_", "-").lower()
    return ALIASES.get(lower) or BY_LOWER_CASE.get(lower, lower)


def name_of(code: str) -> str:
    """Return the English name of a language, or its code if the name is unknown."""
    return NAMES.get(code, code)


def base(code: str) -> str:
    """Return the language without script or region, as detectors use it: "zh-Hans" becomes "zh"."""
    return code.split("-")[0]


READ = 2_000  # characters of a text that the detector reads; more take time and do not change the result
UNKNOWN = "en"  # reported with a confidence of 0, as LibreTranslate does


@dataclass(frozen=True)
class Detected:
    """A detected language."""

    language: str
    confidence: float  # 0 to 100


class Detector:
    """Detects the language of a text. Several threads may use it at the same time."""

    def __init__(self) -> None:
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def rank(self, text: str, *, most: int = 3) -> list[Detected]:
        """Return the likeliest languages, best first."""
        if not has_words(text):
            return [Detected(UNKNOWN, 0.0)]
        ranked = self._identifier.rank(text[:READ])
        best = [Detected(canonical(code), round(100.0 * probability, 1)) for code, probability in ranked[:most]]
        return [detected for index, detected in enumerate(best) if index == 0 or detected.confidence > 0.0]

    def choose(self, text: str, allowed: Sequence[str]) -> Detected:
        """Return the likeliest of the allowed languages; for a text without words, one with a confidence of 0."""
        if not has_words(text):
            return Detected(UNKNOWN if UNKNOWN in allowed else allowed[0], 0.0)
        percentages = {code: 100.0 * probability for code, probability in self._identifier.rank(text[:READ])}
        best = max(allowed, key=lambda code: percentages.get(base(code), 0.0))
        return Detected(best, round(percentages.get(base(best), 0.0), 1))
