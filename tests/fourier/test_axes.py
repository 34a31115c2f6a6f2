# SPDX-License-Identifier: BSD-3-Clause
"""Exchanged, mirrored and rotated axes, and shifts by nodes, change no spectrum, potential, gradient or flow."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Solver, Transform, VectorSolver, binned_power, power_spectrum

# These solvers are compared with sums, in which a particle pulls itself, too.
pytestmark = pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")


def drawn(seed):
    """Return a random mesh of 1 to 3 axes, even or odd, in an orthorhombic or triclinic box, and its twin.

    The twin is the same mesh in a rotated or mirrored space, with lattice vectors in another order and direction. The
    third result takes vectors (..., d) to the twin's space, the fourth fields to its nodes.
    """
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    shape = rng.choice([4, 4, 5, 6, 6, 7, 8], ndim) if rng.random() < 0.7 else np.full(ndim, rng.choice([4, 6, 7, 8]))
    oblique = ndim > 1 and rng.random() < 0.4
    matrix = np.diag(rng.choice([1.0, 1.0, 1.3, 2.0], ndim))
    if oblique:
        matrix = matrix + np.tril(rng.uniform(-0.3, 0.3, (ndim, ndim)), -1)
    offset, origin = rng.choice([0.0, 0.5, 0.25], ndim), rng.choice([0.0, 0.7], ndim)

    def signed():
        return np.eye(ndim)[rng.permutation(ndim)] * rng.choice([-1.0, 1.0], ndim)[:, None]

    space = signed()
    lattice = signed() if oblique else space
    order, back = np.abs(lattice).argmax(1), lattice.sum(1) < 0
    corner = (origin + matrix[order[back]].sum(0)) @ space.T
    mesh = pm.Mesh(shape, pm.Box(matrix, origin), offset=offset)
    turned = np.where(back, -offset[order] % 1, offset[order])
    twin = pm.Mesh(shape[order], pm.Box(lattice @ matrix @ space.T, corner), offset=turned)

    def nodes(field):
        """Node m of a mirrored axis is node -m - (whether it has an offset) of the twin."""
        field = field.transpose(order)
        for axis in np.flatnonzero(back):
            field = np.roll(np.flip(field, axis), int(turned[axis] == 0), axis)
        return field

    return mesh, twin, lambda vectors: vectors @ space.T, nodes


def spectra_agree(one, two, tolerance=1e-10):
    scale = np.nanmax(abs(one.power))
    for name in ("k", "power", "modes", "shot_noise", "mu"):
        a, b = getattr(one, name), getattr(two, name)
        if a is not None:
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * (scale if name == "power" else 1))
    for order, pole in one.multipoles.items():
        np.testing.assert_allclose(two.multipoles[order], pole, atol=tolerance * scale)


SEEDS = range(24)


@pytest.mark.turns(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_spectra_do_not_depend_on_the_axes(seed):
    mesh, twin, turn, nodes = drawn(seed)
    rng = np.random.default_rng(seed)
    x, w = rng.random((30, mesh.ndim)) @ mesh.box.matrix + mesh.box.origin, rng.random(30)
    sight, step = rng.normal(size=mesh.ndim), mesh.box.matrix / np.array(mesh.shape)[:, None]
    second = rng.random((9, mesh.ndim)) @ mesh.box.matrix, rng.random(9)
    for extra in ({"multipoles": (0, 2, 4)}, {"mu_bins": 3}):
        for interlaced in (False, True):
            for other in (None, second):
                options = {"window": str(rng.choice(["cic", "tsc", "pcs"])), "interlaced": interlaced, **extra}
                options["compensation"] = str(rng.choice(["window", "aliases"]))
                one = power_spectrum(x, w, mesh, **options, other=other, line_of_sight=sight)
                other = None if other is None else (turn(other[0]), other[1])
                two = power_spectrum(turn(x), w, twin, **options, other=other, line_of_sight=turn(sight))
                spectra_agree(one, two)
                if other is None:  # a node along every axis
                    spectra_agree(one, power_spectrum(x + step.sum(0), w, mesh, **options, line_of_sight=sight))
        field, values = rng.normal(size=mesh.shape), {}
        for at, array, along in ((mesh, field, sight), (twin, nodes(field), turn(sight))):
            for real in (True, False):
                transform = Transform(at, real=real)
                power = abs(transform.forward(array if real else array + 0j)) ** 2
                values[at, real] = binned_power(transform, power, **extra, line_of_sight=along)
        for case in values.values():
            spectra_agree(values[mesh, True], case)


@pytest.mark.turns(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_solvers_and_transforms_do_not_depend_on_the_axes(seed):
    mesh, twin, turn, nodes = drawn(seed)
    rng = np.random.default_rng(seed)
    x, q = rng.random((12, mesh.ndim)) @ mesh.box.matrix + mesh.box.origin, rng.normal(size=12)

    def close(one, two):
        np.testing.assert_allclose(two, one, atol=1e-11 * np.abs(one).max() + 1e-14)

    for green in ({"green": "poisson"}, {"green": "yukawa", "kappa": 2.0}, {"green": "ewald", "alpha": 3.0}):
        for gradient in ("window", "ik"):
            options = {"gradient": gradient, "compensation": str(rng.choice(["continuous", "discrete"])), **green}
            one, two = Solver(mesh, "bspline4", **options), Solver(twin, "bspline4", **options)
            phi, slope, strain = one.set_positions(x).potential_gradient_virial(q)
            others = two.set_positions(turn(x)).potential_gradient_virial(q)
            close(phi, others[0])
            close(turn(slope), others[1])
            close(turn(turn(strain).T).T, others[2])
        for onto in ("transverse", "longitudinal", None):
            one, two = (VectorSolver(m, "bspline4", onto=onto, **green) for m in (mesh, twin))
            v = rng.normal(size=(12, mesh.ndim))
            close(turn(one.set_positions(x).field(v.T).T), two.set_positions(turn(x)).field(turn(v).T).T)
    field = rng.normal(size=mesh.shape)
    table = {"yukawa": Transform(mesh).green("yukawa", kappa=2.0), "twin": Transform(twin).green("yukawa", kappa=2.0)}
    close(nodes(Transform(mesh).apply(field, table["yukawa"])), Transform(twin).apply(nodes(field), table["twin"]))
    slopes = Transform(twin).gradient(nodes(field))
    slopes = np.moveaxis(Transform(mesh).gradient(field), 0, -1)
    turned = np.stack([nodes(turn(slopes)[..., c]) for c in range(mesh.ndim)])
    close(turned, Transform(twin).gradient(nodes(field)))
