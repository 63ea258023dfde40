"""The model that comes with heedful: small, right, at once, without torch, and it leaves heedful's own folder alone."""

import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sacrebleu
from safetensors import safe_open

import heedful
from heedful.atomic_io import check_manifest
from heedful.decoding.hf_pipelines import TASKS, TRAINED_BY
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.interop.ctranslate2.cache import _may_run_here, convert
from heedful.models.model_info import BUILTIN, DEFAULT, builtin_model, builtin_models, find_model_folder, is_builtin
from heedful.models.model_io import CARD, WEIGHTS, load_model
from heedful.serving.model_registry import languages_of_card

TATOEBA = Path(__file__).parents[2].parent / "shared" / "data" / "tatoeba"
SENTENCE = "I don't know where she lives."
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def command(cache: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "heedful", *words],
        input=given,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("name", builtin_models())
def test_a_folder_is_small_and_says_where_it_comes_from(name: str) -> None:
    folder = builtin_models()[name]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 8 * MEGABYTE
    loaded = load_model(folder)
    assert sum(parameter.numel() for parameter in loaded.model.parameters()) <= 10_000_000
    assert languages_of_card(folder) == tuple(name.split("-"))
    card = (folder / CARD).read_text(encoding="utf-8")
    assert "Tatoeba" in card and "CC BY 2.0 FR" in card and "BLEU" in card


# The SHA-256 of all names, shapes and numbers of a model's tensors: they outlive a change of the format.
TENSORS = {
    "en-fr": "4d6e7f99f959890514439e1819d9129da1d110bff57919cd6e24058da5907f34",
    "fr-en": "7ba6651d59d2adec262d3defef6e202398c4206d67513322537cc301e410fa68",
}


@pytest.mark.parametrize("name", builtin_models())
def test_the_tensors_are_those_that_were_trained(name: str) -> None:
    digest = hashlib.sha256()
    with safe_open(builtin_models()[name] / WEIGHTS, framework="pt") as file:
        for key in sorted(file.keys()):
            tensor = file.get_tensor(key)
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
    assert digest.hexdigest() == TENSORS[name]


def test_without_a_model_it_translates_into_french(cache: Path) -> None:
    done = command(cache, "translate", "--to", "fr", given=f"{SENTENCE}\n")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout in ("Je ne sais pas où elle habite.\n", "Je ne sais pas où elle vit.\n")
    assert command(cache, "translate", given=f"{SENTENCE}\n").stdout == done.stdout


def test_into_english_it_reads_french(cache: Path) -> None:
    """And `-m fr-en` is the same model as `--to en`."""
    done = command(cache, "translate", "--to", "en", given="Je ne sais pas où elle habite.\nmerci beaucoup\n")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == f"{SENTENCE}\nThank you very much\n"
    named = command(cache, "translate", "-m", "fr-en", given="Je ne sais pas où elle habite.\n")
    assert named.stdout == f"{SENTENCE}\n"


def test_what_people_type_is_translated_as_far_as_it_goes(cache: Path) -> None:
    """No end is made up for what has none."""
    done = command(cache, "translate", "--to", "fr", given="hello\nHello world\nthank you very much\n")
    assert [line.lower() for line in done.stdout.splitlines()] == ["salut", "salut le monde", "merci beaucoup"]


def test_nothing_is_written_into_heedfuls_own_folder(cache: Path) -> None:
    before = sorted(BUILTIN.rglob("*"))
    command(cache, "translate", "--to", "fr", given="Hello!\n")
    assert sorted(BUILTIN.rglob("*")) == before
    assert list((cache / "heedful").glob("ctranslate2-*"))


