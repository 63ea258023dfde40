"""CTranslate2 continues prompts as torch does: equal tokens, scores and ends; what it cannot do, torch does."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import ctranslate2
import pytest

from ct2_models import count_conversions
from echo_engine import tokenizers
from gpt_writers import SHAPES, make_gpt, make_writer, some_prompts, tie
from heedful.decoding.engines import auto
from heedful.decoding.engines.auto import AutoEngine, has_wide_output, open_engine
from heedful.decoding.engines.ctranslate2_generator import CTranslate2Generator, _batches
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.generator import Generator
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import Sampling, SearchSettings
from heedful.errors import UserError
from heedful.models.gpt import Gpt
from heedful.models.model_io import save_model
from heedful.text.special_ids import SpecialIds

PROMPTS = some_prompts(300)
GREEDY = SearchSettings(beam=1, max_len=12)


class Pair:
    """A model, and both its engines."""

    def __init__(self, model: Gpt, folder: Path) -> None:
        self.model, self.torch, self.fast = model, TorchEngine(model), make_writer(model, folder)


@pytest.fixture(scope="module", params=SHAPES)
def pair(request, tmp_path_factory) -> Pair:
    return Pair(make_gpt(**SHAPES[request.param]), tmp_path_factory.mktemp("ct2") / request.param)


def assert_equal(pair: Pair, prompts: list[Request], settings: SearchSettings) -> list[list]:
    found, expected = pair.fast.search(prompts, settings), pair.torch.search(prompts, settings)
    for prompt, theirs, ours in zip(prompts, found, expected, strict=True):
        assert len(theirs) == len(ours)
        for a, b in zip(theirs, ours, strict=True):
            assert a.normalized_score == pytest.approx(b.normalized_score, abs=1e-3)
            if a.ids == b.ids:
                assert (a.score, a.complete) == (pytest.approx(b.score, abs=1e-3), b.complete)
            else:
                assert len(ours) > 1 or tie(pair.model, prompt, a, b) < 1e-4
    return found


@pytest.mark.parametrize("beam", [1, 4])
def test_300_prompts_give_what_they_give_on_torch(pair: Pair, beam: int) -> None:
    found = assert_equal(pair, PROMPTS, SearchSettings(beam=beam, max_len=12, length_penalty=0.2))
    assert len({tuple(best[0].ids) for best in found}) > 250
    assert 2 < sum(best[0].complete for best in found) < 298


BEAMS = {
    "n-best": {"n_best": 4},
    "no length penalty": {"length_penalty": 0.0, "n_best": 2},
    "strong length penalty": {"length_penalty": 2.0},
    "patient": {"patience": 2.0, "n_best": 3},
    "impatient": {"patience": 0.3},
    "one token": {"max_len": 1},
    "wide": {"beam": 12},
}


@pytest.mark.parametrize("changes", BEAMS.values(), ids=BEAMS)
def test_a_beam_with_other_settings(pair: Pair, changes: dict) -> None:
    assert_equal(pair, PROMPTS[:20], SearchSettings(**{"beam": 4, "max_len": 10, **changes}))


def test_in_whatever_company(pair: Pair) -> None:
    """A prompt of one token, among longer ones too; the order is kept, and one alone is the same."""
    prompts = [Request([7]), *PROMPTS[:4], Request([9]), PROMPTS[0]]
    for beam in (1, 3):
        settings = SearchSettings(beam=beam, max_len=9)
        found = assert_equal(pair, prompts, settings)
        alone = [pair.fast.search([prompt], settings)[0] for prompt in prompts]
        assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in alone]
    assert pair.fast.search([], GREEDY) == []


def test_batches_are_of_one_limit_and_of_nearly_one_length() -> None:
    prompts = [Request([5] * length) for length in (30, 1, 2, 1, 18, 19, 70, 2)]

    def lengths(rows: int, **options) -> list[list[int]]:
        settings = SearchSettings(**options)
        return [[len(prompts[number].source) for number in batch] for batch in _batches(prompts, settings, rows)]

    assert lengths(9, beam=1, max_len=9) == [[70], [19, 30], [2, 2, 18], [1, 1]]
    assert lengths(2, beam=1, max_len=9) == [[70], [30], [18, 19], [2, 2], [1, 1]]
    assert lengths(9, beam=2, max_len=9) == [[70], [30], [19], [18], [2, 2], [1, 1]]
    prompts = [Request([5] * length) for length in (40, 60, 63, 64, 66)]
    assert lengths(9, beam=1) == [[64, 66], [60, 63], [40]]  # 63 tokens and a mark may become 144, more may become 272


def test_up_to_the_last_position_and_no_further(pair: Pair) -> None:
    """The window of 64 holds 45 tokens of a prompt and 20 more, of which the last is not read."""
    prompt = Request(list(range(4, 49)), continues=True)
    [[whole]] = assert_equal(pair, [prompt], SearchSettings(beam=1, max_len=20, length_penalty=0.0))
    assert len(whole.ids) == 20
    with pytest.raises(UserError, match="65 tokens are more than the 64 that the model reads at once"):
        pair.fast.search([prompt], SearchSettings(beam=1, max_len=21))


@pytest.mark.parametrize("beam", [1, 3])
def test_a_stream_is_the_whole_in_pieces(pair: Pair, beam: int) -> None:
    settings = SearchSettings(beam=beam, max_len=12, length_penalty=0.2)
    for prompt in PROMPTS[:8]:
        pieces = list(pair.fast.stream(prompt, settings))
        [[whole]] = pair.fast.search([prompt], settings)
        assert [id for piece in pieces for id in piece] == whole.ids
        assert beam > 1 or all(len(piece) == 1 for piece in pieces)


def test_a_stream_that_nobody_reads_on_stops(pair: Pair, monkeypatch) -> None:
    told, gate, submit = [], threading.Semaphore(1), pair.fast._submit

    def watched(*given, callback=None, **more):
        def slowly(result) -> bool:
            assert gate.acquire(timeout=60)
            told.append(callback(result))
            return told[-1]

        return submit(*given, **more, **({} if callback is None else {"callback": slowly}))

    monkeypatch.setattr(pair.fast, "_submit", watched)
    stream = pair.fast.stream(Request([5] * 4), SearchSettings(beam=1, max_len=60))
    next(stream)
    stream.close()
    gate.release(100)
    pair.fast.search(PROMPTS[:1], GREEDY)  # waits its turn
    assert told == [False, True]


def test_what_goes_wrong_in_a_stream_is_raised(pair: Pair, monkeypatch) -> None:
    submit = pair.fast._submit
    monkeypatch.setattr(pair.fast, "_submit", lambda *given, **more: submit(*given, **more, sampling_topp=7.0))
    with pytest.raises(ValueError, match="sampling_topp"):
        list(pair.fast.stream(PROMPTS[0], GREEDY))


REFUSED = {
    "random numbers": {"sampling": Sampling()},
    "repetition rules do not see the prompt": {"repetition_penalty": 1.2},
    "change its scores": {"min_len": 2},
    "do not see the prompt": {"no_repeat_ngram": 2},
    "banned tokens change": {"forbidden": (5,)},
    "no coverage": {"coverage_penalty": 0.1, "beam": 2},
    "GNMT": {"length_rule": "gnmt", "beam": 2},
    "finished": {"stop": "estimated", "beam": 2},
    "alike": {"diversity": 0.5, "beam": 2},
    "half the vocabulary": {"beam": 40},
}


@pytest.mark.parametrize(("words", "changes"), REFUSED.items(), ids=REFUSED)
def test_settings_that_it_cannot_follow_are_refused(pair: Pair, words: str, changes: dict) -> None:
    settings = SearchSettings(**{"beam": 1, "max_len": 5, **changes})
    with pytest.raises(UserError, match=words):
        pair.fast.search(PROMPTS[:2], settings)
    with pytest.raises(UserError, match=words):
        list(pair.fast.stream(PROMPTS[0], settings))


def test_given_words_are_refused(pair: Pair) -> None:
    for prompt in (Request([5], required=[[7]]), Request([5], prefix=[7])):
        with pytest.raises(UserError, match="given words"):
            pair.fast.search([prompt], GREEDY)


def test_several_ends(tmp_path: Path) -> None:
    """Greedy search ends at any of them; a beam would hold such texts twice."""
    pair = Pair(make_gpt(special_ids=SpecialIds(bos_id=2, eos_id=3, extra_eos_ids=(17, 40, 58))), tmp_path / "ct2")
    found = assert_equal(pair, PROMPTS[:100], GREEDY)
    assert 3 < sum(best[0].complete for best in found) < 100
    assert not any({3, 17, 40, 58} & set(best[0].ids) for best in found)
    with pytest.raises(UserError, match="several ids"):
        pair.fast.search(PROMPTS[:1], SearchSettings(beam=2, max_len=5))


def test_a_model_without_an_end_goes_on(tmp_path: Path) -> None:
    pair = Pair(make_gpt(special_ids=SpecialIds(bos_id=0, eos_id=60)), tmp_path / "ct2")
    for beam in (1, 2):
        found = assert_equal(pair, PROMPTS[:40], SearchSettings(beam=beam, max_len=12))
        assert all((len(best[0].ids), best[0].complete) == (12, False) for best in found)


def test_ids_that_must_not_be_written_are_torchs_business(tmp_path: Path) -> None:
    fast = make_writer(make_gpt(special_ids=SpecialIds(forbidden_ids=(7,))), tmp_path / "ct2")
    with pytest.raises(UserError, match="banned tokens"):
        fast.search(PROMPTS[:1], GREEDY)


def test_int8_is_near_float32(pair: Pair) -> None:
    small = CTranslate2Generator(pair.fast.converted, pair.fast.info, compute="int8")
    both = list(zip(small.search(PROMPTS, GREEDY), pair.fast.search(PROMPTS, GREEDY), strict=True))
    assert 0.7 * len(both) < sum(a[0].ids[:1] == b[0].ids[:1] for a, b in both)
    assert sum(a[0].ids == b[0].ids for a, b in both) < len(both)


@pytest.mark.parametrize(
    ("compute", "expected"), [("float32", [(1, 3), (3, 1)]), ("int8", [(3, 1)])], ids=["float32", "int8"]
)
def test_threads(pair: Pair, compute: str, expected: list[tuple[int, int]], monkeypatch) -> None:
    """One prompt has all of them, many have one each; in int8 they would be in each other's way."""
    opened, real = [], ctranslate2.Generator

    def watched(*given, inter_threads, intra_threads, **more):
        opened.append((inter_threads, intra_threads))
        return real(*given, **more)

    monkeypatch.setattr(ctranslate2, "Generator", watched)
    monkeypatch.setattr(
        "heedful.decoding.engines.ctranslate2_generator.threads_for_one", lambda folder, n_threads: n_threads
    )
    writer = CTranslate2Generator(pair.fast.converted, pair.fast.info, compute=compute, threads=3)
    for prompts in (PROMPTS[:1], PROMPTS[:8], PROMPTS[:1]):
        writer.search(prompts, GREEDY)
    list(writer.stream(PROMPTS[0], GREEDY))
    assert opened == expected


