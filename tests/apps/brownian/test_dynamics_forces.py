# SPDX-License-Identifier: BSD-3-Clause
"""Springs and soft spheres against plain NumPy: all images in any box, forces as derivatives of energies."""

import itertools
import tracemalloc

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.brownian import WCA, BrownianDynamics, Drag, HarmonicBonds, Sum
from particlemesh.apps.brownian.arrays import Images

SKEWED = [[5.0, 0.0, 0.0], [2.4, 4.5, 0.0], [-2.2, 1.9, 4.0]]
SHARP = [[4.0, 0.0, 0.0], [9.0, 4.0, 0.0], [7.0, -6.0, 5.0]]  # its nearest images are not those of rounded fractions
BOXES = {
    "cubic": pm.Box((6.0, 5.0, 7.0), origin=(-1.0, 2.0, 0.5)),
    "triclinic": pm.Box(SKEWED),
    "open": pm.Box((6.0, 5.0, 7.0), periodic=(True, False, True)),
    "sharp": pm.Box(SHARP, periodic=(True, True, False)),
}


def shifts(box, reach):
    ranges = [range(-reach, reach + 1) if repeats else (0,) for repeats in box.periodic]
    return np.array(list(itertools.product(*ranges))) @ box.matrix


def scattered(box, count, seed=1):
    return np.random.default_rng(seed).random((count, 3)) @ box.matrix + box.origin


def wca(x, box, epsilon, sigma):
    """All pairs with all images; sigma is of each particle."""
    s = (sigma[:, None] + sigma) / 2
    forces, energy = np.zeros_like(x), 0.0
    for shift in shifts(box, 2):
        d = x[None] + shift - x[:, None]
        r = np.sqrt((d**2).sum(-1))
        if not shift.any():
            np.fill_diagonal(r, np.inf)
        near = r < 2 ** (1 / 6) * s
        s6 = np.where(near, (s / r) ** 6, 0)
        energy += 0.5 * (4 * epsilon * (s6**2 - s6) + epsilon)[near].sum()
        forces -= ((24 * epsilon * (2 * s6**2 - s6) / r**2)[..., None] * d).sum(1)
    return forces, energy


@pytest.mark.parametrize("name", ["cubic", "triclinic", "open"])
@pytest.mark.parametrize("mixed", [False, True])
def test_wca_is_the_sum_over_all_images(name, mixed):
    box, count = BOXES[name], 60
    x = scattered(box, count)
    sigma = np.random.default_rng(2).uniform(0.6, 1.4, count) if mixed else np.full(count, 1.3)
    soft = WCA(box, epsilon=0.7, sigma=sigma if mixed else 1.3)
    forces, energy = wca(x, box, 0.7, sigma)
    assert energy > 1
    np.testing.assert_allclose(soft(x), forces, rtol=1e-9, atol=1e-9 * abs(forces).max())
    assert soft.energy(x) == pytest.approx(energy, rel=1e-10)
    beyond = x + shifts(box, 3)[np.arange(count) % len(shifts(box, 3))]  # unfolded positions
    np.testing.assert_allclose(soft(beyond), forces, rtol=1e-6, atol=1e-9 * abs(forces).max())
    np.testing.assert_array_equal(soft(beyond), soft(beyond))


@pytest.mark.opencl
@pytest.mark.skipif(pm.backends.module("opencl").available() is not None, reason="no OpenCL device")
def test_wca_through_opencl():
    box = BOXES["triclinic"]
    x = scattered(box, 60).astype("f4")
    forces, energy = wca(x.astype("f8"), box, 1.0, np.full(60, 1.1))
    soft = WCA(box, sigma=1.1, backend="opencl")
    np.testing.assert_allclose(soft(x), forces, rtol=1e-3, atol=1e-4 * abs(forces).max())
    assert soft.energy(x) == pytest.approx(energy, rel=1e-4)


def test_a_box_smaller_than_the_spheres():
    box, x = pm.Box((1.6, 1.7, 1.5)), np.array([[0.1, 0.2, 0.3], [0.9, 1.0, 1.1]])
    forces, energy = wca(x, box, 1.0, np.full(2, 2.0))
    np.testing.assert_allclose(WCA(box, sigma=2.0)(x), forces, atol=1e-9 * abs(energy))
    assert WCA(box, sigma=2.0).energy(x) == pytest.approx(energy)


