# SPDX-License-Identifier: BSD-3-Clause
"""The state of a simulation as plain arrays and numbers, and its checks."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    ValueError
        If something is missing or of the wrong shape.
    """
    missing = [name for name in (*ARRAYS, *CONTACTS, *PARAMETERS) if name not in state]
    if missing:
        raise ValueError(f"this is no state of a simulation: it lacks {', '.join(missing)}.")
    if int(state["version"]) != VERSION:
        raise ValueError(f"this state has version {state['version']}; version {VERSION} can be read.")
    checked = {name: state[name] for name in PARAMETERS}
    for names, rows in ((ARRAYS, len(state["radii"])), (CONTACTS, len(state["contact_i"]))):
        for name, columns in names.items():
            array, shape = np.asarray(state[name]), (rows, columns) if columns else (rows,)
            if array.shape != shape:
                raise ValueError(f"{name} of the state has shape {array.shape}; {shape} is needed.")
            checked[name] = array
    return checked
