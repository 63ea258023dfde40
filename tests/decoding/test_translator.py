"""Translator: order, candidates, streams of any size, threads and processes; and that it needs no torch by itself."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import heedful
from deterministic import fill
from echo_engine import EchoEngine, install, model_folder, tokenizers
from heedful.decoding.input_text import BLOCK_TEXTS, in_blocks
from heedful.decoding.search.settings import Sampling, SearchSettings
from heedful.decoding.translation import Translation, best_choices
from heedful.decoding.translator import Translator
from heedful.decoding.worker_pool import LoadSpec, Workers, result_from_dict, result_to_dict
from heedful.errors import UserError
from heedful.models.model_info import SourceLimit
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig


@pytest.fixture
def engine() -> EchoEngine:
    return EchoEngine()


@pytest.fixture
def translator(engine: EchoEngine) -> Translator:
    return Translator(engine, tokenizers(), reach=SourceLimit(64))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model, small and knowing nothing."""
    size = tokenizers().source.vocab_size
    config = Seq2SeqConfig(size, size, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_len=24)
    folder = tmp_path_factory.mktemp("models") / "small"
    return save_model(folder, fill(Seq2Seq(config), dtype=torch.float32), tokenizers())


def test_an_id_of_a_spare_row_is_no_text() -> None:
    """Public models have more rows than pieces; nothing keeps one from writing such an id."""
    spare = tokenizers().target.vocab_size + 2
    translator = Translator(EchoEngine(lambda ids: [spare, *ids, spare]), tokenizers(), reach=SourceLimit(64))
    (best,) = translator.search("A dog.")
    assert best.text == "A dog." and best.tokens[0] == best.tokens[-1] == f"<{spare}>"
    assert "".join(best.tokens[1:-1]).replace("▁", " ").strip() == "A dog."


def test_a_text_gives_a_text_and_a_list_a_list_in_order(translator: Translator) -> None:
    assert translator.translate("A dog.") == "A dog."
    assert translator.translate(["b", "a", "longer than both", "a"]) == ["b", "a", "longer than both", "a"]
    assert translator.translate([]) == []
    assert translator.translate(text for text in "xy") == ["x", "y"]


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u2028", "\xa0 "])
def test_nothing_is_not_asked_about(translator: Translator, engine: EchoEngine, text: str) -> None:
    assert translator.translate(["a", text, "b"]) == ["a", "", "b"]
    assert len(engine.asked) == 2
    assert translator.search(text) == [Translation("")]


def test_what_stands_twice_is_asked_once(translator: Translator, engine: EchoEngine) -> None:
    assert translator.translate(["one", "two", "one", "one"]) == ["one", "two", "one", "one"]
    assert len(engine.asked) == 2
    translator.translate(["one", "one"], sampling=Sampling(seed=1))
    assert len(engine.asked) == 4  # draws differ


def test_candidates_come_with_scores_and_tokens(translator: Translator) -> None:
    found = translator.search(["abc", "de"], beam=3, n_best=2)
    assert [[one.text for one in best] for best in found] == [["abc", "ab"], ["de", "d"]]
    assert [one.score for one in found[0]] == [0.0, -1.0]
    assert found[1][0].tokens == ("▁", "d", "e")
    assert found[1][1].tokens == ("▁", "d")
    assert found[1][1].source_tokens == ("▁", "d", "e")
    assert found[0][0].alignment is None
    assert translator.search("abc", beam=3, n_best=2) == found[0]


def test_alignment_and_attention(translator: Translator) -> None:
    (one,) = translator.search("ab", attention=True)
    assert one.alignment == ((0, 0), (1, 1), (2, 2))
    assert one.attention is not None and one.attention[1] == (0.0, 1.0, 0.0, 0.0)
    (long,) = translator.search("ab. " * 40, attention=True)
    assert long.alignment == tuple((token, token) for token in range(len(long.tokens)))
    assert long.tokens == long.source_tokens
    assert long.attention is None  # several pieces have no common matrix


