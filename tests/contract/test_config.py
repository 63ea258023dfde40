"""Settings: what fits goes round unchanged, what does not is refused with the key, the value and the remedy."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import config_from_dict, config_to_dict, read_json, read_toml, with_overrides
from heedful.errors import MissingExtra, UserError, closest_match, did_you_mean, invalid_choice


@dataclass(frozen=True)
class Schedule:
    kind: Literal["constant", "warmup"] = "warmup"
    warmup_steps: int = 4000
    final_lr: float | None = None

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise UserError(f"warmup_steps must not be negative, found {self.warmup_steps}")


@dataclass(frozen=True)
class Optimiser:
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.98)


@dataclass(frozen=True)
class Corpus:
    path: Path
    weight: float = 1.0


@dataclass(frozen=True)
class Settings:
    name: str
    steps: int = 100
    resume: bool = False
    threads: Literal["auto"] | int = "auto"
    limit: int | float = 1
    order: Literal[1, 2] = 1
    plan: str | Schedule = "default"
    tags: tuple[str, ...] = ()
    scores: list[float] = field(default_factory=list)
    languages: dict[str, int] = field(default_factory=dict)
    corpora: tuple[Corpus, ...] = ()
    schedule: Schedule = field(default_factory=Schedule)
    optimiser: Optimiser = field(default_factory=Optimiser)
    second: Optimiser | None = None
    folder: Path | None = None
    model: dict[str, Any] = field(default_factory=dict)
    n_tags: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_tags", len(self.tags))


def build(**values: Any) -> Settings:
    return config_from_dict(Settings, {"name": "test", **values}, where="run.toml")


# (values, words that the message must have): the key, the value, and what to do about it.
REFUSED = {
    "unknown key": ({"step": 3}, ["run.toml", "'step'", "did you mean 'steps'", "allowed here: name, steps, resume"]),
    "unknown key in a table": (
        {"schedule": {"warmup": 8000}},
        ["'schedule.warmup'", "mean 'schedule.warmup_steps'?", "allowed in [schedule]: kind, warmup_steps, final_lr"],
    ),
    "key outside its table": ({"lr": 1.0}, ["'lr'", "did you mean 'optimiser.lr'?"]),
    "unknown key in an optional table": ({"second": {"beta": 1.0}}, ["'second.beta'", "'second.betas'", "in [second]"]),
    "nothing near": ({"zzz": 1}, ["unknown key 'zzz'\n"]),
    "a field that is computed": ({"n_tags": 3}, ["unknown key 'n_tags'", "'tags'"]),
    "string for int": ({"steps": "10"}, ["'steps'", "a whole number", "'10'", "str"]),
    "float for int": ({"steps": 10.0}, ["'steps'", "a whole number", "10.0", "float"]),
    "bool for int": ({"steps": True}, ["'steps'", "a whole number", "True", "bool"]),
    "int for bool": ({"resume": 1}, ["'resume'", "true or false", "1 (int)"]),
    "bool for float": ({"optimiser": {"lr": True}}, ["'optimiser.lr'", "a number", "True"]),
    "nan": ({"optimiser": {"lr": float("nan")}}, ["'optimiser.lr'", "a number", "nan"]),
    "too large for float": ({"optimiser": {"lr": 10**400}}, ["'optimiser.lr'", "a number"]),
    "null": ({"steps": None}, ["'steps'", "a whole number", "None"]),
    "int for str": ({"name": 7}, ["'name'", "a string", "7 (int)"]),
    "value for table": ({"optimiser": 3}, ["'optimiser'", "a table", "3 (int)"]),
    "table for value": ({"steps": {"n": 3}}, ["'steps'", "a whole number", "{'n': 3}"]),
    "outside the choice": (
        {"schedule": {"kind": "warm"}},
        ["'schedule.kind'", "'warm'", "did you mean 'warmup'?", "allowed: constant, warmup"],
    ),
    "choice of another type": ({"schedule": {"kind": 1}}, ["'schedule.kind'", "1", "allowed: constant, warmup"]),
    "bool for a choice of numbers": ({"order": True}, ["'order'", "True", "allowed: 1, 2"]),
    "float for a choice of numbers": ({"order": 1.0}, ["'order'", "1.0", "allowed: 1, 2"]),
    "unknown key in a union's table": ({"plan": {"kid": "warmup"}}, ["'plan.kid'", "'plan.kind'", "in [plan]"]),
    "neither of a union": ({"threads": 1.5}, ["'threads'", "one of: auto or a whole number", "1.5"]),
    "item of a list": ({"tags": ["a", 3]}, ["'tags[1]'", "a string", "3 (int)"]),
    "no list": ({"tags": "a"}, ["'tags'", "a list, each item a string", "'a'"]),
    "pair of three": (
        {"optimiser": {"betas": [0.9, 0.9, 0.9]}},
        ["'optimiser.betas'", "a list of 2: a number, a number"],
    ),
    "item of a dict": ({"languages": {"de": "x"}}, ["'languages.de'", "a whole number", "'x'"]),
    "no dict": ({"languages": 3}, ["'languages'", "a table", "3 (int)"]),
    "key in a list of tables": (
        {"corpora": [{"path": "a", "wieght": 2}]},
        ["'corpora[0].wieght'", "'corpora[0].weight'"],
    ),
    "missing in a list of tables": ({"corpora": [{"weight": 2}]}, ["'corpora[0].path'", "missing"]),
    "refused by the class itself": (
        {"schedule": {"warmup_steps": -1}},
        ["run.toml: [schedule]", "warmup_steps must not be negative, found -1"],
    ),
}


@pytest.mark.parametrize(("values", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        build(**values)
    for word in words:
        assert word in str(error.value)


def test_a_missing_key_without_default_is_named() -> None:
    with pytest.raises(UserError, match=r"run\.toml: 'name' is missing and has no default"):
        config_from_dict(Settings, {}, where="run.toml")


def test_defaults_come_from_the_class() -> None:
    assert build() == Settings(name="test")


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(UserError) as error:
        build(steps="x" * 10_000)
    assert len(str(error.value)) < 200


def test_whole_numbers_serve_as_floats() -> None:
    lr = build(optimiser={"lr": 1}).optimiser.lr
    assert (lr, type(lr)) == (1.0, float)


@pytest.mark.parametrize("value", [2, 2.0])
def test_a_union_keeps_the_type_that_was_given(value: float) -> None:
    assert type(build(limit=value).limit) is type(value)


@pytest.mark.parametrize("value", ["auto", 4])
def test_a_union_with_a_choice(value: object) -> None:
    assert build(threads=value).threads == value


def test_tables_lists_and_paths_become_their_types() -> None:
    settings = build(corpora=[{"path": "a.en", "weight": 2}], tags=["x"], folder="runs/a", second={"lr": 2})
    assert settings.corpora == (Corpus(path=Path("a.en"), weight=2.0),)
    assert settings.tags == ("x",)
    assert settings.folder == Path("runs/a")
    assert settings.second == Optimiser(lr=2.0)


@pytest.mark.parametrize("value", [True, 1, 1.5, "text", [1, "a"], {"b": {"c": False}}])
def test_a_table_of_anything_keeps_what_it_is_given(value: object) -> None:
    assert build(model={"a": value}).model == {"a": value}
    assert config_to_dict(build(model={"a": value}))["model"] == {"a": value}


def test_none_is_left_out_and_comes_back() -> None:
    assert "folder" not in config_to_dict(build(folder=None))
    assert build(folder=None).folder is None


def test_a_none_that_would_come_back_as_something_else_is_our_bug() -> None:
    @dataclass(frozen=True)
    class Clipping:
        max_norm: float | None = 1.0

    with pytest.raises(AssertionError, match=r"Clipping\.max_norm"):
        config_to_dict(Clipping(max_norm=None))


numbers = st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
optimisers = st.builds(Optimiser, lr=numbers, betas=st.tuples(numbers, numbers))
settings_of_all_kinds = st.builds(
    Settings,
    name=texts,
    steps=st.integers(-(2**63), 2**63 - 1),
    resume=st.booleans(),
    threads=st.just("auto") | st.integers(),
    limit=st.integers() | numbers,
    order=st.sampled_from([1, 2]),
    plan=texts | st.just(Schedule(warmup_steps=7)),
    tags=st.lists(texts).map(tuple),
    scores=st.lists(numbers),
    languages=st.dictionaries(texts, st.integers()),
    corpora=st.lists(st.builds(Corpus, path=st.sampled_from([Path("a"), Path("b/ü c")]), weight=numbers)).map(tuple),
    schedule=st.builds(
        Schedule,
        kind=st.sampled_from(["constant", "warmup"]),
        warmup_steps=st.integers(min_value=0),
        final_lr=st.none() | numbers,
    ),
    optimiser=optimisers,
    second=st.none() | optimisers,
    folder=st.none() | st.just(Path("runs/x")),
)


@given(settings_of_all_kinds)
def test_a_round_trip_changes_nothing(settings: Settings) -> None:
    assert config_from_dict(Settings, config_to_dict(settings), where="values") == settings
    assert config_from_dict(Settings, tomllib.loads(tomli_w.dumps(config_to_dict(settings))), where="TOML") == settings
    assert config_from_dict(Settings, json.loads(json.dumps(config_to_dict(settings))), where="JSON") == settings


@given(settings_of_all_kinds)
def test_a_round_trip_keeps_the_types(settings: Settings) -> None:
    again = config_from_dict(Settings, tomllib.loads(tomli_w.dumps(config_to_dict(settings))), where="TOML")
    assert repr(again) == repr(settings)  # 1 == 1.0, but they are not written alike


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("{ lr = 1.0 }", {"lr": 1.0}),
        ('"3"', "3"),
        ("rms", "rms"),
        ("runs/en-de", "runs/en-de"),
        ("a=b", "a=b"),
        ("", ""),
        ("no", "no"),
        ("5#7", "5#7"),  # not 5 and a comment
        ("1,", "1,"),
        ("1, 2", "1, 2"),
        ("1\nother = 2", "1\nother = 2"),
        ("1, 0]\nother = [2", "1, 0]\nother = [2"),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_what_set_reads(text: str, value: object) -> None:
    read = with_overrides({}, [f"a.b={text}"])["a"]["b"]
    assert (read, type(read)) == (value, type(value))


def test_set_goes_into_its_table_and_leaves_the_rest() -> None:
    before = {"optimiser": {"lr": 1.0, "betas": [0.9, 0.98]}, "steps": 5}
    after = with_overrides(before, ["optimiser.lr = 2.0", "schedule.kind=constant", "steps=6", "steps=7"])
    assert after == {"optimiser": {"lr": 2.0, "betas": [0.9, 0.98]}, "steps": 7, "schedule": {"kind": "constant"}}
    assert before == {"optimiser": {"lr": 1.0, "betas": [0.9, 0.98]}, "steps": 5}


@pytest.mark.parametrize("override", ["lr", "=3", "a..b=3", ".a=3", "a.=3", ""])
def test_set_wants_a_key_and_a_value(override: str) -> None:
    with pytest.raises(UserError, match="expected key=value, for example"):
        with_overrides({}, [override])


def test_set_does_not_make_a_table_of_a_value() -> None:
    with pytest.raises(UserError, match=r"--set steps\.n=3: 'steps' is a value, not a table"):
        with_overrides({"steps": 5}, ["steps.n=3"])


UNREADABLE = {
    "bad.toml": (b"steps = \n", ["bad.toml", "TOML", "line 1"]),
    "twice.toml": (b"a = 1\na = 2\n", ["twice.toml", "line 2"]),
    "deep.toml": (b"a = " + b"[" * 5000, ["deep.toml", "TOML"]),
    "digits.toml": (b"a = " + b"9" * 5000, ["digits.toml", "TOML"]),
    "latin1.toml": (b"a = 1\nb = 'caf\xe9'\n", ["latin1.toml", "line 2", "byte 14", "0xE9", "UTF-8"]),
    "bad.json": (b'{"a": }', ["bad.json", "JSON", "line 1"]),
    "twice.json": (b'{"a": {"lr": 1, "lr": 2}}', ["twice.json", "'lr' occurs twice"]),
    "deep.json": (b'{"a":' * 50_000, ["deep.json", "JSON"]),
    "list.json": (b"[1]", ["list.json", "a JSON object", "[1] (list)"]),
    "latin1.json": (b'{"a": "\xff"}', ["latin1.json", "line 1", "0xFF"]),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_file_is_refused(tmp_path: Path, name: str) -> None:
    content, words = UNREADABLE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        (read_toml if name.endswith("toml") else read_json)(tmp_path / name)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("read", [read_toml, read_json])
def test_a_file_that_is_none(tmp_path: Path, read: Any) -> None:
    with pytest.raises(UserError, match=r"absent: no such file"):
        read(tmp_path / "absent")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read(tmp_path)


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_toml(tmp_path / "a.toml") == read_json(tmp_path / "a.json") == {"a": 1}


@pytest.mark.parametrize(
    ("given_name", "meant"),
    [
        ("warm", "warmup_steps"),  # cut short
        ("Layer", "layer"),
        ("LAYER", "layer"),
        ("leyar", "layer"),
        ("layers", "layer"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_closest_name(given_name: str, meant: str | None) -> None:
    allowed = ["layer", "rms", "warmup_steps"]
    assert closest_match(given_name, allowed) == meant
    assert did_you_mean(given_name, allowed) == ("" if meant is None else f"; did you mean '{meant}'?")


@given(st.lists(texts.filter(bool), min_size=1, unique_by=str.casefold), st.data())
def test_a_name_is_closest_to_itself(allowed: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(allowed))
    assert closest_match(name, allowed) == name


def test_one_of_shows_the_value_and_the_whole_set() -> None:
    assert str(invalid_choice("--norm", "lyer", ["layer", "rms"])) == (
        "--norm: unknown value 'lyer'; did you mean 'layer'?\nallowed: layer, rms"
    )


def test_a_missing_extra_names_the_command() -> None:
    assert "pip install 'heedful[plot]'" in str(MissingExtra("A picture", "plot"))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        build().steps = 3  # type: ignore[misc]
