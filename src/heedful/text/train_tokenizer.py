"""Learn a SentencePiece vocabulary. Equal text and settings give equal bytes, on any machine."""

import io
import itertools
import re
from collections.abc import Iterable, Iterator
from random import Random

import sentencepiece

from heedful.errors import UserError
from heedful.text.sentencepiece_tokenizer import MARK, SentencePieceTokenizer, configured
from heedful.text.special_ids import SPECIAL_IDS
from heedful.text.tokenizer import Tokenizers
from heedful.text.tokenizer_config import TokenizerConfig

# Characters that SentencePiece's trainer reserves. It drops lines with U+2585 and puts the rest into no piece.
_RESERVED = dict.fromkeys(map(ord, ("\0", "\t", MARK, "▅")), " ")

# Longer lines are split at a space, which changes nothing because no piece is longer than a word. A line without a
# space is split after this many characters; at word level, where that makes new words, only after many more.
_LONGEST_LINE = 200
_LONGEST_WORD = 1_000  # SentencePiece leaves out lines of more than 4,192 bytes

# Fixed, because the sums of the unigram trainer, and so its scores, depend on it. More threads than cores do no harm.
_THREADS = 16

_TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")


def learn_tokenizers(source: Iterable[str], target: Iterable[str] | None, config: TokenizerConfig) -> Tokenizers:
    """Learn one tokenizer for both sides, or one for each (`config.joint`). Without a target there is only one.

    >>> tokenizers = learn_tokenizers(["A dog runs."], ["Ein Hund läuft."], TokenizerConfig(vocab_size=400))
    >>> tokenizers.joint, tokenizers.target.decode(tokenizers.target.encode("Ein Hund"))
    (True, 'Ein Hund')
    """
    if target is None or config.joint:
        tokenizer = learn_tokenizer(itertools.chain(source, target or ()), config)
        return Tokenizers(source=tokenizer, target=tokenizer)
    return Tokenizers(source=learn_tokenizer(source, config), target=learn_tokenizer(target, config))


def learn_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> SentencePieceTokenizer:
    """Learn one tokenizer. At most `config.max_texts` of the texts are in memory.

    A small text gives fewer pieces than `config.vocab_size`; the tokenizer's `vocab_size` has their number.

    >>> tokenizer = learn_tokenizer(["the dog runs", "the dog sleeps"], TokenizerConfig(kind="word", vocab_size=20))
    >>> tokenizer.pieces(tokenizer.encode("the dog"))
    ['▁the', '▁dog']
    """
    lines: Iterable[str] = _lines(_chosen(texts, config.max_texts), config)
    if config.kind == "unigram":
        # Remove repeated lines: the unigram trainer of SentencePiece 0.2.2 takes quadratic time for them (400: 20 s).
        lines = dict.fromkeys(lines)
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        raise UserError("there is no text to learn a tokenizer from: every line is empty")
    try:
        model = _train(itertools.chain([first], lines), config)
    except RuntimeError as error:
        raise _user_error(error, config) from None
    return SentencePieceTokenizer(configured(model, config))


def _chosen(texts: Iterable[str], limit: int) -> list[str]:
    """Return all texts, or a uniform sample of `limit` texts, which depends on their number alone."""
    random = Random(0)
    chosen: list[str] = []
    for index, text in enumerate(texts):
        if index < limit:
            chosen.append(text)
        elif (replaced := int(random.random() * (index + 1))) < limit:
            chosen[replaced] = text
    return chosen


def _lines(texts: Iterable[str], config: TokenizerConfig) -> Iterator[str]:
    normalize = config.normalizer
    longest = _LONGEST_WORD if config.kind == "word" else _LONGEST_LINE
    # Up to `longest` characters that end before a space or at the end of the line; else `longest` without a space.
    part = re.compile(f"(?s).{{1,{longest}}}(?= |\\Z)|[^ ]{{{longest}}}")
    for text in texts:
        line = normalize(text).translate(_RESERVED)
        if line.strip():
            yield from [line] if len(line) <= longest else part.findall(line)


def _train(lines: Iterator[str], config: TokenizerConfig) -> bytes:
    every_character = config.kind in ("word", "char")  # for these, vocab_size alone decides what gets no piece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        model_type=config.kind,
        vocab_size=config.vocab_size,
        hard_vocab_limit=False,
        treat_whitespace_as_suffix=config.whitespace == "suffix"
        and config.kind != "word",  # see SentencePieceTokenizer
        byte_fallback=config.uses_bytes,
        character_coverage=1.0 if every_character else config.character_coverage,
        control_symbols=list(config.special_tokens),
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=SPECIAL_IDS.pad_id,
        unk_id=SPECIAL_IDS.unk_id,
        bos_id=SPECIAL_IDS.bos_id,
        eos_id=SPECIAL_IDS.eos_id,
        num_threads=_THREADS,
        minloglevel=2,
    )
    return model.getvalue()


def _user_error(error: RuntimeError, config: TokenizerConfig) -> UserError:
    needed = _TOO_SMALL.search(str(error))
    if needed is None:
        return UserError(f"SentencePiece could not learn a tokenizer of kind '{config.kind}': {error}")
    return UserError(
        f"tokenizer.vocab_size is {config.vocab_size}, but the characters of this text, the special tokens"
        f"{' and the 256 bytes' if config.uses_bytes else ''} alone need {needed[1]}: set a larger one, "
        f"or a tokenizer.character_coverage below {config.character_coverage}"
    )
