"""Atomic folders and files: complete or absent, with a manifest, and safe if the writer is killed at any moment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heedful import atomic_io
from heedful.atomic_io import (
    ASIDE,
    MANIFEST,
    RETIRED,
    atomic_file,
    atomic_folder,
    check_manifest,
    clear_unfinished,
    sha256,
    write_manifest,
)
from heedful.errors import UserError


def write(folder: Path, **contents: str) -> Path:
    with atomic_folder(folder) as aside:
        for name, text in contents.items():
            (aside / name).write_text(text, encoding="utf-8")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.name != MANIFEST}


@pytest.fixture(params=["exchanged", "renamed twice"])
def any_system(request, monkeypatch):
    """Run the test with the system's one-step exchange of names, and without it."""
    if request.param == "renamed twice":
        monkeypatch.setattr(atomic_io, "_exchange", lambda a, b: False)


def test_a_new_folder_is_complete_and_leaves_nothing_else_behind(tmp_path):
    folder = write(tmp_path / "deep" / "down" / "model", a="1", b="2")
    assert contents(folder) == {"a": "1", "b": "2"}
    assert check_manifest(folder) == {"a", "b"}
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.usefixtures("any_system")
def test_an_old_folder_is_replaced_as_a_whole(tmp_path):
    write(tmp_path / "model", a="old", gone="old")
    folder = write(tmp_path / "model", a="new", b="new")
    assert contents(folder) == {"a": "new", "b": "new"}
    assert check_manifest(folder) == {"a", "b"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, UserError])
def test_a_failure_while_writing_leaves_the_old_folder_and_nothing_else(tmp_path, failure):
    write(tmp_path / "model", a="old")
    with pytest.raises(failure), atomic_folder(tmp_path / "model") as aside:
        (aside / "a").write_text("new")
        raise failure("stop")
    with pytest.raises(failure), atomic_folder(tmp_path / "other"):
        raise failure("stop")
    assert contents(tmp_path / "model") == {"a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_folders_inside_are_kept_and_listed(tmp_path):
    with atomic_folder(tmp_path / "model") as aside:
        (aside / "inner").mkdir()
        (aside / "inner" / "a").write_text("1")
    assert check_manifest(tmp_path / "model") == {"inner/a"}


# What must not be deleted


def test_a_folder_that_heedful_did_not_write_is_never_replaced(tmp_path):
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "thesis.txt").write_text("three years of work")
    with pytest.raises(UserError, match="documents: exists and is not a folder that heedful wrote"):
        write(documents, a="1")
    assert contents(documents) == {"thesis.txt": "three years of work"}
    assert [path.name for path in tmp_path.iterdir()] == ["documents"]


def test_a_file_is_never_replaced_by_a_folder(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UserError, match="notes: exists and is not a folder"):
        write(tmp_path / "notes", a="1")
    assert (tmp_path / "notes").read_text() == "mine"
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path / "notes" / "model", a="1")


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "model").mkdir()
    assert contents(write(tmp_path / "model", a="1")) == {"a": "1"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.usefixtures("any_system")
def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    write(tmp_path / "disk" / "model", a="old")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "model")
    write(tmp_path / "link", a="new")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "disk" / "model") == {"a": "new"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["model"]


def test_a_relative_folder_and_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("model"), a="1")
    assert contents(tmp_path / "model") == {"a": "1"}
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(Path("."), a="2")
    assert contents(tmp_path / "here") == {"a": "2"}


# A stop at any moment

