# SPDX-License-Identifier: BSD-3-Clause
"""Charges in free space along open axes: plain sums of pairs, and the sum of Parry for two periodic axes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import erf
from test_multipoles import call, check_slopes
from test_slab import parry

import particlemesh as pm
from differentiating import in_both, in_each
from multipole_ewald import energy as of_images
from multipole_ewald import gaussian, pair, system
from particlemesh.apps.pme import PME, ChargeEquilibration, InducedDipoles
from pme_cases import close, pair_of_dipoles

LENGTHS = np.array([2.5, 3.0, 2.0])
FREE = pm.Box(LENGTHS, origin=(-1.0, 0.5, 2.0), periodic=False)
SLAB = pm.Box((1.0, 1.2, 2.0), periodic=(True, True, False))
STILL = np.zeros((3, 3))
PAIRS, FACTORS = np.array([(0, 1), (5, 7), (9, 3), (0, 2)]), np.array([0.0, 0.5, 0.8333, 0.0])


def cluster(count=30):
    """Charges anywhere in a box, with a net charge; two of them are at opposite faces."""
    rng = np.random.default_rng(9)
    corners = np.stack(np.meshgrid(*[np.arange(4)] * 3), -1).reshape(-1, 3)[rng.permutation(64)[:count]]
    s = (corners + rng.uniform(0.1, 0.7, (count, 3))) / 4
    s[:2] = (0.0, 0.5, 0.5), (1.0, 0.5, 0.51)
    return FREE.origin + s * LENGTHS, rng.normal(size=count)


def plain(x, q, pairs=(), factors=()):
    """Energy, forces, energies of particles and virial by Coulomb's law."""
    weight = np.ones((len(x), len(x)))
    for (i, j), f in zip(pairs, factors, strict=True):
        weight[i, j] = weight[j, i] = f
    d = x - x[:, None]
    r = np.linalg.norm(d, axis=-1) + np.diag(np.full(len(x), np.inf))
    u = weight * q * q[:, None] / r
    forces = -((u / r**2)[..., None] * d).sum(1)
    return u.sum() / 2, forces, u.sum(1) / 2, -x.T @ forces


@pytest.mark.parametrize("options", [{}, {"skin": 0.2}], ids=["stream", "list"])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_cluster_is_the_plain_sum_of_its_pairs(options, pairs):
    x, q = cluster()
    listed = (PAIRS, FACTORS) if pairs else ((), ())
    if pairs:
        options = options | dict(exclusions=PAIRS, factors=FACTORS)
    pme = PME(FREE, accuracy=1e-11, coulomb_constant=2.0, **options)
    for moved in (x, x[::-1].copy()):  # from one face to the other is no turn of an open axis
        result = pme(moved, q)
        energy, forces, energies, virial = plain(moved, q, *listed)
        assert abs(result.energy - 2 * energy) <= 1e-10 * abs(energies).sum()
        np.testing.assert_allclose(result.forces, 2 * forces, rtol=0, atol=1e-9 * abs(forces).max())
        np.testing.assert_allclose(result.energies, 2 * energies, rtol=0, atol=1e-9 * abs(energies).max())
        np.testing.assert_allclose(result.virial, 2 * virial, rtol=0, atol=1e-9 * abs(virial).max())


def relative(forces, exact, q):
    """Root mean square of differences over a typical force, as ``accuracy`` is defined."""
    typical = (q.astype(float) ** 2).mean() / (FREE.volume / len(q)) ** (2 / 3)
    return np.sqrt(((forces - exact) ** 2).sum(1).mean()) / typical


@pytest.mark.parametrize(("dtype", "accuracy"), [("float32", 1e-5), ("float64", 1e-6), ("float64", 1e-10)])
@pytest.mark.parametrize("count", [2, 3, 10, 100])
def test_the_accuracy_asked_for_is_reached_by_a_few_charges(count, dtype, accuracy):
    pme = PME(FREE, accuracy, dtype=dtype)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, q = (FREE.origin + rng.random((count, 3)) * LENGTHS).astype(dtype), rng.normal(size=count).astype(dtype)
        _, exact, *_ = plain(*(a.astype(float) for a in (x, q)))
        assert relative(pme(x, q).forces, exact, q) <= accuracy, seed


