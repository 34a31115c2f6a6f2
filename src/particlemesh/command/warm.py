# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh warm``: compile what common calls need, in several processes, so that first calls do not wait."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps import nufft
from particlemesh.apps.pme import PME
from particlemesh.apps.progress import bar
from particlemesh.command import self_test
from particlemesh.command.consoles import say
from particlemesh.fourier import Solver, power_spectrum

COUNT, NODES = 1000, 32
WINDOWS = "cic", "tsc", "pcs", "bspline4", "bspline6"


def _plan(x: Any, q: Any, ndim: int, window: str) -> None:
    mesh = pm.Mesh((NODES,) * ndim, (1.0,) * ndim)
    plan = pm.Plan(mesh, window).set_positions(x)
    field = plan.spread(q)
    plan.interpolate(field)
    plan.value_and_gradient(field)


def _grid(x: Any, q: Any, ndim: int) -> None:
    lengths = (1.0,) * ndim
    pm.neighbour_list("ijdDS", x, lengths, 0.1)
    with pm.UniformGrid(lengths, cell_size=0.1) as grid:
        grid.build(x)
        grid.pairs(0.1, half=True)
        grid.count(0.1)
        grid.nearest(3, radius=0.2)


def _solver(x: Any, q: Any, ndim: int) -> None:
    mesh = pm.Mesh((NODES,) * ndim, (1.0,) * ndim)
    Solver(mesh, "bspline6", green="ewald", alpha=10.0).set_positions(x).potential_and_gradient(q)
    power_spectrum(x, q * q, mesh)


def _nufft(x: Any, q: Any, ndim: int) -> None:
    columns = [6.28 * x[:, axis] - 3.14 for axis in range(ndim)]
    c = q.astype(np.complex64 if x.dtype == np.float32 else np.complex128)
    modes = getattr(nufft, f"nufft{ndim}d1")(*columns, c, (16,) * ndim)
    getattr(nufft, f"nufft{ndim}d2")(*columns, modes)


def _pme(x: Any, q: Any, ndim: int) -> None:
    PME((1.0,) * 3, 1e-4)(x, q)


CALLS: dict[str, Callable[..., None]] = {  # what a progress bar names; each in every dimension and precision
    **{f"plans, {window}": functools.partial(_plan, window=window) for window in WINDOWS},
    "grids and neighbour lists": _grid, "solvers and power spectra": _solver, "NUFFT": _nufft, "PME": _pme,
}  # fmt: skip


def jobs() -> list[tuple[str, int, str]]:
    """Return call, number of axes, and dtype of each job, those of three axes first."""
    three = [(name, 3, dtype) for name in CALLS for dtype in ("float64", "float32")]
    return three + [(name, ndim, dtype) for name, _, dtype in three if name != "PME" for ndim in (2, 1)]


def compile_for(name: str, ndim: int, dtype: str) -> str:
    """Make a call with NumPy arrays once; return its name."""
    random = np.random.default_rng(1)
    x = random.random((COUNT, ndim)).astype(dtype)
    q = random.choice([-1.0, 1.0], COUNT).astype(dtype)
    CALLS[name](x, q, ndim)
    return f"{name}, {ndim}-D, {dtype}"


def warm(console: Any) -> None:
    """Compile for the CPU in all processes, show a bar, and print what it took."""
    begin, todo = time.perf_counter(), jobs()
    with bar("compiling", len(todo), console) as advance:
        if self_test.PROCESSES == 1:
            for job in todo:
                advance(1, compile_for(*job))
        else:
            with self_test.spawning() as context, ProcessPoolExecutor(self_test.PROCESSES, mp_context=context) as pool:
                for done in as_completed([pool.submit(compile_for, *job) for job in todo]):
                    advance(1, done.result())
    folder = (
        os.environ.get("NUMBA_CACHE_DIR") or f"{Path(pm.__file__).parent}, or your cache folder if that is read-only"
    )
    seconds = time.perf_counter() - begin
    say(console, "compiled", f"{len(todo)} kinds of calls for the CPU, in {seconds:.0f} s; code is kept in {folder}")
