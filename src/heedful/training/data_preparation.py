"""Extract, then write: a source that is too long is reduced to its most important sentences before it is learned from.

By the rule of `heedful summarize --long extract`, so that a model meets in training what it will be given later: whole
sentences, in their order, as many as fit.

From raw files to what training reads: checked, split, tokenised. Everything that is chosen is said aloud.

    run/tokenizers/   run/data/train-0/ … (shards)   run/data/valid.jsonl (pairs kept for validation)

Each stage leaves a finished result or none, and a stage whose result is there is not done again: after a kill, the next
start goes on from the last finished one.
"""

import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from heedful.atomic_io import atomic_folder, sync
from heedful.data.augment import InformalCopies
from heedful.data.binarize import prepare
from heedful.data.check import Report, check_corpus
from heedful.data.corpus import Corpus, Example, open_corpus
from heedful.data.problems import KINDS, BadData
from heedful.data.shards import Shards
from heedful.data.splits import LARGEST_SHARE, hash_sample, nothing_left, require_hold_out
from heedful.decoding.segmentation import Segmenter
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit
from heedful.text import (
    SentencePieceTokenizer,
    Tokenizer,
    Tokenizers,
    has_tokenizers,
    learn_tokenizers,
    load_tokenizers,
    save_tokenizers,
)
from heedful.training.settings import Settings


class Extractor:
    """Text in, text out; short ones as they are. Counts what it reduced."""

    def __init__(self, tokenizer: Tokenizer, *, max_len: int, language: str = "en") -> None:
        self._planner = Segmenter(tokenizer, SourceLimit(max_len), long="extract", language=language)
        self.language = language
        self.n_reduced = 0

    def __call__(self, text: str) -> str:
        [plan], tally = self._planner.plan([text])
        if not tally.n_extracted or not plan.pieces:  # nothing of it fits: the loader leaves it out, and says so
            return text
        self.n_reduced += 1
        return " ".join(piece.text for piece in plan.pieces)


@dataclass(frozen=True)
class Reduced:
    """Examples whose sources went through an extractor."""

    examples: Iterable[Example]
    extract: Extractor

    def __iter__(self) -> Iterator[Example]:
        return (replace(example, source=self.extract(example.source)) for example in self.examples)


def extractor_of(settings: Settings, tokenizer: Tokenizer, *, language: str, n_special: int = 0) -> Extractor | None:
    """The extractor that a run wants; None: long sources are left out. `n_special` stand before each source."""
    data = settings.data
    if data.long != "extract":
        return None
    return Extractor(tokenizer, max_len=data.max_len - n_special, language=language)


Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    tokenizers: Tokenizers
    train: list[Shards]
    valid: list[Example]
    language: str = "en"  # by which long sources were split into sentences


@dataclass(frozen=True)
class TrainingPart:
    """A corpus without the pairs that are held out."""

    corpus: Corpus
    held_out: Callable[[str], bool]

    def __iter__(self) -> Iterator[Example]:
        return (example for example in self.corpus if not self.held_out(example.source))


@dataclass
class OverlapCounter:
    """Training pairs as they pass; those whose source also stands in validation are counted."""

    pairs: Iterable[Example]
    sources: Container[str]
    n_read: int = 0
    n_met: int = 0

    def __iter__(self) -> Iterator[Example]:
        for example in self.pairs:
            self.n_read += 1
            self.n_met += example.source in self.sources
            yield example


