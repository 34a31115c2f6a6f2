# SPDX-License-Identifier: BSD-3-Clause
"""Lattice sums of r**-6, alone or in the Lennard-Jones potential, by particle-mesh Ewald.

On the mesh the coefficient of a pair is a product of two numbers of the particles.
Within the cutoff any rule of mixing is possible: the pair function takes back what the mesh has counted.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import parameters
from particlemesh.apps.pme.core import Calculation, Core, word_of
from particlemesh.apps.pme.exclusions import KnownPairs, boxes
from particlemesh.apps.pme.result import Result
from particlemesh.apps.pme.split import SixthPower, Smooth, polynomials
from particlemesh.kernels import Coordinates, Unread, alone, checks, compile_kernel

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

    _split = SixthPower

    _differentiable = None

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

    def _make(self, count: int, dtype: np.dtype, backend: Any, fourth: float, **more: Any) -> LennardJones:
        p = self._chosen(count, dtype, backend, fourth, **more)
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
            f"cutoff {p.cutoff:.4g}, {p.split}, {nodes} nodes, {p.window.name}, mixing {self.mixing}; "
            f"expected errors: pairs within the cutoff {p.real_error:.1e}, mesh {p.mesh_error:.1e}"
            + (f", {p.crowd}" if p.crowd != parameters.NOT_CROWDED else "")
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
        if sigma is None and self.mixing != MIXING[0]:
            raise ValueError(f"mixing is {self.mixing!r}, of sigma and epsilon: give these instead of coefficients.")
        numbers = {"coefficients": coefficients} if sigma is None else {"sigma": sigma, "epsilon": epsilon}
        backend, x, taken = self._taken(positions, check, out, Result, **numbers)
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
        if wrong.infinite is not None or wrong.lost is not None:
            for name, operand in taken.items():
                bad = np.flatnonzero(~np.isfinite(core.owner.download(operand.native)))
                if len(bad):
                    raise ValueError(f"{name} has {len(bad)} elements that are not finite; the first is {bad[0]}.")
            if wrong.bad is not None:
                raise ValueError(f"numbers are not finite; the first is that of particle {wrong.bad}.")
        wrong.check_results("the energy", "numbers")


# ---- a step on native arrays, and pairs that are left out ---------------------------------------------------


_FILE = Path(__file__).with_name("dispersion.c")
MIXING = ("geometric", "lorentz-berthelot")
COLUMNS = 11  # energy, force (3), virial (6), particles in one place
_CLOSE = 1.5  # (sigma / r)**2 of a close pair: no thermal motion brings free particles there
_CLOSE_BETA = 0.5  # (beta r)**2 of a close pair without sigma


class LennardJones(Core):
    """Coefficients of ``-c_i c_j / r**6``, or sigma and epsilon.

    Parameters
    ----------
    mixing, shift
        As for :class:`Dispersion`.
    """

    together = 1
    weighted = False

    def __init__(self, *arguments: Any, mixing: str, shift: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        parameters, beta = self.parameters, self.split.splitting
        smooth = polynomials(self.split, parameters.cutoff, self.dtype.itemsize == 4)
        self._functions = {
            (wells, apart): pair_function(smooth, beta, parameters.cutoff, wells, mixing, shift, apart)
            for wells in (False, True)
            for apart in (False, True)
        }
        self._wells = False
        self._numbers: Any = None

    def function(self, sets: int, virial: bool, count: int) -> pm.PairFunction:
        return self._functions[self._wells, len(self.exclusions.pairs) > 0]

    def values(self, charges: Any) -> Any:
        return self._numbers

    def reserve(self, count: int, sets: int, virial: bool) -> None:
        super().reserve(count, sets, virial)
        with self.backend.scope():
            self.take("numbers", 2 * count)
            self.take("coefficients", count)
            self.take("sums", 2 * COLUMNS * count)  # of a call with exclusions
            self.take("corrected sums", COLUMNS * count)

    def charges(self, given: Any) -> Any:
        """Take coefficients (1, N), or sigma and epsilon; return the charges (1, N) of the mesh."""
        self._wells = isinstance(given, list)
        first, second = (a.reshape(-1) for a in (given if self._wells else (given, given)))
        count = len(first)
        values, charges = self.take("numbers", 2 * count).reshape(count, 2), self.take("coefficients", count)
        self._numbers = values
        if not self.on_gpu:
            self.status[2] = word_of((first < 0) | (second < 0)) if self._wells else 0
            with np.errstate(invalid="ignore"):
                values[:, 0] = 2 * np.sqrt(second) if self._wells else first
            values[:, 1] = first if self._wells else 1
            charges[:] = values[:, 0] * values[:, 1] ** 3
        elif count:
            kernel = compile_kernel(self.backend, _FILE, "coefficients", self.dtype)
            other = second if self._wells else Unread(first)
            kernel(
                count, first, other, values, charges, self.status, count, self.at(first), self.at(second),
                int(self._wells),
            )  # fmt: skip
        return charges.reshape(1, count)

    def correct(self, x: Coordinates, charges: Any, sums: Any, virial: bool) -> Any:
        cutoff2, dtype = self.parameters.cutoff**2, self.dtype
        law = [*self.function(1, True, 0).parameters[3:10], cutoff2]
        if not self.on_gpu:
            return self._corrected_on_cpu(np.stack(x.arrays, 1), sums, law)
        rows = self.exclusions.on(self.backend, x.count, dtype)
        corrected = self.take("corrected sums", x.count * COLUMNS).reshape(x.count, COLUMNS)
        kernel = compile_kernel(self.backend, _FILE, "without_pairs", dtype)
        kernel(
            x.count, *x.arguments(), *rows, self._numbers, sums, corrected, boxes(self).lattices, x.count, x.record(),
            self.record(*law),
        )  # fmt: skip
        return corrected

    def _corrected_on_cpu(self, x: np.ndarray, sums: np.ndarray, law: list[float]) -> np.ndarray:
        """Do what the kernel does."""
        repels, arithmetic, shifts, inverse_cut, at_cutoff, of_size, of_beta, square = law
        i, j, weights, d, place = self.exclusions.vectors(x, self.box.matrix)
        r2, apart = (d**2).sum(1), place == 0
        within = r2 <= square
        touching = np.where(apart, 0, np.where(place > 0, np.where(weights == -1, -1, 0), 1))
        (depth, product), mean = (self._numbers[i] * self._numbers[j]).T, self._numbers[[i, j], 1].mean(0)
        lattice, size = depth * product**3, arithmetic * mean**2 + (1 - arithmetic) * product
        close = within & (r2 < of_size * size + of_beta)
        marks = np.bincount(i, np.where(close, mark(j), 0), len(x))
        known = marks == sums[:, -1]  # every close pair is excluded or scaled
        # What is in no sum gets its whole factor.
        scales, weights = weights, np.where(close & known[i], weights + 1, weights)
        over = np.where(apart, 1 / np.where(apart, r2, 1), 0)
        ratio, c6 = (size * over) ** 3, (size * inverse_cut) ** 3
        # Beyond the cutoff a pair has what the mesh gives alone.
        s6, repulsion = np.where(within, depth * ratio, lattice * over**3), np.where(within, repels * ratio, 0)
        constant = np.where(within, shifts * (depth * (repels * c6 - 1) * c6 + lattice * at_cutoff), 0)
        g = weights * 6 * s6 * (1 - 2 * repulsion) * over
        terms = [weights * (repulsion - 1) * s6 - scales * constant, *(g * d.T)]
        terms += [g * d[:, a] * d[:, b] for a, b in ((0, 0), (1, 1), (2, 2), (1, 2), (2, 0), (0, 1))]
        corrected = sums[:, :COLUMNS] + np.where(known[:, None], 0, sums[:, COLUMNS:])
        corrected[:, -1] = sums[:, COLUMNS - 1]
        for column, term in enumerate([*terms, touching]):
            corrected[:, column] += np.bincount(i, term, len(x)).astype(x.dtype)
        return corrected


# ---- the pair function -----------------------------------------------------------------------------


def pair_function(
    smooth: Smooth, beta: float, cutoff: float, repulsion: bool, mixing: str, shift: bool, apart: bool
) -> pm.PairFunction:
    """Return the pair function of particles with the values ``2 sqrt(epsilon)`` and sigma.

    The interaction of a close pair may be so large that all other digits of a sum are lost. Most close pairs are
    excluded afterwards. So with ``apart`` the part of close pairs that the mesh does not have is summed apart, in the
    second `COLUMNS`. The last of these is `mark`, a number that tells sets of close particles j from each other.
    """
    last = len(smooth.coefficients) - 1
    at_cutoff = float(smooth(cutoff**2)[0])
    close = (1 / _CLOSE, 0.0) if repulsion else (0.0, _CLOSE_BETA / beta**2)  # r2 below close[0] * sigma**2 + close[1]
    flags = (float(repulsion), float(mixing == MIXING[1]), float(shift), cutoff**-2, at_cutoff, *close)
    constants = (smooth.scale, 0.5, float(last), *flags, *smooth.coefficients.ravel().tolist())
    terms = smooth.coefficients.shape[1]
    return pm.PairFunction(_source(terms, apart), _function(terms, apart), COLUMNS * (1 + apart), 2, constants)


def mark(j: Any) -> Any:
    """Return what a close particle j adds to the mark of a set, as in the pair functions; sums of 4,000 are exact."""
    return 1 + (j & 4095)


@functools.cache
def _function(terms: int, apart: bool) -> Any:
    # Constants come from p, since Numba computes products of float32 and numbers of Python in float64.
    def lennard_jones_pair(r2, d, i, j, a, b, p, sum):  # noqa: A002 - the names that a pair function has
        half = p[1]
        one = half + half
        three = one + one + one
        t = r2 * p[0]
        whole = np.floor(min(t, p[2]))
        s = t - whole - half
        at = 10 + terms * int(whole)
        value = p[at + terms - 1]
        slope = value - value
        for n in range(terms - 2, -1, -1):
            slope = slope * s + value
            value = value * s + p[at + n]
        if r2 > 0:
            inverse = one / r2
        else:
            inverse = r2 - r2
            sum[10] += one
        depth = a[0] * b[0]
        product = a[1] * b[1]
        mean = half * (a[1] + b[1])
        size = p[4] * mean * mean + (one - p[4]) * product
        lattice = depth * product * product * product
        s6 = size * inverse
        s6 = s6 * s6 * s6
        c6 = size * p[6]
        c6 = c6 * c6 * c6
        energy = depth * (p[3] * s6 - one) * s6
        g = (three + three) * depth * (one - p[3] * (s6 + s6)) * s6 * inverse
        if apart and r2 < p[8] * size + p[9]:
            sum[11] += energy
            for n in range(3):
                sum[12 + n] += g * d[n]
                sum[15 + n] += g * d[n] * d[n]
                sum[18 + n] += g * d[(n + 1) % 3] * d[(n + 2) % 3]
            sum[21] += 1 + (j & 4095)
            energy = r2 - r2
            g = energy
        sum[0] += energy + lattice * value
        sum[0] -= p[5] * (depth * (p[3] * c6 - one) * c6 + lattice * p[7])
        g += (one + one) * lattice * p[0] * slope
        x, y, z = g * d[0], g * d[1], g * d[2]
        sum[1] += x
        sum[2] += y
        sum[3] += z
        sum[4] += x * d[0]
        sum[5] += y * d[1]
        sum[6] += z * d[2]
        sum[7] += y * d[2]
        sum[8] += z * d[0]
        sum[9] += x * d[1]

    return lennard_jones_pair


def _source(terms: int, apart: bool) -> str:
    close = """
