# SPDX-License-Identifier: BSD-3-Clause
"""Lattice sums of r**-6, alone or in the Lennard-Jones potential, by particle-mesh Ewald.

On the mesh the coefficient of a pair is a product of two numbers of the particles.
Within the cutoff any rule of mixing is possible: the pair function takes back what the mesh has counted.
"""

from __future__ import annotations

import functools
import math
import threading
import warnings
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh.apps.pme import parameters
from particlemesh.apps.pme.natives import NEIGHBOURS, Natives, nearest
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.sixth_power import MIXING, pair_function, smooth_dispersion, transform, transform_slope
from particlemesh.fourier import Solver, good_size
from particlemesh.kernels import alone, checks

# ---- parameters -----------------------------------------------------------------------------------------


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


def choose(
    box: pm.Box, count: int, accuracy: float, costs: parameters.Costs, *, cutoff: float | None,
    splitting: float | None, shape: tuple[int, ...] | None, window: pm.Window | None,
) -> parameters.Parameters:  # fmt: skip
    """Return the cheapest parameters that reach an accuracy; those given are kept."""
    distance = (box.volume / max(count, 1)) ** (1 / 3)
    lengths = box.lengths  # the window is a function of the product of wave and lattice vectors
    share, best = accuracy / math.sqrt(2), None
    reach = max(2 * distance, min(20 * distance, 4 * float(lengths.max())))
    for rc in [cutoff] if cutoff is not None else np.geomspace(0.7 * distance, reach, 16):
        pairs = 4 / 3 * math.pi * (rc / distance) ** 3
        if best is not None and (False, costs.seconds(count, pairs, 0, 1)) > best[0]:
            break  # the pairs alone take longer
        beta = splitting if splitting is not None else splitting_for(share, float(rc), distance)
        scale = mesh_share(beta, distance)
        for each in [window] if window is not None else map(pm.bspline, parameters.ORDERS):
            nodes = shape
            if nodes is None:
                h = parameters.spacing_for(each, beta, share / scale, distance)
                nodes = tuple(good_size(math.ceil(t / h)) for t in lengths)
            if math.prod(nodes) > 2**33:
                continue
            errors = (
                real_error(beta, rc, distance),
                scale * parameters.mesh_error(each, beta, (lengths / nodes).tolist(), distance),
            )
            seconds = costs.seconds(count, pairs, each.support, math.prod(nodes))
            found = parameters.Parameters(float(rc), beta, nodes, each, *errors, seconds)
            misses = found.error > 1.05 * accuracy
            rank = misses, found.error if misses else seconds
            if best is None or rank < best[0]:
                best = rank, found
    if best is None:
        raise ValueError(f"no mesh below 2**33 nodes reaches accuracy {accuracy:g} in {box!r}: give a larger cutoff.")
    return best[1]


# ---- the calculation ------------------------------------------------------------------------------------


