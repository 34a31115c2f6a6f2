# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of a granular simulation."""

from __future__ import annotations

from typing import Any

from particlemesh.apps.files.checkpoint import get, put, reading, writing

APPLICATION, FORMAT = "particlemesh.apps.dem", 1


def save(path: Any, simulation: Any) -> None:
    """Write the checkpoint of a simulation, see :meth:`Simulation.save`."""
    state = simulation.state()  # before a file is opened: it may fail
    with writing(path, APPLICATION, FORMAT) as file:
        file.attrs["backend"] = simulation.backend
        put(file, "state", state, {})


def load(path: Any) -> tuple[dict[str, Any], str]:
    """Return the state and the backend of a checkpoint, see :meth:`Simulation.load`."""
    with reading(path, APPLICATION, FORMAT) as file:
        file["state"]  # raises where there is none
        return get(file, "state", {}), str(file.attrs["backend"])
