# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of a granular simulation."""

from __future__ import annotations

from os import PathLike
from typing import Self

from particlemesh.apps.files.checkpoint import get, put, reading, writing
from particlemesh.kernels import Fixed

APPLICATION, FORMAT = "particlemesh.apps.dem", 1


class Checkpoints(Fixed):
    """A simulation with ``state()`` and ``restore(state)`` that goes to files and comes back."""

    def save(self, path: str | PathLike) -> None:
        """Write a checkpoint, an .h5 file with :meth:`state`.

        An existing file is replaced once the new one is whole. The file has a checksum, and a damaged one is refused.

        Parameters
        ----------
        path : path

        Raises
        ------
        ImportError
            If h5py is missing; the extra ``io`` has it.
        """
        state = self.state()  # type: ignore[attr-defined]  # of Simulation
        with writing(path, APPLICATION, FORMAT) as file:
            file.attrs["backend"] = self.backend  # type: ignore[attr-defined]  # of Simulation
            put(file, "state", state, {})

    @classmethod
    def load(cls, path: str | PathLike, *, backend: str | None = None, threads: int | None = None) -> Self:
        """Return the simulation of a checkpoint, with arrays of NumPy.

        Parameters
        ----------
        path : path
            Written by :meth:`save`. A simulation made with ``deterministic=True`` continues bit for bit on the
            same device.
        backend : {"cpu", "cuda", "opencl"}, optional
            By default that of the simulation that was saved.
        threads : int, optional
            As for :class:`Simulation`.

        Returns
        -------
        Simulation

        Raises
        ------
        ImportError
            If h5py is missing; the extra ``io`` has it.
        ValueError
            If the file is no checkpoint, or a damaged one.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from particlemesh.apps.dem import Hertz, Simulation
        >>> spheres = Simulation(np.zeros((1, 3)), 1.0, (1.0, 0, 0), density=1.0, contact=Hertz(1e3), time_step=0.1)
        >>> spheres.run(5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spheres.save(f"{folder}/state.h5")
        ...     again = Simulation.load(f"{folder}/state.h5")
        >>> again.run(5)
        >>> again.step, again.positions.round(12)
        (10, array([[1., 0., 0.]]))
        """
        with reading(path, APPLICATION, FORMAT) as file:
            if "state" not in file:
                raise KeyError("no state")
            where, state = str(file.attrs["backend"]), get(file, "state", {})
        return cls.restore(state, backend=backend or where, threads=threads)  # type: ignore[attr-defined]  # of Simulation
