"""If no cache can be written, as in a read-only container, a model is converted for this run, with one notice."""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from ct2_models import count_conversions, make_model, some_requests
from gpt_writers import make_gpt, some_prompts
from heedful.decoding.engines.auto import open_engine
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.settings import SearchSettings
from heedful.errors import Notice, UserError
from heedful.interop.ctranslate2 import cache
from heedful.interop.ctranslate2.cache import cache_for_children, convert, user_cache
from heedful.interop.ctranslate2.conversion import NotConvertible
from heedful.models.model_io import save_model

NO_FOLDER = "/dev/null/cache"
GREEDY = SearchSettings(beam=1, max_len=5)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A model that may not be touched, of a user without a cache."""
    made = save_model(tmp_path / "model", make_model(), None)
    close(made, monkeypatch)
    return made


def close(folder: Path, monkeypatch) -> None:
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder and may(path, mode))
    monkeypatch.setenv("XDG_CACHE_HOME", NO_FOLDER)


def no_temporary_folder(**_):
    raise FileNotFoundError(2, "No usable temporary directory found")


def test_a_model_is_converted_for_this_process_with_one_notice(folder, monkeypatch):
    counted = count_conversions(monkeypatch)
    before = sorted(folder.rglob("*"))
    with pytest.warns(Notice, match=f"{NO_FOLDER}.*cannot be written.*XDG_CACHE_HOME"):
        first = convert(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert convert(folder) is first
    assert len(counted) == 1
    assert first.folder.parent == Path(tempfile.gettempdir())
    assert sorted(folder.rglob("*")) == before


def test_a_conversion_that_must_be_kept_is_refused(folder):
    with pytest.raises(UserError, match="cannot be written"):
        convert(folder, kept=True)


@pytest.mark.filterwarnings("ignore::heedful.errors.Notice")
@pytest.mark.parametrize("engine", ["auto", "ctranslate2"])
def test_both_engines_that_can_take_ctranslate2_search(folder, monkeypatch, engine):
    count_conversions(monkeypatch)
    requests = some_requests(20)
    found = open_engine(folder, engine=engine).search(requests, GREEDY)
    expected = open_engine(folder, engine="torch").search(requests, GREEDY)
    assert [best[0].ids for best in found] == [best[0].ids for best in expected]


def test_without_a_temporary_folder_auto_takes_torch(folder, monkeypatch):
    monkeypatch.setattr(tempfile, "mkdtemp", no_temporary_folder)
    assert isinstance(open_engine(folder), TorchEngine)
    with pytest.raises(NotConvertible, match=r"cannot be written.*a temporary folder .* cannot be made"):
        open_engine(folder, engine="ctranslate2")


def test_a_decoder_only_model_generates_as_well(tmp_path, monkeypatch):
    made = save_model(tmp_path / "gpt", make_gpt(), None)
    close(made, monkeypatch)
    prompts = some_prompts(4)
    expected = open_engine(made, engine="torch").search(prompts, GREEDY)
    with monkeypatch.context() as without:
        without.setattr(tempfile, "mkdtemp", no_temporary_folder)
        assert open_engine(made).search(prompts, GREEDY) == expected
        with pytest.raises(UserError, match="a temporary folder for the conversion cannot be made"):
            open_engine(made, compute="int8").search(prompts, GREEDY)
    counted = count_conversions(monkeypatch)
    with pytest.warns(Notice):
        found = open_engine(made).search(prompts, GREEDY)
    assert [best[0].ids for best in found] == [best[0].ids for best in expected]
    assert len(counted) == 1


def test_a_model_folder_that_only_seems_writable(tmp_path, monkeypatch):
    made = save_model(tmp_path / "model", make_model(), None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    count_conversions(monkeypatch)
    mkdir = Path.mkdir

    def fail_beside(path, *given, **more):
        if path.parent == made:
            raise OSError(30, "Read-only file system")
        mkdir(path, *given, **more)

    monkeypatch.setattr(Path, "mkdir", fail_beside)
    assert convert(made).folder.is_relative_to(tmp_path / "cache")


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert not user_cache().parent.is_dir()
    assert not cache._is_writable(user_cache())


def test_child_processes_share_a_temporary_cache(folder, tmp_path, monkeypatch):
    with pytest.warns(Notice, match="each time"), cache_for_children(folder) as variables:
        place = Path(variables["XDG_CACHE_HOME"])
        assert place.is_dir()
    assert not place.exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with cache_for_children(folder) as variables:
        assert variables == {}


@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_a_command_prints_the_notice_and_leaves_no_files(tmp_path, options):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "in").write_text("A dog runs.\n")
    done = subprocess.run(
        [sys.executable, "-m", "heedful", "translate", str(tmp_path / "in"), *options],
        env=os.environ | {"XDG_CACHE_HOME": NO_FOLDER, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Un chien court.\n")
    assert done.stderr.count("cannot be written") == 1 and done.stderr.startswith("heedful: ")
    assert len(done.stderr.splitlines()) == 1
    assert list((tmp_path / "tmp").iterdir()) == []
