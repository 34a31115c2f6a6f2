# SPDX-License-Identifier: BSD-3-Clause
"""The state of a simulation as plain arrays and numbers, and its checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from particlemesh.kernels import checks

VERSION = 1  # of the state; a change of its names or meaning takes the next number
ARRAYS = {
    "positions": 3, "velocities": 3, "spins": 3, "accelerations": 3, "angular_accelerations": 3, "radii": 0,
    "masses": 0,
}  # fmt: skip
CONTACTS = {"contact_i": 0, "contact_j": 0, "contact_force": 3, "contact_stiffness": 0}
PARAMETERS = (
    "version", "step", "time_step", "law", "law_arguments", "walls", "origin", "lengths", "periodic", "gravity",
    "dtype", "deterministic", "method",
)  # fmt: skip


def check(state: Any) -> dict[str, Any]:
    """Return a state, checked to be one.

    Raises
    ------
    ValueError, TypeError
        If something is missing, of the wrong shape, or no number that a simulation can have.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"the state is a {type(state).__name__}; give what state() returned.")
    missing = [name for name in (*ARRAYS, *CONTACTS, *PARAMETERS) if name not in state]
    if missing:
        raise ValueError(f"this is no state of a simulation: it lacks {', '.join(missing)}.")
    if int(state["version"]) != VERSION:
        raise ValueError(f"this state has version {state['version']}; version {VERSION} can be read.")
    checked = {name: state[name] for name in PARAMETERS}
    checked["step"] = checks.integer(state["step"], "step of the state", 0, 2**62)
    checked["time_step"] = checks.positive(state["time_step"], "time_step of the state")
    made = checked["step"] * checked["time_step"]  # states without a time had one time step
    checked["time"] = checks.at_least_zero(state.get("time", made), "time of the state")
    for names, rows in ((ARRAYS, np.shape(state["radii"])[:1]), (CONTACTS, np.shape(state["contact_i"])[:1])):
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
    if walls.ndim != 2 or walls.shape[1] != 6:
        raise ValueError(f"walls of the state have shape {walls.shape}; (W, 6) is needed: points and normals.")
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
