# SPDX-License-Identifier: BSD-3-Clause
"""Trajectories in files that other programs read, through the libraries of these formats."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np

from particlemesh.apps.brownian.arrays import to_host
from particlemesh.apps.brownian.libraries import library


class Writer:
    """A file that takes one frame after the other. ``last`` is the step of its last frame, -1 if it has none."""

    module: ClassVar[str]

    def __init__(self, path: Path, dynamics: Any) -> None:
        self.path, self.box = path, dynamics.box
        self.last = -1
        self.library = library(self.module, f"a trajectory {path.suffix}")
        self.open(len(dynamics.positions))

    def open(self, count: int) -> None:
        """Open the file for ``count`` particles, and set ``last``."""
        raise NotImplementedError

    def frame(self, dynamics: Any, positions: np.ndarray) -> None:
        """Append a frame."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""

    def write(self, dynamics: Any) -> None:
        """Append the present state."""
        self.frame(dynamics, to_host(dynamics.positions))

    def same(self, there: int, count: int) -> None:
        """Check the number of particles of a file that exists."""
        if there != count:
            raise ValueError(f"{self.path} has {there} particles, this simulation {count}: give another file.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class GSD(Writer):
    """HOOMD-blue's format: float32, positions within the box and counts of images, the box centred at 0."""

    module = "gsd.hoomd"

    def open(self, count: int) -> None:
        if self.box is None:
            raise ValueError("a trajectory .gsd needs a box: give the mobility one, or write .h5 or .xyz.")
        rows = self.box.matrix
        if np.triu(rows, 1).any() or (np.diagonal(rows) <= 0).any():
            raise ValueError(
                "a trajectory .gsd has its first lattice vector along x and its second in the plane of x and y: "
                "turn the box, or write .h5 or .xyz."
            )
        self.file = self.library.open(self.path, "r+" if self.path.exists() else "x")
        if len(self.file):
            before = self.file[len(self.file) - 1]
            self.last = int(before.configuration.step)
            try:
                self.same(before.particles.N, count)
            except ValueError:
                self.close()
                raise

    def frame(self, dynamics: Any, positions: np.ndarray) -> None:
        rows = self.box.matrix
        (lx, ly, lz), periodic = np.diagonal(rows), np.array(self.box.periodic)
        frame = self.library.Frame()
        frame.configuration.step = dynamics.step
        frame.configuration.box = [lx, ly, lz, rows[1, 0] / ly, rows[2, 0] / lz, rows[2, 1] / lz]
        folded = self.box.fold(positions)
        frame.particles.N = len(positions)
        frame.particles.position = folded - self.box.origin - rows.sum(axis=0) / 2
        images = np.rint((positions - folded) @ self.box.inverse.T)
        frame.particles.image = np.where(periodic, images, 0).astype(np.int32)
        radii = getattr(dynamics.mobility, "radii", None)
        if radii is not None:
            frame.particles.diameter = np.broadcast_to(2 * np.asarray(radii), (len(positions),))
        frame.log["time"] = np.array([dynamics.time])
        self.file.append(frame)

    def close(self) -> None:
        self.file.close()


class H5MD(Writer):
    """Datasets ``particles/all/position/value`` (frames, N, 3), ``step`` and ``time``: unfolded, in their own type."""

    module = "h5py"

    def open(self, count: int) -> None:
        import particlemesh

        self.file = self.library.File(self.path, "a")
        if "particles/all/position" in self.file:
            self.data = self.file["particles/all/position"]
            steps = self.data["step"]
            self.last = int(steps[-1]) if len(steps) else -1
            try:
                self.same(self.data["value"].shape[1], count)
            except ValueError:
                self.close()
                raise
            return
        if len(self.file):
            self.close()
            raise ValueError(f"{self.path} holds something else than a trajectory: give another file.")
        self.file.create_group("h5md").attrs["version"] = (1, 1)
        self.file.create_group("h5md/author").attrs["name"] = "unknown"
        creator = self.file.create_group("h5md/creator")
        creator.attrs.update(name="particlemesh", version=particlemesh.__version__)
        box = self.file.create_group("particles/all/box")
        periodic = (False,) * 3 if self.box is None else self.box.periodic
        box.attrs.update(dimension=3, boundary=["periodic" if repeats else "none" for repeats in periodic])
        if self.box is not None:
            box["edges"] = self.box.lengths if self.box.orthorhombic else self.box.matrix
            box.attrs["origin"] = self.box.origin
        self.data = self.file.create_group("particles/all/position")
        self.data.create_dataset("step", (0,), np.int64, maxshape=(None,))
        self.data.create_dataset("time", (0,), np.float64, maxshape=(None,))

    def frame(self, dynamics: Any, positions: np.ndarray) -> None:
        if "value" not in self.data:
            shape = positions.shape
            self.data.create_dataset("value", (0, *shape), positions.dtype, maxshape=(None, *shape), chunks=(1, *shape))
        for name, number in (("value", positions), ("time", dynamics.time), ("step", dynamics.step)):
            dataset = self.data[name]
            dataset.resize(len(dataset) + 1, axis=0)
            dataset[-1] = number
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class ExtendedXYZ(Writer):
    """Text that ASE and OVITO read: unfolded, 8 decimals, the cell in each frame."""

    module = "ase.io"

    def open(self, count: int) -> None:
        if self.path.exists() and self.path.stat().st_size:
            before = self.library.read(self.path, index=-1, format="extxyz")
            self.same(len(before), count)
            self.last = int(before.info["step"])

    def frame(self, dynamics: Any, positions: np.ndarray) -> None:
        from ase import Atoms

        cell = {} if self.box is None else {"cell": self.box.matrix, "pbc": self.box.periodic}
        atoms = Atoms(f"X{len(positions)}", positions=positions, **cell)
        atoms.info.update(step=dynamics.step, time=dynamics.time)
        if self.box is not None and self.box.origin.any():
            atoms.info["Origin"] = self.box.origin
        self.library.write(self.path, atoms, format="extxyz", append=True)


FORMATS: dict[str, type[Writer]] = {".gsd": GSD, ".h5": H5MD, ".xyz": ExtendedXYZ}


def writer(path: Any, dynamics: Any) -> Writer:
    """Return the open file of a trajectory, by the ending of its name.

    Raises
    ------
    ValueError
        If the ending is unknown, or the file has frames of later steps or of other particles.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"trajectory is {str(path)!r}; give a name that ends in {', '.join(FORMATS)}.")
    file = FORMATS[path.suffix](path, dynamics)
    if file.last > dynamics.step:
        file.close()
        raise ValueError(
            f"{path} has frames up to step {file.last}, and this simulation is at step {dynamics.step}: "
            "remove the file, or give another one."
        )
    return file
