"""A small corpus in many scripts, and tokenizers of every kind learned from it."""

from collections.abc import Callable

import pytest

from heedful.text import SentencePieceTokenizer, TokenizerConfig, learn_tokenizer

LINES = """
A dog runs through the snow. Two dogs run on the beach, and a man looks at them.
It was annoying, how annoyingly slowly and quietly he spoke; an annoying man.
Ein Hund läuft durch den Schnee. Zwei Hunde laufen am Strand, ein Mann sieht zu.
Un chien court dans la neige. Où est l'élève ? Je suis étudiant.
Собака бежит по снегу. Человек смотрит на неё.
Ο σκύλος τρέχει στο χιόνι. Ένας άνθρωπος κοιτάζει.
الكلب يركض في الثلج. رجل ينظر إليه.
הכלב רץ בשלג. איש מסתכל עליו.
कुत्ता बर्फ में दौड़ता है। एक आदमी देखता है।
สุนัขวิ่งในหิมะ ชายคนหนึ่งมองดู
개가 눈 속을 달린다. 한 남자가 바라본다.
犬が雪の中を走る。男の人が見ている。
一只狗在雪地里奔跑。一个男人在看。
Vợ tôi thích chó. Con chó chạy trong tuyết.
""".strip().split("\n")


@pytest.fixture(scope="session")
def lines() -> list[str]:
    return LINES


@pytest.fixture(scope="session")
def tokenizer_of() -> Callable[[TokenizerConfig], SentencePieceTokenizer]:
    """Return a tokenizer learned from the corpus with some settings, once for all tests."""
    learned: dict[TokenizerConfig, SentencePieceTokenizer] = {}

    def get(config: TokenizerConfig) -> SentencePieceTokenizer:
        if config not in learned:
            learned[config] = learn_tokenizer(LINES, config)
        return learned[config]

    return get
