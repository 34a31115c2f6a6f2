# SPDX-License-Identifier: BSD-3-Clause
"""Crowded charges have larger errors; they are counted at the first call, and parameters are chosen for them."""

import itertools
import warnings
from collections import Counter

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.pme import PME, Dispersion, DistributedPME, PMEBatch
from particlemesh.apps.pme.parameters import CPU, NOT_CROWDED, choose, crowding
from particlemesh.apps.pme.split import SPLITS
from pme_cases import TRICLINIC, ewald_sum
from ranks import on_threads

TALL = np.diag((1.0, 1.0, 3.0))
BOXES = {"cube": np.eye(3), "tall": TALL, "tilted": TRICLINIC / 3}


def heaps(count=600, seed=1, box=None):
    """Ten heaps of particles."""
    rng = np.random.default_rng(seed)
    x = np.repeat(rng.random((10, 3)), count // 10, 0) + rng.normal(scale=0.03, size=(count // 10 * 10, 3))
    return x if box is None else (x % 1) @ box


def layer(count=600, seed=1):
    """Particles in a third of the height of the tall box."""
    return np.random.default_rng(seed).random((count, 3))


def signs(count):
    return np.tile([1.0, -1.0], count // 2)


def known_of(box, count, accuracy=1e-4, split="prolate"):
    return choose(pm.Box.of(box), count, accuracy, CPU, split=SPLITS[split])[0]


def counted(box, x, reach, periodic=(True,) * 3):
    """The same in plain Python, for cells as large as a ball, in two places."""
    inverse = np.linalg.inv(box)
    side, cells = (4 / 3 * np.pi) ** (1 / 3) * reach, [len(x) + 2]
    while np.prod(cells) > len(x) + 1:
        cells = [max(1, round(1 / np.linalg.norm(inverse[:, a]) / side)) for a in range(3)]
        side *= 1.1
    together, total = 0, int(np.prod(cells))
    for shift in (0.38, 0.88):
        particles = Counter()
        for point in x @ inverse:
            levels = [int(np.floor(s * n + shift)) % n if p else min(max(int(np.floor(s * n)), 0), n - 1)
                      for s, n, p in zip(point, cells, periodic, strict=True)]  # fmt: skip
            particles[tuple(levels)] += 1
        together += sum(n * (n - 1) for n in particles.values()) / 2
    ratio = together * total / len(x) ** 2 - 3 * (2 * (total - 1)) ** 0.5 / len(x)
    return max(1.0, round(8 * max(ratio, 0) ** 0.5) / 8)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("periodic", [(True,) * 3, (True, False, True)], ids=["periodic", "open"])
def test_crowds_are_those_of_plain_counts(name, periodic, split):
    box = BOXES[name]
    if name == "tilted" and not all(periodic):
        pytest.skip("open boxes are orthorhombic")
    for accuracy, count in itertools.product((1e-2, 1e-6), (12, 600)):
        known = known_of(box, count, accuracy, split)
        width = known.cutoff / known.split.variation(known.cutoff) ** 0.5
        for x in (heaps(count, box=box), layer(count), np.random.default_rng(2).random((count, 3)) @ box):
            expected = tuple(counted(box, x, reach, periodic) for reach in (1.2 * width, 1.5 * known.cutoff))
            assert crowding(known, x, pm.Box(box, periodic=periodic)) == expected


def test_order_images_and_type_change_nothing():
    x, box, rng = heaps(), pm.Box(np.eye(3)), np.random.default_rng(3)
    known = known_of(box, len(x))
    expected = crowding(known, x, box)
    assert expected.mesh > 1.5
    for other in (rng.permutation(x), x + rng.integers(-3, 4, x.shape), x.astype(np.float32)):
        assert crowding(known, other, box) == expected
    bad = np.concatenate([x, [[np.nan, 0, 0], [np.inf, 0, 0], [1e308, 1e308, -1e308]]])
    with np.errstate(all="raise"):
        assert crowding(known, bad, box).mesh == pytest.approx(expected.mesh, abs=0.13)
    assert crowding(known, x[:0], box) == NOT_CROWDED


@pytest.mark.parametrize("count", [1, 2, 3, 12, 50, 600])
def test_particles_at_random_places_are_not_crowded(count):
    for seed, accuracy in itertools.product(range(20), (1e-2, 1e-6)):
        x = np.random.default_rng(seed).random((count, 3))
        crowd = crowding(known_of(np.eye(3), count, accuracy), x, pm.Box(np.eye(3)))
        assert max(crowd) <= (1.0 if count > 3 else 1.25), (seed, crowd)


@pytest.mark.parametrize("sites", [2, 4, 8])
def test_crystals_are_not_crowded(sites):
    x = np.stack(np.meshgrid(*[np.arange(sites) / sites] * 3, indexing="ij"), -1).reshape(-1, 3)
    pme = PME(np.eye(3), 1e-4)
    pme(x, (-1.0) ** (sites * x).round().sum(1))
    assert pme.parameters.crowd == NOT_CROWDED
    assert "crowded" not in pme.explain()


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("cloud", ["heaps", "layer"])
def test_reached_errors_are_those_asked_for(cloud, split, monkeypatch):
    """At some particles, as in benchmarks/apps/pme_errors.py."""
    x, box, q = (heaps(seed=2), np.eye(3), signs(600)) if cloud == "heaps" else (layer(), TALL, signs(600))
    rows = np.random.default_rng(5).permutation(600)[:80]
    exact = ewald_sum(box, x, q, alpha=7.0, reach=5.0, rows=rows)[1]

    def reached(accuracy):
        pme = PME(box, accuracy, splitting=split)
        squares = ((pme(x, q).forces[rows] - exact) ** 2).sum(1)
        return np.sqrt(squares.mean()) * (np.linalg.det(box) / len(x)) ** (2 / 3) / accuracy, pme

    ratios = []
    for accuracy in (1e-2, 1e-3, 1e-4):
        ratio, pme = reached(accuracy)
        ratios.append(ratio)
        assert 0.3 <= ratio <= 1.3
        assert pme.parameters.crowd.mesh > 1.2
        assert f"{pme.parameters.crowd.mesh:g} (mesh) times those at random places" in pme.explain()
    monkeypatch.setattr("particlemesh.apps.pme.parameters.crowding", lambda *_, **__: NOT_CROWDED)
    assert reached(1e-2)[0] > 1.2 * ratios[0]


def test_particles_are_counted_once_and_not_before_they_come(monkeypatch):
    x, q, counts = heaps(), signs(600), []
    monkeypatch.setattr("particlemesh.apps.pme.parameters.crowding", lambda *a, **k: counts.append(1) or NOT_CROWDED)
    pme = PME(np.eye(3), 1e-3)
    pme(x, q)
    pme(x, q)
    assert len(counts) == 1
    reserved = PME(np.eye(3), 1e-3, backend="cpu", dtype="float64").reserve(600)
    reserved(x, q)
    assert len(counts) == 1
    assert reserved.parameters.crowd == NOT_CROWDED


def test_what_is_given_is_kept_for_crowded_charges():
    x, q = heaps(), signs(600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = PME(np.eye(3), cutoff=0.2, splitting=12.0, shape=24, window="bspline6")
        given(x, q)
    p = given.parameters
    assert (p.cutoff, p.splitting, p.shape, p.window.name) == (0.2, 12.0, (24,) * 3, "bspline6")
    even = PME(np.eye(3), cutoff=0.2, splitting=12.0, shape=24, window="bspline6")
    even(layer(), q)
    assert p.error > 1.2 * even.parameters.error
    wide = PME(np.eye(3), 1e-3)
    wide(x, q, widths=np.full(600, 0.1))
    assert wide.parameters.crowd.mesh > 1.2


def test_the_coefficients_of_dispersion_are_counted_too():
    dispersion, exact = Dispersion(TALL, 1e-3), Dispersion(TALL, 1e-8)
    sites = np.stack(np.meshgrid(*[np.arange(8)] * 3, indexing="ij"), -1).reshape(-1, 3)
    x = (sites + np.random.default_rng(1).uniform(0.1, 0.9, sites.shape)) / 8
    error = np.sqrt(((dispersion(x, np.ones(512)).forces - exact(x, np.ones(512)).forces) ** 2).sum(1).mean())
    assert error <= 1.3e-3 * 6 / (3 / 512) ** (7 / 3)
    assert dispersion.parameters.crowd.mesh > 1.2
    assert "crowded" in dispersion.explain()


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.backends("cpu", "opencl", "cuda")
def test_the_most_crowded_system_decides(backend, where):
    box, q = np.diag((1.0, 1.0, 1.0)), signs(600)
    one = PME(box, 1e-3)
    one(backend.array(heaps()), backend.array(q))
    assert one.parameters.crowd.mesh > 1.5
    boxes = np.stack([box, box, TALL / 3])
    x = np.concatenate([layer(seed=2), heaps(), layer(seed=3) @ (TALL / 3)])
    owners, mixed = np.repeat(np.arange(3), 600), np.random.default_rng(4).permutation(1800)
    for order in (np.arange(1800), mixed):
        batch = PMEBatch(box, 3, 1e-3)
        given = [backend.array(a[order]) for a in (x, np.tile(q, 3), owners.astype(np.int32))]
        batch(*given, boxes=backend.array(boxes) if where == "device" else boxes)
        crowd = batch.parameters.crowd
        assert crowd.mesh == pytest.approx(one.parameters.crowd.mesh, abs=0.13)
        assert "crowded" in batch.explain()
    even = PMEBatch(box, 2, 1e-3)
    even(*(backend.array(a) for a in (np.concatenate([layer(seed=5), layer(seed=6)]), np.tile(q, 2), owners[:1200])))
    assert even.parameters.crowd == NOT_CROWDED


@pytest.mark.parametrize("ends", [[600], [200, 600], [0, 450, 600]])
def test_ranks_count_as_one_device(ends):
    x, q = heaps(), signs(600)
    local = PME(np.eye(3), 1e-3)
    local(x, q)

    def work(world: pmd.World):
        mine = slice(([0, *ends])[world.rank], ends[world.rank])
        pme = DistributedPME(world, np.eye(3), 1e-3, threads=1)
        pme(x[mine], q[mine])
        return pme.parameters

    for p in on_threads(len(ends), work):
        assert p.crowd == local.parameters.crowd
        assert (p.cutoff, p.shape, p.window) == tuple(
            getattr(local.parameters, n) for n in ("cutoff", "shape", "window")
        )


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("many", [False, True], ids=["one", "systems"])
def test_energies_with_derivatives_choose_the_same(library, many):
    if library == "torch":
        torch = pytest.importorskip("torch")
        from particlemesh.apps.pme.torch import energy

        array = torch.tensor
    else:
        jax = pytest.importorskip("jax")
        from particlemesh.apps.pme.jax import energy

        array = jax.numpy.asarray
    x, q, system = heaps().astype("f4"), signs(600).astype("f4"), np.repeat([0, 1], 300)
    made, last = (lambda: PMEBatch(np.eye(3), 2, 1e-3), (system,)) if many else (lambda: PME(np.eye(3), 1e-3), ())
    plain, derived = made(), made()
    plain(x, q, *last)
    energy(derived, array(x), array(q), *map(array, last))
    assert plain.parameters.crowd.mesh > 1.2
    assert derived.parameters == plain.parameters
    if not many:
        opened = [PME(pm.Box(np.eye(3), periodic=(True, True, False)), 1e-3) for _ in range(2)]
        x[:, 2] = np.clip(x[:, 2], 0, 1)
        opened[0](x, q)
        energy(opened[1], array(x), array(q))
        assert opened[1].parameters == opened[0].parameters
        longer = made()
        energy(longer, array(x), array(q), cell=array(np.diag([1, 1, 1.01]).astype("f4")))
        assert longer.parameters.crowd.mesh > 1.2
    if library == "jax" and not many:  # traced positions have no numbers
        traced = made()
        jax.jit(lambda x: energy(traced, x, array(q)))(array(x))
        assert traced.parameters.crowd == NOT_CROWDED
