# SPDX-License-Identifier: BSD-3-Clause
"""The energy of charges in operations that torch and JAX differentiate; what both share.

Of many systems each has an energy, and particles have the box of their system. One set of charges is the case without
systems.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import erfc

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import close, direct, multipoles
from particlemesh.apps.pme.batch import PMEBatch
from particlemesh.apps.pme.core import FLOOR
from particlemesh.apps.pme.equilibration import ChargeEquilibration
from particlemesh.apps.pme.exclusions import NEIGHBOURS, Exclusions, KnownPairs, nearest
from particlemesh.apps.pme.induced import InducedDipoles
from particlemesh.apps.pme.parameters import cells, check_finite, check_vectors, fourth_power
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.split import SPLITS, Split, polynomials, widest, with_derivatives
from particlemesh.kernels import kind_of

KNOWN = KnownPairs()  # excluded pairs of the last calls
kernels.through_forks(KNOWN.busy)


class Library(NamedTuple):
    """What a library of arrays is asked for.

    Attributes
    ----------
    xp : module
        NumPy, torch or ``jax.numpy``.
    like : callable
        ``like(numbers, array)`` returns an array of numbers with the dtype and device of ``array``.
    add : callable
        ``add(terms, index, count)`` returns the sums (count, ...) of terms (n, ...) with each index.
    erfc : callable
        The complementary error function.
    constant : callable
        ``constant(array)`` returns an array without derivatives.
    """

    xp: Any
    like: Callable[[Any, Any], Any]
    add: Callable[[Any, Any, int], Any]
    erfc: Callable[[Any], Any] = erfc
    constant: Callable[[Any], Any] = np.asarray

    def totals(self, terms: Any, cell: Any, system: Any) -> Any:
        """Return the sum of terms (n, ...), or the sums (S, ...) of systems, of which each has a cell."""
        return terms.sum(0) if system is None else self.add(terms, system, cell.shape[0])


def check(
    pme: Any, positions: Any, charges: Any, system: Any, exclusions: Any, *, over_ranks: bool = False
) -> None:  # fmt: skip
    """Raise an error unless these are charges of a PME, or of a batch and its systems."""
    if hasattr(pme, "world") and not over_ranks:
        raise TypeError(
            "pme is a DistributedPME, and each rank would take its particles for all: call energy of "
            "particlemesh.apps.pme.torch_ranks or jax_ranks."
        )
    if not isinstance(pme, (PME, PMEBatch)):
        raise TypeError(
            f"pme is of type {type(pme).__name__}; give a particlemesh.apps.pme.PME, or a PMEBatch with system."
        )
    if (system is None) != isinstance(pme, PME):
        what = "a PME has one system: leave out system" if isinstance(pme, PME) else "a PMEBatch needs system"
        raise TypeError(f"{what}.")
    if isinstance(pme, PME) and exclusions is not None and len(exclusions):
        raise TypeError("exclusions are given, but those of a PME are its own: give them to the PME.")
    if positions.ndim != 2 or positions.shape[1] != 3:
        raise ValueError(f"positions have shape {tuple(positions.shape)}; (n, 3) is needed.")
    if tuple(charges.shape) != (positions.shape[0],):
        raise ValueError(f"charges has shape {tuple(charges.shape)}; one for each of {positions.shape[0]} is needed.")
    if charges.dtype != positions.dtype:
        raise TypeError(f"charges have dtype {charges.dtype} and positions {positions.dtype}; give one dtype.")
    if name_of(positions) not in ("float32", "float64"):
        raise TypeError(f"positions have dtype {name_of(positions)}; give float32 or float64.")


def name_of(array: Any) -> str:
    """Return the name of an array's dtype."""
    return str(array.dtype).removeprefix("torch.")


class Facts(NamedTuple):
    """Texts and numbers that are constant in a compiled function."""

    pairs: str  # what the sum over pairs has to know
    times: float  # the potential of the mesh
    itself: tuple[float, ...]  # the smooth part of charges, dipoles, quadrupoles at their own places
    constant: float  # Coulomb's
    near: float  # the largest distance below which excluded pairs are close


