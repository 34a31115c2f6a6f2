# SPDX-License-Identifier: BSD-3-Clause
"""Calculations: a step on native arrays with one set of parameters on one backend, and the way to it from a call."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple, Self

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import close, direct
from particlemesh.apps.pme import parameters as choosing
from particlemesh.apps.pme.exclusions import Boxes, Exclusions, unwrapped
from particlemesh.apps.pme.lists import SkinList
from particlemesh.apps.pme.parameters import FOURTH, Parameters, cells
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.split import Smooth, Split, check_powers, polynomials, widest
from particlemesh.fourier import ProlateGreen, Solver
from particlemesh.kernels import (
    Coordinates,
    Fixed,
    Record,
    Replays,
    Unread,
    allocate,
    alone,
    branch_of,
    checks,
    compile_kernel,
    coordinates,
    kept,
)

_FILE = Path(__file__).with_name("assemble.c")
_DEFAULT = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-6}  # accuracy
FLOOR = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-14}  # what rounding leaves of it
_ONES = 2**64 - 1  # ~i of a particle i
_SHARE = 2048  # particles that a group adds up
_LANES = 32  # of assemble.c
_NEAR = 1 / 3  # of the reach: where pairs of charges are close, whose powers of 1 / r are low
_ALONE = contextlib.nullcontext()
_CORES = {"dipoles": (3,), "quadrupoles": (3, 3)}  # shapes of numbers of a particle that have axes
_UPPER = (0, 1, 2, 1, 2, 0), (0, 1, 2, 2, 0, 1)  # the six terms of a virial


class StepErrors(NamedTuple):
    """What is wrong with a step."""

    touching: bool  # particles lie in one place
    infinite: int | None  # the first set or system whose energy is not finite
    negative: int | None  # the first particle with a negative number
    bad: int | None  # the first particle with a charge that is not finite
    other: int | None  # the first particle with another number that is not allowed
    asymmetric: int | None  # the first particle with a quadrupole that is not symmetric
    wide: int | None  # the first particle with a width that the cutoff does not serve
    moment: int | None  # the first particle with a dipole, quadrupole or width that is not finite
    lost: int | None  # the first particle with a result that is not finite

    def check_results(self, energy: str, numbers: str, name: Callable[[int], str] = "particle {}".format) -> None:
        """Raise an error if results are not finite; ``name`` returns the name of a particle."""
        if self.infinite is None and self.lost is None:
            return
        what = "forces or fields are" if self.infinite is None else f"{energy} is"
        first = "" if self.lost is None else f" The first such result is that of {name(self.lost)}."
        raise ValueError(f"{what} not finite: {numbers} are too large, or particles too near each other.{first}")


class Fields(NamedTuple):
    """What the mesh gives for sets of charges: potential (sets, N), gradient (sets, N, 3), virial (sets, 3, 3)."""

    potential: Any
    gradient: Any
    virial: Any = None


def check_not_recorded(function: str, *arrays: Any) -> None:
    """Raise an error if torch or JAX records an array, which names the function that has derivatives."""
    for array in arrays:
        library = type(array).__module__.partition(".")[0]
        module = sys.modules.get(library)
        if library == "torch" and module is not None:
            if getattr(array, "requires_grad", False) and module.is_grad_enabled():
                raise TypeError(
                    "this tensor requires grad, and this call is not differentiable: call "
                    f"particlemesh.apps.pme.torch.{function}, or pass tensor.detach()."
                )
        elif library == "jax" and module is not None and isinstance(array, module.core.Tracer):
            raise TypeError(
                "this JAX array is traced by jit, grad or vmap and has no numbers yet: call "
                f"particlemesh.apps.pme.jax.{function}, which can be traced."
            )


def word_of(wrong: np.ndarray) -> int:
    """Return ~i of the first particle i that is wrong (N,), or 0."""
    return int(np.argmax(wrong)) ^ _ONES if wrong.any() else 0


class Core:
    """Grid, solver and memory of charges; subclasses have another pair function, other corrections, many systems.

    Parameters
    ----------
    box : Box
    parameters : Parameters
    backend : Backend
    dtype : numpy.dtype
        Of positions and charges.
    constant : float
        Coulomb's constant.
    exclusions : Exclusions, optional
    skin : float, optional
        That of a list; None for no list.
    gradient : str, optional
        As for the solver.
    named : str, optional
        The backend as the user named it.
    count : int
        Particles of one system, which decide the shape of a GPU's cells; 0 if that is not known.
    applications : int
        For how many sets of charges positions stay, which decides how plans are prepared.
    threads, deterministic, systems
        As for plans and grids.
    """

    together = 6  # sets of charges in one pass over pairs: a work-item holds their sums
    weighted = True  # whether sums over neighbours are without the particle's own charge
    looks_back = True  # whether what is wrong with a step may be looked for at its end
    dipoles: Any = None  # what makes steps with dipoles
    multipoles: Any = None  # and with quadrupoles and widths
    last: Any = None  # the one of these that made the last step
    names: Any = None  # `Named`, where particles have names among their values if pairs are excluded
    systems = 0  # 0: all particles see each other
    owners: Any = None  # the system of each particle
    rows: Any = None  # lattice vectors of systems in the next step, or DeviceBoxes

    def __init__(
        self, box: pm.Box, parameters: Parameters, backend: Any, dtype: np.dtype, constant: float = 1.0,
        exclusions: Exclusions | None = None, skin: float | None = None, gradient: str | None = None, *,
        named: str | None, threads: int | None, count: int = 0, applications: int = 1, **options: Any,
    ) -> None:  # fmt: skip
        self.split: Any = parameters.split
        split = self.split
        check_powers(parameters.cutoff, split.power, dtype)
        self.box, self.parameters, self.dtype, self.constant = box, parameters, dtype, constant
        self.images = parameters.images(box.matrix[list(box.periodic)], dtype)
        self.exclusions = Exclusions((), 0.0) if exclusions is None else exclusions
        self.owner, self.on_gpu = backend, backend.name != "cpu"
        self.threads = None if self.on_gpu else threads
        self.backend: Any = kept(backend) if self.on_gpu else backend
        # Twice the energy of a charge q is ``constant * q * (sum + mesh * potential - itself * q)``.
        self.factors = constant, split.mesh, split.itself
        # Arrays of another device or context than the current one bring their backend to grid and solver.
        named = named or (backend.name if backend == kernels.backend(backend.name) else None)
        options = dict(options, dtype=dtype.name, backend=named, threads=self.threads)
        sides = cells(box, parameters.cutoff + (skin or 0.0), count * self.on_gpu)
        self.grid: Any = self.new_grid(sides, options)
        self.list = None if skin is None else SkinList(self.grid, parameters.cutoff, skin)
        self.of_solver = dict(
            options, compensation="continuous", gradient=gradient, applications=applications,
            **split.green(all(box.periodic)),
        )  # fmt: skip
        self.solver: Any = self.new_solver(**self.of_solver)
        self._functions: dict[Any, pm.PairFunction] = {}
        self.known_boxes: Boxes | None = None
        self._memory: dict[str, Any] = {}
        self.each = (self.systems,) * (self.systems > 0)  # the shape of a number of each system
        self.branch = branch_of(backend)  # None: one half after the other
        self.status = self.take("status", len(StepErrors._fields), np.dtype(np.uint64))  # words of `StepErrors`
        self.sums: Any = None  # of the last step; their last column says which particles touch others
        self._replays, self.count = _Steps(self), -1  # repeats steps of so many particles
        self._posted: Any = None  # on the way to the host: zeros if nothing was wrong with the last repeated step
        self.clean = self._sized = False  # whether the last step had nothing wrong; whether the type holds its forces

    # ---- what subclasses have of their own ------------------------------------------------------------

    def new_grid(self, sides: list[float], options: dict[str, Any]) -> Any:
        """Return the grid for sums over neighbours, with cells of these sides."""
        return pm.UniformGrid(self.box, cell_size=sides, **options)

    def new_solver(self, **options: Any) -> Any:
        """Return the solver of the mesh."""
        return Solver(pm.Mesh(self.parameters.shape, self.box), self.parameters.window, **options)

    def checking(self, what: str = "charges and memory of a step") -> Any:
        """Return a context in which other ranks have to know of errors."""
        return _ALONE

    def prepare(self, steps: Any, sets: int, count: int, virial: bool) -> None:
        """Take memory for a step, where other ranks must know if there is none."""

    def stream(self, function: pm.PairFunction, values: Any, sums: Any) -> None:
        """Write sums over neighbours for values (N, ...)."""
        self.grid.stream(self.parameters.cutoff, function, values, out=sums)

    def of_mesh(self, verb: str, given: Any, *outs: Any, **options: Any) -> None:
        """Write what a verb of the solver returns; with a virial this is the last."""
        getattr(self.solver, verb)(given, out=outs if len(outs) > 1 or options else outs[0], **options)

    def finish(self, out: dict[str, Any]) -> None:
        """Add up energies and virials of ranks."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Shape of fields."""
        return tuple(self.solver.plan.mesh.field_shape)

    @functools.cached_property
    def _smooth(self) -> Smooth:
        """The smooth part for pairs of charges."""
        single, one = self.dtype.itemsize == 4, self.on_gpu or self.list is not None
        return polynomials(self.split, self.parameters.cutoff, single, one)

    def function(self, sets: int, virial: bool, count: int) -> pm.PairFunction:
        """Return the pair function for so many sets of charges of so many particles."""
        if self.list is None and len(self.exclusions.pairs):
            made = direct.neighbours(self._smooth, sets, virial)
            return close.function(self, (sets, virial), count, *made, _NEAR)
        if (sets, virial) not in self._functions:
            self._functions[sets, virial] = direct.pair_function(self._smooth, sets, virial)
        return self._functions[sets, virial]

    def listed(self, sets: int, virial: bool) -> pm.PairFunction:
        """Return the pair function for excluded and scaled pairs, without a smooth part."""
        return direct.listed(sets, virial, _NEAR * close.reach(self))

    def charges(self, given: Any) -> Any:
        """Return the charges (sets, N) of the mesh from what a step is given."""
        return given

    def values(self, charges: Any) -> Any:
        """Return the values (N, ...) that the pair function takes, for charges (sets, N)."""
        return charges.T

    def correct(self, x: Coordinates, charges: Any, sums: Any, virial: bool) -> Any:
        """Return the sums over neighbours with what excluded and scaled pairs lose or gain; the input may change."""
        self.add_pairs(x, self.listed(len(charges), virial), self.values(charges), sums)
        return sums

    def add_pairs(self, x: Coordinates, function: pm.PairFunction, values: Any, sums: Any) -> None:
        """Add a function of excluded and scaled pairs to sums (N, results): see `Exclusions.add`."""
        self.check_pairs(x.count)
        self.exclusions.add(self, x, function, values, sums)

    def check_pairs(self, count: int) -> None:
        """Note in the status, on the CPU, a pair that cannot be excluded."""

    def of_systems(self) -> tuple[Any, tuple[Any, ...]]:
        """Return what of many systems decides the launches of a step, and native arrays of theirs that these read."""
        return None, ()

    def facts(self) -> tuple[Any, ...]:
        """Return what `confirmed` takes, on the device."""
        return ()

    def confirmed(self, *facts: np.ndarray) -> bool:
        """Return whether the host was right about what is on the device; if not, it is now, and steps are repeated."""
        return True

    def place(self, x: Coordinates, check: bool) -> None:
        """Give the mesh positions."""
        self.solver.set_positions(native(x), check=check)

    def build(self, x: Coordinates, check: bool) -> None:
        """Give the grid positions."""
        self.grid.build(native(x), check=check)

    def neighbours(self, x: Coordinates, check: bool) -> None:
        """Prepare the sums over neighbours for positions."""
        self.build(x, check) if self.list is None else self.list.update(x)

    def shapes(self, count: int, virial: bool, fields: bool) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a result's arrays, by name, for a set of charges."""
        return {
            "energy": self.each, "energies": (count,), "forces": (count, 3),
            **({"virial": (*self.each, 3, 3)} if virial else {}),
            **({"potentials": (count,), "fields": (count, 3)} if fields else {}),
        }  # fmt: skip

    def fields(self, sets: int, count: int, virial: bool) -> Fields:
        """Return memory for what the mesh gives."""
        return Fields(
            self.take("potential", sets * count).reshape(sets, count),
            self.take("gradient", 3 * sets * count).reshape(sets, count, 3),
            self.take("virial", 9 * sets * max(self.systems, 1)).reshape(sets, *self.each, 3, 3) if virial else None,
        )

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

    def upload(self, numbers: Any) -> Any:
        """Return numbers of the host in this type where the work is."""
        return self.backend.upload(np.array(numbers, self.dtype, order="C"))

    def partial(self, sets: int, count: int, terms: int = 7) -> tuple[Any, int]:
        """Return the memory for so many totals of each share of the particles, and how many shares there are."""
        shares = max(1, -(-count // _SHARE))
        return self.take("totals", shares * (terms * sets + 1)), shares

    def at(self, array: Any) -> int:
        """Return where an array begins in its buffer, in reals."""
        return int(getattr(array, "offset", 0)) // self.dtype.itemsize

    def record(self, *numbers: float) -> Record:
        """Return numbers of this type as a kernel's struct."""
        return Record(f"={len(numbers)}{self.dtype.char}", *numbers)

    def reserve(self, count: int, sets: int, virial: bool) -> None:
        """Allocate for so many particles."""
        self.grid.reserve(count)
        self.solver.reserve(count, sets, virial=virial)
        together, width = min(sets, self.together), direct.columns(virial)
        with self.backend.scope():
            self.take("sums", count * (together * width + 1))
            self.fields(sets, count, virial)
            if self.on_gpu:
                self.partial(together, count)
                self.exclusions.on(self.backend, count, self.dtype)

    # ---- a step ---------------------------------------------------------------------------------------

    def result(
        self, steps: Any, kind: type[Result], taken: Mapping[str, kernels.Operand], x: Coordinates, virial: bool,
        check: bool, out: Result | None, *, number: bool, fields: bool = False,
    ) -> Result:  # fmt: skip
        """Make a step with the user's numbers of particles, the first of which may have batches; return its result.

        ``steps`` makes it: the core itself or its dipoles. With ``number`` the energy of one set is a number if it is
        NumPy's.
        """
        with self.checking():
            if (images := self.images * x.count / max(self.systems, 1)) > self.parameters.most_images:
                self.parameters.check_images(images)
            name, first = next(iter(taken.items()))
            if check and not self._sized and name in ("charges", "coefficients"):
                self._check_forces(name, first.native)
            sets, shapes = math.prod(first.batch), steps.shapes(x.count, virial, fields)
            given = [
                self.dense(name, o.native, (sets, *o.native.shape[len(o.batch) :]), copy=True)
                for name, o in taken.items()
            ]
            outs = {name: None if out is None else getattr(out, name) for name in shapes}
            for name, array in outs.items():
                if out is not None and isinstance(array, (NoneType, float, np.generic)):
                    remedy = (
                        f"give an array of shape {first.batch + shapes[name]} there, or leave out the argument out."
                    )
                    raise ValueError(f"out.{name} is {array}, and this call writes {', '.join(shapes)}: {remedy}")
            kernels.check_apart(*(o for o in outs.values() if o is not None))
            results = {
                name: kernels.give(outs[name], first, first.batch + shape, dense=False)
                for name, shape in shapes.items()
            }
            dense = {
                name: self.dense(f"dense {name}", result.native, (sets, *shapes[name]), copy=False)
                for name, result in results.items()
            }
            self.prepare(steps, sets, x.count, virial)
        self._submit(steps, x, given, dense, check)
        for name, result in results.items():
            if not result.native.flags.c_contiguous:
                self.owner.copy(result.native, dense[name].reshape(result.native.shape))
        answers = {name: result.finish() for name, result in results.items()}
        if number and not first.batch and isinstance(answers["energy"], np.ndarray):
            answers["energy"] = answers["energy"][()]
        return kind(**answers)

    def _check_forces(self, name: str, numbers: Any) -> None:
        """Check once that the type holds forces at the cutoff, which are the smallest; waits."""
        largest = float(np.abs(self.owner.download(numbers)).max(initial=0.0))
        if not 0 < largest < math.inf:
            return
        cutoff, info = self.parameters.cutoff, np.finfo(self.dtype)
        force = math.log(self.constant) + 2 * math.log(largest) - (self.split.power - 1) * math.log(cutoff)
        if force < math.log(float(info.tiny) * 2**24):
            raise ValueError(
                f"{name} are at most {largest:.3g}, and the cutoff is {cutoff:.3g}: {self.dtype.name} does not hold "
                f"such small forces. Use other units{', or float64' * (self.dtype.itemsize < 8)}."
            )
        self._sized = True

    def _submit(self, steps: Any, x: Coordinates, given: list[Any], out: dict[str, Any], check: bool) -> None:
        """Make a step. On a GPU repeated ones may be replayed, and what is wrong is looked for at their end only."""

        def step(check: bool) -> None:
            steps.step(x, given[0] if len(given) == 1 else given, out, check)
            self.finish(out)
            self._look_over(out)

        again, self.count, self.clean = x.count == self.count, x.count, False
        self.last = steps if steps is not self and self.looks_back else None  # a rank knows moments of its own
        if not again:
            self._replays.clear()  # `check` reads what the last plain step wrote
        if not (self.on_gpu and self.looks_back and len(given[0])) or (check and not again):
            step(check)
            if check and not self.confirmed(*self.backend.read(*self.facts())):
                step(check)
            return
        positions = native(x)
        (decides, read), facts = self.of_systems(), self.facts()
        arrays = *(positions if isinstance(positions, tuple) else (positions,)), *given, *out.values(), *read, *facts

        def unchecked() -> None:
            step(False)
            grid: Any = self.grid.ready()
            if check:
                self._posted = self.backend.post(self.status, self.solver.plan.particles.status, grid.words, *facts)

        self._replays((type(steps), tuple(out), self.exclusions, decides, check), arrays, unchecked)
        if check:
            words = self._posted.read()
            self.clean = self.confirmed(*words[3:]) and not any(any(array.tolist()) for array in words[:3])
            if not self.clean:  # with room for what did not fit, or an error that names the first particle
                self._replays.clear()
                step(True)

    def _look_over(self, out: dict[str, Any]) -> None:
        """Note the first particle with a result that is not finite."""
        arrays = [array for name, array in out.items() if name not in ("energy", "virial")]
        sets, count, *_ = arrays[0].shape
        widths = [array.size // max(sets * count, 1) for array in arrays]
        if self.on_gpu:
            arrays, widths = (given + more * (6 - len(given)) for given, more in ((arrays, arrays[:1]), (widths, [0])))
            compile_kernel(self.backend, _FILE.with_name("finite.c"), "look_over", self.dtype)(
                sets * count, *arrays, self.status, sets * count, count, Record("=12q", *map(self.at, arrays), *widths)
            )
        elif not all(np.isfinite(array.sum()) for array in arrays):
            lost = [~np.isfinite(array).reshape(sets, count, -1).all((0, 2)) for array in arrays]
            self.status[-1] = word_of(np.logical_or.reduce(lost))

    def step(self, x: Coordinates, given: Any, out: dict[str, Any], check: bool) -> None:
        """Write dense outputs (sets, ...) for dense numbers of particles.

        The half of the mesh may run beside the other one, and writes no memory of that.
        """
        self.backend.clear(self.status)
        charges, virial = self.charges(given), "virial" in out
        sets, count = charges.shape
        fields = self.fields(sets, count, virial)
        smooth = functools.partial(self._smooth_half, x, charges, fields, check)
        with self.beside(smooth):
            self.neighbours(x, check)
            if not sets:
                return
            sums = self._sharp_half(x, charges[: self.together], virial)
        for begin in range(0, sets, self.together):
            part = slice(begin, min(begin + self.together, sets))
            if begin:
                sums = self._sharp_half(x, charges[part], virial)
            of_part = Fields(*(None if a is None else a[part] for a in fields))
            with self.checking("results of a step"):
                self.assemble(charges[part], sums, of_part, {name: a[part] for name, a in out.items()}, begin == 0)

    def beside(self, smooth: Callable[[], Any]) -> Any:
        """Return a context for the half of the pairs, beside which that of the mesh runs where there are branches."""
        return contextlib.nullcontext(smooth()) if self.branch is None else self.branch.in_background(smooth)

    def _smooth_half(self, x: Coordinates, charges: Any, fields: Fields, check: bool) -> None:
        """Write what the mesh gives."""
        self.place(x, check)
        if not len(charges):
            return
        if fields.virial is None:
            self.of_mesh("potential_and_gradient", charges, *fields[:2])
        else:
            self.of_mesh("potential_gradient_virial", charges, *fields)

    def _sharp_half(self, x: Coordinates, charges: Any, virial: bool) -> Any:
        """Return the sums over neighbours of a few sets of charges."""
        function = self.function(len(charges), virial, x.count)
        sums = self.take("sums", x.count * function.results).reshape(x.count, function.results)
        if self.list is None:
            self.stream(function, self.values(charges), sums)
        else:
            table: Any = close.ALL
            if len(self.exclusions.pairs):
                table = close.function(
                    self, "list", x.count, lambda _, numbers: np.array(numbers, self.dtype), close.HEAD, _NEAR
                )
            self.list.sums(function, table, charges, sums, self.threads)
        if len(self.exclusions.pairs):
            sums = self.correct(x, charges, sums, virial)
        self.sums = sums
        return sums

    def assemble(self, charges: Any, sums: Any, fields: Fields, out: dict[str, Any], first: bool) -> None:
        """Write the outputs of a few sets of charges (sets, N) from their sums (N, sets * width + 1)."""
        sets, count = charges.shape
        width = (sums.shape[1] - 1) // max(sets, 1)
        if self.on_gpu:
            partial, shares = self.partial(sets, count)
            asked = [out[name] for name in ("potentials", "fields") if name in out]
            outs = out["energies"], out["forces"], *(asked or [Unread(out["energies"])] * 2)
            places = charges, *outs[:2], fields.potential, fields.gradient, *outs[2:]
            self.kernel("assemble", width)(
                shares * self.backend.group_size, charges, sums, *fields[:2], *outs, partial, count, sets, shares,
                *map(self.at, places), len(asked), self.status, self.record(*self.factors),
            )  # fmt: skip
            self.totals(partial, fields.virial, out, sets, shares, width, first=first)
            return
        for c, q in enumerate(charges):
            of_set = sums[:, c * width : (c + 1) * width]
            weight = self._on_cpu(q, of_set, fields.potential[c], fields.gradient[c], {n: a[c] for n, a in out.items()})
            out["energy"][c] = out["energies"][c].sum(dtype=np.float64)
            if fields.virial is not None:
                terms = np.einsum("i,it->t", weight.astype(np.float64) / 2, of_set[:, 4:10].astype(np.float64))
                whole = self.factors[0] * self.factors[1] * fields.virial[c].astype(np.float64)
                whole[_UPPER] += terms
                whole[_UPPER[::-1]] = whole[_UPPER]
                out["virial"][c] = whole
        if first:
            self.status[0] = sums[:, -1].sum() != 0
        finite = np.isfinite(out["energy"])
        if not finite.all():
            self.status[1] = max(self.status[1], word_of(~finite))
            self.status[3] = max(self.status[3], word_of(~np.isfinite(charges).all(0)))

    def _on_cpu(self, q: Any, sums: Any, potential: Any, gradient: Any, out: dict[str, Any]) -> Any:
        """Write the outputs of particles of one set, as the kernels do; return the factors of their sums."""
        constant, of_mesh, itself = self.factors
        scaled, smooth = constant * q, of_mesh * potential - itself * q
        weight = scaled if self.weighted else np.ones_like(q)
        out["energies"][...] = (weight * sums[:, 0] + scaled * smooth) / 2
        out["forces"][...] = weight[:, None] * sums[:, 1:4] - (of_mesh * scaled)[:, None] * gradient
        if "fields" in out:
            out["potentials"][...] = constant * (sums[:, 0] + smooth)
            out["fields"][...] = constant * (sums[:, 1:4] - of_mesh * gradient)
        return weight

    def kernel(self, name: str, width: int) -> Any:
        """Return a kernel of `assemble.c` for sums of so many columns per set."""
        return compile_kernel(self.backend, _FILE, name, self.dtype, WIDTH=width, WEIGHTED=int(self.weighted))

    def totals(
        self, partial: Any, of_mesh: Any, out: dict[str, Any], sets: int, shares: int, width: int, *, first: bool = True
    ) -> None:
        """Add up the totals of shares, ``width - 3`` of each set, and the virial ``of_mesh`` if there is one."""
        energy = out["energy"]
        virials = (of_mesh, out["virial"]) if "virial" in out else (Unread(energy), Unread(energy))
        self.kernel("totals", width)(
            ((width - 3) * sets + 1) * _LANES, partial, virials[0], energy, virials[1], self.status, sets, shares,
            self.at(virials[0]), self.at(energy), self.at(virials[1]), int(first), self.record(*self.factors),
        )  # fmt: skip

    def errors(self) -> StepErrors:
        """Return what is wrong with the last step; waits."""
        touching, *words = map(int, self.backend.download(self.status))
        return StepErrors(touching != 0, *(None if word == 0 else word ^ _ONES for word in words))

    def first_touching(self) -> int:
        """Return the first particle that touches another one; waits."""
        return int(np.argmax(self.backend.download(self.sums)[:, -1] > 0))


class _Steps(Replays):
    """Replays of steps: after each the core looks for what was wrong where that step has left it."""

    def __init__(self, core: Core) -> None:
        super().__init__(core.backend)
        self._core = core

    def now(self) -> Any:
        return self._core._posted, self._core.sums

    def restore(self, state: Any) -> None:
        self._core._posted, self._core.sums = state


def native(x: Coordinates) -> Any:
    """Return positions for grids and plans as native arrays: those of other libraries would bring their own streams."""
    return x.arrays[0] if x.arrays[0].ndim == 2 else x.arrays


def on_host(x: Coordinates, backend: Any) -> np.ndarray:
    """Return positions (N, 3) on the host; waits."""
    arrays = native(x)
    return np.column_stack(backend.read(*(arrays if isinstance(arrays, tuple) else (arrays,))))


# ---- calculations with a core: arguments, the way in of a call, and checks after it -------------------------


class Calculation(Fixed):
    """A calculation whose core is made at the first call, or by ``reserve``.

    By default it has one set of charges, and always a virial.
    """

    _core: Any = None
    _fewest = 0  # particles whose error was looked at
    _arguments: dict[str, Any]  # of the constructor, checked
    _splits: Mapping[str, type[Split]] = MappingProxyType({})  # that have names
    _split: type[Split]
    _differentiable: str | None = "energy"  # the function of `apps.pme.torch` and `apps.pme.jax` with derivatives
    _keeps = False  # whether backend and type of the first call are those of all

    def _start(
        self, box: Any, accuracy: float | None, dtype: Any, backend: str | None, threads: int | None, **given: Any
    ) -> None:
        """Take the arguments that all have: ``given`` are cutoff, splitting, bandwidth, shape and window."""
        self.box = box if isinstance(box, pm.Box) else pm.Box(box)
        if self.box.ndim != 3:
            raise ValueError(f"the box is {self.box.ndim}-D; {type(self).__name__} needs a 3-D one.")
        self._rows = unwrapped(self.box).tolist()
        self.accuracy = None if accuracy is None else checks.positive(accuracy, "accuracy")
        splitting, bandwidth = given["splitting"], given.get("bandwidth")
        if isinstance(splitting, str) and self._splits:
            checks.one_of(splitting, "splitting", tuple(self._splits))
        elif splitting is not None:
            given["splitting"] = checks.positive(splitting, "splitting")
        if bandwidth is not None:
            given["bandwidth"] = ProlateGreen(bandwidth, 1.0).bandwidth
            if bandwidth < 2:
                raise ValueError(f"bandwidth is {bandwidth}; give 2 to 40: below it the error is not known.")
            if splitting not in (None, "prolate"):
                raise ValueError(
                    f"bandwidth is {bandwidth} and splitting is {splitting!r}; only the prolate split has a bandwidth: "
                    "leave one of them out."
                )
        if given["cutoff"] is not None:
            given["cutoff"] = checks.positive(given["cutoff"], "cutoff")
        shape = given["shape"]
        if isinstance(shape, int):
            shape = (shape,) * 3
        if shape is not None and np.size(shape) != 3:
            raise ValueError(f"shape is {shape!r}; three numbers of nodes are needed.")
        given["shape"] = None if shape is None else pm.Mesh(shape, self.box).shape
        given["window"] = None if given["window"] is None else pm.window_of(given["window"])
        self._given: dict[str, Any] = given
        self._threads = checks.threads(threads, backend)
        self._dtype = None if dtype is None else checks.real_type(dtype)
        self._named = backend
        self._backend: Any = None if backend is None else kernels.backend(backend)
        self._arguments = dict(
            box=self.box, accuracy=accuracy, **given, dtype=None if self._dtype is None else self._dtype.name,
            backend=backend, threads=self._threads,
        )  # fmt: skip
        self._in_order = kernels.InOrder()
        self.busy = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy chooses again.
        return functools.partial(type(self), **self._arguments), ()

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments that make such an object, checked."""
        return MappingProxyType(self._arguments)

    @property
    def parameters(self) -> Parameters:
        """Cutoff, splitting, mesh and window in use, and the errors expected."""
        if self._core is None:
            raise RuntimeError(f"this {type(self).__name__} has no parameters yet: call it, or reserve.")
        return self._core.parameters

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return 0 if self._core is None else self._core.nbytes

    def _best(self, count: int, dtype: np.dtype, backend: Any, fourth: float, **more: Any) -> tuple[Parameters, str]:
        """Return the parameters for so many particles, some of them given, and a warning or ""."""
        accuracy = max(self.accuracy or _DEFAULT[dtype], FLOOR[dtype])
        numbers = {name: value for name, value in self._given.items() if not isinstance(value, str)} | more
        costs = choosing.costs_on(backend, dtype)
        return choosing.choose(self.box, count, accuracy, costs, split=self._split, fourth=fourth, **numbers)

    def _chosen(self, count: int, dtype: np.dtype, backend: Any, fourth: float, **more: Any) -> Parameters:
        """Return the same, and warn if they miss the accuracy."""
        accuracy, floor = self.accuracy or _DEFAULT[dtype], FLOOR[dtype]
        chosen, expensive = self._best(count, dtype, backend, fourth, **more)
        if expensive:
            warnings.warn(expensive, stacklevel=6)
        reached = math.hypot(chosen.error, floor)
        if self.accuracy is not None and reached > 1.5 * self.accuracy:
            why = "these parameters reach" if any(v is not None for v in self._given.values()) else f"{dtype} reaches"
            warnings.warn(
                f"accuracy {self.accuracy:g} was asked for, and {why} {reached:.1e}: leave parameters out, give a "
                f"finer mesh or a longer cutoff{', or use float64' * (dtype.itemsize < 8)}.",
                stacklevel=6,
            )  # fmt: skip
        if self.accuracy is None and any(v is not None for v in self._given.values()):
            return chosen  # they are the user's
        return replace(chosen, longest=choosing.longest_vectors(chosen, self.box, count, 2 * max(accuracy, reached)))

    # ---- what classes have of their own ---------------------------------------------------------------

    def _make(self, count: int, dtype: np.dtype, backend: Any, fourth: float, **more: Any) -> Core:
        """Return what a step needs, with parameters for so many particles, whose charges have a mean fourth power."""
        raise NotImplementedError

    def _make_for(self, x: np.ndarray, dtype: np.dtype, backend: Any, fourth: float, **systems: Any) -> Any:
        """Return the same for positions (N, 3) on the host, with what `crowding` takes of systems."""
        known, _ = self._best(len(x), dtype, backend, fourth)
        return self._make(len(x), dtype, backend, fourth, crowd=choosing.crowding(known, x, self.box, **systems))

    def _check(self, core: Any) -> None:
        """Raise what is wrong with the last step."""
        raise NotImplementedError

    # ---- before the first step, and after one ---------------------------------------------------------

    @alone
    def reserve(self, count: int) -> Self:
        """Choose parameters, and allocate for ``count`` particles, of all systems if there are several.

        Positions are not known, so particles are taken to be at random places. Crowded ones have larger errors: call
        once instead.

        After that, and one call with the same arrays, calls with ``check=False`` and ``out`` allocate nothing and
        never wait. A CUDA graph can capture them. Systems and their boxes stay where they are: ``system`` is int32 on
        the device, and ``boxes`` on the host.

        Parameters
        ----------
        count : int

        Raises
        ------
        ValueError
            If the backend or dtype is not known: give them to the class, or call it before.
        """
        count, core = self._before(count)
        core.reserve(count, 1, True)
        self._core = core
        return self

    @alone
    def check(self) -> None:
        """Raise the errors of the last call with ``check=False``; waits for the device."""
        core = self._core
        if core is None:
            raise RuntimeError(f"this {type(self).__name__} has made no step yet.")
        with self._in_order.reading(core.owner):  # on whatever stream that call was
            core.grid.check()
            core.solver.plan.check()
            self._check(core)

    def core(self, count: int, dtype: np.dtype, backend: Any, fourth: float = FOURTH) -> Any:
        """Return grid, solver and parameters, made at the first use for such particles; for our own modules."""
        if self._core is None:
            self._core = self._make(count, dtype, backend, fourth)
        return self._core

    def _before(self, count: int) -> tuple[int, Any]:
        """Return a number of particles to reserve for, and the core, which is not yet stored."""
        count, name = checks.integer(count, "count", 0, 2**31 - 1), type(self).__name__
        if self._core is not None:
            return count, self._core
        if self._backend is None or self._dtype is None:
            raise ValueError(f"reserve needs to know where and in which type: give {name} backend= and dtype=.")
        self._fewest = count
        return count, self._make(count, self._dtype, self._backend, FOURTH)

    # ---- a call ---------------------------------------------------------------------------------------

    def _taken(
        self,
        positions: Any,
        check: bool,
        out: Result | None,
        kind: type[Result],
        *,
        sets: bool = False,
        **numbers: Any,
    ) -> tuple[Any, Coordinates, dict[str, kernels.Operand]]:
        """Return backend, coordinates and numbers of the particles, of their type; "dipoles" are vectors.

        Without ``sets`` the numbers have no axes of sets.
        """
        checks.flag(check, "check")
        if out is not None and not isinstance(out, kind):
            raise TypeError(f"out is of type {type(out).__name__}; give a {kind.__name__}, such as an earlier one.")
        if self._differentiable:
            of_axes = positions if isinstance(positions, tuple) else (positions,)
            check_not_recorded(self._differentiable, *of_axes, *numbers.values())
        upload, backend, dtype = self._named is not None, self._backend, self._dtype
        if self._keeps and self._core is not None:
            backend, dtype = self._core.owner, self._core.dtype
        _, backend, x = coordinates(positions, 3, backend, upload=upload, least=dtype)
        if dtype not in (None, x.dtype):
            raise TypeError(
                f"positions have dtype {x.dtype}, more than this {type(self).__name__}'s {dtype}: give dtype='float64'."
            )
        taken = {
            name: kernels.take(
                array, (x.count, *_CORES.get(name, ())), name, batch=sets or name not in _CORES, dtype=x.dtype,
                backend=backend, upload=upload, dense=False,
            )
            for name, array in numbers.items()
        }  # fmt: skip
        for name, operand in taken.items():
            if operand.batch and not sets:
                why = f" with {', '.join(list(numbers)[1:])}" if "charges" in numbers and len(numbers) > 1 else ""
                raise ValueError(f"{name} has shape {operand.user.shape}; one set ({x.count},) is needed{why}.")
        return backend, x, taken

    def _core_for(
        self, x: Coordinates, backend: Any, fourth: Callable[..., float], *charges: Any,
        systems: Callable[[], dict[str, Any]] = dict,
    ) -> Any:  # fmt: skip
        """Return what a step needs: what there is, or what is made for these particles.

        ``fourth`` returns the mean fourth power of charges from arrays on the host, and ``systems`` what `crowding`
        takes of them.
        """
        core = self._core
        if core is not None and (core.dtype, core.owner) == (x.dtype, backend):
            if x.count < 0.7 * self._fewest:
                self._look_at_error(core.parameters, x.count)
            return core
        self._fewest = x.count
        return self._make_for(on_host(x, backend), x.dtype, backend, fourth(*backend.read(*charges)), **systems())

    def _for_widths(self, core: Any, count: int, widths: Any) -> Any:
        """Return the core, or one with a longer cutoff for Gaussians of widths (N,), if it is free and new."""
        if core is self._core or self._given["cutoff"] is not None:
            return core
        host = widths if isinstance(widths, np.ndarray) else core.owner.download(widths)
        largest, most = float(host.max(initial=0.0)), 100 * float(np.abs(self.box.matrix).sum())
        for _ in range(8):  # a longer cutoff has a smaller error, which asks for a longer one
            p = core.parameters
            needed = 1.01 * largest / widest(1.0, max(p.error, FLOOR[core.dtype]))
            if not p.cutoff < needed < most:
                break
            core = self._make(count, core.dtype, core.owner, p.fourth, crowd=p.crowd, cutoff=needed)
        return core

    def _look_at_error(self, known: Parameters, count: int) -> None:
        """Warn if parameters that were chosen for more particles miss their error with so few."""
        self._fewest = count
        if self.accuracy is None and any(value is not None for value in self._given.values()):
            return  # they are the user's
        reached = choosing.error_of(known, self.box, count / getattr(self, "systems", 1))
        if reached > 1.5 * max(known.error, self.accuracy or 0.0):
            warnings.warn(
                f"the parameters were chosen for more particles: with {count} the error is about {reached:.1e} of a "
                f"typical force, not {known.error:.1e}. Make a new {type(self).__name__} for so few.",
                stacklevel=5,
            )
