"""Everything that makes a run, as a recipe writes it: small tables, the tokenizer's and the model's.

A default stands here and nowhere else. `[model]` holds the fields of the family's own config; what only the data can
say, the sizes of vocabularies and the names of labels, comes from there.
"""

import math
import re
import sys
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from heedful.config import config_from_dict, config_to_dict, read_toml, with_overrides
from heedful.errors import UserError, did_you_mean, invalid_choice
from heedful.models.model_info import ENCODER_DECODERS
from heedful.models.model_io import FAMILIES
from heedful.text import TokenizerConfig
from heedful.training.auxiliary_losses import AuxiliarySettings
from heedful.training.objectives import ObjectiveSettings
from heedful.training.optim import OptimiserSettings, ScheduleSettings

ENDLESS = ("t5", "universal")  # distances and waves have no last position
SEEDS = 2**63  # so many there are: TOML's whole numbers end here
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z]{4})?(?:-[A-Za-z]{2})?")


@dataclass(frozen=True)
class DataSettings:
    batch_tokens: int = 4096  # target tokens of one step, all ranks together, padding counted
    max_len: int = 256  # pairs with a longer side are left out, and counted
    long: Literal["leave_out", "extract"] = "leave_out"  # of pairs: or longer sources are reduced to what matters
    informal_share: float = (
        0.0  # of pairs: this share is learned once more without final mark, in small letters, or both
    )
    hold_out: int = 1000  # pairs or documents kept for validation when no validation files are given
    hold_out_share: float = 0.1  # of documents = "file": the last characters, kept for validation
    documents: Literal["lines", "paragraphs", "file"] = "paragraphs"  # what in running text stands for itself
    rows: Literal["packed", "random"] = "packed"  # of language models: documents in rows, or windows from anywhere
    isolate_documents: bool = True  # packed documents do not see each other
    columns: tuple[int, ...] = ()  # of pairs, labels, tags: where both stand; () = first and second, of tags the last
    label: Literal["first", "last"] | None = None  # the label's column in a table of pixels without a heading
    image_size: int | None = None  # pixels to each side, to which image files are brought; by default as they are
    flip: bool = False  # of images: half of them are mirrored
    shift: int = 0  # of images: moved by up to so many pixels
    weights: tuple[float, ...] = ()  # of several corpora: how often each is seen, 1 = once in an epoch
    workers: int = 1  # processes that prepare batches beside the training; 0: none
    on_bad_line: Literal["error", "skip"] = "error"
    max_doubtful: float = 0.05  # a corpus with a larger share of doubtful pairs is refused
    languages: tuple[str, ...] = ()  # codes of source and target: for the card, and where a file names its languages

    def __post_init__(self) -> None:
        _at_least(1, self, "batch_tokens", "max_len")
        _at_least(0, self, "hold_out", "workers", "shift")
        if self.image_size is not None:
            _at_least(1, self, "image_size")
        if self.long == "extract" and self.max_len < 8:
            raise UserError(f"data.long = 'extract' needs room for a sentence, and data.max_len is {self.max_len}")
        if not 0.0 <= self.informal_share <= 1.0:
            raise UserError(f"'informal_share' must lie between 0 and 1, found {self.informal_share}")
        if not 0.0 < self.hold_out_share < 1.0:
            raise UserError(f"'hold_out_share' must lie between 0 and 1, found {self.hold_out_share}")
        if not all(0.0 <= weight < math.inf for weight in self.weights):
            raise UserError(f"'weights' must be numbers from 0 upwards, found {list(self.weights)}")
        if self.weights and not any(self.weights):
            raise UserError(
                f"'weights' must not all be 0, found {list(self.weights)}: nothing would be left to learn from"
            )
        if self.columns and (len(self.columns) != 2 or self.columns[0] == self.columns[1] or 0 in self.columns):
            raise UserError(
                f"'columns' must be two different columns, counted from 1, such as [2, 1], found {list(self.columns)}"
            )
        if self.languages and (len(self.languages) != 2 or not all(map(_LANGUAGE.fullmatch, self.languages))):
            raise UserError(f'\'languages\' must be two codes such as ["en", "de"], found {list(self.languages)}')


