# SPDX-License-Identifier: BSD-3-Clause
"""Errors of float32 transforms, ours and FINUFFT's, against direct sums in float64 over the same float32 points.

Writes ``results/nufft-float32-DEVICE.csv``. Points are uniform in one period, strengths and modes are normal and
complex. Errors are relative l2 errors: of type 1 at random modes, of type 2 at random points. The float32 numbers are
exact inputs of the direct sums, so that an error is that of a transform alone.

    python benchmarks/apps/nufft_float32.py [--backend cpu] [--small] [--out DIR]
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from harness import runs
from harness.place import Place
from harness.tables import show
from particlemesh.apps import nufft

TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6)
MODES = ((512,), (10**4,), (10**5,), (10**6,), (512, 512), (256, 256, 256))
SMALL = ((16,), (12, 10), (6, 8, 6))
POINTS, SAMPLES, SHARE = 20_000, 200, 10**6  # SHARE: numbers of a phase table at once


class Case(NamedTuple):
    """Modes per axis, and points."""

    modes: tuple[int, ...]
    count: int

    def __str__(self) -> str:
        return " x ".join(map(str, self.modes)) + " modes"


def phases(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return ``exp(i k . x)``, shape (k, points), for float64 (d, points) and integers (d, k)."""
    return np.exp(1j * (k.astype(np.float64).T @ x))


def type_1(x: np.ndarray, c: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the sums at mode numbers (d, k)."""
    parts = np.array_split(numbers, max(1, numbers.shape[1] * len(c) // SHARE), axis=1)
    return np.concatenate([phases(x, part) @ c for part in parts])


def type_2(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Return the sums of all modes at points (d, n), axis by axis."""
    result = []
    for point in x.T:
        total = f
        for n, at in zip(f.shape[::-1], point[::-1], strict=True):
            total = total @ np.exp(1j * at * (np.arange(n) - n // 2))
        result.append(total)
    return np.array(result)


def libraries() -> dict[str, Any]:
    """Return the libraries that are compared, by name."""
    modules: dict[str, Any] = {"particlemesh": nufft}
    if importlib.util.find_spec("finufft"):
        import finufft

        modules["finufft"] = finufft
    return modules


def rows(place: Place, case: Case) -> Iterator[dict[str, Any]]:
    """Yield a row for each type, tolerance and library."""
    rng, ndim = np.random.default_rng(1), len(case.modes)
    x = rng.uniform(-np.pi, np.pi, (ndim, case.count)).astype(np.float32)
    c, f = ((rng.normal(size=n) + 1j * rng.normal(size=n)).astype(np.complex64) for n in (case.count, case.modes))
    wide = x.astype(np.float64)
    index = np.stack([rng.integers(0, n, SAMPLES) for n in case.modes])
    some = rng.choice(case.count, min(SAMPLES, case.count), replace=False)
    exact = {
        1: type_1(wide, c.astype(np.complex128), index - np.array(case.modes)[:, None] // 2),
        2: type_2(wide[:, some], f.astype(np.complex128)),
    }
    for kind, eps, (name, library) in itertools.product((1, 2), TOLERANCES, libraries().items()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tolerances that float32 does not reach
            plan = library.Plan(kind, case.modes, 1, eps, 1, "complex64")
            on_device = name == "particlemesh"
            upload = place.upload if on_device else np.asarray
            plan.setpts(*map(upload, x))
            result = plan.execute(upload(c if kind == 1 else f))
        result = place.download(result) if on_device else result
        result = result[tuple(index)] if kind == 1 else result[some]
        error = np.linalg.norm(result - exact[kind]) / np.linalg.norm(exact[kind])
        yield {
            "type": kind, "modes": " x ".join(map(str, case.modes)), "N": case.count, "eps": f"{eps:g}",
            "library": name, "error": f"{error:.1e}", "over_eps": f"{error / eps:.2g}", "device": place.device,
            "backend": place.name,
        }  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    asked = runs.parser(__doc__, backend="cpu").parse_args()
    place = Place(asked.backend)
    cases = [Case(m, 300) for m in SMALL] if asked.small else [Case(m, POINTS) for m in MODES]
    with runs.Run(place, asked.out) as run:
        table = run.measure("float32", cases, lambda case: rows(place, case))
        run.write("nufft-float32", table)
    head = ("type", "modes", "eps", "library", "error")
    show("Errors of float32", head, [[str(row[name]) for name in head] for row in table])
    run.finish()


if __name__ == "__main__":
    main()
