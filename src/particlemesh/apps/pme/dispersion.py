# SPDX-License-Identifier: BSD-3-Clause
"""Lattice sums of r**-6, alone or in the Lennard-Jones potential, by particle-mesh Ewald.

On the mesh the coefficient of a pair is a product of two numbers of the particles.
Within the cutoff any rule of mixing is possible: the pair function takes back what the mesh has counted.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import parameters
from particlemesh.apps.pme.calculation import Calculation
from particlemesh.apps.pme.exclusions import KnownPairs
from particlemesh.apps.pme.lennard_jones import LennardJones
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.sixth_power import MIXING
from particlemesh.kernels import alone, checks, coordinates

_NOTHING: Mapping[str, kernels.Operand] = MappingProxyType({})


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
    shape : ints, optional
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
        self.box = pm.Box.of(box)
        if self.box.ndim != 3:
            raise ValueError(f"the box has {self.box.ndim} axes; Ewald sums need 3.")
        if not all(self.box.periodic):
            raise ValueError(f"axis {self.box.periodic.index(False)} is open; Ewald sums need every axis periodic.")
        self.mixing = checks.one_of(mixing, "mixing", MIXING)
        self.shift = checks.flag(shift, "shift")
        self.accuracy = None if accuracy is None else checks.positive(accuracy, "accuracy")
        self._given: dict[str, Any] = dict(
            cutoff=None if cutoff is None else checks.positive(cutoff, "cutoff"),
            splitting=None if splitting is None else checks.positive(splitting, "splitting"),
            shape=None if shape is None else pm.Mesh(shape, self.box).shape,
            window=None if window is None else pm.window_of(window),
        )
        self._threads = None if threads is None else checks.integer(threads, "threads", 1, 4096)
        self._dtype = None if dtype is None else checks.real_type(dtype)
        self._named = backend
        self._arguments = dict(
            box=self.box, accuracy=accuracy, mixing=mixing, shift=shift, backend=backend, threads=threads,
            dtype=None if self._dtype is None else self._dtype.name, **self._given,
        )  # fmt: skip
        self._backend: Any = None if backend is None else kernels.backend(backend)
        self._core: LennardJones | None = None
        self._known = KnownPairs()
        self._in_order = kernels.InOrder()
        self.busy = threading.RLock()

    @property
    def parameters(self) -> parameters.Parameters | None:
        """Cutoff, splitting, mesh and window in use, and the errors expected; None before the first call."""
        return None if self._core is None else self._core.parameters

    def _core_for(self, count: int, dtype: np.dtype, backend: Any) -> LennardJones:
        """Return what a step needs: what there is, or parameters chosen for so many particles of a type."""
        core = self._core
        if core is not None and (core.dtype, core.owner) == (dtype, backend):
            return core
        target = self.accuracy or (1e-6 if dtype.itemsize == 8 else 1e-5)
        costs = parameters.CPU if backend.name == "cpu" else parameters.GPU
        p, expensive = parameters.choose(self.box, count, target, costs, decay=DECAY, **self._given)
        if expensive:
            warnings.warn(expensive, stacklevel=4)
        if self.accuracy is not None and p.error > 1.05 * self.accuracy:
            warnings.warn(
                f"accuracy {self.accuracy:g} is not reached with {self._given}: about {p.error:.1e} is expected. "
                "Give fewer of these parameters, or larger meshes and cutoffs.",
                stacklevel=4,
            )
        return LennardJones(self.box, p, backend, dtype, self.mixing, self.shift, self._threads, self._named)

    def explain(self) -> str:
        """Return the parameters in use and the errors that they should make."""
        p = self.parameters
        if p is None:
            return "parameters are chosen at the first call"
        nodes = " x ".join(map(str, p.shape))
        return (
            f"cutoff {p.cutoff:.4g}, splitting {p.splitting:.4g}, {nodes} nodes, {p.window.name}, "
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
        checks.flag(check, "check")
        if out is not None and not isinstance(out, Result):
            raise TypeError(f"out is of type {type(out).__name__}; give a Result, such as an earlier one.")
        backend, upload = self._backend, self._named is not None
        _, backend, x = coordinates(positions, 3, backend, upload=upload, least=self._dtype)
        if self._dtype not in (None, x.dtype):
            raise TypeError(f"positions have dtype {x.dtype}, more than {self._dtype}: give dtype='float64'.")
        given = {"coefficients": coefficients} if sigma is None else {"sigma": sigma, "epsilon": epsilon}
        taken = {
            name: kernels.take(array, (x.count,), name, dtype=x.dtype, backend=backend, upload=upload, dense=False)
            for name, array in given.items()
        }
        for name, operand in taken.items():
            if operand.batch:
                raise ValueError(f"{name} has shape {operand.user.shape}; one set ({x.count},) is needed.")
        pairs = self._known.of(exclusions, factors, x.count)
        like = next(iter(taken.values()))
        with self._in_order(*taken.values()):
            core = self._core_for(x.count, x.dtype, backend)
            core.exclusions = pairs
            results, outputs = core.outputs(like, x.count, True, out)
            natives = [core.dense(name, o.native, (x.count,), copy=True) for name, o in taken.items()]
            core.step(positions, x, (natives[0], natives[1] if len(natives) > 1 else None), outputs, check)
            self._core = core
            if check:
                self._check(core, taken)
            return core.finished(results, outputs, out is None)

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


# ---- errors, from which cutoff, splitting, window and mesh follow ---------------------------------------------


def real_error(beta: float, cutoff: float, distance: float) -> float:
    """Return the root mean square of the forces beyond the cutoff, over that of a pair at the mean distance.

    Particles at random places, of ``distance**-3`` per volume, pull with the force of the real-space part.
    """
    x2 = (beta * cutoff) ** 2
    force = math.exp(-min(x2, 700.0)) * (6 + 6 * x2 + 3 * x2**2 + x2**3) / cutoff**7
    return force * math.sqrt(math.pi / x2) * (cutoff / distance) ** 1.5 * distance**7 / 6


def splitting_for(error: float, cutoff: float, distance: float) -> float:
    """Return the splitting with which the cutoff makes an error."""
    low, high = 0.1 / cutoff, 26.0 / cutoff
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if real_error(middle, cutoff, distance) > error else (low, middle)
    return high


def mesh_share(beta: float, distance: float) -> float:
    """Return the error of the mesh over that of charges with the same splitting, at most.

    At every wave vector the transform is at most that of charges times ``sqrt(pi) beta**5 / 2``.
    """
    return math.sqrt(math.pi) * (beta * distance) ** 5 / 12


DECAY = parameters.Decay(real_error, splitting_for, mesh_share)