def test_spheres_in_one_place_have_forces_that_are_not_finite():
    assert not np.isfinite(WCA((5.0, 5.0, 5.0))(np.ones((2, 3)))).any()


@pytest.mark.parametrize("name", list(BOXES))
def test_nearest_images(name):
    box = BOXES[name]
    d = np.random.default_rng(4).uniform(-9, 9, (500, 3))
    candidates = d[:, None] + shifts(box, 12 if name == "sharp" else 5)
    expected = np.sqrt((candidates**2).sum(-1)).min(axis=1)
    images = Images(box).nearest(d)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), expected, rtol=1e-12)
    counts = (images - d) @ box.inverse.T
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)
    assert not counts[:, ~np.array(box.periodic)].round().any()


@pytest.mark.parametrize("box", [None, BOXES["sharp"]])
def test_bonds(box):
    rng = np.random.default_rng(5)
    x = scattered(BOXES["sharp"], 20)
    pairs = np.array([[0, 1], [1, 2], [5, 1], [19, 1], [7, 3], [0, 1]])
    stiffness, length = rng.uniform(1, 2, 6), np.append(rng.uniform(0, 2, 5), 0.0)
    bonds = HarmonicBonds(pairs, stiffness, length, box)
    d = x[pairs[:, 1]] - x[pairs[:, 0]]
    if box is not None:
        d = Images(box).nearest(d)
    r = np.linalg.norm(d, axis=1)
    expected = np.zeros_like(x)
    pull = (stiffness * (1 - length / r))[:, None] * d
    np.add.at(expected, pairs[:, 0], pull)
    np.add.at(expected, pairs[:, 1], -pull)
    np.testing.assert_allclose(bonds(x), expected, atol=1e-12)
    assert bonds.energy(x) == pytest.approx((stiffness * (r - length) ** 2).sum() / 2)
    assert bonds(x.astype("f4")).dtype == "f4"


@pytest.mark.parametrize("axis", range(3))
def test_forces_are_derivatives_of_the_energy(axis):
    box = BOXES["triclinic"]
    both = Sum(WCA(box, sigma=1.2), HarmonicBonds([[0, 1], [3, 4]], 2.0, 1.0, box))
    x = scattered(box, 40)
    steps = 1e-6 * np.eye(3)[axis]
    for particle in (0, 4):
        ahead, back = x.copy(), x.copy()
        ahead[particle] += steps
        back[particle] -= steps
        slope = (both.energy(ahead) - both.energy(back)) / 2e-6
        assert both(x)[particle, axis] == pytest.approx(-slope, rel=1e-5, abs=1e-4)


