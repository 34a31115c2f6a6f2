# SPDX-License-Identifier: BSD-3-Clause
"""Particle-mesh Ewald: sizes at construction or at the first call, positions and charges in each call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from particlemesh import kernels
from particlemesh.apps.pme import parameters
from particlemesh.apps.pme.core import FLOOR, Calculation, Core, on_host
from particlemesh.apps.pme.dipoles import DipoleResult, Dipoles
from particlemesh.apps.pme.exclusions import Exclusions
from particlemesh.apps.pme.multipoles import MultipoleResult, Multipoles
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.split import SPLITS, Gaussian, Split
from particlemesh.kernels import Coordinates, alone, checks


class PME(Calculation):
    r"""Electrostatics of a box by particle-mesh Ewald [darden1993]_, [essmann1995]_.

    The interaction ``q_i q_j / r`` is split by a prolate spheroidal wave function [liang2025]_ or by Gaussians. The
    smooth part is solved on a mesh. The short-ranged part is summed over pairs within the cutoff. It includes all
    images, whatever the size of the box. Systems with a net charge have a neutralising background. The surrounding
    medium conducts ("tin foil").

    Along the open axes of a :class:`particlemesh.Box` charges are in free space, with nothing around them. The mesh has
    twice the nodes there, and particles stay within the box.

    By default everything follows from `accuracy`, at the first call, from the number of particles, their charges, and
    where they are crowded. What is given is kept, and the rest is chosen for it. :meth:`explain` tells what was chosen
    and why.

    Parameters
    ----------
    box : Box, lengths or matrix
        Three axes; rows of a matrix are the lattice vectors. Lengths and matrices are periodic. A box with open axes is
        orthorhombic.
    accuracy : float, optional
        Expected root-mean-square error of the forces, relative to a typical force: that of two charges of
        root-mean-square size at the mean distance ``(volume / N)**(1/3)``. By default 1e-6, in float32 1e-5.
    cutoff : float, optional
        Of pairs, in the user's length unit; it may be larger than the box.
    splitting : {"prolate", "gaussian"} or float, optional
        How ``1 / r`` is split. By default "prolate", which needs the smallest mesh, and from the first call with
        dipoles on "gaussian", which chooses again. A number is the inverse width of a Gaussian, called alpha or beta
        elsewhere: the sum over pairs has the factor ``erfc(splitting * r)``.
    bandwidth : float, optional
        c of the prolate split, 1 to 40. Its error is about ``exp(-c)``.
    shape : int or ints, optional
        Nodes of the mesh along each axis.
    window : Window or str, optional
        Such as ``"bspline5"``; a B-spline's order is its support.
    coulomb_constant : float
        Multiplies energies: 138.93545764438206 for kJ/mol, nm and elementary charges.
    exclusions : array_like (M, 2), optional
        Pairs of particles, each once, whose interaction of nearest images is multiplied with a factor.
    factors : float or array_like (M,)
        These factors: 0 excludes, 0.8333 scales as for 1-4 pairs of some force fields.
    skin : float, optional
        Keep a list of pairs up to ``cutoff + skin`` until a particle has moved by half of the skin; results are the
        same to rounding. On the CPU, for steps that move particles little.
    gradient : {"window", "ik"}
        As for :class:`particlemesh.fourier.Solver`: the exact gradient of the energy, or forces that sum to zero.
    deterministic : bool
        The same bits for the same call on the same device; not with a skin.
    dtype : {"float32", "float64"}, optional
        Of positions and charges; by default that of the first positions.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default where the arrays are. If named, host arrays are copied there and back.
    threads : int, optional
        Most threads on the CPU.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is. The first call raises it if what was given needs a
        mesh that takes a hundred times as long as free parameters.

    Warns
    -----
    UserWarning
        If the accuracy cannot be reached with what was given; the message says what is reached. If it needs such a
        mesh that takes less than 0.1 s on a CPU.

    Examples
    --------
    The Madelung constant of rock salt:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import PME
    >>> ions = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], float)
    >>> pme = PME((2.0, 2.0, 2.0), accuracy=1e-10)
    >>> result = pme(ions, (-1.0) ** ions.sum(1))
    >>> round(float(-result.energy / 4), 8)
    1.74756459
    >>> round(float(np.trace(result.virial) / result.energy), 6)
    -1.0
    """

    _splits = SPLITS
    _keeps = True
    _fourth: Any = staticmethod(parameters.fourth_power)
    _reference: tuple[Any, PME] | None = None  # for errors, and what it is for
    _applications = 1  # of the mesh for each set of positions

    def __init__(
        self, box: Any, accuracy: float | None = None, *, cutoff: float | None = None,
        splitting: float | str | None = None, bandwidth: float | None = None, shape: Any = None, window: Any = None,
        coulomb_constant: float = 1.0, exclusions: Any = None, factors: Any = 0.0, skin: float | None = None,
        gradient: str = "window", deterministic: bool = False, dtype: Any = None, backend: str | None = None,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        self._start(
            box, accuracy, dtype, backend, threads, cutoff=cutoff, splitting=splitting, bandwidth=bandwidth,
            shape=shape, window=window,
        )  # fmt: skip
        name = self._given["splitting"]
        self._split: type[Split] = Gaussian if isinstance(name, float) else SPLITS[name or "prolate"]
        self._closed = all(self.box.periodic)
        if not (self._closed or self.box.orthorhombic):
            raise ValueError(
                f"the box is triclinic and periodic along {self.box.periodic} only: give an orthorhombic one, or make "
                "every axis periodic."
            )
        if self.accuracy is not None and self.accuracy >= 1:
            raise ValueError(
                f"accuracy is {accuracy}; the relative error of forces is below 1: give 1e-4, for example."
            )
        self.coulomb_constant = checks.positive(coulomb_constant, "coulomb_constant")
        self.exclusions = Exclusions(exclusions, factors)
        self.skin = None if skin is None else checks.positive(skin, "skin")
        self._options = dict(
            gradient=checks.one_of(gradient, "gradient", ("window", "ik")),
            deterministic=checks.flag(deterministic, "deterministic"),
        )
        if deterministic and skin is not None:
            raise ValueError("with a skin threads share sums in any order: leave out skin, or deterministic.")
        self._arguments |= dict(
            coulomb_constant=coulomb_constant, exclusions=self.exclusions.pairs, factors=self.exclusions.factors,
            skin=skin, **self._options,
        )  # fmt: skip

    def __repr__(self) -> str:
        core = self._core
        if core is None:
            return f"<{type(self).__name__} of {self.box!r}: parameters are chosen at the first call>"
        p = core.parameters
        nodes = " x ".join(map(str, p.shape))
        return f"<{type(self).__name__}: cutoff {p.cutoff:.4g}, {p.split}, mesh {nodes}, {p.window.name}>"

    @alone
    def reserve(
        self, count: int, sets: int = 1, *, virial: bool = True, dipoles: bool = False, quadrupoles: bool = False
    ) -> Self:
        """Choose parameters, and allocate for ``count`` particles and so many sets of charges.

        Positions are not known, so charges are taken to be at random places. Crowded ones have larger errors: call once
        instead.

        After that, and one call with the same arrays, calls with ``check=False`` and ``out`` allocate nothing and
        never wait: a CUDA graph can capture them.

        Parameters
        ----------
        count, sets : int
        virial, dipoles, quadrupoles : bool
            Also for the virial, for calls with dipoles, and for those with quadrupoles or widths.

        Raises
        ------
        ValueError
            If the backend or dtype is not known: give them to PME, or call it before.
        """
        kinds = [DipoleResult] * checks.flag(dipoles, "dipoles")
        kinds += [MultipoleResult] * checks.flag(quadrupoles, "quadrupoles")
        if kinds:
            self._choose_for_dipoles()
        count, core = self._before(count)
        virial = checks.flag(virial, "virial")
        steps = [self._steps(core, kind) for kind in kinds]
        core.reserve(count, checks.integer(sets, "sets", 1, 2**31 - 1), virial)
        for each in steps:
            each.reserve(count, virial)
        self._core = core
        return self

    # ---- a step ---------------------------------------------------------------------------------------

    @alone
    def __call__(
        self, positions: Any, charges: Any, *, dipoles: Any = None, quadrupoles: Any = None, widths: Any = None,
        virial: bool = True, fields: bool = False, error: bool = False, check: bool = True,
        out: Result | None = None,
    ) -> Result:  # fmt: skip
        """Return energy, forces and virial.

        On a GPU, calls with ``check=False`` and ``out`` after :meth:`reserve` allocate nothing and never wait. Make
        one, then a CUDA graph can capture the next.

        Parameters
        ----------
        positions : array (N, 3), or tuple of 3 arrays (N,)
            Anywhere: they are folded into the box, but not along open axes.
        charges : array (..., N)
            Leading axes are sets of charges at the same positions, which interact within their set.
        dipoles : array (N, 3), optional
            Point dipoles of the particles; with one set of charges. The result is a :class:`DipoleResult`, which has
            fields and torques. Its virial is at fixed dipoles. Errors of dipoles are larger than those of charges, and
            :meth:`explain` estimates them after a call. Then give a smaller ``accuracy``.
        quadrupoles : array (N, 3, 3), optional
            Symmetric: ``Q[a, b]`` is the sum of ``charge * x_a * x_b`` about the particle, without a factor. Its energy
            in a potential is ``sum(Q * second derivatives) / 2``. A trace has no field outside of the particle. It
            shifts the potential in a periodic box by ``2 pi / 3`` of it over the volume. It acts where Gaussians
            overlap. The result is a :class:`MultipoleResult`.
        widths : array (N,), optional
            Standard deviations of Gaussians in the place of points; 0 is a point. Two have ``erf(r / w) / r`` instead
            of ``1 / r``, with ``w**2 = 2 * (s_i**2 + s_j**2)``. A particle's own Gaussian is left out. At the cutoff
            they have to be points. The result is a :class:`MultipoleResult`.
        virial : bool
            Whether the result has a virial.
        fields : bool
            Whether the result has potentials and fields; with dipoles, quadrupoles or widths it always has.
        error : bool
            Whether the result has the error of its forces over a typical force, as `accuracy` is defined. It is
            measured by forces of the same charges in float64. These are split the other way: by Gaussians instead of
            the prolate function, or the reverse. Their parameters are chosen for a hundredth of the error, at least
            1e-12. It takes two to four times as long as a step, and waits. A typical force of dipoles and quadrupoles
            is that of two particles with all of their mean squares. For them parameters are for a ten-thousandth of
            the error.
        check : bool
            If False, bad particles and charges are not looked for; :meth:`check` raises their errors later.
        out : Result, optional
            Whose arrays to write; with dipoles, a :class:`DipoleResult`, with others a :class:`MultipoleResult`.

        Returns
        -------
        Result
            Arrays of the library, device and type of the charges; the energy of one set on the CPU is a number.

        Raises
        ------
        ValueError
            If a number is not finite, shapes do not fit, or particles lie in exactly one place whose factor is not 0.
            At the least distance that positions can have, forces are finite and large.

        Examples
        --------
        Two dipoles in line in a large box attract each other with ``-2 mu mu / r**3``:

        >>> import math
        >>> import numpy as np, particlemesh as pm
        >>> from particlemesh.apps.pme import PME
        >>> pme = PME((24.0,) * 3, cutoff=6.0, splitting=0.9, shape=(64,) * 3, window="bspline8")
        >>> x, mu = np.array([[10.0, 12.0, 12.0], [11.0, 12.0, 12.0]]), np.array([[1.0, 0.0, 0.0]] * 2)
        >>> result = pme(x, np.zeros(2), dipoles=mu)
        >>> round(float(result.energy), 2), bool(np.allclose(result.torques, 0, atol=1e-6))
        (-2.0, True)

        Two Gaussian charges in one large box attract each other with ``erf(r / w) / r``:

        >>> result = pme(x, np.array([1.0, -1.0]), widths=np.full(2, 0.4))
        >>> round(float(result.energy), 2), round(-math.erf(1 / 0.8), 2)
        (-0.92, -0.92)

        Potential and field at a distance of 1 from a charge, where a probe without charge is:

        >>> pme = PME(pm.Box((4.0,) * 3, periodic=False), accuracy=1e-6)
        >>> result = pme(np.array([[2.0, 2.0, 1.5], [2.0, 2.0, 2.5]]), np.array([1.0, 0.0]), fields=True)
        >>> round(float(result.potentials[1]), 4), round(float(result.fields[1, 2]), 4)
        (1.0, 1.0)

        The error of forces, measured:

        >>> rng = np.random.default_rng(1)
        >>> pme = PME((3.0,) * 3, accuracy=1e-4)
        >>> error = pme(3 * rng.random((200, 3)), np.tile([1.0, -1.0], 100), error=True).error
        >>> 0.3e-4 < error < 1.3e-4, round(pme.parameters.error / error)
        (True, 1)
        """
        given = {"charges": charges, "dipoles": dipoles, "quadrupoles": quadrupoles, "widths": widths}
        numbers = {name: array for name, array in given.items() if array is not None or name == "charges"}
        kind = {1: Result, 2: DipoleResult if "dipoles" in numbers else MultipoleResult}.get(
            len(numbers), MultipoleResult
        )

        def accepted() -> tuple[str, Any]:
            flags = checks.flag(virial, "virial"), checks.flag(fields, "fields")
            checks.flag(error, "error")
            backend, x, taken = self._taken(positions, check, out, kind, sets=len(numbers) == 1, **numbers)
            if len(numbers) > 1 and self._options["gradient"] != "window":
                raise ValueError(
                    f"gradient is 'ik', and {list(numbers)[1]} need slopes of the window: leave out one of them."
                )
            said = f"{list(numbers)}, sets {taken['charges'].batch}, {flags}, {error}, {out is None}, {check=}"
            return f"a step of {x.dtype} on {backend.name}, {said}", (*flags, backend, x, taken)

        virial, fields, backend, x, taken = self._alike(accepted)
        if len(numbers) > 1:
            self._choose_for_dipoles()
        with self._in_order(*taken.values()):
            core = self._core_for(x, backend, self._fourth, taken["charges"].native)
            if "widths" in taken:
                core = self._for_widths(core, x.count, taken["widths"].native)
            step = self._steps(core, kind)
            result = core.result(step, kind, taken, x, virial, check, out, number=out is None, fields=fields)
            if check and not core.clean:
                self._check(core)
            self._core = core
            if error:
                result.error = self._measured(core, result, x, taken)
            return result

    @alone
    def explain(self) -> str:
        """Return the parameters in use, and the errors and the time expected, in ten lines at most.

        Errors of charges follow from the parameters, those of dipoles and quadrupoles also from their sizes in the last
        call. With the prolate split the latter are right within a factor of four.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.pme import PME
        >>> pme = PME((3.0, 3.0, 3.0), accuracy=1e-4)
        >>> result = pme(np.random.default_rng(1).random((100, 3)) * 3, np.ones(100))
        >>> print(pme.explain())  # doctest: +ELLIPSIS
        accuracy asked for: 0.0001, expected: ...
        >>> len(pme.explain().splitlines())
        7
        """
        core, _ = self._core, self.parameters  # an error if there are none
        pairs = f"a list, made {core.list.builds} times, skin {self.skin:g}" if core.list else "without a list"
        with self._in_order.reading(core.owner):
            return self._explained(core, f"pairs: {pairs}; gradient {self._options['gradient']!r}")

    def _explained(self, core: Any, *more: str) -> str:
        """Return what `explain` does, for the core of this or of a batch of such."""
        p, floor, last = core.parameters, FLOOR[core.dtype], core.last
        given = [name for name, value in self._given.items() if value is not None]
        asked, expected = "none" if self.accuracy is None else f"{self.accuracy:g}", math.hypot(p.error, floor)
        lines = [
            f"accuracy asked for: {asked}, expected: {expected:.1e} of a typical force of charges",
            f"  pairs within the cutoff {p.real_error:.1e}, mesh {p.mesh_error:.1e}, rounding {floor:.0e}",
        ]
        if p.crowd != parameters.NOT_CROWDED:
            lines.append(f"  {p.crowd}")
        if last is not None:
            rows = core.backend.download(last.take("values", core.count, last.width))
            error = parameters.error_of_moments(p, self.box, core.count / max(core.systems, 1), rows)
            lines.append(f"  with the moments of the last call: {math.hypot(error, floor):.1e} of their typical force")
        return "\n".join(
            [
                *lines, f"cutoff {p.cutoff:.6g}, {p.split}",
                f"mesh {' x '.join(map(str, p.shape))}, window {p.window.name}",
                f"given: {', '.join(given) or 'nothing'}; the rest for the least time predicted, {p.seconds:.2g} s",
                *more, f"excluded or scaled: {len(core.exclusions)}; {core.nbytes:,} bytes",
            ]
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return super().nbytes + (0 if self._reference is None else self._reference[1].nbytes)

    # ---- how it is done -----------------------------------------------------------------------------------

    def _measured(self, core: Any, result: Result, x: Coordinates, taken: Mapping[str, kernels.Operand]) -> Any:
        """Return the errors of sets of forces over a typical one, by a calculation that shares no parameter."""
        owner, host = core.owner, on_host(x, core.owner).astype(np.float64)
        numbers = {name: owner.read(o.native)[0].astype(np.float64) for name, o in taken.items()}
        count = max(self._total(np.ones(len(host))), 1)
        expected = math.hypot(core.parameters.error, FLOOR[core.dtype])
        splitting = "prolate" if isinstance(core.split, Gaussian) else "gaussian"
        # Errors of moments are many times those of charges, the more the smaller they are.
        key = count, splitting, min(max(expected / (100 if len(numbers) == 1 else 10_000), 1e-12), 1e-2)
        if self._reference is None or self._reference[0] != key:
            self._reference = key, self._another(accuracy=key[2], splitting=splitting)
        double = core.on_gpu and owner.facts().get("HAS_FP64", 1)
        there, *others = (owner.upload(a) if double else a for a in (host, *numbers.values()))
        exact = self._reference[1](there, **dict(zip(numbers, others, strict=True)), virial=False).forces
        wrong = kernels.to_host(result.forces, "forces") - kernels.to_host(exact, "forces")
        distance, sizes = (self.box.volume / count) ** (1 / 3), numbers["charges"] ** 2
        if len(numbers) > 1:
            rows, (i, j) = np.zeros((len(host), 10)), np.triu_indices(3)
            rows[:, 0], rows[:, 1:4] = numbers["charges"], numbers.get("dipoles", 0.0)
            rows[:, 4:] = numbers.get("quadrupoles", np.zeros((1, 3, 3)))[:, i, j]
            sizes = parameters.sizes_of(rows, 1 / distance)
        typical = self.coulomb_constant * np.asarray(self._total(sizes)) / count / distance**2
        some = typical[..., None, None] > 0  # ratios before squares, which a type may not hold
        ratios = np.divide(wrong, typical[..., None, None], out=np.zeros(wrong.shape), where=some)
        errors = np.sqrt(self._total((ratios**2).sum(-1)) / count)
        return errors if errors.ndim else float(errors)

    def _another(self, **given: Any) -> PME:
        """Return a calculation of the same charges in float64, with parameters of its own."""
        free = dict.fromkeys(("cutoff", "bandwidth", "shape", "window", "skin", "backend"))
        return PME(**{**self._arguments, **free, "gradient": "window", "dtype": "float64", **given})

    def _total(self, numbers: np.ndarray) -> Any:
        """Return sums over particles (..., N)."""
        return numbers.sum(-1)

    def _alike(self, accepted: Callable[[], tuple[str, Any]]) -> Any:
        """Return what was accepted; ranks compare what they say."""
        return accepted()[1]

    def _choose_for_dipoles(self) -> None:
        """Choose Gaussians before the first dipoles come, unless the split is given: their error rises less by these.

        What the prolate split leaves out has wavenumbers from its edge on. Forces of dipoles have two more factors of
        them, and had 2.5 to 7 times the error at the same accuracy (pme-dipoles-amd-epyc-2-threads.csv).
        """
        if self._split is not Gaussian and self._given["splitting"] is None and self._given["bandwidth"] is None:
            self._split, self._core = Gaussian, None

    def _steps(self, core: Core, kind: type[Result]) -> Any:
        """Return what makes steps with results of a kind."""
        if kind is MultipoleResult:
            core.multipoles = core.multipoles or Multipoles(core)
            return core.multipoles
        if kind is DipoleResult:
            core.dipoles = core.dipoles or Dipoles(core)
            return core.dipoles
        return core

    def _make(self, count: int, dtype: np.dtype, backend: Any, fourth: float, **more: Any) -> Core:
        if backend.name != "cpu" and self.skin is not None:
            raise ValueError("skin is for the CPU: a GPU sums over neighbours without a list. Leave skin out.")
        chosen = self._chosen(count, dtype, backend, fourth, **more)
        return Core(
            self.box, chosen, backend, dtype, self.coulomb_constant, self.exclusions, self.skin,
            named=self._named, threads=self._threads, count=count, applications=self._applications,
            **self._options,
        )  # fmt: skip

    def _check(self, core: Core) -> None:
        """Raise what is wrong with the last step."""
        wrong = core.errors()
        if wrong.touching:
            raise ValueError(
                f"particles lie on top of each other: {core.first_touching()} is in the place of another one. "
                "Move one of them, or exclude the pair."
            )
        for what, first in (("charges", wrong.bad), ("dipoles", wrong.other)):
            if first is not None:
                raise ValueError(f"{what} are not finite; the first is that of particle {first}.")
        if core.multipoles is not None:
            core.multipoles.check(wrong, lambda k: f"particle {k}")
        wrong.check_results("the energy", "charges")
