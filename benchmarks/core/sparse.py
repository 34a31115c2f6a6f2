# SPDX-License-Identifier: BSD-3-Clause
"""Few particles per node: the microseconds of a call and of ordering, by each method.

Interpolation has values, and values with gradients; spreading writes the whole field. Times are of captured calls
where there are CUDA graphs; ``order`` is the time of ``set_positions`` with the method's preparation. ``error`` is the
relative distance of the results from those of the first method.

    python benchmarks/core/sparse.py interpolate --backend cuda
    python benchmarks/core/sparse.py interpolate --only 216 --methods particle tile --option tile.shape=12,16,24
    python benchmarks/core/sparse.py spread --only 256 float64 --methods owner --option owner.parts=3
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import clouds, inside
from harness.place import Place


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


Complex = partial(Sparse, kind="complex")
READ = (
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
SPREAD = (
    Sparse(10**6, 216, 5),
    Complex(10**6, 256, 6),
    Complex(10**6, 256, 6, "float64"),
    Complex(10**6, 256, 4),
    Complex(10**6, 256, 4, "float64"),
    Complex(10**5, 128, 4),
    Complex(10**5, 128, 6),
    Complex(10**5, 128, 6, "float64"),
    Complex(10**7, 256, 6),
    Complex(10**7, 256, 6, "float64"),
    Complex(10**6, 256, 6, cloud="clustered"),
    Complex(10**6, 256, 6, "float64", cloud="clustered"),
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


def measured(place: Place, case: Sparse, direction: str, method: str, options: Any) -> tuple[list[float], list]:
    """Return the seconds of each call and of ordering, and the results."""
    positions = place.upload(clouds.positions(case.cloud, case.count, case.dtype))
    mesh, reals = pm.Mesh((case.nodes,) * 3, (1.0,) * 3), clouds.REALS[case.kind]
    chosen = {"method" if direction == "spread" else "interpolation": method}
    of_method = {method: options[method]} if method in options else None
    with pm.Plan(mesh, f"bspline{case.support}", components=reals, dtype=case.dtype, applications=1000,
                 backend=place.name, options=of_method, **chosen) as plan:  # fmt: skip
        plan.reserve(case.count)
        plan.set_positions(positions)
        out: tuple[Any, ...]
        if direction == "spread":
            numbers = np.random.default_rng(clouds.SEED).standard_normal(case.count * reals).astype(case.dtype)
            if case.kind == "complex":
                numbers = numbers.view(np.result_type(case.dtype, np.complex64))
            values = place.upload(numbers)
            out = (plan.spread(values),)
            calls = [lambda: plan.spread(values, out=out[0])]
        else:
            field = place.upload(clouds.field(case.nodes, case.dtype, case.kind))
            out = plan.value_and_gradient(field)
            calls = [lambda: plan.interpolate(field, out=out[0]), lambda: plan.value_and_gradient(field, out=out)]

        def place_them() -> None:
            plan.set_positions(positions, check=False)
            inside.prepare(plan, direction)

        seconds = [place.clock.least(call)[0] for call in (*calls, place_them)]
        calls[-1]()
        return seconds, [place.download(array) for array in out]


# The methods, the cases and the columns of each direction.
DIRECTIONS = {
    "interpolate": (("particle", "ordered", "direct", "walk", "tile", "ring"), READ, ("value", "+gradient", "order")),
    "spread": (("walk", "walk_fixed", "particle", "ordered", "owner"), SPREAD, ("spread", "order")),
}


def main() -> None:
    """Print a row per case and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=DIRECTIONS)
    parser.add_argument("--backend", default="cuda", choices=("cuda", "opencl"))
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--only", nargs="+", default=[], help="words that a case must have, such as 216 or float64")
    parser.add_argument("--option", action="append", default=[], help="METHOD.OPTION=VALUE, such as owner.parts=3")
    parser.add_argument("--small", action="store_true", help="tiny cases, which show that all of it runs")
    asked = parser.parse_args()
    place, options = Place(asked.backend), options_of(asked.option)
    methods, cases, columns = DIRECTIONS[asked.direction]
    names = [name for name in asked.methods or methods if name in place.names(asked.direction)]
    print(f"{place.device}\n{'case':44} {'method':10} {' '.join(f'{column:>9}' for column in columns)}   us, error")
    for case in SMALL if asked.small else cases:
        if not all(word in str(case) for word in asked.only):
            continue
        first: list[np.ndarray] = []
        for name in names:
            with place.attempt(f"{case}, {name}"):
                seconds, results = measured(place, case, asked.direction, name, options)
                first = first or results
                error = max(
                    float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(results, first, strict=True)
                )
                times = " ".join(f"{1e6 * s:9.1f}" for s in seconds)
                print(f"{case!s:44} {name:10} {times}   {error:.1e}", flush=True)
    if place.failed:
        raise SystemExit("\n".join(place.failed))


if __name__ == "__main__":
    main()
