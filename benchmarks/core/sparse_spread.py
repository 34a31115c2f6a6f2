# SPDX-License-Identifier: BSD-3-Clause
"""Spreading of few particles per node: the microseconds of a call and of ordering, by each method.

Times are of captured calls where there are CUDA graphs; a call writes the whole field. ``order`` is the time of
``set_positions`` with the method's preparation. ``error`` is the relative distance from the first method's field.

    python benchmarks/core/sparse_spread.py --backend cuda
    python benchmarks/core/sparse_spread.py --only 256 float64 --methods owner --option owner.parts=3
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

METHODS = ("walk", "walk_fixed", "particle", "ordered", "owner")


@dataclass(frozen=True)
class Sparse:
    """Particles in a periodic cube."""

    count: int
    nodes: int
    support: int
    dtype: str = "float32"
    kind: str = "complex"
    cloud: str = "uniform"

    def __str__(self) -> str:
        return f"{self.count:.0e} {self.nodes}^3 p{self.support} {self.dtype} {self.kind} {self.cloud}"


CASES = (
    Sparse(10**6, 216, 5, kind="real"),
    Sparse(10**6, 256, 6),
    Sparse(10**6, 256, 6, "float64"),
    Sparse(10**6, 256, 4),
    Sparse(10**6, 256, 4, "float64"),
    Sparse(10**5, 128, 4),
    Sparse(10**5, 128, 6),
    Sparse(10**5, 128, 6, "float64"),
    Sparse(10**7, 256, 6),
    Sparse(10**7, 256, 6, "float64"),
    Sparse(10**6, 256, 6, cloud="clustered"),
    Sparse(10**6, 256, 6, "float64", cloud="clustered"),
)
SMALL = (Sparse(300, 16, 5, kind="real"), Sparse(300, 12, 4, "float64"))


def options_of(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Return options by method from ``method.option=value``."""
    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, _, value = text.partition("=")
        method, _, option = name.partition(".")
        options.setdefault(method, {})[option] = ast.literal_eval(value)
    return options


def measured(place: Place, case: Sparse, method: str, options: Any) -> tuple[list[float], np.ndarray]:
    """Return the seconds of spreading and of ordering, and the field."""
    reals = clouds.REALS[case.kind]
    rng = np.random.default_rng(clouds.SEED)
    numbers = rng.standard_normal(case.count * reals).astype(case.dtype)
    if case.kind == "complex":
        numbers = numbers.view(np.result_type(case.dtype, np.complex64))
    positions = place.upload(clouds.positions(case.cloud, case.count, case.dtype))
    values = place.upload(numbers)
    mesh = pm.Mesh((case.nodes,) * 3, (1.0,) * 3)
    own = {method: options[method]} if method in options else None
    with pm.Plan(mesh, f"bspline{case.support}", components=reals, dtype=case.dtype, applications=1000,
                 backend=place.name, method=method, options=own) as plan:  # fmt: skip
        plan.reserve(case.count)
        plan.set_positions(positions)
        field = plan.spread(values)

        def place_them() -> None:
            plan.set_positions(positions, check=False)
            inside.prepare(plan, "spread")

        seconds = [place.clock.least(call)[0] for call in (lambda: plan.spread(values, out=field), place_them)]
        plan.spread(values, out=field)
        return seconds, place.download(field)


def main() -> None:
    """Print a row per case and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda", choices=("cuda", "opencl"))
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--only", nargs="+", default=[], help="words that a case must have, such as 216 or float64")
    parser.add_argument("--option", action="append", default=[], help="METHOD.OPTION=VALUE, such as owner.parts=3")
    parser.add_argument("--small", action="store_true", help="tiny cases, which show that all of it runs")
    asked = parser.parse_args()
    place, options = Place(asked.backend), options_of(asked.option)
    names = [name for name in asked.methods if name in place.names("spread")]
    print(f"{place.device}\n{'case':44} {'method':10} {'spread':>9} {'order':>9}   us, error")
    for case in SMALL if asked.small else CASES:
        if not all(word in str(case) for word in asked.only):
            continue
        first = None
        for name in names:
            with place.attempt(f"{case}, {name}"):
                seconds, field = measured(place, case, name, options)
                first = field if first is None else first
                error = float(np.linalg.norm(field - first) / np.linalg.norm(first))
                times = " ".join(f"{1e6 * s:9.1f}" for s in seconds)
                print(f"{case!s:44} {name:10} {times}   {error:.1e}", flush=True)
    if place.failed:
        raise SystemExit("\n".join(place.failed))


if __name__ == "__main__":
    main()
