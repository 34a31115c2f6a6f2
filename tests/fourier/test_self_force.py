# SPDX-License-Identifier: BSD-3-Clause
"""No particle pulls itself by default, and forces of point charges converge, periodic and in free space."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.pme import PME
from particlemesh.fourier import Solver

BOUNDARIES = list(itertools.chain.from_iterable(itertools.product((True, False), repeat=d) for d in (1, 2, 3)))
PULLS = "ignore:gradient='window' conserves energy"


def mesh_of(periodic, nodes=12):
    lengths = np.array([1.0, 1.2, 0.8])[: len(periodic)]
    return pm.Mesh((nodes,) * len(periodic), lengths, periodic=periodic, offset=[0.0 if p else 0.5 for p in periodic])


@pytest.mark.parametrize("compensation", ["continuous", "discrete", None])
@pytest.mark.parametrize("green", ["poisson", "yukawa", "function"])
@pytest.mark.parametrize("periodic", BOUNDARIES, ids=lambda p: "".join("po"[not q] for q in p))
def test_a_particle_alone_feels_nothing_by_default(periodic, green, compensation):
    """Also forces of two particles are opposite, to rounding; with the window's slope they are not."""
    if green == "function" and not all(periodic):
        pytest.skip("functions have no free space")
    options = {"green": (lambda k2: 1 / (1 + k2)) if green == "function" else green, "compensation": compensation}
    if green == "yukawa":
        options["kappa"] = 2.0
    mesh, rng = mesh_of(periodic), np.random.default_rng(len(periodic))
    x, q = rng.random((2, mesh.ndim)) * mesh.box.lengths, np.array([1.0, -2.0])
    for window in ("cic", "tsc", "bspline6"):
        solver = Solver(mesh, window, **options)
        pair = q[:, None] * solver.set_positions(x).gradient(q)
        scale = np.abs(pair).max()
        assert np.abs(pair.sum(0)).max() < 1e-12 * scale
        for one in x:
            assert np.abs(solver.set_positions(one[None]).gradient([1.0])).max() < 1e-12 * scale


def test_a_choice_with_a_force_on_itself_is_warned_of_and_a_smooth_one_is_not(recwarn):
    mesh = mesh_of((True, True, True))
    rough = {"green": lambda k2: 1 / (1 + k2)}
    for options in ({"green": "poisson"}, {"green": "yukawa", "kappa": 3.0}, {**rough, "compensation": "continuous"}):
        with pytest.warns(UserWarning, match="each particle pulls itself"):
            Solver(mesh, gradient="window", **options)
    with pytest.warns(UserWarning, match="compensation=None for point charges"):
        Solver(mesh, **rough)
    Solver(mesh, **rough, compensation=None)
    with pytest.warns(UserWarning, match="gradient='ik' conserves momentum"):
        Solver(mesh, green="ewald", alpha=40.0)
    Solver(mesh, green="ewald", alpha=8.0)
    Solver(mesh, gradient="window", green=lambda k2: np.exp(-k2 / 200) / (1 + k2))
    Solver(mesh, gradient="ik")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("window", "order", "options"),
    [("cic", 1.5, {}), ("tsc", 1.5, {}), ("pcs", 1.5, {}), ("bspline6", 1.5, {}), ("tsc", 1.5, {"kappa": 1e-3}),
     ("bspline6", 0.7, {"compensation": "continuous"})],
)  # fmt: skip
def test_forces_of_point_charges_converge_by_default(window, order, options):
    """Median errors of 100 charges against Ewald sums: as h**2 by default, as h with compensation, which sharpens.

    With compensation root mean squares do not fall; without, those of windows up to 4 nodes do.
    """
    green = "yukawa" if "kappa" in options else "poisson"
    rng = np.random.default_rng(0)
    x, q = rng.random((100, 3)), np.tile([1.0, -1.0], 50)
    exact = PME((1.0,) * 3, accuracy=1e-9)(x, q).forces / (4 * np.pi)
    errors = []
    for nodes in (32, 64):
        solver = Solver(pm.Mesh((nodes,) * 3, (1.0,) * 3), window, green, **options)
        wrong = np.linalg.norm(-q[:, None] * solver.set_positions(x).gradient(q) - exact, axis=1)
        errors.append((np.median(wrong), np.sqrt(np.mean(wrong**2))))
    assert errors[1][0] < errors[0][0] / 2**order
    if order == 1.5:
        assert errors[1][1] < errors[0][1] / 3
    assert errors[1][0] < (0.3 if order < 1 else 0.02) * np.median(np.linalg.norm(exact, axis=1))


