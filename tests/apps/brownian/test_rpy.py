# SPDX-License-Identifier: BSD-3-Clause
"""The periodic mobility against closed forms and a dense Ewald sum by other formulas."""

import functools
import itertools
import pickle

import numpy as np
import pytest

import particlemesh as pm
from mobility import mobility
from particlemesh.apps.brownian import RPY, DistributedRPY, formulas, parameters
from particlemesh.distributed import World

ONE = np.array([[0.3, 0.2, 0.1]])


def suspension(count, fraction, seed=1):
    """Box length and random centres, overlapping, of unit spheres at a volume fraction."""
    length = (count * 4 / 3 * np.pi / fraction) ** (1 / 3)
    return length, np.random.default_rng(seed).uniform(0, length, (count, 3))


def distance(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def applied(matrix, forces):
    return (forces.reshape(-1, len(matrix)) @ matrix).reshape(forces.shape)


@pytest.mark.parametrize("length", [4.0, 8.0, 16.0])
def test_a_simple_cubic_lattice_has_hasimotos_drag(length):
    mobility_of_one = RPY((length,) * 3, accuracy=1e-12).set_positions(ONE).velocity([[1.0, 0.0, 0.0]])
    exact = 1 - 2.83729747948062 / length + 4 * np.pi / 3 / length**3
    assert np.allclose(mobility_of_one, [[exact, 0, 0]], rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("cell", "k"),
    [
        (np.array([[-1, 1, 1], [1, -1, 1], [1, 1, -1]]) / 2, 1.791858511),
        (np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2, 1.791747230),
    ],
    ids=["bcc", "fcc"],
)
def test_other_lattices_have_their_drag(cell, k):
    matrix = 8.0 * cell
    fraction = 4 / 3 * np.pi / abs(np.linalg.det(matrix))
    velocity = RPY(matrix, accuracy=1e-11).set_positions(ONE).velocity([[0.0, 1.0, 0.0]])
    assert np.allclose(velocity, [[0, 1 - k * fraction ** (1 / 3) + fraction, 0]], rtol=0, atol=2e-9)


@pytest.mark.parametrize("kind", ["one", "two", "many"])
@pytest.mark.parametrize("box", ["cube", "triclinic"])
def test_velocities_are_those_of_a_dense_ewald_sum(kind, box):
    length, x = suspension(40, 0.2)
    matrix = length * (np.eye(3) if box == "cube" else np.array([[1, 0, 0], [0.3, 0.9, 0], [-0.2, 0.4, 1.1]]))
    rng = np.random.default_rng(2)
    radius = {"one": 1.0, "two": np.where(np.arange(40) % 2, 1.0, 0.4), "many": rng.uniform(0.5, 1.2, 40)}[kind]
    forces = rng.normal(size=(3, 40, 3))
    exact = applied(mobility(matrix, x, radius), forces)
    rpy = RPY(matrix, radius, viscosity=1.0, accuracy=1e-9).set_positions(x)
    velocity = rpy.velocity(forces)
    assert distance(velocity, exact) < 2e-9
    assert np.allclose(rpy.velocity(forces[1]), velocity[1], rtol=0, atol=1e-14)


def test_a_suspension_has_the_accuracy_asked_for():
    length, x = suspension(200, 0.1)
    forces = np.random.default_rng(3).normal(size=(2, 200, 3))
    exact = applied(mobility((length,) * 3, x, 1.0), forces) * 6 * np.pi
    for accuracy in (1e-3, 1e-6):
        rpy = RPY((length,) * 3, accuracy=accuracy).set_positions(x)
        scale = parameters.System(rpy.box, 1.0, 1.0, 200).scale * 6 * np.pi
        error = np.sqrt(((rpy.velocity(forces) - exact) ** 2).mean()) / scale
        assert accuracy / 20 < error < 1.3 * accuracy


@pytest.mark.parametrize("accuracy", [0.3, 0.5, 1.0, 2.0])
def test_a_coarse_accuracy_keeps_the_pairs_that_overlap(accuracy):
    length, x = suspension(60, 0.1)
    forces = np.random.default_rng(3).normal(size=(2, 60, 3))
    exact = applied(mobility((length,) * 3, x, 1.0), forces)
    rpy = RPY((length,) * 3, viscosity=1.0, accuracy=accuracy).set_positions(x)
    assert rpy.parameters.cutoff >= 2
    assert distance(rpy.velocity(forces), exact) < accuracy


def test_a_thousand_spheres_have_the_accuracy_asked_for():
    length, x = suspension(1000, 0.1)
    forces, some = np.random.default_rng(5).normal(size=(4, 1000, 3)), np.arange(0, 1000, 90)
    exact = forces.reshape(4, -1) @ mobility((length,) * 3, x, 1.0, rows=some).T * 6 * np.pi
    rpy = RPY((length,) * 3, accuracy=1e-6).set_positions(x)
    scale = parameters.System(rpy.box, 1.0, 1.0, 1000).scale * 6 * np.pi
    error = np.sqrt(((rpy.velocity(forces)[:, some].reshape(4, -1) - exact) ** 2).mean()) / scale
    assert 5e-8 < error < 1.3e-6


@pytest.mark.turns(2)
@pytest.mark.parametrize("splitting", [0.3, 0.6])
def test_error_formulas_predict_what_is_measured(splitting):
    length, x = suspension(60, 0.1)
    forces = np.random.default_rng(4).normal(size=(8, 60, 3))
    exact = applied(mobility((length,) * 3, x, 1.0), forces)

    def measured(**given):
        rpy = RPY((length,) * 3, viscosity=1.0, accuracy=1.0, splitting=splitting, **given).set_positions(x)
        scale = parameters.System(rpy.box, 1.0, 1.0, 60).scale
        return np.sqrt(((rpy.velocity(forces) - exact) ** 2).mean()) / scale, rpy.parameters

    for cutoff in (2 + 1.5 / splitting, 2 + 3 / splitting):
        error, predicted = measured(cutoff=cutoff, shape=(48,) * 3, window="bspline12")
        assert predicted.far_error < 1e-2 * predicted.near_error
        assert 0.6 < error / predicted.error < 1.6
    for nodes, window in itertools.product((20, 32), ("bspline6", "bspline9")):
        error, predicted = measured(cutoff=2 + 6.5 / splitting, shape=(nodes,) * 3, window=window)
        assert predicted.near_error < 1e-2 * predicted.far_error
        assert 0.6 < error / predicted.error < 1.6


def test_near_and_far_functions_add_up_to_the_tensor_at_any_distance():
    k, weights = formulas.quadrature(0.7)
    for a, b in [(1.0, 1.0), (1.0, 0.3), (0.2, 2.0)]:
        r = np.concatenate([[0, 1e-6], np.linspace(0.01, 4, 300)])
        near, whole = formulas.near_tensor(r, a, b, 0.7), np.array([formulas.whole(distance, a, b) for distance in r]).T
        far = np.array([formulas.far(distance, a, b, k, weights) for distance in r]).T
        assert np.allclose(np.add(near, far), whole, rtol=0, atol=1e-12)


def test_the_operator_is_symmetric_and_positive_also_where_spheres_overlap():
    x = np.random.default_rng(5).uniform(0, 6, (25, 3))
    x[1], x[3] = x[0], x[2] + 1e-9
    radius = np.where(np.arange(25) % 3, 1.0, 0.6)
    radius[:4] = 1.0
    operator = RPY((6.0, 6.0, 6.0), radius, accuracy=1e-9).set_positions(x).linear_operator()
    dense = operator @ np.eye(75)
    assert abs(dense - dense.T).max() < 1e-12
    assert np.linalg.eigvalsh(dense)[0] > -1e-8
    assert np.allclose(dense[:3, 3:6], dense[:3, :3], atol=1e-8)  # in one place: as the sphere with itself
    assert np.allclose(operator @ np.arange(75.0), dense @ np.arange(75.0))


def test_descriptions_of_one_lattice_agree():
    _, x = suspension(20, 0.2)
    forces = np.random.default_rng(6).normal(size=(20, 3))
    cube = 7.5 * np.eye(3)
    skew = np.array([[1, 0, 0], [1, 1, 0], [-1, 1, 1]]) @ cube
    first, second = (RPY(m, accuracy=1e-10).set_positions(x).velocity(forces) for m in (cube, skew))
    assert distance(second, first) < 1e-9


def test_layouts_out_torch_and_single_precision_serve():
    torch = pytest.importorskip("torch")
    _, x = suspension(30, 0.1)
    rpy = RPY((12.0, 12.0, 12.0)).set_positions(x)
    forces = np.random.default_rng(7).normal(size=(2, 30, 3))
    exact = rpy.velocity(forces)
    strided = np.ascontiguousarray(np.moveaxis(forces, -1, 0))
    out = np.empty((3, 30, 2))
    assert rpy.velocity(np.moveaxis(strided, 0, -1), out=out.T) is not None
    assert np.array_equal(out.T, exact)
    tensors = RPY((12.0, 12.0, 12.0)).set_positions(torch.from_numpy(x))
    velocity = tensors.velocity(torch.from_numpy(forces))
    assert isinstance(velocity, torch.Tensor)
    assert np.array_equal(velocity.numpy(), exact)
    single = RPY((12.0, 12.0, 12.0)).set_positions(x.astype(np.float32))
    velocity = single.velocity(forces.astype(np.float32))
    assert velocity.dtype == np.float32
    assert distance(velocity, exact) < 1e-5
    assert isinstance(single.square_root(torch.from_numpy(forces.astype(np.float32))), torch.Tensor)


def test_no_vectors_serve():
    rpy = RPY((9.0, 9.0, 9.0), accuracy=1e-4).set_positions(np.random.default_rng(1).uniform(0, 9, (20, 3)))
    empty = np.empty((0, 20, 3))
    assert rpy.velocity(empty).shape == rpy.square_root(empty).shape == empty.shape
    for method in ("lanczos", "split"):
        assert rpy.noise(np.random.default_rng(2), 0, method=method).shape == empty.shape


@pytest.mark.parametrize("kind", [RPY, functools.partial(DistributedRPY, World())], ids=["one", "ranks"])
@pytest.mark.parametrize("generator", [None, 7, np.random.normal])
def test_what_draws_no_normal_numbers_is_no_generator(kind, generator):
    rpy = kind((9.0, 9.0, 9.0), accuracy=1e-3).set_positions(np.ones((1, 3)))
    with pytest.raises(TypeError, match=r"generator is .*; give one, such as numpy\.random\.default_rng\(1\)\."):
        rpy.noise(generator)


def test_no_spheres_and_other_numbers_of_spheres_serve():
    rpy = RPY((9.0, 9.0, 9.0)).set_positions(np.empty((0, 3)))
    assert rpy.velocity(np.empty((2, 0, 3))).shape == (2, 0, 3)
    for count in (1, 3, 40):
        x = np.random.default_rng(count).uniform(0, 9, (count, 3))
        fresh = RPY((9.0, 9.0, 9.0)).set_positions(x).velocity(np.ones((count, 3)))
        assert np.allclose(rpy.set_positions(x).velocity(np.ones((count, 3))), fresh, atol=3e-6)


def test_opencl_serves_two_radii_and_any_number_of_vectors():
    pytest.importorskip("pyopencl")
    x = np.random.default_rng(8).uniform(0, 9, (20, 3))
    x[1], x[2] = x[0], x[3] + 0.01
    radius = np.where(np.arange(20) % 2, 1.0, 0.5)
    forces = np.random.default_rng(9).normal(size=(17, 20, 3))
    options = {"splitting": 0.5, "cutoff": 8.0, "shape": (16,) * 3, "window": "bspline6", "accuracy": 1e-2}
    host = RPY((9.0, 9.0, 9.0), radius, **options).set_positions(x)
    exact = host.velocity(forces)
    rpy = RPY((9.0, 9.0, 9.0), radius, backend="opencl", **options).set_positions(x)
    for vectors in (17, 2, 1):  # four lanes share a neighbour's vectors, or one has them all, or there is one
        assert np.allclose(rpy.velocity(forces[:vectors]), exact[:vectors], rtol=0, atol=1e-12)
    forces = forces[:2]
    waves = np.random.default_rng(10).normal(size=(2, 3, 16, 16, 16))
    split = {"tolerance": 1e-6, "method": "split", "waves": waves}
    assert np.allclose(rpy.square_root(forces, **split), host.square_root(forces, **split), rtol=0, atol=1e-9)


# ---- bad input -------------------------------------------------------------------------------------------


def test_a_force_that_is_not_finite_names_its_sphere():
    rpy = RPY((9.0, 9.0, 9.0)).set_positions(np.random.default_rng(1).uniform(0, 9, (5, 3)))
    forces = np.zeros((2, 5, 3))
    forces[1, 3, 2] = np.nan
    with pytest.raises(ValueError, match="forces are not all finite; sphere 3 is the first"):
        rpy.velocity(forces)
    with pytest.raises(ValueError, match="z are not all finite; sphere 3"):
        rpy.square_root(forces)


def test_bad_positions_change_nothing():
    x = np.random.default_rng(1).uniform(0, 9, (5, 3))
    rpy = RPY((9.0, 9.0, 9.0)).set_positions(x)
    before = rpy.velocity(np.ones((5, 3)))
    bad = x.copy()
    bad[2, 1] = np.inf
    with pytest.raises(ValueError, match="2"):
        rpy.set_positions(bad)
    assert np.array_equal(rpy.velocity(np.ones((5, 3))), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius": -1.0}, "radius is -1.0; one positive number"),
        ({"radius": [1.0, np.nan]}, "radius of sphere 1 is nan"),
        ({"radius": np.ones((2, 2))}, "shape"),
        ({"viscosity": 0.0}, "viscosity"),
        ({"accuracy": -1e-3}, "accuracy"),
        ({"cutoff": 0.0}, "cutoff"),
        ({"window": "nonsense"}, "window"),
        ({"method": "nonsense"}, "method"),
        ({"box": pm.Box((4.0, 4.0, 4.0), periodic=(True, True, False))}, "three periodic"),
        ({"box": (4.0, 4.0)}, "three periodic"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RPY(**{"box": (4.0, 4.0, 4.0), **arguments})


def test_wrong_numbers_of_spheres_and_calls_without_positions_are_refused():
    rpy = RPY((9.0, 9.0, 9.0), np.ones(4))
    with pytest.raises(RuntimeError, match="set_positions"):
        rpy.velocity(np.ones((4, 3)))
    with pytest.raises(ValueError, match="one radius per sphere"):
        rpy.set_positions(np.zeros((5, 3)))
    rpy.set_positions(np.random.default_rng(1).uniform(0, 9, (4, 3)))
    with pytest.raises(ValueError, match="forces"):
        rpy.velocity(np.ones((5, 3)))
    with pytest.raises(TypeError, match="complex"):
        rpy.velocity(np.ones((4, 3), complex))
    with pytest.raises(ValueError, match="needs them"):
        rpy.square_root(np.ones((4, 3)), method="split")


def test_a_mesh_too_coarse_warns_with_what_is_reached():
    rpy = RPY((12.0, 12.0, 12.0), splitting=0.8, shape=(12,) * 3)
    with pytest.warns(UserWarning, match=r"error of about \d"):
        rpy.set_positions(np.random.default_rng(1).uniform(0, 12, (9, 3)))


def test_a_copy_has_the_arguments():
    rpy = RPY((9.0, 9.0, 9.0), 0.9, accuracy=1e-4, threads=1).set_positions(np.ones((2, 3)))
    copy = pickle.loads(pickle.dumps(rpy))
    assert copy.count == 0
    forces = np.eye(3)[:2]
    assert np.array_equal(copy.set_positions(np.ones((2, 3))).velocity(forces), rpy.velocity(forces))
