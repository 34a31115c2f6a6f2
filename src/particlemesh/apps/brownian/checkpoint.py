# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of Brownian dynamics: the state of a simulation and the arguments that make it again."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.apps.brownian.arrays import to_host
from particlemesh.apps.brownian.drag import Drag
from particlemesh.apps.brownian.forces import WCA, HarmonicBonds, Sum
from particlemesh.apps.brownian.rpy import RPY
from particlemesh.apps.files.checkpoint import get, put, reading, writing
from particlemesh.apps.files.libraries import library

APPLICATION, FORMAT = "particlemesh.apps.brownian", 2
# What a checkpoint holds by its settings(); of other objects it has the name only.
SHIPPED: dict[str, Any] = {kind.__name__: kind for kind in (RPY, Drag, HarmonicBonds, WCA, Sum)}
MAKERS: dict[str, Any] = SHIPPED | {"Sum": lambda forces: Sum(*forces)}
_NUMBERS = ("temperature", "time_step", "difference")


def save(path: Any, dynamics: Any) -> None:
    """Write the checkpoint of a simulation, see :meth:`BrownianDynamics.save`."""
    with writing(path, APPLICATION, FORMAT) as file:
        positions = dynamics.positions
        file.attrs.update(
            step=dynamics.step, time=dynamics.time, seed=str(dynamics.seed), integrator=dynamics.integrator,
            arrays="numpy" if isinstance(positions, np.ndarray) else "cupy",
        )  # fmt: skip
        file["positions"] = to_host(positions)
        for name in (*_NUMBERS, "mobility", "forces"):
            put(file, name, getattr(dynamics, name), SHIPPED)


def load(path: Any, mobility: Any, forces: Any) -> tuple[dict[str, Any], int, float]:
    """Return the arguments of BrownianDynamics, the step and the time, see :meth:`BrownianDynamics.load`."""
    given = {"mobility": mobility, "forces": forces}
    with reading(path, APPLICATION, FORMAT) as file:
        arguments = {name: get(file, name, MAKERS) for name in _NUMBERS}
        for name, thing in given.items():
            arguments[name] = get(file, name, MAKERS) if thing is None else thing
        positions = file["positions"][()]
        if file.attrs["arrays"] == "cupy":
            positions = library("cupy", f"{path}, whose positions were on a GPU,").asarray(positions)
        arguments |= dict(
            positions=positions, seed=int(file.attrs["seed"]), integrator=str(file.attrs["integrator"])
        )  # fmt: skip
        step = int(file.attrs["step"])
        return arguments, step, float(file.attrs.get("time", step * arguments["time_step"]))
