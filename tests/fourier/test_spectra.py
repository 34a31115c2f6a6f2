# SPDX-License-Identifier: BSD-3-Clause
"""Power spectra against direct sums, Poisson points, and a field with a known spectrum."""

from itertools import pairwise, product

import numpy as np
import pytest
from numpy.polynomial import legendre

import particlemesh as pm
from particlemesh.fourier import Transform, binned_power, correlation_function, power_spectrum


def direct(x, w, mesh, edges, sight, mu_bins=None, orders=(), other=None):
    """Power by sums over particles for every mode of the whole box of modes, in bins, mode by mode."""
    numbers = [np.arange(-(n // 2), (n + 1) // 2) for n in mesh.shape]
    n = np.stack(np.meshgrid(*numbers, indexing="ij"), -1).reshape(-1, mesh.ndim)
    k = 2 * np.pi * n @ mesh.box.inverse
    x = x - mesh.box.origin

    def modes(x, w):
        return np.exp(-1j * k @ x.T) @ w / w.sum()

    first = modes(x, w)
    second = first if other is None else modes(other[0] - mesh.box.origin, other[1])
    power = mesh.box.volume * (first * second.conj()).real
    length = np.linalg.norm(k, axis=1)
    mu = np.abs(k @ sight) / np.where(length > 0, length, 1)
    rows = []
    for low, high in pairwise(edges):
        chosen = (length >= low) & (length < high) & (length > 0)
        row = {"modes": chosen.sum(), "k": length[chosen].mean(), "power": power[chosen].mean()}
        for order in orders:
            weight = legendre.legval(mu[chosen], [0] * order + [1])
            row[order] = (2 * order + 1) * (power[chosen] * weight).mean()
        if mu_bins is not None:
            cell = np.minimum((mu * mu_bins).astype(int), mu_bins - 1)
            row["wedges"] = [power[chosen & (cell == c)].mean() for c in range(mu_bins)]
        rows.append(row)
    return rows


def clustered(mesh, count=60, seed=4):
    rng = np.random.default_rng(seed)
    return rng.random((count, mesh.ndim)) ** 2 @ mesh.box.matrix + mesh.box.origin, 0.5 + rng.random(count)


@pytest.mark.parametrize(
    "mesh",
    [
        pm.Mesh(64, 2.0), pm.Mesh((64, 60), (2.0, 1.7), origin=(1.0, 0.0)), pm.Mesh((32, 36, 30), (1.0, 1.3, 0.9)),
        pm.Mesh((30, 32, 35), [[1.0, 0, 0], [0.2, 1.1, 0], [0.1, -0.3, 0.9]], offset=0.25),
    ],
    ids=lambda m: f"{m.ndim}-{m.box.orthorhombic}",
)  # fmt: skip
def test_low_modes_equal_direct_sums(mesh):
    """An order of 8 with interlacing leaves nothing of aliases at a third of the highest mode."""
    x, w = clustered(mesh)
    second = clustered(mesh, 40, seed=9)
    smallest = 2 * np.pi * np.linalg.norm(mesh.box.inverse, axis=1).min()
    edges = smallest * np.array([0.5, 2.0, 3.1, 4.6])
    sight = np.eye(mesh.ndim)[0]
    low = pm.Mesh([2 * (n // 5) + 1 for n in mesh.shape], mesh.box)
    for other in (None, second):
        expected = direct(x, w, low, edges, sight, mu_bins=2 if mesh.ndim > 1 else None, orders=(0, 2, 4), other=other)
        got = power_spectrum(
            x, w, mesh, window="bspline8", other=other, edges=edges, multipoles=(0, 2, 4), line_of_sight=3 * sight
        )
        scale = max(abs(r["power"]) for r in expected)
        assert got.modes.tolist() == [r["modes"] for r in expected]
        np.testing.assert_allclose(got.k, [r["k"] for r in expected])
        np.testing.assert_allclose(got.power, [r["power"] for r in expected], atol=1e-4 * scale)
        for order in (0, 2, 4):
            np.testing.assert_allclose(got.multipoles[order], [r[order] for r in expected], atol=1e-3 * scale)
        np.testing.assert_allclose(got.multipoles[0], got.power)
        wedges = power_spectrum(x, w, mesh, window="bspline8", other=other, edges=edges, mu_bins=2, line_of_sight=sight)
        if mesh.ndim > 1:
            np.testing.assert_allclose(wedges.power, [r["wedges"] for r in expected], atol=1e-3 * scale)
        assert wedges.modes.sum(1).tolist() == got.modes.tolist()
        shot = mesh.box.volume * (w**2).sum() / w.sum() ** 2 if other is None else 0.0
        np.testing.assert_allclose(got.shot_noise, shot, rtol=1e-4)


@pytest.mark.parametrize("window", ["tsc", "pcs"])
def test_power_is_right_to_half_a_percent_up_to_the_highest_mode(window):
    """Clusters of five points, whose power falls by half: every bin, against sums over the points themselves."""
    mesh = pm.Mesh((24, 24, 24), (1.0, 1.0, 1.0))
    rng = np.random.default_rng(12)
    x = (rng.random((60, 1, 3)) + 0.012 * rng.standard_normal((60, 5, 3))).reshape(-1, 3)
    edges = 2 * np.pi * np.array([0.5, 3.0, 6.0, 8.0, 10.0, 11.0, 12.0])
    expected = direct(x, np.ones(len(x)), pm.Mesh((25, 25, 25), mesh.box), edges, np.eye(3)[2])
    got = power_spectrum(x, np.ones(len(x)), mesh, window=window, edges=edges, compensation="aliases")
    np.testing.assert_allclose(got.power, [row["power"] for row in expected], rtol=0.005)
    assert got.power[-1] < 0.6 * got.power[0]


@pytest.mark.parametrize("window", ["cic", "tsc", "pcs"])
@pytest.mark.parametrize("interlaced", [True, False])
def test_the_expected_power_of_poisson_points_is_the_shot_noise(window, interlaced):
    """Without scatter: the mean over all places of one point is an integral over its fraction of a node."""
    mesh = pm.Mesh((8, 8), (1.0, 1.0))
    transform = Transform(mesh, window)
    points, weights = np.polynomial.legendre.leggauss(10)
    # Between nodes and between half nodes weights are polynomials.
    fractions = np.concatenate([(points + 1) / 4, (points + 3) / 4])
    weights = np.tile(weights / 4, 2)
    mean = np.zeros(transform.spectrum_shape)
    for u, wu in zip(fractions, weights, strict=True):
        for v, wv in zip(fractions, weights, strict=True):
            mean += wu * wv * abs(transform.modes([[u / 8, v / 8]], [1.0], interlaced=interlaced)) ** 2
    np.testing.assert_allclose(mean * transform.compensation("power", interlaced=interlaced), 1.0, rtol=1e-10)


@pytest.mark.parametrize(
    ("mesh", "window", "interlaced"),
    [
        (pm.Mesh((6, 8, 6), (1.0, 1.3, 1.0)), "pcs", True), (pm.Mesh((8, 8), [[1.0, 0.0], [0.3, 0.9]]), "cic", False),
    ],
    ids=["box", "tilted"],
)  # fmt: skip
def test_poisson_points_have_the_expected_multipoles_and_errors(mesh, window, interlaced):
    """Means of 400 sets of points within five of their standard errors; deviations within four."""
    rng, sets, count = np.random.default_rng(5), 400, 50
    weights, others = 1 + rng.random(count), np.ones(30)
    points, seconds = (rng.random((sets, n, mesh.ndim)) @ mesh.box.matrix for n in (count, 30))
    options = {"window": window, "interlaced": interlaced, "compensation": "aliases", "multipoles": (0, 2, 4)}
    spectra = [power_spectrum(x, weights, mesh, **options) for x in points]
    crosses = [power_spectrum(x, weights, mesh, other=(y, others), **options) for x, y in zip(points[::2], seconds[::2],
               strict=True)]  # fmt: skip
    shot = (weights**2).sum() / weights.sum() ** 2 * mesh.box.volume
    independent = spectra[0].modes / 2
    for rows, power in ((spectra, shot), (crosses, 0.0)):
        for order in (0, 2, 4):
            poles = np.array([s.multipoles[order] for s in rows])
            noise = rows[0].multipole_noise[order]
            assert (abs(poles.mean(0) - noise) < 5 * poles.std(0) / np.sqrt(len(rows))).all()
            assert (noise == 0).all() or power
        np.testing.assert_allclose(rows[0].multipole_noise[0], power, rtol=1e-12)
    # The fourth moment of few points makes scatter less than a Gaussian field's.
    gauss = shot / np.sqrt(independent)
    np.testing.assert_allclose(np.std([s.power for s in spectra], axis=0), gauss, rtol=0.15)
    cross = np.sqrt(shot * mesh.box.volume / 30 / (2 * independent))
    np.testing.assert_allclose(np.std([s.power for s in crosses], axis=0), cross, rtol=0.2)
    for rows, error in ((spectra, gauss), (crosses, cross)):
        np.testing.assert_allclose(np.sqrt(np.mean([s.error**2 for s in rows], axis=0)), error, rtol=0.2)
    first = spectra[0]
    np.testing.assert_allclose(first.error, first.power * np.sqrt(2 / first.modes), rtol=1e-12)


def test_the_first_bin_has_seven_eighths_of_the_shot_noise_at_order_four():
    """Six modes along axes and twelve on diagonals, by their Legendre polynomials."""
    mu = np.repeat([1.0, 0.0, 0.0, 0.5**0.5, 0.0], [2, 4, 0, 8, 4])
    expected = 9 * legendre.legval(mu, [0, 0, 0, 0, 1]).mean()
    assert expected == pytest.approx(0.875)
    x = np.random.default_rng(1).random((40, 3))
    got = power_spectrum(x, None, pm.Mesh((8, 8, 8), (1.0,) * 3), multipoles=(2, 4), compensation="aliases")
    np.testing.assert_allclose([got.multipole_noise[4][0], got.multipole_noise[2][0]], [0.875 / 40, 0], atol=1e-12)


def test_the_correlation_function_is_the_transform_of_the_power():
    """Against sums over points for every mode, and over modes for every separation; a weight of 1 is the default."""
    for mesh in (pm.Mesh((12, 10), [[1.0, 0.0], [0.2, 0.9]]), pm.Mesh((9, 8, 7), (1.0, 1.1, 0.8)), pm.Mesh(16, 2.0)):
        rng = np.random.default_rng(3)
        sets = [rng.random((n, mesh.ndim)) @ mesh.box.matrix for n in (30, 20)]
        number = np.stack(np.meshgrid(*(np.arange(n) - n // 2 for n in mesh.shape), indexing="ij"), -1)
        number = number.reshape(-1, mesh.ndim)
        half = [n / 2 for n in mesh.shape]
        signs = np.array(list(product((1, -1), repeat=mesh.ndim)))  # of highest modes: all, with equal weights
        every = np.concatenate([np.where(abs(number) == half, sign * number, number) for sign in signs])
        k = 2 * np.pi * every @ mesh.box.inverse
        inside = (every != 0).any(1)
        separations = (number / mesh.shape) @ mesh.box.matrix
        length = np.linalg.norm(separations, axis=1)
        most = 0.5 / np.linalg.norm(mesh.box.inverse, axis=1).max()
        edges = np.linspace(0, most, 4)
        for other in (None, (sets[1], None)):
            modes = [np.exp(-1j * k @ x.T).mean(1) for x in (sets[0], sets[0] if other is None else sets[1])]
            power = (modes[0] * modes[1].conj()).real - (1 / 30 if other is None else 0)
            xi = (np.cos(separations @ k.T) * (power * inside)).sum(1) / len(signs)
            got = correlation_function(sets[0], None, mesh, window="bspline16", other=other, edges=edges,
                                       compensation="aliases")  # fmt: skip
            bins = [(length >= low) & (length < high) for low, high in pairwise(edges)]
            assert got.separations.tolist() == [chosen.sum() for chosen in bins]
            np.testing.assert_allclose(got.r, [length[chosen].mean() for chosen in bins])
            scale = abs(xi).max()
            np.testing.assert_allclose(got.xi, [xi[chosen].mean() for chosen in bins], atol=2e-2 * scale)
    assert repr(got) == "<Correlation: 3 bins of r from 0 to 1>"
    with pytest.raises(ValueError, match="edges are from 0 to 3; this box has distances from 0 to 1"):
        correlation_function(sets[0], None, mesh, edges=[0.0, 3.0])


@pytest.mark.parametrize("shape", [(8, 8), (4, 4, 4), (4, 5, 4), (5, 3, 7)])
@pytest.mark.parametrize("interlaced", [True, False])
def test_a_set_crossed_with_itself_has_its_own_power_and_errors(shape, interlaced):
    mesh, rng = pm.Mesh(shape, (1.0,) * len(shape)), np.random.default_rng(1)
    x, w = rng.random((40, len(shape))), rng.random(40)
    options = dict(interlaced=interlaced, multipoles=(2,))
    one, cross = (power_spectrum(x, w, mesh, other=other, **options) for other in (None, (x, w)))
    for name in ("power", "error", "modes"):
        np.testing.assert_allclose(getattr(cross, name), getattr(one, name), rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(cross.multipoles[2], one.multipoles[2], atol=1e-12)


@pytest.mark.parametrize(("shape", "box"), [((8, 8, 8), (1, 1, 4)), ((32, 32, 4), (1, 1, 1)), ((3, 9), (1, 1))])
def test_default_bins_of_distance_fit_into_any_box(shape, box):
    x = np.random.default_rng(2).random((50, len(shape))) * box
    measured = correlation_function(x, None, pm.Mesh(shape, box))
    assert measured.separations.sum() > 0 and measured.edges[-1] <= 0.5


def test_a_displaced_lattice_has_its_input_spectrum():
    """A Zel'dovich field of small amplitude: power is recovered to 1 percent below half of the highest mode."""
    nodes, box = 32, 1.0
    lattice = pm.Mesh((nodes,) * 3, (box,) * 3)
    linear = Transform(lattice)
    rng = np.random.default_rng(11)
    k2 = np.where(linear.k2 > 0, linear.k2, 1.0)
    modes = linear.forward(rng.standard_normal(lattice.shape)) * k2**-0.75
    modes[0, 0, 0] = 0
    field = linear.inverse(modes)
    field *= 5e-4 / field.std()
    modes = linear.forward(field)
    displacement = linear.gradient(linear.apply(field, linear.green("poisson")))
    grid = np.stack(np.meshgrid(*(lattice.nodes(a) for a in range(3)), indexing="ij"), -1)
    x = (grid + np.moveaxis(displacement, 0, -1)).reshape(-1, 3)
    expected = binned_power(linear, abs(modes / lattice.size) ** 2 * box**3)
    # The lattice's images of a mode are aliases of the mode itself: on 64 nodes per axis tsc errs by 1.2 %.
    for window, count in (("pcs", 64), ("tsc", 96)):
        mesh = pm.Mesh((count,) * 3, (box,) * 3)
        got = power_spectrum(x, np.ones(len(x)), mesh, window=window, edges=expected.edges)
        # Particles on a lattice have no shot noise. Their highest mode is that of the lattice.
        below = expected.k < 0.5 * np.pi * nodes / box
        assert below.sum() >= 7
        np.testing.assert_allclose(got.power[below], expected.power[below], rtol=0.01)


def test_device_arrays_give_the_same_spectrum(backend):
    mesh = pm.Mesh((12, 10), (1.0, 1.0))
    x, w = clustered(mesh)
    expected = power_spectrum(x, w, mesh)
    got = power_spectrum(backend.array(x), backend.array(w), mesh)
    np.testing.assert_allclose(got.power, expected.power, rtol=1e-9)
    named = power_spectrum(x, w, mesh, backend=backend.name)
    np.testing.assert_allclose(named.power, expected.power, rtol=1e-9)


def test_a_spectrum_is_shown_in_one_line():
    mesh = pm.Mesh((8, 8), (1.0, 1.0))
    assert repr(power_spectrum(*clustered(mesh), mesh, mu_bins=2, multipoles=(0, 2))) == (
        "<Spectrum: bins (4, 2) of k from 3.142 to 28.27, multipoles [0, 2]>"
    )


def test_bad_arguments_are_refused():
    mesh = pm.Mesh((8, 8), (1.0, 1.0))
    x, w = clustered(mesh)
    transform = Transform(mesh)
    with pytest.raises(TypeError, match=r"mesh is of type int; give a particlemesh.Mesh"):
        power_spectrum(x, w, 128)
    with pytest.raises(ValueError, match="axis 0 is open"):
        power_spectrum(x, w, pm.Mesh((8, 8), (1.0, 1.0), periodic=False, offset=0.5))
    with pytest.raises(ValueError, match="compensation is"):
        power_spectrum(x, w, mesh, compensation="both")
    with pytest.raises(ValueError, match="sum to 0"):
        power_spectrum(x, w - w.mean(), mesh)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"1 values are not finite, the first is values\[3\]"):
            power_spectrum(x, np.where(np.arange(len(w)) == 3, bad, w), mesh)
    with pytest.raises(ValueError, match="one weight per particle"):
        power_spectrum(x, np.stack([w, w]), mesh)
    with pytest.raises(TypeError, match="weights are real"):
        power_spectrum(x, w + 0j, mesh)
    with pytest.raises(TypeError, match="other is not a tuple"):
        power_spectrum(x, w, mesh, other=x)
    with pytest.raises(ValueError, match="ascending"):
        power_spectrum(x, w, mesh, edges=[1.0, 1.0])
    with pytest.raises(ValueError, match=r"a mesh \(8, 1\) has no whole bin of modes: give two or more nodes"):
        power_spectrum(x, w, pm.Mesh((8, 1), (1.0, 1.0)))
    with pytest.raises(ValueError, match="even orders"):
        power_spectrum(x, w, mesh, multipoles=(0, 1))
    with pytest.raises(ValueError, match="direction of 2 numbers"):
        power_spectrum(x, w, mesh, mu_bins=2, line_of_sight=[0.0, 0.0])
    with pytest.raises(ValueError, match="power has shape"):
        binned_power(transform, np.ones((8, 8)))
    with pytest.raises(TypeError, match="power has dtype"):
        binned_power(transform, np.ones((8, 5), complex))
