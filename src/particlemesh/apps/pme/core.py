# SPDX-License-Identifier: BSD-3-Clause
"""A step on native arrays: what one set of parameters needs on one backend, and its memory."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any, NamedTuple

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import direct
from particlemesh.apps.pme.assemble import Law, Mesh, OnDevice, Outputs, on_cpu
from particlemesh.apps.pme.exclusions import Exclusions
from particlemesh.apps.pme.lists import SkinList
from particlemesh.apps.pme.parameters import Parameters
from particlemesh.apps.pme.result import Result
from particlemesh.fourier import Solver
from particlemesh.kernels import Coordinates, allocate, branch_of, kept

_ONES = 2**64 - 1  # ~i of a particle i


class StepErrors(NamedTuple):
    """What is wrong with a step."""

    touching: bool  # particles lie in one place
    infinite: int | None  # the first set or system whose energy is not finite
    negative: int | None  # the first particle with a negative number
    bad: int | None  # the first particle with a charge that is not finite
    other: int | None  # the first particle with another number that is not allowed


def word_of(wrong: np.ndarray) -> int:
    """Return ~i of the first particle i that is wrong (N,), or 0."""
    return int(np.argmax(wrong)) ^ _ONES if wrong.any() else 0


def check_powers(cutoff: float, power: int, dtype: np.dtype) -> None:
    """Check that a type holds what a pair function divides by, for pairs from a fiftieth of the cutoff to the cutoff.

    Raises
    ------
    ValueError
        If it does not: the unit of length is too large or too small.
    """
    info = np.finfo(dtype)
    least, most = 50 * float(info.max) ** (-1 / power), (float(info.tiny) * 2**16) ** (-1 / power)
    if not least <= cutoff <= most:
        remedy = f"Use another unit of length{', or float64' * (dtype.itemsize < 8)}."
        raise ValueError(
            f"the cutoff is {cutoff:.3g}; {dtype.name} holds the powers of distances that this interaction needs for "
            f"cutoffs from {least:.2g} to {most:.2g}. {remedy}"
        )


class Core:
    """Grid, solver and memory of an interaction, whose pair function and corrections subclasses have.

    Parameters
    ----------
    box : Box
    parameters : Parameters
    backend : Backend
    dtype : numpy.dtype
        Of positions and charges.
    law : Law
    exclusions : Exclusions
    green : dict
        Arguments of the solver.
    threads : int or None
    named : str or None
        The backend as the user named it.
    skin : float
        How much farther than the cutoff the grid is asked.
    systems : int or None
        Number of systems, if there are several.
    deterministic : bool
        As for plans and grids.
    """

    power = 3  # of the distance, by which the pair function divides
    together = 6  # sets of charges in one pass over pairs: a work-item holds their sums
    list: SkinList | None = None
    dipoles: Any = None  # what makes steps with dipoles

    def __init__(
        self, box: pm.Box, parameters: Parameters, backend: Any, dtype: np.dtype, law: Law, exclusions: Exclusions,
        green: dict[str, Any], *, threads: int | None, named: str | None, skin: float = 0.0,
        systems: int | None = None, deterministic: bool = False,
    ) -> None:  # fmt: skip
        check_powers(parameters.cutoff, self.power, dtype)
        self.box, self.parameters, self.dtype, self.law = box, parameters, dtype, law
        self.exclusions, self.threads, self.owner = exclusions, threads, backend
        self.backend: Any = backend if backend.name == "cpu" else kept(backend)
        options: Any = dict(
            dtype=dtype.name, backend=named or backend.name, threads=threads, systems=systems,
            deterministic=deterministic,
        )  # fmt: skip
        # Nearest images are sought in a box in which nothing wraps around along open axes.
        self.images_box = pm.Box(box.matrix * np.where(box.periodic, 1, 4)[:, None])
        thickness = 1 / np.linalg.norm(box.inverse, axis=1)
        # Cells of half the cutoff, and thinner ones along the axis in which cells are read in one go.
        reach = parameters.cutoff + skin
        cells = [min(t, reach / n) for t, n in zip(thickness, (2, 2, 4), strict=True)]
        self.grid = pm.UniformGrid(box, cell_size=cells, **options)
        self.solver = Solver(
            pm.Mesh(parameters.shape, box), parameters.window, compensation="continuous", **green, **options
        )
        self._memory: dict[str, Any] = {}
        self.on_gpu = backend.name != "cpu"
        self.finish = OnDevice(self.backend, dtype, self.take, law)
        self.branch = branch_of(backend)  # None: one half after the other
        self.status = self.take("status", 5, np.dtype(np.uint64))  # words of `StepErrors`
        self._sums: Any = None

    # ---- what subclasses have -------------------------------------------------------------------------

    def function(self, sets: int, virial: bool) -> pm.PairFunction:
        """Return the pair function for so many sets of charges."""
        raise NotImplementedError

    def charges(self, given: Any) -> Any:
        """Return the charges (sets, N) of the mesh from what a step is given."""
        return given

    def values(self, charges: Any) -> Any:
        """Return the values (N, ...) that the pair function takes, for charges (sets, N)."""
        raise NotImplementedError

    def correct(self, x: Coordinates, charges: Any, sums: Any, virial: bool) -> Any:
        """Return the sums over neighbours with what excluded and scaled pairs lose or gain; the input may change."""
        raise NotImplementedError

    # ---- memory ---------------------------------------------------------------------------------------

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

    def reserve(self, count: int, sets: int, virial: bool) -> None:
        """Allocate for so many particles."""
        self.grid.reserve(count)
        self.solver.reserve(count, sets, virial=virial)
        together, width = min(sets, self.together), direct.columns(virial)
        with self.backend.scope():
            self.take("sums", count * (together * width + 1))
            self._mesh(sets, count, virial)
            if self.on_gpu:
                self.finish.partial(together, count)
                self.exclusions.on(self.backend, count, self.dtype)

    def _mesh(self, sets: int, count: int, virial: bool) -> Mesh:
        return Mesh(
            self.take("potential", sets * count).reshape(sets, count),
            self.take("gradient", 3 * sets * count).reshape(sets, count, 3),
            self.take("virial", 9 * sets).reshape(sets, 3, 3) if virial else None,
        )

    def outputs(
        self, operand: kernels.Operand, count: int, virial: bool, out: Result | None
    ) -> tuple[dict[str, kernels.Output], Outputs]:
        """Return the user's outputs of an operand's kind and batch, and dense arrays to write."""
        shapes: dict[str, tuple[int, ...]] = {"energy": (), "energies": (count,), "forces": (count, 3)}
        if virial:
            shapes["virial"] = (3, 3)
        results, dense = self.memory_of(shapes, operand, out)
        return results, Outputs(dense["energy"], dense["energies"], dense["forces"], dense.get("virial"))

    def memory_of(
        self, shapes: dict[str, tuple[int, ...]], operand: kernels.Operand, out: Result | None
    ) -> tuple[dict[str, kernels.Output], dict[str, Any]]:
        """Return the user's outputs by name, of an operand's kind and batch, and dense arrays (sets, ...) to write."""
        sets = math.prod(operand.batch)
        given = {name: None if out is None else getattr(out, name) for name in shapes}
        kernels.check_apart(*(o for o in given.values() if o is not None))
        results, dense = {}, {}
        for name, shape in shapes.items():
            results[name] = r = kernels.give(given[name], operand, operand.batch + shape, dense=False)
            dense[name] = self.dense(f"dense {name}", r.native, (sets, *shape), copy=False)
        return results, dense

    def finished(self, results: dict[str, kernels.Output], outputs: Any, number: bool) -> Result:
        """Return the user's result; with ``number`` the energy of NumPy is a number."""
        return Result(**self.answers(results, outputs, number))

    def answers(self, results: dict[str, kernels.Output], outputs: Any, number: bool) -> dict[str, Any]:
        """Return the user's arrays by name, whose numbers are in dense arrays of the same names."""
        for name, result in results.items():
            if not result.native.flags.c_contiguous:
                self.owner.copy(result.native, getattr(outputs, name).reshape(result.native.shape))
        answers = {name: result.finish() for name, result in results.items()}
        if number and isinstance(answers["energy"], np.ndarray):
            answers["energy"] = answers["energy"][()]
        return answers

    # ---- a step ---------------------------------------------------------------------------------------

    def step(self, positions: Any, x: Coordinates, given: Any, out: Outputs, check: bool) -> None:
        """Write the outputs for dense numbers of particles; both halves at once where the backend has branches."""
        self.backend.clear(self.status)
        charges = self.charges(given)
        sets, count = charges.shape
        mesh = self._mesh(sets, count, out.virial is not None)
        smooth = functools.partial(self._smooth_half, x, charges, mesh, check)
        with contextlib.nullcontext(smooth()) if self.branch is None else self.branch.in_background(smooth):
            if not sets:
                return
            self.neighbours(positions, x, check)
            sums = self._sharp_half(x, charges[: self.together], mesh.virial is not None)
        for begin in range(0, sets, self.together):
            part = slice(begin, min(begin + self.together, sets))
            if begin:
                sums = self._sharp_half(x, charges[part], mesh.virial is not None)
            self._assemble(charges[part], sums, mesh.part(part), out.part(part), begin == 0)

    def _smooth_half(self, x: Coordinates, charges: Any, mesh: Mesh, check: bool) -> None:
        """Write what the mesh gives. It may run beside the other half, and writes no memory of that."""
        # Native arrays: those of other libraries would bring their own streams.
        self.place(x, check)
        if not len(charges):
            return
        if mesh.virial is None:
            self.solver.potential_and_gradient(charges, out=(mesh.potential, mesh.gradient))
        else:
            self.solver.potential_gradient_virial(charges, out=(mesh.potential, mesh.gradient, mesh.virial))

    def _sharp_half(self, x: Coordinates, charges: Any, virial: bool) -> Any:
        """Return the sums over neighbours of a few sets of charges."""
        function = self.function(len(charges), virial)
        sums = self.take("sums", x.count * function.results).reshape(x.count, function.results)
        self.add_up(function, charges, sums)
        if len(self.exclusions):
            sums = self.correct(x, charges, sums, virial)
        self.note(sums)
        return sums

    def note(self, sums: Any) -> None:
        """Keep sums whose last column says which particles touch others."""
        self._sums = sums

    def place(self, x: Coordinates, check: bool) -> None:
        """Give the mesh positions."""
        self.solver.set_positions(x.arrays[0] if x.arrays[0].ndim == 2 else x.arrays, check=check)

    def neighbours(self, positions: Any, x: Coordinates, check: bool) -> None:
        """Prepare the sums over neighbours for positions."""
        self.grid.build(positions, check=check)

    def add_up(self, function: pm.PairFunction, charges: Any, sums: Any) -> None:
        """Write the sums over neighbours."""
        self.grid.stream(self.parameters.cutoff, function, self.values(charges), out=sums)

    def _assemble(self, charges: Any, sums: Any, mesh: Mesh, out: Outputs, first: bool) -> None:
        """Write the outputs of a few sets of charges."""
        if self.on_gpu:
            self.finish(charges, sums, mesh, out, self.status, first)
            return
        on_cpu(charges, sums, mesh, out, self.law)
        if first:
            self.status[0] = sums[:, -1].sum() != 0
        finite = np.isfinite(out.energy) & np.isfinite(out.forces.sum((1, 2)))
        if not finite.all():
            self.status[1] = max(self.status[1], word_of(~finite))
            self.status[3] = max(self.status[3], word_of(~np.isfinite(charges).all(0)))

    def errors(self) -> StepErrors:
        """Return what is wrong with the last step; waits."""
        touching, *words = map(int, self.backend.download(self.status))
        return StepErrors(touching != 0, *(None if word == 0 else word ^ _ONES for word in words))

    def first_touching(self) -> int:
        """Return the first particle that touches another one; waits."""
        return int(np.argmax(self.backend.download(self._sums)[:, -1] > 0))