@dataclass(frozen=True)
class LossSettings:
    label_smoothing: float = 0.1  # the share of certainty that is spread over all words
    r_drop: float = 0.0  # weight of the agreement between two passes with different dropout; 0: one pass

    def __post_init__(self) -> None:
        if not 0.0 <= self.label_smoothing < 1.0:
            raise UserError(f"'loss.label_smoothing' must lie in [0, 1), found {self.label_smoothing}")
        _at_least(0, self, "r_drop")


@dataclass(frozen=True)
class NoiseSettings:
    """What is hidden of a text or an image that a model learns to restore."""

    rate: float | None = None  # the share that is hidden; by default 0.15, of BART 0.3, of patches 0.5
    mean_span: float = 3.0  # tokens that are hidden together, by T5 and BART
    whole_words: bool = False  # of masked tokens: all pieces of a word, or none

    def __post_init__(self) -> None:
        if self.rate is not None and not 0.0 < self.rate < 1.0:
            raise UserError(f"'noise.rate' must lie between 0 and 1, found {self.rate}")
        if self.mean_span < 1.0:
            raise UserError(f"'noise.mean_span' must be at least 1, found {self.mean_span}")


@dataclass(frozen=True)
class RunSettings:
    steps: int = 10_000  # updates in all, counted from the first
    minutes: float | None = None  # stop after so much training time, over all sittings
    patience: int | None = None  # stop after so many validations without a better score
    metric: str = "auto"  # what "better" means: loss, or one of the task's (bleu, accuracy, …); auto: its usual one
    validate_every: int = 1000
    save_every: int = 1000
    log_every: int = 50
    seed: int = 1
    micro_batches: int = 1  # parts into which the batch of a step is cut, to need less memory
    keep_last: int = 3  # checkpoints to go on from
    keep_best: int = 1  # checkpoints with the best scores
    average: int = 5  # so many last checkpoints are averaged into the model in average/
    ema: float = 0.0  # decay of a running average of the weights, e.g. 0.999; 0: none
    validation_sentences: int = 500  # validation sentences that are translated for BLEU and chrF; the loss takes all
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"  # bfloat16 where the machine is made for it
    parallel: Literal["ddp", "fsdp"] = "ddp"  # fsdp: parameters and optimiser divided over the ranks (FSDP2)
    compile: bool = False  # torch.compile: pays on GPUs; takes minutes at the start
    threads: int | None = None  # of one process; by default measured: one, or one for each core

    def __post_init__(self) -> None:
        _at_least(
            1, self, "steps", "validate_every", "save_every", "log_every", "micro_batches", "keep_last", "average"
        )
        _at_least(0, self, "keep_best")
        _at_least(0, self, "seed", "validation_sentences")
        _at_least(1, self, *(name for name in ("patience", "threads") if getattr(self, name) is not None))
        if self.minutes is not None and self.minutes <= 0:
            raise UserError(f"'minutes' must be positive, found {self.minutes}")
        if self.seed >= SEEDS:
            raise UserError(f"'seed' must be less than {SEEDS:,}, found {self.seed}")
        if not 0.0 <= self.ema < 1.0:
            raise UserError(f"'run.ema' must lie in [0, 1), found {self.ema}")


