# SPDX-License-Identifier: BSD-3-Clause
"""Lattice sums of r**-6, alone or in the Lennard-Jones potential, by particle-mesh Ewald.

On the mesh the coefficient of a pair is a product of two numbers of the particles.
Within the cutoff any rule of mixing is possible: the pair function takes back what the mesh has counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from particlemesh import kernels
from particlemesh.apps.pme import parameters
from particlemesh.apps.pme.calculation import Calculation
from particlemesh.apps.pme.core import Result
from particlemesh.apps.pme.exclusions import KnownPairs
from particlemesh.apps.pme.lennard_jones import MIXING, LennardJones
from particlemesh.apps.pme.split import SixthPower
from particlemesh.kernels import alone, checks

_NOTHING: Mapping[str, kernels.Operand] = MappingProxyType({})


def _fourth_power(*numbers: np.ndarray) -> float:
    """Return that of coefficients, or of those of sigma and epsilon."""
    with np.errstate(invalid="ignore", over="ignore"):  # the step names what is wrong
        return parameters.fourth_power(numbers[0] if len(numbers) == 1 else numbers[0] ** 3.0 * np.sqrt(numbers[1]))


class Dispersion(Calculation):
    """The interaction of all images by ``-c_i c_j / r**6``, or by Lennard-Jones potentials with this tail.

    ``4 epsilon ((sigma / r)**12 - (sigma / r)**6)`` has two rules of mixing. With "geometric" epsilon and sigma of a
    pair are geometric means, and the sum over all images is exact. With "lorentz-berthelot" sigma is the arithmetic
    mean within the cutoff; beyond it the mesh has the geometric mean, as in GROMACS and OpenMM [eastman2017]_. The
    repulsion ends at the cutoff.

    Parameters
    ----------
    box : Box, lengths or matrix
        Periodic along all three axes.
    accuracy : float, optional
        Root mean square error of the forces, over the force of a pair at the mean distance. By default 1e-6 for
        float64 and 1e-5 for float32. It chooses what is not given of the next four.
    cutoff : float, optional
        Of the sum over pairs. Give it for Lennard-Jones potentials, which are truncated there.
    splitting : float, optional
        Inverse width beta of the smooth part.
    shape : int or ints, optional
        Nodes of the mesh.
    window : Window or str, optional
    mixing : {"geometric", "lorentz-berthelot"}
    shift : bool
        Subtract a pair's energy at the cutoff, so that energies are continuous there.
    dtype, backend, threads
        As for :class:`particlemesh.Plan`.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed, or particles lie in one place; the message says what is. At the first call, if
        a mesh would be too expensive, as for :class:`PME`.

    Examples
    --------
    Argon in a face-centred lattice; its lattice sum is 14.45392104:

    >>> import numpy as np
    >>> from particlemesh.apps.pme import Dispersion
    >>> cell = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2**0.5
    >>> argon = Dispersion((2**0.5,) * 3, accuracy=1e-8)
    >>> energy = argon(cell, np.ones(4)).energy
    >>> round(float(-2 * energy / 4), 6)
    14.453921
    """

    def __init__(
        self, box: Any, accuracy: float | None = None, *, cutoff: float | None = None, splitting: float | None = None,
        shape: Any = None, window: Any = None, mixing: str = "geometric", shift: bool = False, dtype: Any = None,
        backend: str | None = None, threads: int | None = None,
    ) -> None:  # fmt: skip
        self._start(
            box, accuracy, dtype, backend, threads, cutoff=cutoff, splitting=splitting, shape=shape, window=window
        )
        if not all(self.box.periodic):
            raise ValueError(f"axis {self.box.periodic.index(False)} is open; Ewald sums need every axis periodic.")
        self.mixing = checks.one_of(mixing, "mixing", MIXING)
        self.shift = checks.flag(shift, "shift")
        self._arguments |= dict(mixing=mixing, shift=shift)
        self._known = KnownPairs()

    @property
    def parameters(self) -> parameters.Parameters | None:  # type: ignore[override]
        """Cutoff, splitting, mesh and window in use, and the errors expected; None before the first call."""
        return None if self._core is None else self._core.parameters

    def _make(self, count: int, dtype: np.dtype, backend: Any, fourth: float) -> LennardJones:
        target = self.accuracy or (1e-6 if dtype.itemsize == 8 else 1e-5)
        costs = parameters.CPU if backend.name == "cpu" else parameters.GPU
        p, expensive = parameters.choose(self.box, count, target, costs, split=SixthPower, fourth=fourth, **self._given)
        if expensive:
            warnings.warn(expensive, stacklevel=5)
        if self.accuracy is not None and p.error > 1.05 * self.accuracy:
            warnings.warn(
                f"accuracy {self.accuracy:g} is not reached with {self._given}: about {p.error:.1e} is expected. "
                "Give fewer of these parameters, or larger meshes and cutoffs.",
                stacklevel=5,
            )
        return LennardJones(
            self.box, p, backend, dtype, mixing=self.mixing, shift=self.shift, named=self._named,
            threads=self._threads, count=count,
        )  # fmt: skip

    def explain(self) -> str:
        """Return the parameters in use and the errors that they should make."""
        p = self.parameters
        if p is None:
            return "parameters are chosen at the first call"
        nodes = " x ".join(map(str, p.shape))
        return (
            f"cutoff {p.cutoff:.4g}, {p.split}, {nodes} nodes, {p.window.name}, "
            f"mixing {self.mixing}; "
            f"expected errors {p.real_error:.1e} beyond the cutoff and {p.mesh_error:.1e} of the mesh"
        )

    @alone
    def __call__(
        self, positions: Any, coefficients: Any = None, *, sigma: Any = None, epsilon: Any = None,
        exclusions: Any = None, factors: Any = 0.0, check: bool = True, out: Result | None = None,
    ) -> Result:  # fmt: skip
        """Return energy, energies (N,), forces (N, 3) and virial (3, 3).

        Parameters
        ----------
        positions : array (N, 3), or tuple of 3 arrays (N,)
        coefficients : array (N,), optional
            c of ``-c_i c_j / r**6``, or else:
        sigma, epsilon : array (N,), optional
            Of Lennard-Jones potentials.
        exclusions : integers (M, 2), optional
            Pairs of particles, each once, whose interaction of nearest images is multiplied with a factor.
        factors : float or array_like (M,)
            These factors: 0 excludes.
        check : bool
            If False, bad particles and numbers are not looked for; :meth:`check` raises their errors later.
        out : Result, optional
            Whose arrays to write.

        Raises
        ------
        ValueError
            If a position or number is not finite, sigma or epsilon are negative, or shapes do not fit. If particles
            that are not excluded lie in one place.
        """
        if (coefficients is None) == (sigma is None) or (sigma is None) != (epsilon is None):
            raise TypeError("give either coefficients, or sigma and epsilon.")
        numbers = {"coefficients": coefficients} if sigma is None else {"sigma": sigma, "epsilon": epsilon}
        backend, x, taken = self._taken(positions, check, out, Result, **numbers)
        for name, operand in taken.items():
            if operand.batch:
                raise ValueError(f"{name} has shape {operand.user.shape}; one set ({x.count},) is needed.")
        pairs = self._known.of(exclusions, factors, x.count)
        with self._in_order(*taken.values()):
            core = self._core_for(x, backend, _fourth_power, *(operand.native for operand in taken.values()))
            core.exclusions = pairs
            result = core.result(core, Result, taken, x, True, check, out, number=out is None)
            self._core = core
            if check and not core.clean:
                self._check(core, taken)
            return result

    def _check(self, core: LennardJones, taken: Mapping[str, kernels.Operand] = _NOTHING) -> None:
        """Raise what was wrong with the numbers of the last step."""
        wrong = core.errors()
        if wrong.negative is not None:
            raise ValueError(f"sigma or epsilon of particle {wrong.negative} is negative; give numbers of at least 0.")
        if wrong.touching:
            raise ValueError(
                f"particle {core.first_touching()} lies where another one lies: r**-6 is infinite; move one of them, "
                "or exclude the pair."
            )
        if wrong.infinite is not None:
            for name, operand in taken.items():
                bad = np.flatnonzero(~np.isfinite(core.owner.download(operand.native)))
                if len(bad):
                    raise ValueError(f"{name} has {len(bad)} elements that are not finite; the first is {bad[0]}.")
            if wrong.bad is not None:
                raise ValueError(f"numbers are not finite; the first is that of particle {wrong.bad}.")
            raise ValueError("the energy is not finite: numbers are too large, or particles too near each other.")
