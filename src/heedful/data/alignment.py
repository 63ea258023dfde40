"""Where two files stop belonging together, guessed from nothing but the lengths of their lines."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from heedful.data.lines import is_pipe, read_lines

MAX_SHIFT = 1000  # with more lines than this between them, one break is not what happened


def first_shifted_line(source: Path, target: Path) -> int | None:
    """The line from which the longer file runs ahead (n + 1 of the shorter when only its end is missing), or None.

    Translations are about as long as their sources. So before the break line i fits line i, after it line i + k, where
    k is how many lines one side has more; the break is where the sum of misfits is smallest. Files are read again.
    """
    if is_pipe(source) or is_pipe(target):
        return None
    lengths = [_lengths(path) for path in (source, target)]
    shorter, longer = sorted(lengths, key=len)
    shift = len(longer) - len(shorter)
    if len(shorter) < 20 or not 0 < shift <= MAX_SHIFT:
        return None
    n = len(shorter)
    usual = np.median(longer) - np.median(shorter)  # of logarithms: how much longer one language is written
    before = np.abs(longer[:n] - shorter - usual)
    after = np.abs(longer[shift:] - shorter - usual)
    sum_before, sum_after = (np.concatenate([[0.0], np.cumsum(misfit)]) for misfit in (before, after))
    misfits = sum_before + sum_after[-1] - sum_after  # [p]: lines up to p unshifted, the others shifted
    best = int(np.argmin(misfits))
    opposite = sum_after[best] + sum_before[-1] - sum_before[best]
    return best + 1 if misfits[best] < 0.8 * opposite else None


def _lengths(path: Path) -> npt.NDArray[np.float32]:
    sizes = np.fromiter((len(line.content) for line in read_lines(path)), dtype=np.float32)
    return np.log(sizes + 10)  # +10: among short lines a few letters more mean nothing
