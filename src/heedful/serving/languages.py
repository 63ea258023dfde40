"""Language codes as clients write them, and their English names.

Which language a text is in, by py3langid: 97 languages, a few megabytes, no network.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from heedful.decoding.segmentation import has_words

# Other spellings -> the one that is answered with. Codes are compared without regard to case.
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
    """The code that is answered with: "ZH" -> "zh-Hans", "PT-br" -> "pt-BR"; one that is not known in lower case."""
    lower = code.strip().replace("_", "-").lower()
    return ALIASES.get(lower) or BY_LOWER_CASE.get(lower, lower)


def name_of(code: str) -> str:
    return NAMES.get(code, code)


def base(code: str) -> str:
    """The language without its script or region, as detectors know it: "zh-Hans" -> "zh"."""
    return code.split("-")[0]


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
