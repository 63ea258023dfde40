"""The settings of a search, the same for all engines. Imports no torch."""

from dataclasses import dataclass
from typing import Any, Literal

from heedful.config import config_from_dict, config_to_dict
from heedful.errors import UserError

# Names of Hugging Face's generate -> the fields of SearchSettings.
HUGGING_FACE_NAMES = {
    "num_beams": "beam",
    "num_return_sequences": "n_best",
    "length_penalty": "length_penalty",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "max_new_tokens": "max_len",
    "min_new_tokens": "min_len",
}
LARGEST_BEAM = 1_000
LARGEST_LEN = 10**6
LARGEST_SEED = 10**18


@dataclass(frozen=True)
class Sampling:
    """Sample each next token from the model's distribution, instead of searching for the most probable text.

    >>> Sampling(temperature=0.8, top_p=0.95, seed=1)
    Sampling(temperature=0.8, top_k=0, top_p=0.95, min_p=0.0, seed=1)
    """

    temperature: float = 1.0
    top_k: int = 0  # sample from the k most probable tokens; 0: from all
    top_p: float = 1.0  # sample from the most probable tokens that together have this probability
    min_p: float = 0.0  # leave out tokens with less than this fraction of the highest probability
    seed: int = 0

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0.0, 100.0)
        _within("top_k", self.top_k, 0, 10**9)
        _within("top_p", self.top_p, 0.0, 1.0)
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("seed", self.seed, 0, LARGEST_SEED)
        if self.temperature == 0.0:
            raise UserError("temperature must be above 0; for the most probable token use beam = 1 without sampling")


@dataclass(frozen=True)
class SearchSettings:
    """How to search. The default is beam search as CTranslate2 does it; `beam=1` is greedy search.

    In each step the `beam` best continuations stay in the beam, and those that end are finished. A search is over
    as `stop` says. Finished hypotheses are sorted by score / length^length_penalty, where the length counts the end of
    the text.

    `stop` and the `early_stopping` of Hugging Face's generate:

    - "patience": when beam x patience hypotheses have finished; with the default patience this is early_stopping=True.
    - "estimated": when `beam` hypotheses have finished that all are better than the best live one would be if it ended
      now; early_stopping=False, which is their default.
    - "proven": when no live hypothesis can get a better normalized score any more; early_stopping="never".

    >>> SearchSettings(beam=4, n_best=4, length_penalty=0.6).limit(10)
    80
    """

    beam: int = 5
    n_best: int = 1  # hypotheses to return
    length_penalty: float = 1.0  # alpha; 0 sorts by the sum of log-probabilities, which favours short texts
    length_rule: Literal["power", "gnmt"] = "power"  # divide by length^alpha, or by ((5 + length) / 6)^alpha
    coverage_penalty: float = 0.0  # GNMT's beta: a penalty for source tokens that got little attention
    patience: float = 1.0
    stop: Literal["patience", "proven", "estimated"] = "patience"
    min_len: int = 0
    max_len: int | None = None  # most target tokens; None: `length_limit` of the source
    repetition_penalty: float = 1.0  # above 1, tokens that already occur become less probable
    no_repeat_ngram: int = 0  # no n tokens occur twice in the same order; 0: no such rule
    diversity: float = 0.0  # a penalty for each further continuation of one hypothesis, for more varied n-best lists
    forbidden: tuple[int, ...] = ()  # ids that must not occur
    sampling: Sampling | None = None  # sample n_best texts instead; beam is not used
    parallel: bool = False  # greedy search that guesses several tokens and checks them in one pass of the model
    shortlist: bool = False  # choose among the words that fit the source: faster (`heedful shortlist` learns them)
    attention: bool = False  # return the cross-attention of each hypothesis

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
        """Return the most target tokens for a source of `n_source` tokens."""
        return self.max_len if self.max_len is not None else max(self.min_len, length_limit(n_source))


def length_limit(n_source: int) -> int:
    """Return the default length limit: more than any translation needs, but an end for one that repeats itself.

    It grows in powers of two, so that sources of similar length have the same limit and can be searched in one batch.
    """
    return 2 * max(32, 1 << (n_source - 1).bit_length()) + 16


def length_norm(length: float, settings: SearchSettings) -> float:
    """Return what a score is divided by."""
    base = length if settings.length_rule == "power" else (5.0 + length) / 6.0
    return float(max(base, 1e-9) ** settings.length_penalty)


def search_settings(options: dict[str, Any], *, where: str = "translate") -> SearchSettings:
    """Make settings from options by name; an unknown name is refused with the most similar one."""
    for name, ours in HUGGING_FACE_NAMES.items():
        if name in options and name != ours:
            raise UserError(f"{where}: unknown option '{name}'; did you mean '{ours}'?")
    sampling = options.get("sampling")
    if isinstance(sampling, Sampling):
        options = {**options, "sampling": config_to_dict(sampling)}
    return config_from_dict(SearchSettings, options, where=where)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also catches NaN
        raise UserError(f"'{name}' must lie between {low:g} and {high:g}, found {value}")
