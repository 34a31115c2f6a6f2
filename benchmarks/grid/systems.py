# SPDX-License-Identifier: BSD-3-Clause
"""Many small systems in one call beside a call for each of them.

Writes ``results/grid-systems-DEVICE.csv``. float32, periodic boxes of different lengths, arrays where they run, lists
of j within the cutoff: medians after a first call, which may compile. ``apart`` builds and searches one grid per
system, ``together`` one grid for all.

    python benchmarks/grid/systems.py [--backend cpu] [--small] [--systems 1000] [--count 200] [--repeats 5]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

import particlemesh as pm
from harness import runs
from harness.clock import turns
from harness.place import Place
from harness.tables import short

RADIUS, EDGE = 1.0, 6.0  # about 4 neighbours of each of 200 particles


def main() -> None:
    """Measure what the command line asks for."""
    parser = runs.parser(__doc__, backend="cpu")
    parser.add_argument("--systems", type=int, default=1000)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    systems, count, repeats = (10, 20, 1) if asked.small else (asked.systems, asked.count, asked.repeats)
    rng = np.random.default_rng(1)
    lengths = rng.uniform(0.9, 1.1, (systems, 3)) * EDGE
    inside = (rng.random((systems, count, 3)) * lengths[:, None]).astype(np.float32)
    place = Place(asked.backend)
    single = [place.upload(x) for x in inside]
    every = place.upload(inside.reshape(-1, 3))
    system = place.upload(np.repeat(np.arange(systems, dtype=np.int32), count))
    together = pm.UniformGrid((EDGE,) * 3, cell_size=RADIUS, systems=systems)
    grids = [pm.UniformGrid(tuple(box), cell_size=RADIUS) for box in lengths]

    def one_call() -> Any:
        return together.build(every, system=system, boxes=lengths).pairs(RADIUS)

    def many_calls() -> Any:
        return [grid.build(x).pairs(RADIUS) for grid, x in zip(grids, single, strict=True)]

    def rows_of(way: str) -> Iterator[dict[str, Any]]:
        call = {"together": one_call, "apart": many_calls}[way]
        made = call()
        pairs = len(made.j) if way == "together" else sum(len(list_.j) for list_ in made)

        def waited() -> None:
            call()
            place.wait()

        yield dict(way=way, systems=systems, N=count, pairs=pairs, seconds=short(turns(repeats, waited)[0]))

    with runs.Run(place, asked.out) as run:
        run.write("grid-systems", run.measure("ways", ("apart", "together"), rows_of))
    run.finish()


if __name__ == "__main__":
    main()
