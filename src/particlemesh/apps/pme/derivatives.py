# SPDX-License-Identifier: BSD-3-Clause
"""The energy of charges in operations that torch and JAX differentiate; what both share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.pme import direct
from particlemesh.apps.pme.core import cells, check_finite
from particlemesh.apps.pme.equilibration import ChargeEquilibration
from particlemesh.apps.pme.exclusions import NEIGHBOURS, nearest
from particlemesh.apps.pme.induced import InducedDipoles
from particlemesh.apps.pme.pme import PME
from particlemesh.apps.pme.split import Split, polynomials
from particlemesh.kernels import kind_of


def parameters_of(pme: PME, positions: Any, charges: Any) -> Any:
    """Return the parameters of a PME, chosen at its first use for so many particles.

    Raises
    ------
    ValueError, TypeError
        If a shape or dtype is not allowed.
    """
    if not isinstance(pme, PME):
        raise TypeError(f"pme is of type {type(pme).__name__}; give a particlemesh.apps.pme.PME.")
    if not all(pme.box.periodic):
        raise ValueError(f"the box is periodic along {pme.box.periodic}; derivatives need three periodic axes.")
    if positions.ndim != 2 or positions.shape[1] != 3:
        raise ValueError(f"positions has shape {tuple(positions.shape)}; (n, 3) is needed.")
    if tuple(charges.shape) != (positions.shape[0],):
        raise ValueError(f"charges has shape {tuple(charges.shape)}; one for each of {positions.shape[0]} is needed.")
    if charges.dtype != positions.dtype:
        raise TypeError(f"charges have dtype {charges.dtype} and positions {positions.dtype}; give one dtype.")
    name = str(positions.dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise TypeError(f"positions have dtype {name}; give float32 or float64.")
    try:
        return pme.parameters
    except RuntimeError:  # none are chosen yet
        kind = kind_of(positions)  # None while JAX traces
        backend = kernels.backend("cpu") if kind is None else kind.backend(positions)
        return pme.core(positions.shape[0], np.dtype(name), backend).parameters


def matrix_of(pme: PME, cell: Any, like: Callable[[Any], Any], diagonal: Callable[[Any], Any]) -> Any:
    """Return lattice vectors as rows, of the PME's box or of the user's lengths (3,) or vectors (3, 3)."""
    if cell is None:
        return like(pme.box.matrix.tolist())
    if tuple(cell.shape) not in ((3,), (3, 3)):
        raise ValueError(f"cell has shape {tuple(cell.shape)}; give lengths (3,) or lattice vectors as rows (3, 3).")
    return diagonal(cell) if cell.ndim == 1 else cell


def energy(
    xp: Any,
    pme: PME,
    split: Split,
    x: Any,
    q: Any,
    cell: Any,
    near: Any,
    far: Any,
    like: Callable[[Any, Any], Any],
) -> Any:
    """Return the energy from both halves.

    Parameters
    ----------
    xp : module
        torch or ``jax.numpy``.
    near : array ()
        Sum over pairs within the cutoff, without Coulomb's constant.
    far : array (N,)
        Potentials of the mesh for ``4 pi`` times the charges, background included.
    like : callable
        ``like(numbers, array)`` returns an array of numbers with the dtype and device of ``array``.
    """
    total = near + (q * far).sum() / 2 - split.itself / 2 * (q * q).sum()
    pairs = pme.exclusions.pairs.copy()  # torch warns of indices that are read-only
    if len(pairs):
        d = nearest(xp, x[pairs[:, 1]] - x[pairs[:, 0]], cell, xp.linalg.inv(cell), like(NEIGHBOURS, x))
        weights = like(pme.exclusions.factors - 1, q)
        total = total + (weights * q[pairs[:, 0]] * q[pairs[:, 1]] / (d * d).sum(1) ** 0.5).sum()
    return pme.coulomb_constant * total


def by_cell(xp: Any, x: Any, cell: Any, by_x: Any, virial: Any) -> Any:
    """Return the slope by lattice vectors at fixed positions, from those by positions and by a strain of both."""
    return xp.linalg.solve(cell.T, (virial - by_x.T @ x).T)


def slopes_of_dipoles(
    xp: Any, model: InducedDipoles, x: Any, q: Any, alpha: Any, m: Any, field: Any, cell: Any, induced: Any,
    of_energy: Any, slope: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Return slopes by positions, charges, polarizabilities, dipoles, field (N, 3) and cell.

    They are those of a function that has the slopes ``of_energy`` and ``slope`` (N, 3) by energy and induced dipoles.
    Arrays are of NumPy or torch, which ``xp`` is.
    """
    given = dict(positions=x, charges=q, polarizabilities=alpha, dipoles=m, field=field)
    plain, mixed = model._derivatives(given, induced, slope, True)
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


def slopes_of_charges(
    xp: Any, model: ChargeEquilibration, widths: Any, total: float, x: Any, chi: Any, eta: Any, cell: Any, q: Any,
    of_energy: Any, slope: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Return slopes by positions, electronegativities, hardness and cell, as `slopes_of_dipoles` for charges."""
    given = dict(positions=x, electronegativities=chi, hardness=eta, widths=widths, total=total)
    plain, mixed = model._derivatives(given, q, slope, True)
    by_x, virial = (sign * (of_energy * plain[n] + mixed[n]) for n, sign in (("forces", -1), ("virial", 1)))
    by_chi, by_eta = of_energy * q + mixed["z"], of_energy * q**2 / 2 + mixed["z"] * q
    return by_x, by_chi, by_eta, by_cell(xp, x, cell, by_x, virial)


def check_model(model: Any, kind: type) -> None:
    """Raise a TypeError if a model is not of a kind."""
    if not isinstance(model, kind):
        raise TypeError(f"model is of type {type(model).__name__}; give a particlemesh.apps.pme.{kind.__name__}.")


def pair_sums(
    xp: Any, cutoff: float, split: Split, x: Any, q: Any, cell: Any, on_gpu: bool
) -> tuple[Any, Any, Any, Any]:
    """Return the energy of pairs within the cutoff, and its slopes by positions, charges and cell.

    Arrays are of NumPy or torch, which ``xp`` is.
    """
    box = pm.Box(np.asarray(cell.tolist()))
    smooth = polynomials(split, cutoff, str(x.dtype).endswith("float32"), on_gpu)
    check_finite(q, "charges")
    sums = (
        pm.UniformGrid(box, cell_size=cells(box, cutoff))
        .build(x)
        .stream(cutoff, direct.pair_function(smooth, 1, True), q)
    )
    if float(sums[:, 10].sum()) > 0:
        raise ValueError("particles lie on top of each other: move one of them, or exclude the pair.")
    by_x = -q[:, None] * sums[:, 1:4]
    virial = (q[:, None] * sums[:, 4:10]).sum(0) / 2
    strain = xp.stack([virial[[0, 5, 4]], virial[[5, 1, 3]], virial[[4, 3, 2]]])
    return (q * sums[:, 0]).sum() / 2, by_x, sums[:, 0], by_cell(xp, x, cell, by_x, strain)
