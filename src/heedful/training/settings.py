"""Every setting of a run, in the tables that a recipe writes, and the built-in recipes.

The defaults are here and nowhere else. `[model]` holds the fields of the family's config, without the fields that
only the data can determine: sizes of vocabularies and names of labels. `heedful.training.setting_rows()` lists all
settings.
"""

import math
import re
import sys
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from heedful.config import config_from_dict, config_to_dict, read_toml, with_overrides
from heedful.errors import UserError, did_you_mean, invalid_choice
from heedful.models.model_info import ENCODER_DECODERS
from heedful.models.model_io import FAMILIES
from heedful.text import TokenizerConfig
from heedful.training.auxiliary_losses import AuxiliarySettings
from heedful.training.objectives import ObjectiveSettings
from heedful.training.optim import OptimiserSettings, ScheduleSettings
from heedful.training.setting_ranges import (
    AT_LEAST_0,
    AT_LEAST_1,
    BELOW_1,
    POSITIVE,
    PROPER_SHARE,
    SHARE,
    check_ranges,
)

ENDLESS = ("t5", "universal")  # families without a longest position: relative distances, sinusoids
Values = dict[str, Any]  # nested: {"run": {"steps": 100}}

MODEL_TABLE = "settings"  # begins the messages about [model]
SEEDS = 2**63  # seeds are smaller: TOML's integers end here
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z]{4})?(?:-[A-Za-z]{2})?")

# The comment behind a field is its description in the reference of settings.


@dataclass(frozen=True)
class DataSettings:
    """[data]: how the files are read, held out and batched."""

    batch_tokens: Annotated[int, AT_LEAST_1] = 4096  # target tokens of one step, all ranks together, padding counted
    max_len: Annotated[int, AT_LEAST_1] = 256  # longest side in tokens; longer pairs are left out, longer texts cut
    long: Literal["leave_out", "extract"] = "leave_out"  # long sources: leave out, or reduce to their main sentences
    informal_share: Annotated[float, SHARE] = 0.0  # add this share once more in lower case or without final punctuation
    hold_out: Annotated[int, AT_LEAST_0] = 1000  # examples kept for validation if no validation files are given
    hold_out_share: Annotated[float, PROPER_SHARE] = 0.1  # share at the end of each file kept for validation
    documents: Literal["lines", "paragraphs", "file"] = "paragraphs"  # what one document of a running text is
    rows: Literal["packed", "random"] = "packed"  # documents packed into rows, or windows from anywhere in the text
    isolate_documents: bool = True  # packed documents cannot attend to each other
    columns: tuple[int, ...] = ()  # the two columns of a table, from 1; by default 1 and 2, of tags 1 and the last
    image_size: Annotated[int | None, AT_LEAST_1] = None  # resize image files to this many pixels a side
    label: Literal["first", "last"] | None = None  # the label's column in a table of pixels without a heading
    flip: bool = False  # mirror half of the images
    shift: Annotated[int, AT_LEAST_0] = 0  # move images by up to this many pixels
    weights: tuple[float, ...] = ()  # how often each of several corpora is seen in an epoch
    workers: Annotated[int, AT_LEAST_0] = 1  # threads that prepare batches; 0: prepare them between the steps
    on_bad_line: Literal["error", "skip"] = "error"  # a line that cannot be used: reject the file, or skip the line
    max_doubtful: float = 0.05  # reject a corpus with a larger share of doubtful pairs
    languages: tuple[str, ...] = ()  # codes of source and target language, such as en,de

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.long == "extract" and self.max_len < 8:
            raise UserError(f"data.long = 'extract' needs room for a sentence, and data.max_len is {self.max_len}")
        if not all(0.0 <= weight < math.inf for weight in self.weights):
            raise UserError(f"'weights' must be numbers of at least 0, found {list(self.weights)}")
        if self.weights and not any(self.weights):
            raise UserError(
                f"'weights' must not all be 0, found {list(self.weights)}: nothing would be left to learn from"
            )
        if self.columns and (len(self.columns) != 2 or self.columns[0] == self.columns[1] or 0 in self.columns):
            raise UserError(
                f"'columns' must be two different columns, counted from 1, such as [2, 1], found {list(self.columns)}"
            )
        if self.languages and (len(self.languages) != 2 or not all(map(_LANGUAGE.fullmatch, self.languages))):
            raise UserError(f"'languages' must be two codes such as en,de, found {','.join(self.languages)}")


