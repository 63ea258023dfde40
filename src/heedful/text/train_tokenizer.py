"""Learning a vocabulary from text. The same text and settings give the same bytes, on any machine."""

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

# What SentencePiece's trainer keeps for itself: it drops a line with U+2585 and puts none of the others into a piece.
_RESERVED = dict.fromkeys(map(ord, ("\0", "\t", MARK, "▅")), " ")

# Longer lines are cut at a space, which changes nothing: no piece reaches beyond a word. A line without a space in so
# many characters is cut there; at word level, where that would make new words, only after many more.
_LONGEST_LINE = 200
_LONGEST_WORD = 1_000  # SentencePiece leaves out lines of more than 4,192 bytes

# Always the same: the sums of the unigram trainer, and so the scores, depend on it. More threads than cores do no harm.
_THREADS = 16

_TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")


def learn_tokenizers(source: Iterable[str], target: Iterable[str] | None, config: TokenizerConfig) -> Tokenizers:
    """One tokenizer for both sides, or one for each, as `config.joint` says; without a target there is only one."""
    if target is None or config.joint:
        tokenizer = learn_tokenizer(itertools.chain(source, target or ()), config)
        return Tokenizers(source=tokenizer, target=tokenizer)
    return Tokenizers(source=learn_tokenizer(source, config), target=learn_tokenizer(target, config))


def learn_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> SentencePieceTokenizer:
    """Learn from each text, `config.max_texts` of them in memory; the size reached is the tokenizer's `vocab_size`."""
    lines: Iterable[str] = _lines(_chosen(texts, config.max_texts), config)
    if config.kind == "unigram":
        # Each line once: where lines repeat, this trainer takes quadratic time (0.2.2: 400 equal lines, 20 seconds).
        lines = dict.fromkeys(lines)
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        raise UserError("there is no text to learn a tokenizer from: every line is empty")
    try:
        model = _train(itertools.chain([first], lines), config)
    except RuntimeError as error:
        raise _explained(error, config) from None
    return SentencePieceTokenizer(configured(model, config))


def _chosen(texts: Iterable[str], limit: int) -> list[str]:
    """All texts, or so many of them, each with the same chance; which ones depends on nothing but their number."""
    random = Random(0)
    chosen: list[str] = []
    for number, text in enumerate(texts):
        if number < limit:
            chosen.append(text)
        elif (place := int(random.random() * (number + 1))) < limit:
            chosen[place] = text
    return chosen


def _lines(texts: Iterable[str], config: TokenizerConfig) -> Iterator[str]:
    normalise = config.normalizer
    longest = _LONGEST_WORD if config.kind == "word" else _LONGEST_LINE
    # As many characters as may be, to the end or before a space; else as many as may be.
    part = re.compile(f"(?s).{{1,{longest}}}(?= |\\Z)|[^ ]{{{longest}}}")
    for text in texts:
        line = normalise(text).translate(_RESERVED)
        if line.strip():
            yield from [line] if len(line) <= longest else part.findall(line)


def _train(lines: Iterator[str], config: TokenizerConfig) -> bytes:
    every_character = config.kind in ("word", "char")  # there the size alone says what is left out
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


def _explained(error: RuntimeError, config: TokenizerConfig) -> UserError:
    needed = _TOO_SMALL.search(str(error))
    if needed is None:
        return UserError(f"SentencePiece could not learn a tokenizer of kind '{config.kind}': {error}")
    return UserError(
        f"tokenizer.vocab_size is {config.vocab_size}, but the characters of this text, the special tokens"
        f"{' and the 256 bytes' if config.uses_bytes else ''} alone need {needed[1]}: set a larger one, "
        f"or a tokenizer.character_coverage below {config.character_coverage}"
    )
