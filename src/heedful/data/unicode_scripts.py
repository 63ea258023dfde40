"""Find the script that a text is written in, by the Unicode names of its letters."""

import unicodedata
from collections import Counter

# First word of a letter's Unicode name -> name of the script.
NAMES = {"CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana"} | {
    name: name.title()
    for name in (
        *("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "GEORGIAN", "ARABIC", "HEBREW", "SYRIAC", "THAANA", "ETHIOPIC"),
        *(
            "DEVANAGARI",
            "BENGALI",
            "GURMUKHI",
            "GUJARATI",
            "ORIYA",
            "TAMIL",
            "TELUGU",
            "KANNADA",
            "MALAYALAM",
            "SINHALA",
        ),
        *("THAI", "LAO", "TIBETAN", "MYANMAR", "KHMER", "MONGOLIAN", "CHEROKEE", "HANGUL"),
    )
}
# A Japanese line may consist of Chinese characters only; a Chinese line has no kana.
ALSO = {"Kana": {"Han"}}
WEIGHTS = {"Han": 3, "Kana": 2, "Hangul": 2}  # the number of Latin letters that one character counts as
LATIN_END = "\u0250"  # all letters below it are Latin
MIN_LETTERS = 5  # "OK" or "μ" show no script
LOOK_AT = 400  # characters of a line that are counted


class ScriptOf(dict[str, str]):
    """A cache: character -> script, "" for characters that are not letters."""

    def __missing__(self, character: str) -> str:
        script = ""
        if character.isalpha():
            words = unicodedata.name(character, "").split(" ")
            word = words[1] if words[0] in ("FULLWIDTH", "HALFWIDTH") else words[0]
            script = NAMES.get(word, "")
        self[character] = script
        return script


def main_script(text: str, script_of: ScriptOf) -> str:
    """Return the script of more than two thirds of the letters; "" if there is none, or if there are too few letters.

    >>> main_script("Приве́т, мир", ScriptOf())
    'Cyrillic'
    """
    counts = Counter(map(script_of.__getitem__, text[:LOOK_AT]))
    del counts[""]
    for script, weight in WEIGHTS.items():
        if script in counts:
            counts[script] *= weight
    n_letters = counts.total()
    if n_letters < MIN_LETTERS:
        return ""
    if "Kana" in counts:
        counts["Kana"] += counts.pop("Han", 0)
    script, count = counts.most_common(1)[0]
    return script if 3 * count > 2 * n_letters else ""


def fits(text: str, script: str, script_of: ScriptOf) -> bool:
    """Return whether a line may be in a file of this script."""
    if not script or (script == "Latin" and (text.isascii() or max(text) < LATIN_END)):
        return True  # the common case, without counting letters
    actual = main_script(text, script_of)
    return not actual or actual == script or actual in ALSO.get(script, ())
