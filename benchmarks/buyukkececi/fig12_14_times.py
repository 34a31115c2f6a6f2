# SPDX-License-Identifier: BSD-3-Clause
"""Figures 12 and 14: times of particle → mesh and mesh → particle against the size, transfers apart.

Every method that does not decline on the device, and the automatic choice, threaded, on the processor. ``total_s`` is
what the paper calls the run time: from particles in no known order to the result, orders and copies of this
configuration included, with everything on the device already. ``transfer_s`` is what comes on top where positions and
values, or the field, lie in a user's NumPy arrays and the result goes back there; ``transfer_pinned_s`` the same from
and to memory that is locked (CUDA). On the processor one thread is measured, too, at the sizes of the tables.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from buyukkececi.cases import DIRECTIONS, DTYPES, NODES, SEED, SMALL_NODES, TABLE_NODES, WINDOWS, Case, call_of, inputs
from place import BUDGET, NO_TIME, Place, short

COLUMNS = ("direction", "ndim", "window", "dtype", "nodes", "N", "order", "method", "auto", "threads", "locate_s",
           "prepare_s", "apply_s", "total_s", "transfer_s", "transfer_pinned_s")  # fmt: skip
SLOW = 0.01  # seconds: a method that is expected to take longer is left out, unless it is the automatic choice


def cases(small: bool) -> list[Case]:
    """Return the problems, from small to large for each kind."""
    found = []
    for direction, ndim, window, dtype in itertools.product(DIRECTIONS, (2, 3), WINDOWS, DTYPES):
        if small:
            found.append(Case(direction, ndim, window, dtype, SMALL_NODES[ndim]))
            continue
        sizes = NODES[ndim] if dtype == "float32" else (TABLE_NODES[ndim],)
        found += [Case(direction, ndim, window, dtype, nodes) for nodes in sizes]
        if (ndim, window, dtype) == (3, "m4prime", "float32"):
            # The cloud that the paper takes comes in the order of the nodes, which is kind to caches.
            found.append(Case(direction, ndim, window, dtype, TABLE_NODES[ndim], "shuffled"))
    return found


def measure(places: list[Place], case: Case, known: dict[Any, float], small: bool = False,
            seed: int = SEED) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Return a row for every place and method.

    ``known`` holds the seconds of a particle at sizes before: what is expected to be slow is not measured.
    """
    x, source, shape = inputs(case, seed)
    result = np.zeros(shape, case.dtype)
    for place in places:
        sent, pinned = transfers(place, (x, source), result) if place.name != "cpu" else (0.0, 0.0)
        arrays = [place.upload(a) for a in (x, source, result)]
        chosen = _automatic(case, place)
        for method in place.methods(case.direction):
            key = (place.name, method.name, case.direction, case.ndim, case.window, case.dtype)
            slow = known.get(key, 0.0) * case.count > SLOW or place.name == "cpu"
            if (slow and method.name != chosen) or case.declines(method, place.backend) is not None:
                continue
            times: dict[str, float] = {}
            with place.attempt(f"times: {method.name}, {case}"):
                times = _phases(case, place, method.name, *arrays)
            if not times:
                continue
            known[key] = times["total_s"] / case.count
            yield _row(case, place, seed, method=method.name, auto=int(method.name == chosen), threads=place.threads,
                       transfer_s=short(sent), transfer_pinned_s=short(pinned), **times)  # fmt: skip
        if place.name == "cpu" and case.order == "nodes" and (small or case.nodes == TABLE_NODES[case.ndim]):
            plan = case.plan("auto", "cpu", threads=1)
            seconds = place.wall(lambda: _whole(case, plan, *arrays), 1)
            yield _row(case, place, seed, method=chosen, auto=1, threads=1, total_s=short(seconds),
                       transfer_s=0.0, transfer_pinned_s=0.0)  # fmt: skip


def _row(case: Case, place: Place, seed: int, **known: Any) -> dict[str, Any]:
    known.update(case.columns())
    return {**{name: known.get(name, "") for name in COLUMNS}, **place.facts, "seed": seed}


def _whole(case: Case, plan: Any, x: Any, source: Any, out: Any) -> None:
    plan.set_positions(x, check=False)
    call_of(case, plan, source, out)


def _phases(case: Case, place: Place, method: str, x: Any, source: Any, out: Any) -> dict[str, float]:
    with case.plan(method, place.name) as plan:
        plan.reserve(case.count)
        plan.set_positions(x)
        times = place.phases(plan, case.direction, x, lambda: call_of(case, plan, source, out), BUDGET)
    return {f"{name}_s": short(seconds) for name, seconds in times._asdict().items()}


def _automatic(case: Case, place: Place) -> str:
    """Return the name of the method that the library takes by itself."""
    from particlemesh.choosing.candidates import choose
    from particlemesh.choosing.predict import known

    with case.plan("auto", place.name) as plan:
        plan.reserve(case.count)
        predicted = functools.partial(known(plan.backend).predict, case.direction)
        return choose(tuple(place.methods(case.direction)), plan.problem(), "auto", predicted).name


def transfers(place: Place, sent: tuple[np.ndarray, ...], back: np.ndarray) -> tuple[float, float]:
    """Return the seconds of sending arrays and fetching one: from a user's memory, and from locked memory on CUDA."""
    targets = [place.upload(a) for a in sent]
    result = place.upload(back)
    if place.name != "cuda":

        def plain() -> None:
            for array in sent:
                place.upload(array)
            place.download(result)

        return place.wall(plain), NO_TIME

    import cupyx

    def there_and_back(host: list[np.ndarray], home: np.ndarray) -> float:
        def call() -> None:
            for target, array in zip(targets, host, strict=True):
                target.set(array)
            result.get(out=home)

        return place.wall(call)

    locked = []
    for array in (*sent, back):
        locked.append(cupyx.empty_pinned(array.shape, array.dtype))
        locked[-1][...] = array
    return there_and_back(list(sent), back.copy()), there_and_back(locked[:-1], locked[-1])