def test_several_threads_may_ask_at_once(pair: Pair) -> None:
    expected = [best[0].ids for best in pair.fast.search(PROMPTS[:40], GREEDY)]
    writer = CTranslate2Generator(pair.fast.converted, pair.fast.info, threads=2)  # two batches at a time
    found: list = [None] * 4

    def run(number: int) -> None:
        found[number] = [best[0].ids for best in writer.search(PROMPTS[:40], GREEDY)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


class TestAuto:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return save_model(tmp_path / "model", make_gpt(vocab_size=tokenizers().source.vocab_size), tokenizers())

    @pytest.fixture(autouse=True)
    def counted(self, monkeypatch) -> list[Path]:
        """Conversions run in this process, and are counted."""
        return count_conversions(monkeypatch)

    def test_each_request_goes_where_it_can_be_answered(self, folder: Path, counted: list[Path]) -> None:
        generator = Generator.load(folder)
        plain = Generator.load(folder, engine="torch")
        prompts = [list(prompt.source) for prompt in PROMPTS[:6]]
        prompts.insert(2, list(range(4, 60)))  # this one outgrows the window
        for options in ({}, {"beam": 3}, {"sampling": {"seed": 3}}, {"min_len": 4}, {"beam": 3, "stop": "proven"}):
            found = generator.search_ids(prompts, max_len=11, **options)
            expected = plain.search_ids(prompts, max_len=11, **options)
            assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in expected]
        assert isinstance(generator.engine, AutoEngine)
        assert len(counted) == 1
        for options in ({}, {"sampling": {"seed": 3}}):
            pieces = list(generator.stream("A dog", max_len=9, **options))
            assert "".join(pieces) == plain.generate("A dog", max_len=9, **options)

    def test_who_draws_pays_for_no_conversion(self, folder: Path, counted: list[Path]) -> None:
        generator = Generator.load(folder)
        assert generator.generate("A dog", max_len=3, sampling={"seed": 1})
        assert counted == []

    def test_who_does_not_draw_loads_no_model_in_torch(self, folder: Path, monkeypatch) -> None:
        monkeypatch.setattr(auto, "_open_torch", lambda *_, **__: pytest.fail("torch was opened"))
        generator = Generator.load(folder)
        assert generator.generate(["A dog", "x"], max_len=3)
        assert list(generator.stream("A dog", max_len=3))

    @pytest.mark.parametrize(
        ("n_prompts", "compute", "width", "goes_to_torch"),
        [(16, "float32", 1, True), (15, "float32", 1, False), (16, "int8", 1, False), (16, "float32", 3, False)],
        ids=["many, wide", "few", "int8", "not wide"],
    )
    def test_many_prompts_go_to_torch_where_the_output_layer_is_most_of_the_model(
        self, n_prompts: int, compute: str, width: int, goes_to_torch: bool, folder: Path, monkeypatch
    ) -> None:
        monkeypatch.setattr(auto, "WIDE_OUTPUT", 1)
        config = json.loads((folder / "config.json").read_text())
        layers = config["n_layers"] * (4 * config["d_model"] + 2 * config["d_ff"])
        monkeypatch.setattr(auto, "read_json", lambda path: config | {"vocab_size": layers * 2 // width})
        real, opened = auto._open_torch, []
        monkeypatch.setattr(auto, "_open_torch", lambda *args, **more: opened.append(args) or real(*args, **more))
        generator = Generator.load(folder, compute=compute)
        prompts = [list(prompt.source) for prompt in PROMPTS[:n_prompts]]
        found = generator.search_ids(prompts, max_len=5)
        assert len(opened) == goes_to_torch
        if compute == "float32":
            expected = Generator.load(folder, engine="torch").search_ids(prompts, max_len=5)
            assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in expected]

    def test_greedy_search_from_a_kept_conversion_imports_no_torch(self, folder: Path) -> None:
        Generator.load(folder).generate("x", max_len=2)
        program = (
            "import sys; from heedful.cli import main\n"
            f"assert main.run(['generate', 'A dog', '-m', {str(folder)!r}, '--max-tokens', '5']) == 0\n"
            "assert 'torch' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout.startswith(b"A dog")

    def test_int8_has_no_torch_to_go_to(self, folder: Path) -> None:
        generator = Generator.load(folder, compute="int8")
        assert generator.generate("A dog", max_len=3)
        with pytest.raises(UserError, match="only CTranslate2 has it, and it cannot do this: its random numbers"):
            generator.generate("A dog", max_len=3, sampling={"seed": 1})
        with pytest.raises(UserError, match="only the CTranslate2 engine has it"):
            Generator.load(folder, engine="torch", compute="int8")

    def test_by_name(self, folder: Path) -> None:
        fast = Generator.load(folder, engine="ctranslate2")
        assert fast.engine.name == "ctranslate2"
        assert fast.generate("A dog", max_len=3) == Generator.load(folder, engine="torch").generate("A dog", max_len=3)
        with pytest.raises(UserError, match="engine = 'torch'"):
            _ = fast.model
        assert isinstance(Generator.load(folder).model, Gpt)
        for options, words in (({"engine": "ctranslate"}, "did you mean"), ({"compute": "int4"}, "did you mean")):
            with pytest.raises(UserError, match=words):
                open_engine(folder, **options)

    def test_a_model_that_does_not_map_runs_on_torch(self, tmp_path: Path) -> None:
        folder = save_model(tmp_path / "model", make_gpt(special_ids=SpecialIds(source_bos=True)), None)
        assert open_engine(folder).name == "torch"
        with pytest.raises(UserError, match="no BOS before"):
            open_engine(folder, engine="ctranslate2")
        with pytest.raises(UserError, match="int8"):
            open_engine(folder, compute="int8")

    def test_a_size_that_is_not_given_makes_no_output_wide(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 10_000_000}))
        assert has_wide_output(folder)
        del config["d_ff"]
        (folder / "config.json").write_text(json.dumps(config))
        assert not has_wide_output(folder)

    def test_settings_of_a_damaged_folder(self, folder: Path) -> None:
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"max_len": 64', '"max_len": "64"'))
        with pytest.raises(UserError, match="'max_len' must be a whole number, found '64'"):
            Generator.load(folder)