class CuttingEngine(EchoEngine):
    """An echo that ends at `max_len` tokens, as a real search does."""

    def search(self, requests, settings, **_):
        found = super().search(requests, settings)
        longest = settings.limit(10)
        return [
            [replace(one, ids=one.ids[:longest], complete=len(one.ids) <= longest) for one in best] for best in found
        ]


def test_a_translation_that_is_cut_off_is_counted(translator: Translator) -> None:
    cutting = Translator(CuttingEngine(), tokenizers(), reach=SourceLimit(64))
    words = "2 translations were cut off at the length limit, without an end: the first is that of text 3"
    with pytest.warns(UserWarning, match=words) as said:
        assert list(cutting.stream(["a", "", "bcdefg", "a", "hijklm"], block=2, max_len=4)) == [
            "a",
            "",
            "bcd",
            "a",
            "hij",
        ]
    assert len(said) == 1
    with pytest.warns(UserWarning, match="1 translation was cut off .* that of text 1"):
        assert [one.complete for one in cutting.search("bcdefg", max_len=4)] == [False]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cutting.translate(["a", "b"], max_len=4)


def test_a_translation_beyond_what_the_model_was_made_for_is_counted() -> None:
    def twice(ids: list[int]) -> list[int]:
        return ids * 2

    engine = EchoEngine(twice)
    # The start mark and five tokens are six; the source has three and an end mark.
    with pytest.warns(UserWarning, match="1 translation was longer than the 6 tokens .* that of text 2"):
        Translator(engine, tokenizers(), reach=SourceLimit(6)).translate(["a", "ab"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Translator(engine, tokenizers(), reach=SourceLimit(7)).translate(["a", "ab"])
        Translator(engine, tokenizers(), reach=SourceLimit(6, is_hard=True)).translate(["a", "ab"])


def test_candidates_of_a_long_text_are_the_best_combinations(engine: EchoEngine) -> None:
    translator = Translator(engine, tokenizers(), reach=SourceLimit(6))
    found = translator.search("Abc. Def.", beam=3, n_best=3)
    assert [one.text for one in found] == ["Abc. Def.", "Abc. Def", "Abc Def."]
    assert [one.score for one in found] == [0.0, -1.0, -1.0]


@given(st.lists(st.lists(st.floats(-100, 0), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 20))
def test_best_choices_are_those_of_brute_force(rows: list[list[float]], n: int) -> None:
    rows = [sorted(row, reverse=True) for row in rows]
    sums = sorted(
        (sum(row[number] for row, number in zip(rows, choice, strict=True)))
        for choice in itertools.product(*(range(len(row)) for row in rows))
    )[::-1]
    found = best_choices(rows, n)
    totals = [sum(row[number] for row, number in zip(rows, choice, strict=True)) for choice in found]
    assert totals == pytest.approx(sums[:n])
    assert len({tuple(choice) for choice in found}) == len(found)
    assert found[0] == [0] * len(rows)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beem": 3}, ["translate: unknown key 'beem'", "did you mean 'beam'"]),
        ({"beam": 0}, ["'beam'", "0"]),
        ({"beam": "five"}, ["'beam'", "a whole number", "'five'"]),
        ({"beam": 2, "n_best": 3}, ["n_best = 3"]),
        ({"sampling": {"temp": 1.0}}, ["sampling.temp"]),
    ],
)
def test_a_wrong_option_is_refused(translator: Translator, options: dict[str, object], words: list[str]) -> None:
    for call in (translator.translate, translator.search, translator.stream):
        with pytest.raises(UserError) as error:
            call(["a"], **options)
        for word in words:
            assert word in str(error.value)


@pytest.mark.parametrize("texts", [["a", None], ["a", b"b"], [1], [["a"]]])
def test_what_is_no_text_is_refused_with_its_number(translator: Translator, texts: list[object]) -> None:
    with pytest.raises(UserError, match=rf"text {len(texts)}: expected a str"):
        translator.translate(texts)  # type: ignore[arg-type]


def test_errors_count_texts_over_blocks(translator: Translator) -> None:
    texts = ["a"] * 10 + ["\ud800"]
    with pytest.raises(UserError, match="text 11"):
        list(translator.stream(texts, block=4))


def test_an_unknown_way_with_long_texts(engine: EchoEngine) -> None:
    with pytest.raises(UserError, match="did you mean 'split'"):
        Translator(engine, tokenizers(), reach=SourceLimit(64), long="splt")  # type: ignore[arg-type]


def test_a_stream_reads_no_more_than_a_block_ahead(translator: Translator) -> None:
    n_read = 0

    def endless() -> Iterator[str]:
        nonlocal n_read
        for n_read in itertools.count(1):
            yield f"text {n_read}"

    stream = translator.stream(endless(), block=10)
    assert n_read == 0
    assert [next(stream) for _ in range(25)] == [f"text {n}" for n in range(1, 26)]
    assert n_read == 30


def test_blocks_end_by_number_or_by_size() -> None:
    assert list(in_blocks("abcde", n_texts=2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(in_blocks(["aaa", "a", "aa", "a"], n_characters=3)) == [["aaa"], ["a", "aa"], ["a"]]
    assert list(in_blocks([])) == []


@pytest.mark.filterwarnings("ignore:.* cut off")
def test_what_is_drawn_does_not_depend_on_blocks(model: Path) -> None:
    translator = Translator.load(model, engine="torch")
    texts = ["same"] * 5 + ["", "a longer text, which is split. In two"] + [f"text {n}" for n in range(5)]
    how = {"sampling": Sampling(seed=5), "max_len": 8}
    expected = translator.translate(texts, **how)
    assert len(set(expected[:5])) == 5  # each text draws for itself
    for block in (1, 2, 5, 100):
        assert list(translator.stream(texts, block=block, **how)) == expected
    assert list(translator.stream(texts, block=2, workers=2, **how)) == expected


@pytest.mark.filterwarnings("ignore:.* cut off")
def test_no_seed_repeats_what_another_draws(model: Path) -> None:
    translator = Translator.load(model, engine="torch")
    first, second = (
        list(translator.stream(["same"] * 20, block=4, sampling=Sampling(seed=seed), max_len=8)) for seed in (0, 4)
    )
    assert not set(first) & set(second)


def test_the_pieces_of_a_text_are_drawn_each_for_itself(translator: Translator, engine: EchoEngine) -> None:
    list(translator.stream(["a", "same\nsame", "", "a"], block=2, sampling=Sampling(seed=1)))
    assert [request.sample_key for request in engine.asked] == [(0, 0), (1, 0), (1, 1), (3, 0)]


def test_eight_threads_share_one_translator(translator: Translator) -> None:
    texts = [[f"Thread {t} says {n}. " * (1 + n % 9) for n in range(60)] for t in range(8)]
    barrier = threading.Barrier(8)

    def work(mine: list[str]) -> list[str]:
        barrier.wait()
        return translator.translate(mine)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, texts)) == texts


def test_eight_threads_share_a_real_model(model: Path) -> None:
    translator = Translator.load(model, engine="torch")
    texts = [[f"{chr(97 + t)} {n}" for n in range(6)] for t in range(8)]
    expected = [translator.translate(mine, beam=2, max_len=6) for mine in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda mine: translator.translate(mine, beam=2, max_len=6), texts)) == expected