def test_not_even_the_first_translation_imports_torch(tmp_path: Path) -> None:
    """A module called torch that cannot be imported stands in the way."""
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": paths}
    run = [sys.executable, "-m", "heedful", "translate", "--to", "fr"]
    done = subprocess.run(run, input="Hello!\n", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


NO_CHILDREN = """
import subprocess, sys

def refuse(*given, **more):
    raise AssertionError(f"a process was started: {given}")

subprocess.Popen = refuse
from heedful.cli.main import run
assert run(["translate", "--to", "fr"]) == 0
"""


def in_a_program(program: str, cache: Path, *, paths: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(paths or ""), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", program],
        input="Hello!\n",
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_what_takes_long_to_import_is_not_imported(tmp_path: Path) -> None:
    """The first translation starts no process, and later ones do without NumPy too: counted, since times depend on who
    else is at work."""
    first = in_a_program(NO_CHILDREN, tmp_path)
    assert first.returncode == 0, first.stderr
    unwanted = ["torch", "numpy", "safetensors", "rich", "heedful.training", "heedful.interop.ctranslate2.spec"]
    later = in_a_program(f"{NO_CHILDREN}\nassert not set({unwanted}) & set(sys.modules), sys.modules.keys()", tmp_path)
    assert later.returncode == 0, later.stderr
    assert later.stdout == first.stdout != ""


def test_a_conversion_here_leaves_no_trace(tmp_path: Path) -> None:
    """Whoever imports torch afterwards gets it, and so does CTranslate2's own code."""
    (tmp_path / "torch.py").write_text("class Tensor: pass\n")
    program = """
import sys
from heedful.interop.ctranslate2.cache import convert
from heedful.models.model_info import builtin_model
convert(builtin_model())
assert not [name for name in sys.modules if name == "torch" or name.startswith("ctranslate2.specs")]
import ctranslate2.specs.model_spec
assert ctranslate2.specs.model_spec.torch_is_available and "torch" in sys.modules
"""
    done = in_a_program(program, tmp_path / "cache", paths=tmp_path)
    assert done.returncode == 0, done.stderr


def test_beside_another_thread_a_child_converts(monkeypatch: pytest.MonkeyPatch) -> None:
    """That thread may be about to import torch, which must not be kept from it."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert _may_run_here(builtin_model())
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert not _may_run_here(builtin_model())
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert _may_run_here(builtin_model()) and not _may_run_here(Path("runs/en-de"))


def test_several_first_calls_at_once_all_answer(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(command, tmp_path, "translate", "--to", "fr", given="Thank you!\n") for _ in range(3)]
        done = [call.result() for call in calls]
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 3
    assert len({one.stdout for one in done}) == 1
    (folder,) = (tmp_path / "heedful").iterdir()
    assert "facts.json" in check_manifest(folder)


def test_converted_without_torch_is_converted_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    elsewhere = Path(shutil.copytree(builtin_model(), tmp_path / "copy"))
    assert is_builtin(builtin_model()) and not is_builtin(elsewhere)
    checked, ours = convert(elsewhere), convert(builtin_model())
    assert ours.info == checked.info
    assert ours.folder.parent == tmp_path / "cache" / "heedful" and checked.folder.parent == elsewhere
    for name in ("model.bin", "config.json"):
        assert (ours.folder / name).read_bytes() == (checked.folder / name).read_bytes()


def test_both_engines_give_the_same_translations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts = [SENTENCE, "What time does the train leave?", "She has been waiting for two hours.", "No.", "It's raining!"]
    ours, theirs = (Translator.load(builtin_model(), engine=engine) for engine in ("torch", "ctranslate2"))
    assert (ours.engine.name, theirs.engine.name) == ("torch", "ctranslate2")
    assert ours.translate(texts) == theirs.translate(texts)


def test_another_language_is_refused(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no built-in model translates into 'tlh' \(built in: en to fr, fr to en\)"):
        builtin_model("tlh")
    done = command(cache, "translate", "--to", "de", "-m", str(builtin_model()), given="Hello!\n")
    assert done.returncode == 1 and "translates from en to fr" in done.stderr
    with pytest.raises(UserError, match="name a model"):
        heedful.pipeline("translation_zh_to_fr")


def test_other_tasks_name_the_training_that_makes_their_model() -> None:
    """Not the demo: its model translates, and fills in no words."""
    for task, words in {"fill-mask": "--family bert --text", "image-classification": "--family vit --images"}.items():
        with pytest.raises(UserError, match=f"name a model.*`heedful train RUN {words}") as refused:
            heedful.pipeline(task)
        assert "demo" not in str(refused.value)
    assert set(TRAINED_BY) == set(TASKS)


@pytest.mark.parametrize("name", builtin_models())
def test_a_name_stands_for_its_model_unless_a_folder_is_called_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model_folder(name) == builtin_models()[name]
    shutil.copytree(builtin_models()[name], tmp_path / name)
    assert find_model_folder(name) == Path(name)


def test_a_name_that_is_neither_lists_those_that_there_are(cache: Path) -> None:
    done = command(cache, "translate", "-m", "fr-tlh", given="Salut !\n")
    assert done.returncode == 1 and "fr-tlh: no such folder" in done.stderr
    assert all(name in done.stderr for name in builtin_models())


def test_a_copy_without_models_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.models.model_info.BUILTIN", tmp_path)
    with pytest.raises(UserError, match="no built-in model is in"):
        builtin_model("fr")


def test_a_pipeline_needs_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (answer,) = heedful.pipeline("translation_en_to_fr")("Thank you!")
    assert answer["translation_text"].startswith("Merci")


def test_look_needs_no_model(cache: Path) -> None:
    done = command(cache, "look", "Thank you!")
    assert done.returncode == 0 and "Merci" in done.stdout


@pytest.mark.skipif(not TATOEBA.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize("name", builtin_models())
def test_held_out_sentences_are_translated_well(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred, against all their translations: the card has the score of all."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pairs: dict[str, list[str]] = defaultdict(list)
    lines = lzma.decompress((TATOEBA / "eng-fra.valid.tsv.xz").read_bytes()).decode("utf-8")
    for line in lines.rstrip("\n").split("\n"):
        english, french = line.split("\t")[:2]
        source, target = (english, french) if name == DEFAULT else (french, english)
        pairs[source].append(target)
    sources = list(pairs)[:400]
    said = Translator.load(builtin_models()[name]).translate(sources, beam=1)
    most = max(len(pairs[source]) for source in sources)
    references = [[next(iter(pairs[source][n:]), None) for source in sources] for n in range(most)]
    assert sacrebleu.corpus_bleu(said, references).score > 40
