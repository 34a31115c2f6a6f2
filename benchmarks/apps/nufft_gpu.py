# SPDX-License-Identifier: BSD-3-Clause
"""Stages of non-uniform Fourier transforms on a GPU beside their memory bounds, and cuFINUFFT where it is installed.

Writes ``results/gpu-nufft-DEVICE.csv``. Complex values at uniform points, K^3 modes. The stages of ``execute`` are
timed alone on the plan's memory: ``spread`` or ``interpolate``, ``fft``, and ``deconvolve``, which crops the spectrum
or pads the modes in the same pass. ``call_s`` are seconds by events, ``graph_s`` of captured CUDA graphs. cuFINUFFT is
timed as it comes, and with each of its methods. ``bytes`` is what a stage has to move at least: points, values, modes,
and the mesh once, in each direction of the FFT twice per axis. ``over_bound`` is the stage's time over these bytes at
the bandwidth of a copy.

``unit_s`` is what the model of times in ``apps/nufft/sizes.py`` takes: seconds per byte of stencils for ``spread`` and
``interpolate``, without the mesh's, and seconds per byte for ``fft``. Errors are relative l2 errors against a transform
of ours in complex128 with eps 1e-13 of the same points, which float32 holds.

    python benchmarks/apps/nufft_gpu.py [--backend cuda] [--small] [--count 1000000 10000000] [--modes 64 128 256]
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from harness import runs
from harness.place import Place
from harness.tables import short, show
from particlemesh.apps import nufft

TOLERANCES = (
    ("complex64", 1e-3),
    ("complex64", 1e-6),
    ("complex128", 1e-3),
    ("complex128", 1e-6),
    ("complex128", 1e-9),
)
COPY = 2**29  # bytes of the copy that gives the bandwidth


class Case(NamedTuple):
    """One problem."""

    count: int
    modes: int
    nufft_type: int
    dtype: str
    eps: float

    def __str__(self) -> str:
        return f"type {self.nufft_type}, {self.count:,} points, {self.modes}^3 modes, {self.dtype}, {self.eps:g}"


def bandwidth(place: Place, size: int) -> float:
    """Return the bytes per second that a copy reads and writes."""
    source, target = (place.backend.empty((size // 8,), np.dtype(np.float64)) for _ in range(2))
    place.backend.clear(source)
    return 2 * size / place.clock.seconds(lambda: place.backend.copy(target, source))


@functools.lru_cache(maxsize=1)
def problem(place: Place, count: int, modes: int, nufft_type: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return points, data and the exact result on the host."""
    rng = np.random.default_rng(1)
    x = [rng.uniform(-np.pi, np.pi, count).astype(np.float32) for _ in range(3)]
    size = count if nufft_type == 1 else (modes,) * 3
    data = (rng.normal(size=size) + 1j * rng.normal(size=size)).astype(np.complex64)
    plan = nufft.Plan(nufft_type, (modes,) * 3, eps=1e-13)
    plan.setpts(*(place.upload(p.astype(np.float64)) for p in x))
    return x, data, place.download(plan.execute(place.upload(data.astype(np.complex128))))


def libraries(place: Place, nufft_type: int) -> dict[str, Any]:
    """Return plans to compare, by name: cuFINUFFT by its default, and by each of its methods."""
    plans: dict[str, Any] = {"particlemesh": nufft.Plan}
    if place.name == "cuda" and importlib.util.find_spec("cufinufft"):
        import cufinufft

        plans["cufinufft"] = cufinufft.Plan
        for method in (1, 2, 3) if nufft_type == 1 else (1, 2):
            plans[f"cufinufft, method {method}"] = functools.partial(cufinufft.Plan, gpu_method=method)
    return plans


Stage = tuple[str, Callable[[], Any], int]


def stages(plan: Any, case: Case, data: Any, out: Any) -> list[Stage]:
    """Return the stages of our transform, each with the bytes that it has to move."""
    core, kind = plan._core, np.dtype(case.dtype)
    bands, real = core.bands, kind.itemsize // 2
    field, shape = core._field(1), (1, *(case.modes,) * 3)
    mesh, band = math.prod(bands.nodes) * kind.itemsize, case.modes**3 * kind.itemsize
    particles = case.count * (4 * real + kind.itemsize)  # located, and a value
    sign, one = (1 if case.nufft_type == 1 else -1), (1,)
    values, modes = (data, out) if case.nufft_type == 1 else (out, data)
    values, modes = values.reshape(1, -1), modes.reshape(shape)

    def transform() -> None:
        bands.engine.run(field, sign, field)

    fft = ("fft", transform, 2 * len(bands.nodes) * mesh)
    if case.nufft_type == 1:
        return [
            ("spread", lambda: core.plan.spread(values, out=field), particles + mesh), fft,
            ("deconvolve", lambda: bands._launch("crop", field, modes, one, field, modes), 2 * band),
        ]  # fmt: skip
    return [
        ("deconvolve", lambda: bands._launch("embed", modes, field, one, field, modes), band + mesh), fft,
        ("interpolate", lambda: core.plan.interpolate(field, out=values), particles + mesh),
    ]  # fmt: skip


