# SPDX-License-Identifier: BSD-3-Clause
"""Normal random numbers that are a function of the seed and the step."""

from __future__ import annotations

from typing import Any

import numpy as np

SEED_LIMIT = 2**128


class Noise:
    """Normal numbers by seed, step and draw: no state is carried from step to step.

    A simulation that is continued therefore needs its seed and its step only, and a step that failed leaves nothing
    behind. NumPy counts with Philox [salmon2011]_: the seed is its key, step and draw are the high words of its
    counter. CuPy's Philox is seeded anew for each draw, with 64 bits that NumPy's SeedSequence makes of the three.
    Both are independent of the number of threads, and differ from each other.

    Parameters
    ----------
    seed : int
        From 0 to 2**128 - 1.
    module : module
        ``numpy`` or ``cupy``.
    dtype : numpy.dtype
        float32 or float64.

    Examples
    --------
    >>> import numpy as np
    >>> noise = Noise(1, np, np.dtype("f8"))
    >>> bool((noise.normal(5, 0, (4, 3)) == noise.normal(5, 0, (4, 3))).all())
    True
    >>> bool((noise.normal(6, 0, (4, 3)) == noise.normal(5, 0, (4, 3))).any())
    False
    """

    def __init__(self, seed: int, module: Any, dtype: np.dtype) -> None:
        self.seed, self._module, self._dtype = seed, module, dtype
        self._generator: Any = None

    def normal(self, step: int, draw: int, shape: tuple[int, ...]) -> Any:
        """Return the first numbers of a draw of a step."""
        return self.generator(step, draw).standard_normal(shape, dtype=self._dtype)

    def generator(self, step: int, draw: int) -> Any:
        """Return the generator of a draw of a step; CuPy's serves until the next call."""
        if self._module is np:
            bits = np.random.Philox(key=self.seed, counter=np.array([0, 0, draw, step], np.uint64))
            return np.random.Generator(bits)
        if self._generator is None:
            from cupy.random import RandomState
            from cupy_backends.cuda.libs.curand import CURAND_RNG_PSEUDO_PHILOX4_32_10

            self._generator = RandomState(0, CURAND_RNG_PSEUDO_PHILOX4_32_10)
        words = np.random.SeedSequence((self.seed, step, draw)).generate_state(1, np.uint64)
        self._generator.seed(int(words[0]))
        return self._generator
