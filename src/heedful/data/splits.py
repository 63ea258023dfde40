"""Divide running text into documents, and hold out a part of a corpus for validation.

What is held out is chosen by a hash of the text, so it is the same on every machine, and every copy of a text in the
corpus is held out with it.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from heedful.data.corpus import Corpus, Example
from heedful.errors import UserError

DocumentUnit = Literal["lines", "paragraphs", "file"]  # what counts as a document
LARGEST_SHARE = 0.1  # at most this share of a corpus is held out, even if the corpus is small


@dataclass(frozen=True)
class Documents:
    """The documents of a corpus for which `keep(text)` is true; iterate over them as often as you like."""

    corpus: Corpus
    unit: DocumentUnit
    keep: Callable[[str], bool]

    def __iter__(self) -> Iterator[Example]:
        return (example for example in every_document(self.corpus, self.unit) if self.keep(example.source))


@dataclass(frozen=True)
class CharacterSlice:
    """The characters of a text file from one share to another, as one document. The file is read into memory."""

    corpus: Corpus
    begin: float
    end: float

    def __iter__(self) -> Iterator[Example]:
        text = whole_text(self.corpus)
        yield Example(text[int(len(text) * self.begin) : int(len(text) * self.end)])


def every_document(corpus: Corpus, unit: DocumentUnit) -> Iterator[Example]:
    """Yield all documents of a corpus. Each record of .jsonl or .parquet is a document."""
    if unit == "file":
        return iter([Example(whole_text(corpus))])
    if unit == "lines" or corpus.format != "text":
        return (example for example in corpus if example.source.strip())
    return join_lines(corpus)


def whole_text(corpus: Corpus) -> str:
    """Read a corpus as one string, with its line ends."""
    return "".join(f"{example.source}\n" for example in corpus)


def join_lines(lines: Iterable[Example], *, max_characters: int = 1_000_000) -> Iterator[Example]:
    """Join lines into documents that blank lines separate; a document also ends at `max_characters`, for the memory.

    Read the lines with `read_text(path, keep_empty=True)`, which keeps blank lines.
    """
    document: list[str] = []
    size = 0
    for line in lines:
        blank = not line.source.strip()
        if document and (blank or size + len(line.source) > max_characters):
            yield Example("\n".join(document))
            document, size = [], 0
        if not blank:
            document.append(line.source)
            size += len(line.source) + 1
    if document:
        yield Example("\n".join(document))


def split_documents(
    corpora: list[Corpus], unit: DocumentUnit, *, hold_out: int, share: float
) -> tuple[list[Iterable[Example]], list[Iterable[Example]], str]:
    """Split corpora into (training, validation, a description of the split that belongs to the fingerprint).

    Both parts are lists with an entry for each corpus. Of whole files, the last `share` of the characters is held out,
    as is usual for language models; of smaller documents about `hold_out`, chosen by their hash.
    """
    if unit == "file":
        kept = 1.0 - share
        training: list[Iterable[Example]] = [CharacterSlice(corpus, 0.0, kept) for corpus in corpora]
        return training, [CharacterSlice(corpus, kept, 1.0) for corpus in corpora], f"the last {share!r}"
    require_hold_out(hold_out, give="--valid")
    n_documents = sum(1 for corpus in corpora for _ in every_document(corpus, unit))
    chosen_share = min(hold_out / max(1, n_documents), LARGEST_SHARE)
    is_held_out = hash_sample(chosen_share)
    held_out: list[Iterable[Example]] = [Documents(corpus, unit, is_held_out) for corpus in corpora]
    if not any(True for part in held_out for _ in part):
        documents = "document is" if n_documents == 1 else "documents are"
        lines = "--set data.documents=lines, if each line is a document, or " if unit == "paragraphs" else ""
        raise UserError(
            f"{n_documents:,} {documents} too few to hold some out: give --valid, more text, {lines or 'or '}"
            "--set data.documents=file, which holds out the end of each file"
        )
    training = [Documents(corpus, unit, lambda text: not is_held_out(text)) for corpus in corpora]
    if not any(True for part in training for _ in part):
        raise nothing_left(n_documents, "documents", give="--valid")
    return training, held_out, f"held out {chosen_share!r}"


def require_hold_out(hold_out: int, *, give: str) -> None:
    """Raise a UserError if there is neither a validation file nor anything held out. `give` names the option."""
    if not hold_out:
        raise UserError(
            f"data.hold_out = 0 leaves nothing to validate with: give {give}, or set data.hold_out to a higher number"
        )


def nothing_left(n: int, unit: str, *, give: str) -> UserError:
    """Make the error for data that is held out completely: few texts, or one text repeated."""
    return UserError(
        f"no {unit} are left to train on: all {n:,} are held out for validation, because all copies of a held-out text "
        f"are held out. Give {give}, or more data"
    )


def hash_sample(share: float, *, salt: bytes = b"held out") -> Callable[[str], bool]:
    """Return a function that is true for about this share of all texts, the same ones on every machine.

    Another salt chooses other texts.
    """

    def is_chosen(text: str) -> bool:
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8, salt=salt).digest()
        return int.from_bytes(digest, "big") < share * 2**64

    return is_chosen