def choose(
    pme: Any, positions: Any, charges: Any, system: Any, matrix: Any, moments: bool, widths: Any = None
) -> None:  # fmt: skip
    """Choose the parameters of a PME that has none, for charges whose numbers are known, and perhaps other moments.

    Positions are None if their numbers are not known, and the matrix if it is that of the box.
    """
    if moments:
        pme._choose_for_dipoles()
    if pme._core is None:
        owners = None if system is None else kernels.to_host(system, "system")
        fourth = fourth_power(kernels.to_host(charges, "charges"), owners)
        kind: Any = kind_of(charges)
        numbers = np.dtype(name_of(charges)), kind.backend(charges), fourth
        if positions is None:
            core = pme._make(charges.shape[0], *numbers)
        else:
            cells = (pme.box.matrix if matrix is None else kernels.to_host(matrix, "cell")).reshape(-1, 3, 3)
            rows = np.broadcast_to(cells, (getattr(pme, "systems", 1), 3, 3))
            core = pme._make_for(kernels.to_host(positions, "positions"), *numbers, rows=rows, owners=owners)
        if widths is not None:
            core = pme._for_widths(core, charges.shape[0], kernels.to_host(widths, "widths"))
        pme._core = core


def facts_of(pme: Any, count: int, name: str, like: Any, moments: bool = False) -> Facts:
    """Return the facts of a PME, whose parameters are chosen at its first use for so many particles."""
    if moments:
        pme._choose_for_dipoles()
    try:
        p = pme.parameters
    except RuntimeError:  # none are chosen yet
        kind = kind_of(like)  # None while JAX traces
        backend = kernels.backend("cpu") if kind is None else kind.backend(like)
        p = pme.core(count, np.dtype(name), backend).parameters
    split = p.split
    key = next(key for key, kind in SPLITS.items() if type(split) is kind)
    most = widest(p.cutoff, max(p.error, FLOOR[np.dtype(name)]))
    opened = None if all(pme.box.periodic) else [*map(list, (pme.box.lengths, pme.box.origin, pme.box.periodic))]
    text = json.dumps([p.cutoff, most, p.longest, opened, key, *dataclasses.astuple(split)])
    itself = tuple(map(split.at_zero, range(3)))
    return Facts(text, split.mesh, itself, float(pme.arguments["coulomb_constant"]), close.FAR * p.cutoff)


def of_mesh(pme: Any, matrix: Any) -> tuple[pm.Mesh, dict[str, Any]]:
    """Return mesh, window, box and Green function of a PME that has parameters, as arguments of ``potential``."""
    core, periodic = pme._core, all(pme.box.periodic)
    options = dict(window=core.parameters.window, cell=matrix if periodic else None)
    return core.solver.mesh, options | core.split.green(periodic)


@functools.lru_cache(maxsize=64)
def split_of(text: str) -> tuple[float, Split]:
    """Return cutoff and split from their text."""
    cutoff, _, _, _, key, *numbers = json.loads(text)
    return cutoff, SPLITS[key](*numbers)


def pairs_of(pme: Any, exclusions: Any, factors: Any, count: int) -> Exclusions:
    """Return the excluded pairs: those of a PME, or those that are given for a batch."""
    if isinstance(pme, PME) and np.any(factors):
        raise TypeError("factors are given, but those of a PME are its own, as its exclusions: give both to the PME.")
    if isinstance(pme, PME):
        exclusions, factors = pme.exclusions.pairs, pme.exclusions.factors
    return KNOWN.of(exclusions, factors, count)


def check_systems(pairs: Any, system: Any) -> None:
    """Raise an error that names the first of pairs (M, 2) whose particles are in different systems; waits."""
    apart = [pair for pair, homes in zip(pairs.tolist(), system[pairs].tolist(), strict=True) if homes[0] != homes[1]]
    if apart:
        raise ValueError(
            f"exclusions have the pair {apart[0]}, whose particles are in different systems: these do not interact."
        )


