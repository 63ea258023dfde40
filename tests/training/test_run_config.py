"""A run resumes with the corpus that it began with, read in the same way."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from heedful import train
from heedful.errors import UserError
from heedful.training import Settings
from heedful.training.run_config import Files, RunRecord, read_record, refuse_differences, write_record
from small_run import settings, write_corpus


def with_languages(chosen: Settings, *languages: str) -> Settings:
    return replace(chosen, data=replace(chosen.data, languages=languages))


def test_a_corpus_that_changed_before_it_was_prepared_is_refused(tmp_path: Path) -> None:
    """A run that was killed during preparation keeps complete stages, which would then be of another text."""
    source, target = write_corpus(tmp_path)
    write_record(tmp_path, RunRecord(Files.of(source, target, None, None, None), settings()))
    begun = read_record(tmp_path)
    write_record(tmp_path, begun)  # the same files: it goes on
    assert read_record(tmp_path) == begun
    source.write_text(source.read_text().replace("dog", "cow"))
    with pytest.raises(UserError, match=r"train\.en \+ .*train\.xx: has changed since this run began.*begin a new run"):
        write_record(tmp_path, begun)
    assert read_record(tmp_path) == begun


@pytest.mark.parametrize("long", ["leave_out", "extract"])
@pytest.mark.parametrize("name", ["train.jsonl", "train.tsv"])
def test_languages_that_select_the_text_cannot_change(name: str, long: str, tmp_path: Path) -> None:
    """For other files only the model card uses them, so they may be corrected later."""
    pair = {"en": "a dog", "de": "ein Hund"}
    (tmp_path / name).write_text(f"{json.dumps(pair)}\n" if name.endswith("jsonl") else "a dog\tein Hund\n")
    files = Files.of(tmp_path / name, (), None, None, None)
    saved = RunRecord(files, with_languages(settings(f"data.long={long}"), "en", "de"))
    wanted = replace(saved, settings=with_languages(saved.settings, "de", "en"))
    if name.endswith("tsv") and long == "leave_out":
        refuse_differences(tmp_path, saved, wanted, Files())
    else:
        with pytest.raises(UserError, match=r"'data\.languages' was \['en', 'de'\] when this run began, and cannot"):
            refuse_differences(tmp_path, saved, wanted, Files())
    refuse_differences(tmp_path, saved, saved, Files())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[data]\napart = true", r"'data\.apart' is now 'data\.isolate_documents'"),
        ('[run]\nshard = "none"', r"'run\.shard' is now 'run\.parallel'"),
        ('[files]\nstart_from = ""', r"'files\.start_from' is now 'files\.init_from'"),
    ],
)
def test_a_run_folder_of_an_earlier_version_is_rejected_with_the_remedy(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(f"{line}\n")
    with pytest.raises(UserError, match=rf"begun by an earlier version of heedful.*{words}.*begin a new run"):
        train(folder=tmp_path, resume=True)
