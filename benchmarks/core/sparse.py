# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation of few particles per node: the microseconds of values, and of values with gradients, by each method.

Times are of captured calls where there are CUDA graphs, without ordering; ``order`` is the time of ``set_positions``
with the method's preparation. ``error`` is the relative distance of both results from those of the first method.

    python benchmarks/core/sparse.py --backend cuda
    python benchmarks/core/sparse.py --only 216 --methods particle tile --option tile.shape=12,16,24
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import clouds, inside
from harness.place import Place

METHODS = ("particle", "ordered", "direct", "walk", "tile")


@dataclass(frozen=True)
class Sparse:
    """Particles in a periodic cube."""

    count: int
    nodes: int
    support: int
    dtype: str = "float32"
    kind: str = "real"
    cloud: str = "uniform"

    def __str__(self) -> str:
        return f"{self.count:.0e} {self.nodes}^3 p{self.support} {self.dtype} {self.kind} {self.cloud}"


CASES = (
    Sparse(10**6, 216, 5),
    Sparse(10**6, 216, 5, cloud="clustered"),
    Sparse(10**6, 256, 6),
    Sparse(10**6, 256, 6, kind="complex"),
    Sparse(10**6, 256, 6, "float64"),
    Sparse(10**6, 256, 6, "float64", "complex"),
    Sparse(10**6, 256, 6, "float32", "complex", "clustered"),
    Sparse(10**5, 128, 4, kind="complex"),
    Sparse(10**5, 128, 6, kind="complex"),
    Sparse(10**7, 256, 6, kind="complex"),
)
SMALL = (Sparse(300, 16, 5), Sparse(300, 12, 4, "float64", "complex"))


def options_of(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Return options by method from ``method.option=value``."""
    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, _, value = text.partition("=")
        method, _, option = name.partition(".")
        options.setdefault(method, {})[option] = ast.literal_eval(value)
    return options


def measured(place: Place, case: Sparse, method: str, options: Any) -> tuple[list[float], list[np.ndarray]]:
    """Return the seconds of values, of values with gradients and of ordering, and the results."""
    positions = place.upload(clouds.positions(case.cloud, case.count, case.dtype))
    field = place.upload(clouds.field(case.nodes, case.dtype, case.kind))
    mesh = pm.Mesh((case.nodes,) * 3, (1.0,) * 3)
    own = {method: options[method]} if method in options else None
    with pm.Plan(mesh, f"bspline{case.support}", components=clouds.REALS[case.kind], dtype=case.dtype,
                 applications=1000, backend=place.name, interpolation=method, options=own) as plan:  # fmt: skip
        plan.reserve(case.count)
        plan.set_positions(positions)
        values, gradient = plan.value_and_gradient(field)
        out = values, gradient

        def place_them() -> None:
            plan.set_positions(positions, check=False)
            inside.prepare(plan, "interpolate")

        calls = (
            lambda: plan.interpolate(field, out=values),
            lambda: plan.value_and_gradient(field, out=out),
            place_them,
        )
        seconds = [place.clock.least(call)[0] for call in calls]
        calls[1]()
        return seconds, [place.download(array) for array in out]


def main() -> None:
    """Print a row per case and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda", choices=("cuda", "opencl"))
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--only", nargs="+", default=[], help="words that a case must have, such as 216 or float64")
    parser.add_argument("--option", action="append", default=[], help="METHOD.OPTION=VALUE, such as tile.shape=8,16,16")
    parser.add_argument("--small", action="store_true", help="tiny cases, which show that all of it runs")
    asked = parser.parse_args()
    place, options = Place(asked.backend), options_of(asked.option)
    names = [name for name in asked.methods if name in place.names("interpolate")]
    print(f"{place.device}\n{'case':44} {'method':9} {'value':>9} {'+gradient':>9} {'order':>9}   us, error")
    for case in SMALL if asked.small else CASES:
        if not all(word in str(case) for word in asked.only):
            continue
        first: list[np.ndarray] = []
        for name in names:
            with place.attempt(f"{case}, {name}"):
                seconds, results = measured(place, case, name, options)
                first = first or results
                error = max(
                    float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(results, first, strict=True)
                )
                times = " ".join(f"{1e6 * s:9.1f}" for s in seconds)
                print(f"{case!s:44} {name:9} {times}   {error:.1e}", flush=True)
    if place.failed:
        raise SystemExit("\n".join(place.failed))


if __name__ == "__main__":
    main()
