"""Random generators and seeds that are pure functions of whole numbers, such as (seed, epoch, step, row).

A resumed run draws the same numbers as an uninterrupted one, because no generator keeps a state between steps.
"""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer]


def rng(*key: int) -> np.random.Generator:
    """Make a generator whose numbers depend on `key` alone.

    >>> float(rng(1, 2).random()) == float(rng(1, 2).random())
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def derived_seed(*key: int) -> int:
    """Compute a 32-bit seed that depends on `key` alone, for libraries that want a single number.

    >>> derived_seed(1, 2)
    1596810411
    """
    return int(np.random.SeedSequence(key).generate_state(1)[0])
