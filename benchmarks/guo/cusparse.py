# SPDX-License-Identifier: BSD-3-Clause
"""Added: single mesh and the other methods with matrices beside cuSPARSE's product of a CSR matrix and a vector.

The matrix is the same: entries of a row ascend by particle, int32 indices. cuSPARSE is timed as CuPy calls it, and by
its two algorithms for CSR after its preprocessing, into a vector that is given.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from guo.bench import Bench, Job, Measured, arrays_agree
from guo.cases import cases
from guo.variants import forms
from particlemesh.choosing.choice import METHODS

FIGURE = "cusparse"
MATRICES = [method.name for method in METHODS["spread"] if method.stores_weights]


def jobs(bench: Bench) -> list[Job]:
    """Return what is to be measured; the last job is cuSPARSE, on CUDA alone."""
    (case,) = cases(FIGURE, bench.small)
    ours = [Job(case, *form) for form in forms(bench, bench.those(*MATRICES))]
    return [*ours, *([Job(case, "cusparse")] if bench.library.name == "cuda" else [])]


def rows(bench: Bench, job: Job) -> list[dict[str, Any]]:
    """Measure ours like all others; of cuSPARSE, return a row for each way to call it."""
    if job.method != "cusparse":
        return bench.rows(FIGURE, job)
    made = []
    try:
        for name, found in _products(bench, job):
            made.append(bench.row(FIGURE, Job(job.case, name), found))
    except (ImportError, OSError, RuntimeError, AttributeError, MemoryError) as error:
        made.append(bench.row(FIGURE, job, Measured(note=" ".join(str(error).split())[:200])))
    return made


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
    order = xp.argsort(row, kind="stable")  # what comes first by particle stays first: rows ascend
    start = xp.zeros(nodes**3 + 1, np.int32)
    start[1:] = xp.cumsum(xp.bincount(row, minlength=nodes**3))
    return weight[order], (order // support**3).astype(np.int32), start


def _products(bench: Bench, job: Job) -> Iterator[tuple[str, Measured]]:
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    with bench.plan(Job(job.case, "particle")) as (plan, values, field):
        plan.spread(values, out=field)
        operator = csr_matrix(matrix(plan, cupy), shape=(field.size, plan.count))
        y, nbytes = cupy.empty(field.size, plan.dtype), sum(a.nbytes for a in (operator.data, operator.indices))
        if not operator.has_canonical_format:
            raise RuntimeError("the matrix is not in canonical form")
        calls = [("cuSPARSE, as CuPy calls it", lambda: operator @ values)]
        for name, call in itertools.chain(calls, _prepared_products(operator, values, y, cupy)):
            y.fill(0)
            result = call()
            if not arrays_agree(cupy.asnumpy(y if result is None else result), cupy.asnumpy(field).ravel(), 1e-3):
                raise RuntimeError(f"{name} gives another field")
            apply, how = bench.seconds(call)
            yield name, Measured(apply=apply, apply_by=how, nbytes=nbytes)


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
    """Return the cuSPARSE that CuPy has loaded: CuPy does not pass on the function that preprocesses."""
    found = re.search(r"/\S*libcusparse\.so\S*", Path("/proc/self/maps").read_text())
    if found is None:
        raise OSError("cuSPARSE is not loaded")
    return ctypes.CDLL(found[0])
