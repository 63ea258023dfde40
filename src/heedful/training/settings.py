"""Everything that makes a run, as a recipe writes it: five small tables, the tokenizer's and the model's.

A default stands here and nowhere else. `[model]` holds the fields of the family's own config; the vocabulary sizes come
from the tokenizers.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from heedful.config import from_values, read_toml, with_overrides
from heedful.errors import UserError, nearest
from heedful.models.seq2seq import Seq2SeqConfig
from heedful.text import TokenizerConfig
from heedful.training.objectives import ObjectiveSettings
from heedful.training.optimiser import OptimiserSettings
from heedful.training.schedule import ScheduleSettings


@dataclass(frozen=True)
class DataSettings:
    batch_tokens: int = 4096  # target tokens of one step, all ranks together, padding counted
    max_len: int = 256  # pairs with a longer side are left out, and counted
    hold_out: int = 1000  # pairs kept for validation when no validation files are given
    weights: tuple[float, ...] = ()  # of several corpora: how often each is seen, 1 = once in an epoch
    workers: int = 1  # processes that prepare batches beside the training; 0: none
    on_bad_line: Literal["error", "skip"] = "error"
    max_doubtful: float = 0.05  # a corpus with a larger share of doubtful pairs is refused

    def __post_init__(self) -> None:
        _at_least(1, self, "batch_tokens", "max_len")
        _at_least(0, self, "hold_out", "workers")


@dataclass(frozen=True)
class LossSettings:
    label_smoothing: float = 0.1  # the share of certainty that is spread over all words
    r_drop: float = 0.0  # weight of the agreement between two passes with different dropout; 0: one pass

    def __post_init__(self) -> None:
        if not 0.0 <= self.label_smoothing < 1.0:
            raise UserError(f"'loss.label_smoothing' must lie in [0, 1), found {self.label_smoothing}")
        _at_least(0, self, "r_drop")


@dataclass(frozen=True)
class RunSettings:
    steps: int = 10_000  # updates in all, counted from the first
    minutes: float | None = None  # stop after so much training time, over all sittings
    patience: int | None = None  # stop after so many validations without a better score
    metric: Literal["bleu", "chrf", "loss"] = "bleu"  # what "better" means
    validate_every: int = 1000
    save_every: int = 1000
    log_every: int = 50
    seed: int = 1
    accumulate: int = 1  # parts into which the batch of a step is cut, to need less memory
    keep_last: int = 3  # checkpoints to go on from
    keep_best: int = 1  # checkpoints with the best scores
    average: int = 5  # so many last checkpoints are averaged into the model in average/
    ema: float = 0.0  # decay of a running average of the weights, e.g. 0.999; 0: none
    sentences: int = 500  # validation sentences that are translated for BLEU and chrF; the loss takes all
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    shard: Literal["none", "full"] = "none"  # "full": parameters and optimiser divided over the ranks (FSDP2)
    compile: bool = False  # torch.compile: pays on GPUs; takes minutes at the start
    threads: int | None = None  # of one process; by default measured: one, or one for each core

    def __post_init__(self) -> None:
        _at_least(1, self, "steps", "validate_every", "save_every", "log_every", "accumulate", "keep_last", "average")
        _at_least(0, self, "keep_best")
        _at_least(0, self, "seed", "sentences")
        if not 0.0 <= self.ema < 1.0:
            raise UserError(f"'run.ema' must lie in [0, 1), found {self.ema}")


@dataclass(frozen=True)
class Settings:
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        self.model_config(
            source_vocab_size=8, target_vocab_size=8
        )  # an unknown key is an error now, not after the data

    def model_config(self, *, source_vocab_size: int, target_vocab_size: int) -> Seq2SeqConfig:
        for name in ("source_vocab_size", "target_vocab_size"):
            if name in self.model:
                raise UserError(f"'model.{name}' comes from the tokenizer; set tokenizer.vocab_size instead")
        sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
        tied = {} if self.tokenizer.joint or "tied" in self.model else {"tied": "target"}
        # Longer texts than training has seen are split before they are translated, so the model says how long that is.
        reach = {"max_len": self.data.max_len + 1}
        return from_values(Seq2SeqConfig, {**reach, **tied, **self.model, **sizes}, where="settings", table="model")


def read_settings(recipe: str | Path | None, overrides: Iterable[str] = ()) -> Settings:
    """The settings of a recipe, built-in by name or a file, with `a.b=c` changes on top."""
    values = {} if recipe is None else read_toml(find_recipe(recipe))
    where = "settings" if recipe is None else str(recipe)
    return from_values(Settings, with_overrides(values, overrides), where=where)


def choose_recipe(n_pairs: int) -> str:
    """The built-in recipe for so many pairs."""
    return next(name for name, most in RECIPES_BY_SIZE.items() if n_pairs <= most)


# recipe -> up to how many pairs it is chosen: a larger model on fewer pairs learns them by heart
RECIPES_BY_SIZE = {"tiny": 100_000, "small": 1_000_000, "base": 20_000_000, "big": sys.maxsize}


def find_recipe(recipe: str | Path) -> Path:
    """The file of a recipe: a path, or the name of one that comes with heedful."""
    if Path(recipe).is_file():
        return Path(recipe)
    built_in = {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.toml"))}
    if str(recipe) not in built_in:
        raise UserError(
            f"--recipe {recipe}: neither a file nor a built-in recipe{nearest(str(recipe), built_in)}\n"
            f"built-in: {', '.join(built_in)}"
        )
    return built_in[str(recipe)]


def _at_least(least: int, settings: object, *names: str) -> None:
    for name in names:
        if getattr(settings, name) < least:
            raise UserError(f"'{name}' must be at least {least}, found {getattr(settings, name)}")
