# SPDX-License-Identifier: BSD-3-Clause
"""cuSPARSE's product of a CSR matrix and a vector, for the same matrix as the library's stored matrices.

Entries of a row ascend by particle; indices are int32. cuSPARSE is timed as CuPy calls it, and by its two algorithms
for CSR after its preprocessing, into a given vector.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.cases import Case, Job


def rows(guo: Any, case: Case, times: Any) -> Iterator[dict[str, Any]]:
    """Yield a row for each way to call cuSPARSE; CUDA only. ``times`` is the class of times."""
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    with guo.bench.setup(Job(case, "particle")) as made:
        made.call()
        field, plan = made.result().ravel(), made.plan
        values = cupy.asarray(guo.bench._source(case))
        operator = csr_matrix(matrix(plan, cupy), shape=(field.size, plan.count))
        y, nbytes = cupy.empty(field.size, plan.dtype), sum(a.nbytes for a in (operator.data, operator.indices))
        if not operator.has_canonical_format:
            raise RuntimeError("the matrix is not in canonical form")
        calls = [("cuSPARSE, as CuPy calls it", lambda: operator @ values)]
        for name, call in itertools.chain(calls, _prepared_products(operator, values, y, cupy)):
            y.fill(0)
            result = call()
            product = cupy.asnumpy(y if result is None else result)
            if np.abs(product - field).max() > 1e-3 * np.abs(field).max():
                raise RuntimeError(f"{name} returns another field")
            apply, how = guo.bench.clock.least(call)
            yield guo.row("cusparse", Job(case, name), times(apply=apply, apply_by=how, nbytes=nbytes))


def matrix(plan: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return weights, columns and row starts of the operator on a periodic cube; ``xp`` is NumPy or CuPy."""
    count, nodes, support = plan.count, plan.mesh.shape[0], plan.window.support
    first, fraction = (xp.asarray(a)[:, :count] for a in (plan.particles.node, plan.particles.fraction))
    row, weight = xp.zeros((count, 1), np.int32), xp.ones((count, 1), plan.dtype)
    for axis in range(3):
        along = ((first[axis][:, None] + xp.arange(support)) % nodes).astype(np.int32)
        host = fraction[axis] if xp is np else fraction[axis].get()
        weights = xp.asarray(plan.window.weights(host), plan.dtype)
        row = (row[:, :, None] * nodes + along[:, None, :]).reshape(count, -1)
        weight = (weight[:, :, None] * weights[:, None, :]).reshape(count, -1)
    row, weight = row.ravel(), weight.ravel()
    order = xp.argsort(row, kind="stable")  # stable: entries of a row ascend by particle
    start = xp.zeros(nodes**3 + 1, np.int32)
    start[1:] = xp.cumsum(xp.bincount(row, minlength=nodes**3))
    return weight[order], (order // support**3).astype(np.int32), start


def _prepared_products(operator: Any, x: Any, y: Any, cupy: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return the product by each algorithm of cuSPARSE for CSR, its buffer and preprocessing done before."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusparse as low
    from cupyx.cusparse import DnVecDescriptor, SpMatDescriptor

    a, vx, vy = SpMatDescriptor.create(operator), DnVecDescriptor.create(x), DnVecDescriptor.create(y)
    one, zero, real = np.ones(1, y.dtype), np.zeros(1, y.dtype), {"f": 0, "d": 1}[y.dtype.char]  # CUDA_R_32F, _64F
    library = _library()
    for number, algorithm in ((1, 2), (2, 3)):  # CUSPARSE_SPMV_CSR_ALG1, _ALG2
        how = (device.get_cusparse_handle(), 0, one.ctypes.data, a.desc, vx.desc, zero.ctypes.data, vy.desc, real,
               algorithm)  # fmt: skip
        buffer = cupy.empty(max(low.spMV_bufferSize(*how), 1), np.int8)
        pointers = [ctypes.c_void_p(v) if i not in (1, 7, 8) else ctypes.c_int(v) for i, v in enumerate(how)]
        failed = library.cusparseSpMV_preprocess(*pointers, ctypes.c_void_p(buffer.data.ptr))
        if failed:
            raise RuntimeError(f"cusparseSpMV_preprocess returned {failed}")

        def call(how: Any = how, buffer: Any = buffer, kept: Any = (a, vx, vy, one, zero)) -> None:
            low.spMV(*how, buffer.data.ptr)

        yield f"cuSPARSE, CSR algorithm {number}, preprocessed", call


def _library() -> Any:
    """Return the cuSPARSE that CuPy has loaded: CuPy has no function for the preprocessing."""
    library = re.search(r"/\S*libcusparse\.so\S*", Path("/proc/self/maps").read_text())
    if library is None:
        raise OSError("cuSPARSE is not loaded")
    return ctypes.CDLL(library[0])
