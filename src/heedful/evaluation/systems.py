"""Who is evaluated on what: aligned files in, the translations of a model or of a file out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from heedful.data.corpus import read_text
from heedful.data.findings import BadData
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.decoding.search.settings import SearchSettings
    from heedful.decoding.writing.long_text import Tally
    from heedful.decoding.writing.translator import Translator
    from heedful.evaluation.perplexity import Likelihood

Compute = Literal["float32", "int8"]
Tell = Callable[[str, int], None]  # what is being done, and to how many sentences it has been
TOLD = 512  # sentences that are translated before it is told again; enough for full batches


@dataclass(frozen=True)
class Texts:
    """What is translated and how: line n of each belongs to line n of the others."""

    sources: list[str] | None
    references: list[list[str]]
    place: Path  # the file of the first references, for messages

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class System:
    name: str
    hypotheses: list[str]
    likelihood: "Likelihood | None" = None  # of the first references; only a model has one
    notes: tuple[str, ...] = ()  # what became of lines that were too long, and of translations


def read_texts(source: Path | None, targets: Sequence[Path]) -> Texts:
    """The files of a test set, refused if they do not have the same number of lines."""
    references = [_lines(target) for target in targets]
    texts = Texts(None if source is None else _lines(source), references, targets[0])
    for path, lines in zip(targets, references, strict=True):
        _require_as_many(path, lines, texts)
    if source is not None and texts.sources is not None:
        _require_as_many(source, texts.sources, texts)
    return texts


def file_system(path: Path, texts: Texts) -> System:
    """Translations that somebody else made: plain text, or JSONL with "text"."""
    lines = _lines(path)
    _require_as_many(path, lines, texts)
    return System(str(path), lines)


def model_system(
    path: Path,
    texts: Texts,
    *,
    beam: int = 5,
    compute: Compute = "float32",
    device: str = "cpu",
    tell: Tell = lambda what, done: None,
) -> System:
    """What a model makes of the sources, and how likely it finds the references (in float32, whatever it computes)."""
    from heedful.decoding.search.settings import SearchSettings
    from heedful.decoding.steps.encoder_decoder import encoder_decoder
    from heedful.decoding.writing.translator import Translator
    from heedful.evaluation.perplexity import likelihood
    from heedful.models.find import find_model_folder
    from heedful.models.folder import load_model

    if texts.sources is None:
        raise UserError(f"{path}: a model needs text to translate: give --source")
    translator = Translator.load(path, compute=compute, device=device)
    hypotheses, tally = _translated(
        translator, texts.sources, SearchSettings(beam=beam), tell=lambda done: tell(f"{path}: translating", done)
    )
    loaded = load_model(find_model_folder(path), device=device)
    assert loaded.tokenizers is not None  # the translator would have refused it
    likely = likelihood(
        encoder_decoder(loaded),
        loaded.tokenizers,
        texts.sources,
        texts.references[0],
        tell=lambda done: tell(f"{path}: reading the references", done),
    )
    return System(str(path), hypotheses, likely, (*tally.warnings(of="line"), *likely.notes()))


def _translated(
    translator: "Translator", sources: Sequence[str], settings: "SearchSettings", *, tell: Callable[[int], None]
) -> "tuple[list[str], Tally]":
    from heedful.decoding.writing.long_text import Tally

    hypotheses: list[str] = []
    tally = Tally()
    tell(0)
    for start in range(0, len(sources), TOLD):
        answer = translator.answer(sources[start : start + TOLD], settings, start=start)
        tally += answer.tally
        hypotheses += (best[0].text for best in answer.translations)
        tell(len(hypotheses))
    return hypotheses, tally


def _lines(path: Path) -> list[str]:
    try:
        return [example.source for example in read_text(path, keep_empty=True)]
    except BadData as error:  # its remedy ends with how to leave lines out of training: here none may be left out
        remedy = error.remedy.split("\n")[0]
        raise BadData(error.kind, error.place, error.value, remedy=remedy) from None


def _require_as_many(path: Path, lines: Sequence[str], texts: Texts) -> None:
    if len(lines) != len(texts):
        raise UserError(
            f"{path}: {len(lines):,} lines, but {texts.place} has {len(texts):,}. Line n of one must belong to line n "
            "of the other: from a missing line on, every score would be that of other sentences"
        )