def prepare_data(
    folder: Path,
    corpora: Sequence[Corpus],
    valid: Corpus | None,
    settings: Settings,
    *,
    tokenizers: Tokenizers | None,
    say: Say,
    make_extractor: Callable[[Tokenizers], Extractor | None] = lambda tokenizers: None,
) -> Prepared:
    """Everything that training reads, made or found in the run's folder.

    The tokenizers are learned, unless those of a model to start from are given. An extractor reduces long sources.
    """
    n_pairs = 0
    for corpus in corpora:
        report = check_corpus(corpus)
        refuse_unusable(report, settings)
        n_pairs += report.n_examples
        say(f"{corpus.name}: {report.n_examples:,} pairs, {report.suspicious_share:.1%} of them doubtful")
    kept_back = choose_held_out(folder, corpora, valid, n_pairs, settings, say=say)
    parts = [TrainingPart(corpus, kept_back.contains) for corpus in corpora]
    tokenizers = make_tokenizers(folder / "tokenizers", parts, settings, given=tokenizers, say=say)
    samples = settings.tokenizer.sample_alpha > 0
    extract = make_extractor(tokenizers)
    changed = "" if extract is None else f"-extracted-{settings.data.max_len}-{extract.language}"
    if share := settings.data.informal_share:
        changed += f"-typed-{share!r}"
        say(f"of about {share:.0%} of the pairs there is a second one as people type it (data.informal_share)")
    sources = {example.source for example in kept_back.examples}
    watched = [OverlapCounter(part, sources) for part in parts]
    shards = [
        prepare(
            _changed(seen, extract, settings),
            tokenizers,
            folder / "data" / f"train-{number}",
            fingerprint=f"{part.corpus.fingerprint()}-{kept_back.fingerprint}{changed}",
            keep_text=samples,
        )
        for number, (part, seen) in enumerate(zip(parts, watched, strict=True))
    ]
    for corpus in corpora:
        say_left_out(corpus, say)
    say_overlap(watched, say)
    if extract is not None and extract.n_reduced:
        say(f"{extract.n_reduced:,} long sources were reduced to their most important sentences (data.long)")
    say(f"training on {sum(map(len, shards)):,} pairs")
    return Prepared(tokenizers, shards, kept_back.examples)


def _changed(pairs: Iterable[Example], extract: Extractor | None, settings: Settings) -> Iterable[Example]:
    reduced = pairs if extract is None else Reduced(pairs, extract)
    share = settings.data.informal_share
    return InformalCopies(reduced, share) if share else reduced


def reopen_data(folder: Path) -> Prepared:
    """What an earlier sitting prepared; the corpora themselves are not needed."""
    shards = [Shards.open(path) for path in sorted((folder / "data").glob("train-*"), key=lambda p: int(p.name[6:]))]
    return Prepared(load_tokenizers(folder / "tokenizers", probe=False), shards, read_valid(folder))


def refuse_unusable(report: Report, settings: Settings) -> None:
    """Stop before anything is learned from a corpus that is broken, or probably not what it should be."""
    fatal = [finding for finding in report.in_order() if KINDS[finding.kind].severity == "fatal"]
    whole = next((finding for finding in fatal if KINDS[finding.kind].fix == "refuse"), None)
    if whole is not None:  # of the file as a whole there is no pair that could be left out
        place, value = whole.examples[0]
        raise BadData(whole.kind, place, value)
    if fatal and settings.data.on_bad_line == "error":
        finding, kind = fatal[0], KINDS[fatal[0].kind]
        raise UserError(
            f"{finding.file}: {kind.what} ({finding.count:,} times, first at {finding.examples[0][0]}). {kind.remedy} "
            "`heedful check` shows everything; --set data.on_bad_line=skip leaves such pairs out"
        )
    if report.suspicious_share > settings.data.max_doubtful:
        counts = ", ".join(f"{finding.count:,} {KINDS[finding.kind].what}" for finding in report.in_order()[:4])
        raise UserError(
            f"{report.corpus.name}: {report.suspicious_share:.1%} of the pairs are doubtful ({counts}). Look at them "
            "with `heedful check`, clean them with its --fix, or accept them with "
            f"--set data.max_doubtful={report.suspicious_share + 0.01:.2f}"
        )


@dataclass(frozen=True)
class HeldOut:
    examples: list[Example]
    fingerprint: str
    contains: Callable[[str], bool]


