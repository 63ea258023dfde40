"""Where a model runs: names of devices, what each library is told of them, several at once, and words for mistakes.

There is no GPU here: what CTranslate2 is told is written down, and the processor does the work.
"""

import json
from pathlib import Path

import ctranslate2
import pytest
import torch

from ct2_models import convert_here, count_conversions, make_model, some_requests
from echo_engine import tokenizers
from encoder_models import bert_folder, own_tokenizers
from gpt_writers import make_gpt, make_writer, some_prompts
from heedful.cli.main import run
from heedful.decoding import Translator, pipeline, worker_pool
from heedful.decoding.decoding_stats import DecodingStats
from heedful.decoding.embedder import Embedder
from heedful.decoding.engines import auto
from heedful.decoding.engines.auto import AutoEngine, open_engine
from heedful.decoding.engines.ctranslate2_engine import CTranslate2Engine
from heedful.decoding.engines.ctranslate2_tuning import GPU_BATCHES, Speed, known_speed, measure, speed_for
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translation import BlockResult, Translation
from heedful.decoding.worker_pool import LoadSpec, Workers
from heedful.devices import device_name, device_names, torch_device
from heedful.errors import UserError
from heedful.models.model_io import save_model

WRONG = ["nonsense", "cuda:", "cuda:-1", "cuda:x", "CUDA", "cpu:0", "0", "", "cuda:0,cuda:1", "cuda:99999"]
GREEDY = SearchSettings(beam=1, max_len=8)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    size = tokenizers().source.vocab_size
    made = make_model(source_vocab_size=size, target_vocab_size=size)
    return save_model(tmp_path_factory.mktemp("devices") / "model", made, tokenizers())


@pytest.fixture
def told(monkeypatch) -> list[dict]:
    """Two GPUs for CTranslate2, and what each model is opened with; the processor does their work."""
    opened: list[dict] = []
    for name in ("Translator", "Generator"):
        real = getattr(ctranslate2, name)

        def open_here(*given, real=real, device="cpu", device_index=0, **more):
            opened.append({"device": device, "device_index": device_index, **more})
            return real(*given, **more)

        monkeypatch.setattr(ctranslate2, name, open_here)
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)
    return opened


def places(told: list[dict]) -> list[tuple[str, int, int]]:
    return [(each["device"], each["device_index"], each["inter_threads"]) for each in told]


def test_names():
    names = {"cpu": "cpu", "cuda": "cuda:0", "cuda:0": "cuda:0", "cuda:12": "cuda:12", "mps": "mps"}
    assert {given: device_name(given) for given in names} == names
    assert device_names("cuda:1, cuda,cpu") == ["cuda:1", "cuda:0", "cpu"]


@pytest.mark.parametrize("given", [*WRONG, 3, None, ["cuda"]])
def test_other_names_are_refused_in_words(given):
    with pytest.raises(UserError, match="no device of that name; expected cpu, cuda, cuda:N") as error:
        device_name(given)
    assert repr(given) in str(error.value)


def test_torch_says_which_devices_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [torch_device(name) for name in ("cuda:1", "cuda")] == [torch.device("cuda", 1), torch.device("cuda", 0)]
    with pytest.raises(UserError, match="'cuda:2' is not available to torch; available: cpu, cuda:0, cuda:1"):
        torch_device("cuda:2")
    with pytest.raises(UserError, match="'mps' is not available to torch"):
        torch_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert torch_device("mps") == torch.device("mps")


@pytest.mark.parametrize("engine", ["auto", "torch", "ctranslate2"])
@pytest.mark.parametrize("device", ["cuda", "cuda:3", "mps"])
def test_a_device_that_is_not_there_is_refused_in_words(model, device, engine):
    with pytest.raises(UserError, match=rf"'{device_name(device)}'.*(is not available|no such device|not on mps)"):
        Translator.load(model, device=device, engine=engine)


@pytest.mark.parametrize("device", WRONG)
def test_every_loader_refuses_what_is_no_device(model, device, tmp_path):
    bert_folder(tmp_path / "bert", own_tokenizers())
    save_model(tmp_path / "gpt", make_gpt(), None)
    for load in (Translator.load, open_engine):
        with pytest.raises(UserError, match="no device of that name"):
            load(model, device=device)
    with pytest.raises(UserError, match="no device of that name"):
        Embedder.load(tmp_path / "bert", device=device)
    with pytest.raises(UserError, match="no device of that name"):
        open_engine(tmp_path / "gpt", device=device)


