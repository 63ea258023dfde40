"""`train` as users call it: what it writes, what it rejects, how it stops and resumes."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from heedful.cli.train import minutes
from heedful.data import Shards
from heedful.errors import UserError
from heedful.models.model_io import find_model_folder, load_model
from heedful.serving.model_registry import languages_of_card
from heedful.training import read_log
from heedful.training.checkpoint import list_checkpoints, load_checkpoint
from heedful.training.data_preparation import read_valid
from heedful.training.settings import choose_recipe, read_settings
from heedful.training.train import Run, lock_run_folder, train
from heedful.training.trainer import NotFinite, Trainer
from small_run import OVERRIDES, write_corpus

QUICK = [*OVERRIDES, "run.steps=8", "run.validate_every=4", "run.save_every=4"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def quick(folder: Path, corpus: tuple[Path, Path], *overrides: str, **options: object) -> Run:
    files = {} if options.get("resume") else {"source": corpus[0], "target": corpus[1]}
    given = [] if options.get("resume") else QUICK
    return train(folder=folder, overrides=[*given, *overrides], **files, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finished(corpus: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run = quick(folder, corpus)
    assert (run.step, run.reason, run.interrupted) == (8, "all 8 steps are done", False)
    return folder


def test_a_run_leaves_models_and_a_log(finished: Path) -> None:
    for name in ("best", "last", "average"):
        loaded = load_model(finished / name)
        assert loaded.tokenizers is not None
        assert not loaded.model.training
    kinds = [event["event"] for event in read_log(finished / "log.jsonl")]
    for kind in ("start", "note", "plan", "validation", "saved", "stop", "done"):
        assert kind in kinds
    assert find_model_folder(finished) == finished / "best"


def test_the_card_names_the_languages_and_the_server_finds_them(finished: Path) -> None:
    assert languages_of_card(finished / "best") == ("en", "xx")


def test_average_is_the_mean_of_the_last_checkpoints(finished: Path) -> None:
    saved = [
        load_file(finished / "checkpoints" / name / "model.safetensors") for name in ("step-000004", "step-000008")
    ]
    average = load_file(finished / "average" / "model.safetensors")
    for name, tensor in average.items():
        torch.testing.assert_close(tensor, (saved[0][name] + saved[1][name]) / 2)


def test_the_held_out_sources_are_nowhere_in_training(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Each source occurs three times: all three are held out, or none."""
    source, target = tmp_path / "a.en", tmp_path / "a.xx"
    source.write_text(corpus[0].read_text() * 3)
    lines = corpus[1].read_text().splitlines()
    target.write_text("".join(f"{line} {i}\n" for i in range(3) for line in lines))
    quick(tmp_path / "run", (source, target), "run.steps=1", "data.max_doubtful=1.0")
    held_out = [example.source for example in read_valid(tmp_path / "run")]
    assert held_out
    all_sources = source.read_text().splitlines()
    assert all(held_out.count(text) == all_sources.count(text) for text in set(held_out))
    manifest = json.loads((tmp_path / "run" / "data" / "train-0" / "shards.json").read_text())
    assert manifest["examples"] == len(all_sources) - len(held_out)


def test_an_existing_run_is_refused_without_resume(finished: Path, corpus: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match="--resume"):
        quick(finished, corpus)


def test_resuming_a_finished_run_says_so(finished: Path, corpus: tuple[Path, Path]) -> None:
    assert "already at step 8 of 8" in quick(finished, corpus, resume=True).reason


def test_nothing_to_resume(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to resume"):
        train(folder=tmp_path / "none", resume=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.d_model=32", "'model.d_model' was 16"),
        ("data.batch_tokens=99", "'data.batch_tokens' was 160"),
        ("tokenizer.vocab_size=500", "'tokenizer.vocab_size' was 340"),
        ("run.seed=7", "'run.seed' was 1"),
    ],
)
def test_resuming_with_other_settings_is_rejected(
    change: str, words: str, finished: Path, corpus: tuple[Path, Path]
) -> None:
    with pytest.raises(UserError, match=words):
        quick(finished, corpus, change, resume=True)


def test_resuming_with_another_corpus_is_refused(finished: Path, tmp_path: Path) -> None:
    source, target = write_corpus(tmp_path, seed=5)
    with pytest.raises(UserError, match="SHA-256 differs"):
        train(folder=finished, source=source, target=target, resume=True)


