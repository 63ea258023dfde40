"""The processes that tokenise: order, failures, and that none of them outlives its parent process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heedful.data import binarize
from heedful.data.binarize import (
    Chunk,
    EncodingWorker,
    SideFormat,
    encode_chunks,
    encode_side,
    pack_texts,
    unpack_texts,
)
from heedful.errors import UserError
from heedful.text import Tokenizers, save_tokenizers
from prepared_corpus import make_examples, tokenizers

IDS = SideFormat("<u2", keep_text=False)


def make_chunks(n: int, size: int = 20) -> list[Chunk]:
    examples = make_examples(n * size)
    parts = [examples[begin : begin + size] for begin in range(0, len(examples), size)]
    return [([e.source for e in part], [e.target for e in part]) for part in parts]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Return False for a zombie: it has ended, but its parent has not read its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: object, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_texts_survive_packing_into_a_message():
    chunk: Chunk = (["", "a\nb\r\n\0", "größe 𝕏 \u2028"], ["x"] * 3)
    assert unpack_texts(pack_texts(chunk)) == chunk
    assert unpack_texts(pack_texts(([],))) == ([],)


def test_chunks_come_back_in_order_and_equal_to_those_of_one_process(tmp_path):
    pieces = tokenizers()
    chunks = make_chunks(12)
    chunks[0] = (chunks[0][0] * 50, chunks[0][1] * 50)  # the first takes longest
    pair = (pieces.source, pieces.target)
    encoded_chunks = list(encode_chunks(chunks, pair, (IDS, IDS), files=tmp_path, n_workers=3))
    for (sources, targets), (source, target) in zip(chunks, encoded_chunks, strict=True):
        for texts, encoded in ((sources, source), (targets, target)):
            plain = encode_side(texts, pieces.source, IDS)
            assert encoded.values.tolist() == plain.values.tolist()
            assert encoded.sizes.tolist() == encoded.lengths.tolist() == plain.lengths.tolist()


def test_one_chunk_starts_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(binarize, "EncodingWorker", None)
    pieces = tokenizers().source
    assert len(list(encode_chunks([(["a dog"],)], [pieces], [IDS], files=tmp_path, n_workers=8))) == 1


def test_no_more_processes_than_chunks(tmp_path):
    started = encode_chunks([(["a dog"],)] * 3, [tokenizers().source], [IDS], files=tmp_path, n_workers=50)
    before = set(children_of(os.getpid()))
    next(started)
    assert len(set(children_of(os.getpid())) - before) == 3
    assert len(list(started)) == 2


def test_no_process_is_left_after_the_end_and_after_a_failing_reader(tmp_path):
    pieces = tokenizers().source
    before = set(children_of(os.getpid()))

    def failing(after: int):
        for chunk in make_chunks(after):
            yield (chunk[0],)
        raise UserError("line 7 is bad")

    list(encode_chunks([(chunk[0],) for chunk in make_chunks(5)], [pieces], [IDS], files=tmp_path, n_workers=2))
    assert set(children_of(os.getpid())) <= before
    with pytest.raises(UserError, match="line 7"):
        list(encode_chunks(failing(5), [pieces], [IDS], files=tmp_path, n_workers=2))
    abandoned = encode_chunks([(chunk[0],) for chunk in make_chunks(5)], [pieces], [IDS], files=tmp_path, n_workers=2)
    next(abandoned)
    assert len(set(children_of(os.getpid())) - before) == 2
    abandoned.close()
    assert set(children_of(os.getpid())) <= before


def test_a_killed_worker_is_reported_and_does_not_block_the_others(tmp_path):
    pieces = tokenizers().source
    before = set(children_of(os.getpid()))
    encoded = encode_chunks(
        [(chunk[0] * 10,) for chunk in make_chunks(40)], [pieces], [IDS], files=tmp_path, n_workers=2
    )
    next(encoded)
    for child in set(children_of(os.getpid())) - before:
        os.kill(child, signal.SIGKILL)
    with pytest.raises(UserError, match="ended with code -9"):
        list(encoded)
    assert set(children_of(os.getpid())) <= before


def test_an_error_in_a_worker_is_reported_with_its_traceback(tmp_path):
    tokenizers().source.save(tmp_path / "one")
    with EncodingWorker([tmp_path / "one"], [SideFormat("no such type", keep_text=False)]) as worker:
        for _ in range(2):  # the worker goes on after an error
            with pytest.raises(RuntimeError, match=r"Traceback(.|\n)*no such type"):
                worker.encode((["a dog"],))


def test_a_worker_imports_neither_torch_nor_files_of_the_working_folder(tmp_path, monkeypatch):
    """torch would cost each worker a second and two hundred megabytes."""
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    tokenizers().source.save("one")
    with EncodingWorker([Path("one")], [IDS]) as worker:
        worker.encode((["a dog"],))
        maps = Path(f"/proc/{worker.child.pid}/maps").read_text()
        assert "numpy" in maps and "libtorch" not in maps


# A plain script, without `if __name__ == "__main__"`, must work.
ENDLESS = """
import itertools, sys
from heedful.data import Example
from heedful.data import prepare
from heedful.text import load_tokenizers
tokenizers = load_tokenizers(sys.argv[1], probe=False)
endless = (Example("a dog runs %d" % n, "the cat sits") for n in itertools.count())
prepare(endless, tokenizers, sys.argv[2], fingerprint="x", n_workers=2, progress=lambda n, rate: print(n, flush=True))
"""


def start_endless(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    pieces: Tokenizers = tokenizers()
    save_tokenizers(folder / "tokenizers", pieces)
    (folder / "script.py").write_text(ENDLESS)
    command = [sys.executable, str(folder / "script.py"), str(folder / "tokenizers"), str(folder / "shards")]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline()  # the first chunk is done
    children = children_of(parent.pid)
    assert len(children) == 2
    return parent, children


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(tmp_path, sign):
    parent, children = start_endless(tmp_path)
    try:
        parent.send_signal(sign)
        parent.communicate(timeout=20)
        wait_until(lambda: not any(is_running(child) for child in children))
        assert not (tmp_path / "shards/shards.json").exists()
    finally:
        parent.kill()
        for child in filter(is_running, children):
            os.kill(child, signal.SIGKILL)
