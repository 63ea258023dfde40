"""Which class of Transformers 5 would read a folder's tokenizer, and what that class makes of a tokenizer.json.

A class of a family takes the vocabulary and the merges alone, and makes everything else anew from its own rules and
the switches of tokenizer_config.json. The general class takes the file as it stands.
"""

import base64
from collections.abc import Mapping
from typing import Any

from heedful.errors import UserError
from heedful.text.foreign_added import Given, Token, added_tokens
from heedful.text.foreign_build import byte_level, content_with, llama_pieces, t5_pieces, word_piece

GENERAL = ""
# The class without its "Fast" -> the family whose rules it has
FAMILIES = {
    "BertTokenizer": "bert",
    "DistilBertTokenizer": "bert",
    "ElectraTokenizer": "bert",
    "MobileBertTokenizer": "bert",
    "BartTokenizer": "bart",
    "RobertaTokenizer": "bart",
    "LEDTokenizer": "bart",
    "MvpTokenizer": "bart",
    "GPT2Tokenizer": "gpt2",
    "LlamaTokenizer": "llama",
    "T5Tokenizer": "t5",
    "PegasusTokenizer": "pegasus",
}
# Those that have no rules of their own: the files say all. The last is in the first folders of Llama.
WITHOUT_RULES = ("PreTrainedTokenizer", "TokenizersBackend", "LLaMATokenizer")
_BY_MODEL_TYPE = ("bert", "bart", "gpt2", "t5", "pegasus")  # Llama's class is taken only where a file names it


def family_of(declared: object, *, model_type: str, content: str | None) -> str:
    """The family whose class reads the tokenizer, or GENERAL."""
    if not isinstance(declared, str):
        return model_type if model_type in _BY_MODEL_TYPE else GENERAL
    family = FAMILIES.get(declared.removesuffix("Fast"), GENERAL)
    # Llama 3's files name the class of Llama 2, whose rules are not theirs.
    return GENERAL if family == "llama" and content is not None and '"ByteLevel"' in content else family


def has_unknown_rules(declared: object) -> bool:
    """Whether a class does to a text what only its own code says, as BertJapaneseTokenizer does."""
    name = declared.removesuffix("Fast") if isinstance(declared, str) else None
    return name is not None and name not in FAMILIES and name not in WITHOUT_RULES


def rebuilt(values: Mapping[str, Any], family: str, given: Given) -> str:
    """A tokenizer.json as the class of a family makes it anew."""
    model = values["model"]
    vocabulary = model["vocab"]
    if family == "pegasus":
        return as_it_stands(values, given)  # all that its class does stands in its files
    if family == "t5":
        if not isinstance(vocabulary, list):
            raise UserError(
                f"{given.where}: names T5's tokenizer class, but tokenizer.json has a vocabulary without scores; "
                "take PreTrainedTokenizerFast as its 'tokenizer_class' if the file is to be read as it stands"
            )
        pieces = [(piece, score) for piece, score in vocabulary]
        return t5_pieces(pieces, _charsmap(values.get("normalizer")), given, additional=given.additional())
    if isinstance(vocabulary, list):
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    if family == "bert":
        return word_piece(vocabulary, given)
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges", ())]
    merges = [(left, right) for left, right in pairs]
    marks = values.get("post_processor")
    if family == "llama":
        return llama_pieces(vocabulary, merges, given, additional=given.additional(), marks=marks)
    return byte_level(vocabulary, merges, given, marks=marks if family == "gpt2" else None)


def as_it_stands(values: Mapping[str, Any], given: Given) -> str:
    """A tokenizer.json with the pieces that the other files add to it."""
    vocabulary = values["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    tokens: list[Token] = [
        {name: flag for name, flag in token.items() if name != "id"} for token in values.get("added_tokens") or ()
    ]
    return content_with(values, added_tokens(vocabulary, [*tokens, *given.whole(given.additional())]))


def _charsmap(normalizer: Any) -> bytes:
    """The table of a SentencePiece model's rules, where a normalizer has one."""
    parts = (normalizer or {}).get("normalizers", [normalizer or {}])
    tables = [part["precompiled_charsmap"] for part in parts if part.get("type") == "Precompiled"]
    return base64.b64decode(tables[0]) if tables else b""
