"""Every task trains with the same Trainer: it learns, leaves models that load, and resumes bit for bit."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from deterministic import fill, largest_difference
from heedful import pipeline
from heedful.config import read_toml
from heedful.errors import UserError
from heedful.models.bert import Bert
from heedful.models.model_io import FAMILIES, load_model, save_model
from heedful.training import Files, read_log
from heedful.training.checkpoint import list_checkpoints, load_checkpoint
from heedful.training.resolve_settings import resolve_settings
from heedful.training.tasks.registry import TASKS, choose_task
from heedful.training.train import Run, train
from small_run import OVERRIDES, write_corpus
from small_tasks import CASES, Case

SPARE = ["data.batch_tokens=16", "optimiser.lr=1e-12", "run.steps=1", "run.device=cpu", "run.threads=1"]


def run_case(case: Case, folder: Path, *overrides: str, **options: object) -> Run:
    given = case.files(folder.parent / "files")
    return train(folder=folder, family=case.family, overrides=[*case.overrides, *overrides], **given, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {}


def finished(name: str, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a function that trains each task once and returns its run."""
    if name not in runs:
        folder = tmp_path_factory.mktemp("task") / "run"
        run_case(CASES[name], folder)
        runs[name] = folder
    return runs[name]


def test_every_task_has_a_case() -> None:
    assert set(TASKS) == {name.split()[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_it_learns_and_leaves_models(
    name: str, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, case = finished(name, runs, tmp_path_factory), CASES[name]
    for which in ("best", "last", "average"):
        loaded = load_model(folder / which)
        assert loaded.family == case.family
        assert (loaded.tokenizers is None) == (case.kind == "images")
        assert (folder / which / "README.md").read_text(encoding="utf-8").count("##") >= 5
    events = read_log(folder / "log.jsonl")
    losses = [event["loss"] for event in events if event["event"] == "step"]
    assert losses[-1] is not None and losses[0] is not None and losses[-1] < losses[0]
    validations = [event for event in events if event["event"] == "validation"]
    assert [event["step"] for event in validations] == [6, 12]
    metric = TASKS[name.split()[0]].metrics[0]
    assert metric == "loss" or metric in {**validations[0].get("metrics", {}), **validations[0]}
    assert all(event["score"] is not None for event in validations)


RUNNING = {
    "classification": ("text-classification", "a dog runs.", "label"),
    "masked_tokens": ("fill-mask", "a <mask> runs.", "token_str"),
    "next_token": ("text-generation", "a dog", "generated_text"),
    "next_token windows": ("text-generation", "a dog", "generated_text"),
    "translation t5": ("translation", "a dog runs", "translation_text"),
    "translation bart": ("summarization", "a dog runs", "summary_text"),
    "translation universal": ("translation", "a dog runs", "translation_text"),
}


@pytest.mark.parametrize("name", RUNNING)
def test_what_is_trained_here_runs_there(
    name: str, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A pipeline needs the run folder only."""
    task, text, key = RUNNING[name]
    answer = pipeline(task, model=str(finished(name, runs, tmp_path_factory)))(text)
    assert isinstance(answer[0][key], str)


def test_a_kill_while_preparing_costs_no_finished_stage(tmp_path: Path) -> None:
    """If tokenizer and shards are complete, nothing is prepared again, and the end is the same."""
    case = CASES["next_token"]

    def die(event: dict[str, object]) -> None:
        if str(event.get("text")).startswith("training on"):
            os._exit(9)

    child = os.fork()
    if child == 0:
        run_case(case, tmp_path / "a" / "run", listeners=[die])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    notes: list[str] = []
    train(folder=tmp_path / "a" / "run", resume=True, listeners=[lambda event: notes.append(str(event.get("text")))])
    assert not any("learned a" in text for text in notes)
    run_case(case, tmp_path / "b" / "run")
    a, b = (load_file(tmp_path / name / "run" / "last" / "model.safetensors") for name in "ab")
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


RESUMED = ["next_token", "next_token windows", "masked_tokens", "image_classification", "denoising", "classification"]


@pytest.mark.parametrize("name", RESUMED)
def test_resumed_is_uninterrupted(
    name: str, runs: dict[str, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Stop after 5 steps and resume: weights, optimiser, average, scores and data position are equal in every bit."""
    whole = finished(name, runs, tmp_path_factory)
    run_case(CASES[name], tmp_path / "run", "run.steps=5")
    train(folder=tmp_path / "run", resume=True, overrides=["run.steps=12"])
    ours, theirs = (load_checkpoint(list_checkpoints(path / "checkpoints")[-1]) for path in (tmp_path / "run", whole))
    assert ours.state.step == theirs.state.step == 12
    assert (ours.state.scores, ours.state.loader) == (theirs.state.scores, theirs.state.loader)
    for kind in ("model", "optimiser", "generators", "ema"):
        a, b = getattr(ours, kind), getattr(theirs, kind)
        assert a.keys() == b.keys() and a
        assert [tensor for tensor in a if not torch.equal(a[tensor], b[tensor])] == []


def test_the_comparison_of_weights_can_fail(
    runs: dict[str, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = finished("next_token", runs, tmp_path_factory)
    run_case(CASES["next_token"], tmp_path / "run", "run.seed=2")
    a, b = (load_file(path / "last" / "model.safetensors") for path in (tmp_path / "run", whole))
    assert any(not torch.equal(a[name], b[name]) for name in a)


def test_the_body_is_taken_over_and_another_head_is_new(
    runs: dict[str, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From masked tokens to labels: all layers are taken over and reported, and --family is not needed."""
    before = finished("masked_tokens", runs, tmp_path_factory)
    case, notes = CASES["classification"], []
    train(
        folder=tmp_path / "run",
        **case.files(tmp_path),  # type: ignore[arg-type]
        init_from=before,
        overrides=[*case.overrides, "optimiser.lr=1e-12", "run.steps=1", "run.ema=0.0"],
        listeners=[lambda event: notes.append(event.get("text"))],  # type: ignore[list-item]
    )
    a, b = (load_file(path / "model.safetensors") for path in (before / "best", tmp_path / "run" / "last"))
    body = [name for name in b if not name.startswith("head.")]
    assert body and all(torch.allclose(a[name], b[name], atol=1e-6) for name in body)
    words = next(str(text) for text in notes if "starts from the weights" in str(text))
    assert "new: head.pooler.linear.weight" in words
    assert "not used: head.transform.weight" in words
    assert load_model(tmp_path / "run" / "last").model.config.labels == ("early", "late")


def test_frozen_parts_keep_every_bit(
    runs: dict[str, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = finished("masked_tokens", runs, tmp_path_factory)
    case = CASES["classification"]
    frozen = 'optimiser.frozen=["embedding", "encoder.layers.0"]'
    overrides = [*case.overrides, frozen, "run.steps=3", "run.ema=0.0"]
    train(folder=tmp_path / "run", **case.files(tmp_path), init_from=before, overrides=overrides)  # type: ignore[arg-type]
    a, b = (load_file(path / "model.safetensors") for path in (before / "best", tmp_path / "run" / "last"))
    for name in a:
        kept = name.startswith(("embedding.", "encoder.layers.0."))
        if name in b and not name.startswith("head."):
            assert torch.equal(a[name], b[name]) == kept, name


def test_another_family_than_that_of_the_start_is_rejected(
    runs: dict[str, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = finished("masked_tokens", runs, tmp_path_factory)
    with pytest.raises(UserError, match=r"family 'bert', and --family gpt"):
        run_case(CASES["next_token"], tmp_path / "run", init_from=before)


def test_texts_longer_than_the_positions_of_a_start_are_rejected(
    runs: dict[str, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = finished("masked_tokens", runs, tmp_path_factory)
    with pytest.raises(UserError, match=r"has 32 positions.*data\.max_len=32"):
        run_case(CASES["classification"], tmp_path / "run", "data.max_len=64", init_from=before)


def test_a_record_without_a_task_is_a_translation(tmp_path: Path) -> None:
    """A settings.toml without family, task and kind of files is that of a translation."""
    source, target = write_corpus(tmp_path, n_pairs=60)
    few = [*OVERRIDES, "run.steps=2", "run.validate_every=2", "run.validation_sentences=0", "run.metric=loss"]
    train(folder=tmp_path / "run", source=source, target=target, overrides=few)
    path = tmp_path / "run" / "settings.toml"
    values = read_toml(path)
    for table, keys in {"files": ["content"], "": ["family", "task", "noise"]}.items():
        for key in keys:
            del (values[table] if table else values)[key]
    for key in ("frozen", "layer_decay", "unfreeze_every", "kind", "momentum"):
        del values["optimiser"][key]
    for key in ("hold_out_share", "documents", "rows", "isolate_documents", "columns", "flip", "shift", "languages"):
        del values["data"][key]
    path.write_text(tomli_w.dumps(values), encoding="utf-8")
    assert train(folder=tmp_path / "run", resume=True, overrides=["run.steps=4"]).step == 4


@pytest.mark.parametrize(
    ("family", "task", "content", "words"),
    [
        ("seq2seq", "", "text", "--family gpt, bert, bart, t5"),
        ("gpt", "", "images", "learns from --text"),
        ("gpt", "spans", "text", "families bart, t5|families t5, bart"),
        ("bert", "masked_tokens", "labels", "learns from --text"),
        ("bert", "classifcation", "labels", "did you mean 'classification'"),
    ],
)
def test_wrong_combinations_are_rejected(family: str, task: str, content: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        choose_task(family, task, content)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "valid", "words"),
    [
        (
            "labels",
            "a dog\tearly\na man\tlaet\n",
            "valid:2: the label 'laet' is not among those of training; did you mean",
        ),
        ("tags", "man x O\n\na x O\nman x B-ORG\n", "valid:3, in the sentence that begins there: the label 'B-ORG'"),
    ],
)
def test_a_label_that_training_lacks_is_named_with_its_line(kind: str, valid: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "valid"
    path.write_text(valid, encoding="utf-8")
    case = CASES["classification" if kind == "labels" else "tagging"]
    with pytest.raises(UserError, match="take the example out, or train with examples") as refused:
        train(folder=tmp_path / "run", family="bert", valid=path, overrides=case.overrides, **case.files(tmp_path))
    assert str(refused.value).startswith(f"{tmp_path}/{words}")


def test_a_metric_that_the_task_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)run\.metric.*'bleu'.*allowed: loss, bits, perplexity"):
        run_case(CASES["next_token"], tmp_path / "run", "run.metric=bleu")


def test_files_of_two_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one kind"):
        train(folder=tmp_path / "run", text=tmp_path / "a", labels=tmp_path / "b")
    for wrong in ({"target": tmp_path / "b"}, {"valid_target": tmp_path / "b"}):
        with pytest.raises(UserError, match=r"can be used only with --source, but text were given"):
            train(folder=tmp_path / "run", text=tmp_path / "a", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting", ["loss.r_drop=5.0", "objective.kind=random_replacement", "tokenizer.sample_alpha=0.1"]
)
def test_settings_that_a_task_does_not_use_are_rejected(setting: str, tmp_path: Path) -> None:
    """A setting without effect would be believed to have one."""
    key = setting.partition("=")[0]
    with pytest.raises(UserError, match=rf"'{key}' .* the task 'classification'"):
        run_case(CASES["classification"], tmp_path / "run", setting)


def test_a_step_without_masked_tokens_changes_nothing(tmp_path: Path) -> None:
    """Texts of unknown words have no token that could be masked."""
    text = tmp_path / "a.txt"
    text.write_text("".join(f"{'man' if i % 9 else '★'} \n" for i in range(90)), encoding="utf-8")
    few = ["tokenizer.kind=word", "data.documents=lines", "data.batch_tokens=3", "run.steps=12", "run.log_every=1"]
    overrides = [*CASES["masked_tokens"].overrides, "noise.whole_words=false", "run.micro_batches=1", *few]
    (tmp_path / "valid").write_text("man\nman\n")
    one_word = "tokenizer.vocab_size=6"  # beside four marks and the mask
    files = {"text": text, "valid": tmp_path / "valid"}
    assert train(folder=tmp_path / "run", family="bert", overrides=[*overrides, one_word], **files).step == 12  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["next_token", "next_token windows"])
def test_a_language_model_may_see_one_token_alone(name: str, tmp_path: Path) -> None:
    """With max_len = 1 the model learns pairs of words."""
    run = run_case(CASES[name], tmp_path / "run", "data.max_len=1", "run.steps=2", "run.validate_every=1")
    assert run.step == 2


def test_a_dry_run_of_a_task_leaves_nothing(tmp_path: Path) -> None:
    run_case(CASES["next_token"], tmp_path / "run", dry_run=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "family"), [("text", "bert"), ("labels", "bert"), ("tags", "bert"), ("source", "bart")]
)
def test_a_start_without_tokenizer_is_refused(kind: str, family: str, tmp_path: Path) -> None:
    """Its embeddings belong to an unknown vocabulary, and a new one would not use them."""
    sizes = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_layers": 1, "max_len": 32}
    config, module = FAMILIES[family]
    start = save_model(tmp_path / "start", module(config(vocab_size=50, **sizes)), None)
    with pytest.raises(UserError, match="has no tokenizer, so the words behind its ids are unknown"):
        train(folder=tmp_path / "run", init_from=start, **Case(kind, family).files(tmp_path / "files"))  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_unused_rows_of_a_start_stay(tmp_path: Path) -> None:
    """Public models have more rows than pieces; without these rows the whole embedding would be new."""
    run_case(CASES["masked_tokens"], tmp_path / "first", "run.steps=1")
    first = load_model(tmp_path / "first" / "last")
    config = replace(first.model.config, vocab_size=first.model.config.vocab_size + 28)
    start = save_model(tmp_path / "start", fill(Bert(config), dtype=torch.float32), first.tokenizers)
    case = Case("labels", "bert")
    train(folder=tmp_path / "run", overrides=SPARE, init_from=start, **case.files(tmp_path / "labels"))  # type: ignore[arg-type]
    before, after = load_model(start).model, load_model(tmp_path / "run" / "last").model
    assert after.config.vocab_size == config.vocab_size
    assert largest_difference(before.embedding.table.weight, after.embedding.table.weight) < 1e-6  # type: ignore[union-attr, arg-type]
    with pytest.raises(UserError, match=r"'model\.vocab_size' comes from the tokenizer"):
        run_case(CASES["masked_tokens"], tmp_path / "other", "model.vocab_size=500")


def test_each_family_learns_its_own_task() -> None:
    wanted = {"t5": "spans", "bart": "denoising", "gpt": "next_token", "bert": "masked_tokens"}
    assert {family: choose_task(family, "", "text") for family in wanted} == wanted


def test_after_a_refused_run_its_folder_can_be_used(tmp_path: Path) -> None:
    case = CASES["next_token"]
    for wrong in ("tokenizer.vocab_size=3", 'optimiser.frozen=["embeddingz"]'):
        with pytest.raises(UserError, match=r"vocab_size|embeddingz"):
            run_case(case, tmp_path / "run", wrong)
    run_case(case, tmp_path / "run", "run.steps=1")
    with pytest.raises(UserError, match="there is a run in this folder already"):
        run_case(case, tmp_path / "run")
    with pytest.raises(UserError, match="cannot become"):  # and one that has begun keeps what it has
        train(folder=tmp_path / "run", resume=True, overrides=["tokenizer.vocab_size=500"])
    assert (tmp_path / "run" / "data" / "ready").exists()


def test_max_len_is_lowered_to_the_positions_of_a_start(tmp_path: Path) -> None:
    run_case(CASES["masked_tokens"], tmp_path / "first", "run.steps=1")
    files = Files.of(tmp_path / "files" / "text.txt", (), None, None, tmp_path / "first", "text")
    assert resolve_settings(files, None, None, []).settings.data.max_len == 32
    with pytest.raises(UserError, match=r"has 32 positions, and data\.max_len is 33: --set data\.max_len=32"):
        resolve_settings(files, None, None, ["data.max_len=33"])
