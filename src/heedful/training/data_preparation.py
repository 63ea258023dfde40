"""From raw files to what training reads: checked, held out, tokenised. Every choice is reported.

    run/tokenizers/   run/data/train-0/ … (shards)   run/data/valid.jsonl (pairs kept for validation)

Each stage leaves a complete result or none, and a stage whose result exists is not repeated: after a kill, the next
start continues after the last complete stage.
"""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from heedful.atomic_io import atomic_file, atomic_folder
from heedful.data.augment import InformalCopies
from heedful.data.binarize import prepare
from heedful.data.check import Report, check_corpus
from heedful.data.corpus import Corpus, Example, open_corpus
from heedful.data.problems import KINDS, BadData
from heedful.data.shards import Shards
from heedful.data.splits import LARGEST_SHARE, hash_sample, nothing_left, require_hold_out
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit
from heedful.text import (
    SentencePieceTokenizer,
    Tokenizer,
    Tokenizers,
    has_tokenizers,
    learn_tokenizer,
    learn_tokenizers,
    load_tokenizers,
    save_tokenizers,
)
from heedful.training.events import Notify
from heedful.training.settings import Settings

# --- aligned pairs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedData:
    """Aligned pairs, prepared."""

    tokenizers: Tokenizers
    train: list[Shards]
    valid: list[Example]
    language: str = "en"  # whose rules split long sources into sentences


def prepare_data(
    folder: Path,
    corpora: Sequence[Corpus],
    valid: Corpus | None,
    settings: Settings,
    *,
    tokenizers: Tokenizers | None,
    notify: Notify,
    make_extractor: Callable[[Tokenizers], "Extractor | None"] = lambda tokenizers: None,
) -> PreparedData:
    """Check corpora of pairs, hold some out, learn tokenizers, and write shards into the run folder.

    tokenizers: those of a model to start from, used instead of learning new ones.
    make_extractor: makes what shortens long sources, if the run does that.
    """
    n_pairs = 0
    for corpus in corpora:
        report = check_corpus(corpus)
        refuse_unusable(report, settings)
        n_pairs += report.n_examples
        notify(f"{corpus.name}: {report.n_examples:,} pairs, {report.suspicious_share:.1%} of them doubtful")
    held_out = choose_held_out(folder, corpora, valid, n_pairs, settings, notify=notify)
    parts = [TrainingPart(corpus, held_out.contains) for corpus in corpora]
    tokenizers = pair_tokenizers(folder / "tokenizers", parts, settings, init_from=tokenizers, notify=notify)
    samples = settings.tokenizer.sample_alpha > 0
    extract = make_extractor(tokenizers)
    suffix = "" if extract is None else f"-extracted-{settings.data.max_len}-{extract.language}"
    if share := settings.data.informal_share:
        suffix += f"-typed-{share!r}"
        notify(f"about {share:.0%} of the pairs are added once more as people type them (data.informal_share)")
    sources = {example.source for example in held_out.examples}
    counters = [OverlapCounter(part, sources) for part in parts]
    shards = [
        prepare(
            _augmented(counter, extract, settings),
            tokenizers,
            folder / "data" / f"train-{number}",
            fingerprint=f"{part.corpus.fingerprint()}-{held_out.fingerprint}{suffix}",
            keep_text=samples,
        )
        for number, (part, counter) in enumerate(zip(parts, counters, strict=True))
    ]
    for corpus in corpora:
        report_skipped(corpus, notify)
    report_overlap(counters, notify)
    if extract is not None and extract.n_reduced:
        notify(f"{extract.n_reduced:,} long sources were reduced to their most important sentences (data.long)")
    notify(f"training on {sum(map(len, shards)):,} pairs")
    return PreparedData(tokenizers, shards, held_out.examples)


def reopen_data(folder: Path) -> PreparedData:
    """Read what was prepared in a run folder; the corpora are not needed."""
    return PreparedData(load_tokenizers(folder / "tokenizers", probe=False), open_shards(folder), read_valid(folder))


def _augmented(pairs: Iterable[Example], extract: "Extractor | None", settings: Settings) -> Iterable[Example]:
    """Shorten long sources and add informal copies, as the settings ask."""
    reduced = pairs if extract is None else Reduced(pairs, extract)
    share = settings.data.informal_share
    return InformalCopies(reduced, share) if share else reduced


# --- checks and held-out examples -------------------------------------------------------------------------------------


