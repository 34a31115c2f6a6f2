# SPDX-License-Identifier: BSD-3-Clause
"""Random solvers, vector solvers and spectra against sums over modes, one by one and with both signs of the highest.

``--thorough`` runs 12,000 cases.
"""

import itertools

import numpy as np
import pytest
from numpy.polynomial import legendre

import oracle
import particlemesh as pm
from particlemesh.fourier import Solver, VectorSolver, power_spectrum
from particlemesh.window import window_of

# The sums over modes have the window's slope, too, in which a particle pulls itself.
pytestmark = pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")
PARTS = 8


def seeds(request, part):
    """Return the seeds of one part of the cases."""
    return range(part, 4000 if request.config.getoption("--thorough") else 48, PARTS)


def drawn(rng, least=1):
    ndim = int(rng.integers(1, 4))
    shape = rng.integers(least, [33, 11, 7][ndim - 1], ndim)
    matrix = np.diag(rng.uniform(0.5, 2.0, ndim))
    if rng.random() < 0.3:
        matrix = matrix + np.tril(rng.uniform(-0.4, 0.4, (ndim, ndim)), -1)
    box = pm.Box(matrix, rng.choice([0.0, -0.7], ndim))
    mesh = pm.Mesh(shape, box, offset=rng.choice([0.0, 0.5, 0.3], ndim))
    return mesh, rng.random((int(rng.integers(1, 5)), ndim)) @ matrix + box.origin


def waves(mesh):
    """Yield for each combination of signs of the highest modes: k (modes, d), numbers, and the share of each mode."""
    axes = [np.rint(np.fft.fftfreq(n) * n) for n in mesh.shape]
    numbers = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, mesh.ndim)
    highest = 2 * abs(numbers) == mesh.shape
    for signs in itertools.product((1, -1), repeat=mesh.ndim):
        n = np.where(highest, abs(numbers) * signs, numbers)
        yield 2 * np.pi * n @ mesh.box.inverse, n, np.full(len(n), 0.5**mesh.ndim)


def vectors(mesh):
    """Return k with no slope of the highest modes along their axes."""
    _, n, _ = next(waves(mesh))
    return 2 * np.pi * np.where(2 * abs(n) == mesh.shape, 0, n) @ mesh.box.inverse


def green_of(rng):
    """Return arguments, and the function of k**2 with its value at 0."""
    kappa, alpha, zero = rng.uniform(0.5, 5), rng.uniform(1, 9), rng.choice([None, 0.0, 2.5])
    options, function, at_zero = [
        ({"green": "poisson"}, lambda k2: 1 / k2, 0.0),
        ({"green": "yukawa", "kappa": kappa}, lambda k2: 1 / (k2 + kappa**2), 1 / kappa**2),
        ({"green": "ewald", "alpha": alpha}, lambda k2: np.exp(-k2 / (4 * alpha**2)) / k2, 0.0),
        ({"green": lambda k2: 1 / (1 + k2) ** 2}, lambda k2: 1 / (1 + k2) ** 2, 1.0),
    ][int(rng.integers(4))]
    return {**options, "zero": zero}, function, at_zero if zero is None else zero


def factors(mesh, window, function, at_zero, kind):
    """Return the factor of each mode, and its window's divisor included."""
    total = 0.0
    for k, _, share in waves(mesh):
        k2 = (k**2).sum(1)
        total = total + share * np.where(k2 > 0, function(np.where(k2 > 0, k2, 1.0)), at_zero)
    n = next(waves(mesh))[1]
    for axis, nodes in enumerate(mesh.shape if kind else ()):
        values = window.fourier(2 * np.pi * n[:, axis] / nodes)
        if kind == "discrete":
            values = window.symbol(nodes)[n[:, axis].astype(int) % nodes]
        total = total / values**2
    return total


def filtered(mesh, field, factor):
    axes = tuple(range(-mesh.ndim, 0))
    return np.fft.ifftn(np.fft.fftn(field, axes=axes) * factor.reshape(mesh.shape), axes=axes).real


