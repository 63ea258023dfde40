"""Five thousand texts that are hard for tokenizers, equal on every machine."""

import unicodedata
from random import Random

SPECIAL = (
    "[MASK]", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "<s>", "</s>", "<unk>", "<pad>", "<mask>", "<|endoftext|>",
    "<extra_id_0>", "<extra_id_99>", "##ing", "Ġ", "▁", "▁▁", "<0x0A>", ">>fr<<", ">>", "<<",
)  # fmt: skip
SPACES = (" ", "  ", "\t", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\xa0", "\u2002", "\u2028", "\u2029", "\u3000")
INVISIBLE = ("\x00", "\x01", "\x7f", "\xad", "\u200b", "\u200d", "\u200e", "\u2060", "\ufeff", "\ufffd", "\ufe0f")
WORDS = (
    "the", "The", "THE", "dog's", "don't", "I'LL", "it's", "running", "unbelievable", "naïve", "Straße", "İstanbul",
    "ﬁne", "①②", "½", "1,000.50", "2024-01-01", "e-mail@host.org", "https://a.b/c?d=e&f", "C++", "--", "...", "…",
    "“quoted”", "日本語", "东京 と", "한국어", "العربية", "עברית", "हिन्दी", "ไทย", "ελληνικά", "русский", "👍🏽",
    "👨‍👩‍👧‍👦", "🇩🇪",
    "e\u0301", "a\u0308\u0323", "Z" * 120, "x" * 300, "z\u0300" * 40, "K", "ŉ", "ß", "ẞ", "ǆ", "٣", "Ⅷ", "ｆｕｌｌ",
)  # fmt: skip
RANGES = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x6FF), (0x900, 0xDFF), (0x1E00, 0x2FFF), (0x3040, 0x30FF),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xFB00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF),
    (0x20000, 0x20FFF), (0xE0000, 0xE007F),
)  # fmt: skip


def hostile_strings(n: int = 5000) -> list[str]:
    random = Random(0)
    return ["", " ", "a", *SPECIAL, *SPACES, *INVISIBLE, *WORDS, *(_one(random) for _ in range(n))][:n]


def _one(random: Random) -> str:
    parts = [_part(random) for _ in range(random.randint(1, 12))]
    text = random.choice(("", " ", " ")).join(parts)
    if random.random() < 0.2:
        text = unicodedata.normalize(random.choice(("NFC", "NFD", "NFKC", "NFKD")), text)
    return text


def _part(random: Random) -> str:
    kind = random.random()
    if kind < 0.4:
        return random.choice(WORDS)
    if kind < 0.5:
        return random.choice(SPECIAL)
    if kind < 0.6:
        return random.choice(SPACES) * random.randint(1, 3)
    if kind < 0.65:
        return random.choice(INVISIBLE)
    first, last = random.choice(RANGES)
    return "".join(chr(random.randint(first, last)) for _ in range(random.randint(1, 8)))
