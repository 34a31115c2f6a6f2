# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms of one, two and three axes on a GPU, beside cuFINUFFT where it is installed.

Writes ``results/nufft-cases-DEVICE.csv``. Points are uniform. ``call_s`` are seconds of ``execute`` by events,
``graph_s`` of captured CUDA graphs, ``setpts_s`` of new points, after which the next ``execute`` is not timed.
``error`` is the relative l2 error against a transform of ours in complex128 with eps 1e-13, of the same points. Of
type 3 only ``setpts`` has a peer here. With ``applications=100`` plans prepare for many calls with the same points.

    python benchmarks/apps/nufft_cases.py [--backend cuda] [--small]
"""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from harness import runs
from harness.place import Place
from harness.tables import short
from particlemesh.apps import nufft


class Case(NamedTuple):
    """One problem; ``modes`` of type 3 are as many targets."""

    nufft_type: int
    modes: tuple[int, ...]
    count: int
    dtype: str
    eps: float
    vectors: int = 1  # transformed together

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.modes))
        many = f"{self.vectors} vectors, " * (self.vectors > 1)
        return f"type {self.nufft_type}, {many}{self.count:,} points, {shape} modes, {self.dtype}, {self.eps:g}"


CASES = (
    *(Case(t, (10**6,), 10**6, *kind) for t in (1, 2) for kind in (("complex64", 1e-5), ("complex128", 1e-9))),
    *(Case(t, (1024, 1024), 10**7, "complex64", 1e-5) for t in (1, 2)),
    *(Case(t, (n,) * 3, 10**7, "complex128", eps) for n in (256, 128) for eps in (1e-9, 1e-12) for t in (1, 2)),
    *(Case(t, (4096,), 10**4, "complex64", 1e-5, n) for t in (1, 2) for n in (1, 32)),
    Case(3, (10**6,) * 3, 10**6, "complex64", 1e-5), Case(3, (10**6,) * 3, 10**6, "complex128", 1e-9),
)  # fmt: skip


def rows(place: Place, case: Case) -> Iterator[dict[str, Any]]:
    """Yield a row for each library."""
    rng, ndim, kind = np.random.default_rng(1), len(case.modes), np.dtype(case.dtype)
    real = kind.type(0).real.dtype
    points = [rng.uniform(-np.pi, np.pi, case.count).astype(real) for _ in range(ndim)]
    batch = (case.vectors,) * (case.vectors > 1)
    size = (*batch, *case.modes) if case.nufft_type == 2 else (*batch, case.count)
    data = (rng.normal(size=size) + 1j * rng.normal(size=size)).astype(kind)
    shape = case.modes if case.nufft_type == 1 else (case.modes[0],) if case.nufft_type == 3 else (case.count,)
    shape = (*batch, *shape)
    targets: list[np.ndarray] = []
    if case.nufft_type == 3:  # frequencies of a mesh of 100 modes along each axis
        targets = [rng.uniform(-50, 50, case.modes[0]).astype(real) for _ in range(ndim)]
    asked = ndim if case.nufft_type == 3 else case.modes
    given = [place.upload(p) for p in (*points, *targets)]
    exact = None
    if case.nufft_type != 3:
        whole = nufft.Plan(case.nufft_type, asked, case.vectors, eps=1e-13)
        whole.setpts(*(place.upload(p.astype(np.float64)) for p in points))
        exact = place.download(whole.execute(place.upload(data.astype(np.complex128))))
        del whole
    values, out = place.upload(data), place.backend.empty(shape, kind)
    many = functools.partial(nufft.Plan, applications=100)
    makers: dict[str, Any] = {"particlemesh": nufft.Plan, "particlemesh, applications=100": many}
    if place.name == "cuda" and importlib.util.find_spec("cufinufft"):
        import cufinufft

        makers["cufinufft"] = cufinufft.Plan
    for name, make in makers.items():
        plan = make(case.nufft_type, asked, case.vectors, case.eps, dtype=case.dtype)

        def setpts(plan: Any = plan) -> None:
            plan.setpts(*given)

        def execute(plan: Any = plan) -> None:
            plan.execute(values, out=out)

        setpts()
        execute()
        error = math.nan
        if exact is not None:
            error = float(np.linalg.norm(place.download(out) - exact) / np.linalg.norm(exact))
        execute()
        once = place.clock.seconds(execute)
        graph = place.clock.captured(execute, once) if name != "cufinufft" else math.nan
        new = place.clock.seconds(setpts)
        yield dict(
            type=case.nufft_type, vectors=case.vectors, N=case.count, modes="x".join(map(str, case.modes)),
            dtype=case.dtype,
            eps=f"{case.eps:g}", library=name, call_s=short(once), graph_s=short(graph), setpts_s=short(new),
            error="" if math.isnan(error) else f"{error:.2e}", device=place.device, backend=place.name,
        )  # fmt: skip
        del plan


def main() -> None:
    """Measure what the command line asks for."""
    asked = runs.parser(__doc__).parse_args()
    place, cases = Place(asked.backend), list(CASES)
    if asked.small:
        cases = [case._replace(count=300, modes=tuple(min(n, 6) for n in case.modes)) for case in cases]
        cases = [case._replace(modes=(300,) * 3) if case.nufft_type == 3 else case for case in cases]
    with runs.Run(place, asked.out) as run:
        run.write(place.file("nufft", "cases"), run.measure("NUFFT", cases, lambda case: rows(place, case)))
    run.finish()


if __name__ == "__main__":
    main()