def unit(stage: str, seconds: float, nbytes: int, plan: Any, case: Case, rate: float) -> Any:
    """Return the seconds of a unit of the model of times, or nothing."""
    if stage == "fft":
        return short(seconds / nbytes)
    if stage not in ("spread", "interpolate"):
        return ""
    core, size = plan._core, np.dtype(case.dtype).itemsize
    mesh, stencils = math.prod(core.bands.nodes) * size, case.count * core.sizes.support**3 * size
    return short(max(0.0, seconds - mesh / rate) / stencils)


def rows(place: Place, case: Case, rate: float) -> Iterator[dict[str, Any]]:
    """Yield a row for every stage of every library."""
    x, data, exact = problem(place, *case[:3])
    kind = np.dtype(case.dtype)
    points = [place.upload(p.astype(kind.type(0).real.dtype)) for p in x]
    data, out = place.upload(data.astype(kind)), place.backend.empty(exact.shape, kind)
    for name, make in libraries(place, case.nufft_type).items():
        plan = make(case.nufft_type, (case.modes,) * 3, 1, case.eps, dtype=case.dtype)
        plan.setpts(*points)
        plan.execute(data, out=out)
        result, ours = place.download(out), name == "particlemesh"
        sizes = plan._core.sizes if ours else None
        nbytes = case.count * 7 * kind.itemsize // 2  # three coordinates read, four reals written

        def row(
            stage: str, call: Callable[[], Any], moved: int = 0, *, plan: Any = plan, name: str = name,
            sizes: Any = sizes, error: float = math.nan, captured: bool = True,
        ) -> dict[str, Any]:  # fmt: skip
            call()
            once = place.clock.seconds(call)
            graph = place.clock.captured(call, once) if captured else math.nan
            best = once if math.isnan(graph) else min(once, graph)
            return dict(
                type=case.nufft_type, N=case.count, modes=case.modes, dtype=case.dtype, eps=f"{case.eps:g}",
                library=name, stage=stage, call_s=short(once), graph_s=short(graph), bytes=moved or "",
                over_bound=short(best * rate / moved) if moved else "",
                unit_s=unit(stage, best, moved, plan, case, rate) if sizes else "",
                error="" if math.isnan(error) else f"{error:.2e}", support=sizes.support if sizes else "",
                nodes=sizes.nodes[0] if sizes else "", copy_gb_s=short(rate / 1e9), device=place.device,
                backend=place.name,
            )  # fmt: skip

        if ours and place.name != "cpu":  # there the FFT goes axis by axis with the factors
            yield from (row(*part) for part in stages(plan, case, data, out))
        error = float(np.linalg.norm(result - exact) / np.linalg.norm(exact))
        yield row("execute", lambda plan=plan: plan.execute(data, out=out), error=error, captured=ours)
        # Last, since it waits for the device and makes later calls prepare again.
        yield row("setpts", lambda plan=plan: plan.setpts(*points), nbytes if ours else 0, captured=False)
        del plan


def summary(table: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return for each stage the median and the largest time over its bound, and the median unit by dtype."""
    lines = []
    for stage, dtype in itertools.product(
        dict.fromkeys(r["stage"] for r in table), dict.fromkeys(r["dtype"] for r in table)
    ):
        mine = [r for r in table if (r["stage"], r["dtype"], r["library"]) == (stage, dtype, "particlemesh")]
        bounds, units = ([r[key] for r in mine if r[key] != ""] for key in ("over_bound", "unit_s"))
        if bounds:
            middle = f"{statistics.median(units):.2e}" if units else ""
            lines.append((stage, dtype, f"{statistics.median(bounds):.2f}", f"{max(bounds):.2f}", middle))
    return lines


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__)
    parser.add_argument("--count", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("--modes", type=int, nargs="+", default=[64, 128, 256])
    asked = parser.parse_args()
    place = Place(asked.backend)
    counts, modes = ([300], [6]) if asked.small else (asked.count, asked.modes)
    cases = [Case(*c, *t) for c in itertools.product(counts, modes, (1, 2)) for t in TOLERANCES]
    rate = bandwidth(place, COPY // 2**12 if asked.small else COPY)
    with runs.Run(place, asked.out) as run:
        table = run.measure("NUFFT", cases, lambda case: rows(place, case, rate))
        run.write(place.file("gpu", "nufft"), table)
    show("Stages over their memory bound", ("stage", "dtype", "median", "largest", "unit, s"), summary(table))
    run.finish()


if __name__ == "__main__":
    main()