if (r2 < p[8] * size + p[9]) {
    const real u = g * d[0], v = g * d[1], w = g * d[2];
    sum[11] += energy;
    sum[12] += u; sum[13] += v; sum[14] += w;
    sum[15] += u * d[0]; sum[16] += v * d[1]; sum[17] += w * d[2];
    sum[18] += v * d[2]; sum[19] += w * d[0]; sum[20] += u * d[1];
    sum[21] += (real)(1 + (j & 4095));
    energy = g = 0;
}"""
    return f"""
const real t = r2 * p[0], whole = floor(t < p[2] ? t : p[2]), s = t - whole - (real)0.5;
const i64 at = 10 + {terms} * (i64)whole;
real value = p[at + {terms - 1}], slope = 0;
for (int n = {terms - 2}; n >= 0; n--) {{
    slope = slope * s + value;
    value = value * s + p[at + n];
}}
const real inverse = r2 > 0 ? (real)1 / r2 : (real)0;
if (!(r2 > 0)) sum[10] += (real)1;
const real depth = a[0] * b[0], product = a[1] * b[1], mean = (real)0.5 * (a[1] + b[1]);
const real size = p[4] * mean * mean + (1 - p[4]) * product, lattice = depth * product * product * product;
const real near = size * inverse, s6 = near * near * near, far = size * p[6], c6 = far * far * far;
real energy = depth * (p[3] * s6 - 1) * s6, g = 6 * depth * (1 - 2 * p[3] * s6) * s6 * inverse;
{close if apart else ""}
sum[0] += energy + lattice * value - p[5] * (depth * (p[3] * c6 - 1) * c6 + lattice * p[7]);
g += 2 * lattice * p[0] * slope;
const real x = g * d[0], y = g * d[1], z = g * d[2];
sum[1] += x; sum[2] += y; sum[3] += z;
sum[4] += x * d[0]; sum[5] += y * d[1]; sum[6] += z * d[2];
sum[7] += y * d[2]; sum[8] += z * d[0]; sum[9] += x * d[1];
"""
