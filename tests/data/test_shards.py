"""Prepared shards: exact contents, reuse of valid and matching folders only, and constant memory."""

import gc
import json
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from heedful.data import Example, Shards, binarize, open_corpus, prepare, shards
from heedful.errors import UserError
from prepared_corpus import make_examples, prepared, tokenizers

ALL = np.arange(300)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rebuilt(folder: Path, n: int = 300) -> bool:
    """Prepare again, and return whether the corpus had to be read."""
    read = []

    def examples() -> Iterator[Example]:
        read.append(True)
        yield from make_examples(n)

    prepare(examples(), tokenizers(), folder, fingerprint=f"{n} 0", n_workers=1)
    return bool(read)


@pytest.mark.parametrize("joint", [True, False])
def test_ids_come_back_in_order_on_both_sides(tmp_path, joint):
    examples = make_examples(300)
    pieces = tokenizers(joint=joint)
    made = prepare(examples, pieces, tmp_path, fingerprint="x", n_workers=1)
    assert len(made) == 300
    for i, ids in enumerate(made.source.ids(ALL)):
        assert ids.tolist() == pieces.source.encode(examples[i].source)
    for i, ids in enumerate(made.target.ids(ALL)):
        assert ids.tolist() == pieces.target.encode(examples[i].target)
    some = np.array([299, 0, 7, 7], np.uint32)
    assert [ids.tolist() for ids in made.source.ids(some)] == [
        pieces.source.encode(examples[i].source) for i in (299, 0, 7, 7)
    ]
    assert made.source.lengths.tolist() == [len(pieces.source.encode(e.source)) for e in examples]
    assert made.manifest.sides["source"].tokens == made.source.lengths.sum()


def test_kept_text_is_normalised_and_has_the_lengths_of_its_best_segmentation(tmp_path):
    pieces = tokenizers(sample_alpha=0.1)
    examples = [*make_examples(50), Example("e\u0301té \u2581 x", ""), Example("", "größe")]
    made = prepare(examples, pieces, tmp_path, fingerprint="x", keep_text=True, n_workers=1)
    assert made.keep_text
    assert made.source.texts(np.arange(52)) == [pieces.source.normalize(e.source) for e in examples]
    assert made.target.texts(np.arange(52)) == [pieces.target.normalize(e.target) for e in examples]
    assert made.source.lengths.tolist() == [len(pieces.source.encode(e.source)) for e in examples]
    assert (made.source.planned_lengths >= made.source.lengths).all()


def test_most_samples_stay_below_the_planned_length(tmp_path):
    made = prepared(tmp_path, 400, keep_text=True)
    pieces = tokenizers(sample_alpha=0.1)
    sampled = pieces.source.sample_batch(made.source.texts(np.arange(400)), seed=77)
    within = np.mean([len(ids) <= planned for ids, planned in zip(sampled, made.source.planned_lengths, strict=True)])
    assert 0.8 < within < 0.99


def test_plain_text_has_no_target_and_keeps_its_documents_apart(tmp_path):
    pieces = tokenizers().source
    documents = ["a dog", "", "the cat\nsits", "a man walks"]
    made = prepare(map(Example, documents), pieces, tmp_path, fingerprint="x", n_workers=1)
    assert made.target is None
    assert [ids.tolist() for ids in made.source.ids(np.arange(4))] == pieces.encode_batch(documents)
    assert not list(tmp_path.glob("target*"))


def test_no_examples_make_empty_shards(tmp_path):
    made = prepare([], tokenizers(), tmp_path, fingerprint="x", n_workers=1)
    assert len(made) == len(Shards.open(tmp_path)) == 0
    assert made.source.lengths.tolist() == made.source.ids(np.zeros(0, np.int64)) == []


def test_a_large_vocabulary_takes_four_bytes_for_an_id_and_a_small_one_two(tmp_path):
    small = prepared(tmp_path / "small", 20)

    class Large:
        """A tokenizer with a vocabulary of more than 65,536 ids."""

        vocab_size, can_sample, fingerprint = 80_000, False, "large"

        def encode_batch(self, texts: list[str]) -> list[list[int]]:
            return [[70_000 + len(text), 3] for text in texts]

    large = prepare(make_examples(20), Large(), tmp_path / "large", fingerprint="x", n_workers=1)
    assert small.manifest.sides["source"].dtype == "<u2"
    assert large.manifest.sides["source"].dtype == "<u4"
    assert large.source.ids(np.array([0]))[0].tolist() == [70_000 + len(make_examples(20)[0].source), 3]


def test_an_id_outside_the_vocabulary_is_an_error(tmp_path):
    class Wrong:
        vocab_size, can_sample, fingerprint = 100, False, "wrong"

        def encode_batch(self, texts: list[str]) -> list[list[int]]:
            return [[65_536 + 5] for _ in texts]

    with pytest.raises(AssertionError, match="outside the vocabulary"):
        prepare(make_examples(3), Wrong(), tmp_path, fingerprint="x", n_workers=1)