def test_load_finds_the_model_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: EchoEngine) -> None:
    install(monkeypatch.setattr, engine)
    model_folder(tmp_path / "run" / "best", max_len=8)
    translator = heedful.Translator.load(tmp_path / "run")
    assert translator.translate("Abcdef. Ghijkl.") == "Abcdef. Ghijkl."
    assert len(engine.asked) == 2  # two sentences, each in two parts, of which one is a full stop alone
    with pytest.raises(UserError, match="no such folder"):
        heedful.Translator.load(tmp_path / "nowhere")


def test_learned_positions_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr)
    folder = model_folder(tmp_path / "model", max_len=8, positions="learned")
    with pytest.raises(UserError, match="end at max_len = 8"):
        Translator.load(folder, limit=9)


def test_a_model_without_tokenizers_is_refused(tmp_path: Path) -> None:
    config = Seq2SeqConfig(11, 11, d_model=8, n_layers=1, n_heads=2, d_ff=12)
    folder = save_model(tmp_path / "ids", fill(Seq2Seq(config), dtype=torch.float32), None)
    with pytest.raises(UserError, match="no tokenizers"):
        Translator.load(folder, engine="torch")


def test_two_processes_translate_as_one_does(model: Path) -> None:
    translator = Translator.load(model, engine="torch")
    texts = [f"text {n} is here. " * (1 + n % 7) for n in range(40)] + ["", "x" * 100, "日本"]
    expected = translator.translate(texts, beam=2, max_len=6)
    assert list(translator.stream(texts, block=5, workers=2, beam=2, max_len=6)) == expected