@pytest.mark.turns(2)
@pytest.mark.parametrize(("count", "splitting", "shape", "window"), [
    (10, 1.4, (11, 13, 9), "bspline10"), (100, 2.8, (21, 25, 17), "bspline7"), (100, 2.0, (16, 19, 13), "bspline4"),
])  # fmt: skip
def test_errors_of_the_mesh_are_as_predicted(count, splitting, shape, window):
    squares = []
    for seed in range(3 if count == 100 else 8):
        rng = np.random.default_rng(seed)
        x, q = FREE.origin + rng.random((count, 3)) * LENGTHS, rng.normal(size=count)
        pme, fine = (
            PME(FREE, cutoff=0.5, splitting=splitting, **mesh)  # errors of pairs cancel
            for mesh in (dict(shape=shape, window=window), dict(shape=[2 * n for n in shape], window="bspline12"))
        )
        squares.append(relative(pme(x, q).forces, fine(x, q).forces, q) ** 2)
    assert 0.7 <= np.sqrt(np.mean(squares)) / pme.parameters.mesh_error <= 1.45


@pytest.mark.parametrize("net", [0.0, 1.7])
def test_a_slab_is_the_sum_of_parry(net):
    rng = np.random.default_rng(4)
    x, q = rng.random((7, 3)) * (1, 1.2, 1.9), rng.normal(size=7)
    q -= (q.sum() - net) / 7
    result = PME(SLAB, accuracy=1e-10)(x + (0.7, -3.0, 0.05), q)
    np.testing.assert_allclose(result.energy, parry(x, q, np.diag((1.0, 1.2))), rtol=1e-9)
    step = np.zeros_like(x)
    step[3, 2] = 1e-4
    slope = (parry(x + step, q, np.diag((1.0, 1.2))) - parry(x - step, q, np.diag((1.0, 1.2)))) / 2e-4
    np.testing.assert_allclose(result.forces[3, 2], -slope, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 2])
def test_a_wire_is_the_plain_sum_over_its_images(axis):
    rng = np.random.default_rng(6)
    x, q = rng.random((5, 3)) * (1.0, 1.2, 0.8), rng.normal(size=5)
    q -= q.mean()
    box = pm.Box((1.0, 1.2, 0.8), periodic=[a == axis for a in range(3)])
    images = np.arange(-20_000, 20_001.0)[:, None] * box.matrix[axis]  # beyond, dipoles are 1e-9
    energy = 0.0
    for i in range(5):
        for j in range(5):
            r = np.linalg.norm(x[j] - x[i] + images, axis=1)
            energy += q[i] * q[j] / 2 * (1 / r[r > 0]).sum()
    result = PME(box, accuracy=1e-10)(x, q)
    np.testing.assert_allclose(result.energy, energy, rtol=1e-8)
    assert abs(result.forces.sum(0)).max() <= 1e-8 * abs(result.forces).max()


@pytest.mark.parametrize("splitting", [None, "prolate"])
def test_dipoles_in_free_space(splitting):
    x, q = cluster(8)
    mu = np.random.default_rng(1).normal(size=(8, 3)) * 0.2
    pme = PME(FREE, accuracy=1e-11, splitting=splitting, exclusions=[(2, 3)], factors=0.5)
    energy = sum(
        (0.5 if (i, j) == (2, 3) else 1.0) * pair_of_dipoles(x[j] - x[i], q[i], mu[i], q[j], mu[j])
        for i in range(8)
        for j in range(i + 1, 8)
    )
    np.testing.assert_allclose(pme(x, q, dipoles=mu).energy, energy, rtol=1e-8)