def test_the_files_do_not_depend_on_the_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(binarize, "CHUNK_EXAMPLES", 40)
    for keep_text in (False, True):
        pieces = tokenizers(sample_alpha=0.1)
        folders = [tmp_path / f"{keep_text} {n}" for n in (1, 3)]
        for folder, n_workers in zip(folders, (1, 3), strict=True):
            prepare(make_examples(300), pieces, folder, fingerprint="x", keep_text=keep_text, n_workers=n_workers)
        assert files_of(folders[0]) == files_of(folders[1])


def test_shards_are_reused_for_equal_inputs_and_rebuilt_for_others(tmp_path):
    prepared(tmp_path, 300)
    before = files_of(tmp_path)
    assert not rebuilt(tmp_path)
    assert files_of(tmp_path) == before
    others = {
        "corpus": lambda: prepare(make_examples(300), tokenizers(), tmp_path, fingerprint="other", n_workers=1),
        "tokenizer": lambda: prepare(
            make_examples(300), tokenizers(joint=False), tmp_path, fingerprint="300 0", n_workers=1
        ),
        "side": lambda: prepare(make_examples(300), tokenizers().source, tmp_path, fingerprint="300 0", n_workers=1),
    }
    keys = {Shards.open(tmp_path).key}
    for change in others.values():
        keys.add(change().key)
        assert rebuilt(tmp_path)
    assert len(keys) == 4
    sampling = tokenizers(sample_alpha=0.1)
    kept, ids = (
        prepare(make_examples(9), sampling, tmp_path, fingerprint="9", keep_text=keep, n_workers=1)
        for keep in (True, False)
    )
    assert kept.key != ids.key and kept.keep_text and not ids.keep_text


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path):
    prepared(tmp_path, 300)
    generator = np.random.default_rng(0)
    names = [name for name in files_of(tmp_path) if name != "lock"]
    assert len(names) == 5
    for name in names:
        path = tmp_path / name
        whole = path.read_bytes()
        for _ in range(20):
            damaged = bytearray(whole)
            damaged[generator.integers(len(whole))] ^= 1 << generator.integers(8)
            path.write_bytes(damaged)
            with pytest.raises(UserError, match=name):
                Shards.open(tmp_path, verify=True)
        assert rebuilt(tmp_path)
        assert path.read_bytes() == whole
        path.write_bytes(whole[: int(generator.integers(len(whole)))])
        with pytest.raises(UserError, match=name):
            Shards.open(tmp_path)
        path.unlink()
        with pytest.raises(UserError, match=name):
            Shards.open(tmp_path)
        assert rebuilt(tmp_path)
        assert path.read_bytes() == whole


def test_a_manifest_of_another_format_or_with_other_files_is_refused(tmp_path):
    prepared(tmp_path, 10)
    path = tmp_path / "shards.json"
    values = json.loads(path.read_text())
    for change, words in (
        ({"format": 99}, "format 99"),
        ({"files": {"../x": {"bytes": 1, "sha256": ""}}}, "names the files"),
    ):
        changed = {key: value for key, value in (values | change).items() if key != "sha256"}
        changed["sha256"] = shards._digest(changed)
        path.write_text(json.dumps(changed))
        with pytest.raises(UserError, match=words):
            Shards.open(tmp_path)