def test_no_bonds_and_springs_without_length():
    x = np.zeros((3, 3))
    assert not HarmonicBonds(np.empty((0, 2), int), 1.0)(x).any()
    assert not HarmonicBonds([[0, 2]], 1.0)(x).any()
    with np.errstate(all="ignore"):
        assert np.isnan(HarmonicBonds([[0, 2]], 1.0, 1.0)(x)[0]).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: HarmonicBonds([[0, 1, 2]], 1.0), "(B, 2)"),
        (lambda: HarmonicBonds([[0.0, 1.0]], 1.0), "integers"),
        (lambda: HarmonicBonds([[1, 1]], 1.0), "different"),
        (lambda: HarmonicBonds([[0, -1]], 1.0), "at least 0"),
        (lambda: HarmonicBonds([[0, 1]], [1.0, 2.0]), "one a bond"),
        (lambda: HarmonicBonds([[0, 1]], -1.0), "negative"),
        (lambda: HarmonicBonds([[0, 9]], 1.0)(np.zeros((3, 3))), "particle 9, and there are 3"),
        (lambda: WCA((1.0, 1.0)), "2-D"),
        (lambda: WCA((3.0, 3.0, 3.0), epsilon=0), "epsilon"),
        (lambda: WCA((3.0, 3.0, 3.0), sigma=[1.0, 0.0]), "sigma"),
        (lambda: WCA((3.0, 3.0, 3.0), sigma=[1.0, 1.0])(np.zeros((3, 3))), "2 numbers sigma for 3"),
    ],
)
def test_wrong_arguments(make, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at
        make()
    assert said in str(caught.value)


# ---- clouds that cells of one size do not suit ------------------------------------------------------------


def uneven(name, count=2000):
    """Positions, box and diameters of a cloud."""
    rng = np.random.default_rng(3)
    x, sigma = rng.random((count, 3)) * 40, 1.0
    box = pm.Box((40.0,) * 3)
    if name == "dilute":
        x, box = x * 10, pm.Box((400.0,) * 3)
        x[1] = x[0] + 0.5
    elif name == "clusters in a large box":
        x[: count // 2], x[count // 2 :], box = x[: count // 2] / 3, 9e5 + x[count // 2 :] / 3, pm.Box((1e6,) * 3)
    elif name == "one large sphere":
        sigma = np.where(np.arange(count) == 7, 15.0, 1.0)
    elif name == "out of an open box":
        box = pm.Box((40.0,) * 3, periodic=False)
        x[3], x[4] = (1e5, -7.0, 3.0), (1e5, -6.2, 3.0)
    return x, box, sigma


@pytest.mark.parametrize(
    "name", ["packed", "dilute", "clusters in a large box", "one large sphere", "out of an open box"]
)
def test_time_and_memory_grow_with_particles_and_pairs_only(name, monkeypatch):
    x, box, sigma = uneven(name)
    work, stream = [], pm.UniformGrid.stream

    def counted(grid, *arguments, **options):
        held = np.diff(grid.cell_start).astype(float)
        work.append(float(held @ held) / len(x))
        return stream(grid, *arguments, **options)

    monkeypatch.setattr(pm.UniformGrid, "stream", counted)
    soft = WCA(box, 1.0, sigma)
    soft(x)  # compiles
    tracemalloc.start()
    forces = soft(x)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3000 * len(x), f"{most / len(x):.0f} bytes a particle"
    assert all(compared <= 32 for compared in work), work
    d = x[None] - x[:, None]
    d -= np.where(box.periodic, box.lengths, 0) * np.rint(d / box.lengths)
    r2 = (d**2).sum(-1)
    np.fill_diagonal(r2, np.inf)
    s = np.broadcast_to(sigma, len(x))
    s6 = (((s[:, None] + s) / 2) ** 2 / r2) ** 3
    pull = np.where(s6 > 0.5, 24 * (s6 - 2 * s6 * s6) / r2, 0)
    expected = np.einsum("ij,ijd->id", pull, d)
    assert abs(expected).max() > 0
    np.testing.assert_allclose(forces, expected, rtol=1e-6, atol=1e-9 * abs(expected).max())


def test_a_sphere_that_leaves_an_open_box_does_not_stop_the_others():
    box = pm.Box((6.0,) * 3, periodic=False)
    x = np.array([[1.0, 3.0, 3.0], [5.5, 3.0, 3.0], [4.9, 3.0, 3.0]])
    soft = WCA(box, 1.0, 1.0)
    dynamics = BrownianDynamics(x, Drag(), soft, temperature=0.0, time_step=1e-3, seed=1)
    dynamics.run(200)
    assert dynamics.step == 200
    assert dynamics.positions[1, 0] > 6  # pushed out
    np.testing.assert_array_equal(dynamics.positions[0], x[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_overlaps_that_throw_particles_out_of_all_boxes_are_named(dtype):
    start = np.array([[1.0, 1.0, 1.0], [1.1, 1.0, 1.0], [5.0, 5.0, 5.0]], dtype)
    box = pm.Box((10.0, 10.0, 10.0))
    motion = BrownianDynamics(start, Drag(1.0, box=box), WCA(box, 1.0, 2.0), time_step=0.01, seed=1)
    with pytest.raises(FloatingPointError, match=r"step 0: particle [01] moves to .* has no place in the box so far"):
        motion.run(2)
    assert motion.step == 0 and np.array_equal(motion.positions, start)