@pytest.mark.parametrize("part", range(PARTS))
def test_solvers(request, part):
    for seed in seeds(request, part):
        rng = np.random.default_rng([1, seed])
        mesh, x = drawn(rng)
        q, window = rng.normal(size=len(x)), window_of(str(rng.choice(["cic", "tsc", "bspline4"])))
        options, function, at_zero = green_of(rng)
        kind, gradient = rng.choice([None, "continuous"]), rng.choice([None, "window", "ik"])
        phi, slope = 0.0, 0.0
        meshes = [mesh, mesh.shifted(0.5)] if rng.random() < 0.3 else [mesh]
        by_window = gradient == "window" or (gradient is None and options["green"] == "ewald")
        for one in meshes:
            table = factors(one, window, function, at_zero, kind)
            density = oracle.spread(one, window, x, q) / one.node_volume
            field = filtered(one, density, table)
            phi = phi + oracle.interpolate(one, window, x, field) / len(meshes)
            if by_window:
                part_slope = oracle.gradient(one, window, x, field)
            else:
                k = vectors(one).T
                part_slope = np.stack(
                    [oracle.interpolate(one, window, x, filtered(one, density, 1j * c * table)) for c in k], -1
                )
            slope = slope + part_slope / len(meshes)
        solver = Solver(
            mesh, window, compensation=kind, gradient=gradient, interlaced=len(meshes) > 1, **options
        ).set_positions(x)
        got = solver.potential_and_gradient(q)
        np.testing.assert_allclose(got[0], phi, atol=1e-10 * (1 + abs(phi).max()), err_msg=str(seed))
        np.testing.assert_allclose(got[1], slope, atol=1e-10 * (1 + abs(slope).max()), err_msg=str(seed))


@pytest.mark.parametrize("part", range(PARTS))
def test_vector_solvers(request, part):
    for seed in seeds(request, part):
        rng = np.random.default_rng([2, seed])
        mesh, x = drawn(rng)
        window = window_of(str(rng.choice(["cic", "tsc", "bspline4"])))
        options, function, at_zero = green_of(rng)
        onto, kind = rng.choice([None, "transverse", "longitudinal"]), rng.choice([None, "continuous"])
        forms = [lambda k2: 1 + 0 * k2, lambda k2: 2 / (3 + k2)][: int(rng.integers(3))]
        v = rng.normal(size=(max(1, len(forms)), mesh.ndim, len(x)))
        table = factors(mesh, window, function, at_zero, kind).reshape(mesh.shape)
        shapes = [factors(mesh, window, form, form(0.0), None).reshape(mesh.shape) for form in forms] or [1.0]
        axes = tuple(range(-mesh.ndim, 0))
        density = sum(
            s * np.fft.fftn(oracle.spread(mesh, window, x, one) / mesh.node_volume, axes=axes)
            for s, one in zip(shapes, v, strict=True)
        )
        k = vectors(mesh).T.reshape(mesh.ndim, *mesh.shape)
        square = (k**2).sum(0)
        along = k * (k * density).sum(0) / np.where(square > 0, square, 1)
        modes = {None: density, "transverse": density - along, "longitudinal": along}[onto] * table
        exact = np.stack([oracle.interpolate(mesh, window, x, np.fft.ifftn(s * modes, axes=axes).real) for s in shapes])
        solver = VectorSolver(mesh, window, onto=onto, compensation=kind, forms=forms, **options).set_positions(x)
        got = solver.field(v if len(forms) > 1 else v[0])
        np.testing.assert_allclose(
            got.reshape(exact.shape), exact, atol=1e-10 * (1 + abs(exact).max()), err_msg=str(seed)
        )


