# SPDX-License-Identifier: BSD-3-Clause
"""Figure 13: the share of each stage in the time, transfers included, at the sizes of the tables.

The paper shows its method, here ``domain_copies``, in two cases. All cases and all methods with kernels are measured,
since the tables need the rate of the kernels alone. Stages:

``transfer``
    Positions and source to the device from a user's arrays, and the result back.
``ordering``
    The cell of each particle, the order of the particles, the copies of positions and strengths.
``extended mesh``
    The field's nodes to all blocks that hold them; clearing the field.
``kernel``
    Spreading or interpolation itself.
``stitch, collect``
    Blocks back to the field; results back to the caller's order.

``slots`` is the number of slots per particle that the kernel works on, dummies included (``domain_copies``).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness import inside
from harness.place import Place
from harness.tables import short
from studies.buyukkececi.cases import SEED, TABLE_NODES, Case, call_of, inputs, of_kinds
from studies.buyukkececi.times import transfers

COLUMNS = ("direction", "ndim", "window", "dtype", "nodes", "N", "order", "method", "stage", "kernels", "seconds",
           "share", "slots")  # fmt: skip
STAGES = ("transfer", "ordering", "extended mesh", "kernel", "stitch, collect")
# Launches while a method is applied that are not its kernel.
OTHERS = {
    "copies_store": "ordering", "copies_extend": "extended mesh", "clear": "extended mesh",
    "copies_stitch": "stitch, collect", "copies_collect": "stitch, collect",
}  # fmt: skip
THEIRS = "domain_copies"
NEAR = 5  # times the fastest method's predicted time: slower methods are left out, except for the paper's
SPIN = """extern "C" __global__ void spin(long long cycles)
{ const long long begin = clock64(); while (clock64() - begin < cycles) {} }"""


def cases(small: bool) -> list[Case]:
    """Return the problems of the tables."""
    return of_kinds(small, lambda ndim, window, dtype: (TABLE_NODES[ndim],))


def measure(place: Place, case: Case, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Yield a row for every stage of every method; the CPU has no kernels and no rows."""
    if place.name == "cpu":
        return
    x, source, shape = inputs(case, seed)
    sent, _ = transfers(place, (x, source), np.zeros(shape, case.dtype))
    arrays = [place.upload(a) for a in (x, source)]
    _, able = case.candidates(place)
    most = NEAR * min(c.total(1) for c in able.values())
    for method in (name for name, c in able.items() if c.total(1) <= most or name == THEIRS):
        with place.attempt(f"breakdown: {method}, {case}"), case.plan(method, place.name) as plan:
            plan.set_positions(arrays[0])
            launches = _launches(place, plan, arrays[0], lambda plan=plan: call_of(case, plan, arrays[1]))
            slots = short(inside.fullest_slots(plan, case.direction) / case.count) if method == THEIRS else ""
            seconds, names = {"transfer": sent}, {"transfer": {"copy"}}
            for (phase, name), time in launches.items():
                stage = "ordering" if phase in ("locate", "prepare") else OTHERS.get(name, "kernel")
                seconds[stage] = seconds.get(stage, 0.0) + time
                names.setdefault(stage, set()).add(name)
            for stage in (s for s in STAGES if s in seconds):
                row = dict(
                    case.columns(), method=method, stage=stage, kernels=" ".join(sorted(names[stage])),
                    seconds=short(seconds[stage]), share=round(seconds[stage] / sum(seconds.values()), 4), slots=slots,
                )  # fmt: skip
                yield {**{name: row.get(name, "") for name in COLUMNS}, **place.facts, "seed": seed}


def _launches(place: Place, plan: Any, positions: Any, call: Any, repeats: int = 5) -> dict[tuple[str, str], float]:
    """Return the seconds of all kernels, clears and copies from new positions on, by phase and name.

    ``call`` gives no ``out=``: a call that is replayed from a tape starts no kernels of its own.
    """
    turns = []
    for _ in range(repeats + 1):
        _delay(place)
        with inside.launches(place.backend, place.clock.mark) as marks:
            plan.set_positions(positions, check=False)
            call()
        sums: dict[tuple[str, str], float] = {}
        for phase, name, begin, end in marks:
            sums[phase, name] = sums.get((phase, name), 0.0) + place.clock.between(begin, end)
        turns.append(sums)
    measured = turns[1:]  # the first may have compiled
    return {key: statistics.median(turn.get(key, 0.0) for turn in measured) for key in measured[0]}


def _delay(place: Place) -> None:
    """Keep a GPU busy while the host gets ahead: events would otherwise measure the host's launches."""
    if place.name == "cuda":
        import cupy

        cupy.RawKernel(SPIN, "spin")((1,), (1,), (np.int64(8_000_000),))