def matrix_of(pme: Any, cell: Any, like: Callable[[Any], Any]) -> Any:
    """Return lattice vectors as rows, (3, 3) or (S, 3, 3), of the PME's box or of the user's lengths or vectors.

    Those of open axes are long enough for nearest images; there are no derivatives by cell.
    """
    batch = () if isinstance(pme, PME) else (pme.systems,)
    if cell is not None and not all(pme.box.periodic):
        raise ValueError(
            f"the box is periodic along {pme.box.periodic}; derivatives by cell need three periodic axes: leave out "
            "cell."
        )
    if cell is None:
        return like([pme._rows] * pme.systems if batch else pme._rows)
    if tuple(cell.shape) not in ((*batch, 3), (*batch, 3, 3)):
        raise ValueError(
            f"cell has shape {tuple(cell.shape)}; "
            f"give lengths {(*batch, 3)} or lattice vectors as rows {(*batch, 3, 3)}."
        )
    return cell[..., None] * like(np.eye(3).tolist()) if cell.ndim == len(batch) + 1 else cell


def energy(
    library: Library, facts: Facts, x: Any, values: Any, cell: Any, system: Any, pairs: tuple[Any, Any, Any],
    near: Any, far: Any,
) -> Any:  # fmt: skip
    """Return the energy (), or energies (S,) of systems, from both halves.

    Parameters
    ----------
    values : array (N,) or (N, 11)
        Charges, or what `values_of` returns.
    pairs : tuple of arrays (M,)
        Excluded or scaled pairs i, j and their factors minus 1.
    near : array () or (S,)
        Sums over pairs within the cutoff, without Coulomb's constant.
    far : array (N,) or (10, N)
        Potentials of the mesh for ``4 pi`` times the charges, background included; or those of all moments.
    """
    charge, twist, bend = facts.itself
    if values.ndim > 1:
        q, squares, trace = values[:, 0], values[:, :10] ** 2, values[:, 4] + values[:, 7] + values[:, 9]
        of_matrix = (squares * library.like(_TWICE, values))[:, 4:].sum(1)
        itself = charge * q * q + twist * (squares[:, 1:4].sum(1) - q * trace)
        each = (moments_of(library, values) * far).sum(0) - itself - bend / 4 * (trace * trace + 2 * of_matrix)
    else:
        each = values * far - charge * values**2
    each = each / 2
    total = near + library.totals(each, cell, system)
    if len(pairs[0]):
        total = total + excluded(library, x, values, cell, system, pairs, facts.near)
    return facts.constant * total


def excluded(library: Library, x: Any, values: Any, cell: Any, system: Any, pairs: Any, near: float) -> Any:
    """Return the energies of pairs i, j times a number, without Coulomb's constant; of one or many systems.

    Sums over neighbours leave out pairs that are closer than ``near``.
    """
    i, j, weights = pairs
    weights, inverse, home = library.like(weights, x), library.xp.linalg.inv(cell), None
    boxes = cell, inverse
    if system is not None:
        home = system[i]
        boxes = cell[home], inverse[home]
        weights = weights + library.xp.where(home == system[j], 0.0, math.nan)
    d = nearest(library.xp, x[j] - x[i], *boxes, library.like(NEIGHBOURS, x))
    weights = weights * (1 - share(library, (d * d).sum(1), reach(library.xp, near, inverse)))
    return library.totals(pair_energies(library, None, d, values[i], values[j], weights), cell, home)


def reach(xp: Any, near: float, inverse: Any) -> Any:
    """Return the distance below which pairs are close: ``near``, or where other images may be nearer, less.

    ``inverse`` are inverse matrices (..., 3, 3) of lattice vectors as rows.
    """
    return xp.clip(0.5 * (inverse**2).sum(-2).max() ** -0.5, None, near)


def wholes(library: Library, d: Any, weights: Any, cutoff: float, cell: Any) -> Any:
    """Return what sums over neighbours multiply ``1 / r`` with, for factors minus 1 of pairs at vectors d (M, 3)."""
    near = reach(library.xp, close.FAR * cutoff, library.xp.linalg.inv(library.constant(cell)))
    return 1 + weights * share(library, (d * d).sum(1), near)


def share(library: Library, r2: Any, reach: Any) -> Any:
    """Return what sums over neighbours leave out of pairs at r**2; derivatives take it as a constant (`close`)."""
    return library.constant(library.xp.clip(2 - 2 * r2 / reach**2, 0, 1))


# ---- multipoles --------------------------------------------------------------------------------------------------

_TWICE = [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0, 2.0, 1.0]  # how often a number is among the elements of moments
_ELEMENTS = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]  # of a matrix, in rows
_HALVES = [1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.5, 1.0, 0.5]  # of numbers, as coefficients of derivatives