def test_a_pipeline_of_a_gpu_that_is_not_there(model):
    with pytest.raises(UserError, match="'cuda:0' is not available to torch; available: cpu"):
        pipeline("translation", model=model, device=0)
    with pytest.warns(UserWarning, match="cut off") as warned:  # by a model that has learned nothing
        assert pipeline("translation", model=model, device=-1)("a", max_length=5)
    assert [one.filename for one in warned] == [__file__]  # the user's own line


def test_int8_needs_ctranslate2_and_so_its_devices(model):
    with pytest.raises(UserError, match=r"'int8'(.|\n)*'cuda:0': CTranslate2 cannot use it"):
        Translator.load(model, device="cuda", compute="int8")


@pytest.mark.parametrize("engine", ["auto", "ctranslate2"])
def test_ctranslate2_is_told_the_number_of_the_gpu_apart(model, told, monkeypatch, engine):
    count_conversions(monkeypatch)
    opened = open_engine(model, engine=engine, device="cuda:1")
    requests = some_requests(30)
    found = opened.search(requests, GREEDY)
    assert set(places(told)) == {("cuda", 1, 1)}  # a GPU is not divided among threads
    told.clear()
    assert [one[0].ids for one in found] == [one[0].ids for one in open_engine(model).search(requests, GREEDY)]
    assert {each["device"] for each in told} == {"cpu"}


def test_what_ctranslate2_cannot_do_goes_to_torch_on_the_same_device(model, told, monkeypatch):
    count_conversions(monkeypatch)
    asked = []
    monkeypatch.setattr(auto, "_open_torch", lambda folder, device, threads, **_: asked.append(device))
    opened = open_engine(model, device="cuda:1")
    assert isinstance(opened, AutoEngine)
    opened.torch_engine("")
    open_engine(model, device="cuda:2")  # CTranslate2 has two
    open_engine(model, device="mps")
    assert asked == ["cuda:1", "cuda:2", "mps"]


def test_a_writer_is_told_the_number_of_the_gpu_apart(told, tmp_path, monkeypatch):
    made = make_gpt()
    prompts = some_prompts(5)
    writer = make_writer(made, tmp_path / "ct2", device="cuda:1", threads=None)
    writer.search(prompts, GREEDY)
    assert places(told) == [("cuda", 1, 1)]
    asked = []
    monkeypatch.setattr(auto, "_open_torch", lambda folder, device, threads, **_: asked.append(device))
    folder = save_model(tmp_path / "gpt", made, None)
    open_engine(folder, device="cuda:1")  # in float32 torch's
    assert asked == ["cuda:1"]
    for options in ({"engine": "ctranslate2"}, {"compute": "int8"}):
        with pytest.raises(UserError, match="'cuda:2': CTranslate2 cannot use it"):
            open_engine(folder, device="cuda:2", **options)


def test_a_gpu_is_measured_by_itself(told, tmp_path, monkeypatch):
    folder = convert_here(make_model(), tmp_path / "ct2").folder
    (folder / "facts.json").write_text('{"source_vocab_size": 60}')
    monkeypatch.setattr("heedful.decoding.engines.ctranslate2_tuning.GPU_BATCHES", (64, 128, 256))
    found = measure(folder, "float32", "cuda:1")
    assert (found.inter, found.intra) == (1, 1) and {found.batch, found.beam_batch} <= {64, 128, 256}
    assert places(told) == [("cuda", 1, 1)]
    assert max(GPU_BATCHES) > 4096


def test_the_speed_of_a_gpu_is_kept_apart(tmp_path, monkeypatch):
    converted = convert_here(make_model(), tmp_path / "ct2")
    speeds = {"cpu": Speed(2, 1, 17), "cuda:0": Speed(1, 1, 18), "cuda:1": Speed(1, 1, 19)}
    monkeypatch.setattr(
        "heedful.decoding.engines.ctranslate2_tuning._measured", lambda folder, compute, device: speeds[device]
    )
    assert {name: speed_for(converted.folder, "float32", name) for name in speeds} == speeds
    assert {name: known_speed(converted.folder, "float32", name) for name in speeds} == speeds
    assert CTranslate2Engine(converted).speed == speeds["cpu"]


