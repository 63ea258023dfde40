"""The commit in a run's log is that of heedful's checkout, or absent."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from heedful.errors import UserError
from heedful.training import train as running
from heedful.training.train import commit_of, train

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *words: str) -> str:
    who = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for role in ("AUTHOR", "COMMITTER"):
        who |= {f"GIT_{role}_NAME": "somebody", f"GIT_{role}_EMAIL": "somebody@example.org"}
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | who).stdout.strip()


def checkout(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "code.py").write_text("1\n")
    git(folder, "add", "code.py")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "v1")  # which is not to stand in for the commit
    return folder


@needs_git
def test_a_checkout_has_a_commit_and_a_mark_if_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = checkout(tmp_path / "ours"), tmp_path / "other"
    head = git(folder, "rev-parse", "HEAD")
    assert len(head) == 40 and commit_of(folder) == head
    (folder / "code.py").write_text("2\n")
    assert commit_of(folder) == f"{head}-dirty"
    shutil.copytree(folder, other)
    git(other, "commit", "--quiet", "-am", "two")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))  # as in a hook of somebody's repository
    assert commit_of(folder) == f"{head}-dirty"


@needs_git
def test_a_folder_inside_another_repository_has_no_commit(tmp_path: Path) -> None:
    installed = checkout(tmp_path / "theirs") / "lib"
    installed.mkdir()
    assert commit_of(installed) is None


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_of(tmp_path) is None
    (tmp_path / ".git").mkdir()  # not a repository
    assert commit_of(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path) is None


@pytest.mark.parametrize("found", ["0123", None])
def test_the_commit_is_in_the_log(found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "commit_of", lambda: found)
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("one\ntwo\n")
    target.write_text("eins\n")
    events: list[object] = []
    with pytest.raises(UserError, match=r"2 lines, but .* has 1"):  # after the first event
        train(folder=tmp_path / "run", source=source, target=target, recipe="tiny", listeners=[events.append])
    assert isinstance(events[0], dict) and events[0].get("commit") == found
    assert ("commit" in events[0]) == (found is not None)
