# SPDX-License-Identifier: BSD-3-Clause
"""Measure builds and lists of uniform grids: ``grid-build-DEVICE.csv`` and ``grid-pairs-DEVICE.csv`` in one run.

Each file is written as soon as its cases are measured.

python benchmarks/grid/run.py [--backend cuda] [--small] [--out DIR]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of benchmarks, when this file runs

from grid import build, pairs
from harness import runs
from harness.place import Place


def main() -> None:
    """Measure both."""
    asked = runs.parser(__doc__).parse_args()
    with runs.Run(Place(asked.backend), asked.out) as run:
        build.measure(run, asked.small)
        wrong = pairs.measure(run, asked.small)
    run.finish(wrong)


if __name__ == "__main__":
    main()
