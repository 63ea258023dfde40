"""Settings are merged from recipe, start and --set, and mistakes are rejected before anything is read or written."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from heedful.cli.main import run
from heedful.config import read_toml
from heedful.errors import UserError
from heedful.models.bert import Bert, BertConfig
from heedful.models.model_io import save_model
from heedful.text import TokenizerConfig, Tokenizers, learn_tokenizer
from heedful.training.resolve_settings import resolve_settings
from heedful.training.run_config import Content, Files
from heedful.training.settings import find_recipe
from heedful.training.tasks.registry import TASKS
from small_run import write_corpus
from small_tasks import WRITERS

RECIPES = Path(__file__).parents[2] / "benchmarks" / "recipes"
FOR_PAIRS = ("demo", "tiny", "small", "base", "big")  # chosen by the size of the data, which is small here

# a setting -> the tasks that look at it
TEXTS = {"next_token", "masked_tokens", "denoising", "spans"}
PICTURES = {"image_classification", "masked_patches", "shuffled_patches"}
USED = {
    "data.flip=true": PICTURES,
    "data.shift=1": PICTURES,
    "data.image_size=8": PICTURES,
    "noise.rate=0.2": {"masked_tokens", "denoising", "spans", "masked_patches"},
    "noise.mean_span=2": {"denoising", "spans"},
    "noise.whole_words=true": {"masked_tokens"},
    "data.rows=random": {"next_token"},
    "data.isolate_documents=false": {"next_token"},
    "data.long=extract": {"translation"},
    "data.documents=lines": TEXTS,
    "data.hold_out_share=0.2": TEXTS,
    "tokenizer.vocab_size=400": set(TASKS) - PICTURES,
    "tokenizer.kind=char": set(TASKS) - PICTURES,
    "tokenizer.lowercase=true": set(TASKS) - PICTURES,
    "tokenizer.joint=false": {"translation"},
    "tokenizer.sample_alpha=0.1": {"translation"},
    'data.languages=["en", "de"]': {"translation"},
    "data.max_doubtful=0.2": {"translation"},
    "data.on_bad_line=skip": set(TASKS) - PICTURES,
    "loss.label_smoothing=0.2": set(TASKS) - {"masked_tokens", "masked_patches"},
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Files:
    source, target = write_corpus(tmp_path_factory.mktemp("pairs"))
    return Files.of(source, target, None, None, None)


@pytest.mark.parametrize("recipe", [None, "tiny"])
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("model=5", r"'model' must be a table.*found 5"),
        ("data=3", r"'data' must be a table.*found 3"),
        ("run=fast", r"'run' must be a table.*found 'fast'"),
        ("optimiser.eps=-1.0", r"'eps' must be positive, found -1\.0"),
        ("run.seed=99999999999999999999999", r"'seed' must be less than .*, found 99999999999999999999999"),
        ("run.seed=-1", r"'seed' must be at least 0, found -1"),
        ("run.threads=-1", r"'threads' must be at least 1, found -1"),
        ("run.threads=0", r"'threads' must be at least 1, found 0"),
        ("run.patience=0", r"'patience' must be at least 1, found 0"),
        ("run.minutes=0", r"'minutes' must be positive, found 0"),
        ("run.minutes=-2.5", r"'minutes' must be positive, found -2\.5"),
        ("schedule.warmup_steps=-1", r"'warmup_steps' must be at least 0, found -1"),
        ("schedule.final_lr=-0.5", r"'final_lr' must be at least 0, found -0\.5"),
        ("data.weights=[0, 0.0]", r"'weights' must not all be 0, found \[0\.0, 0\.0\]"),
        ("data.weights=[-0.5]", r"'weights' must be numbers of at least 0, found \[-0\.5\]"),
        ("data.weights=[inf]", r"'weights' must be numbers of at least 0, found \[inf\]"),
        ("data.weights=[1.0, 0.5]", r"data\.weights = \[1\.0, 0\.5\]: 2 weights, but 1 corpus: .* one for each"),
    ],
)
def test_a_value_outside_its_range_is_rejected(typed: str, words: str, recipe: str | None, pairs: Files) -> None:
    with pytest.raises(UserError, match=words):
        resolve_settings(pairs, None, recipe, [typed])


@pytest.mark.parametrize("content", ["pairs", "text", "labels"])
def test_a_corpus_with_weight_0_is_rejected(content: Content, files: dict[Content, Files]) -> None:
    """Some of that corpus would still be held out, and its words would be in the vocabulary."""
    one = files[content]
    two = replace(one, source=(*one.source, "crawl.txt"), target=(*one.target, *(["crawl.xx"] if one.target else [])))
    family, recipe = {"pairs": (None, "tiny"), "text": ("gpt", None), "labels": ("bert", None)}[content]
    name = r"crawl\.txt \+ crawl\.xx" if one.target else r"crawl\.txt"
    with pytest.raises(UserError, match=rf"weights = \[1\.0, 0\.0\]: nothing would be learned from {name}, .*: leave"):
        resolve_settings(two, family, recipe, ["data.weights=[1.0, 0.0]"])
    assert resolve_settings(two, family, recipe, ["data.weights=[1.0, 0.01]"]).settings.data.weights == (1.0, 0.01)


def test_a_table_of_a_recipe_is_a_table(pairs: Files, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("model = 5\n")
    with pytest.raises(UserError, match=r"recipe\.toml.*'model' must be a table.*found 5"):
        resolve_settings(pairs, None, tmp_path / "recipe.toml", [])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[Content, Files]:
    """Return files of each kind."""
    folder = tmp_path_factory.mktemp("files")
    source, target = write_corpus(folder)
    found: dict[Content, Files] = {"pairs": Files.of(source, target, None, None, None)}
    kinds: tuple[Content, ...] = ("text", "labels", "tags", "images")
    for kind in kinds:
        found[kind] = Files.of(WRITERS[kind](folder), (), None, None, None, kind)
    return found


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("typed", USED)
def test_typed_settings_that_a_task_does_not_use_are_rejected(
    typed: str, task: str, files: dict[Content, Files]
) -> None:
    given, family = files[TASKS[task].content], TASKS[task].families[0]
    key = typed.partition("=")[0]
    if task in USED[typed]:
        with_it = ["data.documents=file"] if key == "data.hold_out_share" else []
        assert resolve_settings(given, family, None, [f"task={task}", typed, *with_it]).settings.task == task
    else:
        with pytest.raises(UserError, match=rf"'{key}' = .* is for .*, and the task '{task}' cannot use it"):
            resolve_settings(given, family, None, [f"task={task}", typed])


@pytest.mark.parametrize(
    ("typed", "others"),
    [
        ("data.hold_out_share=0.2", ["data.documents=lines"]),
        ("data.hold_out_share=0.1", ["data.documents=paragraphs"]),
        ("data.hold_out=50", ["data.documents=file"]),
        ("data.hold_out=1000", ["data.documents=file"]),
    ],
)
def test_hold_out_settings_exclude_each_other(typed: str, others: list[str], files: dict[Content, Files]) -> None:
    """Whole files use hold_out_share, documents use hold_out; the other setting would have no effect."""
    key, how = typed.partition("=")[0], others[0].partition("=")[2]
    with pytest.raises(UserError, match=rf"'{key}' = .* is for data\.documents = .*, and here it is '{how}'"):
        resolve_settings(files["text"], "gpt", None, [*others, typed])
    other = {"data.hold_out_share": "data.hold_out=50", "data.hold_out": "data.hold_out_share=0.2"}[key]
    assert resolve_settings(files["text"], "gpt", None, [*others, other]).settings.data.documents == how


def test_a_recipe_for_another_task_does_not_restrict_hold_out(files: dict[Content, Files], tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('family = "bert"\ntask = "classification"\n[data]\ndocuments = "file"\nhold_out_share = 0.2\n')
    assert resolve_settings(files["labels"], None, recipe, ["data.hold_out=50"]).settings.data.hold_out == 50


@pytest.mark.parametrize("typed", ["objective.rate=0.25", "objective.decay=exponential", "objective.decay_steps=10"])
def test_settings_of_other_objectives_are_rejected(typed: str, pairs: Files) -> None:
    key = typed.partition("=")[0]
    with pytest.raises(UserError, match=rf"'{key}' = .* is for objective\.kind = .*, and here it is 'teacher_forcing'"):
        resolve_settings(pairs, None, "tiny", [typed])
    for kind in ("scheduled_sampling", "random_replacement"):
        resolved = resolve_settings(pairs, None, "tiny", [typed, f"objective.kind={kind}"])
        assert resolved.settings.objective.kind == kind


def test_values_without_effect_may_be_typed(files: dict[Content, Files]) -> None:
    typed = ["loss.label_smoothing=0", "data.flip=false", "data.rows=packed", "noise.mean_span=3"]
    assert resolve_settings(files["text"], "bert", None, typed).settings.task == "masked_tokens"


@pytest.mark.parametrize("task", TASKS)
def test_every_chosen_recipe_is_valid(task: str, files: dict[Content, Files]) -> None:
    for family in TASKS[task].families:
        assert resolve_settings(files[TASKS[task].content], family, None, [f"task={task}"]).settings.task == task


@pytest.mark.parametrize("recipe", [*FOR_PAIRS, *sorted(RECIPES.glob("*.toml"))], ids=lambda path: Path(path).stem)
def test_every_named_recipe_is_valid(recipe: str | Path, files: dict[Content, Files]) -> None:
    values = read_toml(find_recipe(recipe))
    task, n_corpora = values.get("task", "translation"), len(values["data"].get("weights", [1.0]))
    one = files[TASKS[task].content]
    given = replace(one, source=one.source * n_corpora, target=one.target * n_corpora)
    assert resolve_settings(given, None, recipe, []).settings.task == task


def test_a_recipe_may_serve_two_tasks(files: dict[Content, Files], tmp_path: Path) -> None:
    """A recipe may have settings of pre-training that fine-tuning does not use; with --set they are rejected."""
    texts = ["a dog runs", "a cat sees the dog"]
    tokenizer = learn_tokenizer(texts, TokenizerConfig(vocab_size=300))
    start = Bert(BertConfig(vocab_size=300, d_model=16, d_ff=16, n_heads=2, n_layers=1, max_len=512))
    save_model(tmp_path / "start", start, Tokenizers(tokenizer, tokenizer))
    labels = replace(files["labels"], init_from=str(tmp_path / "start"))
    recipe = RECIPES / "bert-pretrain.toml"
    settings = resolve_settings(labels, None, recipe, ["task=classification"]).settings
    assert settings.noise.whole_words and settings.data.documents == "lines"
    with pytest.raises(UserError, match=r"'noise\.whole_words' = True is for masked_tokens"):
        resolve_settings(labels, None, recipe, ["task=classification", "noise.whole_words=true"])


def test_columns_beside_files_without_columns_are_refused(files: dict[Content, Files], tmp_path: Path) -> None:
    typed = ["data.columns=[2, 1]"]
    with pytest.raises(UserError, match=r"'data\.columns' = \[2, 1\] .*train\.en"):
        resolve_settings(files["pairs"], None, "tiny", typed)
    with pytest.raises(UserError, match=r"'data\.columns' = \[2, 1\] .*rows\.jsonl"):
        resolve_settings(Files.of("rows.jsonl", (), None, None, None), None, "tiny", typed)
    with_valid = replace(files["pairs"], valid=("valid.tsv.gz",))  # where there are columns
    for given in (files["labels"], files["tags"], with_valid, Files.of("rows.tsv.xz", (), None, None, None)):
        family = "seq2seq" if given.content == "pairs" else "bert"
        recipe = "tiny" if given.content == "pairs" else None
        assert resolve_settings(given, family, recipe, typed).settings.data.columns == (2, 1)


def test_two_validation_options_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = map(str, write_corpus(tmp_path))
    sides = ["--valid-source", source, "--valid-target", target, "--dry-run"]
    code = run(["train", str(tmp_path / "run"), "--source", source, "--target", target, "--valid", "v.tsv", *sides])
    assert code == 1
    assert f"--valid v.tsv and --valid-source {source}: only one of them" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("typed", "other", "usual", "wanted"),
    [
        ("schedule.final_lr=1e-5", "schedule.kind", "inverse_sqrt", "linear"),
        ("optimiser.momentum=0.9", "optimiser.kind", "adamw", "muon"),
        ("data.isolate_documents=false", "data.rows", "random", "packed"),
    ],
)
def test_a_setting_without_effect_is_rejected(
    typed: str, other: str, usual: str, wanted: str, files: dict[Content, Files]
) -> None:
    """It would be recorded, and believed to have an effect."""
    key, resolved = typed.partition("=")[0], partial(resolve_settings, files["text"], "gpt", None)
    with pytest.raises(UserError, match=rf"'{key}' = .* is for {other} = .*, and here it is '{usual}'"):
        resolved([f"{other}={usual}", typed])
    assert resolved([f"{other}={wanted}", typed]).settings.family == "gpt"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("model.dropuot=0.2", r"^--set: unknown key 'model\.dropuot'; did you mean 'model\.dropout'"),
        ("model.dropout=2", r"^--set: \[model\] 'dropout' must"),
        ("run.steps=0", r"^--set: \[run\] 'steps' must be at least 1, found 0"),
    ],
)
def test_a_typed_mistake_is_not_blamed_on_the_recipe(typed: str, words: str, pairs: Files) -> None:
    with pytest.raises(UserError, match=words):
        resolve_settings(pairs, None, "tiny", [typed])


def test_a_mistake_in_a_recipe_names_the_recipe(pairs: Files, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[model]\ndropuot = 0.2\n")
    with pytest.raises(UserError, match=rf"^{recipe}: unknown key 'model\.dropuot'"):
        resolve_settings(pairs, None, recipe, ["run.steps=5"])


def test_a_recipe_of_another_family_is_named_with_the_remedy(files: dict[Content, Files]) -> None:
    with pytest.raises(UserError, match=r"^--recipe tiny is for the family 'seq2seq'.* a 'gpt': leave --recipe out"):
        resolve_settings(files["text"], "gpt", "tiny", [])


def test_a_list_may_be_typed_with_commas(pairs: Files) -> None:
    assert resolve_settings(pairs, None, "tiny", ["data.languages=en,de"]).settings.data.languages == ("en", "de")