# ---- charges, dipoles, quadrupoles and widths -----------------------------------------------------------------


def molecule(count=8):
    """Positions in FREE, charges, dipoles, quadrupoles and widths; every other particle is a point."""
    return cluster(count)[0], *system(np.diag(LENGTHS), count=count)[1:]


def of_pairs(d, i, j, q, mu, quad, s):
    """Energies of particles i at 0 and j at d, Gaussians of widths s."""
    beta = np.maximum(2 * (s[i] ** 2 + s[j] ** 2), 1e-300) ** -0.5
    return pair(d, (q[i], mu[i], quad[i]), (q[j], mu[j], quad[j]), lambda r2, n: gaussian(r2, beta, n))


def sum_of_pairs(x, *given, pairs=(), factors=()):
    i, j = np.triu_indices(len(x), 1)
    weight = np.ones((len(x), len(x)))
    for (a, b), f in zip(pairs, factors, strict=True):
        weight[a, b] = weight[b, a] = f
    return (weight[i, j] * of_pairs(x[j] - x[i], i, j, *given)).sum()


def sum_of_slab(x, q, mu, quad, s, strain=STILL):
    """A periodic sum with a gap of four periods, less what planes of dipoles and charges make there."""
    matrix = np.diag((1.0, 1.2, 6.0))
    matrix[:2] = matrix[:2] @ (np.eye(3) + strain).T
    z = x[:, 2] - x[:, 2].mean()
    first, second = (q * z + mu[:, 2]).sum(), (q * z**2 + 2 * mu[:, 2] * z + quad[:, 2, 2]).sum()
    planes = first**2 - q.sum() * second - (6 * q.sum()) ** 2 / 12
    return of_images(matrix, x, q, mu, quad, s) + 2 * np.pi / np.linalg.det(matrix) * planes


def sum_of_wire(x, *given, axis=0, most=3000, strain=STILL):
    """All images along an axis; beyond, a neutral wire's are 1e-8."""
    images = np.arange(-most, most + 1.0)[:, None] * (SLAB.matrix[axis] + strain @ SLAB.matrix[axis])
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            d = x[j] - x[i] + images
            total += of_pairs(d[(d**2).sum(1) > 0], i, j, *given).sum() / 2
    return total


@pytest.mark.parametrize("splitting", ["prolate", "gaussian"])
@pytest.mark.parametrize("listed", [{}, dict(exclusions=[(2, 3), (0, 1)], factors=[0.5, 0.0])], ids=["all", "excluded"])
def test_multipoles_in_free_space_are_the_plain_sum_of_their_pairs(splitting, listed):
    given = molecule()
    pme = PME(FREE, accuracy=1e-11, splitting=splitting, coulomb_constant=2.0, **listed)
    result = call(pme, *given)
    named = dict(pairs=listed.get("exclusions", ()), factors=listed.get("factors", ()))
    check_slopes(result, lambda *g: 2 * sum_of_pairs(*g, **named), *given)
    np.testing.assert_allclose(result.energy, 2 * sum_of_pairs(*given, **named), rtol=1e-9)
    if not listed:
        charges, both = PME(FREE, accuracy=1e-11, splitting=splitting), given[:2]
        before = charges(*both)
        close(replace(call(charges, *given), virial=None), call(charges, *given, virial=False), 1e-13)
        close(charges(*both), before, 1e-9)  # with the mesh of multipoles


@pytest.mark.turns(2)
@pytest.mark.parametrize("net", [0.0, 1.7])
def test_multipoles_of_a_slab_are_those_of_images_and_of_planes(net):
    x, q, mu, quad, s = system(np.diag((1.0, 1.2, 1.5)), count=5, width=0.06)
    given = x + (0.7, -3.0, 0.2), q - (q.sum() - net) / 5, mu, quad, s
    result = call(PME(SLAB, accuracy=1e-9), *given)
    np.testing.assert_allclose(result.energy, sum_of_slab(*given), rtol=1e-8)
    check_slopes(result, sum_of_slab, *given)