KILLED = Path(__file__).parent / "stress" / "kill_while_writing.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
@pytest.mark.parametrize("system", ["exchange", "rename"])
@pytest.mark.parametrize("before", ["old", "nothing"])
def test_a_killed_writer_leaves_the_old_or_the_new_folder(tmp_path, system, before):
    """Kill the writer before each of its calls that touch the disk: the folder is complete, and the rest is cleared."""
    ran = subprocess.run(
        [sys.executable, str(KILLED), str(tmp_path), system, before], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    moments = json.loads(ran.stdout)
    assert len(moments) >= 8
    for moment in moments:
        allowed = [["model: new"], ["model: old"] if before == "old" else []]
        assert moment["after clearing"] in allowed, moment
        if system == "exchange" or before == "nothing":  # at no moment is there no folder
            assert moment["at once"] in allowed, moment
    assert moments[-1]["at once"] == ["model: new"]


@pytest.mark.usefixtures("any_system")
def test_files_are_synced_before_the_rename_and_the_rename_before_the_end(tmp_path, monkeypatch):
    """A kill does not test this, because the cache of the system survives it; so the order of the calls is checked."""
    write(tmp_path / "model", a="old")
    calls = []
    real_sync, real_rename, real_exchange = atomic_io.sync, Path.rename, atomic_io._exchange

    def sync(path):
        calls.append(("sync", path.relative_to(tmp_path).parts))
        real_sync(path)

    def rename(self, goal):
        calls.append(("rename", self.name))
        return real_rename(self, goal)

    def exchange(a, b):
        done = real_exchange(a, b)
        calls.extend([("rename", a.name)] if done else [])
        return done

    monkeypatch.setattr(atomic_io, "sync", sync)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(atomic_io, "_exchange", exchange)
    with atomic_folder(tmp_path / "model") as aside:
        (aside / "a").write_text("new")
        (aside / "inner").mkdir()
        (aside / "inner" / "b").write_text("new")
    name = aside.name
    first_rename = next(i for i, call in enumerate(calls) if call[0] == "rename")
    before = {call[1] for call in calls[:first_rename]}
    assert before == {(name,), (name, "a"), (name, "inner"), (name, "inner", "b"), (name, MANIFEST)}
    assert calls[-1] == ("sync", ())


def test_clearing_deletes_only_unfinished_folders(tmp_path):
    write(tmp_path / "model", a="1")
    for name in (f"{ASIDE}model-17", f"{RETIRED}model-17"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("x")
    assert [path.name for path in clear_unfinished(tmp_path)] == [f"{RETIRED}model-17", f"{ASIDE}model-17"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert clear_unfinished(tmp_path) == []


def test_clearing_brings_back_a_folder_that_had_just_been_retired(tmp_path):
    write(tmp_path / "my-model", a="old").rename(tmp_path / f"{RETIRED}my-model-17")
    clear_unfinished(tmp_path)
    assert contents(tmp_path / "my-model") == {"a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["my-model"]


# The manifest


def test_the_manifest_holds_the_hash_of_each_file(tmp_path):
    folder = write(tmp_path / "model", a="abc")
    stored = json.loads((folder / MANIFEST).read_text())
    assert stored == {"sha256": {"a": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}}
    assert sha256(folder / "a") == stored["sha256"]["a"]


def test_a_change_of_any_byte_of_any_file_is_found(tmp_path):
    folder = write(tmp_path / "model", a="hello", b="x" * 1000)
    for name in ("a", "b", MANIFEST):
        original = (folder / name).read_bytes()
        for position in range(0, len(original), max(1, len(original) // 60)):
            for change in (1, 32, 255):
                changed = bytearray(original)
                changed[position] ^= change
                (folder / name).write_bytes(changed)
                with pytest.raises(UserError):
                    check_manifest(folder)
        for damaged in (b"", original[:-1], original + b" ", original + original):
            (folder / name).write_bytes(damaged)
            with pytest.raises(UserError, match=f"{name}|is missing"):
                check_manifest(folder)
        (folder / name).write_bytes(original)
    assert check_manifest(folder) == {"a", "b"}


def test_the_error_names_the_missing_file(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        check_manifest(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no manifest\.json"):
        check_manifest(tmp_path)
    folder = write(tmp_path / "model", a="1")
    (folder / "a").unlink()
    with pytest.raises(UserError, match="a: is missing"):
        check_manifest(folder)
    (folder / "a").mkdir()
    with pytest.raises(UserError, match="a: is missing"):
        check_manifest(folder)


def with_manifest(folder: Path, hashes: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).write_bytes(atomic_io._manifest_bytes(hashes))
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/hostname",
        "a/../../secret",
        "",
        ".",
        "a\0b",
        "x" * 5000,
        "\ud800",
        "link",
        "loop",
        "..",
        "inner",
    ],
)
def test_a_manifest_with_impossible_or_outside_names_is_refused(tmp_path, name):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "model" / "loop").symlink_to(tmp_path / "model" / "loop")
    (tmp_path / "model" / "inner").mkdir()
    folder = with_manifest(tmp_path / "model", {name: sha256(tmp_path / "secret")})
    with pytest.raises(UserError, match=r"outside of the folder|is missing|cannot be read") as caught:
        check_manifest(folder)
    assert "model" in str(caught.value)


@pytest.mark.parametrize("hashes", [[], "x", None, 3, {"a": None}, {"a": 5}, {"a": {"b": "c"}}, {"a": ""}])
def test_a_manifest_of_another_shape_is_refused(tmp_path, hashes):
    folder = write(tmp_path / "model", a="1")
    with_manifest(folder, hashes)
    with pytest.raises(UserError, match="model"):
        check_manifest(folder)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"sha256": {}, "sha256": {}}', '{"sha256": {}, "more": 1}', "[" * 100_000, '{"sha256":{}}', "nan"],
)
def test_a_malformed_manifest_is_refused(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(UserError, match=MANIFEST):
        check_manifest(tmp_path)


def test_an_unreadable_file_is_a_user_error(tmp_path, monkeypatch):
    folder = write(tmp_path / "model", a="1")

    def forbidden(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(atomic_io, "sha256", forbidden)
    with pytest.raises(UserError, match=r"'a', listed in manifest\.json, cannot be read.*Permission denied"):
        check_manifest(folder)


def test_a_manifest_can_be_written_for_an_existing_folder(tmp_path):
    (tmp_path / "a").write_text("1")
    write_manifest(tmp_path)
    write_manifest(tmp_path)  # it does not list itself
    assert check_manifest(tmp_path) == {"a"}


def test_an_atomic_file_is_complete_or_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_file(path) as file:
        file.write(b"first")
        assert not path.exists()
    with pytest.raises(RuntimeError), atomic_file(path) as file:
        file.write(b"half of the sec")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_another_process_takes_at_the_last_moment_is_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes make one folder: the second finds the name free, but the first takes it before the rename."""
    folder = tmp_path / "folder"
    checked = []
    really = Path.exists

    def exists(self: Path, **more: bool) -> bool:
        if self == folder and len(checked) < 2:  # the check whether it may be replaced, and whether the name is free
            checked.append(self)
            return False
        return really(self, **more)

    with atomic_io.atomic_folder(folder) as first:
        (first / "who").write_text("first")
    monkeypatch.setattr(Path, "exists", exists)
    with atomic_io.atomic_folder(folder) as second:
        (second / "who").write_text("second")
    assert len(checked) == 2
    assert (folder / "who").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_need_not_be_durable_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(atomic_io, "sync", synced.append)
    with atomic_io.atomic_folder(tmp_path / "cached", durable=False) as aside:
        (aside / "a").write_text("a")
    assert synced == []
    atomic_io.check_manifest(tmp_path / "cached")
    with atomic_io.atomic_folder(tmp_path / "kept") as aside:
        (aside / "a").write_text("a")
    assert synced[-1] == tmp_path and len(synced) == 4