class Written:
    """A worker without a process or a model: it records its load spec, and answers in upper case."""

    told: list[dict]

    def __init__(self, name: str, variables: dict[str, str]) -> None:
        pass

    def __enter__(self) -> "Written":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self, message: str) -> None:
        self.told.append(json.loads(message)["load_spec"])

    def translate(self, texts, start):
        return BlockResult([[Translation(text.upper())] for text in texts], DecodingStats())


@pytest.fixture
def processes(monkeypatch) -> list[dict]:
    Written.told = []
    monkeypatch.setattr(worker_pool, "_Worker", Written)
    return Written.told


def devices_of(processes: list[dict]) -> list[str]:
    return [each.get("device", "cpu") for each in processes]


def test_processes_take_the_devices_in_turn(processes):
    with Workers(LoadSpec("model", "torch"), GREEDY, 5, devices=["cuda", "cuda:1"]):
        pass
    assert devices_of(processes) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    processes.clear()
    with Workers(LoadSpec("model", "torch", device="cuda:1"), GREEDY, 2):
        pass
    assert devices_of(processes) == ["cuda:1", "cuda:1"]


def test_no_device_is_left_without_a_process(processes):
    with pytest.raises(UserError, match="workers = 1 for 2 devices, cuda:0, cuda:1"):
        Workers(LoadSpec("model"), GREEDY, 1, devices=["cuda:0", "cuda:1"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--device", "cuda:0,cuda:1"], ["cuda:0", "cuda:1"]),
        (["--device", "cuda:0,cuda:1", "--workers", "3"], ["cuda:0", "cuda:1", "cuda:0"]),
        (["--device", "cuda:1", "--set", "beam=2", "--workers", "2"], ["cuda:1", "cuda:1"]),
    ],
)
def test_translate_with_several_devices(model, processes, tmp_path, options, expected):
    (tmp_path / "in").write_text("a b\nc\n")
    arguments = ["translate", str(tmp_path / "in"), "-m", str(model), "--output", str(tmp_path / "out"), *options]
    assert run(arguments) == 0
    assert devices_of(processes) == expected
    assert (tmp_path / "out").read_text() == "A B\nC\n"


def test_a_stream_with_several_devices(model, processes):
    translator = Translator.load(model)
    assert list(translator.stream(["a", "b"], devices=["cuda:0", "cuda:1"])) == ["A", "B"]
    assert devices_of(processes) == ["cuda:0", "cuda:1"]
    processes.clear()
    assert list(translator.stream(["a"], devices=["cuda:1"])) == ["A"]
    assert devices_of(processes) == ["cuda:1"]


@pytest.mark.parametrize("n", [0, -3])
def test_a_stream_has_at_least_one_worker(model, n):
    with pytest.raises(UserError, match=f"workers = {n}: must be at least 1"):
        Translator.load(model).stream(["a"], workers=n)


def test_commands_refuse_what_is_not_there(model, tmp_path, capsys):
    lines = tmp_path / "lines.txt"
    lines.write_text("a dog\n")
    bert, gpt = bert_folder(tmp_path / "bert", own_tokenizers()), tmp_path / "gpt"
    save_model(gpt, make_gpt(vocab_size=tokenizers().source.vocab_size), tokenizers())
    for command in (
        ["translate", str(lines), "-m", str(model), "--device", "cuda:7"],
        ["translate", str(lines), "-m", str(model), "--workers", "2", "--device", "cuda:7"],
        ["summarize", str(lines), "-m", str(model), "--device", "cuda:7"],
        ["evaluate", str(lines), "--target", str(lines), "-m", str(model), "--device", "cuda:7"],
        ["generate", "a", "-m", str(gpt), "--device", "cuda:7"],
        ["fill", "a [MASK]", "-m", str(bert), "--device", "cuda:7"],
        ["classify", str(lines), "-m", str(bert), "--device", "cuda:7"],
        ["embed", str(lines), "-m", str(bert), "--output", str(tmp_path / "o.npy"), "--device", "cuda:7"],
    ):
        assert run(command) == 1, command
        assert "device 'cuda:7' is not available to torch; available: cpu" in capsys.readouterr().err
    assert run(["generate", "a", "-m", str(gpt), "--device", "cuda:0,cuda:1"]) == 1
    assert "one device" in capsys.readouterr().err