def refuse_unusable(report: Report, settings: Settings) -> None:
    """Raise a UserError if a corpus is broken, or probably not what it should be."""
    fatal = [problem for problem in report.in_order() if KINDS[problem.kind].severity == "fatal"]
    whole = next((problem for problem in fatal if KINDS[problem.kind].fix == "refuse"), None)
    if whole is not None:  # it concerns the file as a whole: there is no pair that could be left out
        place, value = whole.examples[0]
        raise BadData(whole.kind, place, value)
    if fatal and settings.data.on_bad_line == "error":
        problem, kind = fatal[0], KINDS[fatal[0].kind]
        raise UserError(
            f"{problem.file}: {kind.what} ({problem.count:,} times, first at {problem.examples[0][0]}). {kind.remedy} "
            "`heedful check` shows every problem; --set data.on_bad_line=skip leaves such pairs out"
        )
    if report.suspicious_share > settings.data.max_doubtful:
        counts = ", ".join(f"{problem.count:,} {KINDS[problem.kind].what}" for problem in report.in_order()[:4])
        raise UserError(
            f"{report.corpus.name}: {report.suspicious_share:.1%} of the pairs are doubtful ({counts}). Look at them "
            "with `heedful check`, clean them with its --fix, or accept them with "
            f"--set data.max_doubtful={min(1.0, report.suspicious_share + 0.01):.2g}"
        )


@dataclass(frozen=True)
class HeldOut:
    """Examples that are kept for validation."""

    examples: list[Example]
    fingerprint: str
    contains: Callable[[str], bool]  # whether a source is held out of the training data


@dataclass(frozen=True)
class TrainingPart:
    """A corpus without the examples that are held out."""

    corpus: Corpus
    held_out: Callable[[str], bool]

    def __iter__(self) -> Iterator[Example]:
        return (example for example in self.corpus if not self.held_out(example.source))


@dataclass
class OverlapCounter:
    """Training pairs, passed through; those whose source is also in the validation data are counted."""

    pairs: Iterable[Example]
    sources: Container[str]
    n_read: int = 0
    n_overlapping: int = 0

    def __iter__(self) -> Iterator[Example]:
        for example in self.pairs:
            self.n_read += 1
            self.n_overlapping += example.source in self.sources
            yield example


def choose_held_out(
    folder: Path,
    corpora: Sequence[Corpus],
    valid: Corpus | None,
    n_pairs: int,
    settings: Settings,
    *,
    notify: Notify,
    unit: str = "pairs",
) -> HeldOut:
    """Take the validation examples from `valid`, or else from the corpora, by the hash of their source.

    A held-out source is held out wherever it occurs, so that no validation sentence is ever trained on.
    """
    if valid is not None:
        examples = list(valid)
        notify(f"validating on {valid.name}: {len(examples):,} {unit}")
        report_skipped(valid, notify)
        write_valid(folder, examples)
        return HeldOut(examples, "given", lambda source: False)
    options = "--valid-source and --valid-target" if unit == "pairs" else "--valid"
    require_hold_out(settings.data.hold_out, give=options)
    share = min(settings.data.hold_out / max(1, n_pairs), LARGEST_SHARE)
    is_held_out = hash_sample(share)
    examples, n_others = [], 0
    for example in chain.from_iterable(corpora):
        if is_held_out(example.source):
            examples.append(example)
        else:
            n_others += 1
    if not examples:
        raise UserError(f"{n_pairs:,} {unit} are too few to hold some out: give {options}, or more data")
    if not n_others:
        raise nothing_left(len(examples), unit, give=options)
    n_sources = len({example.source for example in examples})
    notify(f"no validation files given: {len(examples):,} {unit} ({n_sources:,} unique sources) are held out instead")
    write_valid(folder, examples)
    return HeldOut(examples, f"held out {share!r}", is_held_out)


def report_skipped(corpus: Corpus, notify: Notify) -> None:
    """Report the lines that the last pass over a corpus could not use."""
    if n_lines := corpus.skipped.total():
        kinds = ", ".join(f"{count:,} {KINDS[kind].what}" for kind, count in corpus.skipped.items())
        notify(f"{corpus.name}: {n_lines:,} {'line is' if n_lines == 1 else 'lines are'} left out ({kinds})")


def report_overlap(counters: Sequence[OverlapCounter], notify: Notify) -> None:
    """Report how much of the training data is also in validation; shards of an earlier start are not counted again."""
    if not all(counter.n_read for counter in counters):
        return
    n_overlapping = sum(counter.n_overlapping for counter in counters)
    if n_overlapping == 0:
        notify("no training pair has a source that is also in validation")
    else:
        notify(
            f"{n_overlapping:,} training pairs have a source that is also in validation: the scores will be too good"
        )


# --- long sources -----------------------------------------------------------------------------------------------------