class Coulomb(Core):
    """Charges.

    Parameters
    ----------
    constant : float
        Coulomb's constant.
    skin : float or None
        That of a list; None for no list.
    gradient : str
        As for the solver.
    """

    def __init__(
        self, box: pm.Box, parameters: Parameters, backend: Any, dtype: np.dtype, constant: float,
        exclusions: Exclusions, skin: float | None, gradient: str, *, threads: int | None, named: str | None,
        systems: int | None = None, deterministic: bool = False,
    ) -> None:  # fmt: skip
        alpha, self.constant = parameters.splitting, constant
        law = Law(constant, 4 * math.pi, 2 * alpha / math.sqrt(math.pi), weighted=True)
        # The limit of the Green function at k = 0, less that of 1 / k**2, is the neutralising background.
        zero = -1 / (4 * alpha**2) if all(box.periodic) else None
        green = dict(green="ewald", alpha=alpha, zero=zero, gradient=gradient)
        super().__init__(
            box, parameters, backend, dtype, law, exclusions, green, threads=threads, named=named, skin=skin or 0.0,
            systems=systems, deterministic=deterministic,
        )  # fmt: skip
        one = backend.name != "cpu" or skin is not None
        self._smooth = direct.smooth_coulomb(alpha, parameters.cutoff, dtype.itemsize == 4, one)
        self._functions: dict[tuple[int, bool], pm.PairFunction] = {}
        self.list = None if skin is None else SkinList(self.grid, parameters.cutoff, skin)

    def function(self, sets: int, virial: bool) -> pm.PairFunction:
        key = sets, virial
        if key not in self._functions:
            self._functions[key] = direct.pair_function(self._smooth, sets, virial)
        return self._functions[key]

    def values(self, charges: Any) -> Any:
        return charges.T

    def correct(self, x: Coordinates, charges: Any, sums: Any, virial: bool) -> Any:
        self.exclusions.add(self.backend, self.images_box, x, charges, sums, virial, self.threads)
        return sums

    def neighbours(self, positions: Any, x: Coordinates, check: bool) -> None:
        if self.list is None:
            super().neighbours(positions, x, check)
        else:
            self.list.update(x)

    def add_up(self, function: pm.PairFunction, charges: Any, sums: Any) -> None:
        if self.list is None:
            super().add_up(function, charges, sums)
        else:
            self.list.sums(function, charges, sums, self.threads)