def values_of(library: Library, x: Any, q: Any, dipoles: Any, quadrupoles: Any, widths: Any) -> Any:
    """Return charges (N,), or rows (N, 11): charge, dipole, upper triangle of the quadrupole, width."""
    given = {"dipoles": (dipoles, (3,)), "quadrupoles": (quadrupoles, (3, 3)), "widths": (widths, ())}
    if all(array is None for array, _ in given.values()):
        return q
    for name, (array, core) in given.items():
        if array is not None and tuple(array.shape) != (*q.shape, *core):
            raise ValueError(f"{name} has shape {tuple(array.shape)}; {(*q.shape, *core)} is needed.")
        if array is not None and array.dtype != q.dtype:
            raise TypeError(f"{name} have dtype {array.dtype} and charges {q.dtype}; give one dtype.")
    xp, zero = library.xp, 0 * q[:, None]
    parts = [zero] * 11
    parts[0] = q[:, None]
    if dipoles is not None:
        parts[1:4] = [dipoles[:, a : a + 1] for a in range(3)]
    if quadrupoles is not None:
        parts[4:10] = [(quadrupoles[:, a, b] + quadrupoles[:, b, a])[:, None] / 2 for a, b in _ELEMENTS]
    if widths is not None:
        parts[10] = widths[:, None]
    return xp.concatenate(parts, 1)


def moments_of(library: Library, values: Any) -> Any:
    """Return coefficients of derivatives (10, N) from rows (N, 11), or charges as they are."""
    return values if values.ndim == 1 else values.T[:10] * library.like(_HALVES, values)[:, None]


def pair_energies(library: Library, smooth: Any, d: Any, a: Any, b: Any, whole: Any) -> Any:
    """Return energies (M,) of pairs at vectors d (M, 3) from a to b.

    Parameters
    ----------
    smooth : callable or None
        ``smooth(r2, n)`` is what n times ``-2 d / d(r**2)`` makes of the smooth part that energies have not.
    a, b : array (M,) or (M, 11)
        Charges, or rows.
    whole : array (M,)
        What ``1 / r`` is multiplied with. Pairs of 0 may have no distance.
    """
    xp, r2 = library.xp, (d * d).sum(1)
    apart = xp.where(whole == 0, 1.0, r2)

    def near(n: int, lack: Any = 0.0) -> Any:
        point = whole * (math.prod(range(1, 2 * n, 2)) / apart ** (n + 0.5) - lack)
        return point if smooth is None else point - smooth(r2, n)

    if a.ndim == 1:
        return a * b * near(0)
    wide = a[:, 10] ** 2 + b[:, 10] ** 2

    def matrices(rows: Any) -> Any:
        return xp.stack([rows[:, k] for k in (4, 5, 6, 5, 7, 8, 6, 8, 9)], 1).reshape(-1, 3, 3)

    beta = (2 * xp.where(wide > 0, wide, 1.0)) ** -0.5
    lack = [library.erfc(beta * apart**0.5) / apart**0.5]  # of Gaussians
    rising = 2 / math.sqrt(math.pi) * beta * xp.exp(-(beta**2) * apart)
    for n in range(4):
        lack.append(((2 * n + 1) * lack[-1] + rising) / apart)
        rising = rising * (2 * beta**2)
    c0, c1, c2, c3, c4 = (near(n, xp.where(wide > 0, less, 0.0)) for n, less in enumerate(lack))
    (p, mu, left), (q, nu, right) = ((v[:, 0], v[:, 1:4], matrices(v)) for v in (a, b))
    along_i, along_j, across = (mu * d).sum(1), (nu * d).sum(1), (mu * nu).sum(1)
    left_d, right_d = (left * d[:, None]).sum(2), (right * d[:, None]).sum(2)
    twice_i, twice_j, both = (left_d * d).sum(1), (right_d * d).sum(1), (left * right).sum((1, 2))
    trace_i, trace_j = (m[:, 0, 0] + m[:, 1, 1] + m[:, 2, 2] for m in (left, right))
    of_j = along_j + trace_j / 2
    # What the moments of b make at a, as in `multipoles`: V is -nu c(n + 1) + Q d c(n + 2).
    potential, slope, bend = (
        q * near - of_j * next_ + twice_j / 2 * last for near, next_, last in ((c0, c1, c2), (c1, c2, c3), (c2, c3, c4))
    )
    total = p * potential + along_i * slope + across * c1 - (mu * right_d).sum(1) * c2
    turned = (left_d * nu).sum(1) * c2 - (left_d * right_d).sum(1) * c3
    return total + (twice_i * bend + 2 * turned - trace_i * slope + both * c2) / 2


