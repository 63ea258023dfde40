"""Read and write an archive of translations: one compressed table that benchmarks/quality/consensus.py reads.

    python benchmarks/quality/translations.py build/multi30k/* --files val.beam5.de test_2016_flickr.beam5.de
        --output translations.tsv.xz

Each folder is a system that `benchmarks/quality/multi30k.py --keep` wrote; the folder's name becomes the system's name.
The table is tab-separated text: "file" and the systems' names in the first line, then one row for each sentence, with
the name of the file and each system's translation. Translations of one sentence lie side by side, so xz removes most
of what they share.
"""

import argparse
import lzma
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from heedful.data import read_text

# archive[file][system] -> the lines of that file
Archive = dict[str, dict[str, list[str]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("systems", type=Path, nargs="+", metavar="FOLDER", help="a folder for each system")
    parser.add_argument("--files", nargs="+", required=True, help="names of files that every folder has")
    parser.add_argument("--output", type=Path, required=True, help="the archive to write, *.tsv.xz")
    options = parser.parse_args()
    archive = {name: {system.name: read_lines(system / name) for system in options.systems} for name in options.files}
    write_archive(options.output, archive)
    print(f"{options.output}: {len(options.systems)} systems, {options.output.stat().st_size:,} bytes")


def read_lines(path: Path) -> list[str]:
    """Read a plain or compressed text file; empty lines stay, so that line n is sentence n."""
    return [example.source for example in read_text(path, keep_empty=True)]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_archive(path: Path, archive: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Write the archive; every file must have the same systems, and every system equally many lines of a file."""
    systems = list(next(iter(archive.values())))
    rows = [("file", *systems)]
    for name, translations in archive.items():
        rows += [(name, *texts) for texts in zip(*(translations[system] for system in systems), strict=True)]
    if any("\t" in cell or "\n" in cell for row in rows for cell in row):
        sys.exit(f"{path}: a translation contains a tab or a line break, so it does not fit into a table")
    table = "".join("\t".join(row) + "\n" for row in rows)
    path.write_bytes(lzma.compress(table.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME))


def read_archive(path: Path) -> Archive:
    """Read an archive that `write_archive` wrote."""
    header, *rows = lzma.decompress(path.read_bytes()).decode("utf-8").split("\n")[:-1]
    _, *systems = header.split("\t")
    archive: Archive = {}
    for row in rows:
        name, *texts = row.split("\t")
        columns = archive.setdefault(name, {system: [] for system in systems})
        for system, text in zip(systems, texts, strict=True):
            columns[system].append(text)
    return archive


if __name__ == "__main__":
    main()
