"""The models of a server, one for each pair of languages. They are opened before it listens, never by a request."""

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
SHORTEST = Request((SPECIAL_IDS.unk_id,))  # what a search is asked to do with it, it is asked to do with any text


@dataclass(frozen=True)
class Pair:
    """A model and what it translates. `n_threads` decode with it; each runs `prepare` first."""

    source: str
    target: str
    translator: Translator
    n_threads: int = 2
    prepare: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def engine(self) -> str:
        """What decodes: "auto" is CTranslate2, with torch at hand for what it cannot do."""
        return {"auto": "ctranslate2"}.get(self.translator.engine.name, self.translator.engine.name)

    def require(self, settings: SearchSettings) -> None:
        """Raise an ApiError if the engine cannot search with these settings."""
        reason = self.translator.engine.why_not([SHORTEST], settings)
        if reason is not None:
            raise ApiError(400, f"Invalid request: the engine of this server cannot do this: {reason}")


class Pairs:
    """Which languages are spoken, and which model translates between two of them."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._by_codes: dict[tuple[str, str], Pair] = {}
        for pair in pairs:
            if (pair.source, pair.target) in self._by_codes:
                raise UserError(f"-m: two models for {pair.name}; one pair of languages has one model")
            self._by_codes[pair.source, pair.target] = pair
        self.codes = sorted({code for codes in self._by_codes for code in codes})

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._by_codes.values())

    def code(self, given: object) -> str:
        """The code of a language that is served, or a Refusal."""
        code = canonical(given) if isinstance(given, str) else None
        if code not in self.codes:
            raise ApiError(400, f"{quoted(given)} is not supported")
        return code

    def find(self, source: str, target: str) -> Pair | None:
        """The model for two codes; None where both are the same, and nothing is to be done."""
        if source == target:
            return None
        pair = self._by_codes.get((source, target))
        if pair is None:
            words = (
                f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)} ({source})"
            )
            raise ApiError(400, words)
        return pair

    def sources_for(self, target: str) -> list[str]:
        """Languages that a text may be in, to be given in `target`: itself among them, since nothing is to be done."""
        return [source for source, to in self._by_codes if to == target] + [target]

    def targets_of(self, source: str) -> list[str]:
        return sorted({to for code, to in self._by_codes if code == source} | {source})

    def languages(self) -> list[dict[str, object]]:
        """What GET /languages says."""
        return [{"code": code, "name": name_of(code), "targets": self.targets_of(code)} for code in self.codes]


def open_pair(given: str, *, engine: str = "auto", compute: str = "float32", device: str = "cpu") -> Pair:
    """A model from what `-m` was given: PATH, or SOURCE-TARGET=PATH where its card does not name its languages."""
    named, equals, path = given.partition("=")
    codes = parse_pair(named) if equals else None
    if codes is None:
        path = given
    folder = find_model_folder(path)
    require_family(folder, *ENCODER_DECODERS)
    if codes is None:
        codes = languages_of_card(folder)
    if codes is None:
        raise UserError(
            f"{path}: its card ({CARD}) does not say which languages it translates. Say it: -m en-fr={path}"
        )
    source, target = codes
    translator = Translator.open(LoadSpec(path, engine=engine, compute=compute, device=device, language=base(source)))
    if translator.engine.name == "torch":
        # Steps are too small to be divided: as many searches as cores, each on one, do more than one search on all.
        return Pair(source, target, translator, n_threads=n_cores(), prepare=_use_one_core)
    # CTranslate2 has threads of its own: two callers keep them busy, one waiting while the other is served.
    return Pair(source, target, translator, n_threads=2)


def parse_pair(text: str) -> tuple[str, str] | None:
    """ "en-fr" -> ("en", "fr"), "en-zh-Hans" -> ("en", "zh-Hans"); None if it is no pair."""
    match = _PAIR.fullmatch(text)
    return None if match is None else (canonical(match[1]), canonical(match[2]))


def languages_of_card(folder: Path) -> tuple[str, str] | None:
    """The two languages in the head of the model's card, source and target; None if it does not name two."""
    codes = [canonical(code) for code in card_languages(folder)]
    return (codes[0], codes[1]) if len(codes) == 2 else None


def _use_one_core() -> None:
    import torch

    torch.set_num_threads(1)