def test_resuming_with_another_recipe_start_or_validation_is_refused(finished: Path, corpus: tuple[Path, Path]) -> None:
    source, target = corpus
    for given, words in (
        ({"recipe": "small"}, "began with --recipe tiny, and now it is small"),
        ({"init_from": finished}, "began with no --init-from"),
        ({"valid_source": source, "valid_target": target}, "began with no --valid"),
    ):
        with pytest.raises(UserError, match=words):
            train(folder=finished, resume=True, **given)
    assert "already at step 8 of 8" in train(folder=finished, resume=True, recipe="tiny").reason


def test_a_finished_run_continues_with_more_steps(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """8 steps and 8 more equal 16 steps, since the rate of this schedule does not depend on run.steps."""
    quick(tmp_path / "at-once", corpus, "run.steps=16")
    quick(tmp_path / "in-two", corpus)
    quick(tmp_path / "in-two", corpus, "run.steps=16", resume=True)
    a, b = (load_file(tmp_path / name / "last" / "model.safetensors") for name in ("at-once", "in-two"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_resume_before_the_first_checkpoint_starts_from_the_beginning(
    corpus: tuple[Path, Path], finished: Path, tmp_path: Path
) -> None:
    def die(event: dict[str, object]) -> None:
        if event["event"] == "plan":
            os._exit(9)

    child = os.fork()
    if child == 0:  # dies after the plan, before any checkpoint
        train(folder=tmp_path / "run", source=corpus[0], target=corpus[1], overrides=QUICK, listeners=[die])  # type: ignore[list-item]
        os._exit(0)
    os.waitpid(child, 0)
    assert not (tmp_path / "run" / "checkpoints").exists()
    quick(tmp_path / "run", corpus, resume=True)
    a, b = (load_file(path / "last" / "model.safetensors") for path in (tmp_path / "run", finished))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_init_from_takes_weights_shape_and_tokenizers(
    finished: Path, corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    recipe = tmp_path / "other.toml"
    recipe.write_text('[model]\nactivation = "gelu"\nresidual = "none"\n[tokenizer]\nkind = "unigram"\n')
    few = ["run.steps=1", "optimiser.lr=1e-12"]
    quick(tmp_path / "run", corpus, *few, recipe=recipe, init_from=finished)
    before, after = load_model(finished / "best"), load_model(tmp_path / "run" / "last")
    assert after.model.config == before.model.config
    card = (tmp_path / "run" / "last" / "README.md").read_text(encoding="utf-8")
    assert "pieces for both sides (`bpe`)" in card  # the start's tokenizer, not the recipe's
    with pytest.raises(UserError, match=r"'model\.d_model' is 16 in the model to start from, and cannot become 64"):
        quick(tmp_path / "other", corpus, *few, "model.d_model=64", init_from=finished)
    for (name, a), b in zip(before.model.named_parameters(), after.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0, msg=name)
    assert before.tokenizers is not None and after.tokenizers is not None
    assert before.tokenizers.source.fingerprint == after.tokenizers.source.fingerprint


def test_several_corpora_are_weighted(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """With weight 0.1 an epoch has fewer steps; the number of weights must be that of the corpora."""
    second = (tmp_path / "second.en", tmp_path / "second.xx")
    second[0].write_text("".join(f"small {line}\n" for line in corpus[0].read_text().splitlines()))
    second[1].write_text("".join(f"{line} SMALL\n" for line in corpus[1].read_text().splitlines()))
    files = {"source": [corpus[0], second[0]], "target": [corpus[1], second[1]]}
    epochs = {}
    for weights in ("[1.0,1.0]", "[1.0,0.1]"):
        run = train(folder=tmp_path / weights, overrides=[*QUICK, f"data.weights={weights}", "run.steps=40"], **files)
        epochs[weights] = load_checkpoint(list_checkpoints(run.folder / "checkpoints")[-1]).state.loader.epoch
    assert epochs["[1.0,0.1]"] > epochs["[1.0,1.0]"]
    with pytest.raises(UserError, match="weights"):
        train(folder=tmp_path / "wrong", overrides=[*QUICK, "data.weights=[1.0]"], **files)


def test_a_dry_run_leaves_nothing(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    quick(tmp_path / "run", corpus, dry_run=True, listeners=[events.append])
    plan = next(event for event in events if event["event"] == "plan")
    assert plan["parameters"] and plan["tokens_per_second"] and plan["peak_memory_bytes"]
    assert not (tmp_path / "run").exists()


def test_the_memory_of_a_plan_is_that_of_every_trial(
    corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch with the longest rows does not take the most memory, so the plan measures several batches."""
    from heedful.training import plan

    events: list[dict[str, Any]] = []
    passes: list[object] = []
    monkeypatch.setattr(Trainer, "trial_pass", lambda trainer, batch: passes.append(batch) or 100.0)
    monkeypatch.setattr(plan, "peak_memory", lambda device: 10**12 * len(passes))
    quick(tmp_path / "run", corpus, "run.threads=1", dry_run=True, listeners=[events.append])
    planned = next(event for event in events if event["event"] == "plan")
    assert len(passes) > 1 and planned["peak_memory_bytes"] // 10**12 == len(passes)


def test_one_process_per_run_folder(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    with lock_run_folder(tmp_path / "run"), pytest.raises(UserError, match=f"process {os.getpid()}"):
        quick(tmp_path / "run", corpus)


def test_patience(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    run = quick(
        tmp_path / "run", corpus, "run.patience=2", "run.validate_every=1", "run.metric=loss", "optimiser.lr=1e-12",
        "run.ema=0.0",
    )  # fmt: skip
    assert "patience" in run.reason
    assert run.step <= 8


def test_without_sentences_the_loss_decides_and_no_score_is_made_up(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    run = quick(tmp_path / "run", corpus, "run.validation_sentences=0")
    validations = [event for event in read_log(run.folder / "log.jsonl") if event["event"] == "validation"]
    assert validations
    for event in validations:
        assert event["score"] == -event["loss"]
        assert event.get("bleu") is None
        assert "exact" not in event["metrics"]
    with pytest.raises(UserError, match=r"run.validation_sentences is 0"):
        quick(tmp_path / "other", corpus, "run.validation_sentences=0", "run.metric=bleu")


def test_time_is_a_limit(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    run = quick(tmp_path / "run", corpus, "run.minutes=0.0001", "run.steps=100000")
    assert "the time limit of" in run.reason
    assert (tmp_path / "run" / "last").is_dir()


def test_pairs_that_are_too_long_are_counted(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    notes: list[str] = []
    few = ["run.steps=1", "run.validate_every=1", "tokenizer.sample_alpha=0.0"]
    quick(tmp_path / "run", corpus, *few, "data.max_len=12", listeners=[lambda event: notes.append(str(event))])
    shards = Shards.open(tmp_path / "run" / "data" / "train-0")
    assert shards.target is not None
    long = np.maximum(shards.source.lengths, shards.target.lengths) + 1 > 12
    assert 0 < long.sum() < len(long)
    assert any(f"{long.sum()} of {len(long)} pairs are too long" in text for text in notes)
    valid, tokenizers = read_valid(tmp_path / "run"), load_model(tmp_path / "run" / "last").tokenizers
    assert tokenizers is not None
    lengths = [max(len(tokenizers.source.encode(e.source)), len(tokenizers.target.encode(e.target))) + 1 for e in valid]
    n_long = sum(length > 12 for length in lengths)
    assert 1 < n_long < len(valid)
    assert any(
        f"{n_long} of {len(valid)} pairs are too long" in text and "left out of the validation loss" in text
        for text in notes
    )
    with pytest.raises(UserError, match=r"all 1\d pairs .*validation.* longer than data\.max_len = 3"):
        quick(tmp_path / "none", corpus, *few, "data.max_len=3")


def test_misaligned_files_are_refused(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    short = tmp_path / "short.xx"
    short.write_text("".join(corpus[1].read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match="150") as error:
        quick(tmp_path / "run", (corpus[0], short))
    assert "149" in str(error.value)


def test_not_a_number_stops_before_the_update(
    corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = Trainer.backward

    def poisoned(trainer, batch, n_tokens):  # type: ignore[no-untyped-def]
        loss = backward(trainer, batch, n_tokens)
        if trainer.state.step == 5:
            next(p for p in trainer.module.parameters() if p.grad is not None).grad.view(-1)[0] = float("nan")
        return loss

    monkeypatch.setattr(Trainer, "backward", poisoned)
    with pytest.raises(NotFinite, match="step 6"):
        quick(tmp_path / "run", corpus, "run.save_every=1")
    written = json.loads((tmp_path / "run" / "not-finite.json").read_text())
    assert written["step"] == 6 and written["examples"]
    weights = load_file(tmp_path / "run" / "checkpoints" / "step-000005" / "model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_prints_how_to_resume(
    number: signal.Signals, corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "heedful", "train", str(run), "--source", str(corpus[0]), "--target"]
    command += [str(corpus[1]), "--set", *QUICK, "run.steps=100000", "run.validate_every=100000"]
    # Tests that run under nohup hand SIGHUP down ignored, and a run would go on ignoring it.
    heard = partial(signal.signal, number, signal.SIG_DFL)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    while not list((run / "checkpoints").glob("step-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 130, words
    assert f"heedful train {run} --resume" in words
    assert number.name in words


def test_unknown_keys_name_the_nearest() -> None:
    with pytest.raises(UserError, match=r"schedule\.warmup_steps"):
        read_settings("tiny", ["schedule.warmup=5"])
    with pytest.raises(UserError, match="d_model"):
        read_settings("tiny", ["model.dmodel=5"])
    with pytest.raises(UserError, match="tiny"):
        read_settings("tyni")


@pytest.mark.parametrize("name", ["demo", "tiny", "small", "base", "big"])
def test_every_built_in_recipe_loads(name: str) -> None:
    read_settings(name).model_config(source_vocab_size=100, target_vocab_size=100)


def test_the_recipe_follows_the_size_of_the_data() -> None:
    assert [choose_recipe(n) for n in (29_000, 500_000, 4_500_000, 36_000_000)] == ["tiny", "small", "base", "big"]


def test_lengths_of_time() -> None:
    assert [minutes(text) for text in ("30m", "2h", "90s", "1h30m")] == [30, 120, 1.5, 90]
    for text in ("", "30", "m", "-5m", "1x"):
        with pytest.raises(UserError, match="--for"):
            minutes(text)


def test_out_of_memory_cuts_the_step_and_gives_the_same_result(
    corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that fails with 2 micro-batches is repeated with 4; without dropout the gradient is the same."""
    exact = ["model.dropout=0.0", "run.precision=float64", "run.steps=3", "run.ema=0.0"]
    quick(tmp_path / "plenty", corpus, *exact)
    backward = Trainer._backward_micro_batches

    def scarce(trainer, batch, n_tokens):  # type: ignore[no-untyped-def]
        if trainer.state.step == 1 and trainer.micro_batches < 4:
            backward(trainer, batch, n_tokens)  # gradients of the failed attempt must not stay
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 12 bytes")
        return backward(trainer, batch, n_tokens)

    monkeypatch.setattr(Trainer, "_backward_micro_batches", scarce)
    events: list[dict[str, object]] = []
    quick(tmp_path / "scarce", corpus, *exact, listeners=[events.append])
    assert any("cut into 4 micro-batches" in str(event.get("text")) for event in events)
    a, b = (load_file(tmp_path / name / "last" / "model.safetensors") for name in ("plenty", "scarce"))
    assert max(float((a[name] - b[name]).abs().max()) for name in a) <= 1e-10


@pytest.mark.parametrize(("kind", "is_told"), [("linear", True), ("cosine", True), ("inverse_sqrt", False)])
def test_a_time_limit_that_cuts_a_schedule_is_noted(kind, is_told, corpus, tmp_path, monkeypatch) -> None:

    monkeypatch.setattr(Trainer, "trial_pass", lambda trainer, batch: batch.n_target_tokens / 6.0)  # six seconds a step
    events: list[dict[str, object]] = []
    changes = (f"schedule.kind={kind}", "run.minutes=0.0001", "run.steps=1000")
    quick(tmp_path / "short", corpus, *changes, listeners=[events.append])
    quick(tmp_path / "long", corpus, f"schedule.kind={kind}", "run.minutes=9", "run.steps=2", listeners=[events.append])
    told = [str(event["text"]) for event in events if "learning rate falls" in str(event.get("text"))]
    assert len(told) == is_told
    assert all("about 0 of 1,000 steps" in text for text in told)


def test_threads_are_measured_and_kept(
    corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one thread is faster, it is used and reported, and a resume uses it again."""

    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: nothing to choose")
    settings = [setting for setting in QUICK if not setting.startswith("run.threads")]
    before = torch.get_num_threads()
    try:
        monkeypatch.setattr(Trainer, "trial_pass", lambda trainer, batch: 100.0 / torch.get_num_threads())
        events: list[dict[str, object]] = []
        files = {"source": corpus[0], "target": corpus[1]}
        train(folder=tmp_path / "run", overrides=settings, listeners=[events.append], **files)  # type: ignore[arg-type,list-item]
        assert any("one thread instead of" in str(event.get("text")) for event in events)
        monkeypatch.setattr(Trainer, "trial_pass", lambda trainer, batch: 100.0 * torch.get_num_threads())
        train(folder=tmp_path / "run", resume=True, overrides=["run.steps=9"])
        assert torch.get_num_threads() == 1
        train(folder=tmp_path / "other", overrides=settings, **files)  # type: ignore[arg-type]
        assert torch.get_num_threads() > 1
    finally:
        torch.set_num_threads(before)
