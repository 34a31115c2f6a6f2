# SPDX-License-Identifier: BSD-3-Clause
"""Many systems in one call are the systems one by one."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, PMEBatch
from pme_cases import ewald, image

FINE = dict(cutoff=1.2, splitting=3.0, shape=(20, 24, 20), window="bspline8", coulomb_constant=1.7)
BOXES = np.array([np.eye(3) * 2.0, [[2.1, 0, 0], [0.3, 1.9, 0], [-0.2, 0.4, 2.2]], np.eye(3) * (1.8, 2.2, 2.0)])


def systems(boxes):
    rng = np.random.default_rng(14)
    corners = np.stack(np.meshgrid(*[np.arange(2)] * 3), -1).reshape(-1, 3)
    counts = (8, 3, 6)
    x = [(corners[:n] + rng.uniform(0.1, 0.6, (n, 3))) / 2 @ box for n, box in zip(counts, boxes, strict=True)]
    return x, [rng.normal(size=n) for n in counts]


@pytest.mark.parametrize(("own_boxes", "dtype"), [(False, "float32"), (True, "float64")])
def test_systems_are_as_if_alone(own_boxes, dtype):
    boxes = BOXES if own_boxes else BOXES[[1, 1, 1]]
    x, q = systems(boxes)
    owner, order = np.repeat([0, 1, 2], [8, 3, 6]), np.random.default_rng(1).permutation(17)
    batch = PMEBatch(boxes[1], 3, **FINE)
    arrays = [np.concatenate(a)[order].astype(dtype) for a in (x, q)]
    result = batch(*arrays, owner[order], boxes=boxes if own_boxes else None)
    assert result.forces.dtype == dtype
    tolerance = dict(rtol=1e-10, atol=1e-10) if dtype == "float64" else dict(rtol=1e-4, atol=1e-4)
    for s in range(3):
        alone = PME(boxes[s], **FINE)(x[s], q[s])
        back = np.argsort(order)[owner == s]
        np.testing.assert_allclose(result.energy[s], alone.energy, **tolerance)
        np.testing.assert_allclose(result.energies[back], alone.energies, **tolerance)
        np.testing.assert_allclose(result.forces[back], alone.forces, **tolerance)
        np.testing.assert_allclose(result.virial[s], alone.virial, **tolerance)


@pytest.mark.parametrize("own_boxes", [False, True])
def test_pairs_of_each_system_are_excluded_or_scaled(own_boxes):
    boxes = BOXES if own_boxes else BOXES[[1, 1, 1]]
    x, q = systems(boxes)
    x[0][1] = x[0][0]  # an excluded pair may lie in one place
    pairs = [[[0, 1], [5, 2]], [[2, 0]], [[4, 1], [0, 5]]]
    factors = [[0.0, 0.3], [0.5], [0.0, -1.0]]
    starts = [0, 8, 11]
    together = dict(
        exclusions=np.concatenate([np.array(p) + n for p, n in zip(pairs, starts, strict=True)]),
        factors=np.concatenate(factors),
    )
    owner, order = np.repeat([0, 1, 2], [8, 3, 6]), np.random.default_rng(1).permutation(17)
    together["exclusions"] = np.argsort(order)[together["exclusions"]]
    arrays = [np.concatenate(a)[order] for a in (x, q)]
    batch = PMEBatch(boxes[1], 3, **FINE)
    result = batch(*arrays, owner[order], boxes=boxes if own_boxes else None, **together)
    for s in range(3):
        alone = PME(boxes[s], **FINE, exclusions=pairs[s], factors=factors[s])(x[s], q[s])
        back = np.argsort(order)[owner == s]
        np.testing.assert_allclose(result.energy[s], alone.energy, rtol=1e-9)
        np.testing.assert_allclose(result.energies[back], alone.energies, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.forces[back], alone.forces, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(result.virial[s], alone.virial, rtol=1e-8, atol=1e-8)
    # Against a plain Ewald sum, and the pairs' own interaction.
    energy, _ = ewald(boxes[1], x[1], q[1])
    r = np.linalg.norm(image(x[1][0] - x[1][2], boxes[1]))
    np.testing.assert_allclose(result.energy[1], 1.7 * (energy - 0.5 * q[1][0] * q[1][2] / r), rtol=1e-4)


def test_empty_systems_and_moved_particles():
    x, q = systems(BOXES[[0, 0, 0]])
    batch = PMEBatch(BOXES[0], 4, **FINE)
    for shift in (0.0, 0.3):
        result = batch(x[0] + shift, q[0], np.full(8, 2))
        alone = PME(BOXES[0], **FINE)(x[0] + shift, q[0])
        np.testing.assert_allclose(result.energy, [0, 0, alone.energy, 0], rtol=1e-10)


def test_bad_arguments_are_explained():
    x, q = systems(BOXES[[0, 0, 0]])
    batch = PMEBatch(BOXES[0], 2, **FINE)
    with pytest.raises(ValueError, match="system"):
        batch(x[0], q[0], np.full(8, 2))
    with pytest.raises(ValueError, match="charges has shape"):
        batch(x[0], q[0][:4], np.zeros(8, int))
    both = np.concatenate(x[:2]), np.concatenate(q[:2]), np.repeat([0, 1], [8, 3])
    with pytest.raises(ValueError, match=r"pair \[7, 8\], whose particles are in the systems 0 and 1"):
        batch(*both, exclusions=[[0, 1], [8, 7]])
    with pytest.raises(ValueError, match=r"pair 0 of exclusions is \[3, 11\], and there are 11"):
        batch(*both, exclusions=[[11, 3]])
    with pytest.raises(ValueError, match="lies where another one"):
        batch(x[0][[0, 0]], q[0][:2], np.zeros(2, int))
    assert batch(x[0][[0, 0]], q[0][:2], np.array([0, 1])).energy.shape == (2,)
    with pytest.raises(ValueError, match="systems"):
        PMEBatch(BOXES[0], 0)


@pytest.mark.parametrize("options", [
    dict(accuracy=1e-3), dict(accuracy=1e-6), dict(accuracy=1e-5, splitting="gaussian"), dict(accuracy=1e-4, shape=30),
    dict(dtype="float32"), dict(accuracy=1e-4, kind="dipoles"),
], ids=str)  # fmt: skip
def test_boxes_have_the_accuracy_or_are_refused(options):
    """The error is that expected, up to twice the accuracy, or twice that where particles are dense."""
    options, rng = dict(options), np.random.default_rng(2)
    fractions, q, dtype = rng.random((60, 3)), rng.normal(size=60), options.get("dtype", "float64")
    more = {"dipoles": 0.1 * rng.normal(size=(60, 3))} if options.pop("kind", None) else {}
    box, owner, q = BOXES[1], np.repeat([0, 1], 60), q - q.mean()
    batch = PMEBatch(box, 2, **options)

    def call(*boxes):
        x = np.concatenate([fractions @ b for b in boxes])
        moments = {name: np.tile(a, (2, 1)).astype(dtype) for name, a in more.items()}
        return batch(x.astype(dtype), np.tile(q, 2).astype(dtype), owner, boxes=np.array(boxes), **moments)

    call(box, box)
    longest = np.array(batch.parameters.longest) / np.linalg.norm(box, axis=1)
    assert (longest >= 1.05).all()
    assert (longest < 2).all()
    for stretch in (0.6, 1.0, 0.999 * longest, 0.999 * longest * [1.0, 0.8, 0.6]):
        at = np.reshape(stretch, (-1, 1)) * box
        forces, exact = call(box, at).forces[60:], PME(at, accuracy=1e-10)(fractions @ at, q, **more).forces
        typical = (q**2).mean() / (np.linalg.det(at) / 60) ** (2 / 3)
        most = 4 * options.get("accuracy", 1e-5) * (5 if more else 1)  # which is that of charges
        assert np.sqrt(((forces - exact) ** 2).sum(1).mean()) < most * typical
    before = call(box, box).energy
    for axis in range(3):
        at = np.where(np.arange(3) == axis, 1.001 * longest, 1.0)[:, None] * box
        with pytest.raises(ValueError, match=rf"lattice vector {axis} of box 1 has length .* accuracy up to"):
            call(box, at)
    for stretch in (2, 10):
        with pytest.raises(ValueError, match="lattice vector 0 of box 0"):
            call(stretch * box, box)
    np.testing.assert_array_equal(call(box, box).energy, before)


def test_parameters_of_the_user_serve_any_box():
    x, q = systems(BOXES)
    batch = PMEBatch(BOXES[0], 1, **FINE)
    assert np.isfinite(batch(5 * x[0], q[0], np.zeros(8, int), boxes=[5 * BOXES[0]]).energy).all()
    assert batch.parameters.longest == (np.inf,) * 3


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_cells_of_torch_and_jax_have_the_accuracy_or_are_refused(library):
    module = pytest.importorskip(library)
    energy = pytest.importorskip(f"particlemesh.apps.pme.{library}").energy
    array = module.tensor if library == "torch" else module.numpy.asarray
    x, q = systems(BOXES)
    x, q, owner = array(x[0].astype("f4")), array(q[0].astype("f4")), array(np.zeros(8, np.int32))
    for pme, more, axes in ((PME(BOXES[0], 1e-4), (), 0), (PMEBatch(BOXES[0], 1, 1e-4), (owner,), 1)):
        cell = array(np.array([[2.0] * 3])[0 if not axes else slice(None)].astype("f4"))
        one = energy(pme, x, q, *more, cell=cell)
        assert np.isfinite(np.asarray(energy(pme, x, q, *more, cell=1.04 * cell))).all()
        with pytest.raises(Exception, match="lattice vector 0 of box 0 has length 4.* the largest box"):
            np.asarray(energy(pme, x, q, *more, cell=2 * cell))
        assert one.shape == (1,) * axes
