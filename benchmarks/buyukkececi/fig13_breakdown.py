# SPDX-License-Identifier: BSD-3-Clause
"""Figure 13: which stage takes how much of the time, transfers included, at the sizes of the tables.

The paper shows its method, here ``domain_copies``, in two cases; all cases and all methods with kernels are measured,
since the tables ask for the rate of the interpolation kernels alone. Stages:

``transfer``
    Positions and values, or the field, to the device from a user's arrays, and the result back there.
``ordering``
    Which cell every particle is in, their order, the copies of positions and strengths.
``extended mesh``
    The nodes of the field to all blocks that hold them; clearing the field.
``kernel``
    The spreading or interpolation itself.
``stitch, collect``
    Blocks back to the field; results back to the caller's order.

``slots`` is how many places of cells the kernel works on for each particle, dummies included (``domain_copies``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from buyukkececi.cases import DIRECTIONS, DTYPES, SEED, SMALL_NODES, TABLE_NODES, WINDOWS, Case, call_of, inputs
from buyukkececi.fig12_14_times import transfers
from place import Place, short

COLUMNS = ("direction", "ndim", "window", "dtype", "nodes", "N", "order", "method", "stage", "kernels", "seconds",
           "share", "slots")  # fmt: skip
STAGES = ("transfer", "ordering", "extended mesh", "kernel", "stitch, collect")
# What is applied and is not the kernel, by the names of what is launched.
OTHERS = {
    "copies_store": "ordering",
    "copies_extend": "extended mesh",
    "clear": "extended mesh",
    "copies_stitch": "stitch, collect",
    "copies_collect": "stitch, collect",
}


NEAR = 5  # times the fastest method's predicted time: slower ones are not taken apart, the paper's own excepted


def cases(small: bool) -> list[Case]:
    """Return the problems of the tables."""
    nodes = SMALL_NODES if small else TABLE_NODES
    return [
        Case(direction, ndim, window, dtype, nodes[ndim])
        for direction, ndim, window, dtype in itertools.product(DIRECTIONS, (2, 3), WINDOWS, DTYPES)
    ]


def measure(place: Place, case: Case, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Return a row for every stage of every method; nothing for a place without kernels."""
    if place.name == "cpu":
        return
    x, source, shape = inputs(case, seed)
    sent, _ = transfers(place, (x, source), np.zeros(shape, case.dtype))
    arrays = [place.upload(a) for a in (x, source)]
    asked = [case.asked(m, place.backend) for m in place.methods(case.direction)]
    able = [c for c in asked if c.reason is None]
    most = NEAR * min(c.total(1) for c in able)
    for method in (c.method for c in able if c.total(1) <= most or c.method.name == "domain_copies"):
        found: dict[tuple[str, str], float] = {}
        with place.attempt(f"breakdown: {method.name}, {case}"), case.plan(method.name, place.name) as plan:
            plan.reserve(case.count)
            plan.set_positions(arrays[0])
            found = place.stages(plan, arrays[0], lambda: call_of(case, plan, arrays[1]))
            slots = _slots(plan, place, case)
        if not found:
            continue
        seconds, names = {"transfer": sent}, {"transfer": {"copy"}}
        for (phase, name), time in found.items():
            stage = "ordering" if phase in ("locate", "prepare") else OTHERS.get(name, "kernel")
            seconds[stage] = seconds.get(stage, 0.0) + time
            names.setdefault(stage, set()).add(name)
        whole = sum(seconds.values())
        for stage in STAGES:
            if stage in seconds:
                row = dict(
                    case.columns(), method=method.name, stage=stage, kernels=" ".join(sorted(names[stage])),
                    seconds=short(seconds[stage]), share=round(seconds[stage] / whole, 4), slots=slots,
                )  # fmt: skip
                yield {**{name: row.get(name, "") for name in COLUMNS}, **place.facts, "seed": seed}


def _slots(plan: Any, place: Place, case: Case) -> float | str:
    """Return how many places of cells ``domain_copies`` takes for each particle."""
    method = plan._method(case.direction)
    if method.name != "domain_copies":
        return ""
    found = method._copies(plan.workspace)
    fullest = place.download(found.fullest).ravel()[: found.blocks.count * found.blocks.chunks]
    return short(float(fullest.sum(dtype=np.int64)) * found.blocks.group / case.count)
