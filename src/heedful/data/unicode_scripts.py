"""In which script a text is written, by the Unicode names of its letters."""

import unicodedata
from collections import Counter

# First word of a letter's Unicode name -> the script's own name.
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
# Japanese may write a whole line in Chinese characters; a Chinese line has no kana.
ALSO = {"Kana": {"Han"}}
WEIGHTS = {"Han": 3, "Kana": 2, "Hangul": 2}  # one character says as much as so many letters
LATIN_END = "\u0250"  # every letter below it is Latin
MIN_LETTERS = 5  # of "OK" or "μ" nothing follows
LOOK_AT = 400  # characters of a line


class ScriptOf(dict[str, str]):
    """Character -> script, "" for what is no letter; filled as characters come."""

    def __missing__(self, character: str) -> str:
        script = ""
        if character.isalpha():
            words = unicodedata.name(character, "").split(" ")
            word = words[1] if words[0] in ("FULLWIDTH", "HALFWIDTH") else words[0]
            script = NAMES.get(word, "")
        self[character] = script
        return script


def main_script(text: str, script_of: ScriptOf) -> str:
    """The script of more than two thirds of the letters, "" when there is none or there are too few letters to tell."""
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
    """Whether a line may stand in a file of that script."""
    if not script or (script == "Latin" and (text.isascii() or max(text) < LATIN_END)):
        return True  # the common case, without counting letters
    found = main_script(text, script_of)
    return not found or found == script or found in ALSO.get(script, ())
