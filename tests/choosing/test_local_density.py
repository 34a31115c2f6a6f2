# SPDX-License-Identifier: BSD-3-Clause
"""Methods are chosen by how many particles are near each other, not by their mean number per node."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.choosing import arrangement, candidates, predict
from particlemesh.choosing.choice import METHODS
from particlemesh.choosing.tables import Row

NODES, COUNT = 64, 20_000
MESH = pm.Mesh((NODES,) * 3, (1.0,) * 3)
GPU = SimpleNamespace(
    name="cuda", device="a GPU", units=100, group_size=128, local_bytes=232_448, free_bytes=lambda: 10**11,
    facts=lambda: {"HAS_VECTOR_ATOMIC": 1, "HAS_FP64": 1, "HAS_WARP": 1, "HAS_MMA": 1, "HAS_WIDE_MMA": 1},
)  # fmt: skip


def cloud(dense, volume, count=COUNT, ndim=3, seed=1):
    """A share of the particles in a cube of some volume, the others anywhere; in random order."""
    rng = np.random.default_rng(seed)
    x = rng.random((count, ndim))
    inside = rng.random(count) < dense
    x[inside] = 0.3 + x[inside] * volume ** (1 / ndim)
    return x


def seen(x, ndim=3):
    """The arrangement of positions that a plan samples."""
    plan = pm.Plan(pm.Mesh((NODES,) * ndim, (1.0,) * ndim), "cic", applications=1000).set_positions(x)
    return plan.methods.problem()


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize(("dense", "volume"), [(0.5, 0.01), (0.9, 0.01), (0.2, 0.02)])
def test_crowds_of_different_density_are_distinguished(ndim, dense, volume):
    asked = seen(cloud(dense, volume, ndim=ndim), ndim)
    shares, filled = np.array(asked.crowds).T
    assert shares.sum() == pytest.approx(1.0)
    assert (np.diff(filled) < 0).all()
    sparse = filled > 0.3
    # At the border of the cube some particles seem to be of a crowd in between.
    assert shares[sparse].sum() == pytest.approx(1 - dense, abs=0.1)
    core = filled < 4 * volume / dense
    assert shares[core].sum() > 0.6 * dense
    assert np.average(filled[core], weights=shares[core]) == pytest.approx(volume / dense, rel=0.8)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("volume", [1.0, 0.1])
def test_particles_of_one_crowd_have_one_density(ndim, volume):
    asked = seen(cloud(1.0, volume, ndim=ndim), ndim)
    assert asked.crowds == () and volume / 2 < asked.filled < volume * 2


def test_what_is_denser_than_parts_of_the_box_show():
    small = arrangement.sample(_host(), pm.Mesh((512,) * 3, (1.0,) * 3), _coordinates(cloud(1.0, 1e-4)))
    dense = dict(small.crowds or ((1.0, small.filled),))
    assert sum(share * filled for share, filled in dense.items()) == pytest.approx(1e-4, rel=1.0)
    # Within a window of 8 nodes it makes no difference how dense particles are.
    one = arrangement.sample(_host(), pm.Mesh((512,) * 3, (1.0,) * 3), _coordinates(np.full((COUNT, 3), 0.25)))
    assert one.filled == pytest.approx(64.0**-3) and one.crowds == ()


def _host():
    from particlemesh.backends import cpu

    return cpu.current()


def _coordinates(x):
    from particlemesh.arrays.positions import coordinates

    return coordinates(x, x.shape[1], None, upload=False)[2]


@pytest.mark.parametrize("count", [0, 1, 2, 17])
def test_few_particles_are_of_one_crowd(count):
    crowds = arrangement.crowds(np.random.default_rng(count).random((count, 3)))
    assert len(crowds) <= 1 and all(0 < filled <= 1 for _, filled in crowds)


# ---- the choice, by a table that is made up -----------------------------------------------------------------

SPARSE, DENSE = "particle", "walk"  # the faster method of each kind of cloud


def table():
    """Times in which the local density alone decides: below one particle per node `particle` is four times as fast."""
    rows = []
    for particles in (2_000, 20_000, 200_000, 2_000_000):
        for filled in (1.0, 0.1, 0.01, 0.001):
            fast = particles / (NODES**3 * filled) < 1
            for method in (SPARSE, DENSE):
                apply = particles * 1e-9 * (1 if fast == (method == SPARSE) else 4)
                rows.append(
                    Row("spread", method, NODES, 4, "float32", 1, particles, filled, 0, 1.0, 0.0, apply)
                )  # fmt: skip
    return predict.Timings(GPU, tuple(rows), "made up")


@pytest.fixture(scope="module")
def choose():
    times = table()
    methods = tuple(m for m in METHODS["spread"] if m.name in (SPARSE, DENSE))
    sizes = predict.problem_of(times.rows[0], GPU, applications=1000)

    def chosen(x, **more):
        look = arrangement.sample(_host(), sizes.mesh, _coordinates(x))._replace(in_order=False)
        asked = replace(sizes, count=len(x), **look._asdict(), **more)
        return candidates.choose(methods, asked, "auto", lambda m, p: times.predict("spread", m, p)).name

    return chosen


@pytest.mark.parametrize(
    ("dense", "volume", "expected"),
    [
        (0.0, 1.0, SPARSE),  # 0.08 particles per node anywhere
        (1.0, 0.01, DENSE),  # 8 per node, in one hundredth of the box
        (0.95, 0.01, DENSE),
        (0.05, 0.01, SPARSE),  # most particles are not in the cluster, which has more pairs than all others
        (0.2, 1e-3, SPARSE),
    ],
)
def test_a_cluster_in_a_sparse_box_is_chosen_by_its_local_density(choose, dense, volume, expected):
    assert choose(cloud(dense, volume)) == expected


def test_the_crowd_with_more_of_the_time_decides():
    times = table()
    methods = {m.name: m for m in METHODS["spread"] if m.name in (SPARSE, DENSE)}
    sizes = predict.problem_of(times.rows[0], GPU)
    sizes = replace(sizes, count=20_000)

    def seconds(name, **more):
        return times.predict("spread", methods[name], replace(sizes, **more))

    for name in methods:
        parts = [seconds(name, filled=filled) for filled in (1.0, 0.01)]
        mixed = seconds(name, crowds=((0.25, 1.0), (0.75, 0.01)))
        assert mixed == pytest.approx(tuple(0.25 * a + 0.75 * b for a, b in zip(*parts, strict=True)))


@pytest.mark.parametrize(("dense", "volume"), [(0.0, 1.0), (0.95, 0.01), (0.05, 0.01)])
def test_the_order_of_particles_does_not_change_the_choice(choose, dense, volume):
    x = cloud(dense, volume)
    rng = np.random.default_rng(3)
    orders = [rng.permutation(len(x)) for _ in range(5)] + [np.lexsort((x * 8).astype(int).T)]
    assert len({choose(x[order]) for order in orders}) == 1


def test_the_same_positions_are_always_of_the_same_crowds():
    x, other = cloud(0.9, 0.01), cloud(0.0, 1.0)
    plan = pm.Plan(MESH, "cic", applications=1000)
    asked = [plan.set_positions(positions).methods.problem() for positions in (x, other[:5000], x, other[:5000], x)]
    assert asked[0] == asked[2] == asked[4] == seen(x) and asked[1] == asked[3]
    assert asked[0].crowds and not asked[1].crowds


def test_a_reproducible_choice_knows_no_crowds():
    plan = pm.Plan(MESH, "cic", applications=1000, deterministic=True)
    asked = [plan.set_positions(cloud(dense, 0.01)).methods.problem() for dense in (0.0, 0.9)]
    assert asked[0] == asked[1] and asked[0].crowds == () and asked[0].filled == 1.0
