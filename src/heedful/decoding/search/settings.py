"""How to search: what users set, the same for both engines."""

from dataclasses import dataclass
from typing import Any, Literal

from heedful.config import config_from_dict, config_to_dict
from heedful.errors import UserError

LARGEST_BEAM = 1_000
LARGEST_LEN = 10**6
LARGEST_SEED = 10**18


@dataclass(frozen=True)
class Sampling:
    """Draw the next token instead of taking the likeliest; whatever the filters leave is drawn by its probability."""

    temperature: float = 1.0
    top_k: int = 0  # keep the k likeliest; 0: all
    top_p: float = 1.0  # keep the likeliest that together reach this probability
    min_p: float = 0.0  # keep those at least this fraction as likely as the likeliest
    seed: int = 0

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0.0, 100.0)
        _within("top_k", self.top_k, 0, 10**9)
        _within("top_p", self.top_p, 0.0, 1.0)
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("seed", self.seed, 0, LARGEST_SEED)
        if self.temperature == 0.0:
            raise UserError("temperature must be above 0; for the likeliest token use --beam 1 without sampling")


@dataclass(frozen=True)
class SearchSettings:
    """Beam search by CTranslate2's rule, which both engines share; beam 1 is greedy search.

    Each step keeps the `beam` best continuations; finished ones are set aside. A search is over when
    beam x patience have finished; they are ranked by score / length^length_penalty, the end mark counted.
    """

    beam: int = 5
    n_best: int = 1
    length_penalty: float = 1.0  # alpha: 0 ranks by the bare sum of log-probabilities, which favours short ones
    length_rule: Literal["power", "gnmt"] = "power"  # length^alpha, or ((5 + length) / 6)^alpha
    coverage_penalty: float = 0.0  # GNMT's beta: source tokens that nobody looked at cost
    patience: float = 1.0
    # "proven": not before no live hypothesis can win; "estimated": as Hugging Face's generate by default
    stop: Literal["patience", "proven", "estimated"] = "patience"
    min_len: int = 0
    max_len: int | None = None  # target tokens; None: by the length of the source (`length_limit`)
    repetition_penalty: float = 1.0  # above 1: tokens that are already there become less likely
    no_repeat_ngram: int = 0  # no n tokens twice in the same order; 0: no such filter
    diversity: float = 0.0  # each further child of one parent costs this much: n-best lists that differ
    forbidden: tuple[int, ...] = ()  # ids that must not be written
    sampling: Sampling | None = None  # n_best independent draws; beam is then not used
    shortlist: bool = False  # write only what the words of the text call for: faster (`heedful shortlist` learns it)
    attention: bool = False  # also give the cross-attention of each hypothesis

    def __post_init__(self) -> None:
        _within("beam", self.beam, 1, LARGEST_BEAM)
        _within("n_best", self.n_best, 1, LARGEST_BEAM)
        _within("length_penalty", self.length_penalty, -10.0, 10.0)
        _within("coverage_penalty", self.coverage_penalty, 0.0, 10.0)
        _within("patience", self.patience, 1e-3, 1e3)
        _within("min_len", self.min_len, 0, LARGEST_LEN)
        _within("max_len", self.max_len if self.max_len is not None else 1, 1, LARGEST_LEN)
        _within("repetition_penalty", self.repetition_penalty, 1e-3, 1e3)
        _within("no_repeat_ngram", self.no_repeat_ngram, 0, 10**6)
        _within("diversity", self.diversity, 0.0, 1e3)
        if self.sampling is None and self.n_best > self.beam:
            raise UserError(f"n_best = {self.n_best} is more than the beam of {self.beam} keeps; raise --beam to it")
        if self.max_len is not None and self.max_len < self.min_len:
            raise UserError(f"max_len = {self.max_len} is below min_len = {self.min_len}")

    def limit(self, n_source: int) -> int:
        """The most tokens to write for a source of that many tokens."""
        return self.max_len if self.max_len is not None else max(self.min_len, length_limit(n_source))


def length_limit(n_source: int) -> int:
    """Long enough for any honest translation, short enough to end one that repeats itself.

    In powers of two, so that sentences of like length have one limit and an engine may search them together.
    """
    return 2 * max(32, 1 << (n_source - 1).bit_length()) + 16


def length_norm(length: float, settings: SearchSettings) -> float:
    """What a score is divided by."""
    base = length if settings.length_rule == "power" else (5.0 + length) / 6.0
    return float(max(base, 1e-9) ** settings.length_penalty)


def search_settings(options: dict[str, Any], *, where: str = "translate") -> SearchSettings:
    """Settings from options by name; an unknown one is refused with the nearest name."""
    sampling = options.get("sampling")
    if isinstance(sampling, Sampling):
        options = {**options, "sampling": config_to_dict(sampling)}
    return config_from_dict(SearchSettings, options, where=where)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also catches NaN
        raise UserError(f"'{name}' must lie between {low:g} and {high:g}, found {value}")
