"""A settings.toml that was edited by hand is rejected if it describes another model than the saved one."""

from pathlib import Path

import pytest

from heedful import train
from heedful.config import read_toml
from heedful.errors import UserError
from small_run import OVERRIDES, write_corpus


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edited")
    source, target = write_corpus(folder / "corpus")
    quick = [*OVERRIDES, "data.workers=0", "run.steps=2", "run.validate_every=2", "run.save_every=2"]
    train(folder=folder / "run", source=source, target=target, overrides=[*quick, "model.n_layers=2"])
    return folder / "run"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("d_model = 16", "d_model = 32", r"has the shape \[340, 32\] by it, and \[340, 16\] in step-000002"),
        ("d_ff = 32", "d_ff = 48", r"feed_forward.* has the shape \[48, 16\] by it, and \[32, 16\]"),
        ("n_layers = 2", "n_layers = 1", r"layers\.1\..* has the shape none by it, and \[16\]"),
        ("n_layers = 2", "n_layers = 3", r"layers\.2\..* has the shape \[16, 16\] by it, and none in"),
    ],
)
def test_another_shape_than_the_saved_one_is_rejected_by_name(
    before: str, after: str, words: str, finished: Path
) -> None:
    record = finished / "settings.toml"
    whole = record.read_text(encoding="utf-8")
    assert whole.count(before) == 1
    record.write_text(whole.replace(before, after), encoding="utf-8")
    try:
        with pytest.raises(UserError, match=words) as error:
            train(folder=finished, resume=True, overrides=["run.steps=3"])
    finally:
        record.write_text(whole, encoding="utf-8")
    assert "settings.toml: was changed" in str(error.value)


@pytest.mark.parametrize("written", ["bleu", "auto"])
@pytest.mark.parametrize("typed", [["run.metric=auto"], ["run.metric=bleu"], []])
def test_auto_and_the_usual_metric_are_equal_on_resume(written: str, typed: list[str], finished: Path) -> None:
    """torchrun repeats the first command, with "auto", and settings.toml has the resolved metric."""
    record = finished / "settings.toml"
    whole = record.read_text(encoding="utf-8")
    record.write_text(whole.replace('metric = "bleu"', f'metric = "{written}"'), encoding="utf-8")
    try:
        assert "already at step 2" in train(folder=finished, resume=True, overrides=typed).reason
        assert read_toml(record)["run"]["metric"] == "bleu"
    finally:
        record.write_text(whole, encoding="utf-8")


def test_another_metric_is_another_run(finished: Path) -> None:
    with pytest.raises(UserError, match=r"'run\.metric' was 'bleu' when this run began, and cannot become 'chrf'"):
        train(folder=finished, resume=True, overrides=["run.metric=chrf"])
    with pytest.raises(UserError, match=r"'run\.validation_sentences' was 4 when this run began, and cannot become 0"):
        train(folder=finished, resume=True, overrides=["run.validation_sentences=0"])