class Extractor:
    """Reduces a source that is too long to its most important sentences, as `heedful summarize --long extract` does.

    So the model is trained on the inputs that it will get later: the sentences that fit, in their order.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_len: int, language: str = "en") -> None:
        from heedful.decoding.segmentation import Segmenter

        self._segmenter = Segmenter(tokenizer, SourceLimit(max_len), long="extract", language=language)
        self.language = language
        self.n_reduced = 0

    def __call__(self, text: str) -> str:
        [segmented], stats = self._segmenter.segment([text])
        if not stats.n_extracted or not segmented.segments:  # no sentence fits: the loader leaves the pair out
            return text
        self.n_reduced += 1
        return " ".join(piece.text for piece in segmented.segments)


@dataclass(frozen=True)
class Reduced:
    """Examples whose sources went through an extractor."""

    examples: Iterable[Example]
    extract: Extractor

    def __iter__(self) -> Iterator[Example]:
        return (replace(example, source=self.extract(example.source)) for example in self.examples)


def extractor_of(settings: Settings, tokenizer: Tokenizer, *, language: str, n_special: int = 0) -> Extractor | None:
    """Make the extractor of a run, or return None if data.long leaves long sources out.

    n_special: special tokens before each source, for which there must be room.
    """
    data = settings.data
    if data.long != "extract":
        return None
    return Extractor(tokenizer, max_len=data.max_len - n_special, language=language)


# --- tokenizers -------------------------------------------------------------------------------------------------------


def pair_tokenizers(
    folder: Path,
    parts: Sequence[Iterable[Example]],
    settings: Settings,
    *,
    init_from: Tokenizers | None,
    notify: Notify,
) -> Tokenizers:
    """Load, take over or learn the tokenizers of both sides."""

    def learn() -> Tokenizers:
        sources = (example.source for part in parts for example in part)
        targets = (example.target for part in parts for example in part)
        tokenizers = learn_tokenizers(sources, targets, settings.tokenizer)
        notify(_describe_tokenizers(tokenizers, settings))
        return tokenizers

    if init_from is not None:
        init_from = with_sample_alpha(init_from, settings.tokenizer.sample_alpha)
    return _tokenizer_stage(folder, learn, init_from=init_from, notify=notify)


def text_tokenizer(
    folder: Path,
    texts: Iterable[str],
    settings: Settings,
    *,
    init_from: Tokenizers | None,
    notify: Notify,
    symbols: Sequence[str] = (),
) -> Tokenizer:
    """Load, take over or learn the tokenizer of a model that reads one kind of text.

    symbols: special tokens that the task needs, in addition to tokenizer.special_tokens.
    """
    config = settings.tokenizer

    def learn() -> Tokenizers:
        missing = tuple(symbol for symbol in symbols if symbol not in config.special_tokens)
        tokenizer = learn_tokenizer(texts, replace(config, special_tokens=(*missing, *config.special_tokens)))
        fewer = "" if tokenizer.vocab_size >= config.vocab_size else f" ({config.vocab_size:,} were allowed)"
        notify(f"learned a {config.kind} tokenizer: {tokenizer.vocab_size:,} pieces{fewer}")
        return Tokenizers(source=tokenizer, target=tokenizer)

    return _tokenizer_stage(folder, learn, init_from=init_from, notify=notify).source


def _tokenizer_stage(
    folder: Path, learn: Callable[[], Tokenizers], *, init_from: Tokenizers | None, notify: Notify
) -> Tokenizers:
    """Load the tokenizers if an earlier start made them; otherwise take those of `init_from`, or learn; save them."""
    if has_tokenizers(folder):
        return load_tokenizers(folder, probe=False)
    if init_from is None:
        tokenizers = learn()
    else:
        tokenizers = init_from
        notify("the tokenizers are those of the model to start from")
    with atomic_folder(folder) as aside:
        save_tokenizers(aside, tokenizers)
    return tokenizers


def with_sample_alpha(tokenizers: Tokenizers, alpha: float) -> Tokenizers:
    """Return tokenizers with the same pieces that sample with this run's `alpha`, whatever theirs was."""
    source = _with_alpha(tokenizers.source, alpha)
    return Tokenizers(source, source if tokenizers.joint else _with_alpha(tokenizers.target, alpha))


def _with_alpha(tokenizer: Tokenizer, alpha: float) -> Tokenizer:
    if not isinstance(tokenizer, SentencePieceTokenizer) or tokenizer.config.sample_alpha == alpha:
        return tokenizer
    return tokenizer.with_config(replace(tokenizer.config, sample_alpha=alpha))


def _describe_tokenizers(tokenizers: Tokenizers, settings: Settings) -> str:
    kind, limit = settings.tokenizer.kind, settings.tokenizer.vocab_size
    sizes = [tokenizers.source.vocab_size] + ([] if tokenizers.joint else [tokenizers.target.vocab_size])
    sides = "one for both sides" if tokenizers.joint else "one for each side"
    fewer = "" if max(sizes) >= limit else f" (the text gives no more; {limit:,} were allowed)"
    return f"learned {kind} tokenizers, {sides}: {' and '.join(f'{size:,}' for size in sizes)} pieces{fewer}"


# --- files in the run folder ------------------------------------------------------------------------------------------


def open_shards(folder: Path) -> list[Shards]:
    """Open data/train-0, data/train-1, … of a run folder, in the order of the corpora."""
    paths = sorted((folder / "data").glob("train-*"), key=lambda path: int(path.name.removeprefix("train-")))
    return [Shards.open(path) for path in paths]


def write_valid(folder: Path, examples: Sequence[Example]) -> None:
    write_jsonl(folder / "data" / "valid.jsonl", ({"source": e.source, "target": e.target} for e in examples))


def read_valid(folder: Path) -> list[Example]:
    return list(open_corpus(folder / "data" / "valid.jsonl"))


def write_jsonl(path: Path, values: Iterable[object]) -> None:
    """Write one JSON value a line, the whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, durable=True) as file:
        for value in values:
            file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