@pytest.mark.parametrize("part", range(PARTS))
def test_spectra(request, part):
    for seed in seeds(request, part):
        rng = np.random.default_rng([3, seed])
        mesh, x = drawn(rng, least=2)
        w, interlaced, window = (
            rng.uniform(0.5, 2, len(x)),
            bool(rng.integers(2)),
            window_of(str(rng.choice(["cic", "pcs"]))),
        )
        sight, other = rng.normal(size=mesh.ndim), None
        if rng.random() < 0.3:
            other = rng.random((3, mesh.ndim)) @ mesh.box.matrix, rng.uniform(0.5, 2, 3)
        meshes = [mesh, mesh.shifted(0.5)] if interlaced else [mesh]
        edges = np.sort(rng.uniform(0, 40, 4))
        sums = np.zeros((5, 3))
        for k, n, share in waves(mesh):

            def modes(x, w, k=k, meshes=meshes, window=window):
                total = 0.0
                for one in meshes:
                    places = np.stack(np.meshgrid(*(np.arange(m) for m in one.shape), indexing="ij"), -1)
                    nodes = (places.reshape(-1, one.ndim) + one.offset) / one.shape @ one.box.matrix
                    total = total + np.exp(-1j * k @ nodes.T) @ oracle.spread(one, window, x, w).ravel()
                return total / len(meshes) / w.sum()

            first = modes(x, w)
            second = first if other is None else modes(*other)
            power = mesh.box.volume * (first * second.conj()).real
            for axis, nodes in enumerate(mesh.shape):
                power = power / window.fourier(2 * np.pi * n[:, axis] / nodes) ** 2
            length = np.linalg.norm(k, axis=1)
            mu = k @ sight / np.linalg.norm(sight) / np.where(length > 0, length, 1)
            for b in range(3):
                of = (length >= edges[b]) & (length < edges[b + 1]) & (length > 0)
                pole = 5 * legendre.legval(mu[of], [0, 0, 1])
                sums[:, b] += [
                    (share[of] * part).sum() for part in (1.0, length[of], power[of], power[of] * pole, abs(mu[of]))
                ]
        got = power_spectrum(
            x, w, mesh, window=window, interlaced=interlaced, other=other, edges=edges, multipoles=(0, 2),
            line_of_sight=sight,
        )  # fmt: skip
        np.testing.assert_allclose(got.modes, sums[0], atol=1e-9, err_msg=str(seed))
        with np.errstate(invalid="ignore"):
            means = sums[1:] / np.where(sums[0] > 0, sums[0], np.nan)
        scale = 1e-9 * (1 + np.nanmax(abs(means), initial=0))
        for one, exact in zip((got.k, got.power, got.multipoles[2]), means, strict=False):
            np.testing.assert_allclose(one, exact, atol=scale, err_msg=str(seed))


def test_form_factors_that_have_no_value_are_refused():
    mesh, sinc = pm.Mesh(8, 1.0), lambda k2: np.sin(np.sqrt(k2)) / np.sqrt(k2)
    VectorSolver(mesh, onto=None, forms=[sinc])  # the Green function is 0 at k = 0
    for options in ({"zero": 2.0}, {"green": "yukawa", "kappa": 1.0}):
        with pytest.raises(ValueError, match=r"forms\[1\] is not finite at k = 0"):
            VectorSolver(mesh, onto=None, forms=[np.ones_like, sinc], **options)
    for forms, text in (
        (sinc, "forms is a function; give a sequence"),
        ([1.0], r"forms\[0\] is 1.0; give a function"),
        ([lambda k2: 1j * k2], r"forms\[0\] returns complex values"),
    ):
        with pytest.raises(TypeError, match=text):
            VectorSolver(mesh, forms=forms)


@pytest.mark.parametrize("kind", [Solver, VectorSolver])
def test_zero_is_a_finite_number(kind):
    with pytest.raises(ValueError, match="zero is nan; every number must be finite"):
        kind(pm.Mesh(8, 1.0), zero=np.nan)
    with pytest.raises(TypeError, match="zero is 'a'; real numbers are needed"):
        kind(pm.Mesh(8, 1.0), zero="a")
