"""TODO"""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer]


def rng(*numbers: int) -> np.random.Generator:
    """Random numbers that depend on these numbers and nothing else."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(numbers)))


def derived_seed(*numbers: int) -> int:
    """A 32-bit seed for others that depends on these numbers and nothing else."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