def test_what_a_process_refuses_is_refused_here(model: Path) -> None:
    translator = Translator.load(model, engine="torch", long="error")
    with pytest.raises(UserError, match=r"text 3: 102 tokens with the end of the source"):
        list(translator.stream(["a", "b", "x" * 100], block=1, workers=2, beam=1, max_len=4))


def test_a_process_that_cannot_open_the_model_says_so_to_each_block(model: Path) -> None:
    """It is there until its input is closed: whoever comes late is told the same, and not that memory ran out."""
    with Workers(LoadSpec(str(model), engine="torch", compute="int8"), SearchSettings(), 1) as workers:
        for start in (0, 1):
            with pytest.raises(UserError, match="compute = 'int8': only the CTranslate2 engine has it"):
                workers.submit(["a"], start).result()


def test_a_process_that_dies_is_named_and_the_others_end(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("heedful.worker.subprocess.Popen", start)
    settings = SearchSettings(beam=1, max_len=4)
    with (
        pytest.raises(UserError, match=r"translating process \d of 2 \(pid \d+\) ended with code -9"),
        Workers(LoadSpec(str(model), engine="torch"), settings, 2) as workers,
    ):
        assert workers.submit(["a"], 0).result().outputs
        for process in started:
            os.kill(process.pid, signal.SIGKILL)
        workers.submit(["b"], 1).result()
    assert [process.poll() for process in started] == [-9, -9]


def test_no_process_outlives_one_that_was_killed(model: Path) -> None:
    program = f"""
import itertools
from heedful.decoding.translator import Translator
translator = Translator.load({str(model)!r}, engine="torch")
texts = (f"text {{n}}" for n in itertools.count())
for number, text in enumerate(translator.stream(texts, block=8, workers=2, beam=1)):
    print(number, flush=True)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == b"0\n"
        children = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
        assert len(children) == 2
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    end = time.monotonic() + 20
    while any(is_running(pid) for pid in children):
        assert time.monotonic() < end, "a child is still there"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_need_a_folder(translator: Translator) -> None:
    with pytest.raises(UserError, match="not loaded from a folder"):
        translator.stream(["a"], workers=2)


@pytest.mark.parametrize("n_workers", [0, -1, 10**6])
def test_how_many_processes(model: Path, n_workers: int) -> None:
    with pytest.raises(UserError, match="must lie between 1 and"):
        Workers(LoadSpec(str(model)), SearchSettings(), n_workers)


def test_an_answer_goes_through_json_unchanged(translator: Translator) -> None:
    answer = translator.translate_block(["abc", "", "ab. " * 40], SearchSettings(n_best=2, attention=True))
    assert result_from_dict(result_to_dict(answer)) == answer


def test_translating_by_itself_imports_no_torch() -> None:
    names = "Translator, pipeline, open_engine, SearchSettings, Request"
    program = f"import sys; from heedful import Translator, pipeline; from heedful.decoding import {names}; "
    program += "assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_block_is_large_enough_to_sort() -> None:
    assert BLOCK_TEXTS >= 512
