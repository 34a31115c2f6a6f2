# SPDX-License-Identifier: BSD-3-Clause
"""What users give a simulation, arrays or an earlier state, checked, in the host's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import kernels
from particlemesh.kernels import Backend, Kind, checks


@dataclass
class InitialState:
    """Particles, and where they shall move."""

    kind: Kind  # of results
    user: Any  # an array of that kind
    backend: Backend
    dtype: np.dtype
    positions: np.ndarray  # (N, 3), as the others in dtype
    velocities: np.ndarray
    spins: np.ndarray
    radii: np.ndarray  # (N,)
    masses: np.ndarray


def to_host(array: Any, what: str) -> np.ndarray:
    """Return the user's array in the host's memory."""
    host = kernels.to_host(array, what)
    if host.dtype.kind == "c":
        raise TypeError(f"{what} has dtype {host.dtype}; real numbers are needed.")
    return host


def rows_of(array: Any, what: str, count: int, dtype: np.dtype, columns: int) -> np.ndarray:
    """Return one number or ``columns`` numbers for each particle, finite."""
    host = to_host(array, what)
    shape = (count, columns) if columns else (count,)
    allowed = ((), (3,), shape) if columns else ((), shape)
    if host.shape not in allowed:
        raise ValueError(f"{what} has shape {host.shape}; one of {', '.join(map(str, allowed))} is needed.")
    full = np.array(np.broadcast_to(host, shape), dtype, order="C")  # never the user's memory
    _finite(full, what)
    return full


def _finite(array: np.ndarray, what: str) -> None:
    good = np.isfinite(array) if array.ndim == 1 else np.isfinite(array).all(1)
    if not good.all():
        first = int(np.argmin(good))
        raise ValueError(
            f"{what} are not finite for {int((~good).sum())} particles; the first is particle {first}: "
            f"{array[first].tolist()}."
        )


def _above_zero(array: np.ndarray, what: str, why: str) -> None:
    if not (array > 0).all():
        first = int(np.argmin(array > 0))
        raise ValueError(f"{what} of particle {first} is {array[first]:g}; a positive number is needed: {why}.")


def arrays_of(
    positions: Any, radii: Any, velocities: Any, spins: Any, density: Any, backend: str | None, dtype: Any
) -> InitialState:
    """Return the user's arrays, checked.

    Raises
    ------
    ValueError, TypeError
        If an array has another shape or type, or holds what no particle can have; the first such particle is named.
    """
    kind, user = kernels.adopt(positions, "positions")
    x = to_host(positions, "positions")
    if x.ndim != 2 or x.shape[1] != 3:
        raise ValueError(f"positions have shape {x.shape}; (N, 3) is needed.")
    if len(x) >= 2**30:
        raise ValueError(f"there are {len(x)} particles; fewer than 2**30 are possible.")
    real = checks.real_type(dtype if dtype is not None else x.dtype if x.dtype.kind == "f" else np.float64)
    where = kind.backend(user) if backend is None else kernels.backend(backend)
    if backend is not None and kind.home != "cpu" and kind.home != backend:
        raise TypeError(f"positions are a {kind.name} array and backend is {backend!r}: pass arrays of that backend.")
    if backend is not None and kind.home == backend:
        where = kind.backend(user)
    if where.name == "opencl" and real == np.float64 and not where.facts().get("HAS_FP64", 1):
        raise TypeError(f"{where.device} has no float64: give dtype='float32'.")
    count = len(x)
    with np.errstate(over="ignore"):
        x = np.array(x, real)
    _finite(x, "positions")
    sizes = rows_of(radii, "radii", count, real, 0)
    _above_zero(sizes, "the radius", "a particle needs a mass")
    dense = rows_of(density, "density", count, np.dtype(np.float64), 0)
    _above_zero(dense, "the density", "a particle needs a mass")
    with np.errstate(over="ignore", under="ignore"):
        masses = (4 / 3 * np.pi * dense * sizes.astype(np.float64) ** 3).astype(real)
    good = np.isfinite(masses) & (masses >= np.finfo(real).tiny)
    if not good.all():
        first = int(np.argmin(good))
        raise ValueError(f"the mass of particle {first} is {masses[first]} in {real}: choose other units.")
    return InitialState(
        kind if kind.home in ("cpu", where.name) else kernels.adopt(x, "positions")[0], user, where, real, x,
        rows_of(velocities, "velocities", count, real, 3), rows_of(spins, "spins", count, real, 3), sizes, masses,
    )  # fmt: skip


STATE_VERSION = 2  # of the state; a change of its names or meaning takes the next number
STATE_ARRAYS = {
    "positions": 3, "velocities": 3, "spins": 3, "accelerations": 3, "angular_accelerations": 3, "radii": 0,
    "masses": 0,
}  # fmt: skip
STATE_CONTACTS = {"contact_i": 0, "contact_j": 0, "contact_force": 3, "contact_stiffness": 0}
STATE_PARAMETERS = (
    "version", "step", "time_step", "law", "law_arguments", "walls", "origin", "lengths", "periodic", "gravity",
    "dtype", "deterministic", "method",
)  # fmt: skip


def checked_state(state: Any) -> dict[str, Any]:
    """Return a state, checked to be one.

    Raises
    ------
    ValueError, TypeError
        If something is missing, of the wrong shape, or no number that a simulation can have.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"the state is a {type(state).__name__}; give what state() returned.")
    missing = [name for name in (*STATE_ARRAYS, *STATE_CONTACTS, *STATE_PARAMETERS) if name not in state]
    if missing:
        raise ValueError(f"this is no state of a simulation: it lacks {', '.join(missing)}.")
    version = int(state["version"])
    if not 1 <= version <= STATE_VERSION:
        raise ValueError(f"this state has version {state['version']}; versions up to {STATE_VERSION} can be read.")
    checked = {name: state[name] for name in STATE_PARAMETERS}
    checked["step"] = checks.integer(state["step"], "step of the state", 0, 2**62)
    checked["time_step"] = checks.positive(state["time_step"], "time_step of the state")
    made = checked["step"] * checked["time_step"]  # states without a time had one time step
    time = checks.at_least_zero(state.get("time", made), "time of the state")
    step = checks.integer(state.get("since_step", checked["step"]), "since_step of the state", 0, checked["step"])
    checked["since"] = step, checks.at_least_zero(state.get("since_time", time), "since_time of the state")
    for names, rows in (
        (STATE_ARRAYS, np.shape(state["radii"])[:1]),
        (STATE_CONTACTS, np.shape(state["contact_i"])[:1]),
    ):
        for name, columns in names.items():
            array, shape = np.asarray(state[name]), (*(rows or (0,)), *((columns,) if columns else ()))
            if array.shape != shape:
                raise ValueError(f"{name} of the state has shape {array.shape}; {shape} is needed.")
            if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
                raise ValueError(f"{name} of the state holds what is no finite number.")
            checked[name] = array
    for name in ("origin", "lengths", "periodic", "gravity"):
        if np.shape(state[name]) != (3,):
            raise ValueError(f"{name} of the state has shape {np.shape(state[name])}; (3,) is needed.")
    walls = checked["walls"] = np.asarray(state["walls"])
    columns = 6 if version == 1 else 18
    if walls.ndim != 2 or walls.shape[1] != columns:
        raise ValueError(f"walls of the state have shape {walls.shape}; (W, {columns}) is needed.")
    checked["walls_steps"] = checks.integer(state.get("walls_steps", 0), "walls_steps of the state", 0, 2**62)
    if len(checked["masses"]) and not checked["masses"].min() > 0:
        raise ValueError(f"a mass of the state is {checked['masses'].min():g}; positive numbers are needed.")
    count = len(checked["radii"])
    for name, least in (("contact_i", 0), ("contact_j", -len(walls))):
        index = checked[name]
        if len(index) and not (least <= index.min() and index.max() < count):
            raise ValueError(
                f"{name} of the state is from {index.min()} to {index.max()}; {least} to {count - 1} is possible."
            )
    return checked
