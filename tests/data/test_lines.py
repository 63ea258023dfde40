"""Lines: bytes, split at LF only, without one trailing CR."""

import bz2
import gzip
import io
import lzma
import os
import random
import subprocess
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import Example, open_corpus
from heedful.data.lines import count_lines, read_lines, split_lines
from heedful.errors import UserError

# Every byte, and those more often that split lines somewhere.
POISONED = st.lists(
    st.one_of(
        st.binary(max_size=5), st.sampled_from([b"\n", b"\r", b"\r\n", b"\0", b"\x0b", b"\x85", "\u2028".encode()])
    )
).map(b"".join)


def plain_rule(content: bytes) -> list[bytes]:
    """Split a file that is in memory: the reference."""
    lines = content.split(b"\n")
    terminated, last = lines[:-1], lines[-1]
    return [line.removesuffix(b"\r") for line in terminated] + ([last] if last else [])


@given(POISONED)
def test_lines_are_split_at_line_feeds_only(content: bytes) -> None:
    lines = list(split_lines(io.BytesIO(content)))
    assert [line.content for line in lines] == plain_rule(content)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert all(content[line.byte :].startswith(line.content) for line in lines)


@given(POISONED, st.integers(1, 8))
def test_a_maximum_length_shifts_no_line(content: bytes, max_bytes: int) -> None:
    lines = list(split_lines(io.BytesIO(content), max_bytes=max_bytes))
    free = list(split_lines(io.BytesIO(content)))
    assert [(line.number, line.byte) for line in lines] == [(line.number, line.byte) for line in free]
    for line, whole in zip(lines, free, strict=True):
        too_long = any(problem.kind == "too-long" for problem in line.problems)
        assert too_long == (len(whole.content) > max_bytes)
        assert too_long or line.content == whole.content


def test_lines_are_counted_like_wc_in_1000_random_files(tmp_path: Path) -> None:
    """`wc -l` counts LFs; a last line without LF is a line, too."""
    draw = random.Random(7)
    alphabet = [
        *(bytes([byte]) for byte in range(256)),
        *[b"\n", b"\r\n", b"\r", b"\0", b"\xe2\x80\xa8", b"\xc2\x85"] * 20,
    ]
    for number in range(1000):
        content = b"." + b"".join(
            draw.choices(alphabet, k=draw.randrange(200))
        )  # begins with a dot, so that it has no magic number
        path = tmp_path / f"{number:04}.txt"
        path.write_bytes(content)
        expected = content.count(b"\n") + (not content.endswith(b"\n"))
        assert sum(1 for _ in read_lines(path)) == count_lines(path) == expected
    counted = subprocess.run(["wc", "-l", *map(str, tmp_path.iterdir())], capture_output=True, text=True, check=True)
    total = sum(path.read_bytes().count(b"\n") for path in tmp_path.iterdir())
    assert counted.stdout.split()[-2:] == [str(total), "total"]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress], ids=[".gz", ".xz", ".bz2"])
def test_compression_does_not_change_the_lines(tmp_path: Path, pack: object) -> None:
    content = b"\xef\xbb\xbfone\r\ntwo\x0b\xe2\x80\xa8\n\nfour" * 1000
    suffix = {gzip.compress: ".gz", lzma.compress: ".xz", bz2.compress: ".bz2"}[pack]  # type: ignore[index]
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / f"a.txt{suffix}").write_bytes(pack(content))  # type: ignore[operator]
    assert list(read_lines(tmp_path / "a.txt")) == list(read_lines(tmp_path / f"a.txt{suffix}"))
    assert count_lines(tmp_path / "a.txt") == count_lines(tmp_path / f"a.txt{suffix}")


def test_several_gzip_members_are_read_as_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\nt") + gzip.compress(b"wo\n"))
    assert [line.content for line in read_lines(path)] == [b"one", b"two"]


def test_a_very_long_line_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes(b"x" * (1 << 20)))
        file.write(b"\nafter\n")
    tracemalloc.start()
    lines = list(read_lines(path, max_bytes=1 << 20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [problem.kind for problem in lines[0].problems] == ["too-long"]
    assert lines[1].content == b"after"
    assert peak < 12 << 20


def test_the_byte_of_a_problem_is_counted_from_the_start_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(b"\xef\xbb\xbfab\xff\n")
    (tmp_path / "a.de").write_bytes(b"x\n")
    with pytest.raises(UserError, match=r"a\.en: line 1 \(byte 5\): invalid UTF-8 byte 0xFF"):
        list(open_corpus([tmp_path / "a.en", tmp_path / "a.de"]))


def test_a_hundred_thousand_numbered_pairs_stay_aligned(tmp_path: Path) -> None:
    """Pair i has i on both sides, among random characters at which other tools split lines."""
    trouble = [
        "\u2028",
        "\u2029",
        "\x85",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x1d",
        "\x1e",
        "\0",
        "\r",
        "\ufeff",
        "\t",
        '"',
        "\r\r",
    ]
    draw = random.Random(3)
    n = 100_000
    for name in ("a.en", "a.de.gz"):
        with gzip.open(tmp_path / name, "wb", 1) if name.endswith("gz") else (tmp_path / name).open("wb") as file:
            for i in range(n):
                planted = "".join(draw.choices(trouble, k=draw.randrange(4)))
                end = "\r\n" if draw.random() < 0.3 else "\n"
                file.write(f"{draw.choice(trouble)}{i} {planted}{name[2]}{end}".encode())
    corpus = open_corpus([tmp_path / "a.en", tmp_path / "a.de.gz"])
    mixed = 0
    for i, example in enumerate(corpus):
        numbers = [int("".join(filter(str.isdigit, text))) for text in (example.source, example.target)]
        mixed += numbers != [i, i] or example.line != i + 1
    assert (i + 1, mixed) == (n, 0)


def test_a_pipe_is_read_only_once(tmp_path: Path) -> None:
    for name, content in (("source", b"a\nb\n"), ("target", b"x\ny\n")):
        os.mkfifo(tmp_path / name)
        threading.Thread(target=(tmp_path / name).write_bytes, args=(content,), daemon=True).start()
    assert list(open_corpus([tmp_path / "source", tmp_path / "target"])) == [Example("a", "x"), Example("b", "y")]