def by_cell(xp: Any, x: Any, cell: Any, by_x: Any, virial: Any) -> Any:
    """Return the slope by lattice vectors at fixed positions, from those by positions and by a strain of both."""
    return xp.linalg.solve(cell.T, (virial - by_x.T @ x).T)


@dataclasses.dataclass(frozen=True, eq=False)  # equal to itself only, as JAX needs of constants
class DipolesOf:
    """Energy and induced dipoles as a function of arrays, and its slopes, for which both libraries make a function.

    Arrays are positions, charges, polarizabilities, permanent dipoles, field (N, 3) and cell, of NumPy or torch.
    """

    model: InducedDipoles
    like: ClassVar[int] = 0  # the array whose shape the solution has

    def solved(self, x: Any, q: Any, alpha: Any, m: Any, field: Any, cell: Any) -> tuple[Any, Any]:
        """Return energy and induced dipoles."""
        result = self.model.in_box(cell)(x, q, alpha, dipoles=m, field=field, virial=False)
        return result.energy, result.induced

    def slopes(
        self, xp: Any, x: Any, q: Any, alpha: Any, m: Any, field: Any, cell: Any, induced: Any, of_energy: Any,
        slope: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Return slopes by the arrays, of a function that has the last two as slopes by energy and induced dipoles.

        ``xp`` is the module of the arrays.
        """
        given = dict(positions=x, charges=q, polarizabilities=alpha, dipoles=m, field=field)
        plain, mixed = self.model.in_box(cell)._derivatives(given, induced, slope)
        by_x, by_q, by_m, virial = (
            sign * (of_energy * plain[name] + mixed[name])
            for name, sign in (("forces", -1), ("potentials", 1), ("fields", -1), ("virial", 1))
        )
        acting, stretch = plain["acting"], of_energy * plain["stretch"] + mixed["stretch"]
        by_alpha = ((slope - mixed["acting"] - of_energy / 2 * acting) * acting).sum(1)
        some = xp.where(alpha > 0, alpha, xp.ones_like(alpha))
        by_alpha = by_alpha + xp.where(alpha > 0, stretch / some, xp.zeros_like(alpha))
        by_field = -of_energy * (m + induced) - mixed["z"]
        return by_x, by_q, by_alpha, by_m, by_field, by_cell(xp, x, cell, by_x, virial)


@dataclasses.dataclass(frozen=True, eq=False)
class ChargesOf:
    """The same for charges of least energy; arrays are positions, electronegativities, hardness and cell."""

    model: ChargeEquilibration
    widths: Any
    total: float
    like: ClassVar[int] = 1

    def solved(self, x: Any, chi: Any, eta: Any, cell: Any) -> tuple[Any, Any]:
        """Return energy and charges."""
        result = self.model.in_box(cell)(x, chi, eta, widths=self.widths, total=self.total, virial=False)
        return result.energy, result.charges

    def slopes(
        self, xp: Any, x: Any, chi: Any, eta: Any, cell: Any, q: Any, of_energy: Any, slope: Any
    ) -> tuple[Any, ...]:  # fmt: skip
        """Return slopes by the arrays, as `DipolesOf.slopes`."""
        given = dict(positions=x, electronegativities=chi, hardness=eta, widths=self.widths, total=self.total)
        plain, mixed = self.model.in_box(cell)._derivatives(given, q, slope)
        by_x, virial = (sign * (of_energy * plain[n] + mixed[n]) for n, sign in (("forces", -1), ("virial", 1)))
        by_chi, by_eta = of_energy * q + mixed["z"], of_energy * q**2 / 2 + mixed["z"] * q
        return by_x, by_chi, by_eta, by_cell(xp, x, cell, by_x, virial)


def matrix_for(model: Any, kind: Any, x: Any, numbers: Any, cell: Any, like: Callable[[Any], Any]) -> Any:
    """Return lattice vectors as rows; check arguments of a model of this kind and choose parameters."""
    if not isinstance(model, kind):
        raise TypeError(f"model is of type {type(model).__name__}; give a particlemesh.apps.pme.{kind.__name__}.")
    check(model._pme, x, numbers, None, ())
    facts_of(model._pme, x.shape[0], name_of(x), x)
    return matrix_of(model._pme, cell, like)


def pair_sums(
    library: Library, text: str, x: Any, values: Any, cell: Any, system: Any, pairs: Exclusions, on_gpu: bool
) -> tuple[Any, Any, Any, Any]:
    """Return the energy of pairs within the cutoff, or that of each system, and its slopes by positions, values, cell.

    Values are charges (N,), or rows (N, 11). Close excluded ones of the pairs are left out. Arrays are of NumPy or
    torch, which the library is.
    """
    (cutoff, split), single = split_of(text), name_of(x) == "float32"
    given, plain, (rows, box) = values, values.ndim == 1, boxes_of(cell, text)
    near = float(reach(np, close.FAR * cutoff, np.linalg.inv(rows)))
    if plain:
        check_finite(values, "charges")
        made = direct.neighbours(polynomials(split, cutoff, single, on_gpu), 1, True)
    else:
        check_finite(values, "charges, dipoles, quadrupoles or widths", 0)
        made = multipoles.neighbours(with_derivatives(split, cutoff, single, 5))
        _check_widths(values[:, 10], text)
        given = library.xp.concatenate([values[:, :10], values[:, 10:] ** 2], 1)
    function = close.known(pairs, (text, single, plain, on_gpu), len(x), near, *made)
    many = {} if system is None else dict(system=system, boxes=rows)
    sums = (
        pm.UniformGrid(box, cell_size=cells(box, cutoff), systems=len(rows) if many else None)
        .build(x, **many)
        .stream(cutoff, function, given)
    )
    if float(sums[:, -1].sum()):
        raise ValueError("particles lie on top of each other: move one of them, or exclude the pair.")
    if plain:
        by_x, by_values, each = -values[:, None] * sums[:, 1:4], sums[:, 0], values * sums[:, 0]
        upper = values[:, None] * sums[:, 4:10] / 2
        strain = library.xp.stack([upper[:, [0, 5, 4]], upper[:, [5, 1, 3]], upper[:, [4, 3, 2]]], 1)
    else:
        halves = library.like(_HALVES, values)
        by_x = -sums[:, multipoles.FORCE : multipoles.BY_WIDTH]
        by_width = 2 * values[:, 10:] * sums[:, multipoles.BY_WIDTH : multipoles.VIRIAL]
        by_values = library.xp.concatenate([sums[:, :10] * halves, by_width], 1)
        each = (values[:, :10] * by_values[:, :10]).sum(1)
        strain = sums[:, multipoles.VIRIAL : -1].reshape(-1, 3, 3).swapaxes(1, 2) / 2
    turned = library.totals(strain - x[:, :, None] * by_x[:, None], cell, system)
    by_cell = library.xp.linalg.solve(cell.swapaxes(-1, -2), turned)
    return library.totals(each, cell, system) / 2, by_x, by_values, by_cell


def _check_widths(widths: Any, text: str) -> None:
    """Raise an error if widths (N,) are negative, or Gaussians are no points at the cutoff."""
    cutoff, most, *_ = json.loads(text)
    if not len(widths):
        return
    if float(widths.min()) < 0:
        raise ValueError(f"widths are negative: particle {int(widths.argmin())} has {float(widths.min()):g}.")
    if float(widths.max()) > most:
        raise ValueError(
            f"widths are larger than {most:.3g}, so that Gaussians are no points at the cutoff of {cutoff:.3g}: "
            f"particle {int(widths.argmax())} has {float(widths.max()):g}. Give the PME a longer cutoff."
        )


def boxes_of(cell: Any, text: str) -> tuple[np.ndarray, pm.Box]:
    """Return lattice vectors (S, 3, 3) on the host, which the mesh has to serve, and the largest, or open box."""
    rows: np.ndarray = np.asarray(cell.tolist(), np.float64).reshape(-1, 3, 3)
    _, _, longest, opened, *_ = json.loads(text)
    if opened:
        return rows, pm.Box(*opened)
    check_vectors(rows, longest)
    return rows, pm.Box(rows[abs(np.linalg.det(rows)).argmax()])
