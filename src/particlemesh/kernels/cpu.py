# SPDX-License-Identifier: BSD-3-Clause
"""Loops in Numba on the library's pool of threads.

A loop is a compiled function whose last argument is a counter that its threads share. Each thread claims ranges of
items from it until none is left, so the loop is complete for any number of threads. The pool is renewed after a fork.

Examples
--------
>>> import numpy as np
>>> from particlemesh.kernels import cpu
>>> @cpu.compiled(cached=False)  # of this example, which lies in no file
... def add(x, y, counter):
...     for begin, end in cpu.ranges(counter, x.size, 4096):
...         for i in range(begin, end):
...             y[i] += x[i]
>>> x, y = np.arange(3.0), np.ones(3)
>>> cpu.run(add, cpu.threads_for(None, x.size), x, y)
>>> y
array([1., 2., 3.])
"""

from particlemesh.backends.cpu import plain, ranges, run, threads_for
from particlemesh.backends.jit import compiled, loop_with
from particlemesh.backends.simd import fetch_add

__all__ = ["compiled", "fetch_add", "loop_with", "plain", "ranges", "run", "threads_for"]