@pytest.mark.turns(2)
@pytest.mark.parametrize("axis", [0, 2])
def test_multipoles_of_a_wire_are_the_plain_sum_over_its_images(axis):
    x, q, mu, quad, s = system(np.diag(SLAB.lengths), count=3, width=0.06)
    given = x, q - q.mean(), mu, quad, s
    box = pm.Box(SLAB.lengths, periodic=[a == axis for a in range(3)])
    np.testing.assert_allclose(call(PME(box, accuracy=1e-9), *given).energy, sum_of_wire(*given, axis=axis), rtol=1e-7)


def test_equilibrated_gaussians_in_free_space_solve_the_equations_of_plain_pairs():
    x, *_ = molecule()
    rng, s = np.random.default_rng(2), np.where(np.arange(8) % 2, 0.1, 0.05)
    chi, eta = rng.normal(size=8), rng.uniform(8, 12, 8)
    r = np.linalg.norm(x - x[:, None], axis=2) + np.eye(8)
    matrix = erf(r / np.sqrt(2 * (s**2 + s[:, None] ** 2))) / r
    matrix[np.diag_indices(8)] = eta + 1 / (np.sqrt(np.pi) * s)
    whole = np.block([[matrix, np.ones((8, 1))], [np.ones((1, 8)), np.zeros((1, 1))]])
    q = np.linalg.solve(whole, np.append(-chi, 0.3))[:8]
    result = ChargeEquilibration(PME(FREE, accuracy=1e-9), 1e-10)(x, chi, eta, widths=s, total=0.3)
    np.testing.assert_allclose(result.charges, q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(result.energy, chi @ q + q @ matrix @ q / 2, rtol=1e-10)


@pytest.mark.parametrize("name", ["free", "wire", "slab"])
@pytest.mark.parametrize("net", [0.0, 1.3])
@pytest.mark.turns(3)
def test_the_trace_of_the_virial_follows_from_the_energy(name, net):
    pme, (x, q, *_), _ = in_box(name, None)
    q = q - q.mean() + net / 5
    for virial in (pme(x, q).virial, pme(x, np.stack([q, 2 * q])).virial[1] / 4):
        # A wire has the potential of ``-2 ln(r)`` of its charge per length: in another unit of r it has another zero.
        trace = -pme(x, q).energy - (2 * net**2 / pme.box.lengths[1] if name == "wire" else 0.0)
        np.testing.assert_allclose(np.trace(virial), trace, rtol=0, atol=1e-8 * abs(virial).max())
        np.testing.assert_array_equal(virial, virial.T)


@pytest.mark.parametrize("name", ["free", "wire", "slab"])
@pytest.mark.parametrize("splitting", ["prolate", "gaussian"])
@pytest.mark.parametrize("numbers", [2, 3, 5], ids=["charges", "dipoles", "all"])
@pytest.mark.turns(6)
def test_the_virial_is_the_change_of_plain_sums_by_a_strain(name, splitting, numbers):
    pme, arrays, _ = in_box(name, splitting)
    given = arrays[:numbers]
    result = pme(*given) if numbers == 2 else call(pme, *given) if numbers == 5 else pme(*given[:2], dipoles=given[2])
    periodic, h = np.array(pme.box.periodic), 2e-3
    strain = np.random.default_rng(3).uniform(-1, 1, (3, 3)) * ~(
        periodic & ~periodic[:, None]
    )  # no lattice vector turns
    whole = given + [0 * a for a in arrays[numbers:]]
    at = np.array([plain_energy(name, pme.box, *whole, strain=n * h * strain) for n in range(-3, 4)])
    size = abs(result.virial * strain).sum()
    np.testing.assert_allclose(
        (result.virial * strain).sum(), at @ [-1, 9, -45, 0, 45, -9, 1] / (60 * h), rtol=0, atol=1e-6 * size
    )
    turns = STILL
    if numbers > 2:
        turns = result.fields.T @ given[2]
    if numbers == 5:
        turns = turns + np.einsum("nac,ncb->ab", result.field_gradients, given[3])
    twist = result.virial - result.virial.T - turns + turns.T
    np.testing.assert_allclose(twist, 0, rtol=0, atol=1e-7 * abs(result.virial).max())


@pytest.mark.parametrize("model", [InducedDipoles, ChargeEquilibration])
def test_virials_of_models_are_slopes_of_their_energies(model):
    pme, (x, q, *_), _ = in_box("slab", None)
    more = (0.01,) if model is InducedDipoles else (9.0,)
    strain = np.random.default_rng(1).uniform(-1, 1, 3)  # of lengths, and along z all is free to shear

    def solved(h):
        box = pm.Box(pme.box.lengths * (1 + h * strain * (1, 1, 0)), pme.box.origin, periodic=pme.box.periodic)
        moved = (x - box.origin) * (1 + h * strain) + box.origin
        moved[:, :2] += h * strain[:2] * (x - box.origin)[:, 2:] * 0.5
        kept = dict(cutoff=1.3, splitting=3.4, shape=(24, 28, 40), window="bspline12")
        return model(PME(box, **kept), 1e-12)(moved, q, *more)

    h, virial = 1e-4, solved(0.0).virial
    change = (solved(h).energy - solved(-h).energy) / (2 * h)
    along = virial.diagonal() @ strain + virial[:2, 2] @ strain[:2] * 0.5
    np.testing.assert_allclose(along, change, rtol=0, atol=1e-6 * abs(virial).max())


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multipoles_in_an_open_box_on_every_backend_and_in_every_type(backend, dtype):
    given = [a.astype(dtype) for a in molecule()]
    options = dict(cutoff=1.4, splitting=3.0, shape=(14, 16, 12), window="bspline8", exclusions=PAIRS[:1])
    exact = call(PME(FREE, **options), *(a.astype(float) for a in given))
    pme = PME(FREE, **options, dtype=dtype, backend=backend.name).reserve(8, quadrupoles=True)
    result = call(pme, *map(backend.array, given))
    close(result, exact, 3e-5 if dtype == "float32" else 1e-12, backend.host)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_equal_the_cpu(backend, dtype):
    x, q = (a.astype(dtype) for a in cluster())
    options = dict(cutoff=1.4, splitting=2.0, shape=(10, 12, 9), window="bspline5", exclusions=PAIRS, factors=FACTORS)
    expected = PME(FREE, **options)(x, q)
    pme = PME(FREE, **options, dtype=dtype, backend=backend.name).reserve(30)
    result = pme(backend.array(x), backend.array(q))
    tolerance = 5e-6 if dtype == "float32" else 1e-12
    for name in ("energy", "energies", "forces", "virial"):
        exact = getattr(expected, name)
        np.testing.assert_allclose(
            backend.host(getattr(result, name)), exact, rtol=0, atol=tolerance * abs(exact).max(), err_msg=name
        )


# ---- derivatives by torch and JAX ---------------------------------------------------------------------------------

BOXES = {"free": (True,) * 3, "wire": (True, False, True), "slab": (False, False, True)}  # open axes
LISTED, HALVES = np.array([(0, 1), (2, 4), (1, 3)]), np.array([0.0, 0.5, 0.8333])


def in_box(name, kind, dtype="f8"):
    """A PME, and positions, charges, perhaps dipoles, quadrupoles and widths; a wire is neutral, also after steps."""
    opened = BOXES[name]
    box = pm.Box(SLAB.lengths, origin=(0.3, -1.0, 0.2), periodic=[not a for a in opened])
    x, q, *moments = system(np.diag(box.lengths), count=5, width=0.05)
    x[1, ~np.array(box.periodic)] = 0.0  # on a face
    arrays = [x + box.origin, q - q.mean() if name == "wire" else q, *moments]
    rng = np.random.default_rng(5)
    steps = [0.2 * rng.normal(size=a.shape) * (a != 0) for a in arrays]
    steps[0][1, list(opened)] = 0.0  # which would leave the box
    steps[1] -= steps[1].mean()
    steps[3] += steps[3].swapaxes(1, 2)
    pme = PME(box, 1e-10, splitting=kind, coulomb_constant=2.0, exclusions=LISTED, factors=HALVES)
    return pme, [a.astype(dtype) for a in arrays], steps


def plain_energy(name, box, x, *given, strain=STILL):
    """Energies of plain sums, in which nearest images of listed pairs have factors; of a strained system."""
    i, j = LISTED.T
    turn = (np.eye(3) + strain).T
    d = x[j] - x[i]
    d = (d - np.round(d / box.lengths) * box.periodic * box.lengths) @ turn
    if name == "free":
        energy = sum_of_pairs(x @ turn, *given)
    elif name == "slab":
        energy = sum_of_slab(x @ turn, *given, strain=strain)
    else:
        energy = sum_of_wire(x @ turn, *given, axis=1, most=1000, strain=strain)
    return 2 * (energy + ((HALVES - 1) * of_pairs(d, i, j, *given)).sum())


def slopes_along(library, pme, arrays, steps):
    """The energy, its slopes, and the changes of slopes along steps; by torch or JAX."""
    names, energy = ("dipoles", "quadrupoles", "widths"), library.module("apps.pme.{}").energy

    def of(x, q, *more):
        return energy(pme, x, q, **dict(zip(names, more, strict=False)))

    steps = [s.astype(a.dtype) for s, a in zip(steps, arrays, strict=True)]
    with library.wide():
        if library.name == "torch":
            value, slopes = library.twice(of, arrays, steps)
            return value, slopes[: len(arrays)], slopes[len(arrays) :]
        both = library.jax.value_and_grad(of, range(len(arrays)))
        (value, first), (_, second) = library.jax.jit(lambda *a: library.jax.jvp(both, *a))(arrays, steps)
        return float(value), list(map(np.asarray, first)), list(map(np.asarray, second))


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("splitting", ["prolate", "gaussian"])
@pytest.mark.parametrize("numbers", ["all", "charges"])
@pytest.mark.turns(12)
@in_both
def test_derivatives_are_results_of_pme_and_changes_of_plain_sums(library, splitting, name, numbers):
    pme, arrays, steps = in_box(name, splitting)
    given, taken = (arrays[:2], steps[:2]) if numbers == "charges" else (arrays, steps)
    value, first, second = slopes_along(library(), pme, given, taken)

    def results(t):
        moved = [a + t * s for a, s in zip(given, taken, strict=True)]
        result = call(pme, *moved) if numbers == "all" else pme(*moved, fields=True)
        more = (-result.fields, -result.field_gradients / 2) if numbers == "all" else ()
        return [np.asarray(a) for a in (result.energy, -result.forces, result.potentials, *more)]

    for mine, exact in zip([value, *first], results(0.0), strict=False):
        np.testing.assert_allclose(mine, exact, rtol=0, atol=1e-10 * abs(exact).max())
    ends = [results(t)[1:] for t in (-2e-4, -1e-4, 1e-4, 2e-4)]
    for mine, *each in zip(second, *ends, strict=False):
        change = np.tensordot([1, -8, 8, -1], np.array(each), 1) / 12e-4
        np.testing.assert_allclose(mine, change, rtol=0, atol=1e-6 * abs(change).max())

    def energies(t):
        moved = [a + t * s for a, s in zip(given, taken, strict=True)]
        return plain_energy(name, pme.box, *moved, *(0 * a for a in arrays[len(moved) :]))

    h = 2e-3
    at = np.array([energies(n * h) for n in range(-3, 4)])
    size = sum(abs(a * s).sum() for a, s in zip(first, taken, strict=True))
    along, twice = (sum((a * s).sum() for a, s in zip(slopes, taken, strict=True)) for slopes in (first, second))
    np.testing.assert_allclose(value, at[3], rtol=1e-6)
    np.testing.assert_allclose(along, at @ [-1, 9, -45, 0, 45, -9, 1] / (60 * h), atol=1e-6 * size)
    np.testing.assert_allclose(twice, at @ [2, -27, 270, -490, 270, -27, 2] / (180 * h**2), rtol=1e-5)


@pytest.mark.parametrize("splitting", ["prolate", "gaussian"])
@in_each(2)
def test_derivatives_in_single_precision(library, splitting):
    library = library()
    pme, arrays, steps = in_box("slab", splitting)
    single = [a.astype(np.float32) for a in arrays[:2]]
    wide = [a.astype(float) for a in single]
    exact = slopes_along(library, pme, wide, steps[:2])[1:]
    for mine, right in zip(slopes_along(library, pme, single, steps[:2])[1:], exact, strict=True):
        for a, b in zip(mine, right, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * abs(b).max())
            assert a.dtype == np.float32


def test_energies_compile_and_are_exported():
    torch = pytest.importorskip("torch", "2.13")  # before, its compiler of whole graphs takes no mesh
    from particlemesh.apps.pme.torch import energy

    class Energy(torch.nn.Module):
        def forward(self, x, q):
            return energy(pme, x, q)

    for splitting in ("prolate", "gaussian"):
        pme, (x, q, *_), _ = in_box("slab", splitting)
        x, q = torch.tensor(x, requires_grad=True), torch.tensor(q)
        value = energy(pme, x, q)
        slope = torch.autograd.grad(value, x)
        compiled = torch.compile(Energy(), fullgraph=True, backend="aot_eager")(x, q)
        torch.testing.assert_close(torch.autograd.grad(compiled, x), slope)
        torch.testing.assert_close(torch.export.export(Energy(), (x, q)).module()(x, q), value)


@in_both
def test_derivatives_by_the_box_are_refused(library):
    library = library()
    of = library.module("apps.pme.{}")
    x, q = map(library.array, cluster())
    pme = PME(FREE, accuracy=1e-4)
    words = r"periodic along \(False, False, False\); derivatives by cell"
    with pytest.raises(ValueError, match=words):
        of.energy(pme, x, q, cell=3 * x[0])
    with pytest.raises(ValueError, match=words):
        of.equilibrated_charges(ChargeEquilibration(pme), x, q, 9.0, cell=3 * x[0])
    with pytest.raises(Exception, match="outside"):
        of.energy(pme, x + 1.0, q)


def test_particles_outside_are_refused():
    x, q = cluster()
    pme = PME(FREE, accuracy=1e-4)
    pme(x, q)
    with pytest.raises(ValueError, match="outside"):
        pme(x + LENGTHS / 2, q)


@pytest.mark.parametrize("periodic", list(itertools.product((False, True), repeat=3)))
def test_tiny_units_of_length_serve_and_huge_ones_are_refused(periodic):
    rng = np.random.default_rng(1)
    x, q = 3 * rng.random((20, 3)), np.resize([1.0, -1.0], 20)
    expected = PME(pm.Box((3.0,) * 3, periodic=periodic), 1e-3)(x, q)
    tiny = PME(pm.Box((3e-60,) * 3, periodic=periodic), 1e-3)(1e-60 * x, q)
    np.testing.assert_allclose(1e-60 * tiny.virial, expected.virial, rtol=1e-9, atol=1e-9)
    huge = PME(pm.Box((3e90,) * 3, periodic=periodic), 1e-3)
    with pytest.raises(ValueError, match="the slope of green is not finite .* the unit of length"):
        huge(1e90 * x, q)
    np.testing.assert_allclose(1e90 * huge(1e90 * x, q, virial=False).energy, expected.energy, rtol=1e-9)
