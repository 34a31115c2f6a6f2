# SPDX-License-Identifier: BSD-3-Clause
"""Figures 12 and 14: times of particle → mesh and mesh → particle against the size, without transfers.

All methods of the device that do not decline, and the automatic choice on the CPU with all its threads; at the sizes of
the tables also with one thread. ``total_s`` is the paper's run time: from particles in any order to the result,
ordering included, with everything on the device already. ``transfer_s`` is the extra time if positions, source and
result are a user's NumPy arrays; ``transfer_pinned_s`` that for page-locked memory (CUDA).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness import inside
from harness.clock import NO_TIME
from harness.place import Place
from harness.tables import short
from studies.buyukkececi.cases import SEED, SMALL_NODES, TABLE_NODES, Case, call_of, inputs, of_kinds

COLUMNS = ("direction", "ndim", "window", "dtype", "nodes", "N", "order", "method", "auto", "threads", "locate_s",
           "prepare_s", "apply_s", "total_s", "transfer_s", "transfer_pinned_s")  # fmt: skip
NODES = {2: (512, 1024, 2048), 3: (32, 64, 128)}
SLOW = 0.01  # expected seconds: slower methods are left out, except for the automatic choice


def cases(small: bool) -> list[Case]:
    """Return the problems, from small to large for each kind."""
    cases = of_kinds(small, lambda ndim, window, dtype: NODES[ndim] if dtype == "float32" else (TABLE_NODES[ndim],))
    # The paper's cloud comes in the order of the nodes, which suits caches.
    return cases if small else [
        *cases, *(Case(d, 3, "m4prime", "float32", TABLE_NODES[3], "shuffled") for d in ("spread", "interpolate"))
    ]  # fmt: skip


def measure(places: list[Place], case: Case, known: dict[Any, float], seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Yield a row for every place and method.

    ``known`` has the seconds per particle at smaller sizes: methods that are expected to be slow are left out.
    """
    x, source, shape = inputs(case, seed)
    result = np.zeros(shape, case.dtype)
    for place in places:
        sent, pinned = transfers(place, (x, source), result) if place.name != "cpu" else (0.0, 0.0)
        arrays = [place.upload(a) for a in (x, source, result)]
        auto, able = case.candidates(place)
        for method in able:
            key = (place.name, method, case.direction, case.ndim, case.window, case.dtype)
            slow = known.get(key, 0.0) * case.count > SLOW or place.name == "cpu"
            if slow and method != auto:
                continue
            with place.attempt(f"times: {method}, {case}"):
                seconds = _phases(case, place, method, *arrays)
                known[key] = seconds["total_s"] / case.count
                yield _row(case, place, seed, method=method, auto=int(method == auto), threads=place.threads,
                           transfer_s=short(sent), transfer_pinned_s=short(pinned), **seconds)  # fmt: skip
        of_tables = case.order == "nodes" and case.nodes in (TABLE_NODES[case.ndim], SMALL_NODES[case.ndim])
        if place.name == "cpu" and of_tables:
            with case.plan("auto", "cpu", threads=1) as plan:
                total = place.clock.wall(lambda plan=plan: _whole(case, plan, *arrays), 1)
            yield _row(case, place, seed, method=auto, auto=1, threads=1, total_s=short(total), transfer_s=0.0,
                       transfer_pinned_s=0.0)  # fmt: skip


def _row(case: Case, place: Place, seed: int, **known: Any) -> dict[str, Any]:
    known.update(case.columns())
    return {**{name: known.get(name, "") for name in COLUMNS}, **place.facts, "seed": seed}


def _whole(case: Case, plan: Any, x: Any, source: Any, out: Any) -> None:
    plan.set_positions(x, check=False)
    call_of(case, plan, source, out)


def _phases(case: Case, place: Place, method: str, x: Any, source: Any, out: Any) -> dict[str, float]:
    """Return the seconds of each phase, and of new positions and a call together."""
    with case.plan(method, place.name) as plan:
        plan.set_positions(x)
        calls = {
            "total_s": lambda: _whole(case, plan, x, source, out),
            "apply_s": lambda: call_of(case, plan, source, out),
            "prepare_s": lambda: inside.prepare_again(plan, case.direction),
            "locate_s": lambda: plan.set_positions(x, check=False),
        }
        return {name: short(place.clock.seconds(call)) for name, call in calls.items()}


def transfers(place: Place, sent: tuple[np.ndarray, ...], back: np.ndarray) -> tuple[float, float]:
    """Return the seconds to send arrays and fetch one: from a user's memory, and from page-locked memory on CUDA."""
    targets = [place.upload(a) for a in sent]
    result = place.upload(back)
    if place.name != "cuda":

        def send_and_fetch() -> None:
            for array in sent:
                place.upload(array)
            place.download(result)

        return place.clock.wall(send_and_fetch), NO_TIME

    import cupyx

    def seconds(host: list[np.ndarray], home: np.ndarray) -> float:
        def call() -> None:
            for target, array in zip(targets, host, strict=True):
                target.set(array)
            result.get(out=home)

        return place.clock.wall(call)

    locked = []
    for array in (*sent, back):
        locked.append(cupyx.empty_pinned(array.shape, array.dtype))
        locked[-1][...] = array
    return seconds(list(sent), back.copy()), seconds(locked[:-1], locked[-1])
