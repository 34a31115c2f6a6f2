# SPDX-License-Identifier: BSD-3-Clause
"""Many systems in one call: charges of each system see those of their own system only."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Self

import numpy as np

from particlemesh import kernels
from particlemesh.apps.pme.core import Calculation, Core, Fields, native, word_of
from particlemesh.apps.pme.exclusions import KnownPairs, room_for_images, write_images
from particlemesh.apps.pme.multipoles import MultipoleResult, Multipoles
from particlemesh.apps.pme.parameters import Parameters, check_vectors, fourth_power
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.split import SPLITS
from particlemesh.kernels import Coordinates, DeviceBoxes, Record, Unread, alone, checks, compile_kernel, lattices

_FILE = Path(__file__).with_name("batch.c")
_TERMS = 7  # energy and six terms of the virial
_UPPER = [[0, 5, 4], [5, 1, 3], [4, 3, 2]]  # where the terms are in a virial


class PMEBatch(Calculation):
    """Electrostatics of many periodic systems in one call, with particles and boxes of their own.

    All systems share cutoff, splitting, mesh shape and window. They are chosen for ``box`` and the mean number of
    particles, so give the largest box. The most crowded system of the first call decides how small errors have to be.
    In much larger boxes the mesh would miss the accuracy, and a call raises an error. For small systems one call takes
    much less time than a call for each.

    Parameters
    ----------
    box : Box, lengths or matrix
        Of all systems, unless a call gives ``boxes``.
    systems : int
        How many.
    accuracy, cutoff, splitting, bandwidth, shape, window, coulomb_constant, deterministic, dtype, backend, threads
        As for :class:`PME`.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed.

    Examples
    --------
    Two crystals of rock salt, of which one is twice as large:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PMEBatch
    >>> cell = np.stack(np.meshgrid(*[[0.0, 0.5]] * 3, indexing="ij"), -1).reshape(-1, 3)
    >>> charges = np.where((2 * cell).sum(1) % 2 == 0, 1.0, -1.0)
    >>> batch = PMEBatch((2.0, 2.0, 2.0), systems=2, accuracy=1e-8)
    >>> result = batch(
    ...     np.concatenate([cell, 2 * cell]), np.tile(charges, 2), np.repeat([0, 1], 8), boxes=[[1, 1, 1], [2, 2, 2]]
    ... )
    >>> (-result.energy / 4 / [2, 1]).round(6).tolist()
    [1.747565, 1.747565]
    """

    _splits = SPLITS

    def __init__(
        self, box: Any, systems: int, accuracy: float | None = None, *, cutoff: float | None = None,
        splitting: float | str | None = None, bandwidth: float | None = None, shape: Any = None, window: Any = None,
        coulomb_constant: float = 1.0, deterministic: bool = False, dtype: Any = None, backend: str | None = None,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        self.systems = checks.integer(systems, "systems", 1, 2**31 - 1)
        self._start(
            box, accuracy, dtype, backend, threads, cutoff=cutoff, splitting=splitting, bandwidth=bandwidth,
            shape=shape, window=window,
        )  # fmt: skip
        if not all(self.box.periodic):
            raise ValueError(f"the box is periodic along {self.box.periodic}; PMEBatch needs three periodic axes.")
        # One system's: it checks the other arguments and chooses.
        self._one = PME(**self._arguments, coulomb_constant=coulomb_constant, deterministic=deterministic)
        self._deterministic = deterministic
        self._arguments |= dict(systems=self.systems, coulomb_constant=coulomb_constant, deterministic=deterministic)
        self._known = KnownPairs()

    @alone
    def reserve(self, count: int, *, virial: bool = True, quadrupoles: bool = False) -> Self:
        """Choose parameters, and allocate for ``count`` particles of all systems; see :meth:`PME.reserve`.

        Positions are not known, so charges are taken to be at random places, as there.

        Systems stay where they are: ``system`` is int32 on the device.

        Parameters
        ----------
        count : int
        virial : bool
            Also for virials.
        quadrupoles : bool
            Also for calls with dipoles, quadrupoles or widths.

        Raises
        ------
        ValueError
            If the backend or dtype is not known: give them to PMEBatch, or call it before.
        """
        if checks.flag(quadrupoles, "quadrupoles"):
            self._choose_for_dipoles()
        count, core = self._before(count)
        core.reserve(count, 1, checks.flag(virial, "virial"))
        if quadrupoles:
            self._steps(core).reserve(count, virial)
        self._core = core
        return self

    def _choose_for_dipoles(self) -> None:
        """As for `PME`."""
        before = self._one._split
        self._one._choose_for_dipoles()
        if self._one._split is not before:
            self._core = None

    def _steps(self, core: Batch) -> Multipoles:
        """Return what makes steps with multipoles."""
        core.multipoles = core.multipoles or Multipoles(core)
        return core.multipoles

    def _best(self, count: int, *given: Any, **more: Any) -> tuple[Parameters, str]:
        return self._one._best(max(1, round(count / self.systems)), *given, **more)

    def _make(self, count: int, dtype: np.dtype, backend: Any, fourth: float, **more: Any) -> Batch:
        each = max(1, round(count / self.systems))
        p = self._one._chosen(each, dtype, backend, fourth, **more)
        return Batch(
            self.box, p, backend, dtype, self._one.coulomb_constant, gradient="window",
            named=self._named, threads=self._threads, count=each, systems=self.systems,
            deterministic=self._deterministic,
        )  # fmt: skip

    @alone
    def __call__(
        self, positions: Any, charges: Any, system: Any, *, dipoles: Any = None, quadrupoles: Any = None,
        widths: Any = None, boxes: Any = None, exclusions: Any = None, factors: Any = 0.0, virial: bool = True,
        fields: bool = False, check: bool = True, out: Result | None = None,
    ) -> Result:  # fmt: skip
        """Return energies, forces and virials of all systems.

        Parameters
        ----------
        positions : array (N, 3), or tuple of 3 arrays (N,)
            Of all particles, in any order. Where those of a system follow each other, its energy is summed faster.
        charges : array (N,)
        system : integers (N,)
            The system of each particle.
        dipoles, quadrupoles, widths : array (N, 3), (N, 3, 3), (N,), optional
            As for :class:`PME`. The result is a :class:`MultipoleResult`.
        boxes : array (S, 3) or (S, 3, 3), optional
            Lengths or lattice vectors of each system, of the host or of the backend. Those on a GPU stay there. If the
            thinnest one shrinks or grows past a power of the fourth root of 2, a call makes its step twice. With
            ``check=False`` it cannot: then numbers of a system whose box has become thinner are NaN.
        exclusions : integers (M, 2), optional
            Pairs of particles of one system, each once, by their indices among all particles.
        factors : float or array_like (M,)
            What the interaction of their nearest images is multiplied with, as for :class:`PME`.
        virial : bool
            Whether the result has virials.
        fields : bool
            Whether the result has potentials and fields; with dipoles, quadrupoles or widths it always has.
        check : bool
            If False, bad particles and charges are not looked for; :meth:`check` raises their errors later.
        out : Result, optional
            Whose arrays to write.

        Returns
        -------
        Result
            Energies (S,), energies of particles (N,) and forces (N, 3). Virials (S, 3, 3), potentials (N,) and fields
            (N, 3) if asked for.

        Raises
        ------
        ValueError, TypeError
            If a position or charge is not finite, particles of a system lie in exactly one place, or shapes do not fit.
            The first such particle is named, and its system. If a box is too large for the accuracy, unless cutoff,
            splitting, mesh or window are given without an accuracy.
        """
        virial, fields = checks.flag(virial, "virial"), checks.flag(fields, "fields")
        given = {"charges": charges, "dipoles": dipoles, "quadrupoles": quadrupoles, "widths": widths}
        numbers = {name: array for name, array in given.items() if array is not None or name == "charges"}
        kind = Result if len(numbers) == 1 else MultipoleResult
        backend, x, taken = self._taken(positions, check, out, kind, **numbers)
        pairs = self._known.of(exclusions, factors, x.count)

        def systems() -> dict[str, Any]:
            rows = lattices([self._rows] * self.systems if boxes is None else boxes, self.systems, 3)
            return dict(owners=backend.read(owners)[0], rows=rows)

        with self._in_order(*taken.values()):
            owners = kernels.indices(system, x.count, self.systems, backend, upload=True)
            if kind is MultipoleResult:
                self._choose_for_dipoles()
            core = self._core_for(x, backend, fourth_power, taken["charges"].native, owners, systems=systems)
            if "widths" in taken:
                core = self._for_widths(core, x.count, taken["widths"].native)
            core.set_boxes(boxes)
            core.owners, core.exclusions = owners, pairs
            try:
                step = core if kind is Result else self._steps(core)
                result = core.result(step, kind, taken, x, virial, check, out, number=False, fields=fields)
            except ValueError:
                self._check_positions(core, x)
                raise
            if check and not core.clean:
                self._check(core)
            self._core = core
            return result

    @alone
    def explain(self) -> str:
        """Return the parameters in use, and the errors and the time of a system expected, in ten lines at most.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.pme import PMEBatch
        >>> batch = PMEBatch((3.0, 3.0, 3.0), systems=2, accuracy=1e-4)
        >>> result = batch(np.random.default_rng(1).random((100, 3)) * 3, np.ones(100), np.arange(100) % 2)
        >>> print(batch.explain())  # doctest: +ELLIPSIS
        accuracy asked for: 0.0001, expected: ...
        """
        longest, core = ", ".join(f"{length:.4g}" for length in self.parameters.longest), self._core
        with self._in_order.reading(core.owner):
            return self._one._explained(core, f"{self.systems} systems; lattice vectors of boxes up to {longest}")

    def _check_positions(self, core: Batch, x: Coordinates) -> None:
        """Raise an error that names the first particle whose position is not finite, and its system."""
        table = np.stack([core.backend.download(a) for a in _columns(x)], 1)
        bad = ~np.isfinite(table).all(1)
        if bad.any():
            raise ValueError(
                f"positions of {bad.sum()} of {x.count} particles are not finite; the first is "
                f"{_particle(core, int(bad.argmax()))}."
            )

    def _check(self, core: Batch) -> None:
        """Raise what is wrong with the last step."""
        core.check_boxes()
        wrong = core.errors()
        if wrong.other is not None:
            owners = core.backend.download(core.owners)
            pair = next(p for p in core.exclusions.pairs if owners[p[0]] != owners[p[1]])
            raise ValueError(
                f"exclusions have the pair {pair.tolist()}, whose particles are in the systems {owners[pair[0]]} and "
                f"{owners[pair[1]]}: particles of different systems do not interact."
            )
        if wrong.touching:
            raise ValueError(f"{_particle(core, core.first_touching())} lies where another one lies: move one of them.")
        if wrong.bad is not None:
            raise ValueError(f"charges are not finite; the first is that of {_particle(core, wrong.bad)}.")
        if core.multipoles is not None:
            core.multipoles.check(wrong, functools.partial(_particle, core))
        wrong.check_results(f"the energy of system {wrong.infinite}", "charges", functools.partial(_particle, core))


def _particle(core: Batch, index: int) -> str:
    """Return the name of a particle and its system; waits."""
    return f"particle {index} of system {int(core.backend.download(core.owners)[index])}"


def _columns(x: Coordinates) -> list[Any]:
    """Return three native arrays (N,) of coordinates."""
    return list(x.arrays) if x.arrays[0].ndim == 1 else [x.arrays[0][:, axis] for axis in range(3)]


class Batch(Core):
    """Charges in systems with particles and boxes of their own.

    Attributes
    ----------
    owners : native int32 array (N,)
        The system of each particle, of the next step.
    rows : NumPy array (S, 3, 3), DeviceBoxes or None
        Lattice vectors of the next step's boxes; None for the grid's.
    """

    _boxes: DeviceBoxes | None = None  # their memory

    def __init__(self, *arguments: Any, systems: int, **options: Any) -> None:
        self.systems = systems
        super().__init__(*arguments, systems=systems, **options)

    def reserve(self, count: int, sets: int, virial: bool) -> None:
        super().reserve(count, sets, virial)
        if self.on_gpu:
            with self.backend.scope():
                self._words()
                room_for_images(self)

    def _words(self) -> Any:
        """Return memory for the largest terms of systems and their sums, both as integers."""
        return self.take("totals of systems", 2 * _TERMS * self.systems, np.dtype(np.uint64))

    # ---- boxes ----------------------------------------------------------------------------------------

    def set_boxes(self, boxes: Any) -> None:
        """Set the boxes of the next step: those of the host are checked now, and on a GPU sent if they are others."""
        if boxes is None or not self.on_gpu:
            self.rows = None if boxes is None else lattices(boxes, self.systems, 3)
        else:
            self._boxes = self._boxes or DeviceBoxes(self.owner, self.box, self.systems)
            self.rows = self._boxes.set(boxes)
        rows = self.rows.host if isinstance(self.rows, DeviceBoxes) else self.rows
        if rows is not None:
            check_vectors(rows, self.parameters.longest)
            self.images = max(self.parameters.images(row, self.dtype) for row in rows)

    def of_systems(self) -> tuple[Any, tuple[Any, ...]]:
        return None if self.rows is None else self.rows.bounds.per, (self.owners,)

    def facts(self) -> tuple[Any, ...]:
        return (self.rows.facts,) if isinstance(self.rows, DeviceBoxes) and self.rows.host is None else ()

    def confirmed(self, *facts: np.ndarray) -> bool:
        for read in facts:
            longest, shortest, _ = self.rows.look(read)
            if (longest > self.parameters.longest).any():
                check_vectors(self.rows.lattices(), self.parameters.longest)
            self.images = self.parameters.images(np.diag(shortest), self.dtype)
            self.parameters.check_images(self.images * self.owners.shape[0] / self.systems)
            return bool(self.rows.confirm(read))
        return True

    def check_boxes(self) -> None:
        """Raise what is wrong with the boxes of the last step."""
        for read in self.backend.read(*self.facts()):
            bounds = self.rows.bounds
            if not self.confirmed(read) and self.rows.bounds.exceed(bounds):
                raise ValueError(
                    "boxes are smaller than those of the last call with check=True, by which pairs are searched: call "
                    "with check=True once."
                )

    # ---- a step ---------------------------------------------------------------------------------------

    def _submit(self, *given: Any) -> None:
        bounds = getattr(self.rows, "bounds", None)
        try:
            super()._submit(*given)
        except (ValueError, MemoryError):  # those bounds are of other boxes, and may be what is wrong
            facts = self.backend.read(*self.facts()) if given[-1] else ()
            if self.confirmed(*facts) and (not facts or self.rows.bounds == bounds):
                raise
            super()._submit(*given)

    def place(self, x: Coordinates, check: bool) -> None:
        self.solver.set_positions(native(x), system=self.owners, boxes=self.rows, check=check)

    def build(self, x: Coordinates, check: bool) -> None:
        self.grid.build(native(x), system=self.owners, boxes=self.rows, check=check)
        if len(self.exclusions) and isinstance(self.rows, DeviceBoxes):
            write_images(self)

    def check_pairs(self, count: int) -> None:
        if not self.on_gpu:
            i, j = self.exclusions.pairs.T
            apart = np.zeros(count, bool)
            apart[i[self.owners[i] != self.owners[j]]] = True
            self.status[4] = word_of(apart)

    def assemble(self, charges: Any, sums: Any, fields: Fields, out: dict[str, Any], first: bool) -> None:
        if not self.on_gpu:
            self._totals_on_cpu(charges[0], sums, fields, out)
            return
        count, words, crowd = charges.shape[1], self._words(), charges.shape[1].bit_length()  # fewer in a system
        self.backend.clear(words)
        (_, shares), unread = self.partial(1, count), Unread(out["energy"])
        results = out["energies"], out["forces"], out["energy"], out.get("virial", unread)
        more = [out.get(name, unread) for name in ("potentials", "fields")]
        places, factors = Record("=7q", *map(self.at, (charges, *results, *more))), self.record(*self.factors)
        facts = dict(COORDINATE_IS_DOUBLE=int(self.dtype.itemsize == 8), VIRIAL=int("virial" in out))
        real = np.dtype(np.float64 if self.backend.facts().get("HAS_FP64", 1) else np.float32)  # of totals

        def kernel(name: str) -> Any:
            return compile_kernel(self.backend, _FILE, name, real, **facts)

        for reading in range(2):
            kernel("assemble")(
                shares * self.backend.group_size, charges, sums, *fields[:2], *results[:2], *more, words,
                self.owners, self.status, count, self.systems, shares, reading, crowd, int("fields" in out), places,
                factors,
            )  # fmt: skip
        kernel("totals_of_systems")(
            self.systems, words, unread if fields.virial is None else fields.virial, *results[2:], self.status,
            self.systems, crowd, places, factors,
        )  # fmt: skip

    def _totals_on_cpu(self, q: np.ndarray, sums: np.ndarray, fields: Fields, out: dict[str, Any]) -> None:
        """Do what the kernels do."""
        weight = self._on_cpu(q, sums, fields.potential[0], fields.gradient[0], {n: a[0] for n, a in out.items()})

        def by_system(values: np.ndarray) -> np.ndarray:
            return np.bincount(self.owners, values, self.systems)

        out["energy"][0] = by_system(out["energies"][0])
        if "virial" in out:
            upper = np.stack([by_system(weight / 2 * sums[:, 4 + n]) for n in range(6)], 1)
            out["virial"][0] = upper[:, _UPPER] + self.factors[0] * self.factors[1] * fields.virial[0]
        self.status[0] = bool((sums[:, -1] > 0).any())
        self.status[1], self.status[3] = word_of(~np.isfinite(out["energy"][0])), word_of(~np.isfinite(q))