@dataclass(frozen=True)
class Settings:
    family: str = "seq2seq"  # of models: seq2seq, gpt, bert, bart, t5, vit, universal
    task: str = ""  # what the model learns; by default what the family learns from the files given
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    noise: NoiseSettings = field(default_factory=NoiseSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise invalid_choice("family", self.family, FAMILIES)
        if self.auxiliary != AuxiliarySettings() and self.family != "gpt":
            raise UserError(f"[auxiliary] is for language models, the family 'gpt', and this is '{self.family}'")
        known = {f.name for f in fields(FAMILIES[self.family][0])}
        large = 10**8  # above any special id of a model to start from
        stand_ins = {"source_vocab_size": large, "target_vocab_size": large, "vocab_size": large, "head": "none"}
        if self.data.image_size is not None or "patch_size" in self.model:
            stand_ins["image_size"] = self.data.image_size or self.model["patch_size"]
        # An unknown key is an error now, not after the data.
        self.model_config(**{name: value for name, value in stand_ins.items() if name in known})

    def model_config(self, **from_data: Any) -> Any:
        """The family's config: `[model]`, and what comes from the data.

        Special ids, rows of the vocabulary (which may be more than the pieces), the channels and the scale of pixels in
        `[model]` are those of a model to start from, and stay.
        """
        kind = FAMILIES[self.family][0]
        for name in from_data:
            if name in self.model and not _may_be_given(name):
                raise UserError(f"'model.{name}' comes from {_REMEDIES.get(name, 'the data; leave it out')} instead")
        usual = {name: value for name, value in from_data.items() if _may_be_given(name)}
        fixed = {name: value for name, value in from_data.items() if name not in usual}
        values = {**self._usual(kind), **usual, **self.model, **fixed}
        if "special_ids" in usual:
            values["special_ids"] = {**config_to_dict(usual["special_ids"]), **self.model.get("special_ids", {})}
        return config_from_dict(kind, values, where="settings", table="model")

    def _usual(self, kind: type[Any]) -> dict[str, Any]:
        """What `[model]` need not say, because other settings say it."""
        known = {f.name for f in fields(kind)}
        usual: dict[str, Any] = {}
        if "tied" in known and "source_vocab_size" in known and not self.tokenizer.joint:
            usual["tied"] = "target"
        if "max_len" in known:
            usual["max_len"] = self.trained_len
        return usual

    @property
    def trained_len(self) -> int:
        """How long a text the model has been trained on: longer ones are split before they are translated.

        A decoder reads one more than it was trained on, the start.
        """
        return self.data.max_len + (1 if self.family in ENCODER_DECODERS else 0)

    @property
    def last_position(self) -> int | None:
        """The most tokens that the model can read: learned positions end with their table, all others go on."""
        usual = getattr(FAMILIES[self.family][0], "positions", "learned")  # the field's default, where there is one
        is_learned = self.family not in ENDLESS and self.model.get("positions", usual) == "learned"
        return int(self.model.get("max_len", self.trained_len)) if is_learned else None


def read_settings(
    recipe: str | Path | None, overrides: Iterable[str] = (), *, without: Container[str] = ()
) -> Settings:
    """The settings of a recipe, built-in by name or a file, with `a.b=c` changes on top.

    `without`: the keys of `[model]` that are not for the recipe to say.
    """
    values = {} if recipe is None else read_toml(find_recipe(recipe))
    if isinstance(values.get("model"), dict):
        values["model"] = {name: value for name, value in values["model"].items() if name not in without}
    where = "settings" if recipe is None else str(recipe)
    return config_from_dict(Settings, with_overrides(values, overrides), where=where)


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
            f"--recipe {recipe}: neither a file nor a built-in recipe{did_you_mean(str(recipe), built_in)}\n"
            f"built-in: {', '.join(built_in)}"
        )
    return built_in[str(recipe)]


def _may_be_given(name: str) -> bool:
    return name in ("vocab_size", "special_ids", "n_channels", "mean", "std")


_REMEDIES = {
    **dict.fromkeys(("source_vocab_size", "target_vocab_size"), "the tokenizer; set tokenizer.vocab_size"),
    "image_size": "the pictures; set data.image_size",
}


def _at_least(least: int, settings: object, *names: str) -> None:
    for name in names:
        if getattr(settings, name) < least:
            raise UserError(f"'{name}' must be at least {least}, found {getattr(settings, name)}")