def choose_held_out(
    folder: Path,
    corpora: Sequence[Corpus],
    valid: Corpus | None,
    n_pairs: int,
    settings: Settings,
    *,
    say: Say,
    unit: str = "pairs",
) -> HeldOut:
    """The pairs for validation: the given ones, or some of the corpus, chosen by the hash of their source.

    A source that is held out is held out wherever it stands, so that no validation sentence was ever trained on.
    """
    if valid is not None:
        examples = list(valid)
        say(f"validating on {valid.name}: {len(examples):,} {unit}")
        say_left_out(valid, say)
        write_valid(folder, examples)
        return HeldOut(examples, "given", lambda source: False)
    give = "--valid-source and --valid-target" if unit == "pairs" else "--valid"
    require_hold_out(settings.data.hold_out, give=give)
    share = min(settings.data.hold_out / max(1, n_pairs), LARGEST_SHARE)
    is_held_out = hash_sample(share)
    examples, n_others = [], 0
    for example in chain.from_iterable(corpora):
        if is_held_out(example.source):
            examples.append(example)
        else:
            n_others += 1
    if not examples:
        raise UserError(f"{n_pairs:,} {unit} are too few to hold some out: give {give}, or more data")
    if not n_others:
        raise nothing_left(len(examples), unit, give=give)
    n_sources = len({example.source for example in examples})
    say(f"no validation files given: {len(examples):,} {unit} ({n_sources:,} unique sources) are held out for it")
    write_valid(folder, examples)
    return HeldOut(examples, f"held out {share!r}", is_held_out)


def say_left_out(corpus: Corpus, say: Say) -> None:
    """What the last pass over a corpus could not use."""
    if n_lines := corpus.skipped.total():
        kinds = ", ".join(f"{count:,} {KINDS[kind].what}" for kind, count in corpus.skipped.items())
        say(f"{corpus.name}: {n_lines:,} {'line is' if n_lines == 1 else 'lines are'} left out ({kinds})")


def say_overlap(watched: Sequence[OverlapCounter], say: Say) -> None:
    """How much of the training text is also in validation. What an earlier start has prepared is not read again."""
    if not all(seen.n_read for seen in watched):
        return
    n_met = sum(seen.n_met for seen in watched)
    if n_met == 0:
        say("no training pair has a source that is also in validation")
    else:
        say(f"{n_met:,} training pairs have a source that is also in validation, whose scores are too good for that")


def write_valid(folder: Path, examples: Sequence[Example]) -> None:
    path = folder / "data" / "valid.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".writing-{os.getpid()}")
    lines = (json.dumps({"source": e.source, "target": e.target}, ensure_ascii=False) for e in examples)
    aside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sync(aside)
    aside.rename(path)


def read_valid(folder: Path) -> list[Example]:
    return list(open_corpus(folder / "data" / "valid.jsonl"))


def make_tokenizers(
    folder: Path, parts: Sequence[TrainingPart], settings: Settings, *, given: Tokenizers | None, say: Say
) -> Tokenizers:
    if has_tokenizers(folder):
        return load_tokenizers(folder, probe=False)
    if given is None:
        sources = (example.source for part in parts for example in part)
        targets = (example.target for part in parts for example in part)
        tokenizers = learn_tokenizers(sources, targets, settings.tokenizer)
        say(describe_tokenizers(tokenizers, settings))
    else:
        tokenizers = sampling_with(given, settings.tokenizer.sample_alpha)
        say("the tokenizers are those of the model to start from")
    with atomic_folder(folder) as aside:
        save_tokenizers(aside, tokenizers)
    return tokenizers


def sampling_with(given: Tokenizers, alpha: float) -> Tokenizers:
    """The same pieces, drawn as this run wants it: a start's own `sample_alpha` is not for others to follow."""
    source = _sampling_with(given.source, alpha)
    return Tokenizers(source, source if given.joint else _sampling_with(given.target, alpha))


def _sampling_with(tokenizer: Tokenizer, alpha: float) -> Tokenizer:
    if not isinstance(tokenizer, SentencePieceTokenizer) or tokenizer.config.sample_alpha == alpha:
        return tokenizer
    return tokenizer.with_config(replace(tokenizer.config, sample_alpha=alpha))


def describe_tokenizers(tokenizers: Tokenizers, settings: Settings) -> str:
    kind, limit = settings.tokenizer.kind, settings.tokenizer.vocab_size
    sizes = [tokenizers.source.vocab_size] + ([] if tokenizers.joint else [tokenizers.target.vocab_size])
    what = "one for both sides" if tokenizers.joint else "one for each side"
    fewer = "" if max(sizes) >= limit else f" (the text gives no more; {limit:,} were allowed)"
    return f"learned {kind} tokenizers, {what}: {' and '.join(f'{size:,}' for size in sizes)} pieces{fewer}"
