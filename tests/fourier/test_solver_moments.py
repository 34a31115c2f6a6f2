# SPDX-License-Identifier: BSD-3-Clause
"""Charges, dipoles and quadrupoles on a mesh by ik: dense sums over modes, and derivatives by a strain."""

import itertools
import math

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import Solver, Transform
from particlemesh.fourier.modes import Modes

TRICLINIC = [[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.4, 0.9]]
MESHES = {
    "1d": pm.Mesh(9, 2.0, offset=0.25),
    "2d": pm.Mesh((6, 7), (1.0, 2.0)),
    "3d": pm.Mesh((5, 4, 6), TRICLINIC),
    "open": pm.Mesh((5, 6, 4), pm.Box((1.0, 2.0, 1.5), periodic=(True, False, True))),
}
EWALD = dict(green="ewald", alpha=2.0)


def particles(mesh, count=17):
    rng, moments = np.random.default_rng(3), (mesh.ndim + 1) * (mesh.ndim + 2) // 2
    return rng.random((count, mesh.ndim)) @ mesh.box.matrix, rng.standard_normal((moments, count))


def powers(mesh):
    """Factors of densities (m, *modes), from wave vectors without slopes at highest modes."""
    k = [np.broadcast_to(c, Modes(mesh, real=True).spectrum_shape) for c in Modes(mesh, real=True).slopes]
    pairs = itertools.combinations_with_replacement(range(mesh.ndim), 2)
    return np.stack([np.ones_like(k[0]), *(-1j * c for c in k), *(-k[a] * k[b] for a, b in pairs)])


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MESHES)
def test_they_are_products_with_powers_of_ik(backend, name, dtype):
    mesh = MESHES[name]
    x, moments = (backend.array(a.astype(dtype)) for a in particles(mesh))
    solver = Solver(mesh, "bspline4", **EWALD).set_positions(x)
    density = solver.plan.spread(moments)
    result = backend.host(solver.moment_fields(density))
    wide = solver.plan.mesh
    nodes, factors, transform = Modes(wide, real=True).shape, powers(wide), Transform(wide, "bspline4")
    axes = tuple(range(-mesh.ndim, 0))
    spectra = np.fft.rfftn(backend.host(density).astype(float), nodes, axes)
    table = transform.green(**EWALD, compensation="potential") / mesh.node_volume
    exact = np.fft.irfftn(factors.conj() * (factors * spectra).sum(0) * table, nodes, axes)
    inner = (..., *(slice(0, n) for n in wide.field_shape))
    assert result.dtype == dtype
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    for mine, expected in zip(result, exact[inner], strict=True):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=tolerance * abs(expected).max())
    out = backend.array(np.full(result.shape, np.nan, dtype))
    assert solver.moment_fields(density, out=(out,)) is out
    np.testing.assert_array_equal(backend.host(out), result)


@pytest.mark.parametrize("periodic", [(), (True,), (False, True), (True, False, True), (False, False, True)])
def test_with_a_margin_slopes_by_ik_are_those_of_free_space(periodic):
    """Tables of slopes by ik are transforms of odd functions, which have no kink."""
    periodic = (*periodic, False)[:3]
    mesh = pm.Mesh((14, 16, 12)[: len(periodic)], pm.Box((1.0, 1.2, 0.9)[: len(periodic)], periodic=periodic))
    x, moments = particles(mesh)
    charges = np.concatenate([moments[:1], 0 * moments[1:]])
    slopes = Solver(mesh, "bspline8", green="ewald", alpha=3.0, gradient="ik").set_positions(x)
    potential, gradient = slopes.potential_and_gradient(charges[0])
    solver = Solver(mesh, "bspline8", green="ewald", alpha=3.0, margin=8).set_positions(x)
    mine = solver.plan.interpolate(solver.moment_fields(solver.plan.spread(charges)))
    for one, exact in zip(mine, (potential, *gradient.T), strict=False):
        np.testing.assert_allclose(one, exact, rtol=0, atol=1e-10 * abs(gradient).max())


@pytest.mark.backends("cpu", "opencl", "cuda")
def test_systems_are_those_alone(backend):
    mesh, owner = MESHES["3d"], (np.arange(17) % 3).astype(np.int32)
    x, moments = particles(mesh)
    boxes = np.array([mesh.box.matrix * s for s in (1.0, 1.1, 0.9)])
    solver = Solver(mesh, "bspline4", **EWALD, systems=3)
    solver.set_positions(backend.array(x), system=backend.array(owner), boxes=boxes)
    fields, virial = solver.moment_fields(solver.plan.spread(backend.array(moments)), virial=True)
    assert virial.shape == (3, 3, 3)
    for s, box in enumerate(boxes):
        alone = Solver(pm.Mesh(mesh.shape, box), "bspline4", **EWALD).set_positions(x[owner == s])
        expected = alone.moment_fields(alone.plan.spread(moments[:, owner == s]), virial=True)
        for mine, other in zip((backend.host(fields)[:, s], backend.host(virial)[s]), expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=0, atol=1e-11 * abs(other).max())


@pytest.mark.parametrize("name", ["1d", "2d", "3d"])
def test_the_virial_is_the_slope_by_a_strain_at_fixed_waves_in_the_density(name):
    """Moments that a strain turns back leave ``k . mu`` and ``k . Q . k`` as they are."""
    mesh = MESHES[name]
    x, moments = particles(mesh)
    pairs = list(itertools.combinations_with_replacement(range(mesh.ndim), 2))

    def energy(strain):
        turn = np.eye(mesh.ndim) + strain
        solver = Solver(
            pm.Mesh(mesh.shape, mesh.box.matrix @ turn.T, offset=mesh.offset), "bspline4", **EWALD
        ).set_positions(x @ turn.T)
        q, mu, rest = np.split(moments, [1, 1 + mesh.ndim])
        whole = np.zeros((mesh.ndim, mesh.ndim, len(x)))
        for (a, b), values in zip(pairs, rest, strict=True):
            whole[a, b] += values / 2
            whole[b, a] += values / 2
        whole = np.einsum("ac,cdn,bd->abn", turn, whole, turn)
        given = np.concatenate([q, turn @ mu, [whole[a, b] * (2 - (a == b)) for a, b in pairs]])
        fields, virial = solver.moment_fields(solver.plan.spread(given), virial=True)
        return (given * solver.plan.interpolate(fields)).sum() / 2, virial

    strain = np.random.default_rng(1).uniform(-1, 1, (mesh.ndim, mesh.ndim))
    first, second = ((energy(h * strain)[0] - energy(-h * strain)[0]) / (2 * h) for h in (1e-4, 2e-4))
    virial = energy(0 * strain)[1]
    assert math.isclose((virial * strain).sum(), (4 * first - second) / 3, rel_tol=1e-8)


def test_bad_fields_are_explained():
    solver = Solver(MESHES["2d"], **EWALD).set_positions(particles(MESHES["2d"])[0])
    with pytest.raises(ValueError, match=r"fields has shape \(3, 6, 7\); its last 3 axes must be 6, 6, 7"):
        solver.moment_fields(np.zeros((3, 6, 7)))
    with pytest.raises(ValueError, match=r"fields have shape \(2, 6, 6, 7\)"):
        solver.moment_fields(np.zeros((2, 6, 6, 7)))
    with pytest.raises(TypeError, match="one array for each of fields, virial"):
        solver.moment_fields(np.zeros((6, 6, 7)), virial=True, out=(np.zeros((6, 6, 7)),))
