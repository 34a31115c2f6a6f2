# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints in HDF5: the state of a simulation and the arguments that make it again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import Box
from particlemesh.apps.brownian.arrays import to_host
from particlemesh.apps.brownian.drag import Drag
from particlemesh.apps.brownian.forces import WCA, HarmonicBonds, Sum
from particlemesh.apps.brownian.libraries import library
from particlemesh.apps.brownian.rpy import RPY

FORMAT = 1
# What a checkpoint holds by its settings(); of other objects it has the name only.
SHIPPED: dict[str, Any] = {kind.__name__: kind for kind in (RPY, Drag, HarmonicBonds, WCA, Sum)}
_NUMBERS = ("temperature", "time_step", "difference")


def save(path: Any, dynamics: Any) -> None:
    """Write the checkpoint of a simulation, see :meth:`BrownianDynamics.save`."""
    h5py = library("h5py", "a checkpoint")
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    try:
        with h5py.File(part, "w") as file:
            positions = dynamics.positions
            file.attrs.update(
                checkpoint="particlemesh.apps.brownian", format=FORMAT, step=dynamics.step, seed=str(dynamics.seed),
                integrator=dynamics.integrator, arrays="numpy" if isinstance(positions, np.ndarray) else "cupy",
            )  # fmt: skip
            file["positions"] = to_host(positions)
            for name in (*_NUMBERS, "mobility", "forces"):
                _put(file, name, getattr(dynamics, name))
        os.replace(part, path)  # noqa: PTH105 - as one step
    finally:
        part.unlink(missing_ok=True)


def load(path: Any, mobility: Any, forces: Any) -> tuple[dict[str, Any], int]:
    """Return the arguments of BrownianDynamics and the step, see :meth:`BrownianDynamics.load`."""
    h5py = library("h5py", "a checkpoint")
    given = {"mobility": mobility, "forces": forces}
    if not Path(path).exists():
        raise ValueError(f"{path} does not exist.")
    if not h5py.is_hdf5(path):
        raise ValueError(f"{path} is no HDF5 file: give one that save() has written.")
    with h5py.File(path, "r") as file:
        if file.attrs.get("checkpoint") != "particlemesh.apps.brownian" or file.attrs["format"] != FORMAT:
            raise ValueError(f"{path} is no checkpoint of format {FORMAT}: give one that save() has written.")
        arguments = {name: _get(file, name) for name in _NUMBERS}
        for name, thing in given.items():
            arguments[name] = _get(file, name) if thing is None else thing
        positions = file["positions"][()]
        if file.attrs["arrays"] == "cupy":
            positions = library("cupy", f"{path}, whose positions were on a GPU,").asarray(positions)
        arguments |= dict(
            positions=positions, seed=int(file.attrs["seed"]), integrator=str(file.attrs["integrator"])
        )  # fmt: skip
        return arguments, int(file.attrs["step"])


def _put(group: Any, name: str, thing: Any) -> None:
    """Store a number, text, array, box, list, or an object with settings under a name; None is left out."""
    if thing is None:
        return
    if isinstance(thing, (str, int, float, tuple, np.ndarray)):  # tuples of numbers
        group[name] = thing
        return
    inner = group.create_group(name)
    if isinstance(thing, Box):
        inner.attrs.update(type="Box", lengths=thing.matrix, origin=thing.origin, periodic=thing.periodic)
        return
    items = dict(enumerate(thing)) if isinstance(thing, list) else {}
    inner.attrs["type"] = "list" if isinstance(thing, list) else type(thing).__name__
    if SHIPPED.get(type(thing).__name__) is type(thing):
        items = thing.settings()
    for key, value in items.items():
        _put(inner, str(key), value)


def _get(group: Any, name: str) -> Any:
    """Return what `_put` has stored under a name."""
    if name not in group:
        return None
    thing = group[name]
    if not hasattr(thing, "keys"):
        value = thing[()]
        return value.decode() if isinstance(value, bytes) else value if value.ndim else value.item()
    kind = thing.attrs["type"]
    if kind == "Box":
        return Box(thing.attrs["lengths"], thing.attrs["origin"], [bool(x) for x in thing.attrs["periodic"]])
    if kind == "list":
        return [_get(thing, str(n)) for n in range(len(thing))]
    if kind not in SHIPPED:
        argument = thing.name.split("/")[1]  # the first group of the path
        raise ValueError(f"the checkpoint has only the name of a {kind}: give load() {argument}= again.")
    settings: dict[str, Any] = {key: _get(thing, key) for key in thing}
    if kind == "Sum":
        return Sum(*settings["forces"])
    return SHIPPED[kind](**settings)