@pytest.mark.parametrize("stage", ["first write", "last write", "manifest"])
def test_a_build_that_stops_anywhere_leaves_no_valid_shards(tmp_path, monkeypatch, stage):
    prepared(tmp_path, 300, seed=1)  # older shards
    writes = []

    def write(self: binarize.SideWriter, encoded: object) -> None:
        writes.append(True)
        if stage == "first write" or len(writes) == 2:
            raise KeyboardInterrupt
        true_write(self, encoded)

    true_write = binarize.SideWriter.write

    def replace(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    if stage == "manifest":
        monkeypatch.setattr(Path, "replace", replace)
    else:
        monkeypatch.setattr(binarize.SideWriter, "write", write)
    with pytest.raises(KeyboardInterrupt):
        prepare(make_examples(300), tokenizers(), tmp_path, fingerprint="300 0", n_workers=1)
    monkeypatch.undo()
    with pytest.raises(UserError, match="no such file"):
        Shards.open(tmp_path)
    assert rebuilt(tmp_path)
    assert not rebuilt(tmp_path)
    assert not list(tmp_path.glob("*.part"))


def test_files_are_synced_before_the_manifest_appears(tmp_path, monkeypatch):
    events = []
    true_fsync, true_replace = os.fsync, Path.replace

    def fsync(handle: int) -> None:
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        true_fsync(handle)

    def replace(self: Path, target: Path) -> Path:
        events.append(("rename", target.name))
        return true_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    prepared(tmp_path, 20)
    rename = events.index(("rename", "shards.json"))
    synced = {name for _, name in events[:rename]}
    assert synced >= {"source.ids", "source.offsets", "target.ids", "target.offsets", "shards.json.part"}
    assert events[rename + 1 :] == [("sync", tmp_path.name)]


def test_the_error_of_a_full_disk_has_the_file_and_the_free_bytes(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
    try:
        with pytest.raises(UserError, match=r"(source|target)\.\w+: cannot be written .* [\d,]+ bytes are free"):
            prepared(tmp_path, 300)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert rebuilt(tmp_path)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_only_a_few_chunks_are_in_memory(tmp_path, monkeypatch, n_workers):
    monkeypatch.setattr(binarize, "CHUNK_EXAMPLES", 50)
    read, done = [0], [0]
    most = 0

    def examples() -> Iterator[Example]:
        nonlocal most
        for example in make_examples(3_000):
            read[0] += 1
            most = max(most, read[0] - done[0])
            yield example

    def progress(n_done: int, rate: float) -> None:
        assert n_done > done[0] and rate > 0
        done[0] = n_done

    prepare(examples(), tokenizers(), tmp_path, fingerprint="x", n_workers=n_workers, progress=progress)
    assert done[0] == 3_000
    assert most <= (2 * n_workers + 3) * 50


def test_a_second_process_waits_and_uses_the_shards_of_the_first(tmp_path):
    begun, go_on = threading.Event(), threading.Event()
    opened = []

    def slow() -> Iterator[Example]:
        begun.set()
        assert go_on.wait(20)
        yield from make_examples(100)

    def unread() -> Iterator[Example]:
        raise AssertionError("the second builder read the corpus")
        yield

    first = threading.Thread(target=lambda: prepare(slow(), tokenizers(), tmp_path, fingerprint="x", n_workers=1))
    second = threading.Thread(
        target=lambda: opened.append(prepare(unread(), tokenizers(), tmp_path, fingerprint="x", n_workers=1))
    )
    first.start()
    assert begun.wait(20)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    go_on.set()
    first.join(20)
    second.join(20)
    assert len(opened[0]) == 100


def test_a_rebuild_does_not_change_open_shards_and_leaves_none_of_their_files(tmp_path):
    """Writing into a mapped file would change the data of a running training, or kill it with SIGBUS."""
    used = prepared(tmp_path, 300)
    before = [ids.tolist() for ids in used.source.ids(ALL)]
    prepared(tmp_path, 5, keep_text=True, seed=1)
    assert [ids.tolist() for ids in used.source.ids(ALL)] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "lock",
            "shards.json",
            *(f"{side}.{kind}" for side in ("source", "target") for kind in ("text", "offsets", "lengths")),
        ]
    )


def test_keep_text_needs_a_tokenizer_that_samples(tmp_path):
    with pytest.raises(UserError, match="sample_alpha"):
        prepare(make_examples(3), tokenizers(), tmp_path, fingerprint="x", keep_text=True)


def test_a_corpus_is_prepared_with_its_own_fingerprint(tmp_path):
    examples = make_examples(30)
    sides = [tmp_path / "a.en", tmp_path / "a.de"]
    sides[0].write_text("".join(f"{e.source}\n" for e in examples), encoding="utf-8")
    sides[1].write_text("".join(f"{e.target}\n" for e in examples), encoding="utf-8")
    corpus = open_corpus(sides)
    made = prepare(corpus, tokenizers(), tmp_path / "shards", fingerprint=corpus.fingerprint())
    assert [ids.tolist() for ids in made.target.ids(np.arange(30))] == [
        tokenizers().target.encode(e.target) for e in examples
    ]
    sides[1].write_text(sides[1].read_text(encoding="utf-8").replace("dog", "god"), encoding="utf-8")
    changed = open_corpus(sides)
    again = prepare(changed, tokenizers(), tmp_path / "shards", fingerprint=changed.fingerprint())
    assert again.key != made.key


def test_a_large_file_is_read_equally_without_being_mapped(tmp_path, monkeypatch):
    small = prepared(tmp_path, 300)
    assert "source.ids" in Path("/proc/self/maps").read_text()
    mapped = [ids.tolist() for ids in small.source.ids(ALL)]
    lengths = small.source.lengths.tolist()
    del small
    gc.collect()
    monkeypatch.setattr(shards, "MAPPED_BYTES", 0)
    large = Shards.open(tmp_path)
    assert "source.ids" not in Path("/proc/self/maps").read_text()
    assert [ids.tolist() for ids in large.source.ids(ALL)] == mapped
    assert large.source.lengths.tolist() == lengths
    os.truncate(tmp_path / "source.ids", 10)
    with pytest.raises(UserError, match=r"source\.ids: was cut short"):
        large.source.ids(ALL)
