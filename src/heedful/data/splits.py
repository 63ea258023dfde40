"""Running text as documents, and the part of it that is kept for validation."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from heedful.data.corpus import Corpus, Example
from heedful.errors import UserError

DocumentUnit = Literal["lines", "paragraphs", "file"]
LARGEST_SHARE = 0.1  # of a corpus that is held out, however small it is


@dataclass(frozen=True)
class Documents:
    """The documents of a corpus that `wanted` takes, as often as you iterate: its lines, or what blank lines divide."""

    corpus: Corpus
    divided: DocumentUnit
    wanted: Callable[[str], bool]

    def __iter__(self) -> Iterator[Example]:
        return (example for example in every_document(self.corpus, self.divided) if self.wanted(example.source))


@dataclass(frozen=True)
class CharacterSlice:
    """From one share to another of the characters of a text file, line ends kept; the file is read into memory."""

    corpus: Corpus
    begin: float
    end: float

    def __iter__(self) -> Iterator[Example]:
        text = whole_text(self.corpus)
        yield Example(text[int(len(text) * self.begin) : int(len(text) * self.end)])


def every_document(corpus: Corpus, divided: DocumentUnit) -> Iterator[Example]:
    if divided == "file":
        return iter([Example(whole_text(corpus))])
    if divided == "lines" or corpus.format != "text":  # a record of .jsonl or .parquet is a document
        return (example for example in corpus if example.source.strip())
    return join_lines(corpus)


def whole_text(corpus: Corpus) -> str:
    return "".join(f"{example.source}\n" for example in corpus)


def split_documents(
    corpora: list[Corpus], divided: DocumentUnit, *, hold_out: int, share: float
) -> tuple[list[Iterable[Example]], list[Iterable[Example]], str]:
    """(for training, one for each corpus; for validation; how it was divided, as words that bind prepared data to it).

    Of whole files the last `share` of the characters is held out, as usual for language models; of documents about
    `hold_out`, chosen by their hash: what is held out is held out wherever it stands.
    """
    if divided == "file":
        kept = 1.0 - share
        training: list[Iterable[Example]] = [CharacterSlice(corpus, 0.0, kept) for corpus in corpora]
        return training, [CharacterSlice(corpus, kept, 1.0) for corpus in corpora], f"the last {share!r}"
    require_hold_out(hold_out, give="--valid")
    n_documents = sum(1 for corpus in corpora for _ in every_document(corpus, divided))
    chosen_share = min(hold_out / max(1, n_documents), LARGEST_SHARE)
    is_held_out = hash_sample(chosen_share)
    held_out: list[Iterable[Example]] = [Documents(corpus, divided, is_held_out) for corpus in corpora]
    if not any(True for part in held_out for _ in part):
        documents = "document is" if n_documents == 1 else "documents are"
        lines = "--set data.documents=lines, if each line stands for itself, or " if divided == "paragraphs" else ""
        raise UserError(
            f"{n_documents:,} {documents} too few to hold some out: give --valid, more text, {lines or 'or '}"
            "--set data.documents=file, which holds out the end of each file"
        )
    training = [Documents(corpus, divided, lambda text: not is_held_out(text)) for corpus in corpora]
    if not any(True for part in training for _ in part):  # one is enough to know
        raise nothing_left(n_documents, "documents", give="--valid")
    return training, held_out, f"held out {chosen_share!r}"


def require_hold_out(hold_out: int, *, give: str) -> None:
    """Without validation files something must be held out, however much data there is."""
    if not hold_out:
        raise UserError(f"data.hold_out = 0 holds nothing out to validate with: give {give}, or raise it")


def nothing_left(n: int, unit: str, *, give: str) -> UserError:
    """For texts that are few, or one again and again."""
    return UserError(
        f"no {unit} are left to learn from: all {n:,} are held out for validation, where a text is held out wherever "
        f"it stands. Give {give}, or more data"
    )


def hash_sample(share: float, *, salt: bytes = b"held out") -> Callable[[str], bool]:
    """True for about this share of all texts; the same ones on every machine, and others for another salt."""

    def is_chosen(text: str) -> bool:
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8, salt=salt).digest()
        return int.from_bytes(digest, "big") < share * 2**64

    return is_chosen


def join_lines(lines: Iterable[Example], *, max_characters: int = 1_000_000) -> Iterator[Example]:
    """Lines into documents: a blank line ends one (read with `keep_empty=True`); so does the limit, for the memory."""
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
