"""What makes a BLEU score mean less than it seems to: said beside the score, never mended in silence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heedful.data.scripts import ScriptOf, main_script
from heedful.evaluation.counts import Tokenize

LOOK_AT = 200  # references
TOKENISED_LINES = 100  # sacreBLEU's own limit


@dataclass(frozen=True)
class Unspaced:
    """A script whose words are not separated by spaces, so that 13a takes a whole clause for one word."""

    language: str
    tokenize: Tokenize


UNSPACED = {
    "Han": Unspaced("Chinese", "zh"),
    "Kana": Unspaced("Japanese", "ja-mecab"),
    "Thai": Unspaced("Thai", "char"),
    "Lao": Unspaced("Lao", "char"),
    "Khmer": Unspaced("Khmer", "char"),
    "Myanmar": Unspaced("Burmese", "char"),
}


def unspaced(references: Sequence[str]) -> Unspaced | None:
    """The script of most references, if it has no spaces between words."""
    script_of = ScriptOf()
    scripts = [script for line in references[:LOOK_AT] if (script := main_script(line, script_of))]
    return UNSPACED.get(max(scripts, key=scripts.count)) if scripts else None


def tokenize_for(references: Sequence[str]) -> Tokenize:
    """How BLEU finds words where nobody has said it, without another package: mecab is one."""
    found = unspaced(references)
    if found is None:
        return "13a"
    return found.tokenize if found.tokenize == "zh" else "char"


def notes_on(hypotheses: Sequence[str], references: Sequence[str], tokenize: Tokenize) -> Iterator[str]:
    """Each in one sentence, with what to do."""
    found = unspaced(references)
    if found is not None and tokenize in ("13a", "intl", "none"):
        yield (
            f"the references look {found.language}, and {tokenize} takes a run of characters without a space for one "
            f"word: its BLEU says little; use --tokenize {found.tokenize}, or read chrF"
        )
    n_tokenised = sum(line.endswith(" .") for line in hypotheses)
    if tokenize != "none" and n_tokenised >= TOKENISED_LINES:
        yield (
            f"{n_tokenised:,} translations end in ' .': they look tokenised, which changes BLEU; detokenise both "
            "sides, or use --tokenize none if both are tokenised alike"
        )