def test_potentials_of_point_charges_hardly_depend_on_their_place_in_a_cell():
    """The potential of a charge at its own place; with compensation it oscillates by its order of magnitude."""
    x = np.random.default_rng(2).random((50, 3))
    spreads = {}
    for compensation in ("auto", None, "continuous"):
        solver = Solver(pm.Mesh((24,) * 3, (1.0,) * 3), "bspline6", compensation=compensation)
        potential = solver.set_positions(x).potential(np.eye(50)).diagonal()
        spreads[compensation] = np.ptp(potential) / potential.mean()
    assert spreads["auto"] == spreads[None] < 0.01 < 0.1 < spreads["continuous"]


def test_smooth_densities_on_a_lattice_are_exact_with_compensation():
    """A wave of 16 nodes: the window of order 4 without compensation makes it 5 % smaller, the waves of "ewald" not."""
    nodes = np.arange(32) / 32 + 1 / 64
    x = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    wave = np.cos(2 * np.pi * x[:, 0])
    smoothed = {"green": "ewald", "alpha": 10.0}, np.exp(-((np.pi / 10) ** 2)), 2e-5
    for options, factor, error in (({"compensation": "continuous"}, 1.0, 2e-5), ({}, 0.95, 5e-3), smoothed):
        phi = Solver(pm.Mesh((16,) * 3, (1.0,) * 3), "bspline4", **options).set_positions(x).potential(wave / len(x))
        np.testing.assert_allclose(phi * (2 * np.pi) ** 2, factor * wave, atol=error)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("window", "compensation", "slope"),
    [("cic", None, 0.2), ("tsc", None, 0.05), ("bspline4", None, 0.02), ("bspline6", None, 0.002),
     ("cic", "continuous", 2.0), ("tsc", "continuous", 2.0), ("bspline6", "continuous", 2.0)],
)  # fmt: skip
def test_forces_along_an_axis_are_as_wrong_as_the_page_says(window, compensation, slope):
    """Relative to Coulomb's force their errors grow with the distance in nodes."""
    mesh, rng = pm.Mesh((48,) * 3, (48.0,) * 3, periodic=False, offset=0.5), np.random.default_rng(7)
    solver = Solver(mesh, window, compensation=compensation)
    for distance in (6.0, 12.0):
        errors = []
        for axis in np.eye(3):
            t = np.append(0, distance + np.linspace(-1, 1, 20))[:, None]
            field = -solver.set_positions(16 + rng.random(3) + t * axis).gradient(np.eye(len(t))[0])
            errors.append(np.linalg.norm(field * 4 * np.pi * t**2 - axis, axis=1)[1:])
        assert 0.5 < np.sqrt(np.mean(np.square(errors))) / (slope * distance) < 2


@pytest.mark.filterwarnings(PULLS)
def test_both_gradients_are_one_where_the_green_function_is_smooth():
    """In several boundaries, as the mesh gets finer: order 6 gives 5 in the slope."""
    for periodic in BOUNDARIES[1::3]:
        differences = []
        for nodes in (12, 24):
            mesh, rng = mesh_of(periodic, nodes), np.random.default_rng(5)
            x, q = (0.25 + 0.5 * rng.random((4, mesh.ndim))) * mesh.box.lengths, rng.normal(size=4)
            slopes = [
                Solver(mesh, "bspline6", "ewald", alpha=5.0, gradient=g).set_positions(x).gradient(q)
                for g in ("window", "ik")
            ]
            differences.append(np.abs(slopes[0] - slopes[1]).max() / np.abs(slopes[1]).max())
        assert differences[1] < 1e-4 and differences[1] < differences[0] / 12


def test_free_space_by_ik_is_coulombs_force():
    """Two Gaussians of opposite charge in open boxes of 1 to 3 axes: the derivative of -|x|/2, -ln(r)/2pi, 1/4 pi r."""
    for ndim in (1, 2, 3):
        mesh = pm.Mesh((40,) * ndim, (1.0,) * ndim, periodic=False, offset=0.5)
        x = np.full((2, ndim), 0.31)
        x[1] += 0.4
        r = x[0] - x[1]
        distance = np.linalg.norm(r)
        exact = r / distance * -1 / [2, 2 * np.pi * distance, 4 * np.pi * distance**2][ndim - 1]
        got = Solver(mesh, "bspline8", "ewald", alpha=16.0, gradient="ik").set_positions(x).gradient([0.0, 1.0])[0]
        np.testing.assert_allclose(got, exact, rtol=1e-4)
