# SPDX-License-Identifier: BSD-3-Clause
"""A step on native arrays: what one set of parameters needs on one backend, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import direct
from particlemesh.apps.pme.assemble import Mesh, OnDevice, Outputs, on_cpu
from particlemesh.apps.pme.exclusions import Exclusions
from particlemesh.apps.pme.lists import SkinList
from particlemesh.apps.pme.parameters import Parameters
from particlemesh.fourier import Solver
from particlemesh.kernels import Coordinates, allocate, kept

_TOGETHER = 6  # sets of charges in one pass over pairs: a work-item holds their sums


class Core:
    """Grid, solver and memory.

    Parameters
    ----------
    box : Box
    parameters : Parameters
    backend : Backend
    dtype : numpy.dtype
        Of positions and charges.
    constant : float
        Coulomb's constant.
    exclusions : Exclusions
    skin : float or None
        That of a list; None for no list.
    threads : int or None
    gradient : str
        As for the solver.
    named : str or None
        The backend as the user named it.
    """

    def __init__(
        self, box: pm.Box, parameters: Parameters, backend: Any, dtype: np.dtype, constant: float,
        exclusions: Exclusions, skin: float | None, threads: int | None, gradient: str, named: str | None,
    ) -> None:  # fmt: skip
        self.box, self.parameters, self.dtype, self.constant = box, parameters, dtype, constant
        self.exclusions, self.threads, self.owner = exclusions, threads, backend
        self.backend: Any = backend if backend.name == "cpu" else kept(backend)
        options: Any = {"dtype": dtype.name, "backend": named or backend.name, "threads": threads}
        thickness = 1 / np.linalg.norm(box.inverse, axis=1)
        # Cells of half the cutoff, and thinner ones along the axis in which cells are read in one go.
        reach = parameters.cutoff + (skin or 0.0)
        cells = [min(t, reach / n) for t, n in zip(thickness, (2, 2, 4), strict=True)]
        self.grid = pm.UniformGrid(box, cell_size=cells, **options)
        alpha = parameters.splitting
        # The limit of the Green function at k = 0, less that of 1 / k**2, is the neutralising background.
        self.solver = Solver(
            pm.Mesh(parameters.shape, box), parameters.window, "ewald", alpha=alpha, zero=-1 / (4 * alpha**2),
            gradient=gradient, **options,
        )  # fmt: skip
        self._smooth = direct.smooth_coulomb(alpha, parameters.cutoff, dtype.itemsize == 4, backend.name != "cpu")
        self._functions: dict[tuple[int, bool], pm.PairFunction] = {}
        self.list = None if skin is None else SkinList(self.grid, parameters.cutoff, skin)
        self._memory: dict[str, Any] = {}
        self._finish = None
        if backend.name != "cpu":
            self._finish = OnDevice(self.backend, dtype, self.take, constant, alpha)
        self.status = self.take("status", 2, dtype)
        self._sums: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.grid.nbytes + self.solver.nbytes + sum(int(m.nbytes) for m in self._memory.values())

    def take(self, name: str, size: int, dtype: Any = None) -> Any:
        """Return memory that is kept between calls, and grown if it is too small."""
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            self._memory.pop(name, None)
            memory = self._memory[name] = allocate(self.backend, (max(size, 1),), dtype or self.dtype, f"the {name}")
        return memory[:size]

    def dense(self, name: str, array: Any, shape: tuple[int, ...], *, copy: bool) -> Any:
        """Return an array over the memory of another one in C order, or memory of this shape, with its numbers."""
        if array.flags.c_contiguous:
            return array.reshape(shape)
        memory = self.take(name, int(np.prod(shape))).reshape(shape)
        if copy:
            self.backend.copy(memory.reshape(array.shape), array)
        return memory

    def function(self, sets: int, virial: bool) -> pm.PairFunction:
        """Return the pair function for so many sets of charges."""
        key = sets, virial
        if key not in self._functions:
            self._functions[key] = direct.pair_function(self._smooth, sets, virial)
        return self._functions[key]

    def reserve(self, count: int, sets: int, virial: bool) -> None:
        """Allocate for so many particles."""
        self.grid.reserve(count)
        self.solver.reserve(count, sets, virial=virial)
        together, width = min(sets, _TOGETHER), direct.columns(virial)
        with self.backend.scope():
            self.take("sums", count * (together * width + 1))
            self._mesh(sets, count, virial)
            if self._finish is not None:
                self._finish.partial(together, count)
                self.exclusions.on(self.backend, count, self.dtype)

    def _mesh(self, sets: int, count: int, virial: bool) -> Mesh:
        return Mesh(
            self.take("potential", sets * count).reshape(sets, count),
            self.take("gradient", 3 * sets * count).reshape(sets, count, 3),
            self.take("virial", 9 * sets).reshape(sets, 3, 3) if virial else None,
        )

    def step(self, positions: Any, x: Coordinates, charges: Any, out: Outputs, check: bool) -> None:
        """Write the outputs for charges (sets, N), dense."""
        sets, count = charges.shape
        virial = out.virial is not None
        if self.list is None:
            self.grid.build(positions, check=check)
        self.solver.set_positions(positions, check=check)
        if self.list is not None:
            self.list.update(x)
        if self._finish is not None:
            self.backend.clear(self.status)
        mesh = self._mesh(sets, count, virial)
        if not sets:
            return
        if virial:
            self.solver.potential_gradient_virial(charges, out=(mesh.potential, mesh.gradient, mesh.virial))
        else:
            self.solver.potential_and_gradient(charges, out=(mesh.potential, mesh.gradient))
        for begin in range(0, sets, _TOGETHER):
            part = slice(begin, min(begin + _TOGETHER, sets))
            own = Mesh(mesh.potential[part], mesh.gradient[part], mesh.virial[part] if virial else None)
            self._part(x, charges[part], own, out.part(part), begin == 0)

    def _part(self, x: Coordinates, charges: Any, mesh: Mesh, out: Outputs, first: bool) -> None:
        """Write the outputs of a few sets of charges."""
        sets, count = charges.shape
        virial = out.virial is not None
        function = self.function(sets, virial)
        sums = self.take("sums", count * function.results).reshape(count, function.results)
        self._sums = sums  # its last column says who touches
        if self.list is not None:
            self.list.sums(function, charges, sums, self.threads)
        else:
            self.grid.stream(self.parameters.cutoff, function, charges.T, out=sums)
        if len(self.exclusions):
            self.exclusions.add(self.backend, self.box, x, charges, sums, virial, self.threads)
        if self._finish is not None:
            self._finish(charges, sums, mesh, out, self.status, first)
            return
        on_cpu(charges, sums, mesh, out, self.constant, self.parameters.splitting)
        if first:
            self.status[:] = sums[:, -1].sum(), 0
        self.status[1] += not np.isfinite(out.energy).all()

    def touching(self) -> tuple[bool, bool]:
        """Return whether particles of the last step touch, and whether an energy is not finite; waits."""
        words = self.backend.download(self.status)
        return bool(words[0] != 0), bool(words[1] != 0)

    def first_touching(self) -> int:
        """Return the first particle that touches another one; waits."""
        return int(np.argmax(self.backend.download(self._sums)[:, -1] > 0))