@dataclass(frozen=True)
class LossSettings:
    """[loss]: what is added to the cross-entropy."""

    label_smoothing: Annotated[float, BELOW_1] = 0.1  # share of the probability that is spread over the vocabulary
    r_drop: Annotated[float, AT_LEAST_0] = 0.0  # weight of R-Drop, the agreement of two passes; 0: one pass

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class NoiseSettings:
    """[noise]: what is masked of a text or an image that a model learns to restore."""

    rate: Annotated[float | None, PROPER_SHARE] = None  # share that is masked; by default 0.15, BART 0.3, patches 0.5
    mean_span: Annotated[float, AT_LEAST_1] = 3.0  # mean length of masked spans, in tokens
    whole_words: bool = False  # mask all pieces of a word or none

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class RunSettings:
    """[run]: how long, how often, where, and with which numbers."""

    steps: Annotated[int, AT_LEAST_1] = 10_000  # updates in all
    minutes: Annotated[float | None, POSITIVE] = None  # stop after this much training time, over all starts of the run
    patience: Annotated[int | None, AT_LEAST_1] = None  # stop after this many validations without a better score
    metric: str = "auto"  # what the best model is chosen by: loss, or a metric of the task; auto: its usual one
    validate_every: Annotated[int, AT_LEAST_1] = 1000  # steps between validations
    save_every: Annotated[int, AT_LEAST_1] = 1000  # steps between checkpoints; each validation saves one, too
    log_every: Annotated[int, AT_LEAST_1] = 50  # steps between progress events
    seed: Annotated[int, AT_LEAST_0] = 1  # seed of new weights, order of the data, dropout and noise
    micro_batches: Annotated[int, AT_LEAST_1] = 1  # parts into which a batch is cut, to need less memory
    keep_last: Annotated[int, AT_LEAST_1] = 3  # newest checkpoints that are kept
    keep_best: Annotated[int, AT_LEAST_0] = 1  # checkpoints with the best scores that are kept
    average: Annotated[int, AT_LEAST_1] = 5  # last checkpoints that are averaged into the model in average/
    ema: Annotated[float, BELOW_1] = 0.0  # decay of a running average of the weights, such as 0.999; 0: none
    validation_sentences: Annotated[int, AT_LEAST_0] = 500  # sources that are translated for BLEU and chrF; 0: none
    device: str = "auto"  # cpu, cuda, cuda:1, mps; auto: a GPU if there is one
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"  # auto: bfloat16 if the device has it
    parallel: Literal["ddp", "fsdp"] = "ddp"  # on several ranks: whole copies, or divided weights (FSDP2)
    compile: bool = False  # torch.compile: faster on GPUs, takes minutes at the start
    threads: Annotated[int | None, AT_LEAST_1] = None  # threads of a process; by default the faster of 1 and 1 per core

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.seed >= SEEDS:
            raise UserError(f"'seed' must be less than {SEEDS:,}, found {self.seed}")


@dataclass(frozen=True)
class Settings:
    """All tables of settings.toml."""

    family: str = "seq2seq"  # model family: seq2seq, gpt, bert, bart, t5, vit or universal
    task: str = ""  # what the model learns; by default what the family learns from files of this kind
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
        try:  # so that an unknown key is an error now and not after the data is prepared
            self.model_config(**{name: value for name, value in stand_ins.items() if name in known})
        except UserError as error:
            raise UserError(str(error).removeprefix(f"{MODEL_TABLE}: ")) from None

    def model_config(self, **from_data: Any) -> Any:
        """Make the family's config from `[model]` and from what the data determines.

        If `[model]` has special ids, a vocabulary size, channels or a scale of pixels, they come from a model to start
        from, and the data does not override them.
        """
        kind = FAMILIES[self.family][0]
        for name in from_data:
            if name in self.model and not _may_come_from_start(name):
                raise UserError(f"'model.{name}' comes from {_REMEDIES.get(name, 'the data; leave it out')} instead")
        usual = {name: value for name, value in from_data.items() if _may_come_from_start(name)}
        fixed = {name: value for name, value in from_data.items() if name not in usual}
        values = {**self._usual(kind), **usual, **self.model, **fixed}
        if "special_ids" in usual:
            values["special_ids"] = merged(config_to_dict(usual["special_ids"]), self.model.get("special_ids", {}))
        return config_from_dict(kind, values, where=MODEL_TABLE, table="model")

    def _usual(self, kind: type[Any]) -> dict[str, Any]:
        """Return the fields of `[model]` that follow from other settings if they are not set."""
        known = {f.name for f in fields(kind)}
        usual: dict[str, Any] = {}
        if "tied" in known and "source_vocab_size" in known and not self.tokenizer.joint:
            usual["tied"] = "target"
        if "max_len" in known:
            usual["max_len"] = self.trained_len
        return usual

    @property
    def image_options(self) -> dict[str, Any]:
        """Arguments of `open_training_images`: size and channels of a model to start from, or those of the settings."""
        return {
            "size": self.data.image_size,
            "n_channels": self.model.get("n_channels"),
            "resize": self.model.get("resize", "bilinear"),
            "label": self.data.label,
        }

    @property
    def trained_len(self) -> int:
        """The longest text that the model is trained on, in tokens; longer texts are split before they are translated.

        A decoder reads one token more than the target has, the start token.
        """
        return self.data.max_len + (1 if self.family in ENCODER_DECODERS else 0)

    @property
    def last_position(self) -> int | None:
        """The number of tokens that a model with learned positions can read; None if positions have no end."""
        usual = getattr(FAMILIES[self.family][0], "positions", "learned")
        is_learned = self.family not in ENDLESS and self.model.get("positions", usual) == "learned"
        return int(self.model.get("max_len", self.trained_len)) if is_learned else None


