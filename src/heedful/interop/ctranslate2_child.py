"""Run as a program: convert the model folder sys.argv[1] into the empty folder sys.argv[2].

A process of its own, so that torch, and the OpenMP runtime that it brings, stay out of the one that translates.
The exit codes MISTAKE and REFUSED come with a message for the user on standard error.
"""

import json
import sys
from pathlib import Path

from heedful.config import to_values
from heedful.errors import UserError
from heedful.interop.ctranslate2 import mapped, why_not, write_model
from heedful.interop.ctranslate2_cache import (
    FACTS,
    MISTAKE,
    REFUSED,
    Facts,
    NotConvertible,
    key_of,
    refusal,
    tokenizer_hashes,
)
from heedful.interop.ctranslate2_outline import outline_of
from heedful.models.folder import load_model


def convert_into(model_folder: Path, folder: Path) -> None:
    """`load_model` checks everything: hashes, settings, shapes, and the tokenizers in a child process."""
    key, tokenizers = key_of(model_folder), tokenizer_hashes(model_folder)
    model = mapped(load_model(model_folder))
    reason = why_not(model.config)
    if reason is not None:
        raise refusal(model_folder, reason)
    write_model(model, folder)
    outline = outline_of(model)
    facts = Facts(
        key=key,
        source_vocab_size=outline.source_vocab_size,
        target_vocab_size=outline.target_vocab_size,
        n_positions=outline.n_positions,
        learned_positions=outline.positions == "learned",
        end_id=outline.marks.end_id,
        forbidden=outline.marks.forbidden,
        tokenizers=tokenizers,
    )
    (folder / FACTS).write_text(json.dumps(to_values(facts), indent=1) + "\n", encoding="utf-8")


def main() -> int:
    try:
        convert_into(Path(sys.argv[1]), Path(sys.argv[2]))
    except UserError as error:
        print(error, file=sys.stderr)
        return REFUSED if isinstance(error, NotConvertible) else MISTAKE
    return 0


if __name__ == "__main__":
    sys.exit(main())
