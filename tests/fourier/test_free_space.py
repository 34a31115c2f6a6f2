# SPDX-License-Identifier: BSD-3-Clause
"""Green functions along open axes against closed forms for Gaussian densities."""

import numpy as np
import pytest
from scipy.special import erf, erfc, exp1

import particlemesh as pm
from particlemesh.fourier import Transform

SIGMA = 0.07


def gaussian(mesh, centre):
    grids = np.meshgrid(*(mesh.nodes(a) for a in range(mesh.ndim)), indexing="ij")
    r = np.sqrt(sum((g - c) ** 2 for g, c in zip(grids, centre, strict=True)))
    return np.exp(-(r**2) / (2 * SIGMA**2)) / (2 * np.pi * SIGMA**2) ** (mesh.ndim / 2), r


def poisson(r, ndim):
    s = np.sqrt(2) * SIGMA
    if ndim == 1:
        return -(r * erf(r / s) + SIGMA * np.sqrt(2 / np.pi) * np.exp(-((r / s) ** 2))) / 2
    if ndim == 2:
        return -(2 * np.log(r) + exp1((r / s) ** 2)) / (4 * np.pi)
    return erf(r / s) / (4 * np.pi * r)


def yukawa(r, ndim, kappa):
    s, a = np.sqrt(2) * SIGMA, kappa * SIGMA**2
    minus = np.exp(-kappa * r) * erfc((a - r) / s)
    plus = np.exp(kappa * r) * erfc((a + r) / s)
    scale = np.exp(kappa**2 * SIGMA**2 / 2)
    return scale * (minus + plus) / (4 * kappa) if ndim == 1 else scale * (minus - plus) / (8 * np.pi * r)


def open_mesh(ndim, nodes=(40, 36, 44), offset=0.5):
    spacing = 0.03
    lengths = [spacing * (n - (offset == 0)) for n in nodes[:ndim]]
    return pm.Mesh(nodes[:ndim], lengths, periodic=False, offset=offset, origin=(0.5, -2.0, 7.0)[:ndim])


@pytest.mark.parametrize("offset", [0.0, 0.5])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_poisson_of_a_gaussian(backend, ndim, offset):
    """The density is off the centre, so that some nodes are farther from it than half of the box."""
    mesh = open_mesh(ndim, offset=offset)
    density, r = gaussian(mesh, np.array([1.0, -1.4, 7.6])[:ndim] + 0.0041)
    transform = Transform(mesh)
    phi = backend.host(transform.apply(backend.array(density), transform.green("poisson")))
    np.testing.assert_allclose(phi, poisson(r, ndim), atol=2e-9 * np.abs(poisson(r, ndim)).max())


@pytest.mark.parametrize("kappa", [0.4, 9.0])
@pytest.mark.parametrize("ndim", [1, 3])
def test_yukawa_of_a_gaussian(ndim, kappa):
    mesh = open_mesh(ndim)
    density, r = gaussian(mesh, np.array([1.0, -1.4, 7.6])[:ndim] + 0.0041)
    transform = Transform(mesh)
    phi = transform.apply(density, transform.green("yukawa", kappa=kappa))
    expected = yukawa(r, ndim, kappa)
    np.testing.assert_allclose(phi, expected, atol=2e-9 * expected.max())


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("open_axes", [1, 2])
def test_a_wave_along_periodic_axes_screens_the_others(open_axes, axis):
    """rho = cos(k y) g(x) has the potential cos(k y) u(x), where u solves the screened equation with kappa = k."""
    nodes, lengths = [36, 40, 32], [1.08, 1.2, 0.96]
    is_open = [(a - axis) % 3 < open_axes for a in range(3)]
    mesh = pm.Mesh(nodes, lengths, periodic=[not o for o in is_open], offset=0.5)
    kept = [a for a in range(3) if is_open[a]]
    flat = pm.Mesh([nodes[a] for a in kept], [lengths[a] for a in kept], periodic=False, offset=0.5)
    density, _ = gaussian(flat, [0.47 * lengths[a] for a in kept])
    wave, kappa = np.ones((1, 1, 1)), 0.0
    for a in range(3):
        if not is_open[a]:
            k = 2 * np.pi / lengths[a]
            wave = wave * np.cos(k * mesh.nodes(a) + 0.2).reshape([-1 if b == a else 1 for b in range(3)])
            kappa = np.hypot(kappa, k)
    shape = [nodes[a] if is_open[a] else 1 for a in range(3)]
    whole, part = Transform(mesh), Transform(flat)
    expected = part.apply(density, part.green("yukawa", kappa=kappa)).reshape(shape) * wave
    got = whole.apply(density.reshape(shape) * wave, whole.green("poisson"))
    np.testing.assert_allclose(got, expected, atol=1e-11)


def test_a_slab_without_waves_is_one_dimensional():
    mesh = pm.Mesh((6, 40), (1.0, 1.2), periodic=(True, False), offset=0.5)
    line = pm.Mesh(40, 1.2, periodic=False, offset=0.5)
    density, r = gaussian(line, [0.5])
    transform = Transform(mesh)
    got = transform.apply(np.broadcast_to(density, mesh.shape), transform.green("poisson"))
    np.testing.assert_allclose(got, np.broadcast_to(poisson(r, 1), mesh.shape), atol=1e-9)


def test_padded_fields_come_back(backend):
    mesh = pm.Mesh((5, 4, 6), (1.0, 1.0, 1.0), periodic=(False, True, False), offset=0.5)
    transform = Transform(mesh)
    assert transform.shape == (10, 4, 12)
    field = np.random.default_rng(1).random((2, *mesh.shape))
    np.testing.assert_allclose(
        backend.host(transform.inverse(transform.forward(backend.array(field)))), field, atol=1e-14
    )