# --- settings as nested dicts -----------------------------------------------------------------------------------------


def merged(*layers: Mapping[str, Any]) -> Values:
    """Merge nested dicts; later ones win.

    >>> merged({"run": {"steps": 100, "seed": 1}}, {"run": {"steps": 5}})
    {'run': {'steps': 5, 'seed': 1}}
    """
    result: Values = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            if isinstance(value, Mapping):
                value = merged(below, value) if isinstance(below, Mapping) else merged(value)
            result[key] = value
    return result


def read_overrides(overrides: Iterable[str]) -> Values:
    """Return "key=value" strings as nested values; a list of strings may be typed with commas.

    >>> read_overrides(["data.languages=en,de", "run.steps=5"])
    {'data': {'languages': ['en', 'de']}, 'run': {'steps': 5}}
    """
    values = with_overrides({}, overrides)
    for table, kind in typing.get_type_hints(Settings).items():
        typed = values.get(table)
        if isinstance(typed, dict) and isinstance(kind, type):
            for name, hint in typing.get_type_hints(kind).items():
                if hint == tuple[str, ...] and isinstance(typed.get(name), str):
                    typed[name] = [item.strip() for item in typed[name].split(",") if item.strip()]
    return values


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join the keys of nested tables with dots.

    >>> flat({"run": {"steps": 100}})
    {'run.steps': 100}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return result


# --- recipes ----------------------------------------------------------------------------------------------------------


def read_settings(recipe: str | Path | None, overrides: Iterable[str] = ()) -> Settings:
    """Return the settings of a recipe, built-in or a file, with "key=value" changes on top.

    >>> read_settings("tiny", ["run.steps=500"]).run.steps
    500
    """
    values = {} if recipe is None else read_toml(find_recipe(recipe))
    where = "settings" if recipe is None else str(recipe)
    return config_from_dict(Settings, merged(values, read_overrides(overrides)), where=where)


def choose_recipe(n_pairs: int) -> str:
    """Return the name of the built-in recipe for a number of pairs.

    >>> choose_recipe(500_000)
    'small'
    """
    return next(name for name, most in RECIPES_BY_SIZE.items() if n_pairs <= most)


# recipe -> the largest number of pairs for which it is chosen; a larger model would memorise so few pairs
RECIPES_BY_SIZE = {"tiny": 100_000, "small": 1_000_000, "base": 20_000_000, "big": sys.maxsize}


def find_recipe(recipe: str | Path) -> Path:
    """Return the file of a recipe: a path, or the name of a built-in one."""
    if Path(recipe).is_file():
        return Path(recipe)
    built_in = {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.toml"))}
    if str(recipe) not in built_in:
        raise UserError(
            f"--recipe {recipe}: neither a file nor a built-in recipe{did_you_mean(str(recipe), built_in)}\n"
            f"built-in: {', '.join(built_in)}"
        )
    return built_in[str(recipe)]


def _may_come_from_start(name: str) -> bool:
    """Return whether a field that the data determines may be set in `[model]`, by a model to start from."""
    return name in ("vocab_size", "special_ids", "n_channels", "mean", "std")


_REMEDIES = {
    **dict.fromkeys(("source_vocab_size", "target_vocab_size"), "the tokenizer; set tokenizer.vocab_size"),
    "image_size": "the images; set data.image_size",
}
