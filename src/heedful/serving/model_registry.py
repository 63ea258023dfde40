"""The models of a server, one for each language pair. They are opened before the server listens, never by a request."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translator import Translator
from heedful.decoding.worker_pool import LoadSpec
from heedful.devices import n_cores
from heedful.errors import UserError
from heedful.models.model_info import CARD, ENCODER_DECODERS, card_languages, find_model_folder, require_family
from heedful.serving.errors import ApiError, quoted
from heedful.serving.languages import base, canonical, name_of
from heedful.text import SPECIAL_IDS

_PAIR = re.compile(r"([A-Za-z]{2,3}(?:-[A-Za-z]{4}|-[A-Z]{2})?)-([A-Za-z]{2,3}(?:-[A-Za-z]{4}|-[A-Z]{2})?)")
SHORTEST = Request((SPECIAL_IDS.unk_id,))  # a request with no demands but the search settings


@dataclass(frozen=True)
class Pair:
    """A model and its language pair. `n_threads` threads decode with it, and each calls `prepare` first."""

    source: str
    target: str
    translator: Translator
    n_threads: int = 2
    prepare: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        """The name of the pair, such as "en-fr"."""
        return f"{self.source}-{self.target}"

    @property
    def engine(self) -> str:
        """The engine's name; "auto" is CTranslate2 with torch as its fallback."""
        return {"auto": "ctranslate2"}.get(self.translator.engine.name, self.translator.engine.name)

    def require(self, settings: SearchSettings) -> None:
        """Raise an ApiError if the engine cannot search with these settings."""
        reason = self.translator.engine.why_not([SHORTEST], settings)
        if reason is not None:
            raise ApiError(400, f"Invalid request: the engine of this server cannot do this: {reason}")


class Pairs:
    """All language pairs of a server, and the model of each."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._by_codes: dict[tuple[str, str], Pair] = {}
        for pair in pairs:
            if (pair.source, pair.target) in self._by_codes:
                raise UserError(f"-m: two models for {pair.name}; one pair of languages has one model")
            self._by_codes[pair.source, pair.target] = pair
        self.codes = sorted({code for codes in self._by_codes for code in codes})

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._by_codes.values())

    def code(self, name: object) -> str:
        """Normalize a language code; raise a 400 if no model has this language."""
        code = canonical(name) if isinstance(name, str) else None
        if code not in self.codes:
            raise ApiError(400, f"{quoted(name)} is not supported")
        return code

    def find(self, source: str, target: str) -> Pair | None:
        """Return the model of a language pair, or None if both languages are equal; raise a 400 if it has no model."""
        if source == target:
            return None
        pair = self._by_codes.get((source, target))
        if pair is None:
            message = f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)}"
            raise ApiError(400, f"{message} ({source})")
        return pair

    def sources_for(self, target: str) -> list[str]:
        """List the languages that can be translated into `target`, and `target` itself, whose texts are copied."""
        return [source for source, to in self._by_codes if to == target] + [target]

    def targets_of(self, source: str) -> list[str]:
        """List the languages into which `source` can be translated, and `source` itself."""
        return sorted({to for code, to in self._by_codes if code == source} | {source})

    def languages(self) -> list[dict[str, object]]:
        """Return the response of GET /languages."""
        return [{"code": code, "name": name_of(code), "targets": self.targets_of(code)} for code in self.codes]


def open_pair(argument: str, *, engine: str = "auto", compute: str = "float32", device: str = "cpu") -> Pair:
    """Open the model of an `-m` argument: PATH, or SOURCE-TARGET=PATH if the card does not name the languages."""
    pair, equals, path = argument.partition("=")
    codes = parse_pair(pair) if equals else None
    if codes is None:
        path = argument
    folder = find_model_folder(path)
    require_family(folder, *ENCODER_DECODERS)
    if codes is None:
        codes = languages_of_card(folder)
    if codes is None:
        raise UserError(
            f"{path}: the model's card ({CARD}) does not name its languages; name them with -m en-fr={path}"
        )
    source, target = codes
    translator = Translator.open(LoadSpec(path, engine=engine, compute=compute, device=device, language=base(source)))
    if translator.engine.name == "torch":
        # Decoding steps are too small for several threads: one search per core is faster than one search on all cores.
        return Pair(source, target, translator, n_threads=n_cores(), prepare=_use_one_core)
    # CTranslate2 has its own threads; two callers keep them busy.
    return Pair(source, target, translator, n_threads=2)


def parse_pair(text: str) -> tuple[str, str] | None:
    """Parse a language pair: "en-zh-Hans" becomes ("en", "zh-Hans"). Return None for any other text."""
    match = _PAIR.fullmatch(text)
    return None if match is None else (canonical(match[1]), canonical(match[2]))


def languages_of_card(folder: Path) -> tuple[str, str] | None:
    """Return source and target language from the head of the model's card, or None if it does not name two."""
    codes = [canonical(code) for code in card_languages(folder)]
    return (codes[0], codes[1]) if len(codes) == 2 else None


def _use_one_core() -> None:
    import torch

    torch.set_num_threads(1)