class Dispersion:
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
        If an argument is not allowed, or particles lie in one place; the message says what is.

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
        self._options: dict[str, Any] = dict(backend=backend, threads=threads)
        self._dtype = None if dtype is None else checks.real_type(dtype)
        self.parameters: parameters.Parameters | None = None
        self._grid: Any = None
        self._solver: Any = None
        self.busy = threading.RLock()

    def _set_up(self, count: int, dtype: np.dtype, on_gpu: bool) -> parameters.Parameters:
        if self.parameters is not None and self._dtype == dtype:
            return self.parameters
        target = self.accuracy or (1e-6 if dtype.itemsize == 8 else 1e-5)
        p = choose(self.box, count, target, parameters.GPU if on_gpu else parameters.CPU, **self._given)
        if self.accuracy is not None and p.error > 1.05 * self.accuracy:
            warnings.warn(
                f"accuracy {self.accuracy:g} is not reached with {self._given}: about {p.error:.1e} is expected. "
                "Give fewer of these parameters, or larger meshes and cutoffs.",
                stacklevel=4,
            )
        thickness = 1 / np.linalg.norm(self.box.inverse, axis=1)
        cells = [min(t, p.cutoff / n) for t, n in zip(thickness, (2, 2, 4), strict=True)]
        beta, name = p.splitting, dtype.name
        self._grid = pm.UniformGrid(self.box, cell_size=cells, dtype=name, **self._options)
        self._solver = Solver(
            pm.Mesh(p.shape, self.box), p.window, functools.partial(transform, beta),
            slope=functools.partial(transform_slope, beta), dtype=name, **self._options,
        )  # fmt: skip
        self._dtype, self.parameters = dtype, p
        return p

    def explain(self) -> str:
        """Return the parameters in use and the errors that they should make."""
        if self.parameters is None:
            return "parameters are chosen at the first call"
        p = self.parameters
        nodes = " x ".join(map(str, p.shape))
        return (
            f"cutoff {p.cutoff:.4g}, splitting {p.splitting:.4g}, {nodes} nodes, {p.window.name}, "
            f"mixing {self.mixing}; "
            f"expected errors {p.real_error:.1e} beyond the cutoff and {p.mesh_error:.1e} of the mesh"
        )

    @alone
    def __call__(
        self,
        positions: Any,
        coefficients: Any = None,
        *,
        sigma: Any = None,
        epsilon: Any = None,
        exclusions: Any = None,
    ) -> Result:
        """Return energy, energies (N,), forces (N, 3) and virial (3, 3).

        Parameters
        ----------
        positions : array (N, 3)
        coefficients : array (N,), optional
            c of ``-c_i c_j / r**6``, or else:
        sigma, epsilon : array (N,), optional
            Of Lennard-Jones potentials.
        exclusions : integers (M, 2), optional
            Pairs of particles whose nearest images do not interact, each once.
        """
        if (coefficients is None) == (sigma is None) or (sigma is None) != (epsilon is None):
            raise TypeError("give either coefficients, or sigma and epsilon.")
        particles = Natives(positions)
        pairs = None if exclusions is None else particles.pairs(exclusions, "exclusions")
        with particles.scope():
            if sigma is None:
                depth = particles.number(coefficients, "coefficients")
                size = particles.xp.ones_like(depth)
            else:
                size, well = particles.number(sigma, "sigma"), particles.number(epsilon, "epsilon")
                if particles.count and (float(well.min()) < 0 or float(size.min()) < 0):
                    raise ValueError("sigma and epsilon have negative elements; give numbers of at least 0.")
                depth = 2 * well**0.5
            for what, values in (("coefficients", depth), ("sigma", size)):
                if values.ndim != 1:
                    raise ValueError(f"{what} has shape {values.shape}; one set ({particles.count},) is needed.")
            return self._calculate(particles, depth, size, pairs, sigma is not None)

    def _calculate(self, particles: Natives, depth: Any, size: Any, pairs: Any, repulsion: bool) -> Result:
        x, xp = particles.x, particles.xp
        p = self._set_up(particles.count, particles.dtype, particles.backend.name != "cpu")
        smooth = smooth_dispersion(p.splitting, p.cutoff, particles.dtype.itemsize == 4)
        function = pair_function(smooth, p.cutoff, repulsion, self.mixing, self.shift)
        self._grid.build(x)
        sums = self._grid.stream(p.cutoff, function, xp.stack([depth, size], 1))
        if float(sums[:, 10].sum()) > 0:
            first = int(sums[:, 10].argmax())
            raise ValueError(f"particle {first} lies where another one lies: r**-6 is infinite; move one of them.")
        c = depth * size**3
        self._solver.set_positions(x)
        potential, slope, mesh_virial = self._solver.potential_gradient_virial(c)
        energies = sums[:, 0] / 2 - c * potential / 2 + p.splitting**6 / 12 * c**2
        forces = c[:, None] * slope - sums[:, 1:4]
        upper = sums[:, 4:10].sum(0) / 2
        virial = upper[xp.asarray([[0, 5, 4], [5, 1, 3], [4, 3, 2]])] - mesh_virial
        if pairs is not None:
            self._exclude(particles, depth, size, pairs, function, p.cutoff, energies, forces, virial)
        return Result(*map(particles.wrap, (energies.sum(), energies, forces, virial)))

    def _exclude(
        self, particles: Natives, depth: Any, size: Any, pairs: Any, function: pm.PairFunction, cutoff: float,
        energies: Any, forces: Any, virial: Any,
    ) -> None:  # fmt: skip
        """Take back what pairs of particles have got from each other's nearest images."""
        x, xp, (i, j) = particles.x, particles.xp, pairs.T
        _, _, _, repels, arithmetic, shifts, inverse_cut, at_cutoff = function.parameters[:8]
        matrix, inverse = (xp.asarray(m, particles.dtype) for m in (self.box.matrix, self.box.inverse.T))
        d = nearest(xp, x[j] - x[i], matrix, inverse, xp.asarray(NEIGHBOURS, particles.dtype))
        r2 = (d**2).sum(1)
        if len(pairs) and float(r2.max()) > cutoff**2:
            row = int(r2.argmax())
            raise ValueError(
                f"exclusions[{row}] are {float(r2[row]) ** 0.5:g} apart, beyond the cutoff {cutoff:g}: "
                "give a larger cutoff, or exclude near pairs only."
            )
        product, e = size[i] * size[j], depth[i] * depth[j]
        lattice = e * product**3
        size2 = arithmetic * ((size[i] + size[j]) / 2) ** 2 + (1 - arithmetic) * product
        s6, c6 = (size2 / r2) ** 3, (size2 * inverse_cut) ** 3
        # Pair sum and mesh together have given the plain potential.
        constant = shifts * (e * (repels * c6 - 1) * c6 + lattice * at_cutoff)
        u = e * (repels * s6 - 1) * s6 - constant
        g = 6 * e * (1 - 2 * repels * s6) * s6 / r2
        for k in (i, j):
            xp.add.at(energies, k, -u / 2)
        pull = g[:, None] * d
        xp.add.at(forces, i, -pull)
        xp.add.at(forces, j, pull)
        virial -= d.T @ pull
